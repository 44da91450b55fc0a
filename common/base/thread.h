/* thread.h - named and pinned threads, and a watchdog that finds stalled threads.
 *
 * Watch:     a thread calls thread_beat() on each pass through its loop.  While the thread waits, it calls
 *            thread_beat() at least every THREAD_BEAT_NS, even if no data arrive.  The main thread checks the beats of
 *            all threads periodically (service.h).
 * Threads:   any thread may call thread_beat().  A beat is a load and a store in the thread's own cache line.  A beat
 *            takes no lock and reads no clock. */
#ifndef COMMON_BASE_THREAD_H
#define COMMON_BASE_THREAD_H

#include "common/base/units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest time that a thread may wait between two calls of thread_beat(). */
#define THREAD_BEAT_NS (500 * NS_PER_MS)

struct thread {
    pthread_t handle;
};

/* Starts 'run(arg)' on a thread called 'name' (cut to 15 characters), pinned to CPU 'cpu' (< 0: not pinned).  Blocks
 * all signals on the thread.  The thread logs a warning if the kernel refuses to pin it.  Returns 0 or negative
 * errno. */
int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);

/* After threads_hold(), each new thread waits until threads_release() before it calls 'run'.  threads_release(true)
 * lets the waiting threads run.  threads_release(false) ends the waiting threads without a call of 'run', so that no
 * packet is sent and no file is created.  Call both functions, and thread_start() between them, on the main thread. */
void threads_hold(void);
void threads_release(bool begin);

/* Checks whether the process could start 'n' more threads, for example threads that a library needs later.  Returns 0
 * or negative errno. */
int threads_probe(size_t n);

/* Checks whether threads can be pinned to each of the CPUs.  Ignores negative entries.  Returns 0, or -EINVAL with one
 * sentence in 'why' that begins with 'key'. */
int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes);

/* Makes all sleeps and waits of the calling thread end on time.  Otherwise the kernel may delay the end of a wait by up
 * to 50 microseconds, to wake several threads together. */
void thread_wake_promptly(void);

/* Waits until the thread has ended. */
void thread_join(struct thread *thread);

/* Points to the number of beats of the calling thread.  NULL if thread_start() did not start this thread. */
extern _Thread_local _Atomic uint64_t *thread_beats;

/* Records that the calling thread makes progress. */
static inline void thread_beat(void)
{
    if (thread_beats)
        atomic_store_explicit(thread_beats, atomic_load_explicit(thread_beats, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

/* Resumes (true) or stops (false) the watch on the calling thread.  While the watch is stopped, the thread need not
 * call thread_beat().  A thread stops the watch, for example, before it waits for a disk or begins a long
 * computation. */
void thread_watched(bool watched);

/* A thread that no longer calls thread_beat(). */
struct thread_stalled {
    char name[16];
    int64_t tid;      /* the kernel's thread id, as in gdb and /proc */
    unsigned n_looks; /* number of successive calls of threads_find_stalled() since the thread's last beat; 0: no
                       * thread is stalled */
};

/* Checks all running threads that thread_start() started.  For each thread, counts the checks since the thread's last
 * beat.  Returns the thread with the largest count.  Always call this function on the same thread. */
struct thread_stalled threads_find_stalled(void);

#endif
