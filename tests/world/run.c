/* run.c - runs seeds, a daemon in the world, and reads its counters.  See run.h. */
#include "tests/world/run.h"

#include "common/base/log.h"
#include "common/config/config.h"
#include "common/daemon/service.h"
#include "common/telemetry/sensor.h"
#include "common/telemetry/stats.h"
#include "tests/world/loop.h"
#include "tests/world/memory.h"
#include "tests/world/sched.h"
#include "tests/world/sent.h"

#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool run_is_verbose;
void (*run_on_line)(const char *line);

/* ---- The log ------------------------------------------------------------------------------------------------------ */

void __wrap_log_message(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void __wrap_log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks the verb after a number and a noun: "1 dump was", "2 dumps were". */
static void check_grammar(const char *line)
{
    for (const char *at = line; (at = strpbrk(at, "0123456789")); at += strspn(at, "0123456789")) {
        char noun[32], verb[8];
        unsigned long long n;
        if ((at > line && at[-1] != ' ') || sscanf(at, "%llu %31[a-z] %7[a-z]", &n, noun, verb) != 3)
            continue;
        bool is_one = strcmp(verb, "was") == 0 || strcmp(verb, "is") == 0;
        bool is_many = strcmp(verb, "were") == 0 || strcmp(verb, "are") == 0;
        if (n == 1 ? is_many : is_one)
            world_fail("the log has \"%s\"", line);
    }
}

static void print_line(const char *format, va_list args)
{
    char line[1024];

    vsnprintf(line, sizeof(line), format, args);
    check_grammar(line);
    if (run_on_line)
        run_on_line(line);
    if (run_is_verbose)
        fprintf(stderr, "%.6f %s\n", (double)world_now_ns() * 1e-9, line);
}

void __wrap_log_message(enum log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

void __wrap_log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

void __real_config_print_errors(const struct config *config, FILE *out);
void __wrap_config_print_errors(const struct config *config, FILE *out);

void __wrap_config_print_errors(const struct config *config, FILE *out)
{
    if (run_is_verbose)
        __real_config_print_errors(config, out);
}

/* ---- A daemon ----------------------------------------------------------------------------------------------------- */

struct program {
    int (*main)(int argc, char **argv);
    char *name, *path;
    int exit_code;
    bool has_ended;
};
static struct program program; /* the daemon that was started last */

static void *run_program(void *arg)
{
    char *argv[] = {program.name, program.path, NULL};

    optind = 1;
    program.exit_code = program.main(2, argv);
    program.has_ended = true;
    world_program_ends();
    return NULL;
}

/* The KATCP server's counters are static, so they include the refusals of earlier runs. */
#define MAX_STATIC 16
static struct {
    char labels[64];
    uint64_t total;
} at_start[MAX_STATIC];
static size_t n_static;

static bool is_static(const struct stats_value *value)
{
    return value->is_counter && strncmp(value->name, "katcp_", strlen("katcp_")) == 0;
}

static void note_static(void *arg, const struct stats_value *value)
{
    if (!is_static(value))
        return;
    if (n_static == MAX_STATIC)
        world_fail("more than %d counters of the KATCP server", MAX_STATIC);
    snprintf(at_start[n_static].labels, sizeof(at_start[n_static].labels), "%s", value->labels);
    at_start[n_static++].total = value->total;
}

/* Returns the total of a counter since the daemon was ready. */
static uint64_t total_of(const struct stats_value *value)
{
    for (size_t i = 0; is_static(value) && i < n_static; i++)
        if (strcmp(at_start[i].labels, value->labels) == 0)
            return value->total - at_start[i].total;
    return value->total;
}

struct run_daemon run_start(const char *name, int (*main)(int argc, char **argv), const char *path)
{
    struct run_daemon daemon;

    program = (struct program){.main = main, .name = (char *)name, .path = (char *)path};
    world_program_begins();
    daemon.thread = world_start(name, run_program, NULL);
    daemon.service = world_await_ready();
    n_static = 0;
    if (!program.has_ended)
        stats_each(note_static, NULL);
    unlink(path);
    return daemon;
}

/* Adds a counter to the report, under its name and its reason.  Other labels name parts of one configuration. */
static void note_counter(void *arg, const struct stats_value *value)
{
    const char *reason = strstr(value->labels, "reason=\"");
    char name[256];

    if (!value->is_counter)
        return;
    if (reason)
        snprintf(name, sizeof(name), "counter %s{%.*s}", value->name,
                 (int)(strcspn(reason + sizeof("reason=\"") - 1, "\"") + sizeof("reason=\"")), reason);
    else
        snprintf(name, sizeof(name), "counter %s", value->name);
    world_note_times(name, total_of(value));
    if (run_is_verbose && total_of(value) > 0)
        fprintf(stderr, "%s{%s} %llu\n", value->name, value->labels, (unsigned long long)total_of(value));
}

bool run_has_ended(void)
{
    return program.has_ended;
}

int run_stop_code(struct run_daemon *daemon)
{
    sent_drain();
    if (!program.has_ended) { /* the counters still exist */
        stats_each(note_counter, NULL);
        service_stop(daemon->service, 0);
    }
    world_join(daemon->thread);
    stats_reset();
    return program.exit_code;
}

void run_stop(struct run_daemon *daemon)
{
    if (program.has_ended || run_stop_code(daemon) != 0)
        world_fail("%s ended with an error", program.name);
}

void run_sleep(int64_t ns)
{
    int64_t end_ns = world_now_ns() + ns;

    while (world_now_ns() < end_ns)
        world_wait(NULL, end_ns);
}

struct sum {
    const char *name, *label;
    uint64_t total;
};

static void add(void *arg, const struct stats_value *value)
{
    struct sum *sum = arg;

    if (value->is_counter && strcmp(value->name, sum->name) == 0 && strstr(value->labels, sum->label))
        sum->total += total_of(value);
}

uint64_t run_counter(const char *name, const char *label)
{
    struct sum sum = {name, label, 0};

    stats_each(add, &sum);
    return sum.total;
}

struct search {
    const char *name, *label;
    double gauge;
    bool found;
};

static void match(void *arg, const struct stats_value *value)
{
    struct search *search = arg;

    if (value->is_counter || strcmp(value->name, search->name) != 0 || !strstr(value->labels, search->label))
        return;
    search->gauge = value->gauge;
    search->found = true;
}

double run_gauge(const char *name, const char *label)
{
    struct search search = {name, label, 0, false};

    stats_each(match, &search);
    if (!search.found)
        world_fail("there is no gauge %s{%s}", name, label);
    return search.gauge;
}

/* ---- Sensors ------------------------------------------------------------------------------------------------------ */

int __real_sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                       struct sensor_reading first);
int __wrap_sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                       struct sensor_reading first);

static struct sensors *daemon_sensors; /* of the daemon that was started last */

int __wrap_sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                       struct sensor_reading first)
{
    daemon_sensors = sensors;
    return __real_sensors_add(sensors, sensor, about, first);
}

struct sensor_reading run_sensor(const char *format, ...)
{
    char name[128];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    const struct sensor_entry *entry = sensors_find(daemon_sensors, name);
    if (!entry)
        world_fail("there is no sensor %s", name);
    return sensors_read(daemon_sensors, entry, NULL);
}

/* ---- Drawn values --------------------------------------------------------------------------------------------- */

#define MAX_SETS 64

static const char *sets[MAX_SETS]; /* "name=value" */
static size_t n_sets;

uint64_t run_draw(const char *name, uint64_t n)
{
    uint64_t value = world_random(n);
    size_t n_bytes = strlen(name);

    for (size_t i = 0; i < n_sets; i++)
        if (strncmp(sets[i], name, n_bytes) == 0 && sets[i][n_bytes] == '=')
            value = strtoull(sets[i] + n_bytes + 1, NULL, 0);
    if (value >= n)
        world_fail("%s=%llu is not below %llu", name, (unsigned long long)value, (unsigned long long)n);
    if (run_is_verbose)
        fprintf(stderr, "draw %s=%llu\n", name, (unsigned long long)value);
    return value;
}

/* ---- The command line --------------------------------------------------------------------------------------------- */

static uint64_t run_checked(uint64_t seed, const char *path, void (*run_seed)(uint64_t seed, const char *path))
{
    memory_begin();
    run_seed(seed, path);
    memory_check_end();
    seams_check_end();
    return world_digest();
}

/* One core is enough, because one thread runs at a time.  Turns pass faster within a core. */
static void stay_on_core(void)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
}

static bool is_twice; /* --twice */

/* Reads the options.  Returns the index of the first argument that is no option. */
static int read_options(int argc, char **argv)
{
    int at = 1;

    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++)
        if (strcmp(argv[at], "--verbose") == 0)
            run_is_verbose = true;
        else if (strcmp(argv[at], "--twice") == 0)
            is_twice = true;
        else if (strcmp(argv[at], "--set") == 0 && at + 1 < argc && n_sets < MAX_SETS)
            sets[n_sets++] = argv[++at];
        else
            return argc;
    return at;
}

int run_seeds(int argc, char **argv, void (*run_seed)(uint64_t seed, const char *path))
{
    int first = read_options(argc, argv);
    char path[64];

    if (first >= argc) {
        fprintf(stderr, "Usage: %s [--verbose] [--twice] [--set NAME=VALUE]... FIRST_SEED [N_SEEDS]\n", argv[0]);
        return 2;
    }
    uint64_t seed = strtoull(argv[first], NULL, 0), n = first + 1 < argc ? strtoull(argv[first + 1], NULL, 0) : 1;
    uint64_t all = 0; /* digest of all runs */
    stay_on_core();
    snprintf(path, sizeof(path), "/tmp/world-%d.yaml", getpid());
    for (uint64_t i = 0; i < n; i++) {
        uint64_t digest = run_checked(seed + i, path, run_seed);
        all = (all ^ digest) * 0x9E3779B97F4A7C15;
        if (i > 0 && !is_twice)
            continue;
        if (run_checked(seed + i, path, run_seed) != digest)
            world_fail("two runs of the seed differ");
    }
    world_report();
    printf("%s: %llu seeds from %llu on, no mismatch, digest %016llx\n", argv[0], (unsigned long long)n,
           (unsigned long long)seed, (unsigned long long)all);
    return 0;
}
