/* explore.h - runs a small scenario once for each order in which its threads can take their steps.
 *
 * A scenario starts threads (thread.h), uses the daemons' code, and checks a property of this code.  One thread runs at
 * a time.  A thread can be interrupted before each lock, wait, join, message to an event loop, signal without a lock,
 * and atomic operation (of the files in EXPLORED_ATOMICS of mk/tests.mk).  The first run takes the first choice at each
 * of these seams.  Each following run repeats the longest part of the last run that has an untried choice, and takes
 * this choice.
 *
 * Complete:  with EXPLORE_ALL, all orders are tried that can differ.  Two steps that touch no common lock, condition,
 *            atomic or clock give the same result in both orders, so one of the orders is skipped (sleep sets:
 *            Godefroid 1996).
 * Bounded:   with a number of delays, all orders with at most this number of delays are tried.  Without a delay, a
 *            thread runs until it must wait, and the next thread that can run follows, in the order of their start.  A
 *            delay skips the thread whose turn it is (Emmi, Qadeer and Rakamaric 2011), or lets the time pass.
 * Time:      stands still while threads run.  At each seam it may pass to the earliest deadline of a waiting thread.
 *            The waits of lock_wait_beat() have no deadline of their own, so a lost signal is a deadlock.
 * Memory:    each run has the same addresses.  Freed memory is never used again in a run, so that a use is noticed.
 *            Memory that a run does not free is an error.
 * Outside:   weak memory orders (atomic operations take effect in the order of the steps), and data that threads share
 *            without a lock or an atomic operation.  These are the subjects of the thread sanitizer.
 * Threads:   the threads of a scenario are coroutines of the calling thread. */
#ifndef TESTS_WORLD_EXPLORE_H
#define TESTS_WORLD_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_ALL      UINT32_MAX
#define EXPLORE_NEVER    INT64_MAX
#define EXPLORE_START_NS 1000000000 /* the time at the start of each run */

struct explore_scenario {
    const char *name;
    void (*run)(void);
    unsigned n_delays;   /* largest number of delays in a run, or EXPLORE_ALL */
    unsigned n_spurious; /* largest number of waits in a run that end without a signal, as POSIX permits */
};

/* Runs the scenario in all orders, and prints their number.  Ends the process at the first failure, with the steps that
 * led to it.  Returns the number of different runs. */
uint64_t explore(const struct explore_scenario *scenario);

/* ---- For scenarios --------------------------------------------------------------------------------------------- */

/* Ends the process with the message and the steps of the run. */
_Noreturn void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define explore_check(condition, ...) ((condition) ? (void)0 : explore_fail(__VA_ARGS__))

/* An access to data of the scenario that threads share: the thread may be interrupted before the access. */
void explore_access(const void *data, bool is_write);

/* Returns each number in [0, n), in separate runs. */
unsigned explore_choose(unsigned n);

/* ---- For the seams (explore_seams.c) --------------------------------------------------------------------------- */

/* Waits until can_run(object) is true.  'step' names the next step in reports. */
void explore_block(const char *step, bool (*can_run)(const void *object), const void *object);

/* Waits until explore_wake(condition), or until the deadline, and then until can_run(object) is true.  Returns false at
 * the deadline. */
bool explore_wait(const void *condition, int64_t deadline_ns, bool (*can_run)(const void *object), const void *object);
void explore_wake(const void *condition, bool all);

/* Declares that the step in progress reads or changes the object. */
void explore_touch(const void *object, bool is_write);

int64_t explore_now_ns(void);
bool explore_has_deadlines(void); /* true if a thread waits for a deadline */
unsigned explore_self(void);      /* the number of the thread that runs */

unsigned explore_start(const char *name, void *(*run)(void *arg), void *arg);
void explore_join(unsigned number);

/* Called at the beginning and at the end of each run (explore_seams.c). */
void explore_memory_begin(void);
void explore_memory_end(void);

#endif
