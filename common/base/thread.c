/* thread.c - starts, pins and watches all threads except the main thread.  See thread.h. */
#include "common/base/thread.h"

#include "common/base/log.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NAME_BYTES       16 /* Linux's limit on the length of a thread's name, with the final NUL */
#define CACHE_LINE_BYTES 64

/* State of a thread between its start and its end.  'n_beats' has a separate cache line, which only this thread
 * writes. */
struct record {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t n_beats;
    _Alignas(CACHE_LINE_BYTES) char name[NAME_BYTES];
    int cpu;
    bool held; /* true if the thread waits at the gate before it calls 'run' */
    void *(*run)(void *arg);
    void *arg;
    _Atomic int64_t tid;
    _Atomic bool excused;  /* true while the thread is not watched */
    uint64_t n_beats_seen; /* [watching thread] */
    unsigned n_looks;      /* [watching thread] number of successive checks by threads_find_stalled() that found the
                            * same n_beats */
    struct record *next;   /* [records_lock] */
};

/* All running threads. */
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *records;

_Thread_local _Atomic uint64_t *thread_beats;
static _Thread_local struct record *own_record;

/* The gate at which new threads wait.  Only the main thread opens and closes the gate. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static enum { GATE_OPEN, GATE_HELD, GATE_GIVEN_UP } gate;

/* Waits while the gate is closed (GATE_HELD).  Returns false if the thread must end. */
static bool pass_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    while (gate == GATE_HELD)
        pthread_cond_wait(&gate_moved, &gate_lock);
    bool open = gate == GATE_OPEN;
    pthread_mutex_unlock(&gate_lock);
    return open;
}

static void move_gate(int to)
{
    pthread_mutex_lock(&gate_lock);
    gate = to;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate_lock);
}

void threads_hold(void)
{
    move_gate(GATE_HELD);
}

void threads_release(bool begin)
{
    move_gate(begin ? GATE_OPEN : GATE_GIVEN_UP);
}

/* ---- Running threads and their beats ----------------------------------------------------------------------------- */

static void enter(struct record *record)
{
    pthread_mutex_lock(&records_lock);
    record->next = records;
    records = record;
    pthread_mutex_unlock(&records_lock);
}

static void leave(struct record *record)
{
    pthread_mutex_lock(&records_lock);
    struct record **link = &records;
    while (*link != record)
        link = &(*link)->next;
    *link = record->next;
    pthread_mutex_unlock(&records_lock);
    free(record);
}

void thread_watched(bool watched)
{
    thread_beat(); /* the time before this call must not count as a stall */
    if (own_record)
        atomic_store_explicit(&own_record->excused, !watched, memory_order_relaxed);
}

struct thread_stalled threads_find_stalled(void)
{
    struct thread_stalled still = {.n_looks = 0};

    pthread_mutex_lock(&records_lock);
    for (struct record *r = records; r; r = r->next) {
        uint64_t n_beats = atomic_load_explicit(&r->n_beats, memory_order_relaxed);
        bool stands = n_beats == r->n_beats_seen && !atomic_load_explicit(&r->excused, memory_order_relaxed);
        r->n_looks = stands ? r->n_looks + 1 : 0;
        r->n_beats_seen = n_beats;
        if (r->n_looks <= still.n_looks)
            continue;
        still.n_looks = r->n_looks;
        still.tid = atomic_load_explicit(&r->tid, memory_order_relaxed);
        memcpy(still.name, r->name, sizeof(still.name));
    }
    pthread_mutex_unlock(&records_lock);
    return still;
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

static void pin(const struct record *record)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (record->cpu < CPU_SETSIZE)
        CPU_SET(record->cpu, &cpus);
    int err = pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    if (err)
        log_warning("thread %s is not pinned to CPU %d: %s", record->name, record->cpu, strerror(err));
}

/* Runs as the first function of a new thread.  Sets the name and the CPU before 'run', so that memory that 'run'
 * touches for the first time is allocated on that CPU's NUMA node. */
static void *begin(void *arg)
{
    struct record *record = arg;
    void *result = NULL;

    if (!record->held || pass_gate()) {
        pthread_setname_np(pthread_self(), record->name);
        if (record->cpu >= 0)
            pin(record);
        atomic_store_explicit(&record->tid, gettid(), memory_order_relaxed);
        thread_beats = &record->n_beats;
        own_record = record;
        result = record->run(record->arg);
        thread_beats = NULL;
        own_record = NULL;
    }
    leave(record);
    return result;
}

int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg)
{
    struct record *record = aligned_alloc(CACHE_LINE_BYTES, sizeof(*record));
    sigset_t all, before;

    if (!record)
        return -ENOMEM;
    *record = (struct record){.cpu = cpu, .held = gate == GATE_HELD, .run = run, .arg = arg};
    snprintf(record->name, sizeof(record->name), "%s", name);
    enter(record);

    /* A new thread inherits the signal mask.  The signals are therefore blocked from the thread's first instruction
     * on. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int err = pthread_create(&thread->handle, NULL, begin, record);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        leave(record);
    return -err;
}

static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

int threads_probe(size_t n)
{
    pthread_mutex_t all_there = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc(n + 1, sizeof(*threads));
    size_t n_started = 0;
    int err = threads ? 0 : ENOMEM;

    pthread_mutex_lock(&all_there);
    while (!err && n_started < n) {
        err = pthread_create(&threads[n_started], NULL, wait_for_lock, &all_there);
        n_started += !err;
    }
    pthread_mutex_unlock(&all_there);
    for (size_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return -err;
}

int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes)
{
    cpu_set_t before, one;
    int err = pthread_getaffinity_np(pthread_self(), sizeof(before), &before);

    for (size_t i = 0; i < n_cpus && !err; i++) {
        if (cpus[i] < 0)
            continue;
        CPU_ZERO(&one);
        if (cpus[i] < CPU_SETSIZE)
            CPU_SET((size_t)cpus[i], &one);
        if (pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0)
            continue;
        snprintf(why, why_bytes,
                 "%s: no thread can be pinned to CPU %lld: this host has no such CPU, or this process may not use it; "
                 "\"taskset -cp $$\" lists the usable CPUs",
                 key, (long long)cpus[i]);
        err = EINVAL;
    }
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return -err;
}

void thread_wake_promptly(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
}

void thread_join(struct thread *thread)
{
    pthread_join(thread->handle, NULL);
}
