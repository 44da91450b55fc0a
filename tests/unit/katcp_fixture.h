/* katcp_fixture.h - a KATCP server for tests.  The test makes the sensors and sets the time.  The sockets are real. */
#ifndef TESTS_UNIT_KATCP_FIXTURE_H
#define TESTS_UNIT_KATCP_FIXTURE_H

#include "common/katcp/keys.h"
#include "common/katcp/server.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <ev.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- The test's own clock, which the linker uses instead of the real clock --------------------------------------- */

static _Atomic int64_t fake_ns;
#define START_NS (INT64_C(1700000000) * NS_PER_S)

int64_t clock_unix_ns(void)
{
    return START_NS + fake_ns;
}

int64_t clock_monotonic_ns(void)
{
    return NS_PER_S + fake_ns;
}

void clock_sleep_until(int64_t deadline_ns)
{
}

struct timespec clock_timespec(int64_t monotonic_ns)
{
    return (struct timespec){monotonic_ns / NS_PER_S, monotonic_ns % NS_PER_S};
}

static inline void pass(double seconds)
{
    fake_ns += (int64_t)(seconds * 1e9);
}

/* ---- Addresses of clients: 'fake_host', if this variable is set -------------------------------------------------- */

static struct in_addr fake_host;

int accept4(int fd, struct sockaddr *address, socklen_t *address_bytes, int flags)
{
    int accepted = (int)syscall(SYS_accept4, fd, address, address_bytes, flags);

    if (accepted >= 0 && fake_host.s_addr)
        ((struct sockaddr_in *)address)->sin_addr = fake_host;
    return accepted;
}

static inline void come_from(const char *host)
{
    fake_host.s_addr = host ? inet_addr(host) : 0;
}

/* ---- The server -------------------------------------------------------------------------------------------------- */

static struct ev_loop *loop;
static struct sensors *sensors;
static struct katcp_server *server;
static struct config_katcp config;
static struct sensor integer, real, text, slow;
static struct katcp_call *kept;
static int n_halts, n_restarts;

static inline void echo(struct katcp_call *call, void *arg)
{
    const char *args[8];

    ck_assert_ptr_eq(arg, &kept);
    for (int i = 0; i < katcp_n_args(call); i++)
        args[i] = katcp_arg(call, i);
    katcp_inform(call, katcp_n_args(call), args);
    katcp_ok(call, katcp_n_args(call), args);
}

static inline void keep(struct katcp_call *call, void *arg)
{
    ck_assert_ptr_null(kept);
    kept = call;
}

static inline void add(struct katcp_call *call, void *arg)
{
    int64_t a;
    double b;
    char sum[32];

    if (!katcp_arg_integer(call, 0, "the first", &a) || !katcp_arg_real(call, 1, "the second", &b))
        return;
    snprintf(sum, sizeof(sum), "%g", (double)a + b);
    katcp_ok(call, 1, (const char *[]){sum});
}

static inline void halt(void *arg)
{
    n_halts++;
}

static inline void restart(void *arg)
{
    n_restarts++;
}

static const struct katcp_request requests[] = {
    {"echo", "Says it again.\n?echo [word...]", 0, 3, echo, 2, 1.5},
    {"keep", "Waits.", 0, 1, keep, KATCP_CHANGES_NOTHING, 0},
    {"add", "Adds.", 2, 2, add, 0, 0, .has_long_lines = true},
};
static const struct katcp_device device = {
    .name = "device-1.0",
    .version = "build 2",
    .requests = requests,
    .n_requests = 3,
    .arg = &kept,
    .halt = halt,
    .restart = restart,
};
static struct katcp_device served;

static inline struct endpoint_list any_port(void)
{
    static struct endpoint endpoint = {.address = {0}, .port = 0};

    endpoint.address.s_addr = htonl(INADDR_LOOPBACK);
    return (struct endpoint_list){1, &endpoint};
}

static inline void add_sensor(struct sensor *sensor, struct sensor_desc about)
{
    about.description = "of the test";
    about.units = "";
    ck_assert_int_eq(sensors_add(sensors, sensor, &about, (struct sensor_reading){START_NS, SENSOR_NOMINAL, {0}}), 0);
}

static inline void open_server(void)
{
    char why[200];

    signal(SIGPIPE, SIG_DFL); /* the server must work even if the program does not ignore SIGPIPE */
    log_init("check_katcp", LOG_LEVEL_ERROR);
    loop = ev_loop_new(EVFLAG_AUTO);
    config = (struct config_katcp){.listen = any_port(), .read_only_listen = any_port(), .max_clients = 3};
    ck_assert_int_eq(sensors_create(&sensors), 0);
    add_sensor(&integer, (struct sensor_desc){"integer", .type = SENSOR_INTEGER});
    add_sensor(&real, (struct sensor_desc){"real", .type = SENSOR_FLOAT});
    add_sensor(&text, (struct sensor_desc){"text", .type = SENSOR_STRING});
    add_sensor(&slow, (struct sensor_desc){"slow", .type = SENSOR_INTEGER, .auto_shortest_s = 1,
                                           .timeout_ns = 100 * NS_PER_S});
    served = device;
    served.sensors = sensors;
    ck_assert_msg(katcp_server_open(&config, loop, &served, &server, why, sizeof(why)) == 0, "%s", why);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

struct client {
    int fd;
    char *bytes;
    size_t n, n_allocated;
    bool ended;
    struct client *next;
};

static struct client *clients_here; /* list of connected clients */

static inline void turn(void)
{
    ev_run(loop, EVRUN_NOWAIT);
}

static inline struct client *connect_to(unsigned port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)port)};
    struct client *client = calloc(1, sizeof(*client));

    client->next = clients_here;
    clients_here = client;
    client->fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(client->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    turn();
    return client;
}

static inline void receive(struct client *client)
{
    static char buffer[1 << 20];
    ssize_t n = recv(client->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

    client->ended |= n == 0 || (n < 0 && errno != EAGAIN);
    if (n <= 0)
        return;
    if (client->n + (size_t)n > client->n_allocated) {
        client->n_allocated = 2 * (client->n + (size_t)n);
        client->bytes = realloc(client->bytes, client->n_allocated);
    }
    memcpy(client->bytes + client->n, buffer, (size_t)n);
    client->n += (size_t)n;
}

/* Waits up to 20 s for the next line, and returns the line without its line break.  Returns "" after the end of the
 * connection. */
static inline const char *next_line(struct client *client)
{
    static char line[4096];
    struct timespec from, now;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (;;) {
        char *end = client->n ? memchr(client->bytes, '\n', client->n) : NULL;
        if (end) {
            size_t n = (size_t)(end - client->bytes);
            snprintf(line, sizeof(line), "%.*s", (int)n, client->bytes);
            client->n -= n + 1;
            memmove(client->bytes, end + 1, client->n);
            return line;
        }
        if (client->ended)
            return "";
        turn();
        receive(client);
        clock_gettime(CLOCK_MONOTONIC, &now);
        ck_assert_msg(now.tv_sec - from.tv_sec < 20, "no line comes");
    }
}

static inline void say(struct client *client, const char *bytes)
{
    size_t n = strlen(bytes);

    ck_assert_int_eq(send(client->fd, bytes, n, 0), (ssize_t)n);
}

static inline void expect(struct client *client, const char *line)
{
    ck_assert_str_eq(next_line(client), line);
}

/* Checks that the next line begins with 'begin'. */
static inline void expect_begin(struct client *client, const char *begin)
{
    const char *line = next_line(client);

    ck_assert_msg(!strncmp(line, begin, strlen(begin)), "expected %s: %s", begin, line);
}

static inline struct client *connect_greeted(bool read_only)
{
    struct client *client = connect_to(katcp_server_port(server, read_only));

    expect(client, "#version-connect katcp-protocol 5.1-MIBT");
    expect_begin(client, "#version-connect katcp-library cbf-katcp-1.0 ");
    expect(client, "#version-connect katcp-device device-1.0 build\\_2");
    return client;
}

static inline void leave(struct client *client)
{
    struct client **at = &clients_here;

    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    close(client->fd);
    free(client->bytes);
    free(client);
    turn();
}

static inline void leave_all(void)
{
    while (clients_here)
        leave(clients_here);
}

static inline void close_server(void)
{
    leave_all();
    katcp_server_close(server);
    katcp_server_close(NULL);
    sensors_destroy(sensors);
    ev_loop_destroy(loop);
}

/* Checks that the server sends nothing more, even after its next poll of the sensors: the next line must be the reply
 * to a new request. */
static inline void expect_nothing(struct client *client)
{
    static int mid;
    char line[64];
    struct timespec pause = {0, 12 * NS_PER_MS};

    turn();
    nanosleep(&pause, NULL); /* the server polls the sensors every 10 ms */
    turn();
    snprintf(line, sizeof(line), "?watchdog[%d]\n", ++mid);
    say(client, line);
    snprintf(line, sizeof(line), "!watchdog[%d] ok", mid);
    expect(client, line);
}

#endif
