/* receiver_metrics.h - the counters of the receive side under the names that both daemons publish.
 *
 * 'prefix' is "fgpu_input" or "xbgpu_input"; the names after it are those of the reference correlator where it has them
 * (heaps, bytes, chunks, missing_heaps, ...).  What was refused is rejected_packets with a reason label, but for fgpu,
 * of which a heap is one packet, the reference's too_old_heaps and bad_timestamp_heaps.  xbgpu has these and
 * bad_feng_id_heaps, too, each heap counted by its first packet.  What belongs to any stream but not into a chunk
 * (descriptors, stop heaps, sources of other threads) is not refused: that is ignored_packets with a reason label.
 * metadata_heaps is the reference's: descriptors, and what lacks an item. */
#ifndef COMMON_RECV_RECEIVER_METRICS_H
#define COMMON_RECV_RECEIVER_METRICS_H

#include "common/recv/assemble.h"
#include "common/recv/receiver.h"

/* A member's counters, with its labels ("antenna=\"m000\",pol=\"0\""). */
void receiver_metrics_add_assembler(const char *prefix, const char *labels, const struct assembler_stats *stats);

/* A receive thread's counters, labelled with the thread's name. */
void receiver_metrics_add(const char *prefix, const char *thread, const struct receiver_stats *stats);

/* What its source has lost before, likewise; whoever looks at it asks the source. */
void receiver_metrics_add_drops(const char *prefix, const char *thread, const struct receiver *receiver);

/* One log line of what was received and refused: at the end of a run. */
void receiver_metrics_log(const char *name, const struct assembler_stats *stats);

#endif
