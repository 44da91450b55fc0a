/* data_time.h - when a member's data are due, by the time that passes, and whether the host's clock agrees with them.
 *
 * Two opinions, for an assembler that hears timestamps which nobody vouches for:
 *
 * Arrivals.  The lead of a timestamp is the timestamp less the samples since the monotonic clock's zero at its arrival.
 *            Delay on the way makes a lead smaller; nothing makes it larger.  The largest lead of the last 30 to 60 s
 *            says which timestamps are due by now.  A lead counts only when it is confirmed: one source has brought half
 *            of a chunk's heaps.  So a stranger who would move the lead must send as much as the source itself.
 * The clock. 'timebase: clock' says which timestamps belong to now.  The clock speaks only while the kernel says that
 *            the clock is synchronised (clock_state.h).
 *
 * Recordings have neither: their packets arrive as fast as they are read.
 *
 * Threads: the assembler's thread.   Blocking and allocation: none. */
#ifndef COMMON_TELEMETRY_DATA_TIME_H
#define COMMON_TELEMETRY_DATA_TIME_H

#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

struct data_time {
    const struct timebase *timebase; /* [const] */
    int64_t margin_samples;          /* [const] by which a due timestamp may lead; half a chunk */
    int64_t tolerance_ns;            /* [const] of the clock's opinion; 0: the clock is not asked */
    int64_t leads[2];                /* the largest confirmed, of this period and of the one before */
    int64_t period_ns;               /* when this period began */
    int64_t confirmed_ns;            /* the last arrival that confirmed a lead; the drift since then widens the margin */
    bool known;                      /* there is a lead */
};

void data_time_init(struct data_time *time, const struct timebase *timebase, int64_t chunk_samples,
                    int64_t tolerance_ns);

/* Registers the gauge 'program'_clock_synchronised.  With 'from_packets' the clock places no timestamps, so there is no
 * gauge. */
void data_time_metrics(const char *program, bool from_packets);

/* The timestamps begin afresh, so the leads of before say nothing. */
void data_time_forget(struct data_time *time);

/* Half of the chunk that is centred on 'timestamp' has arrived. */
void data_time_confirm(struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* The newest timestamp that may have arrived by 'arrival_ns', without any margin.  Ask only while time->known. */
int64_t data_time_at(const struct data_time *time, int64_t arrival_ns);

/* Whether data of that time may have arrived by now.  Ask only while time->known. */
bool data_time_is_due(const struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* Whether the synchronised clock contradicts 'claim' and agrees with 'window': then the claim is not to be believed. */
bool data_time_clock_refuses(const struct data_time *time, int64_t claim, int64_t window);

/* By how many periods of 2^48 samples 'timestamp' was unwrapped too high, by the synchronised clock; 0: it is right, or
 * nobody can tell. */
int64_t data_time_wrong_periods(const struct data_time *time, int64_t timestamp);

#endif
