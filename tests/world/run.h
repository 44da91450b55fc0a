/* run.h - the common part of all worlds: the command line, one daemon in the world, and the daemon's log and counters.
 *
 * Threads: the world's first thread.  This thread runs the scenario. */
#ifndef TESTS_WORLD_RUN_H
#define TESTS_WORLD_RUN_H

#include "common/telemetry/sensor.h"

#include <stdbool.h>
#include <stdint.h>

struct service;

extern bool run_is_verbose; /* --verbose: the log and the counters are printed */

/* Runs the seeds of the command line "[OPTIONS] FIRST_SEED [N_SEEDS]", one after another, with 'run_seed'.  'path' is a
 * file name for the daemon's configuration.  The first seed runs twice, and must give the same digest.  With --twice each
 * seed runs twice.  Returns the exit status. */
int run_seeds(int argc, char **argv, void (*run_seed)(uint64_t seed, const char *path));

/* Draws a number in [0, n).  The option --set name=VALUE replaces the number, and does not change other draws.  0 is the
 * simplest value: shrink.py lowers the values while a run still fails. */
uint64_t run_draw(const char *name, uint64_t n);

/* Called with each line of the daemon's log; NULL: not called. */
extern void (*run_on_line)(const char *line);

struct run_daemon {
    unsigned thread;
    struct service *service;
};

/* Starts a daemon with its main function, and waits until it is ready or has ended. */
struct run_daemon run_start(const char *name, int (*main)(int argc, char **argv), const char *path);

/* Stops the daemon, waits for its end, and forgets its counters.  Fails the run if the exit code is not 0. */
void run_stop(struct run_daemon *daemon);

/* Does the same, and returns the exit code.  The daemon may have ended before. */
int run_stop_code(struct run_daemon *daemon);

/* Returns true if the daemon has ended.  Its counters then no longer exist. */
bool run_has_ended(void);

/* Waits for this virtual time. */
void run_sleep(int64_t ns);

/* Returns the sum of a counter over all labels that contain the text 'label', since the daemon was ready. */
uint64_t run_counter(const char *name, const char *label);

/* Returns the gauge whose labels contain the text 'label'.  Fails the run if there is none. */
double run_gauge(const char *name, const char *label);

/* Returns the reading of a sensor, whose name is a format.  Fails the run if there is no such sensor. */
struct sensor_reading run_sensor(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
