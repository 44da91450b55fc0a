/* http.c - serves the registry of stats.c over HTTP: /metrics, /healthz, /status.json and the status page. */
#include "common/http/http.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/why.h"
#include "common/http/clients.h"
#include "common/http/names.h"
#include "common/net/access.h"
#include "common/base/log.h"
#include "common/http/page.h"
#include "common/base/process.h"
#include "common/telemetry/stats.h"
#include "common/http/status.h"
#include "common/net/endpoint.h"
#include "common/base/thread.h"
#include "common/base/units.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Time-out of a connection without traffic.  http/clients.h limits the duration of connections that have traffic. */
#define CONNECTION_TIMEOUT_S 10
#define SWEEP_MS             500 /* longest time between two checks of the connections' deadlines */

struct http {
    struct access access;        /* [const] */
    const struct gauge *healthy; /* [const] */
    struct status *status;       /* data of the status page; NULL: no status page */
    char *names, *own_names;     /* [const] names that are permitted in a request's Host: header */
    struct http_clients clients; /* [thread] */
    struct log_limit host_limit; /* [thread] */
    struct MHD_Daemon *daemon;   /* [thread] libmicrohttpd's server; valid while the thread runs */
    struct thread thread;
    int stop_fd;
    unsigned port;
};

#define REFUSED_HOST "the name in Host: is not a name of this host; http.names in the configuration permits other names"

/* Sends 'response' and releases it.  If 'response' is NULL because memory ran out, the connection is closed. */
static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *content_type,
                             struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    /* A page may load only this server's content, and may not be embedded in another page. */
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; script-src 'self'; style-src 'self'; "
                            "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return reply(connection, status, "text/plain; charset=utf-8",
                 MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT));
}

/* Sends 'text' and frees it.  If 'text' is NULL because memory ran out, sends an error. */
static enum MHD_Result reply_made(struct MHD_Connection *connection, const char *content_type, char *text)
{
    if (!text)
        return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(text);
    return reply(connection, MHD_HTTP_OK, content_type, response);
}

static char *format_metrics(const struct http *http)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *out = open_memstream(&text, &text_bytes);

    if (!out)
        return NULL;
    if (!http->status || status_state(http->status) != STATUS_STARTING)
        stats_write(out);
    process_write_metrics(out);
    file_close_text(out, &text);
    return text;
}

static enum MHD_Result reply_status(struct MHD_Connection *connection, struct status *status)
{
    const char *spectrum = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "spectrum");
    const char *sensors = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "sensors");
    struct status_query query = {
        .stream = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "stream"),
        .antenna = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "antenna"),
        .baseline = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "baseline"),
        .channels = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "channels"),
        .no_spectrum = spectrum && !strcmp(spectrum, "none"),
        .no_sensors = sensors && !strcmp(sensors, "none"),
    };

    return reply_made(connection, "application/json", status_format(status, &query));
}

static enum MHD_Result reply_health(struct MHD_Connection *connection, const struct http *http)
{
    if (http->healthy && gauge_get(http->healthy) == 0)
        return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "failed: the results are wrong, see the log\n");
    return reply_text(connection, MHD_HTTP_OK, "ok\n");
}

/* Sends a file of the status page.  Returns MHD_NO if there is no file of this name. */
static enum MHD_Result reply_page(struct MHD_Connection *connection, const char *url)
{
    static const struct {
        const char *suffix, *content_type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"}};
    const char *name = !strcmp(url, "/") ? "/index.html" : url;

    for (size_t i = 0; i < n_page_texts; i++) {
        const char *base = strrchr(page_texts[i].name, '/');
        if (strcmp(base, name) != 0)
            continue;
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            if (!strcmp(strrchr(name, '.'), types[t].suffix))
                return reply(connection, MHD_HTTP_OK, types[t].content_type,
                             MHD_create_response_from_buffer(strlen(page_texts[i].text), (void *)page_texts[i].text,
                                                             MHD_RESPMEM_PERSISTENT));
    }
    return MHD_NO;
}

/* Checks the request's Host: header.  Accepts a request without Host:, because only HTTP/1.0 permits such a request,
 * and no browser sends it. */
static bool is_host_accepted(struct http *http, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

    if (!host || http_names_accept(http->own_names, http->names, host))
        return true;
    int n_plain =
        (int)strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"); /* for the log */
    log_limited(&http->host_limit, LOG_LEVEL_WARNING, "HTTP: a request for \"%.*s\" was refused: " REFUSED_HOST,
                n_plain < 100 ? n_plain : 100, host);
    return false;
}

static struct http_client *client_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* Answers a request.  libmicrohttpd calls this function when the header is complete.  The function queues the answer in
 * this call, so there is no second call. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **state)
{
    struct http *http = arg;

    http_client_answering(client_of(connection), clock_monotonic_ns());
    if (!is_host_accepted(http, connection))
        return reply_text(connection, MHD_HTTP_MISDIRECTED_REQUEST, REFUSED_HOST "\n");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is served here\n");
    if (!strcmp(url, "/metrics"))
        return reply_made(connection, "text/plain; version=0.0.4; charset=utf-8", format_metrics(http));
    if (!strcmp(url, "/healthz"))
        return reply_health(connection, http);
    if (http->status && !strcmp(url, "/status.json"))
        return reply_status(connection, http->status);
    if (http->status && reply_page(connection, url) == MHD_YES)
        return MHD_YES;
    return reply_text(connection, MHD_HTTP_NOT_FOUND,
                      http->status ? "not found; there are /, /status.json, /metrics and /healthz\n"
                                   : "not found; there are /metrics and /healthz\n");
}

/* Checks a client's address before anything is read from the client. */
static enum MHD_Result is_allowed(void *arg, const struct sockaddr *address, socklen_t address_bytes)
{
    const struct http *http = arg;

    return access_allows(&http->access, ((const struct sockaddr_in *)address)->sin_addr) ? MHD_YES : MHD_NO;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *http = arg;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        http_client_remove(*context);
        return;
    }
    const struct sockaddr *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    *context =
        http_clients_add(&http->clients, ((const struct sockaddr_in *)address)->sin_addr, fd, clock_monotonic_ns());
}

/* Runs the HTTP thread.  The watchdog does not watch this thread, because a stalled status page must not end an
 * observation. */
static void *run(void *arg)
{
    struct http *http = arg;
    struct pollfd fds[] = {
        {.fd = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN},
        {.fd = http->stop_fd, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG timeout_ms;

    thread_watched(false);
    while (!(fds[1].revents & POLLIN)) {
        bool sooner = MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES && timeout_ms < SWEEP_MS;
        poll(fds, ARRAY_LEN(fds), sooner ? (int)timeout_ms : SWEEP_MS);
        MHD_run(http->daemon);
        http_clients_close_late(&http->clients, clock_monotonic_ns());
    }
    return NULL;
}

/* Starts libmicrohttpd without a thread, and a separate thread that runs libmicrohttpd and checks deadlines.
 * libmicrohttpd keeps a connection for a short time after the connection's shutdown.  The limit of connections is
 * therefore HTTP_CLIENTS_SLOTS, which includes slots for such connections (http/clients.h). */
static int start_daemon(int fd, struct http *http)
{
    http->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->stop_fd < 0)
        return -errno;
    errno = 0;
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, is_allowed, http, on_request, http, MHD_OPTION_LISTEN_SOCKET, fd,
                                    MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CLIENTS_SLOTS,
                                    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONNECTION_TIMEOUT_S,
                                    MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
    return http->daemon ? thread_start(&http->thread, "http", -1, run, http) : errno ? -errno : -EIO;
}

/* Frees the server.  If libmicrohttpd runs, MHD_stop_daemon() also closes the listening socket. */
static void free_http(struct http *http)
{
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    if (http->stop_fd >= 0)
        close(http->stop_fd);
    free(http->own_names);
    free(http->names);
    free(http);
}

int http_open(const struct config_http *config, const struct gauge *healthy, struct status *status, struct http **http,
              char *why, size_t why_bytes)
{
    const struct endpoint *listen_at = &config->listen.items[0];
    char where[32];
    struct http *h = calloc(1, sizeof(*h));
    int err = h ? access_parse(config->allow, &h->access, why, why_bytes) : -ENOMEM, fd = -1;

    if (h && err) {
        free(h);
        return why_about(err, "http.allow", why, why_bytes);
    }
    if (!err) {
        h->stop_fd = -1;
        h->healthy = healthy;
        h->status = status;
        h->own_names = http_names_own("/etc/hosts");
        h->names = strdup(config->names ? config->names : "");
        err = h->own_names && h->names ? 0 : -ENOMEM;
    }
    if (!err) {
        /* this program opens the listening socket, because libmicrohttpd would not report the cause of a failure */
        fd = endpoint_listen(listen_at, 32, &h->port);
        err = fd < 0 ? fd : start_daemon(fd, h);
    }
    if (!err) {
        *http = h;
        return 0;
    }
    if (fd >= 0 && !h->daemon)
        close(fd);
    if (h)
        free_http(h);
    return why_fail(err, why, why_bytes, "http.listen: cannot serve HTTP on %s: %s%s",
                    endpoint_format(listen_at, where, sizeof(where)), strerror(-err), endpoint_bind_error_hint(err));
}

unsigned http_port(const struct http *http)
{
    return http->port;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    eventfd_write(http->stop_fd, 1);
    thread_join(&http->thread);
    free_http(http);
}
