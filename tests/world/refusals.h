/* refusals.h - KATCP clients that a daemon's server must refuse, and the counters of refusals.
 *
 * A run has one kind of such clients: clients that do not speak KATCP, hosts that katcp.allow does not name, many
 * clients of one host, clients that do not finish a line or do not read, and clients that need too much memory.
 * refusals.c knows the refusal of each connection: from the connections that are open at its accept, and from the
 * client's behaviour.
 * Threads: the world's first thread. */
#ifndef TESTS_WORLD_REFUSALS_H
#define TESTS_WORLD_REFUSALS_H

#include <stdio.h>

/* Draws the clients of a run.  'request' is the name of a request whose lines may have 16 MiB. */
void refusals_draw(const char *request);

/* Writes the section katcp of the configuration. */
void refusals_write_config(FILE *file);

/* Connects the clients.  The scenario connects its own clients before. */
void refusals_connect(void);

/* Waits for the refusals, and checks that each client was refused for the right reason, or is served, and that the
 * counters agree.  Call this function while the daemon runs.  If the daemon ends, nothing is checked. */
void refusals_check(void);

#endif
