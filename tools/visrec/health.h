/* health.h - whether the recorder loses what comes, seen from its counters once a second.
 *
 * Bad is: a dump found no room on the disk during the last 'limit' looks; or for 'limit' looks no dump came out while
 * visibilities came and were refused.  A recorder to which nobody sends is well.
 * Pure: the caller has the clock. */
#ifndef TOOLS_VISREC_HEALTH_H
#define TOOLS_VISREC_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Totals since the start. */
struct visrec_health_counts {
    uint64_t n_dumps;   /* written, or lost for lack of room */
    uint64_t n_lost;    /* of them */
    uint64_t n_refused; /* packets of visibilities */
};

struct visrec_health {
    unsigned limit; /* looks */
    struct visrec_health_counts counts;
    unsigned since_dump, since_loss, since_refusal; /* looks */
};

void visrec_health_init(struct visrec_health *health, unsigned limit);

void visrec_health_poll(struct visrec_health *health, const struct visrec_health_counts *counts);

bool visrec_health_is_good(const struct visrec_health *health);

/* Once in each 'limit' looks without a dump: time to tell the operator. */
bool visrec_health_is_silent(const struct visrec_health *health);

/* Whether the recording ends with visibilities refused: those of the last 'limit' looks, or all there were. */
bool visrec_health_was_refusing(const struct visrec_health *health);

#endif
