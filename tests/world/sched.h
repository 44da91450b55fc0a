/* sched.h - the scheduler of a simulated world: threads, locks, conditions and time of real daemons in one process.
 *
 * One thread of the world runs at a time.  At each seam (a lock, a condition, a sleep, a clock, a packet) the scheduler
 * may switch to another thread.  A pseudo-random sequence chooses the next thread, so the seed alone determines a run.
 *
 * Seams:     the linker redirects pthread_mutex_*() and pthread_cond_*() of the daemons' objects to the scheduler
 *            (--wrap).  seams.c replaces clock.h and thread.h, loop.c replaces service.h and libev, and network.c
 *            replaces the UDP sources and sinks.
 * Time:      a virtual time that advances while threads run, by a little at each seam.  If no thread can run, the time
 *            advances to the next deadline or event.  A run therefore takes no longer than its work.
 * Deadlock:  if no thread can run and no deadline or event is left, the world ends the process with a report.
 * Threads:   the thread that called world_begin() and all threads that thread_start() made. */
#ifndef TESTS_WORLD_SCHED_H
#define TESTS_WORLD_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_NEVER INT64_MAX

/* Begins a world.  The calling thread becomes the world's first thread. */
void world_begin(uint64_t seed);

/* Ends the world.  Fails the run if other threads still exist. */
void world_end(void);

/* Ends the process with the message, the seed and the virtual time. */
_Noreturn void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns a pseudo-random number in [0, n). */
uint64_t world_random(uint64_t n);

/* Returns true with this probability. */
bool world_chance(double probability);

int64_t world_now_ns(void);
int64_t world_unix_ns(void);

/* Lets the scheduler switch to another thread. */
void world_seam(void);

/* Waits until world_wake() is called for 'object', or until the deadline.  Returns false at the deadline. */
bool world_wait(const void *object, int64_t deadline_ns);

/* If 'all' is true, makes all waiting threads of 'object' runnable.  Otherwise makes one of these threads runnable,
 * chosen at random. */
void world_wake(const void *object, bool all);

/* Calls run(arg) at this time, on the thread that runs the scheduler at this time.  'run' must not wait. */
void world_at(int64_t ns, void (*run)(void *arg), void *arg);

/* Starts a thread of the world.  Returns its number. */
unsigned world_start(const char *name, void *(*run)(void *arg), void *arg);
void world_join(unsigned number);

/* Count how often something occurred in this process.  The report shows each count, or "never" for 0. */
void world_note(const char *name);
void world_note_times(const char *name, uint64_t n);
void world_report(void);

/* Leaves a row out of the report, because this world cannot produce it by design.  Fails the run if it occurs.  Both
 * texts must stay valid. */
void world_leave_out(const char *name, const char *reason);

/* A digest of all choices of the run and of all bytes that were sent, to compare two runs of the same seed. */
uint64_t world_digest(void);

/* Adds bytes to the digest. */
void world_digest_bytes(const void *bytes, size_t n_bytes);

#endif
