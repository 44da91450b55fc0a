/* lines.h - KATCP clients of a daemon in the world, without sockets.
 *
 * The daemon's server listens, accepts, reads and writes as in Linux.  lines.c replaces endpoint_listen(), accept4(),
 * recv(), send() and close() for file descriptors of its own (the linker's --wrap).  The server reads and writes random
 * parts of lines.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_LINES_H
#define TESTS_WORLD_LINES_H

#include <stdbool.h>

struct lines; /* a connection; lines_end() frees all connections */

/* Connects to the daemon's server, whose main loop must run.  take(arg, line) is called on the daemon's main thread for
 * each line from the server, and must not wait. */
struct lines *lines_connect(void (*take)(void *arg, const char *line), void *arg);

/* Sends a line.  'line' has no line end. */
void lines_send(struct lines *lines, const char *line);

/* Returns true if the server has closed the connection. */
bool lines_is_closed(const struct lines *lines);

/* Forgets all connections. */
void lines_end(void);

/* Returns true if the main loop must call the watcher of a file descriptor.  'events' are libev's. */
bool lines_is_ready(int fd, int events);

#endif
