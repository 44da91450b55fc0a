/* clock_state.h - the synchronisation state and the accuracy of the host's clock, as the kernel reports them.
 *
 * adjtimex(2) reads this state, but the same system call also sets the clock.  A service with ProtectClock=, which must
 * not set the clock, therefore cannot call adjtimex(2).  gpucbf-clock.service calls adjtimex(2) and writes the result
 * to a file.  Other services read this file if the kernel refuses the call.
 *
 * Threads: any. */
#ifndef COMMON_TIME_CLOCK_STATE_H
#define COMMON_TIME_CLOCK_STATE_H

#include <stdbool.h>

#define CLOCK_STATE_FILE     "/run/cbf-clock/state"
#define CLOCK_STATE_PERIOD_S 5

struct clock_state {
    int state;         /* state that adjtimex(2) returns, TIME_OK to TIME_ERROR */
    double esterror_s; /* estimated error of the clock */
    double maxerror_s; /* upper bound of the error of the clock */
};

/* Gets the state from the kernel.  If the kernel refuses, reads the file 'path', which must be at most 4 *
 * CLOCK_STATE_PERIOD_S seconds old.  Returns 0 or negative errno.  After an error the state is TIME_ERROR, and the
 * estimated and maximum errors are 0. */
int clock_state_get(const char *path, struct clock_state *state);

/* Reads the clock's state and stores it for clock_state_is_synchronised().  The main thread calls this function once a
 * second (service.c).  Other threads do not call this function, because it may read a file. */
void clock_state_read(void);

/* Returns true if the clock was synchronised at the last clock_state_read().  Returns false before the first
 * clock_state_read().  Any thread may call this function, which makes no system call. */
bool clock_state_is_synchronised(void);

/* Gets the state from the kernel and replaces the file 'path' with this state.  Returns 0 or negative errno. */
int clock_state_write(const char *path);

#endif
