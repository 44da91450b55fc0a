/* bench_katcp.c - measures the cost of clients that sample many sensors over KATCP.
 *
 * Usage: bench_katcp [SENSORS CLIENTS SECONDS]
 * A thread sets every sensor 100 times a second, as a worker does with chunks of 10 ms.  Each client samples all
 * sensors, and only reads.  Prints the CPU time of the main thread, which serves the clients. */
#include "common/base/clock.h"
#include "common/katcp/keys.h"
#include "common/katcp/server.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ev.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK_NS      (10 * NS_PER_MS)
#define MAX_CLIENTS   1000
#define MAX_NAME      80
#define AUTO_SHORTEST 1.0

static struct sensors *sensors;
static struct sensor *all;
static size_t n_sensors = 1000, n_clients = 50;
static double seconds = 10;
static int clients[MAX_CLIENTS];
static _Atomic bool stopping;
static double set_ns; /* of one sensor */

/* ---- The data path's part ---------------------------------------------------------------------------------------- */

static void *set_all(void *arg)
{
    int64_t deadline_ns = clock_monotonic_ns(), cpu_ns = clock_thread_cpu_ns(), n = 0;

    for (int64_t value = 0; !stopping; value++) {
        int64_t now_ns = clock_unix_ns();
        for (size_t i = 0; i < n_sensors; i++)
            sensor_set_integer(&all[i], now_ns, SENSOR_NOMINAL, value);
        n += (int64_t)n_sensors;
        clock_sleep_until(deadline_ns += CHUNK_NS);
    }
    set_ns = (double)(clock_thread_cpu_ns() - cpu_ns) / (double)n;
    return NULL;
}

/* ---- The clients' ------------------------------------------------------------------------------------------------ */

static void sample_all(int fd, const char *strategy)
{
    size_t n_bytes = 100 + n_sensors * MAX_NAME, n = 0;
    char *line = malloc(n_bytes);

    assert(line);
    n += (size_t)snprintf(line + n, n_bytes - n, "?sensor-sampling ");
    for (size_t i = 0; i < n_sensors; i++)
        n += (size_t)snprintf(line + n, n_bytes - n, "%s%s", i ? "," : "", sensors->entries[i]->about.name);
    n += (size_t)snprintf(line + n, n_bytes - n, " %s\n", strategy);
    ssize_t sent = send(fd, line, n, 0);
    assert(sent == (ssize_t)n);
    free(line);
}

/* Counts the lines that arrive.  'arg' is the counter. */
static void *read_all(void *arg)
{
    static char buffer[1 << 20];
    struct pollfd fds[MAX_CLIENTS];
    _Atomic int64_t *n_lines = arg;

    for (size_t i = 0; i < n_clients; i++)
        fds[i] = (struct pollfd){clients[i], POLLIN, 0};
    while (!stopping) {
        poll(fds, n_clients, 100);
        for (size_t i = 0; i < n_clients; i++) {
            ssize_t n = fds[i].revents ? recv(fds[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT) : 0;
            for (ssize_t k = 0; k < n; k++)
                *n_lines += buffer[k] == '\n';
        }
    }
    return NULL;
}

static void connect_clients(unsigned port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)port)};

    for (size_t i = 0; i < n_clients; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM, 0);
        int err = connect(clients[i], (struct sockaddr *)&address, sizeof(address));
        assert(!err);
    }
}

/* ---- The server's ------------------------------------------------------------------------------------------------ */

static void add_sensors(void)
{
    int err = sensors_create(&sensors);

    all = calloc(n_sensors, sizeof(*all));
    assert(all && !err);
    for (size_t i = 0; i < n_sensors; i++) {
        char name[MAX_NAME];
        snprintf(name, sizeof(name), "antenna-channelised-voltage.input%zu.feng-clip-cnt", i);
        struct sensor_desc about = {name, "Of the benchmark", "", SENSOR_INTEGER, .auto_shortest_s = AUTO_SHORTEST};
        err = sensors_add(sensors, &all[i], &about, (struct sensor_reading){0, SENSOR_NOMINAL, {0}});
        assert(!err);
    }
}

static void on_end(struct ev_loop *loop, ev_timer *timer, int events)
{
    ev_break(loop, EVBREAK_ALL);
}

static void run_for(struct ev_loop *loop, double duration_s)
{
    ev_timer timer;

    ev_timer_init(&timer, on_end, duration_s, 0.);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
}

static void run(const char *strategy)
{
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}};
    struct config_katcp config = {.listen = {1, &endpoint}, .max_clients = MAX_CLIENTS};
    struct katcp_device device = {.name = "bench", .version = "0", .sensors = sensors};
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct katcp_server *server;
    pthread_t setter, reader;
    _Atomic int64_t n_lines = 0;
    char why[200];

    int err = katcp_server_open(&config, loop, &device, &server, why, sizeof(why));
    assert(!err);
    stopping = false;
    connect_clients(katcp_server_port(server, false));
    for (size_t i = 0; i < n_clients; i++)
        sample_all(clients[i], strategy);
    err = pthread_create(&reader, NULL, read_all, &n_lines);
    err = err ? err : pthread_create(&setter, NULL, set_all, NULL);
    assert(!err);
    run_for(loop, 2);
    int64_t cpu_ns = clock_thread_cpu_ns(), from_ns = clock_monotonic_ns(), n_before = n_lines;
    run_for(loop, seconds);
    double took_s = (double)(clock_monotonic_ns() - from_ns) * 1e-9;
    double cpu_s = (double)(clock_thread_cpu_ns() - cpu_ns) * 1e-9;
    int64_t n_told = n_lines - n_before;
    stopping = true;
    pthread_join(reader, NULL);
    pthread_join(setter, NULL);
    printf("%-24s %8.0f readings/s  %5.1f %% of a core  %6.0f ns each  %4.0f ns to set one\n", strategy,
           (double)n_told / took_s, 100 * cpu_s / took_s, cpu_s / (double)n_told * 1e9, set_ns);
    katcp_server_close(server);
    for (size_t i = 0; i < n_clients; i++)
        close(clients[i]);
    ev_loop_destroy(loop);
}

int main(int argc, char **argv)
{
    static const char *const strategies[] = {
        "none", "auto", "period 10", "period 1", "event-rate 0.2 1", "differential 1e9"};

    log_init("bench_katcp", LOG_LEVEL_WARNING);
    if (argc == 4) {
        n_sensors = strtoul(argv[1], NULL, 10);
        n_clients = strtoul(argv[2], NULL, 10);
        seconds = strtod(argv[3], NULL);
    }
    if ((argc != 1 && argc != 4) || !n_sensors || !n_clients || n_clients > MAX_CLIENTS) {
        fprintf(stderr, "usage: bench_katcp [SENSORS CLIENTS SECONDS]\n");
        return 2;
    }
    add_sensors();
    printf("%zu clients sample %zu sensors, all of which are set 100 times a second\n", n_clients, n_sensors);
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++)
        run(strategies[i]);
    sensors_destroy(sensors);
    free(all);
    return 0;
}
