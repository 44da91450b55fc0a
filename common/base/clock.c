/* clock.c - reads the clocks and sleeps, for pacing, latencies and the first timestamp.  See clock.h. */
#include "common/base/clock.h"

#include "common/base/thread.h"
#include "common/base/units.h"

#include <assert.h>
#include <stdbool.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec now;
    int err = clock_gettime(id, &now);

    assert(!err);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_unix_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}

int64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_process_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    /* The Linux kernel refuses negative times.  Time 0 therefore replaces a negative time.  Both times are in the
     * past, so the wait ends immediately in either case. */
    int64_t ns = monotonic_ns > 0 ? monotonic_ns : 0;

    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

void clock_sleep_until(int64_t deadline_ns)
{
    int64_t now_ns;

    while ((now_ns = clock_monotonic_ns()) < deadline_ns) {
        bool is_long = deadline_ns - now_ns > THREAD_BEAT_NS;
        struct timespec wake = clock_timespec(is_long ? now_ns + THREAD_BEAT_NS : deadline_ns);

        thread_beat();
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    }
}
