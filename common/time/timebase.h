/* timebase.h - converts exactly between ADC samples and UNIX time, and extends 48-bit timestamps to 64 bits.
 *
 * The sync time and the sample rate are read from decimal text and stored as integers.  A double has too few bits for
 * nanoseconds since 1970.  An error in the 16th digit of the rate shifts a time by one sample within months. */
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

/* Parses an optionally signed decimal number, which may have an exponent ("1712e6", "1700000000.25").  After the
 * exponent is applied, at most 'max_decimals' (<= 18) digits may follow the point.  Trailing zeros do not count.
 * Returns 0, -EINVAL if the text is not a decimal number, or -ERANGE if it has too many digits. */
int timebase_parse_decimal(const char *text, int max_decimals, struct decimal *decimal);

/* Returns the double nearest to the decimal number, as Python's float() does for the same text. */
double timebase_decimal_to_double(struct decimal decimal);

struct timebase {
    struct decimal sync_time_s;        /* UNIX time of sample 0; at most 9 decimals */
    struct decimal adc_sample_rate_hz; /* > 0; at most 9 decimals */
    /* true for recordings: the first timestamp is then between 0 and 2^48 - 1, whatever the host's clock says */
    bool from_packets;
};

/* Returns the number of the last sample that was taken at or before 'unix_ns'.  The number is exact (128-bit integers),
 * and negative before the sync time. */
int64_t timebase_samples_at(const struct timebase *timebase, int64_t unix_ns);

/* Returns the number of the sample that was taken nearest to 'unix_ns'.  Returns the even number if two samples are
 * equally near. */
int64_t timebase_samples_nearest(const struct timebase *timebase, int64_t unix_ns);

/* Parses UNIX seconds with at most 9 decimals.  Returns 0, -EINVAL or -ERANGE, as timebase_parse_decimal() does. */
int timebase_parse_unix_ns(const char *text, int64_t *unix_ns);

/* Returns the UNIX time of a sample, rounded to the nearest nanosecond. */
int64_t timebase_unix_ns(const struct timebase *timebase, int64_t timestamp_samples);

/* These functions convert durations from samples to nanoseconds and back, and round to the nearest integer. */
int64_t timebase_duration_ns(const struct timebase *timebase, int64_t n_samples);
int64_t timebase_duration_samples(const struct timebase *timebase, int64_t duration_ns);

/* Returns the 64-bit timestamp nearest to 'near_samples' whose low 48 bits are 'wire', or the higher of two equally
 * near timestamps.  If this timestamp is negative (before the sync time), returns 'wire'. */
int64_t timebase_unwrap(uint64_t wire, int64_t near_samples);

/* Returns the argument 'near_samples' of timebase_unwrap() for the first timestamp.  The argument is the number of
 * the present sample or, if 'from_packets' is true, 2^47 - 1.  With 2^47 - 1, timebase_unwrap() returns 'wire'
 * unchanged. */
int64_t timebase_first_near(const struct timebase *timebase);

#endif
