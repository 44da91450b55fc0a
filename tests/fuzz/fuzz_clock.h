/* fuzz_clock.h - replaces common/base/clock.c and common/time/clock_state.c.  Only one fuzz target includes this
 * file.  The input sets the time, so a failure can be repeated. */
#ifndef TESTS_FUZZ_FUZZ_CLOCK_H
#define TESTS_FUZZ_FUZZ_CLOCK_H

#include "common/base/clock.h"
#include "common/time/clock_state.h"

#include <errno.h>

static struct {
    int64_t monotonic_ns, unix_ns;
    bool is_synchronised;
} fuzz_clock;

static inline void fuzz_clock_set(int64_t monotonic_ns, int64_t unix_ns, bool is_synchronised)
{
    fuzz_clock.monotonic_ns = monotonic_ns;
    fuzz_clock.unix_ns = unix_ns;
    fuzz_clock.is_synchronised = is_synchronised;
}

static inline void fuzz_clock_advance(int64_t duration_ns)
{
    fuzz_clock.monotonic_ns += duration_ns;
    fuzz_clock.unix_ns += duration_ns;
}

int64_t clock_monotonic_ns(void)
{
    return fuzz_clock.monotonic_ns;
}

int64_t clock_unix_ns(void)
{
    return fuzz_clock.unix_ns;
}

int64_t clock_thread_cpu_ns(void)
{
    return fuzz_clock.monotonic_ns;
}

int64_t clock_process_cpu_ns(void)
{
    return fuzz_clock.monotonic_ns;
}

void clock_sleep_until(int64_t deadline_ns)
{
    if (deadline_ns > fuzz_clock.monotonic_ns)
        fuzz_clock_advance(deadline_ns - fuzz_clock.monotonic_ns);
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    return (struct timespec){.tv_sec = monotonic_ns / 1000000000, .tv_nsec = monotonic_ns % 1000000000};
}

int clock_state_get(const char *path, struct clock_state *state)
{
    *state = (struct clock_state){0};
    return 0;
}

void clock_state_read(void)
{
}

bool clock_state_is_synchronised(void)
{
    return fuzz_clock.is_synchronised;
}

int clock_state_write(const char *path)
{
    return -ENOTSUP;
}

#endif
