/* bench.c - functions that the benchmarks share.  See bench.h. */
#include "scripts/bench/bench.h"

#include "common/base/clock.h"
#include "common/base/version.h"
#include "scripts/bench/fgpu_runs.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct bench_stat bench_stat_of(double *values, size_t n)
{
    assert(n >= 1);
    qsort(values, n, sizeof(*values), compare);
    return (struct bench_stat){
        .min = values[0],
        .median = (values[(n - 1) / 2] + values[n / 2]) / 2,
        .max = values[n - 1],
    };
}

struct bench_stat bench_measure(bench_time time, void *what, double amount, size_t n_repetitions, int64_t repetition_ns,
                                size_t n_max)
{
    double rates[BENCH_MAX_REPETITIONS];

    time(what, 1);
    size_t n = 1 + (size_t)(repetition_ns / (time(what, 1) + 1));
    n = n < n_max ? n : n_max;
    for (size_t i = 0; i < n_repetitions; i++)
        rates[i] = amount * (double)n / (double)time(what, n);
    return bench_stat_of(rates, n_repetitions);
}

struct bench_stat bench_measure_copy(struct device *device, struct device_stream *stream, size_t bytes,
                                     size_t n_repetitions)
{
    double rates[BENCH_MAX_REPETITIONS];
    void *from = bench_alloc(device, bytes), *to = bench_alloc(device, bytes);

    fgpu_runs_fill_random(device, stream, from, bytes, RANDOM_BITS);
    for (size_t r = 0; r <= n_repetitions; r++) {
        int64_t start_ns = clock_monotonic_ns();
        for (int i = 0; i < 20; i++)
            device_copy(stream, to, from, bytes);
        device_stream_wait(stream);
        if (r > 0)
            rates[r - 1] = 20 * 2 * (double)bytes / (double)(clock_monotonic_ns() - start_ns);
    }
    device_free(device, from);
    device_free(device, to);
    return bench_stat_of(rates, n_repetitions);
}

/* ---- The command line -------------------------------------------------------------------------------------------- */

void bench_fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(EXIT_FAILURE);
}

void *bench_alloc(struct device *device, size_t bytes)
{
    void *memory = device_alloc(device, bytes);

    if (!memory)
        bench_fail("there is not enough memory on the device");
    return memory;
}

void bench_options(int argc, char **argv, const struct bench_option *options, size_t n_options)
{
    char unknown[120];

    snprintf(unknown, sizeof(unknown), "scripts/bench/%s.c explains the options at its start",
             program_invocation_short_name);
    for (int i = 1; i < argc; i++) {
        const struct bench_option *option = options;
        while (option < options + n_options && strcmp(option->name, argv[i]) != 0)
            option++;
        if (option == options + n_options || (option->read && i + 1 == argc))
            bench_fail(unknown);
        if (option->read)
            option->read(argv[++i], option->value);
        else
            *(bool *)option->value = true;
    }
}

void bench_read_unsigned(const char *text, void *value)
{
    *(unsigned *)value = (unsigned)strtoul(text, NULL, 0);
}

void bench_read_size(const char *text, void *value)
{
    *(size_t *)value = strtoull(text, NULL, 0);
}

void bench_read_text(const char *text, void *value)
{
    *(const char **)value = text;
}

void bench_read_device(const char *text, void *value)
{
    enum device_kind *kind = value;

    if (strcmp(text, "cpu") == 0)
        *kind = DEVICE_CPU;
    else if (strcmp(text, "cuda") == 0)
        *kind = DEVICE_CUDA;
    else if (strcmp(text, "auto") == 0)
        *kind = DEVICE_AUTO;
    else
        bench_fail("--device is auto, cpu or cuda");
}

size_t bench_read_list(const char *text, unsigned least, unsigned most, unsigned *values, size_t n_max,
                       const char *what)
{
    size_t n = 0;

    for (; *text && n < n_max; n++) {
        char *end;
        values[n] = (unsigned)strtoul(text, &end, 0);
        if (end == text || (*end && *end != ',') || values[n] < least || values[n] > most)
            bench_fail(what);
        text = *end ? end + 1 : end;
    }
    return n;
}

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

/* Returns the CPUs with which the process was started.  The first call must come before the first pin. */
static const cpu_set_t *allowed_cpus(void)
{
    static cpu_set_t cpus;

    if (CPU_COUNT(&cpus) == 0 && sched_getaffinity(0, sizeof(cpus), &cpus)) {
        perror("sched_getaffinity");
        exit(EXIT_FAILURE);
    }
    return &cpus;
}

int bench_n_cpus(void)
{
    return CPU_COUNT(allowed_cpus());
}

int bench_last_cpu(void)
{
    int cpu = CPU_SETSIZE - 1;

    while (cpu > 0 && !CPU_ISSET(cpu, allowed_cpus()))
        cpu--;
    return cpu;
}

void bench_pin(int cpu)
{
    cpu_set_t cpus = *allowed_cpus();

    if (cpu >= 0) {
        CPU_ZERO(&cpus);
        CPU_SET(cpu, &cpus);
    }
    if (sched_setaffinity(0, sizeof(cpus), &cpus)) {
        perror("sched_setaffinity");
        exit(EXIT_FAILURE);
    }
}

/* ---- Printing ---------------------------------------------------------------------------------------------------- */

/* Reads the name of the CPU's model from /proc/cpuinfo.  Only on x86 CPUs does the file contain a name. */
static void read_cpu_model(char *model, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(model, bytes, "unknown CPU");
    while (file && fgets(line, sizeof(line), file)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value)
            continue;
        snprintf(model, bytes, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    if (file)
        fclose(file);
}

static const char *compiler(void)
{
#ifdef __clang__
    return __VERSION__; /* the text begins with the compiler's name */
#else
    return "gcc " __VERSION__;
#endif
}

void bench_print_machine(void)
{
    char model[128];
    struct utsname kernel;
    double load = 0;

    read_cpu_model(model, sizeof(model));
    uname(&kernel);
    getloadavg(&load, 1);
    printf("%s, %d CPUs, %s %.*s, %s, build %s\n", model, bench_n_cpus(), kernel.sysname,
           (int)strcspn(kernel.release, "-"), kernel.release, compiler(), cbf_build_id);
    printf("load average at the start %.1f\n", load);
}

void bench_print_head(const char *title, const char *unit)
{
    printf("\n%s\n%-36s %9s %9s %9s  %s\n", title, unit, "min", "median", "max", "bound");
}

void bench_print_row(const char *label, struct bench_stat stat, double ceiling, const char *bound)
{
    printf("%-36s %9.4g %9.4g %9.4g  ", label, stat.min, stat.median, stat.max);
    if (ceiling > 0)
        printf("%3.0f %% of ", 100 * stat.max / ceiling);
    printf("%s\n", bound);
    fflush(stdout);
}
