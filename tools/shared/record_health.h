/* record_health.h - whether a recorder loses what comes, seen from its counters once a second.
 *
 * Bad is: a dump found no room on the disk during the last 'limit' looks; or for 'limit' looks no dump came out while
 * visibilities came and were refused.  A recorder to which nobody sends is well.
 * A dump is what a recorder writes at once: for beamrec, a batch of a beam.
 * Pure: the caller has the clock. */
#ifndef TOOLS_SHARED_RECORD_HEALTH_H
#define TOOLS_SHARED_RECORD_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Totals since the start. */
struct record_health_counts {
    uint64_t n_dumps;   /* written, or lost for lack of room */
    uint64_t n_lost;    /* of them */
    uint64_t n_refused; /* packets of visibilities */
};

struct record_health {
    unsigned limit; /* looks */
    struct record_health_counts counts;
    unsigned since_dump, since_loss, since_refusal; /* looks */
};

void record_health_init(struct record_health *health, unsigned limit);

void record_health_poll(struct record_health *health, const struct record_health_counts *counts);

bool record_health_is_good(const struct record_health *health);

/* Once in each 'limit' looks without a dump: time to tell the operator. */
bool record_health_is_silent(const struct record_health *health);

/* Whether the recording ends with visibilities refused: those of the last 'limit' looks, or all there were. */
bool record_health_was_refusing(const struct record_health *health);

#endif
