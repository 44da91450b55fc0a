/* lock.h - a mutex that clang's -Wthread-safety checks, and annotations for the data that the mutex guards.
 *
 * In C, clang 14 refuses guarded_by() if it names another member of the same struct.  A field that a lock protects is
 * therefore marked GUARDED, which means that some lock must be held.  The field's comment names the lock.  A function
 * whose caller must hold a lock is marked REQUIRES(lock).
 *
 * Threads: any thread may call lock_take and lock_give.  A thread waits for a condition with pthread_cond_wait(&c,
 *          &lock->mutex).  A watched thread (thread.h) waits with lock_wait_beat(). */
#ifndef COMMON_BASE_LOCK_H
#define COMMON_BASE_LOCK_H

#include "common/base/clock.h"
#include "common/base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <time.h>

#ifdef __clang__
#define LOCK_ANNOTATION(a) __attribute__((a))
#else
#define LOCK_ANNOTATION(a)
#endif

#define GUARDED        LOCK_ANNOTATION(guarded_var)
#define REQUIRES(lock) LOCK_ANNOTATION(requires_capability(lock))

struct LOCK_ANNOTATION(capability("mutex")) lock {
    pthread_mutex_t mutex;
};

/* Initialises the lock.  lock_init() and lock_init_condition() cannot fail on Linux with the attributes used here. */
static inline void lock_init(struct lock *lock)
{
    int err = pthread_mutex_init(&lock->mutex, NULL);

    assert(!err);
}

static inline void lock_fini(struct lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

/* Initialises a condition variable whose timed waits use CLOCK_MONOTONIC, as clock_timespec() does. */
static inline void lock_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);

    err = err ? err : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = err ? err : pthread_cond_init(condition, &attr);
    assert(!err);
    pthread_condattr_destroy(&attr);
}

static inline void lock_take(struct lock *lock) LOCK_ANNOTATION(acquire_capability(lock))
    LOCK_ANNOTATION(no_thread_safety_analysis)
{
    pthread_mutex_lock(&lock->mutex);
}

static inline void lock_give(struct lock *lock) LOCK_ANNOTATION(release_capability(lock))
    LOCK_ANNOTATION(no_thread_safety_analysis)
{
    pthread_mutex_unlock(&lock->mutex);
}

/* Calls thread_beat(), then waits like pthread_cond_timedwait() until the monotonic clock reads 'deadline_ns', but for
 * at most THREAD_BEAT_NS.  The caller then checks whether its condition is true. */
static inline void lock_wait_beat(struct lock *lock, pthread_cond_t *condition, int64_t deadline_ns) REQUIRES(lock)
{
    int64_t beat_ns = clock_monotonic_ns() + THREAD_BEAT_NS;
    struct timespec deadline = clock_timespec(deadline_ns < beat_ns ? deadline_ns : beat_ns);

    thread_beat();
    pthread_cond_timedwait(condition, &lock->mutex, &deadline);
}

#endif
