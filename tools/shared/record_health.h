/* record_health.h - the health of a recorder: whether it loses data, judged from its counters once a second (a poll).
 *
 * A recorder is unhealthy in two cases.  First: during the last 'limit' polls a dump was lost, because the disk was
 * full.  Second: during the last 'limit' polls no dump came out, but visibilities arrived and were refused.  A recorder
 * without input is healthy.  A dump is the unit that a recorder writes at once: for beamrec, a batch of a beam.  These
 * functions are pure: the caller has the clock. */
#ifndef TOOLS_SHARED_RECORD_HEALTH_H
#define TOOLS_SHARED_RECORD_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Totals since the start. */
struct record_health_counts {
    uint64_t n_dumps;   /* dumps written, or lost because the disk was full */
    uint64_t n_lost;    /* dumps lost because the disk was full */
    uint64_t n_refused; /* packets of visibilities that were refused */
};

struct record_health {
    unsigned limit; /* number of polls */
    struct record_health_counts counts;
    unsigned since_dump, since_loss, since_refusal; /* polls since the last event of each kind */
};

void record_health_init(struct record_health *health, unsigned limit);

void record_health_poll(struct record_health *health, const struct record_health_counts *counts);

bool record_health_is_good(const struct record_health *health);

/* Returns true once in each 'limit' polls without a dump.  The caller then warns the operator. */
bool record_health_is_silent(const struct record_health *health);

/* Returns true if the recording ends with refused visibilities.  Either the last 'limit' polls had refusals and no
 * dump, or the whole recording had refusals and no dump. */
bool record_health_was_refusing(const struct record_health *health);

#endif
