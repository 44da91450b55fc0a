/* test_random.h - random input for the unit tests.  Each run has a new seed and prints it.  TEST_SEED repeats a run.
 * The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
#ifndef TESTS_UNIT_TEST_RANDOM_H
#define TESTS_UNIT_TEST_RANDOM_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t random_state;

/* Call once in main().  All tests, which Check forks, then begin with the same state. */
static inline void random_start(void)
{
    const char *given = getenv("TEST_SEED");

    if (given)
        random_state = strtoull(given, NULL, 0);
    else if (getentropy(&random_state, sizeof(random_state)))
        abort();
    printf("TEST_SEED=%" PRIu64 "\n", random_state);
    fflush(stdout);
}

static inline uint64_t random_u64(void)
{
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* In [0, n), n > 0. */
static inline size_t random_below(size_t n)
{
    return (size_t)(random_u64() % n);
}

/* Returns a random number, uniform in [low, high). */
static inline double random_between(double low, double high)
{
    return low + (high - low) * ((double)(random_u64() >> 11) * 0x1p-53);
}

static inline void random_bytes(void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)random_u64();
}

#endif
