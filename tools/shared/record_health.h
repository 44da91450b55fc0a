/* record_health.h - polls a recorder's counters once a second, and decides whether the recorder loses data.
 *
 * A recorder is unhealthy in two cases.  First: during the last 'limit' polls a dump was lost, because the disk was
 * full.  Second: during the last 'limit' polls no dump was completed, but visibilities arrived and were refused.  A
 * recorder without input is healthy.  A dump here is the unit that a recorder writes; for beamrec, it is a batch.
 * These functions are pure, and the caller decides when to poll. */
#ifndef TOOLS_SHARED_RECORD_HEALTH_H
#define TOOLS_SHARED_RECORD_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of events since the start of the recorder. */
struct record_health_counts {
    uint64_t n_dumps;   /* dumps written, or lost because the disk was full */
    uint64_t n_lost;    /* dumps lost because the disk was full */
    uint64_t n_refused; /* packets of visibilities that were refused */
};

struct record_health {
    unsigned limit; /* number of polls */
    struct record_health_counts counts;
    unsigned since_dump, since_loss, since_refusal; /* number of polls since the last dump, loss or refusal */
};

void record_health_init(struct record_health *health, unsigned limit);

void record_health_poll(struct record_health *health, const struct record_health_counts *counts);

bool record_health_is_good(const struct record_health *health);

/* While no dump is completed, returns true at every 'limit'-th poll.  The caller then warns the operator. */
bool record_health_is_silent(const struct record_health *health);

/* Returns true if visibilities were refused at the end of the recording.  This is the case if there were refusals but
 * no dump, in the last 'limit' polls or in the whole recording. */
bool record_health_was_refusing(const struct record_health *health);

#endif
