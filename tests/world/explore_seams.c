/* explore_seams.c - the exploration in place of Linux: mutexes, conditions and memory (by the linker's --wrap), atomic
 * operations (by the compiler's -fsanitize=thread, without its library), clock.h, thread.h and libev. */
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/world/explore.h"

#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES ((size_t)32 << 20)
#define ALIGN_BYTES  64
#define FREED        0xDD /* value of the first FREED_BYTES bytes of freed memory */
#define FREED_BYTES  4096

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

void *__real_malloc(size_t n_bytes);
void *__real_realloc(void *memory, size_t n_bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *memory, size_t n_bytes);
char *__wrap_strdup(const char *text);
int __wrap_posix_memalign(void **memory, size_t align_bytes, size_t n_bytes);
void __wrap_free(void *memory);

/* A block of memory begins with its size in ALIGN_BYTES bytes. */
static _Alignas(4096) uint8_t memory_bytes[MEMORY_BYTES];
static size_t n_used, n_live;
static bool is_running;
static unsigned n_held[32]; /* mutexes that each thread holds */

void explore_memory_begin(void)
{
    n_used = n_live = 0;
    memset(n_held, 0, sizeof(n_held));
    is_running = true;
}

void explore_memory_end(void)
{
    is_running = false;
    if (n_live > 0)
        explore_fail("%zu blocks of memory have not been freed", n_live);
}

static bool is_ours(const void *memory)
{
    return (const uint8_t *)memory >= memory_bytes && (const uint8_t *)memory < memory_bytes + MEMORY_BYTES;
}

static size_t *size_of(void *memory)
{
    return (size_t *)(void *)((uint8_t *)memory - ALIGN_BYTES);
}

static void *allocate(size_t align_bytes, size_t n_bytes)
{
    size_t at = (n_used + ALIGN_BYTES + align_bytes - 1) / align_bytes * align_bytes;

    if (at + n_bytes > MEMORY_BYTES)
        explore_fail("the scenario needs more than %zu bytes", MEMORY_BYTES);
    n_used = at + n_bytes;
    n_live++;
    *size_of(memory_bytes + at) = n_bytes;
    return memory_bytes + at;
}

void *__wrap_malloc(size_t n_bytes)
{
    return is_running ? allocate(ALIGN_BYTES, n_bytes) : __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    void *memory = __wrap_malloc(n * n_bytes);

    return memory ? memset(memory, 0, n * n_bytes) : NULL;
}

void *__wrap_realloc(void *memory, size_t n_bytes)
{
    if (!is_running || (memory && !is_ours(memory)))
        return __real_realloc(memory, n_bytes);
    void *new = allocate(ALIGN_BYTES, n_bytes);
    if (memory)
        memcpy(new, memory, *size_of(memory) < n_bytes ? *size_of(memory) : n_bytes);
    __wrap_free(memory);
    return new;
}

char *__wrap_strdup(const char *text)
{
    return memcpy(__wrap_malloc(strlen(text) + 1), text, strlen(text) + 1);
}

int __wrap_posix_memalign(void **memory, size_t align_bytes, size_t n_bytes)
{
    *memory = allocate(align_bytes < ALIGN_BYTES ? ALIGN_BYTES : align_bytes, n_bytes);
    return 0;
}

void __wrap_free(void *memory)
{
    if (!memory)
        return;
    if (!is_ours(memory)) {
        __real_free(memory);
        return;
    }
    size_t *n_bytes = size_of(memory);
    if (*n_bytes == SIZE_MAX)
        explore_fail("memory is freed twice");
    memset(memory, FREED, *n_bytes < FREED_BYTES ? *n_bytes : FREED_BYTES);
    *n_bytes = SIZE_MAX;
    n_live--;
}

/* ---- Mutexes and conditions ------------------------------------------------------------------------------------ */

/* A mutex in the memory of a pthread_mutex_t.  PTHREAD_MUTEX_INITIALIZER is all zeros. */
struct mutex {
    unsigned owner; /* number of the thread + 1; 0: the mutex is free */
    unsigned end;   /* not 0 after the mutex's destruction, and in freed memory */
};
_Static_assert(sizeof(struct mutex) <= sizeof(pthread_mutex_t), "a mutex fits");

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *condition);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);

static void check_exists(const struct mutex *mutex)
{
    if (mutex->end)
        explore_fail("a mutex is used after its end");
}

static void check_condition(const pthread_cond_t *condition)
{
    if (*(const unsigned *)(const void *)condition)
        explore_fail("a condition is used after its end");
}

static bool is_free(const void *object)
{
    const struct mutex *mutex = object;

    return mutex->owner == 0 || mutex->end;
}

static void take(struct mutex *mutex)
{
    check_exists(mutex);
    explore_touch(mutex, true);
    mutex->owner = explore_self() + 1;
    n_held[explore_self()]++;
}

static void give(struct mutex *mutex)
{
    check_exists(mutex);
    if (mutex->owner != explore_self() + 1)
        explore_fail("a thread unlocks a mutex that it does not hold");
    explore_touch(mutex, true);
    mutex->owner = 0;
    n_held[explore_self()]--;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    memset(mutex, 0, sizeof(*mutex));
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    struct mutex *self = (struct mutex *)mutex;

    check_exists(self);
    explore_touch(self, true);
    if (self->owner)
        explore_fail("a mutex is destroyed while a thread holds it");
    self->end = 1;
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    explore_block("lock", is_free, mutex);
    take((struct mutex *)mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    give((struct mutex *)mutex);
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    memset(condition, 0, sizeof(*condition));
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *condition)
{
    check_condition(condition);
    explore_touch(condition, true);
    memset(condition, FREED, sizeof(*condition));
    return 0;
}

static int wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    check_condition(condition);
    give((struct mutex *)mutex);
    bool in_time = explore_wait(condition, deadline_ns, is_free, mutex);
    take((struct mutex *)mutex);
    return in_time ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return wait_for(condition, mutex, EXPLORE_NEVER);
}

/* The deadline of lock_wait_beat() is at most THREAD_BEAT_NS from now.  A wait to this limit has no other deadline. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline)
{
    int64_t ns = deadline->tv_sec * NS_PER_S + deadline->tv_nsec;

    return wait_for(condition, mutex, ns >= explore_now_ns() + THREAD_BEAT_NS ? EXPLORE_NEVER : ns);
}

static void wake(pthread_cond_t *condition, bool all)
{
    if (n_held[explore_self()] == 0)
        explore_block("signal without a lock", NULL, condition);
    check_condition(condition);
    explore_wake(condition, all);
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    wake(condition, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    wake(condition, true);
    return 0;
}

/* ---- Atomic operations ----------------------------------------------------------------------------------------- */

/* The compiler calls these functions in place of atomic operations.  It also calls functions for all other accesses to
 * memory, which are no seams. */
#define ATOMICS(bits, type)                                                                                            \
    type __tsan_atomic##bits##_load(const volatile type *at, int order);                                               \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order);                                        \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order);                                     \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order);                                    \
    type __tsan_atomic##bits##_fetch_sub(volatile type *at, type value, int order);                                    \
    type __tsan_atomic##bits##_load(const volatile type *at, int order)                                                \
    {                                                                                                                  \
        explore_access((const void *)at, false);                                                                       \
        return *at;                                                                                                    \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                                         \
    {                                                                                                                  \
        explore_access((const void *)at, true);                                                                        \
        *at = value;                                                                                                   \
    }                                                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)                                      \
    {                                                                                                                  \
        explore_access((const void *)at, true);                                                                        \
        type before = *at;                                                                                             \
        *at = value;                                                                                                   \
        return before;                                                                                                 \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order)                                     \
    {                                                                                                                  \
        explore_access((const void *)at, true);                                                                        \
        type before = *at;                                                                                             \
        *at = (type)(before + value);                                                                                  \
        return before;                                                                                                 \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_sub(volatile type *at, type value, int order)                                     \
    {                                                                                                                  \
        return __tsan_atomic##bits##_fetch_add(at, (type)-value, order);                                               \
    }
ATOMICS(8, uint8_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_read_range(void *at, size_t n_bytes);
void __tsan_write_range(void *at, size_t n_bytes);

void __tsan_read_range(void *at, size_t n_bytes)
{
}

void __tsan_write_range(void *at, size_t n_bytes)
{
}

#define IGNORED(name)                                                                                                  \
    void __tsan_##name(void *at);                                                                                      \
    void __tsan_##name(void *at)                                                                                       \
    {                                                                                                                  \
    }
IGNORED(init)
IGNORED(func_entry)
IGNORED(func_exit)
IGNORED(read1)
IGNORED(read2)
IGNORED(read4)
IGNORED(read8)
IGNORED(read16)
IGNORED(write1)
IGNORED(write2)
IGNORED(write4)
IGNORED(write8)
IGNORED(write16)
IGNORED(unaligned_read8)
IGNORED(unaligned_read16)
IGNORED(unaligned_write8)
IGNORED(unaligned_write16)

/* ---- clock.h --------------------------------------------------------------------------------------------------- */

int64_t clock_monotonic_ns(void)
{
    if (explore_has_deadlines())
        explore_block("read the clock", NULL, NULL);
    return explore_now_ns();
}

int64_t clock_unix_ns(void)
{
    return clock_monotonic_ns();
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    return (struct timespec){.tv_sec = monotonic_ns / NS_PER_S, .tv_nsec = monotonic_ns % NS_PER_S};
}

void clock_sleep_until(int64_t deadline_ns)
{
    static char nothing;

    if (explore_now_ns() < deadline_ns)
        explore_wait(&nothing, deadline_ns, NULL, NULL);
}

/* ---- thread.h -------------------------------------------------------------------------------------------------- */

_Thread_local _Atomic uint64_t *thread_beats;

int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg)
{
    thread->handle = explore_start(name, run, arg);
    return 0;
}

void thread_join(struct thread *thread)
{
    explore_join((unsigned)thread->handle);
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

/* ---- log.h: no lines ------------------------------------------------------------------------------------------- */

void __wrap_log_message(int level, const char *format, ...);
void __wrap_log_limited(void *limit, int level, const char *format, ...);

void __wrap_log_message(int level, const char *format, ...)
{
}

void __wrap_log_limited(void *limit, int level, const char *format, ...)
{
}

/* ---- libev: loops with messages from other threads ------------------------------------------------------------- */

#define MAX_WATCHERS 4

struct ev_loop {
    bool is_broken;
    size_t n_asyncs;
    ev_async *asyncs[MAX_WATCHERS];
};

struct ev_loop *ev_loop_new(unsigned flags) EV_NOEXCEPT
{
    return calloc(1, sizeof(struct ev_loop));
}

void ev_loop_destroy(struct ev_loop *loop) EV_NOEXCEPT
{
    free(loop);
}

void ev_async_start(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    async->active = 1;
    async->sent = 0;
    loop->asyncs[loop->n_asyncs++] = async;
}

void ev_async_stop(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    for (size_t i = 0; async->active && i < loop->n_asyncs; i++)
        if (loop->asyncs[i] == async) {
            loop->asyncs[i] = loop->asyncs[--loop->n_asyncs];
            break;
        }
    async->active = 0;
}

void ev_async_send(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    explore_access(loop, true);
    async->sent = 1;
}

void ev_break(struct ev_loop *loop, int how) EV_NOEXCEPT
{
    loop->is_broken = true;
}

static bool has_message(const void *object)
{
    const struct ev_loop *loop = object;

    for (size_t i = 0; i < loop->n_asyncs; i++)
        if (loop->asyncs[i]->sent)
            return true;
    return false;
}

/* Runs the watchers that have a message.  With EVRUN_NOWAIT, does not wait for a message. */
int ev_run(struct ev_loop *loop, int flags)
{
    loop->is_broken = false;
    do {
        explore_block("await a message", flags & EVRUN_NOWAIT ? NULL : has_message, loop);
        explore_touch(loop, true);
        ev_async *due[MAX_WATCHERS];
        size_t n_due = 0;
        for (size_t i = 0; i < loop->n_asyncs; i++)
            if (loop->asyncs[i]->sent) {
                loop->asyncs[i]->sent = 0;
                due[n_due++] = loop->asyncs[i];
            }
        for (size_t i = 0; i < n_due; i++)
            due[i]->cb(loop, due[i], EV_ASYNC);
    } while (!loop->is_broken && !(flags & EVRUN_NOWAIT));
    return 0;
}
