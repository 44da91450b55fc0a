/* thread.c - how every thread but main starts.  See thread.h. */
#include "common/thread.h"

#include "common/log.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 16 /* the kernel's limit, with the final zero */

struct start {
    char name[NAME_BYTES];
    int cpu;
    bool held; /* it waits at the gate */
    void *(*run)(void *arg);
    void *arg;
};

/* The gate at which new threads wait; only main moves it. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static enum { GATE_OPEN, GATE_HELD, GATE_GIVEN_UP } gate;

/* Returns false if the thread is to end. */
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

/* Runs first in the new thread, so that all of 'run', its first touch of memory included, has the name and the CPU. */
static void *begin(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    if (start.held && !pass_gate())
        return NULL;
    pthread_setname_np(pthread_self(), start.name);
    if (start.cpu >= 0) {
        cpu_set_t cpus;
        int err;

        CPU_ZERO(&cpus);
        if (start.cpu < CPU_SETSIZE)
            CPU_SET(start.cpu, &cpus);
        err = pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
        if (err)
            log_warning("thread %s is not pinned: CPU %d refused: %s", start.name, start.cpu, strerror(err));
    }
    return start.run(start.arg);
}

int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg)
{
    struct start *start = malloc(sizeof(*start));
    sigset_t all, before;
    int err;

    if (!start)
        return -ENOMEM;
    *start = (struct start){.cpu = cpu, .held = gate == GATE_HELD, .run = run, .arg = arg};
    snprintf(start->name, sizeof(start->name), "%s", name);

    /* A new thread inherits the mask, so there is no moment at which a signal could reach it. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    err = pthread_create(&thread->handle, NULL, begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        free(start);
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
                 "%s: no thread can be pinned to CPU %lld: this host has no such CPU, or does not let us "
                 "use it; \"taskset -cp $$\" says which there are",
                 key, (long long)cpus[i]);
        err = EINVAL;
    }
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return -err;
}

void thread_join(struct thread *thread)
{
    pthread_join(thread->handle, NULL);
}
