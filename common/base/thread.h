/* thread.h - named, pinned threads, and whether they still move.
 *
 * Watch:     a thread beats each time that it passes its loop, and at least every THREAD_BEAT_NS while it waits,
 *            whether or not there are data.  One thread (the main thread: service.h) looks at all of them from time to
 *            time.
 * Threads:   thread_beat() on any thread; it costs a load and a store in the thread's own cache line: no lock, no
 *            clock. */
#ifndef COMMON_BASE_THREAD_H
#define COMMON_BASE_THREAD_H

#include "common/base/units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nobody waits for longer without a beat. */
#define THREAD_BEAT_NS (500 * NS_PER_MS)

struct thread {
    pthread_t handle;
};

/* Starts 'run(arg)' as a thread called 'name' (cut to 15 characters), pinned to CPU 'cpu' or to none if < 0; all
 * signals are blocked in it.  A pin that the kernel refuses is a warning.  Returns 0 or negative errno. */
int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);

/* After threads_hold(), started threads wait before their first step until threads_release().  With true, all threads
 * of the process begin.  With false, each thread ends before its first action: no packet is sent, no file is begun.
 * Call both, and thread_start() in between, on the main thread. */
void threads_hold(void);
void threads_release(bool begin);

/* Whether 'n' more threads could be started, such as a library starts later and cannot do without.  Returns 0 or
 * negative errno. */
int threads_probe(size_t n);

/* Whether each of the CPUs (< 0: none) can be pinned to.  Returns 0, or -EINVAL with one sentence in 'why' that begins
 * with 'key'. */
int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes);

/* The calling thread's sleeps, whatever it waits for, end when they should: the kernel does not put them off by up to
 * 50 microseconds to end others with them. */
void thread_wake_promptly(void);

/* Waits for the thread's end. */
void thread_join(struct thread *thread);

/* The beats of the calling thread; NULL where thread_start() did not start it. */
extern _Thread_local _Atomic uint64_t *thread_beats;

/* The calling thread moves. */
static inline void thread_beat(void)
{
    if (thread_beats)
        atomic_store_explicit(thread_beats, atomic_load_explicit(thread_beats, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

/* From thread_watched(false) to thread_watched(true) the calling thread may stand still: it waits for a disk, or
 * computes for as long as that takes. */
void thread_watched(bool watched);

/* A thread that does not move. */
struct thread_stalled {
    char name[16];
    int64_t tid;      /* the kernel's number, as gdb and /proc have it */
    unsigned n_looks; /* for how many calls of threads_find_stalled() in a row it has not moved; 0: all move */
};

/* Looks at all threads that thread_start() started and that have not ended, and returns the one that has stood still
 * for most calls.  Always on the same thread. */
struct thread_stalled threads_find_stalled(void);

#endif
