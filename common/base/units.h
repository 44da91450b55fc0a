/* units.h - constants for unit conversion, and rounding to multiples.
 *
 * A timestamp is the number of ADC samples since the sync time.  Inside a daemon, every timestamp is an int64_t.  At 10
 * GS/s an int64_t suffices for 29 years.  The receiver extends a packet's 48-bit timestamp to 64 bits (timebase.h). */
#ifndef COMMON_BASE_UNITS_H
#define COMMON_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_US INT64_C(1000)

#define N_POLS 2

/* Number of visibilities of a baseline in one channel: 2 x 2 products of polarisations. */
#define N_POL_PRODUCTS 4

#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Returns the plural ending of a noun after the number 'n': "1 output", "2 outputs". */
static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds modulo 2^64, as a GPU does.  An addition can overflow only if memory errors have damaged a sum, and the checksum
 * detects this damage. */
static inline int64_t add_wrapped(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Returns the largest multiple of 'step' (> 0) that is <= value.  'value' may be negative. */
static inline int64_t round_down(int64_t value, int64_t step)
{
    int64_t rest = value % step;
    return rest < 0 ? value - rest - step : value - rest;
}

/* Returns the smallest multiple of 'step' (> 0) that is >= value. */
static inline int64_t round_up(int64_t value, int64_t step)
{
    return -round_down(-value, step);
}

/* Returns value / step, rounded towards minus infinity. */
static inline int64_t floor_div(int64_t value, int64_t step)
{
    int64_t quotient = value / step;

    return quotient * step > value ? quotient - 1 : quotient;
}

#endif
