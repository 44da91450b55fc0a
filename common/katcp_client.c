/* katcp_client.c - one connection: bytes to lines, and answers to bytes. */
#include "common/katcp_internal.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What stays allocated for a client that has nothing under way. */
#define IDLE_BYTES (64u << 10)

static const char too_long[] = "a line has more than 16 MiB; it is left out";

static size_t unsent(const struct katcp_client *client)
{
    return client->out.n - client->out_at;
}

static bool line_at_hand(struct katcp_client *client)
{
    const char *bytes = client->in.bytes;

    while (client->in_searched < client->in.n) {
        if (bytes[client->in_searched] == '\n' || bytes[client->in_searched] == '\r')
            return true;
        client->in_searched++;
    }
    return false;
}

/* May its next line be handled? */
static bool is_free(const struct katcp_client *client)
{
    return client->fd >= 0 && !client->call.active && unsent(client) <= KATCP_ENOUGH_BYTES;
}

static void set_watching(struct ev_loop *loop, ev_io *watcher, bool on)
{
    if (on)
        ev_io_start(loop, watcher);
    else
        ev_io_stop(loop, watcher);
}

/* Reads only when it can be of use; a client that sends on waits for its answers in the kernel. */
static void watch(struct katcp_client *client)
{
    if (client->fd < 0)
        return;
    set_watching(client->server->loop, &client->reads, !client->ended && is_free(client) && !line_at_hand(client));
    set_watching(client->server->loop, &client->writes, unsent(client) > 0);
}

/* ---- Out --------------------------------------------------------------------------------------------------------- */

static void forget_sent(struct katcp_client *client)
{
    struct katcp_text *out = &client->out;

    if (unsent(client) > 0 && client->out_at < out->n / 2)
        return;
    client->answers_end = client->answers_end > client->out_at ? client->answers_end - client->out_at : 0;
    if (out->n > client->out_at)
        memmove(out->bytes, out->bytes + client->out_at, out->n - client->out_at);
    out->n -= client->out_at;
    client->out_at = 0;
    if (out->n == 0 && out->n_allocated > IDLE_BYTES)
        katcp_text_fini(out);
}

void katcp_client_flush(struct katcp_client *client)
{
    while (client->fd >= 0 && unsent(client) > 0) {
        ssize_t n = send(client->fd, client->out.bytes + client->out_at, unsent(client), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            katcp_client_drop(client, NULL);
            return;
        }
        client->out_at += (size_t)n;
        client->moved_ns = clock_monotonic_ns();
    }
    forget_sent(client);
}

static void append(struct katcp_client *client, const struct katcp_text *line)
{
    if (unsent(client) == 0)
        client->moved_ns = clock_monotonic_ns();
    katcp_text_add(&client->out, line->bytes, line->n);
    if (client->out.failed || line->failed)
        katcp_client_drop(client, "there is no memory for what it is told");
    watch(client);
}

void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line)
{
    if (client->fd < 0)
        return;
    append(client, line);
    client->answers_end = client->out.n;
}

bool katcp_client_tell(struct katcp_client *client, const struct katcp_text *line)
{
    if (client->fd < 0)
        return false;
    if (unsent(client) + line->n > KATCP_MAX_UNSENT_BYTES && unsent(client) > 0) {
        if (client->answers_end <= client->out_at)
            katcp_client_drop(client, "it does not read what it asked for");
        return false;
    }
    append(client, line);
    return client->fd >= 0;
}

/* ---- In ---------------------------------------------------------------------------------------------------------- */

/* The first line of an HTTP request, which ends in the version, whatever the length of its address.  A page that
 * somebody opens on this host may send what it likes to its ports, and a later line of that could be a request here. */
static bool is_of_a_browser(const char *line, size_t n)
{
    static const char version[] = " HTTP/1.1";
    const size_t n_version = sizeof(version) - 1;

    return n >= n_version && line[0] >= 'A' && line[0] <= 'Z' &&
           memcmp(line + n - n_version, version, n_version - 1) == 0;
}

/* Handles in[in_at .. in_searched), whose end is there. */
static void handle_line(struct katcp_client *client)
{
    struct katcp_call *call = &client->call;
    char *line = client->in.bytes + client->in_at;
    size_t n = client->in_searched - client->in_at;

    client->in_at = ++client->in_searched;
    if (client->skips) {
        client->skips = false;
        return;
    }
    if (is_of_a_browser(line, n)) {
        katcp_client_drop(client, "it speaks HTTP");
        return;
    }
    const char *why = n > KATCP_MAX_LINE_BYTES ? too_long : katcp_message_parse(line, n, &call->message);
    if (why)
        katcp_complain(client, why);
    else if (call->message.type)
        katcp_call_begin(client);
}

/* A line that is too long already: what there is of it goes, and the rest as it comes. */
static void skip_line(struct katcp_client *client)
{
    if (!client->skips)
        katcp_complain(client, too_long);
    client->skips = true;
    client->in_at = client->in_searched = client->in.n = 0;
}

/* What has been handled gives way for what comes. */
static void forget_handled(struct katcp_client *client)
{
    struct katcp_text *in = &client->in;

    if (client->in_at == 0)
        return;
    if (in->n > client->in_at)
        memmove(in->bytes, in->bytes + client->in_at, in->n - client->in_at);
    in->n -= client->in_at;
    client->in_searched -= client->in_at;
    client->in_at = 0;
    if (in->n == 0 && in->n_allocated > IDLE_BYTES) {
        katcp_text_fini(in);
        katcp_message_fini(&client->call.message);
    }
}

void katcp_client_go_on(struct katcp_client *client)
{
    size_t n = 0;

    while (n < KATCP_LINES_AT_ONCE && is_free(client) && line_at_hand(client)) {
        handle_line(client);
        n++;
    }
    if (client->fd < 0)
        return;
    if (!client->call.active && !line_at_hand(client)) {
        forget_handled(client);
        if (client->in.n > KATCP_MAX_LINE_BYTES)
            skip_line(client);
    }
    if (is_free(client) && line_at_hand(client))
        katcp_server_go_on(client->server);
    else if (client->ended && is_free(client) && unsent(client) == 0)
        katcp_client_drop(client, NULL);
    watch(client);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct katcp_client *client = CONTAINER_OF(watcher, struct katcp_client, reads);
    char *buffer = client->server->read_buffer;
    ssize_t n = recv(client->fd, buffer, KATCP_READ_BYTES, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n < 0)
        katcp_client_drop(client, NULL);
    if (n > 0) {
        katcp_text_add(&client->in, buffer, (size_t)n);
        if (client->in.failed)
            katcp_client_drop(client, "there is no memory for what it sends");
    }
    client->ended = n == 0;
    katcp_client_go_on(client);
    katcp_clients_tidy(client->server);
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct katcp_client *client = CONTAINER_OF(watcher, struct katcp_client, writes);

    katcp_client_flush(client);
    katcp_client_go_on(client);
    katcp_clients_tidy(client->server);
}

/* ---- The connection's life --------------------------------------------------------------------------------------- */

static void greet(struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    struct katcp_text *line = &server->line;

    for (size_t i = 0; i < KATCP_N_VERSIONS; i++) {
        const char *version[3];
        katcp_version(server, i, version);
        katcp_text_clear(line);
        katcp_text_begin(line, '#', "version-connect", 0);
        for (size_t k = 0; k < 3 && version[k]; k++)
            katcp_text_add_arg(line, version[k]);
        katcp_text_end(line);
        katcp_client_tell(client, line);
    }
    katcp_text_clear(line);
    katcp_text_begin(line, '#', "client-connected", 0);
    katcp_text_add_arg(line, client->address);
    katcp_text_end(line);
    for (struct katcp_client *other = server->clients; other; other = other->next)
        if (other != client)
            katcp_client_tell(other, line);
}

int katcp_client_open(struct katcp_server *server, int fd, const char *address, bool read_only)
{
    struct katcp_client *client = calloc(1, sizeof(*client));

    if (!client) {
        close(fd);
        return -ENOMEM;
    }
    client->server = server;
    client->fd = fd;
    client->read_only = read_only;
    strncpy(client->address, address, sizeof(client->address) - 1);
    ev_io_init(&client->reads, on_readable, fd, EV_READ);
    ev_io_init(&client->writes, on_writable, fd, EV_WRITE);
    client->next = server->clients;
    server->clients = client;
    server->n_clients++;
    greet(client);
    watch(client);
    return 0;
}

void katcp_client_drop(struct katcp_client *client, const char *why)
{
    static struct log_limit limit;

    if (client->fd < 0)
        return;
    if (why)
        log_limited(&limit, LOG_LEVEL_WARNING, "KATCP client %s is dropped: %s", client->address, why);
    ev_io_stop(client->server->loop, &client->reads);
    ev_io_stop(client->server->loop, &client->writes);
    close(client->fd);
    client->fd = -1;
    client->server->n_clients--;
    katcp_sampling_end(client);
    katcp_server_go_on(client->server);
}

static void free_client(struct katcp_client *client)
{
    katcp_text_fini(&client->in);
    katcp_text_fini(&client->out);
    katcp_message_fini(&client->call.message);
    free(client->samplings);
    free(client);
}

void katcp_clients_tidy(struct katcp_server *server)
{
    struct katcp_client **link = &server->clients;
    int64_t now_ns = clock_monotonic_ns();

    while (*link) {
        struct katcp_client *client = *link;
        if (client->fd >= 0 && unsent(client) > 0 && now_ns - client->moved_ns > KATCP_STALLED_NS)
            katcp_client_drop(client, "it has read nothing for 30 s");
        if (client->fd >= 0 || client->call.active) {
            link = &client->next;
            continue;
        }
        *link = client->next;
        free_client(client);
    }
}
