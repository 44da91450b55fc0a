/* receiver_metrics.c - registers the receive side's counters. */
#include "common/receiver_metrics.h"

#include "common/log.h"
#include "common/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(const char *prefix, const char *name, const char *help, const char *labels,
                const struct counter *counter)
{
    char full[128];

    snprintf(full, sizeof(full), "%s_%s", prefix, name);
    stats_counter(full, help, labels, counter);
}

/* Reasons that the reference counts, in heaps, under a name of their own; the others are rejected_packets{reason=...}.
 * Packets are counted here, so the names are true only where a heap is one packet: in fgpu's input. */
static const char *own_name(const char *prefix, enum reject reject)
{
    if (strcmp(prefix, "fgpu_input") != 0)
        return NULL;
    switch (reject) {
    case REJECT_NO_ITEMS: return "metadata_heaps";
    case REJECT_TOO_OLD: return "too_old_heaps";
    case REJECT_BAD_TIMESTAMP: return "bad_timestamp_heaps";
    default: return NULL;
    }
}

static void add_rejects(const char *prefix, const char *labels, const struct counter *rejects)
{
    for (int r = REJECT_NONE + 1; r < N_REJECTS; r++) {
        char with_reason[320];
        snprintf(with_reason, sizeof(with_reason), "%s", labels);
        if (own_name(prefix, (enum reject)r)) {
            add(prefix, own_name(prefix, (enum reject)r), "Packets refused for this reason.", with_reason, &rejects[r]);
        } else {
            stats_label(with_reason, sizeof(with_reason), "reason", reject_name((enum reject)r));
            add(prefix, "rejected_packets", "Packets refused, by reason.", with_reason, &rejects[r]);
        }
    }
}

void assembler_stats_register(const char *prefix, const char *labels, const struct assembler_stats *stats)
{
    char full[128];

    add(prefix, "heaps", "Complete heaps received.", labels, &stats->heaps);
    add(prefix, "bytes", "Payload bytes of complete heaps.", labels, &stats->bytes);
    add(prefix, "chunks", "Chunks handed to the worker.", labels, &stats->chunks);
    add(prefix, "missing_heaps", "Heaps expected since the first but not received.", labels, &stats->missing_heaps);
    add(prefix, "incomplete_heaps", "Heaps of which only a part was received.", labels, &stats->incomplete_heaps);
    add(prefix, "copied_packets", "Packets that did not land in their place and were copied.", labels,
        &stats->copied_packets);
    add(prefix, "jumps", "Jumps of the timestamps that were believed.", labels, &stats->jumps);
    add_rejects(prefix, labels, stats->rejects);
    snprintf(full, sizeof(full), "%s_newest_timestamp", prefix);
    stats_gauge(full, "Timestamp of the newest chunk, ADC samples.", labels, &stats->newest_timestamp);
}

void receiver_stats_register(const char *prefix, const char *thread, const struct receiver_stats *stats)
{
    char labels[64] = "", full[128];

    stats_label(labels, sizeof(labels), "thread", thread);
    add(prefix, "packets", "Packets received.", labels, &stats->packets);
    add_rejects(prefix, labels, stats->rejects);
    for (int e = SPEAD_OK + 1; e < SPEAD_N_ERRORS; e++) {
        char with_error[128];
        snprintf(with_error, sizeof(with_error), "%s", labels);
        stats_label(with_error, sizeof(with_error), "error", spead_error_name((enum spead_error)e));
        add(prefix, "malformed_packets", "Packets that are not SPEAD-64-48, by what is wrong.", with_error,
            &stats->malformed[e]);
    }
    snprintf(full, sizeof(full), "%s_kernel_drops", prefix);
    stats_gauge(full, "Packets that the kernel dropped for want of socket buffer.", labels, &stats->kernel_drops);
}

void assembler_stats_log(const char *name, const struct assembler_stats *stats)
{
    uint64_t refused = 0;

    for (int r = REJECT_NONE + 1; r < N_REJECTS; r++)
        refused += counter_get(&stats->rejects[r]);
    log_info("%s: %" PRIu64 " heaps received, %" PRIu64 " missing (%" PRIu64 " of them incomplete), %" PRIu64
             " packets refused",
             name, counter_get(&stats->heaps), counter_get(&stats->missing_heaps),
             counter_get(&stats->incomplete_heaps), refused);
}
