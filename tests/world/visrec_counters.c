/* visrec_counters.c - see visrec_counters.h. */
#include "tests/world/visrec_counters.h"

#include "common/base/units.h"
#include "common/recv/reject.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"

#include <stdio.h>

static uint64_t count_refused(enum reject reject)
{
    char label[64];

    snprintf(label, sizeof(label), "reason=\"%s\"", reject_name(reject));
    return run_counter("visrec_rejected_packets_total", label) + run_counter("visrec_ignored_packets_total", label);
}

/* Checks the counters of wrong packets.  A packet with a flipped bit is in the counter of any reason that is found before
 * its CRC is checked, or in the CRC's counter. */
static void check_refused(void)
{
    static const enum reject rejects[DUMPS_N_KINDS] = {
        [DUMPS_DESCRIPTOR] = REJECT_DESCRIPTOR,       [DUMPS_STOP] = REJECT_STOP,
        [DUMPS_NO_ITEMS] = REJECT_NO_ITEMS,           [DUMPS_HEAP_SIZE] = REJECT_HEAP_SIZE,
        [DUMPS_ALIGNMENT] = REJECT_ALIGNMENT,         [DUMPS_BAD_TIMESTAMP] = REJECT_BAD_TIMESTAMP,
        [DUMPS_BAD_FREQUENCY] = REJECT_BAD_FREQUENCY, [DUMPS_STRANGER] = REJECT_BAD_SENDER,
        [DUMPS_MALFORMED] = REJECT_MALFORMED,
    };
    uint64_t n_flipped = count_refused(REJECT_CRC);

    for (unsigned kind = DUMPS_DESCRIPTOR; kind < DUMPS_N_KINDS; kind++) {
        uint64_t n = count_refused(rejects[kind]), n_read = dumps.n_read[kind];
        bool is_before_crc = rejects[kind] != REJECT_BAD_SENDER && rejects[kind] < REJECT_CRC &&
                             rejects[kind] != REJECT_ALIGNMENT && rejects[kind] != REJECT_BAD_TIMESTAMP;
        if (n < n_read || (n > n_read && !is_before_crc))
            world_fail("%llu packets of the kind %s were read, and the counter has %llu", (unsigned long long)n_read,
                       reject_name(rejects[kind]), (unsigned long long)n);
        n_flipped += n - n_read;
    }
    if (n_flipped != dumps.n_flipped)
        world_fail("%llu packets with a flipped bit were read, and %llu were refused",
                   (unsigned long long)dumps.n_flipped, (unsigned long long)n_flipped);
}

/* Checks the counters of packets. */
static void check_packets(uint64_t n_read)
{
    uint64_t n_sent_on = 0, n_parts = dumps.shape.n_parts;

    if (run_counter("visrec_packets_total", "") != n_read)
        world_fail("%llu packets were read, and the counter differs", (unsigned long long)n_read);
    check_refused();
    static const enum reject others[] = {REJECT_TOO_OLD, REJECT_JUMP, REJECT_CLOCK, REJECT_DUPLICATE, REJECT_NO_CHUNK};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        uint64_t n = count_refused(others[i]);
        n_sent_on += n;
        if (n > 0)
            world_note(others[i] == REJECT_TOO_OLD     ? "runs with packets too old"
                       : others[i] == REJECT_JUMP      ? "runs with refused jumps"
                       : others[i] == REJECT_CLOCK     ? "runs with times that the clock refuses"
                       : others[i] == REJECT_DUPLICATE ? "runs with duplicates"
                                                       : "runs without a free chunk");
    }
    n_sent_on += run_counter("visrec_heaps_total", "") * n_parts;
    uint64_t n_data = dumps.n_read[DUMPS_GENUINE] + dumps.n_read[DUMPS_FORGED] + dumps.n_read[DUMPS_FAR];
    uint64_t n_contested = run_counter("visrec_contested_heaps_total", "");
    /* An incomplete heap has at least one packet, and a contested heap one to all packets. */
    uint64_t n_least = n_sent_on + run_counter("visrec_incomplete_heaps_total", "") + n_contested;
    uint64_t n_most =
        n_sent_on + run_counter("visrec_incomplete_heaps_total", "") * (n_parts - 1) + n_contested * n_parts;
    if (n_data < n_least || n_data > n_most)
        world_fail("%llu packets of visibilities were read, and the counters have %llu to %llu",
                   (unsigned long long)n_data, (unsigned long long)n_least, (unsigned long long)n_most);
}

struct visrec_counts visrec_counters_await_end(const struct network_port *const *ports, size_t n_ports)
{
    uint64_t n_read = 0;

    run_sleep(2 * NS_PER_S + 3 * (int64_t)dumps.shape.window * DUMPS_NS);
    while (run_counter("visrec_dumps_total", "") + run_counter("visrec_unwritten_dumps_total", "") <
           run_counter("visrec_chunks_total", ""))
        run_sleep(10 * NS_PER_MS);
    for (size_t i = 0; i < n_ports; i++)
        n_read += network_n_read(ports[i]);
    check_packets(n_read);
    return (struct visrec_counts){
        .n_dumps = run_counter("visrec_dumps_total", ""),
        .n_unwritten = run_counter("visrec_unwritten_dumps_total", ""),
        .n_heaps = run_counter("visrec_heaps_total", ""),
        .n_values = run_counter("visrec_values_total", ""),
        .n_flagged = run_counter("visrec_flagged_values_total", ""),
        .n_no_chunk = count_refused(REJECT_NO_CHUNK),
    };
}

void visrec_counters_check(const struct visrec_counts *counts, const struct dumps_tally *tally)
{
    uint64_t n_lost = counts->n_unwritten * dumps.shape.n_substreams;

    if (counts->n_dumps != tally->n_dumps || counts->n_values != tally->n_values ||
        counts->n_flagged != tally->n_flagged)
        world_fail("the counters have %llu dumps, %llu values and %llu flags, the files %llu, %llu and %llu",
                   (unsigned long long)counts->n_dumps, (unsigned long long)counts->n_values,
                   (unsigned long long)counts->n_flagged, (unsigned long long)tally->n_dumps,
                   (unsigned long long)tally->n_values, (unsigned long long)tally->n_flagged);
    if (counts->n_heaps < tally->n_heaps || counts->n_heaps > tally->n_heaps + n_lost)
        world_fail("the counter has %llu heaps, and the files have %llu", (unsigned long long)counts->n_heaps,
                   (unsigned long long)tally->n_heaps);
}
