/* loop.h - the daemons' main loops, for the scenario.
 *
 * Threads: a thread of the world that does not belong to a daemon calls world_await_ready(). */
#ifndef TESTS_WORLD_LOOP_H
#define TESTS_WORLD_LOOP_H

struct service;

/* Called before and after the daemon's main function. */
void world_program_begins(void);
void world_program_ends(void);

/* Waits until the daemon that was started last is ready, or has ended.  Returns its service, which service_stop() stops.
 * Returns NULL if the daemon has ended. */
struct service *world_await_ready(void);

/* Wakes the main loop that watches file descriptors, because one may be ready. */
void world_io_changed(void);

#endif
