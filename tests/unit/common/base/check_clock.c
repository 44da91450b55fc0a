/* check_clock.c - the clocks agree with the system's clocks.  A sleep does not end early, and always ends. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>

TEST(unix_time_is_the_systems)
{
    int64_t before_s = (int64_t)time(NULL);
    int64_t now_ns = clock_unix_ns();

    /* time() may lag by a tick of the kernel's coarse clock, hence a second of grace on its far side. */
    ck_assert_int_ge(now_ns, before_s * NS_PER_S);
    ck_assert_int_le(now_ns, ((int64_t)time(NULL) + 2) * NS_PER_S);
}

TEST(monotonic_time_never_goes_back)
{
    int64_t last_ns = clock_monotonic_ns();

    for (int k = 0; k < 1000; k++) {
        int64_t now_ns = clock_monotonic_ns();

        ck_assert_int_ge(now_ns, last_ns);
        last_ns = now_ns;
    }
}

/* A sleep takes none, and what this thread took the process took too. */
TEST(cpu_time_is_what_was_worked)
{
    int64_t process_ns = clock_process_cpu_ns(), thread_ns = clock_thread_cpu_ns();
    int64_t slept_ns;

    clock_sleep_until(clock_monotonic_ns() + 50 * NS_PER_MS);
    slept_ns = clock_thread_cpu_ns() - thread_ns;
    ck_assert_int_ge(slept_ns, 0);
    ck_assert_int_lt(slept_ns, 25 * NS_PER_MS);
    while (clock_thread_cpu_ns() - thread_ns < slept_ns + NS_PER_MS)
        ;
    ck_assert_int_ge(clock_process_cpu_ns() - process_ns, NS_PER_MS);
}

TEST(timespec_splits_at_the_second)
{
    static const struct {
        int64_t ns;
        time_t sec;
        long nsec;
    } table[] = {
        {INT64_MIN, 0, 0},
        {-1, 0, 0},
        {0, 0, 0},
        {1, 0, 1},
        {NS_PER_S - 1, 0, 999999999},
        {NS_PER_S, 1, 0},
        {7 * NS_PER_S + 5, 7, 5},
        {INT64_MAX, 9223372036, 854775807},
    };

    for (size_t k = 0; k < ARRAY_LEN(table); k++) {
        struct timespec t = clock_timespec(table[k].ns);

        ck_assert_int_eq(t.tv_sec, table[k].sec);
        ck_assert_int_eq(t.tv_nsec, table[k].nsec);
    }
}

TEST(sleep_reaches_its_deadline)
{
    int64_t deadline_ns = clock_monotonic_ns() + 5 * NS_PER_MS;

    clock_sleep_until(deadline_ns);
    ck_assert_int_ge(clock_monotonic_ns(), deadline_ns);
}

TEST(sleep_until_the_past_returns)
{
    /* If it did not, the runner would end the test. */
    clock_sleep_until(clock_monotonic_ns() - 1);
    clock_sleep_until(0);
    clock_sleep_until(INT64_MIN);
}
