/* bench.c - what the benchmarks share.  See bench.h. */
#include "scripts/bench/bench.h"

#include "common/base/version.h"

#include <assert.h>
#include <sched.h>
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

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

/* What the process was started with, read before the first pin. */
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

/* Reads the CPU's name as the kernel has it; other architectures than x86 have none there. */
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
    return __VERSION__; /* begins with its name */
#else
    return "gcc " __VERSION__;
#endif
}

enum device_kind bench_device_kind(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return DEVICE_CPU;
    if (strcmp(name, "cuda") == 0)
        return DEVICE_CUDA;
    if (strcmp(name, "auto") == 0)
        return DEVICE_AUTO;
    fprintf(stderr, "--device is auto, cpu or cuda\n");
    exit(EXIT_FAILURE);
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
