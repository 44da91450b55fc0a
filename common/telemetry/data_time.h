/* data_time.h - judges whether a packet's timestamp can be right, from the arrivals of earlier data and from the host's
 * clock.
 *
 * An assembler cannot trust the timestamps of packets.  It compares them with two references:
 *
 * Arrivals.  The lead of a timestamp is the timestamp minus the monotonic time of the packet's arrival, in samples.
 *            A delay on the network path makes the lead smaller.  Nothing makes the lead larger.  The largest lead of
 *            the last 30 to 60 s gives the newest timestamp that can have arrived by now.  A lead counts only after
 *            half of a chunk's heaps have arrived from one source.  A false source must therefore send as much data
 *            as the true source to change the lead.
 * The clock. With 'timebase: clock', the host's clock gives the timestamp of the present time.  The clock is used only
 *            while the Linux kernel reports that it is synchronised (clock_state.h).
 *
 * For recordings neither reference exists, because their packets arrive as fast as the program reads them.
 *
 * Threads: the assembler's thread.   Blocking and allocation: none. */
#ifndef COMMON_TELEMETRY_DATA_TIME_H
#define COMMON_TELEMETRY_DATA_TIME_H

#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

struct data_time {
    const struct timebase *timebase; /* [const] */
    int64_t margin_samples;          /* [const] margin by which a timestamp may exceed data_time_at(): half a chunk */
    /* [const] largest permitted difference from the host's clock; 0: the clock is not used */
    int64_t tolerance_ns;
    int64_t leads[2];  /* largest confirmed lead of this period, and of the period before */
    int64_t period_ns; /* monotonic start of this period */
    /* time of the last confirmed lead; the margin grows by the clocks' possible drift since then */
    int64_t confirmed_ns;
    bool known; /* true after the first confirmed lead */
};

void data_time_init(struct data_time *time, const struct timebase *timebase, int64_t chunk_samples,
                    int64_t tolerance_ns);

/* Registers the gauge 'program'_clock_synchronised.  If 'from_packets' is true, registers no gauge, because the program
 * does not use the clock. */
void data_time_metrics(const char *program, bool from_packets);

/* Discards all recorded leads.  The assembler calls this function when the timestamps jump. */
void data_time_forget(struct data_time *time);

/* Records a confirmed lead: half of the chunk whose centre is 'timestamp' has arrived by 'arrival_ns'. */
void data_time_confirm(struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* Returns the newest timestamp that can have arrived by 'arrival_ns'.  The result does not include the margin.  Call
 * this function only if time->known. */
int64_t data_time_at(const struct data_time *time, int64_t arrival_ns);

/* Returns true if data of 'timestamp' can have arrived by 'arrival_ns'.  Allows for the margin.  Call this function
 * only if time->known. */
bool data_time_is_due(const struct data_time *time, int64_t timestamp, int64_t arrival_ns);

/* Returns true if the receiver must refuse a claim.  The receiver must refuse the claim if three conditions hold: the
 * clock is synchronised, the timestamp 'claim' differs from the clock by more than the tolerance, and the timestamp
 * 'window' does not. */
bool data_time_clock_refuses(const struct data_time *time, int64_t claim, int64_t window);

/* Compares 'timestamp' with the synchronised clock.  The extension of a timestamp to 64 bits may add a wrong number
 * of periods of 2^48 samples.  Returns the number of excess periods; the number is negative if periods are missing.
 * Returns 0 if the timestamp is right, or if the clock is not synchronised. */
int64_t data_time_wrong_periods(const struct data_time *time, int64_t timestamp);

#endif
