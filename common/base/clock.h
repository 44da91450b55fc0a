/* clock.h - the only module that reads a clock or sleeps, so that a simulation can control the time.
 *
 * Threads: all functions from any thread. */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns the monotonic time in nanoseconds, for intervals, deadlines and pacing. */
int64_t clock_monotonic_ns(void);

/* Returns the nanoseconds since the UNIX epoch.  Use this time only to extend the first timestamp to 64 bits, and for
 * times that people read. */
int64_t clock_unix_ns(void);

/* Return the CPU time used so far by the calling thread, and by all threads of the process.  Only benchmarks and
 * metrics need these times. */
int64_t clock_thread_cpu_ns(void);
int64_t clock_process_cpu_ns(void);

/* Sleeps until the monotonic clock reads 'deadline_ns', and calls thread_beat() meanwhile.  Returns immediately if the
 * deadline is past. */
void clock_sleep_until(int64_t deadline_ns);

/* Spins until the monotonic clock reads 'deadline_ns', for waits that are too short for a sleep.  Returns the monotonic
 * time. */
static inline int64_t clock_spin_until(int64_t deadline_ns)
{
    int64_t now_ns;

    while ((now_ns = clock_monotonic_ns()) < deadline_ns)
        ;
    return now_ns;
}

/* Converts a deadline on CLOCK_MONOTONIC to a struct timespec. */
struct timespec clock_timespec(int64_t monotonic_ns);

#endif
