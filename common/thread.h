/* thread.h - named, pinned threads. */
#ifndef COMMON_THREAD_H
#define COMMON_THREAD_H

#include <pthread.h>

struct thread {
    pthread_t handle;
};

/* Starts 'run(arg)' as a thread called 'name' (cut to 15 characters), pinned to CPU 'cpu' or to none if < 0; all
 * signals are blocked in it.  A pin that the kernel refuses is a warning.  Returns 0 or negative errno. */
int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);

/* Waits for the thread's end. */
void thread_join(struct thread *thread);

#endif
