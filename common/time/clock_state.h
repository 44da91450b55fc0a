/* clock_state.h - the kernel's statement about the accuracy of its clock.
 *
 * adjtimex(2) both reads this statement and sets the clock.  So a service that may not set the clock may not ask either
 * (ProtectClock=).  gpucbf-clock.service may ask, and leaves the answer in a file.  Other services read this file if
 * the kernel refuses to answer.
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
    double maxerror_s; /* bound of the clock's error */
};

/* Asks the kernel, or else reads 'path' if the file is at most 4 * CLOCK_STATE_PERIOD_S seconds old.  Returns 0, or
 * negative errno with TIME_ERROR and both errors 0. */
int clock_state_get(const char *path, struct clock_state *state);

/* Reads the clock's state, for clock_state_is_synchronised().  The main thread calls this function once a second
 * (service.c), because the answer may lie in a file. */
void clock_state_read(void);

/* Returns whether the clock was synchronised at the last clock_state_read(), or false before the first one.  Any
 * thread; makes no system call. */
bool clock_state_is_synchronised(void);

/* Asks the kernel and replaces the file 'path' by the answer.  Returns 0 or negative errno. */
int clock_state_write(const char *path);

#endif
