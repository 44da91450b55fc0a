/* lines.h - KATCP clients of a daemon in the world, without sockets.
 *
 * The daemon's server listens, accepts, reads and writes as in Linux.  lines.c replaces endpoint_listen(), accept4(),
 * recv(), send() and close() for file descriptors of its own (the linker's --wrap).  The server reads and writes random
 * parts of lines.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_LINES_H
#define TESTS_WORLD_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines; /* a connection; lines_end() frees all connections */

/* Connects to the daemon's server, whose main loop must run.  take(arg, line) is called on the daemon's main thread for
 * each line from the server, and must not wait. */
struct lines *lines_connect(void (*take)(void *arg, const char *line), void *arg);

/* Does the same for a client's address, like "10.0.0.7".  lines_connect() connects from 127.0.0.1. */
struct lines *lines_connect_from(const char *host, void (*take)(void *arg, const char *line), void *arg);

/* Sends a line.  'line' has no line end. */
void lines_send(struct lines *lines, const char *line);

/* Sends bytes, which may be a part of a line. */
void lines_send_bytes(struct lines *lines, const char *bytes, size_t n_bytes);

/* Sends the digit 1 many times, as the last part of a line that does not end. */
void lines_send_fill(struct lines *lines, size_t n_bytes);

/* Limits the number of bytes that the client still reads.  SIZE_MAX: no limit. */
void lines_read_only(struct lines *lines, size_t n_bytes);

/* Returns true if the server has closed the connection. */
bool lines_is_closed(const struct lines *lines);

/* The server's view of a connection. */
struct lines_fate {
    int64_t accepted_ns, closed_ns; /* virtual times; 0: not yet */
    unsigned n_open, n_of_host;     /* open connections before the accept: all, and those from the same host */
    size_t n_unread_bytes;          /* bytes that the server has not read */
};
struct lines_fate lines_fate(const struct lines *lines);

/* Lets the server find no memory for a text of more bytes.  SIZE_MAX: no limit. */
void lines_limit_memory(size_t n_bytes);

/* Forgets all connections. */
void lines_end(void);

/* Returns true if the main loop must call the watcher of a file descriptor.  'events' are libev's. */
bool lines_is_ready(int fd, int events);

#endif
