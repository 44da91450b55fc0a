/* loop.h - the daemons' main loops, for the scenario.
 *
 * Threads: a thread of the world that is no daemon's thread. */
#ifndef TESTS_WORLD_LOOP_H
#define TESTS_WORLD_LOOP_H

struct service;

/* Waits until the daemon that was started last is ready.  Returns its service, which service_stop() stops. */
struct service *world_await_ready(void);

/* Wakes the main loop that watches file descriptors, because one may be ready. */
void world_io_changed(void);

#endif
