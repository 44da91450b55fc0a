/* thread.h - named, pinned threads. */
#ifndef COMMON_THREAD_H
#define COMMON_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thread {
    pthread_t handle;
};

/* Starts 'run(arg)' as a thread called 'name' (cut to 15 characters), pinned to CPU 'cpu' or to none if < 0; all
 * signals are blocked in it.  A pin that the kernel refuses is a warning.  Returns 0 or negative errno. */
int thread_start(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);

/* From threads_hold() on, threads that are started wait before their first step, until threads_release(): either all
 * that a process needs begin, or (false) each ends without having done anything: a packet sent, a file begun.  Both,
 * and thread_start() in between, on the main thread. */
void threads_hold(void);
void threads_release(bool begin);

/* Whether 'n' more threads could be started, such as a library starts later and cannot do without.  Returns 0 or
 * negative errno. */
int threads_probe(size_t n);

/* Whether each of the CPUs (< 0: none) can be pinned to.  Returns 0, or -EINVAL with one sentence in 'why' that begins
 * with 'key'. */
int threads_check_cpus(const int64_t *cpus, size_t n_cpus, const char *key, char *why, size_t why_bytes);

/* Waits for the thread's end. */
void thread_join(struct thread *thread);

#endif
