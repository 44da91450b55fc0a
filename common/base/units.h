/* units.h - constants of unit conversion, and the arithmetic of alignment.
 *
 * Timestamps are ADC samples since the sync time, int64_t everywhere inside a daemon.  At 10 GS/s an int64_t lasts 29
 * years.  The 48 bits of a packet's timestamp are unwrapped on receipt (timebase.h). */
#ifndef COMMON_BASE_UNITS_H
#define COMMON_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_US INT64_C(1000)

#define N_POLS 2

/* The axes of a visibility: 2 x 2 polarisation products of a baseline. */
#define N_POL_PRODUCTS 4

#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Returns the ending of a word after a number: "1 output", "2 outputs". */
static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds modulo 2^64, as a GPU does.  Sums damaged in memory may exceed 64 bits; the checksum finds the damage. */
static inline int64_t add_wrapped(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Largest multiple of 'step' (> 0) that is <= value; also for negative values. */
static inline int64_t round_down(int64_t value, int64_t step)
{
    int64_t rest = value % step;
    return rest < 0 ? value - rest - step : value - rest;
}

/* Smallest multiple of 'step' (> 0) that is >= value. */
static inline int64_t round_up(int64_t value, int64_t step)
{
    return -round_down(-value, step);
}

/* value / step rounded towards minus infinity. */
static inline int64_t floor_div(int64_t value, int64_t step)
{
    int64_t quotient = value / step;

    return quotient * step > value ? quotient - 1 : quotient;
}

#endif
