/* server.c - accepts connections at the listeners, and owns the state that all clients share. */
#include "common/base/why.h"
#include "common/katcp/internal.h"

#include "common/net/endpoint.h"
#include "common/katcp/keys.h"
#include "common/base/log.h"
#include "common/telemetry/stats.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

const char *const katcp_refusal_sentences[KATCP_N_REFUSALS] = {
    [KATCP_NOT_ALLOWED] = "katcp.allow does not name the client's network",
    [KATCP_TOO_MANY] = "katcp.max_clients clients are already connected",
    [KATCP_TOO_MANY_OF_HOST] = "the client's host already has 16 connections",
    [KATCP_RESERVED] = "the last connections of katcp.max_clients are reserved for hosts without a connection",
    [KATCP_NO_KATCP] = "the client's first line is not a KATCP request",
    [KATCP_UNFINISHED] = "the client has not finished a line for 30 s",
    [KATCP_UNREAD] = "the client does not read its replies",
    [KATCP_STALLED] = "the client has read nothing for 30 s",
    [KATCP_TOO_MUCH] = "the clients use too much memory, and this client uses the most",
    [KATCP_NO_MEMORY] = "there is no memory for this client",
};

static const char *const refusal_labels[KATCP_N_REFUSALS] = {
    [KATCP_NOT_ALLOWED] = "not_allowed", [KATCP_TOO_MANY] = "too_many", [KATCP_TOO_MANY_OF_HOST] = "too_many_of_host",
    [KATCP_RESERVED] = "reserved",       [KATCP_NO_KATCP] = "no_katcp", [KATCP_UNFINISHED] = "unfinished_line",
    [KATCP_UNREAD] = "unread",           [KATCP_STALLED] = "stalled",   [KATCP_TOO_MUCH] = "too_much_memory",
    [KATCP_NO_MEMORY] = "no_memory",
};

/* The counters are static, because the registry that refers to them outlives the server. */
static struct counter n_refused[KATCP_N_REFUSALS];

static void count_refusals(void)
{
    char labels[64];

    for (size_t i = KATCP_SERVED + 1; i < KATCP_N_REFUSALS; i++) {
        labels[0] = '\0';
        stats_counter("katcp_refused_connections",
                      "Connections to KATCP that were refused or closed, by reason (docs/katcp.md).",
                      stats_label(labels, sizeof(labels), "reason", refusal_labels[i]), &n_refused[i]);
    }
}

void katcp_count_refusal(enum katcp_refusal why, const char *address)
{
    static struct log_limit limit;

    counter_add_alone(&n_refused[why], 1);
    log_limited(&limit, LOG_LEVEL_WARNING, "KATCP client %s is dropped: %s", address, katcp_refusal_sentences[why]);
}

/* ---- The loop's callbacks ---------------------------------------------------------------------------------------- */

int64_t katcp_steps_left(struct katcp_server *server)
{
    unsigned turn = ev_iteration(server->loop);

    if (turn != server->turn)
        server->steps_left = KATCP_TURN_STEPS;
    server->turn = turn;
    return server->steps_left;
}

static void on_again(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, again);

    if (server->look_next < server->device->sensors->n)
        katcp_sampling_poll(server);
    katcp_clients_serve(server);
    katcp_clients_tidy(server);
}

void katcp_server_resume(struct katcp_server *server)
{
    if (ev_is_active(&server->again))
        return;
    ev_timer_set(&server->again, 0., 0.);
    ev_timer_start(server->loop, &server->again);
}

/* Begins a poll of the sensors, unless the last poll is unfinished.  An unfinished poll continues in on_again(). */
static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, look);

    if (server->look_next < server->device->sensors->n)
        return;
    server->look_next = 0;
    katcp_sampling_poll(server);
}

/* Checks the clients each second.  Also restarts the listeners, which stop if no file descriptors are left. */
static void on_housekeeping(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, housekeeping);

    katcp_clients_check(server);
    for (size_t i = 0; i < ARRAY_LEN(server->listeners); i++)
        if (server->listeners[i].fd >= 0)
            ev_io_start(loop, &server->listeners[i].accepts);
}

/* ---- Accepting --------------------------------------------------------------------------------------------------- */

/* Refuses a connection: sends the reason, closes the socket, and counts the refusal. */
static void refuse(int fd, const struct endpoint *peer, enum katcp_refusal why)
{
    struct katcp_text line = {0};
    char where[32];

    katcp_text_add_inform(&line, "disconnect", (const char *[]){katcp_refusal_sentences[why], NULL});
    if (send(fd, line.bytes, line.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        errno = 0; /* after an error the client does not learn the reason */
    katcp_text_fini(&line);
    close(fd);
    katcp_count_refusal(why, endpoint_format(peer, where, sizeof(where)));
}

static void set_options(int fd)
{
    int on = 1, idle_s = 60, interval_s = 10, n_probes = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* With keep-alive the server detects that a client's host is down, and drops the client. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
}

/* Returns true if the addresses belong to the same host.  All loopback addresses are one host. */
static bool is_same_host(struct in_addr a, struct in_addr b)
{
    return a.s_addr == b.s_addr || (access_is_local(a) && access_is_local(b));
}

/* Checks whether a listener may accept one more client from 'host'.  Each listener has a separate limit, so that
 * read-only clients cannot exclude operators. */
static enum katcp_refusal find_place(const struct katcp_listener *listener, struct in_addr host)
{
    const struct katcp_server *server = listener->server;
    size_t reserve = server->max_clients / 8 < KATCP_RESERVE ? server->max_clients / 8 : KATCP_RESERVE;
    size_t n = 0, n_of_host = 0;

    for (const struct katcp_client *client = server->clients; client; client = client->next) {
        bool counts = client->fd >= 0 && client->read_only == listener->read_only;
        n += counts;
        n_of_host += counts && is_same_host(client->host, host);
    }
    if (!access_allows(&server->access, host))
        return KATCP_NOT_ALLOWED;
    if (n >= server->max_clients)
        return KATCP_TOO_MANY;
    if (n_of_host > 0 && n >= server->max_clients - reserve)
        return KATCP_RESERVED;
    return n_of_host >= KATCP_MAX_OF_HOST && !access_is_local(host) ? KATCP_TOO_MANY_OF_HOST : KATCP_SERVED;
}

static void on_connection(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct katcp_listener *listener = CONTAINER_OF(watcher, struct katcp_listener, accepts);
    struct sockaddr_in address;
    socklen_t address_bytes = sizeof(address);

    int fd = accept4(listener->fd, (struct sockaddr *)&address, &address_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            ev_io_stop(loop, watcher); /* on_housekeeping() starts the watcher again */
        return;
    }
    struct endpoint peer = {.address = address.sin_addr, .port = ntohs(address.sin_port)};
    enum katcp_refusal why = find_place(listener, peer.address);
    set_options(fd);
    if (why)
        refuse(fd, &peer, why);
    else
        katcp_client_open(listener->server, fd, &peer, listener->read_only);
}

static int open_listener(struct katcp_listener *listener, const struct endpoint_list *at, char *why, size_t why_bytes)
{
    char where[32];

    if (at->n == 0)
        return 0;
    int fd = endpoint_listen(&at->items[0], 128, &listener->port);
    if (fd < 0) {
        snprintf(why, why_bytes, "katcp.%s: cannot serve KATCP on %s: %s%s",
                 listener->read_only ? "read_only_listen" : "listen",
                 endpoint_format(&at->items[0], where, sizeof(where)), strerror(-fd), endpoint_bind_error_hint(fd));
        return fd;
    }
    listener->fd = fd;
    ev_io_init(&listener->accepts, on_connection, listener->fd, EV_READ);
    ev_io_start(listener->server->loop, &listener->accepts);
    return 0;
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static void init(struct katcp_server *server, struct ev_loop *loop, const struct katcp_device *device,
                 const struct config_katcp *config)
{
    server->device = device;
    server->loop = loop;
    server->max_clients = (size_t)config->max_clients;
    server->halt_stays = config->halt_stays;
    server->end_waiting = &server->first_waiting;
    server->look_next = SIZE_MAX;
    for (size_t i = 0; i < device->sensors->n; i++)
        server->names_bytes += strlen(device->sensors->entries[i]->about.name) + 1;
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
    count_refusals();
    katcp_log_open(s);
    s->read_buffer = malloc(KATCP_READ_BYTES);
    if (s->read_buffer)
        err = why_about(access_parse(config->allow, &s->access, why, why_bytes), "katcp.allow", why, why_bytes);
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

/* Longest time that the server waits for all clients to read their last bytes. */
#define CLOSING_MS 500

static void close_client(struct katcp_client *client, int *left_ms)
{
    struct katcp_text *line = &client->server->line;

    if (client->call.active)
        katcp_fail(&client->call, "the program is ending");
    katcp_text_clear(line);
    katcp_text_add_inform(line, "disconnect", (const char *[]){"the program is ending", NULL});
    katcp_client_inform(client, line);
    while (client->fd >= 0 && client->out.n > client->out_at && *left_ms > 0) {
        struct pollfd out = {.fd = client->fd, .events = POLLOUT};
        *left_ms -= poll(&out, 1, 10) == 0 ? 10 : 1;
        katcp_client_flush(client);
    }
    katcp_client_drop(client);
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
    for (struct katcp_client *client = server->clients; client; client = client->next) {
        close_client(client, &left_ms);
        client->waits = false;
    }
    katcp_clients_tidy(server);
    katcp_log_close(server);
    ev_timer_stop(server->loop, &server->again);
    ev_timer_stop(server->loop, &server->look);
    ev_timer_stop(server->loop, &server->housekeeping);
    katcp_text_fini(&server->line);
    free(server->read_buffer);
    free(server);
}
