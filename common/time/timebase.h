/* timebase.h - exact conversion between ADC sample counts and UNIX time; 48-bit timestamps made 64-bit.
 *
 * Sync time and sample rate come as decimal text and are kept as integers.  A double has too few bits for a nanosecond
 * since 1970.  A rate that is off in the 16th digit is off by a sample within months. */
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

/* Parses an optionally signed decimal number, which may have an exponent ("1712e6", "1700000000.25").  With the
 * exponent applied, at most 'max_decimals' (<= 18) digits may follow the point; trailing zeros do not count.  Returns
 * 0, -EINVAL (not such a number) or -ERANGE (too many digits). */
int timebase_parse_decimal(const char *text, int max_decimals, struct decimal *decimal);

/* Returns the double nearest to the decimal, as Python's float() does for the same text. */
double timebase_decimal_to_double(struct decimal decimal);

struct timebase {
    struct decimal sync_time_s;        /* UNIX time of sample 0; at most 9 decimals */
    struct decimal adc_sample_rate_hz; /* > 0; at most 9 decimals */
    bool from_packets;                 /* for recordings: the first 48-bit timestamp is taken as it is */
};

/* Returns the last sample taken at or before 'unix_ns'.  Exact (128-bit integers); negative before the sync time. */
int64_t timebase_samples_at(const struct timebase *timebase, int64_t unix_ns);

/* Returns the sample taken nearest to 'unix_ns'.  Returns the even one if two are equally near. */
int64_t timebase_samples_nearest(const struct timebase *timebase, int64_t unix_ns);

/* Parses UNIX seconds with at most 9 decimals.  Returns 0, -EINVAL or -ERANGE, as timebase_parse_decimal() does. */
int timebase_parse_unix_ns(const char *text, int64_t *unix_ns);

/* Returns the UNIX time of a sample, rounded to the nearest nanosecond. */
int64_t timebase_unix_ns(const struct timebase *timebase, int64_t timestamp_samples);

/* Convert durations from samples to nanoseconds and back, rounded to nearest. */
int64_t timebase_duration_ns(const struct timebase *timebase, int64_t n_samples);
int64_t timebase_duration_samples(const struct timebase *timebase, int64_t duration_ns);

/* Returns the 64-bit timestamp nearest to 'near_samples' whose low 48 bits are 'wire'; a tie goes up.  If this
 * timestamp is negative (before the sync time), returns the first one at or after 0. */
int64_t timebase_unwrap(uint64_t wire, int64_t near_samples);

/* Returns the timestamp to unwrap the first one against: now, or 2^47 - 1 with 'from_packets' (leaves 'wire' as is). */
int64_t timebase_first_near(const struct timebase *timebase);

#endif
