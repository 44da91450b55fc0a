/* receiver_metrics.c - registers and logs the counters of receivers and assemblers. */
#include "common/recv/receiver_metrics.h"

#include "common/base/log.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

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

/* Reasons for which the reference correlator has separate counters of heaps.  The other reasons are labels of
 * rejected_packets, or of ignored_packets if they are harmless. */
static const struct own_name {
    enum reject reject;
    const char *name, *why;
} own_names[] = {
    {REJECT_TOO_OLD, "too_old_heaps", "their chunk had been closed."},
    {REJECT_BAD_TIMESTAMP, "bad_timestamp_heaps", "their timestamp is not a multiple of a heap's length."},
    {REJECT_BAD_SOURCE, "bad_feng_id_heaps", "their feng_id does not belong to the array."},
};

static void add_own_name(const char *prefix, const struct own_name *own, const char *what, const char *labels,
                         const struct counter *counter)
{
    char help[160];

    snprintf(help, sizeof(help), "%s: %s", what, own->why);
    add(prefix, own->name, help, labels, counter);
}

/* Returns the reference correlator's name for the counter of a reason, or NULL.  The counter counts packets, so the
 * name is right only if each heap is one packet, as in fgpu's input.  For xbgpu, add_refused_heaps() adds counters
 * with these names. */
static const struct own_name *own_name(const char *prefix, enum reject reject)
{
    for (size_t i = 0; strcmp(prefix, "fgpu_input") == 0 && i < ARRAY_LEN(own_names); i++)
        if (own_names[i].reject == reject && reject != REJECT_BAD_SOURCE)
            return &own_names[i];
    return NULL;
}

static void add_rejects(const char *prefix, const char *labels, const struct counter *rejects)
{
    for (int r = REJECT_NONE + 1; r < N_REJECTS; r++) {
        const struct own_name *own = own_name(prefix, (enum reject)r);
        char with_reason[320];
        snprintf(with_reason, sizeof(with_reason), "%s", labels);
        if (own) {
            add_own_name(prefix, own, "Heaps (of one packet) refused", with_reason, &rejects[r]);
            continue;
        }
        stats_label(with_reason, sizeof(with_reason), "reason", reject_name((enum reject)r));
        if (reject_is_harmless((enum reject)r))
            add(prefix, "ignored_packets",
                "Packets that belong to the streams but contain no data for a chunk, by reason.", with_reason,
                &rejects[r]);
        else
            add(prefix, "rejected_packets", "Packets refused, by reason.", with_reason, &rejects[r]);
    }
}

void receiver_metrics_add_assembler(const char *prefix, const char *labels, const struct assembler_stats *stats)
{
    char full[128];

    add(prefix, "heaps", "Complete heaps received.", labels, &stats->heaps);
    add(prefix, "bytes", "Payload bytes of complete heaps.", labels, &stats->bytes);
    add(prefix, "chunks", "Chunks handed to the worker.", labels, &stats->chunks);
    add(prefix, "missing_heaps", "Heaps expected since the first heap but not received.", labels,
        &stats->missing_heaps);
    add(prefix, "incomplete_heaps", "Heaps of which only a part was received.", labels, &stats->incomplete_heaps);
    add(prefix, "contested_heaps", "Heaps that count as missing because two different copies of their bytes arrived.",
        labels, &stats->contested_heaps);
    add(prefix, "copied_packets",
        "Packets that were copied to their place in the chunk, because they had been received elsewhere.", labels,
        &stats->copied_packets);
    add(prefix, "jumps", "Accepted jumps of the timestamps.", labels, &stats->jumps);
    add(prefix, "gap_samples", "Samples skipped by forward jumps that are longer than the elapsed time.", labels,
        &stats->gap_samples);
    add_rejects(prefix, labels, stats->rejects);
    snprintf(full, sizeof(full), "%s_newest_timestamp", prefix);
    stats_gauge(full, "Timestamp of the newest chunk, in ADC samples.", labels, &stats->newest_timestamp);
}

/* Adds the counters of refused heaps for xbgpu.  The heaps that xbgpu receives have several packets.  There is one
 * counter for each reason that the reference correlator counts.  A refused heap is counted when its first packet is
 * refused. */
static void add_refused_heaps(const char *prefix, const char *labels, const struct counter *heaps)
{
    for (size_t i = 0; strcmp(prefix, "xbgpu_input") == 0 && i < ARRAY_LEN(own_names); i++)
        add_own_name(prefix, &own_names[i], "Heaps refused at their first packet", labels, &heaps[own_names[i].reject]);
}

void receiver_metrics_add(const char *prefix, const char *thread, const struct receiver_stats *stats)
{
    char labels[64] = "";

    stats_label(labels, sizeof(labels), "thread", thread);
    add(prefix, "packets", "Packets received.", labels, &stats->packets);
    add_rejects(prefix, labels, stats->rejects);
    add_refused_heaps(prefix, labels, stats->refused_heaps);
    if (strcmp(prefix, "fgpu_input") == 0 || strcmp(prefix, "xbgpu_input") == 0)
        add(prefix, "metadata_heaps", "Descriptor heaps, and heaps that lack an item that data heaps have.", labels,
            &stats->metadata_heaps);
    for (int e = SPEAD_OK + 1; e < SPEAD_N_ERRORS; e++) {
        char with_error[128];
        snprintf(with_error, sizeof(with_error), "%s", labels);
        stats_label(with_error, sizeof(with_error), "error", spead_error_name((enum spead_error)e));
        add(prefix, "malformed_packets", "Packets that are not SPEAD-64-48, by error.", with_error,
            &stats->malformed[e]);
    }
}

void receiver_metrics_add_drops(const char *prefix, const char *thread, const struct receiver *receiver)
{
    char labels[64] = "", full[128];

    stats_label(labels, sizeof(labels), "thread", thread);
    snprintf(full, sizeof(full), "%s_kernel_drops", prefix);
    stats_gauge_read(full,
                     "Messages dropped since the start: by the kernel if the socket buffer was full, by the NIC's port "
                     "if no frame was free. Packets that the kernel has joined are one message.",
                     labels, receiver_kernel_drops, receiver);
}

void receiver_metrics_log(const char *name, const struct assembler_stats *stats)
{
    uint64_t refused = 0, contested = counter_get(&stats->contested_heaps);
    char more[64] = "";

    for (int r = REJECT_NONE + 1; r < N_REJECTS; r++)
        refused += counter_get(&stats->rejects[r]);
    if (contested > 0)
        snprintf(more, sizeof(more), ", %" PRIu64 " heap%s contested", contested, plural(contested));
    uint64_t n_heaps = counter_get(&stats->heaps);
    log_info("%s: %" PRIu64 " heap%s received, %" PRIu64 " missing (%" PRIu64 " of them incomplete), %" PRIu64
             " packet%s refused%s",
             name, n_heaps, plural(n_heaps), counter_get(&stats->missing_heaps), counter_get(&stats->incomplete_heaps),
             refused, plural(refused), more);
}
