/* clock_state.h - how right the kernel says its clock is.
 *
 * Asking the kernel (adjtimex) is the call that also sets the clock, so a service that may not set it may not ask
 * either (ProtectClock=).  gpucbf-clock.service may ask, and leaves the answer in a file, which is read where the
 * kernel refuses.
 *
 * Threads: any. */
#ifndef COMMON_TIME_CLOCK_STATE_H
#define COMMON_TIME_CLOCK_STATE_H

#include <stdbool.h>

#define CLOCK_STATE_FILE     "/run/cbf-clock/state"
#define CLOCK_STATE_PERIOD_S 5

struct clock_state {
    int state;         /* TIME_OK to TIME_ERROR of adjtimex(2) */
    double esterror_s; /* estimate of the clock's error */
    double maxerror_s; /* bound of it */
};

/* Asks the kernel, or else reads 'path', if that was written in the last 4 CLOCK_STATE_PERIOD_S.  Returns 0; or
 * negative errno with TIME_ERROR and no errors. */
int clock_state_get(const char *path, struct clock_state *state);

/* Looks at the clock's state, for clock_state_is_synchronised().  The main thread calls this once a second (service.c),
 * because the answer may lie in a file. */
void clock_state_read(void);

/* Whether the clock was synchronised at the last look; false before the first.  Any thread, without a system call. */
bool clock_state_is_synchronised(void);

/* Asks the kernel and replaces 'path' by the answer.  Returns 0 or negative errno. */
int clock_state_write(const char *path);

#endif
