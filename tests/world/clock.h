/* clock.h - the host's clock in the world, and the state that its kernel reports.
 *
 * The true time is world_unix_ns().  The daemons read the host's clock (clock_unix_ns(), adjtimex(2)), which may be
 * wrong.  The clock that measures durations (clock_monotonic_ns()) is always right.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_CLOCK_H
#define TESTS_WORLD_CLOCK_H

#include <stdint.h>

/* All zeros is a clock that is right and synchronised. */
struct world_clock {
    int64_t error_ns; /* the clock is ahead of the true time by this duration at virtual time 0 */
    double drift;     /* growth of the error, as a part of the virtual time */
    int state;        /* that adjtimex(2) returns, TIME_OK to TIME_ERROR */
};
extern struct world_clock world_clock;

/* Returns the time that the host's clock shows. */
int64_t world_clock_ns(void);

#endif
