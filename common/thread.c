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
    void *(*run)(void *arg);
    void *arg;
};

/* Runs first in the new thread, so that all of 'run', its first touch of memory included, has the name and the CPU. */
static void *begin(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
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
    *start = (struct start){.cpu = cpu, .run = run, .arg = arg};
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

void thread_join(struct thread *thread)
{
    pthread_join(thread->handle, NULL);
}
