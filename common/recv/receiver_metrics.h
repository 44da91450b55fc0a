/* receiver_metrics.h - registers the counters of the receive side under the names that both daemons publish.
 *
 * 'prefix' is "fgpu_input" or "xbgpu_input".  If the reference correlator has such a counter, the name after the prefix
 * is the reference's (heaps, bytes, chunks, missing_heaps, ...).  Refused packets are counted by rejected_packets with
 * a reason label.  fgpu's heaps are one packet each: fgpu counts old heaps and heaps with a bad timestamp by the
 * reference's too_old_heaps and bad_timestamp_heaps instead.  xbgpu has these two and bad_feng_id_heaps in addition,
 * and counts each heap by its first packet.  Packets of a stream that belong to no chunk (descriptors, stop heaps,
 * sources of other threads) are not refused: ignored_packets counts them, with a reason label.  metadata_heaps is the
 * reference's counter of descriptors and of heaps that lack an item. */
#ifndef COMMON_RECV_RECEIVER_METRICS_H
#define COMMON_RECV_RECEIVER_METRICS_H

#include "common/recv/assemble.h"
#include "common/recv/receiver.h"

/* Registers a member's counters, with the member's labels ("antenna=\"m000\",pol=\"0\""). */
void receiver_metrics_add_assembler(const char *prefix, const char *labels, const struct assembler_stats *stats);

/* Registers a receive thread's counters, labelled with the thread's name. */
void receiver_metrics_add(const char *prefix, const char *thread, const struct receiver_stats *stats);

/* Registers the count of packets that the receiver's source dropped, labelled with the thread's name.  Each scrape asks
 * the source. */
void receiver_metrics_add_drops(const char *prefix, const char *thread, const struct receiver *receiver);

/* Logs one line about received and refused heaps.  Called at the end of a run. */
void receiver_metrics_log(const char *name, const struct assembler_stats *stats);

#endif
