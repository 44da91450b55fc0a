/* client.c - serves one connection: splits the received bytes into lines, and sends answers.
 *
 * A client is served immediately if no other client waits and steps are left in this turn of the event loop.  Otherwise
 * the client waits in the server's queue.  The first client in the queue is served for a slice.  If it then has more
 * work, it moves to the end of the queue. */
#include "common/katcp/internal.h"

#include "common/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Largest buffer that stays allocated while it is empty. */
#define IDLE_BYTES (64u << 10)

static const char too_long[] = "a line exceeds the limit of its request (64 KiB; 16 MiB for gains) and is ignored";

static size_t unsent(const struct katcp_client *client)
{
    return client->out.n - client->out_at;
}

static bool line_at_hand(struct katcp_client *client)
{
    const char *bytes = client->in.bytes;

    for (; client->in_searched < client->in.n; client->in_searched++) {
        unsigned char c = (unsigned char)bytes[client->in_searched];
        if (c == '\n' || c == '\r')
            return true;
        client->has_control |= (c < ' ' && c != '\t') || c == 0x7f;
    }
    return false;
}

/* Returns true if the client's next line may be handled: no call is active, and few bytes are unsent. */
static bool is_free(const struct katcp_client *client)
{
    return client->fd >= 0 && !client->call.active && unsent(client) <= KATCP_ENOUGH_BYTES;
}

static bool can_read(struct katcp_client *client)
{
    return !client->ended && is_free(client) && !line_at_hand(client);
}

static void set_watching(struct ev_loop *loop, ev_io *watcher, bool on)
{
    if (on)
        ev_io_start(loop, watcher);
    else
        ev_io_stop(loop, watcher);
}

/* Watches the socket for input only if the server can process more input of this client.  Otherwise further bytes stay
 * in the kernel's socket buffer. */
static void watch(struct katcp_client *client)
{
    if (client->fd < 0)
        return;
    set_watching(client->server->loop, &client->reads, !client->waits && !client->is_readable && can_read(client));
    set_watching(client->server->loop, &client->writes, !client->waits && unsent(client) > 0);
}

void katcp_client_wake(struct katcp_client *client)
{
    struct katcp_server *server = client->server;

    if (server->served == client)
        return; /* serve() checks for more work at the end of the slice */
    katcp_server_resume(server);
    if (client->waits || client->fd < 0)
        return;
    client->waits = true;
    client->next_waiting = NULL;
    *server->end_waiting = client;
    server->end_waiting = &client->next_waiting;
    watch(client);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Updates the count of the client's memory.  If all clients together exceed their limit, drops the client that uses the
 * most memory. */
static void count_bytes(struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    size_t n_bytes = client->in.n_allocated + client->out.n_allocated +
                     client->call.message.n_args_allocated * sizeof(client->call.message.args[0]);

    if (client->fd < 0)
        n_bytes = 0;
    server->n_bytes += n_bytes - client->n_bytes;
    client->n_bytes = n_bytes;
    while (server->n_bytes > KATCP_TOTAL_BYTES) {
        struct katcp_client *most = client;
        for (struct katcp_client *other = server->clients; other; other = other->next)
            most = other->n_bytes > most->n_bytes ? other : most;
        katcp_client_refuse(most, KATCP_TOO_MUCH);
    }
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

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
    if (out->n == 0 && out->n_allocated > IDLE_BYTES) {
        katcp_text_fini(out);
        count_bytes(client);
    }
}

void katcp_client_flush(struct katcp_client *client)
{
    size_t left = KATCP_SEND_BYTES;

    while (client->fd >= 0 && unsent(client) > 0 && left > 0) {
        size_t most = unsent(client) < left ? unsent(client) : left;
        ssize_t n = send(client->fd, client->out.bytes + client->out_at, most, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            katcp_client_drop(client);
            return;
        }
        client->out_at += (size_t)n;
        left -= (size_t)n;
        katcp_count_steps(client->server, (size_t)n);
        client->moved_ns = clock_monotonic_ns();
    }
    forget_sent(client);
}

static void append(struct katcp_client *client, const struct katcp_text *line)
{
    if (unsent(client) == 0)
        client->moved_ns = clock_monotonic_ns();
    katcp_count_steps(client->server, KATCP_INFORM_STEPS + line->n);
    katcp_text_add(&client->out, line->bytes, line->n);
    if (client->out.failed || line->failed)
        katcp_client_refuse(client, KATCP_NO_MEMORY);
    count_bytes(client);
    watch(client);
}

void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line)
{
    if (client->fd < 0)
        return;
    append(client, line);
    client->answers_end = client->out.n; /* if append() dropped the client, this line has no effect */
}

bool katcp_client_inform(struct katcp_client *client, const struct katcp_text *line)
{
    if (client->fd < 0)
        return false;
    if (unsent(client) + line->n > KATCP_MAX_UNSENT_BYTES && unsent(client) > 0) {
        if (client->answers_end <= client->out_at)
            katcp_client_refuse(client, KATCP_UNREAD);
        return false;
    }
    append(client, line);
    return client->fd >= 0;
}

/* ---- Input ------------------------------------------------------------------------------------------------------- */

/* Returns the permitted length of the line at 'in_at'.  The length depends on the line's request. */
static size_t line_limit(const struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    const char *line = client->in.bytes + client->in_at;
    char name[32];
    size_t n = 0;

    if (client->in.n - client->in_at <= KATCP_SHORT_LINE_BYTES || line[0] != '?')
        return KATCP_SHORT_LINE_BYTES;
    while (n < sizeof(name) - 1 && !strchr(" \t[\r\n", line[1 + n])) {
        name[n] = line[1 + n];
        n++;
    }
    name[n] = '\0';
    const struct katcp_request *request = katcp_find_request(server, name);
    if (!request || !request->has_long_lines)
        return KATCP_SHORT_LINE_BYTES;
    /* the longest request that changes nothing is ?sensor-sampling with all sensors' names */
    if (request->changes_from == KATCP_CHANGES_NOTHING)
        return KATCP_SHORT_LINE_BYTES + server->names_bytes;
    return client->read_only ? KATCP_SHORT_LINE_BYTES : KATCP_MAX_LINE_BYTES;
}

/* Returns true if the client has not yet sent a known request, and its present line cannot be a request.  Such a client
 * is dropped, because the client may be a browser.  A web page that is open on this host could make the browser send a
 * request in a later line.  'why' is the error in the line; NULL: none. */
static bool is_strange(const struct katcp_client *client, const char *why)
{
    size_t at = client->in_at;

    if (client->speaks_katcp)
        return false;
    if (why || client->has_control || client->skips)
        return true;
    while (at < client->in_searched && (client->in.bytes[at] == ' ' || client->in.bytes[at] == '\t'))
        at++;
    return at < client->in_searched && client->in.bytes[at] != '?';
}

/* Handles the complete line at in[in_at .. in_searched). */
static void handle_line(struct katcp_client *client)
{
    struct katcp_call *call = &client->call;
    char *line = client->in.bytes + client->in_at;
    size_t n = client->in_searched - client->in_at;
    const char *why = n > line_limit(client) ? too_long : NULL;
    bool is_left_out = client->skips;

    katcp_count_steps(client->server, KATCP_LINE_STEPS + 4 * n);
    call->message.type = 0;
    if (!why && !is_left_out && !is_strange(client, NULL))
        why = katcp_message_parse(line, n, &call->message);
    bool refused = is_strange(client, why);
    client->in_at = ++client->in_searched;
    client->skips = client->has_control = false;
    client->line_ns = 0;
    if (refused)
        katcp_client_refuse(client, KATCP_NO_KATCP);
    else if (why && !is_left_out)
        katcp_log_protocol_error(client, why);
    else if (call->message.type)
        katcp_call_begin(client);
}

/* Discards the received part of a line that is too long.  The rest is discarded when it arrives. */
static void skip_line(struct katcp_client *client)
{
    if (!client->skips)
        katcp_log_protocol_error(client, too_long);
    client->skips = true;
    client->in_at = client->in_searched = client->in.n = 0;
}

/* Removes the handled lines from the input buffer. */
static void forget_handled(struct katcp_client *client)
{
    struct katcp_text *in = &client->in;

    if (in->n > client->in_at && client->in_at > 0)
        memmove(in->bytes, in->bytes + client->in_at, in->n - client->in_at);
    in->n -= client->in_at;
    client->in_searched -= client->in_at;
    client->in_at = 0;
    if (in->n == 0 && in->n_allocated > IDLE_BYTES) {
        katcp_text_fini(in);
        katcp_message_fini(&client->call.message);
    }
}

/* Checks the unfinished line, which begins at in[0], and records the time when it began. */
static void check_unfinished(struct katcp_client *client)
{
    const char *why = client->in.n > 0 && client->in.n > line_limit(client) ? too_long : NULL;

    if (is_strange(client, why)) {
        katcp_client_refuse(client, KATCP_NO_KATCP);
        return;
    }
    if (why)
        skip_line(client);
    if (client->in.n == 0 && !client->skips)
        client->line_ns = 0;
    else if (client->line_ns == 0)
        client->line_ns = clock_monotonic_ns();
}

static void read_some(struct katcp_client *client)
{
    char *buffer = client->server->read_buffer;
    ssize_t n = recv(client->fd, buffer, KATCP_READ_BYTES, MSG_DONTWAIT);

    client->is_readable = false;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n < 0) {
        katcp_client_drop(client);
        return;
    }
    client->ended = n == 0;
    katcp_count_steps(client->server, KATCP_LINE_STEPS + (size_t)n);
    katcp_text_add(&client->in, buffer, (size_t)n);
    if (client->in.failed)
        katcp_client_refuse(client, KATCP_NO_MEMORY);
}

static bool has_steps(const struct katcp_client *client)
{
    struct katcp_server *server = client->server;

    return client->fd >= 0 && katcp_steps_left(server) > server->slice_end && unsent(client) <= KATCP_ENOUGH_BYTES;
}

bool katcp_call_may_resume(const struct katcp_call *call)
{
    return has_steps(CONTAINER_OF(call, const struct katcp_client, call));
}

/* Returns true if the server can continue to work for the client in the client's next slice. */
static bool has_work(struct katcp_client *client)
{
    bool goes_on = client->call.active && client->call.resume && unsent(client) <= KATCP_ENOUGH_BYTES;

    return goes_on || (is_free(client) && line_at_hand(client)) || (client->is_readable && can_read(client));
}

/* Serves the client for one slice: at most KATCP_SLICE_STEPS steps of this turn of the event loop (internal.h). */
static void serve(struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    struct katcp_call *call = &client->call;

    server->slice_end = katcp_steps_left(server) - KATCP_SLICE_STEPS;
    server->slice_end = server->slice_end > 0 ? server->slice_end : 0;
    server->served = client;
    katcp_client_flush(client);
    if (client->is_readable && can_read(client))
        read_some(client);
    while (has_steps(client)) {
        if (call->active && call->resume)
            call->resume(call);
        else if (!call->active && line_at_hand(client))
            handle_line(client);
        else
            break;
    }
    if (is_free(client) && !line_at_hand(client)) {
        forget_handled(client);
        check_unfinished(client);
    }
    count_bytes(client);
    server->served = NULL;
    if (client->fd >= 0 && has_work(client))
        katcp_client_wake(client);
    else if (client->ended && is_free(client) && unsent(client) == 0)
        katcp_client_drop(client);
    watch(client);
}

void katcp_clients_serve(struct katcp_server *server)
{
    while (server->first_waiting && katcp_steps_left(server) > 0) {
        struct katcp_client *client = server->first_waiting;
        server->first_waiting = client->next_waiting;
        if (!server->first_waiting)
            server->end_waiting = &server->first_waiting;
        client->waits = false;
        if (client->fd >= 0)
            serve(client);
    }
    if (server->first_waiting)
        katcp_server_resume(server);
}

/* Serves the client immediately, or appends it to the queue if other clients wait or no steps are left. */
static void serve_or_wait(struct katcp_client *client)
{
    if (client->server->first_waiting || katcp_steps_left(client->server) <= 0)
        katcp_client_wake(client);
    else
        serve(client);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct katcp_client *client = CONTAINER_OF(watcher, struct katcp_client, reads);

    client->is_readable = true;
    serve_or_wait(client);
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
    serve_or_wait(CONTAINER_OF(watcher, struct katcp_client, writes));
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static void greet(struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    struct katcp_text *line = &server->line;

    for (size_t i = 0; i < KATCP_N_VERSIONS; i++) {
        const char *version[4] = {NULL};
        katcp_version(server, i, version);
        katcp_text_clear(line);
        katcp_text_add_inform(line, "version-connect", version);
        katcp_client_inform(client, line);
    }
    katcp_text_clear(line);
    katcp_text_add_inform(line, "client-connected", (const char *[]){client->address, NULL});
    for (struct katcp_client *other = server->clients; other; other = other->next)
        if (other != client)
            katcp_client_inform(other, line);
}

int katcp_client_open(struct katcp_server *server, int fd, const struct endpoint *peer, bool read_only)
{
    struct katcp_client *client = calloc(1, sizeof(*client));

    if (!client) {
        close(fd);
        return -ENOMEM;
    }
    client->server = server;
    client->fd = fd;
    client->read_only = read_only;
    client->host = peer->address;
    endpoint_format(peer, client->address, sizeof(client->address));
    ev_io_init(&client->reads, on_readable, fd, EV_READ);
    ev_io_init(&client->writes, on_writable, fd, EV_WRITE);
    client->next = server->clients;
    server->clients = client;
    greet(client);
    watch(client);
    return 0;
}

void katcp_client_drop(struct katcp_client *client)
{
    if (client->fd < 0)
        return;
    ev_io_stop(client->server->loop, &client->reads);
    ev_io_stop(client->server->loop, &client->writes);
    close(client->fd);
    client->fd = -1;
    katcp_sampling_end(client);
    client->server->n_bytes -= client->n_bytes;
    client->n_bytes = 0;
    katcp_server_resume(client->server);
}

void katcp_client_refuse(struct katcp_client *client, enum katcp_refusal why)
{
    struct katcp_text *out = &client->out;

    if (client->fd < 0)
        return;
    katcp_count_refusal(why, client->address);
    if (unsent(client) < IDLE_BYTES) {
        katcp_text_add_inform(out, "disconnect", (const char *[]){katcp_refusal_sentences[why], NULL});
        if (send(client->fd, out->bytes + client->out_at, unsent(client), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            errno = 0; /* after an error the client does not learn the reason */
    }
    katcp_client_drop(client);
}

void katcp_clients_check(struct katcp_server *server)
{
    int64_t now_ns = clock_monotonic_ns();

    for (struct katcp_client *client = server->clients; client; client = client->next) {
        if (unsent(client) > 0 && now_ns - client->moved_ns > KATCP_STALLED_NS)
            katcp_client_refuse(client, KATCP_STALLED);
        else if (client->line_ns && is_free(client) && now_ns - client->line_ns > KATCP_LINE_NS)
            katcp_client_refuse(client, KATCP_UNFINISHED);
    }
}

static void free_client(struct katcp_client *client)
{
    katcp_text_fini(&client->in);
    katcp_text_fini(&client->out);
    katcp_message_fini(&client->call.message);
    free(client->call.memory);
    free(client->samplings);
    free(client);
}

void katcp_clients_tidy(struct katcp_server *server)
{
    struct katcp_client **link = &server->clients;

    while (*link) {
        struct katcp_client *client = *link;
        bool is_kept = client->call.active && !client->call.resume;
        if (client->fd >= 0 || is_kept || client->waits) {
            link = &client->next;
            continue;
        }
        *link = client->next;
        free_client(client);
    }
}
