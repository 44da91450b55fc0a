/* seams.c - the scheduler in place of Linux: mutexes and conditions (by the linker's --wrap), clock.h and thread.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/world/memory.h"
#include "tests/world/sched.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SPURIOUS 0.01 /* probability that a wait for a condition ends without a signal, as POSIX permits */

/* ---- Mutexes and conditions ------------------------------------------------------------------------------------------ */

#define EXISTS 0x5EA1

/* A mutex in the memory of a pthread_mutex_t.  PTHREAD_MUTEX_INITIALIZER is all zeros, as is PTHREAD_COND_INITIALIZER. */
struct mutex {
    int exists; /* EXISTS after pthread_mutex_init() */
    int is_taken;
};
_Static_assert(sizeof(struct mutex) <= sizeof(pthread_mutex_t), "a mutex fits");

struct condition {
    int exists; /* EXISTS after pthread_cond_init() */
};
_Static_assert(sizeof(struct condition) <= sizeof(pthread_cond_t), "a condition fits");

static size_t n_exist; /* mutexes and conditions */

/* Checks that a mutex or condition has been initialised, and not been destroyed.  Static variables need no call. */
static void check_exists(const int *exists)
{
    extern const char __executable_start[], _end[]; /* the linker defines them */
    const char *at = (const char *)exists;

    if (*exists != EXISTS && !(at >= __executable_start && at < _end))
        world_fail("a mutex or condition is used before its initialisation, or after its end");
}

void seams_check_end(void)
{
    if (n_exist > 0)
        world_fail("%zu mutexes and conditions are not destroyed", n_exist);
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *condition);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_mlockall(int flags);
ssize_t __wrap_getrandom(void *bytes, size_t n_bytes, unsigned flags);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    memset(mutex, 0, sizeof(*mutex));
    ((struct mutex *)mutex)->exists = EXISTS;
    n_exist++;
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    if (((struct mutex *)mutex)->is_taken)
        world_fail("a mutex is destroyed while a thread holds it");
    check_exists(&((struct mutex *)mutex)->exists);
    ((struct mutex *)mutex)->exists = 0;
    n_exist--;
    return 0;
}

static void lock(pthread_mutex_t *mutex)
{
    check_exists(&((struct mutex *)mutex)->exists);
    while (((struct mutex *)mutex)->is_taken)
        world_wait(mutex, WORLD_NEVER);
    ((struct mutex *)mutex)->is_taken = 1;
}

static void unlock(pthread_mutex_t *mutex)
{
    if (!((struct mutex *)mutex)->is_taken)
        world_fail("a mutex is unlocked that no thread holds");
    ((struct mutex *)mutex)->is_taken = 0;
    world_wake(mutex, false);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    world_seam();
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    world_seam();
    if (((struct mutex *)mutex)->is_taken)
        return EBUSY;
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    unlock(mutex);
    world_seam();
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    memset(condition, 0, sizeof(*condition));
    ((struct condition *)condition)->exists = EXISTS;
    n_exist++;
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *condition)
{
    check_exists(&((struct condition *)condition)->exists);
    ((struct condition *)condition)->exists = 0;
    n_exist--;
    return 0;
}

static int wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    check_exists(&((struct condition *)condition)->exists);
    unlock(mutex);
    bool woken = true;
    if (world_chance(SPURIOUS))
        world_note("spurious wake-up");
    else
        woken = world_wait(condition, deadline_ns);
    lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return wait_for(condition, mutex, WORLD_NEVER);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline)
{
    return wait_for(condition, mutex, deadline->tv_sec * NS_PER_S + deadline->tv_nsec);
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    check_exists(&((struct condition *)condition)->exists);
    world_wake(condition, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    check_exists(&((struct condition *)condition)->exists);
    world_wake(condition, true);
    return 0;
}

/* The world's memory is not locked. */
int __wrap_mlockall(int flags)
{
    errno = EPERM;
    return -1;
}

/* The seed of the world also determines what the daemons draw. */
ssize_t __wrap_getrandom(void *bytes, size_t n_bytes, unsigned flags)
{
    for (size_t i = 0; i < n_bytes; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)world_random(256);
    return (ssize_t)n_bytes;
}

/* ---- clock.h; clock.c has clock_unix_ns() --------------------------------------------------------------------------- */

int64_t clock_monotonic_ns(void)
{
    world_seam();
    return world_now_ns();
}

int64_t clock_thread_cpu_ns(void)
{
    return world_now_ns();
}

int64_t clock_process_cpu_ns(void)
{
    return world_now_ns();
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    int64_t ns = monotonic_ns > 0 ? monotonic_ns : 0;

    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

void clock_sleep_until(int64_t deadline_ns)
{
    thread_beat();
    if (world_now_ns() < deadline_ns)
        world_wait(NULL, deadline_ns);
}

/* ---- thread.h -------------------------------------------------------------------------------------------------------- */

_Thread_local _Atomic uint64_t *thread_beats;

/* The gate of threads_hold(). */
static enum { GATE_OPEN, GATE_HELD, GATE_GIVEN_UP } gate;

struct started {
    void *(*run)(void *arg);
    void *arg;
    bool is_held;
};

static void *run_started(void *arg)
{
    struct started started = *(struct started *)arg;

    free(arg);
    while (started.is_held && gate == GATE_HELD)
        world_wait(&gate, WORLD_NEVER);
    return started.is_held && gate == GATE_GIVEN_UP ? NULL : started.run(started.arg);
}

int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg)
{
    struct started *started = malloc(sizeof(*started));

    if (!started)
        return -ENOMEM;
    *started = (struct started){run, arg, gate == GATE_HELD};
    thread->handle = world_start(name, run_started, started);
    return 0;
}

void thread_join(struct thread *thread)
{
    world_join((unsigned)thread->handle);
}

void threads_hold(void)
{
    gate = GATE_HELD;
}

void threads_release(bool begin)
{
    gate = begin ? GATE_OPEN : GATE_GIVEN_UP;
    world_wake(&gate, true);
}

int threads_probe(size_t n)
{
    return 0;
}

int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes)
{
    return 0;
}

void thread_wake_promptly(void)
{
}

void thread_watched(bool watched)
{
}

struct thread_stalled threads_find_stalled(void)
{
    return (struct thread_stalled){.n_looks = 0};
}
