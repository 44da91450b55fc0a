/* check_http.c - requests over a real socket, and a port that another program uses. */
#include "common/http/http.h"

#include "common/http/clients.h"
#include "common/telemetry/stats.h"
#include "common/http/status.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The monotonic clock is ahead by this: in place of the library's.  libmicrohttpd's own time-out has another clock. */
static _Atomic int64_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *now)
{
    int err = (int)syscall(SYS_clock_gettime, id, now);

    if (id == CLOCK_MONOTONIC)
        now->tv_sec += atomic_load(&ahead_s);
    return err;
}

static struct http *open_any(struct status *status)
{
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}, .port = 0};
    struct config_http config = {.listen = {1, &endpoint}};
    struct http *http = NULL;
    char why[200] = "untouched";

    ck_assert_msg(http_open(&config, NULL, status, &http, why, sizeof(why)) == 0, "%s", why);
    ck_assert_uint_gt(http_port(http), 0);
    return http;
}

static int connect_from(const struct http *http, const char *source)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {inet_addr(source)}};
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)http_port(http))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    signal(SIGPIPE, SIG_IGN); /* the server may not want to hear all of it */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Sends 'request' and reads until the server closes; the answer stands in a static buffer. */
static const char *ask(const struct http *http, const char *request)
{
    static char answer[65536];
    int fd = connect_from(http, "127.0.0.1");
    size_t used = 0;
    ssize_t n;

    n = write(fd, request, strlen(request));
    ck_assert(n == (ssize_t)strlen(request) || errno == EPIPE || errno == ECONNRESET);
    while ((n = read(fd, answer + used, sizeof(answer) - 1 - used)) > 0)
        used += (size_t)n;
    answer[used] = '\0';
    close(fd);
    return answer;
}

/* A request line with the headers that end the connection after the answer. */
static const char *get(const struct http *http, const char *method_and_url)
{
    char request[200];

    snprintf(request, sizeof(request), "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method_and_url);
    return ask(http, request);
}

/* The bytes behind the header. */
static const char *body(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");

    ck_assert_ptr_nonnull(end);
    return end + 4;
}

static void check_status(const char *answer, const char *status)
{
    ck_assert_msg(!strncmp(answer, "HTTP/1.1 ", 9) && !strncmp(answer + 9, status, 3), "expected %s: %s", status,
                  answer);
}

TEST(metrics)
{
    struct http *http = open_any(NULL);
    struct counter counter = {0};
    const char *answer;

    stats_counter("cbf_a", "A.", NULL, &counter);
    counter_add(&counter, 12);
    answer = get(http, "GET /metrics");
    check_status(answer, "200");
    ck_assert_ptr_nonnull(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    ck_assert_ptr_eq(strstr(body(answer), "# HELP cbf_a_total A.\n# TYPE cbf_a_total counter\ncbf_a_total 12\n"),
                     body(answer));
    ck_assert_ptr_nonnull(strstr(answer, "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "));
    counter_add(&counter, 1);
    answer = get(http, "GET /metrics");
    ck_assert_ptr_nonnull(strstr(answer, "cbf_a_total 13\n"));
    http_close(http);
    stats_reset();
}

TEST(other_requests)
{
    struct http *http = open_any(NULL);
    const char *answer;

    answer = get(http, "GET /healthz");
    check_status(answer, "200");
    ck_assert_str_eq(body(answer), "ok\n");
    answer = get(http, "HEAD /healthz");
    check_status(answer, "200");
    ck_assert_str_eq(body(answer), "");
    check_status(get(http, "GET /"), "404");
    check_status(get(http, "GET /metrics/x"), "404");
    answer = get(http, "DELETE /metrics");
    check_status(answer, "405");
    ck_assert_ptr_nonnull(strstr(answer, "Allow: GET, HEAD\r\n"));
    answer =
        ask(http, "POST /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    check_status(answer, "405");
    http_close(http);
    http_close(NULL);
}

/* Who is not of the networks gets no answer at all. */
TEST(allow)
{
    static const struct {
        char *networks;
        const char *answer;
    } cases[] = {{"127.0.0.0/8", "HTTP/1.1 200"},
                 {"10.0.0.0/8, 127.0.0.1", "HTTP/1.1 200"},
                 {"10.0.0.0/8", ""},
                 {"127.0.0.2", ""}};
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}, .port = 0};
    struct config_http config = {.listen = {1, &endpoint}};
    struct http *http;
    char why[200];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        config.allow = cases[i].networks;
        ck_assert_int_eq(http_open(&config, NULL, NULL, &http, why, sizeof(why)), 0);
        const char *answer = get(http, "GET /healthz");
        ck_assert_msg(!strncmp(answer, cases[i].answer, 12) && !*answer == !*cases[i].answer, "%s: %s",
                      cases[i].networks, answer);
        http_close(http);
    }
    config.allow = "10.0.0.1/8";
    ck_assert_int_eq(http_open(&config, NULL, NULL, &http, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "http.allow: \"10.0.0.1/8\" is not a network: its address has bits outside the mask");
}

static void check_host(const struct http *http, const char *host, const char *status)
{
    char request[400];

    snprintf(request, sizeof(request), "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host);
    const char *answer = ask(http, request);
    ck_assert_msg(!strncmp(answer, "HTTP/1.1 ", 9) && !strncmp(answer + 9, status, 3), "%s: expected %s: %s", host,
                  status, answer);
}

/* Addresses and names of this host are served; a name that leads here by another's wish is not. */
TEST(host)
{
    static const struct {
        const char *host, *status;
    } cases[] = {{"localhost", "200"},
                 {"LocalHost.:8000", "200"},
                 {"127.0.0.1:8000", "200"},
                 {"192.0.2.7", "200"}, /* that of a proxy */
                 {"[::1]:8000", "200"},
                 {"gpu7.example:80", "200"},
                 {"GPU8", "200"},
                 {"evil.example", "421"},
                 {"gpu7.example.evil.example", "421"},
                 {"gpu7", "421"},
                 {"localhost.evil.example:8000", "421"},
                 {"127.0.0.1.evil.example", "421"},
                 {"127.0.0.1:80:80", "421"},
                 {"[::1", "421"},
                 {"[127.0.0.1]", "421"},
                 {"evil.example, localhost", "421"},
                 {"localhost,gpu8", "421"},
                 {".", "421"},
                 {":80", "421"}};
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}, .port = 0};
    struct config_http config = {.listen = {1, &endpoint}, .names = "gpu7.example., gpu8"};
    struct http *http;
    char why[200], name[300] = "", long_name[300];

    ck_assert_int_eq(http_open(&config, NULL, NULL, &http, why, sizeof(why)), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_host(http, cases[i].host, cases[i].status);
    ck_assert_int_eq(gethostname(name, sizeof(name) - 1), 0);
    check_host(http, name, "200");
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    check_host(http, long_name, "421");
    const char *answer = ask(http, "GET /status.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    ck_assert_str_eq(body(answer), "the name in Host: is not a name of this host; http.names in the configuration "
                                   "permits other names\n");
    check_status(ask(http, "GET /healthz HTTP/1.0\r\n\r\n"), "200");
    http_close(http);
}

/* Whether the server has closed 'fd' within 'wait_ms'. */
static bool is_closed(int fd, int wait_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&poll_fd, 1, wait_ms) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* A byte a second, of the clock that deadlines have: the header must be whole after 10 s all the same. */
TEST(slow_header)
{
    struct http *http = open_any(NULL);
    int fd = connect_from(http, "127.0.0.1"), n_s = 0;
    const char begin[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ";

    ck_assert_int_eq((int)send(fd, begin, strlen(begin), 0), (int)strlen(begin));
    while (!is_closed(fd, 20)) {
        ck_assert_msg(n_s < 200, "%d s", n_s); /* it is accepted, and deadlines are looked at, within 200 s */
        ck_assert_int_eq((int)send(fd, "a", 1, MSG_NOSIGNAL), 1);
        atomic_fetch_add(&ahead_s, 1);
        n_s++;
    }
    ck_assert_int_ge(n_s, 10);
    close(fd);
    http_close(http);
}

/* Many connections from two addresses, which do not ask, or do not read: others are served at once. */
TEST(crowd)
{
    struct http *http = open_any(NULL);
    int fds[3 * HTTP_CLIENTS_MAX];

    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = connect_from(http, i % 2 ? "127.0.0.2" : "127.0.0.3");
        ck_assert_int_eq((int)send(fds[i], "GET", 3, MSG_NOSIGNAL), 3);
        if (i % 10 == 0)
            check_status(get(http, "GET /healthz"), "200");
    }
    check_status(get(http, "GET /healthz"), "200");
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    http_close(http);
}

TEST(page)
{
    static const struct {
        const char *request, *content_type, *begins;
    } files[] = {{"GET /", "text/html; charset=utf-8", "<!doctype html>"},
                 {"GET /index.html", "text/html; charset=utf-8", "<!doctype html>"},
                 {"GET /status.css", "text/css; charset=utf-8", ":root {"},
                 {"GET /status.js", "text/javascript; charset=utf-8", "\"use strict\";"},
                 {"GET /plot.js", "text/javascript; charset=utf-8", "\"use strict\";"},
                 {"GET /status.json?stream=a&baseline=0,1", "application/json", "{\"program\":\"xbgpu\""}};
    struct status *status;
    char line[100];

    ck_assert_int_eq(status_create("xbgpu", NULL, NULL, &status), 0);
    struct http *http = open_any(status);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const char *answer = get(http, files[i].request);
        check_status(answer, "200");
        snprintf(line, sizeof(line), "Content-Type: %s\r\n", files[i].content_type);
        ck_assert_msg(strstr(answer, line) != NULL, "%s: %.600s", files[i].request, answer);
        ck_assert_ptr_nonnull(strstr(answer, "Content-Security-Policy: default-src 'none'; "));
        ck_assert_msg(!strncmp(body(answer), files[i].begins, strlen(files[i].begins)), "%s", files[i].request);
    }
    check_status(get(http, "GET /status"), "404");
    check_status(get(http, "GET /common/page/status.js"), "404");
    http_close(http);
    status_destroy(status);
}

static void describe_query(void *arg, const struct status_query *query, json_t *into)
{
    json_object_set_new(into, "asked", json_pack("[b, b]", query->no_spectrum, query->no_sensors));
}

TEST(parts)
{
    static const struct {
        const char *request, *expected;
    } asked[] = {{"GET /status.json?spectrum=none", "\"asked\":[true,false]"},
                 {"GET /status.json?stream=a&sensors=none&spectrum=none&baseline=0,1", "\"asked\":[true,true]"},
                 {"GET /status.json?spectrum=nonesuch&sensors", "\"asked\":[false,false]"},
                 {"GET /status.json?spectrum&sensors=none", "\"asked\":[false,true]"},
                 {"GET /status.json?stream=none", "\"asked\":[false,false]"},
                 {"GET /status.json", "\"asked\":[false,false]"}};
    struct status *status;

    ck_assert_int_eq(status_create("xbgpu", NULL, NULL, &status), 0);
    status_set_source(status, describe_query, NULL);
    struct http *http = open_any(status);
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        const char *answer = get(http, asked[i].request);
        check_status(answer, "200");
        ck_assert_msg(strstr(answer, asked[i].expected) != NULL, "%s: %s", asked[i].request, answer);
    }
    http_close(http);
    status_destroy(status);
}

/* A pipeline whose creation fails frees its counters while HTTP still serves: until it runs, nobody reads them. */
TEST(starting)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct status *status;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(status_create("fgpu", NULL, NULL, &status), 0);
    struct http *http = open_any(status);
    stats_counter("fgpu_a", "A.", NULL, memory);
    stats_gauge("fgpu_b", "B.", NULL, memory);
    ck_assert_int_eq(mprotect(memory, bytes, PROT_NONE), 0);
    ck_assert_ptr_null(strstr(get(http, "GET /metrics"), "fgpu_a"));
    ck_assert_ptr_nonnull(strstr(get(http, "GET /metrics"), "process_cpu_seconds_total "));
    ck_assert_ptr_nonnull(strstr(get(http, "GET /status.json"), "\"state\":\"starting\""));
    ck_assert_int_eq(mprotect(memory, bytes, PROT_READ), 0);
    status_set_state(status, STATUS_RUNNING);
    ck_assert_ptr_nonnull(strstr(get(http, "GET /metrics"), "fgpu_a_total 0\n"));
    http_close(http);
    status_destroy(status);
    stats_reset();
    munmap(memory, bytes);
}

TEST(port_in_use)
{
    struct http *http = open_any(NULL), *second = NULL;
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}, .port = (uint16_t)http_port(http)};
    struct config_http config = {.listen = {1, &endpoint}};
    char why[200], expected[200];

    ck_assert_int_eq(http_open(&config, NULL, NULL, &second, why, sizeof(why)), -EADDRINUSE);
    ck_assert_ptr_null(second);
    snprintf(expected, sizeof(expected),
             "http.listen: cannot serve HTTP on 127.0.0.1:%u: Address already in use; another program listens there: "
             "stop it, or choose another port",
             http_port(http));
    ck_assert_str_eq(why, expected);
    http_close(http);
    /* Free again at once, although connections of a moment ago linger. */
    ck_assert_int_eq(http_open(&config, NULL, NULL, &second, why, sizeof(why)), 0);
    ck_assert_uint_eq(http_port(second), endpoint.port);
    http_close(second);
}

TEST(address_of_another_host)
{
    struct endpoint endpoint = {.address = {inet_addr("192.0.2.1")}, .port = 8080};
    struct config_http config = {.listen = {1, &endpoint}};
    struct http *http;
    char why[200];

    ck_assert_int_eq(http_open(&config, NULL, NULL, &http, why, sizeof(why)), -EADDRNOTAVAIL);
    ck_assert_str_eq(why,
                     "http.listen: cannot serve HTTP on 192.0.2.1:8080: Cannot assign requested address; this host "
                     "has no such address");
}

/* A signal sent to the process must reach this thread, not the server's. */
TEST(signals)
{
    struct http *http;
    sigset_t set, before = {{0}}, after = {{0}};
    int received;

    sigemptyset(&set);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    http = open_any(NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert_int_eq(memcmp(&before, &after, sizeof(before)), 0);

    /* Blocked here as well from now on, it stays pending; the default action in the other thread would end us. */
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1);
    check_status(get(http, "GET /healthz"), "200");
    ck_assert_int_eq(sigwait(&set, &received), 0);
    ck_assert_int_eq(received, SIGUSR1);
    http_close(http);
}

SUITE(.timeout_s = 30);
