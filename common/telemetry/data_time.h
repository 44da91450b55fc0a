/* data_time.h - the time at which a member's data are due, and the agreement of the data with the host's clock.
 *
 * An assembler cannot trust the timestamps of packets.  Two sources judge them:
 *
 * Arrivals.  The lead of a timestamp is the timestamp minus the samples since the monotonic clock's zero at its
 *            arrival.  Delay on the way makes a lead smaller; nothing makes a lead larger.  The largest lead of the
 *            last 30 to 60 s tells which timestamps are due by now.  A lead counts only after confirmation: one source
 *            has brought half of a chunk's heaps.  So a false source must send as much as the true source to move the
 *            lead.
 * The clock. With 'timebase: clock' the host's clock tells which timestamps belong to now.  The clock counts only while
 *            the kernel calls the clock synchronised (clock_state.h).
 *
 * Recordings have neither source: their packets arrive as fast as they are read.
 *
 * Threads: the assembler's thread.   Blocking and allocation: none. */
#ifndef COMMON_TELEMETRY_DATA_TIME_H
#define COMMON_TELEMETRY_DATA_TIME_H

#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

struct data_time {
    const struct timebase *timebase; /* [const] */
    int64_t margin_samples;          /* [const] margin by which a due timestamp may lead: half a chunk */
    int64_t tolerance_ns;            /* [const] tolerance of the clock; 0: the clock is not asked */
    int64_t leads[2];                /* largest confirmed leads of this period and of the period before */
    int64_t period_ns;               /* monotonic start of this period */
    int64_t confirmed_ns;            /* last arrival that confirmed a lead; drift since then widens the margin */
    bool known;                      /* a lead is known */
};

void data_time_init(struct data_time *time, const struct timebase *timebase, int64_t chunk_samples,
                    int64_t tolerance_ns);

/* Registers the gauge 'program'_clock_synchronised.  With 'from_packets' the clock places no timestamps, so there is no
 * gauge. */
void data_time_metrics(const char *program, bool from_packets);

/* Discards all recorded leads.  Called when the timestamps start again. */
void data_time_forget(struct data_time *time);

/* Confirms a lead: half of the chunk that is centred on 'timestamp' has arrived. */
void data_time_confirm(struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* Returns the newest timestamp that may have arrived by 'arrival_ns', without margin.  Call only while time->known. */
int64_t data_time_at(const struct data_time *time, int64_t arrival_ns);

/* Returns whether data of 'timestamp' may have arrived by 'arrival_ns'.  Call only while time->known. */
bool data_time_is_due(const struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* Returns true if the synchronised clock contradicts 'claim' and agrees with 'window': the claim must be refused. */
bool data_time_clock_refuses(const struct data_time *time, int64_t claim, int64_t window);

/* Returns the number of periods of 2^48 samples by which 'timestamp' was unwrapped too high, by the synchronised clock.
 * Returns 0 if the timestamp is right, or if the clock is not synchronised. */
int64_t data_time_wrong_periods(const struct data_time *time, int64_t timestamp);

#endif
