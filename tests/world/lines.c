/* lines.c - carries KATCP lines between the scenario and the daemon's server.  See lines.h. */
#include "tests/world/lines.h"

#include "common/katcp/message.h"
#include "common/net/endpoint.h"
#include "tests/world/loop.h"
#include "tests/world/sched.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENER    (1 << 28) /* file descriptor; connection i has LISTENER + 1 + i */
#define MAX_CLIENTS 64
#define MAX_LINE    (1 << 16)
#define FILL        '1'

struct lines {
    int fd; /* -1: the server has not accepted the connection */
    struct in_addr host;
    bool server_closed;
    struct lines_fate fate;
    char *to_server; /* [to_server_at .. n_to_server) bytes that the server has not read */
    size_t to_server_at, n_to_server;
    size_t n_fill;              /* bytes FILL that follow, and that the server has not read */
    size_t may_read;            /* bytes that the client still reads */
    char from_server[MAX_LINE]; /* [n_from_server] the beginning of a line */
    size_t n_from_server;
    void (*take)(void *arg, const char *line);
    void *arg;
};

static struct lines *clients[MAX_CLIENTS];
static size_t n_clients, n_accepted;
static size_t memory_bytes = SIZE_MAX;

struct lines *lines_connect_from(const char *host, void (*take)(void *arg, const char *line), void *arg)
{
    if (n_clients == MAX_CLIENTS)
        world_fail("more than %d clients", MAX_CLIENTS);
    struct lines *lines = clients[n_clients++] = calloc(1, sizeof(*lines));
    lines->fd = -1;
    lines->host.s_addr = inet_addr(host);
    lines->may_read = SIZE_MAX;
    lines->take = take;
    lines->arg = arg;
    world_io_changed();
    return lines;
}

struct lines *lines_connect(void (*take)(void *arg, const char *line), void *arg)
{
    return lines_connect_from("127.0.0.1", take, arg);
}

static size_t n_unread(const struct lines *lines)
{
    return lines->n_to_server - lines->to_server_at + lines->n_fill;
}

void lines_send_bytes(struct lines *lines, const char *bytes, size_t n_bytes)
{
    if (lines->n_fill > 0)
        world_fail("a line continues after filling bytes");
    if (n_unread(lines) == 0)
        lines->to_server_at = lines->n_to_server = 0;
    lines->to_server = realloc(lines->to_server, lines->n_to_server + n_bytes);
    if (!lines->to_server)
        world_fail("out of memory");
    memcpy(lines->to_server + lines->n_to_server, bytes, n_bytes);
    lines->n_to_server += n_bytes;
    world_io_changed();
}

void lines_send(struct lines *lines, const char *line)
{
    lines_send_bytes(lines, line, strlen(line));
    lines_send_bytes(lines, "\n", 1);
}

void lines_read_only(struct lines *lines, size_t n_bytes)
{
    lines->may_read = n_bytes;
    world_io_changed();
}

void lines_send_fill(struct lines *lines, size_t n_bytes)
{
    lines->n_fill += n_bytes;
    world_io_changed();
}

struct lines_fate lines_fate(const struct lines *lines)
{
    struct lines_fate fate = lines->fate;

    fate.n_unread_bytes = n_unread(lines);
    return fate;
}

void lines_limit_memory(size_t n_bytes)
{
    memory_bytes = n_bytes;
}

bool lines_is_closed(const struct lines *lines)
{
    return lines->server_closed;
}

void lines_end(void)
{
    for (size_t i = 0; i < n_clients; i++) {
        free(clients[i]->to_server);
        free(clients[i]);
    }
    n_clients = n_accepted = 0;
    memory_bytes = SIZE_MAX;
}

static struct lines *find(int fd)
{
    return fd > LISTENER && fd <= LISTENER + (int)n_accepted ? clients[fd - LISTENER - 1] : NULL;
}

bool lines_is_ready(int fd, int events)
{
    const struct lines *lines = find(fd);

    if (fd == LISTENER)
        return n_accepted < n_clients;
    return lines && (((events & EV_WRITE) && lines->may_read > 0) || ((events & EV_READ) && n_unread(lines) > 0));
}

/* ---- System calls ---------------------------------------------------------------------------------------------------- */

int __wrap_endpoint_listen(const struct endpoint *at, int backlog, unsigned *port);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *address_bytes, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t n_bytes, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n_bytes, int flags);
int __wrap_close(int fd);
void __wrap_katcp_text_add(struct katcp_text *text, const char *bytes, size_t n);
void __real_katcp_text_add(struct katcp_text *text, const char *bytes, size_t n);
ssize_t __real_recv(int fd, void *bytes, size_t n_bytes, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t n_bytes, int flags);
int __real_close(int fd);

int __wrap_endpoint_listen(const struct endpoint *at, int backlog, unsigned *port)
{
    *port = at->port;
    return LISTENER;
}

/* Counts the connections that the server has accepted and not closed. */
static void count_open(struct lines *lines)
{
    for (size_t i = 0; i < n_accepted; i++) {
        lines->fate.n_open += !clients[i]->server_closed;
        lines->fate.n_of_host += !clients[i]->server_closed && clients[i]->host.s_addr == lines->host.s_addr;
    }
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *address_bytes, int flags)
{
    struct sockaddr_in *peer = (struct sockaddr_in *)address;

    if (fd != LISTENER || n_accepted == n_clients) {
        errno = EAGAIN;
        return -1;
    }
    *peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(20000)};
    struct lines *lines = clients[n_accepted];
    peer->sin_addr = lines->host;
    count_open(lines);
    lines->fate.accepted_ns = world_now_ns();
    lines->fd = LISTENER + 1 + (int)n_accepted;
    return clients[n_accepted++]->fd;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t n_bytes, int flags)
{
    struct lines *lines = find(fd);

    if (!lines)
        return __real_recv(fd, bytes, n_bytes, flags);
    if (n_unread(lines) == 0) {
        errno = EAGAIN;
        return -1;
    }
    size_t n_line = lines->n_to_server - lines->to_server_at, n = n_line > 0 ? n_line : lines->n_fill;
    n = n < n_bytes ? n : n_bytes;
    n = world_random(2) ? n : 1 + world_random(n);
    if (n_line > 0) {
        memcpy(bytes, lines->to_server + lines->to_server_at, n);
        world_digest_bytes(bytes, n);
        lines->to_server_at += n;
    } else {
        memset(bytes, FILL, n);
        world_digest_bytes(&n, sizeof(n));
        lines->n_fill -= n;
    }
    return (ssize_t)n;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n_bytes, int flags)
{
    struct lines *lines = find(fd);

    if (!lines)
        return __real_send(fd, bytes, n_bytes, flags);
    if (world_random(8) == 0 || lines->may_read == 0) {
        errno = EAGAIN;
        return -1;
    }
    size_t n = n_bytes > 0 && world_random(2) ? 1 + world_random(n_bytes) : n_bytes;
    n = n < lines->may_read ? n : lines->may_read;
    lines->may_read -= lines->may_read < SIZE_MAX ? n : 0;
    world_digest_bytes(bytes, n);
    for (size_t i = 0; i < n; i++) {
        char c = ((const char *)bytes)[i];
        if (lines->n_from_server == MAX_LINE)
            world_fail("a line from the server is too long");
        lines->from_server[lines->n_from_server++] = c == '\n' ? '\0' : c;
        if (c != '\n')
            continue;
        lines->n_from_server = 0;
        lines->take(lines->arg, lines->from_server);
    }
    return (ssize_t)n;
}

int __wrap_close(int fd)
{
    struct lines *lines = find(fd);

    if (lines) {
        lines->server_closed = true;
        lines->fate.closed_ns = world_now_ns();
    }
    return fd >= LISTENER ? 0 : __real_close(fd);
}

/* The server's memory: as if realloc() had failed. */
void __wrap_katcp_text_add(struct katcp_text *text, const char *bytes, size_t n)
{
    if (text->n + n > memory_bytes)
        text->failed = true;
    else
        __real_katcp_text_add(text, bytes, n);
}
