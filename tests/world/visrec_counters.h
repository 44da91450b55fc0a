/* visrec_counters.h - compares the recorder's counters with the packets that it read, and with its files.
 *
 * Threads: the world's first thread. */
#ifndef TESTS_WORLD_VISREC_COUNTERS_H
#define TESTS_WORLD_VISREC_COUNTERS_H

#include "tests/world/dumps_files.h"

struct visrec_counts {
    uint64_t n_dumps, n_unwritten, n_heaps, n_values, n_flagged, n_no_chunk;
};

/* Waits until a recorder without input has written all dumps.  Checks the counters of the packets that it read
 * from the ports, and returns the other counters. */
struct visrec_counts visrec_counters_await_end(const struct network_port *const *ports, size_t n_ports);

/* Compares the counters with the files. */
void visrec_counters_check(const struct visrec_counts *counts, const struct dumps_tally *tally);

#endif
