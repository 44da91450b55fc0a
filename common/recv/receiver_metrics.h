/* receiver_metrics.h - registers the counters of the receive side under the names that both daemons publish.
 *
 * 'prefix' is "fgpu_input" or "xbgpu_input".  If the reference correlator has the same counter, the rest of the name is
 * the same as in the reference (heaps, bytes, chunks, missing_heaps, ...).  The counter rejected_packets has a reason
 * label.  The reference counts refused heaps in too_old_heaps, bad_timestamp_heaps and, for xbgpu, bad_feng_id_heaps.
 * The heaps that fgpu receives are one packet each.  fgpu counts such packets in too_old_heaps and bad_timestamp_heaps,
 * and not in rejected_packets.  xbgpu has all three counters in addition to rejected_packets.  xbgpu counts a refused
 * heap when its first packet is refused.  Some packets of a stream belong to no chunk: descriptors, stop heaps, and
 * packets for other threads.  These packets are not refused.  They are counted in ignored_packets, with a reason label.
 * metadata_heaps is the reference's counter of descriptor heaps and of heaps that lack an item. */
#ifndef COMMON_RECV_RECEIVER_METRICS_H
#define COMMON_RECV_RECEIVER_METRICS_H

#include "common/recv/assemble.h"
#include "common/recv/receiver.h"

/* Registers the counters of a member's assembler, with the member's labels ("antenna=\"m000\",pol=\"0\""). */
void receiver_metrics_add_assembler(const char *prefix, const char *labels, const struct assembler_stats *stats);

/* Registers a receive thread's counters, labelled with the thread's name. */
void receiver_metrics_add(const char *prefix, const char *thread, const struct receiver_stats *stats);

/* Registers the number of packets that were dropped before reception, labelled with the thread's name.  Each scrape of
 * /metrics reads the number from the kernel or the NIC. */
void receiver_metrics_add_drops(const char *prefix, const char *thread, const struct receiver *receiver);

/* Logs one line about received and refused heaps.  Called at the end of a run. */
void receiver_metrics_log(const char *name, const struct assembler_stats *stats);

#endif
