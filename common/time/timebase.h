/* timebase.h - ADC sample counts and UNIX time, exactly; and the 48 bits of the wire made 64.
 *
 * Sync time and sample rate come as decimal text and are kept as integers, because a double has too few bits for a
 * nanosecond since 1970, and a rate that is off in the 16th digit is off by a sample within months. */
#ifndef COMMON_TIME_TIMEBASE_H
#define COMMON_TIME_TIMEBASE_H

#include <stdbool.h>
#include <stdint.h>

#define TIMESTAMP_WIRE_BITS 48

/* mantissa * 10^-n_decimals. */
struct decimal {
    int64_t mantissa;
    int n_decimals;
};

/* Parses an optionally signed decimal number, exponent allowed ("1712e6", "1700000000.25"), with at most
 * 'max_decimals' (<= 18) digits after the point once the exponent is applied (trailing zeros do not count).
 * Returns 0, -EINVAL (not such a number) or -ERANGE (too many digits). */
int timebase_parse_decimal(const char *text, int max_decimals, struct decimal *decimal);

/* The double nearest to the decimal, as Python's float() of the same text. */
double timebase_decimal_to_double(struct decimal decimal);

struct timebase {
    struct decimal sync_time_s;        /* UNIX time of sample 0; at most 9 decimals */
    struct decimal adc_sample_rate_hz; /* > 0; at most 9 decimals */
    bool from_packets;                 /* time base of recordings: the first 48-bit timestamp is taken as it is */
};

/* The last sample taken at or before 'unix_ns'.  Exact (128-bit integers); negative before the sync time. */
int64_t timebase_samples_at(const struct timebase *timebase, int64_t unix_ns);

/* The sample taken nearest to 'unix_ns', of two the even one. */
int64_t timebase_samples_nearest(const struct timebase *timebase, int64_t unix_ns);

/* UNIX seconds as decimal text with at most 9 decimals.  Returns 0, -EINVAL or -ERANGE as timebase_parse_decimal(). */
int timebase_parse_unix_ns(const char *text, int64_t *unix_ns);

/* The UNIX time of a sample, rounded to the nearest nanosecond. */
int64_t timebase_unix_ns(const struct timebase *timebase, int64_t timestamp_samples);

/* Samples to nanoseconds and back for durations, rounded to nearest. */
int64_t timebase_duration_ns(const struct timebase *timebase, int64_t n_samples);
int64_t timebase_duration_samples(const struct timebase *timebase, int64_t duration_ns);

/* The 64-bit timestamp nearest to 'near_samples' whose low 48 bits are 'wire' (a tie goes up); where that is negative
 * (before the sync time), the first one at or after 0. */
int64_t timebase_unwrap(uint64_t wire, int64_t near_samples);

/* The time to unwrap the first timestamp against: now, or 2^47 - 1 with 'from_packets' (so that 'wire' is itself). */
int64_t timebase_first_near(const struct timebase *timebase);

#endif
