/* clock.h - the only place that reads a clock or sleeps, so that a simulation can own the time.
 *
 * Threads: all functions from any thread. */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic time in nanoseconds: for intervals, deadlines and pacing. */
int64_t clock_monotonic_ns(void);

/* Nanoseconds since the UNIX epoch: only to place the first timestamp and to label what people read. */
int64_t clock_unix_ns(void);

/* CPU time that the calling thread, or all threads of the process, have used: for benchmarks. */
int64_t clock_thread_cpu_ns(void);
int64_t clock_process_cpu_ns(void);

/* Sleeps until the monotonic clock reads 'deadline_ns', and beats meanwhile (thread.h); returns at once if that is
 * past. */
void clock_sleep_until(int64_t deadline_ns);

/* The same awake, for times that are shorter than a sleep and its end.  Returns the time. */
static inline int64_t clock_spin_until(int64_t deadline_ns)
{
    int64_t now_ns;

    while ((now_ns = clock_monotonic_ns()) < deadline_ns)
        ;
    return now_ns;
}

/* The deadline as the kernel takes it, on CLOCK_MONOTONIC. */
struct timespec clock_timespec(int64_t monotonic_ns);

#endif
