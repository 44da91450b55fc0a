/* katcp_server.c - the listeners, and what all clients share. */
#include "common/katcp_internal.h"

#include "common/endpoint.h"
#include "common/log.h"
#include "common/sections.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The loop's callbacks ---------------------------------------------------------------------------------------- */

static void on_again(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, again);

    for (struct katcp_client *client = server->clients; client; client = client->next)
        katcp_client_go_on(client);
    katcp_clients_tidy(server);
}

void katcp_server_go_on(struct katcp_server *server)
{
    if (ev_is_active(&server->again))
        return;
    ev_timer_set(&server->again, 0., 0.);
    ev_timer_start(server->loop, &server->again);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, look);

    katcp_sampling_look(server);
    katcp_clients_tidy(server);
}

/* Also begins to accept again, where there were no more files. */
static void on_housekeeping(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, housekeeping);

    katcp_clients_tidy(server);
    for (size_t i = 0; i < ARRAY_LEN(server->listeners); i++)
        if (server->listeners[i].fd >= 0)
            ev_io_start(loop, &server->listeners[i].accepts);
}

/* ---- Accepting --------------------------------------------------------------------------------------------------- */

/* Says why, and closes. */
static void refuse(int fd, const char *address, const char *why)
{
    static struct log_limit limit;
    struct katcp_text line = {0};

    katcp_text_begin(&line, '#', "disconnect", 0);
    katcp_text_add_arg(&line, why);
    katcp_text_end(&line);
    if (send(fd, line.bytes, line.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        errno = 0; /* it is none the wiser */
    katcp_text_fini(&line);
    close(fd);
    log_limited(&limit, LOG_LEVEL_WARNING, "KATCP client %s is refused: %s", address, why);
}

static void set_options(int fd)
{
    int on = 1, idle_s = 60, interval_s = 10, n_probes = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* A client whose host has gone is noticed, and makes room. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
}

static void on_connection(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct katcp_listener *listener = CONTAINER_OF(watcher, struct katcp_listener, accepts);
    struct katcp_server *server = listener->server;
    struct sockaddr_in address;
    socklen_t address_bytes = sizeof(address);
    char where[32];

    int fd = accept4(listener->fd, (struct sockaddr *)&address, &address_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            ev_io_stop(loop, watcher); /* until the next second */
        return;
    }
    struct endpoint peer = {.address = address.sin_addr, .port = ntohs(address.sin_port)};
    endpoint_format(&peer, where, sizeof(where));
    set_options(fd);
    if (!katcp_access_allows(&server->access, peer.address))
        refuse(fd, where, "katcp.allow does not name its network");
    else if (server->n_clients >= server->max_clients)
        refuse(fd, where, "there are katcp.max_clients already");
    else
        katcp_client_open(server, fd, where, listener->read_only);
}

static const char *cure(int err)
{
    switch (err) {
    case -EADDRINUSE: return "; another program listens there: stop it, or choose another port";
    case -EADDRNOTAVAIL: return "; this host has no such address";
    case -EACCES: return "; ports below 1024 are for root";
    default: return "";
    }
}

/* Stores the socket and its port.  Returns 0 or negative errno. */
static int open_socket(const struct endpoint *at, int *out, unsigned *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = at->address, .sin_port = htons(at->port)};
    socklen_t address_bytes = sizeof(address);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &address_bytes) != 0) {
        int err = -errno;
        close(fd);
        return err;
    }
    *out = fd;
    *port = ntohs(address.sin_port);
    return 0;
}

static int open_listener(struct katcp_listener *listener, const struct endpoint_list *at, char *why, size_t why_bytes)
{
    char where[32];

    if (at->n == 0)
        return 0;
    int err = open_socket(&at->items[0], &listener->fd, &listener->port);
    if (err) {
        snprintf(why, why_bytes, "katcp.%s: cannot serve KATCP on %s: %s%s",
                 listener->read_only ? "read_only_listen" : "listen",
                 endpoint_format(&at->items[0], where, sizeof(where)), strerror(-err), cure(err));
        return err;
    }
    ev_io_init(&listener->accepts, on_connection, listener->fd, EV_READ);
    ev_io_start(listener->server->loop, &listener->accepts);
    return 0;
}

static int parse_allow(const struct config_katcp *config, struct katcp_access *access, char *why, size_t why_bytes)
{
    char sentence[200];

    int err = katcp_access_parse(config->allow, access, sentence, sizeof(sentence));
    if (err)
        snprintf(why, why_bytes, "katcp.allow: %s", sentence);
    return err;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static void init(struct katcp_server *server, struct ev_loop *loop, const struct katcp_device *device,
                 const struct config_katcp *config)
{
    server->device = device;
    server->loop = loop;
    server->max_clients = (size_t)config->max_clients;
    ev_timer_init(&server->again, on_again, 0., 0.);
    ev_timer_init(&server->look, on_look, KATCP_LOOK_S, KATCP_LOOK_S);
    ev_timer_init(&server->housekeeping, on_housekeeping, 1., 1.);
    for (size_t i = 0; i < ARRAY_LEN(server->listeners); i++)
        server->listeners[i] = (struct katcp_listener){.server = server, .read_only = i == 1, .fd = -1};
}

int katcp_server_open(const struct config_katcp *config, struct ev_loop *loop, const struct katcp_device *device,
                      struct katcp_server **server, char *why, size_t why_bytes)
{
    struct katcp_server *s = calloc(1, sizeof(*s));
    int err = -ENOMEM;

    if (!s)
        return -ENOMEM;
    why[0] = '\0';
    init(s, loop, device, config);
    katcp_log_open(s);
    s->read_buffer = malloc(KATCP_READ_BYTES);
    if (s->read_buffer)
        err = parse_allow(config, &s->access, why, why_bytes);
    if (!err)
        err = open_listener(&s->listeners[0], &config->listen, why, why_bytes);
    if (!err)
        err = open_listener(&s->listeners[1], &config->read_only_listen, why, why_bytes);
    if (err) {
        katcp_server_close(s);
        return err;
    }
    ev_timer_start(loop, &s->housekeeping);
    *server = s;
    return 0;
}

unsigned katcp_server_port(const struct katcp_server *server, bool read_only)
{
    return server->listeners[read_only].port;
}

/* What a client has not taken yet gets this long, all together. */
#define CLOSING_MS 500

static void close_client(struct katcp_client *client, int *left_ms)
{
    struct katcp_text *line = &client->server->line;

    if (client->call.active)
        katcp_fail(&client->call, "the program is ending");
    katcp_text_clear(line);
    katcp_text_begin(line, '#', "disconnect", 0);
    katcp_text_add_arg(line, "the program is ending");
    katcp_text_end(line);
    katcp_client_tell(client, line);
    katcp_client_flush(client);
    while (client->fd >= 0 && client->out.n > client->out_at && *left_ms > 0) {
        struct pollfd out = {.fd = client->fd, .events = POLLOUT};
        if (poll(&out, 1, 10) == 0)
            *left_ms -= 10;
        katcp_client_flush(client);
    }
    katcp_client_drop(client, NULL);
}

void katcp_server_close(struct katcp_server *server)
{
    int left_ms = CLOSING_MS;

    if (!server)
        return;
    for (size_t i = 0; i < ARRAY_LEN(server->listeners); i++) {
        if (server->listeners[i].fd < 0)
            continue;
        ev_io_stop(server->loop, &server->listeners[i].accepts);
        close(server->listeners[i].fd);
    }
    for (struct katcp_client *client = server->clients; client; client = client->next)
        close_client(client, &left_ms);
    katcp_clients_tidy(server);
    katcp_log_close(server);
    ev_timer_stop(server->loop, &server->again);
    ev_timer_stop(server->loop, &server->look);
    ev_timer_stop(server->loop, &server->housekeeping);
    katcp_text_fini(&server->line);
    free(server->read_buffer);
    free(server);
}
