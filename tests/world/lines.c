/* lines.c - carries KATCP lines between the scenario and the daemon's server.  See lines.h. */
#include "tests/world/lines.h"

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
#define MAX_CLIENTS 16
#define MAX_LINE    (1 << 16)

struct lines {
    int fd; /* -1: the server has not accepted the connection */
    bool server_closed;
    char *to_server; /* [n_to_server] bytes that the server has not read */
    size_t n_to_server;
    char from_server[MAX_LINE]; /* [n_from_server] the beginning of a line */
    size_t n_from_server;
    void (*take)(void *arg, const char *line);
    void *arg;
};

static struct lines *clients[MAX_CLIENTS];
static size_t n_clients, n_accepted;

struct lines *lines_connect(void (*take)(void *arg, const char *line), void *arg)
{
    if (n_clients == MAX_CLIENTS)
        world_fail("more than %d clients", MAX_CLIENTS);
    struct lines *lines = clients[n_clients++] = calloc(1, sizeof(*lines));
    lines->fd = -1;
    lines->take = take;
    lines->arg = arg;
    world_io_changed();
    return lines;
}

void lines_send(struct lines *lines, const char *line)
{
    size_t n_bytes = strlen(line);

    lines->to_server = realloc(lines->to_server, lines->n_to_server + n_bytes + 1);
    if (!lines->to_server)
        world_fail("out of memory");
    memcpy(lines->to_server + lines->n_to_server, line, n_bytes);
    lines->to_server[lines->n_to_server + n_bytes] = '\n';
    lines->n_to_server += n_bytes + 1;
    world_io_changed();
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
    return lines && ((events & EV_WRITE) || lines->n_to_server > 0);
}

/* ---- System calls ---------------------------------------------------------------------------------------------------- */

int __wrap_endpoint_listen(const struct endpoint *at, int backlog, unsigned *port);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *address_bytes, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t n_bytes, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n_bytes, int flags);
int __wrap_close(int fd);
ssize_t __real_recv(int fd, void *bytes, size_t n_bytes, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t n_bytes, int flags);
int __real_close(int fd);

int __wrap_endpoint_listen(const struct endpoint *at, int backlog, unsigned *port)
{
    *port = at->port;
    return LISTENER;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *address_bytes, int flags)
{
    struct sockaddr_in *peer = (struct sockaddr_in *)address;

    if (fd != LISTENER || n_accepted == n_clients) {
        errno = EAGAIN;
        return -1;
    }
    *peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(20000)};
    peer->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    clients[n_accepted]->fd = LISTENER + 1 + (int)n_accepted;
    return clients[n_accepted++]->fd;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t n_bytes, int flags)
{
    struct lines *lines = find(fd);

    if (!lines)
        return __real_recv(fd, bytes, n_bytes, flags);
    if (lines->n_to_server == 0) {
        errno = EAGAIN;
        return -1;
    }
    size_t n = lines->n_to_server < n_bytes ? lines->n_to_server : n_bytes;
    n = world_random(2) ? n : 1 + world_random(n);
    memcpy(bytes, lines->to_server, n);
    world_digest_bytes(bytes, n);
    lines->n_to_server -= n;
    memmove(lines->to_server, lines->to_server + n, lines->n_to_server);
    return (ssize_t)n;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n_bytes, int flags)
{
    struct lines *lines = find(fd);

    if (!lines)
        return __real_send(fd, bytes, n_bytes, flags);
    if (world_random(8) == 0) {
        errno = EAGAIN;
        return -1;
    }
    size_t n = n_bytes > 0 && world_random(2) ? 1 + world_random(n_bytes) : n_bytes;
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

    if (lines)
        lines->server_closed = true;
    return fd >= LISTENER ? 0 : __real_close(fd);
}
