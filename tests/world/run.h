/* run.h - what all worlds need: the command line, one daemon in the world, its log and its counters.
 *
 * Threads: the world's first thread, which runs the scenario. */
#ifndef TESTS_WORLD_RUN_H
#define TESTS_WORLD_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct service;

extern bool run_is_verbose; /* --verbose: the log and the counters are printed */

/* Runs the seeds of the command line "[--verbose] FIRST_SEED [N_SEEDS]", one after another, with 'run_seed'.  'path' is
 * a file name for the daemon's configuration.  Returns the exit status. */
int run_seeds(int argc, char **argv, void (*run_seed)(uint64_t seed, const char *path));

struct run_daemon {
    unsigned thread;
    struct service *service;
};

/* Starts a daemon with its main function, and waits until it is ready. */
struct run_daemon run_start(const char *name, int (*main)(int argc, char **argv), const char *path);

/* Stops the daemon, waits for its end, and forgets its counters. */
void run_stop(struct run_daemon *daemon);

/* Waits for the end of a daemon that ends itself because of a fault.  Fails the run unless it ends within this time,
 * with exit status 1. */
void run_await_failure(struct run_daemon *daemon, int64_t timeout_ns);

/* Waits for this virtual time. */
void run_sleep(int64_t ns);

/* Returns the sum of a counter over all labels that contain the text 'label'. */
uint64_t run_counter(const char *name, const char *label);

/* Returns the gauge whose labels contain the text 'label'.  Fails the run if there is none. */
double run_gauge(const char *name, const char *label);

#endif
