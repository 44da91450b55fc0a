/* thread.h - named, pinned threads, and a watch that finds stuck threads.
 *
 * Watch:     a thread beats on each pass through its loop, and at least every THREAD_BEAT_NS while it waits, with or
 *            without data.  One thread (the main thread: service.h) checks the beats of all threads from time to time.
 * Threads:   thread_beat() on any thread.  A beat costs a load and a store in the thread's own cache line, without a
 *            lock or a clock. */
#ifndef COMMON_BASE_THREAD_H
#define COMMON_BASE_THREAD_H

#include "common/base/units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest wait of a thread without a beat. */
#define THREAD_BEAT_NS (500 * NS_PER_MS)

struct thread {
    pthread_t handle;
};

/* Starts 'run(arg)' on a thread called 'name' (cut to 15 characters), pinned to CPU 'cpu' (< 0: not pinned).  All
 * signals are blocked on the thread.  If the kernel refuses to pin the thread, logs a warning.  Returns 0 or negative
 * errno. */
int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);

/* After threads_hold(), started threads wait before their first step until threads_release().  With true, all threads
 * of the process begin.  With false, each thread ends before its first action: no packet is sent, no file is begun.
 * Call both, and thread_start() in between, on the main thread. */
void threads_hold(void);
void threads_release(bool begin);

/* Checks whether 'n' more threads could be started, for example those that a library needs later.  Returns 0 or
 * negative errno. */
int threads_probe(size_t n);

/* Checks whether threads can be pinned to each of the CPUs (< 0: none).  Returns 0, or -EINVAL with one sentence in
 * 'why' that begins with 'key'. */
int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes);

/* Makes all sleeps and waits of the calling thread end on time.  Otherwise the kernel may end them up to 50
 * microseconds late, to wake several threads together. */
void thread_wake_promptly(void);

/* Waits for the thread's end. */
void thread_join(struct thread *thread);

/* Beats of the calling thread; NULL if thread_start() did not start the thread. */
extern _Thread_local _Atomic uint64_t *thread_beats;

/* Records that the calling thread makes progress. */
static inline void thread_beat(void)
{
    if (thread_beats)
        atomic_store_explicit(thread_beats, atomic_load_explicit(thread_beats, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

/* Stops and resumes the watch on the calling thread.  Between thread_watched(false) and thread_watched(true) the thread
 * may stand still, for example while it waits for a disk or computes for long. */
void thread_watched(bool watched);

/* A thread that has stopped beating. */
struct thread_stalled {
    char name[16];
    int64_t tid;      /* the kernel's number of the thread, as in gdb and /proc */
    unsigned n_looks; /* successive calls of threads_find_stalled() without a beat; 0: all threads beat */
};

/* Checks all threads that thread_start() started and that have not ended.  Returns the thread that has stood still for
 * most calls.  Call always on the same thread. */
struct thread_stalled threads_find_stalled(void);

#endif
