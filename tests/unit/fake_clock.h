/* fake_clock.h - all functions of clock.h, with a time that the test sets.  The linker uses these functions instead
 * of the real functions. */
#ifndef TESTS_UNIT_FAKE_CLOCK_H
#define TESTS_UNIT_FAKE_CLOCK_H

#include "common/base/clock.h"
#include "common/base/units.h"

static _Atomic int64_t fake_unix_ns, fake_monotonic_ns;

int64_t clock_unix_ns(void)
{
    return fake_unix_ns;
}

int64_t clock_monotonic_ns(void)
{
    return fake_monotonic_ns;
}

void clock_sleep_until(int64_t deadline_ns)
{
    fake_monotonic_ns = deadline_ns;
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    return (struct timespec){monotonic_ns / NS_PER_S, monotonic_ns % NS_PER_S};
}

#endif
