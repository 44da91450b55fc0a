/* tuner.c - measures candidates, keeps the fastest in a file, and reads that file with care. */
#include "common/device/tuner.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/trust.h"
#include "common/base/units.h"
#include "common/device/texts.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_NS     (60 * NS_PER_S)  /* of a job: no new candidate after so long */
#define RUN_NS       (20 * NS_PER_MS) /* of a run, at least */
#define N_RUNS       5                /* of a candidate; odd */
#define HOPELESS     1.5              /* times the fastest: one run is enough */
#define BETTER       0.995            /* of the fastest so far; less is noise */
#define RANDOM_BYTES (1 << 20)        /* made on the host, and copied to all places */
#define FILE_BYTES   2048

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Marsaglia's xorshift64*. */
static uint64_t random_u64(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

/* Sign and mantissa of numbers are random, the exponent is that of 1/2. */
static void fill_random(struct tuner_bed *bed, uint8_t *memory, size_t bytes, enum tuner_fill fill)
{
    static const uint64_t keep[] = {UINT64_MAX, UINT64_C(0x807fffff807fffff), UINT64_C(0x83ff83ff83ff83ff)};
    static const uint64_t set[] = {0, UINT64_C(0x3f0000003f000000), UINT64_C(0x3800380038003800)};
    uint64_t *host = device_alloc_pinned(bed->device, RANDOM_BYTES), state = 1;

    bed->is_short |= !host;
    for (size_t i = 0; host && i < RANDOM_BYTES / sizeof(*host); i++)
        host[i] = (random_u64(&state) & keep[fill]) | set[fill];
    for (size_t at = 0; host && at < bytes; at += RANDOM_BYTES)
        device_copy(bed->stream, memory + at, host, bytes - at < RANDOM_BYTES ? bytes - at : RANDOM_BYTES);
    device_stream_wait(bed->stream);
    device_free_pinned(bed->device, host);
}

void *tuner_alloc(struct tuner_bed *bed, size_t bytes, enum tuner_fill fill)
{
    bool pinned = fill == TUNER_PINNED;
    void *memory = pinned ? device_alloc_pinned(bed->device, bytes) : device_alloc(bed->device, bytes);

    assert(bed->n_memory < ARRAY_LEN(bed->memory));
    bed->memory[bed->n_memory++] = (struct tuner_memory){memory, bytes, pinned};
    bed->is_short |= !memory;
    if (memory && pinned)
        memset(memory, 0, bytes);
    else if (memory)
        fill_random(bed, memory, bytes, fill);
    return memory;
}

static void bed_fini(struct tuner_bed *bed)
{
    device_stream_destroy(bed->stream);
    for (struct tuner_memory *m = bed->memory; m < bed->memory + bed->n_memory; m++)
        (m->pinned ? device_free_pinned : device_free)(bed->device, m->at);
}

/* Time for one of 'n' rounds. */
static double time_run(const struct tuner_bed *bed, const struct tuner_kernel *kernel, void *work, size_t n)
{
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        kernel->queue(work, bed->stream);
    device_stream_wait(bed->stream);
    return (double)(clock_monotonic_ns() - start_ns) / (double)n;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_run(const struct tuner_bed *bed, const struct tuner_kernel *kernel, void *work, double hopeless_ns)
{
    double runs[N_RUNS];
    size_t n_runs = 0, n = 1;

    /* A few launches do not tell how many fill a run: the wait for their end may take longer than they. */
    while (time_run(bed, kernel, work, n) * (double)n < (double)RUN_NS)
        n *= 2;
    do {
        runs[n_runs++] = time_run(bed, kernel, work, n);
    } while (n_runs < N_RUNS && runs[0] <= hopeless_ns);
    qsort(runs, n_runs, sizeof(*runs), compare_doubles);
    return runs[n_runs / 2];
}

int tuner_measure(struct device *device, const struct tuner_job *job, const void *shape, double hopeless_ns, double *ns)
{
    struct tuner_bed bed = {.device = device};
    void *work = NULL;
    int err = device_stream_create(device, "tune", &bed.stream);

    *ns = INFINITY;
    if (err)
        return err;
    err = job->kernel->create(&bed, job->sizes, shape, &work);
    if (!err && !bed.is_short)
        *ns = median_run(&bed, job->kernel, work, hopeless_ns);
    job->kernel->destroy(work);
    bed_fini(&bed);
    if (err && err != -ENOMEM)
        return err;
    return device_ok(device) ? 0 : -EIO;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

void tuner_format(const struct tuner_kernel *kernel, const void *shape, char text[TUNER_TEXT_BYTES])
{
    const uint32_t *numbers = shape;
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < kernel->n_numbers; i++)
        if (kernel->numbers[i] && numbers[i] && at < TUNER_TEXT_BYTES)
            at += (size_t)snprintf(text + at, TUNER_TEXT_BYTES - at, "%s%s %" PRIu32, at ? ", " : "",
                                   kernel->numbers[i], numbers[i]);
}

static const void *shape_at(const struct tuner_kernel *kernel, const uint32_t *shapes, size_t i)
{
    return shapes + i * kernel->n_numbers;
}

/* Names the GPU and the sizes, but not the kernels' texts: a new version's choice takes the place of the old one's. */
static void name_of(const struct device *device, const struct tuner_job *job, char name[NAME_MAX + 1])
{
    char sizes[TUNER_TEXT_BYTES];

    job->kernel->format_sizes(job->sizes, sizes, sizeof(sizes));
    snprintf(name, NAME_MAX + 1, "%.80s-%s-%.120s.tuned", device_model(device), job->kernel->name, sizes);
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
}

/* All of the file that keeps 'shape'.  Every kernel text counts: which of them decides the speed is hard to tell. */
static void write_text(const struct device *device, const struct tuner_job *job, const void *shape,
                       char text[FILE_BYTES])
{
    char sizes[TUNER_TEXT_BYTES], numbers[TUNER_TEXT_BYTES];
    struct hash hash = HASH_START;

    for (size_t k = 0; k < n_kernel_texts; k++) {
        hash_text(&hash, kernel_texts[k].name);
        hash_text(&hash, kernel_texts[k].text);
    }
    job->kernel->format_sizes(job->sizes, sizes, sizeof(sizes));
    tuner_format(job->kernel, shape, numbers);
    snprintf(text, FILE_BYTES,
             "# The fastest shape of a kernel on this GPU, as --tune has measured it.  May be removed.\n"
             "kernel: %s\ngpu: %s\nsizes: %s\nkernels: %016" PRIx64 "%016" PRIx64 "\nshape: %s\n",
             job->kernel->name, device_model(device), sizes, hash.high, hash.low, numbers);
}

/* Reads a file that nobody else may write to.  Returns 0 or negative errno. */
static int read_file(const char *directory, const char *name, char text[FILE_BYTES])
{
    int fd = directory ? trust_open(directory, name) : -ENOENT;
    ssize_t n = fd < 0 ? fd : read(fd, text, FILE_BYTES - 1);
    int err = fd < 0 ? fd : n < 0 ? -errno : 0;

    if (fd >= 0)
        close(fd);
    if (!err)
        text[n] = '\0';
    return err;
}

void tuner_load(struct device *device, const char *program, const struct tuner_job *job, void *shape)
{
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    const char *directory = device_cache_directory(device);
    char name[NAME_MAX + 1], text[FILE_BYTES], expected[FILE_BYTES];
    size_t shape_bytes = job->kernel->n_numbers * sizeof(*shapes);
    size_t n = device_compiles(device) ? job->kernel->candidates(job->sizes, device, shapes) : 0;

    memset(shape, 0, shape_bytes);
    if (n == 0)
        return;
    memcpy(shape, shapes, shape_bytes);
    name_of(device, job, name);
    int err = read_file(directory, name, text);
    if (err == -ENOENT)
        return;
    for (size_t i = 0; i < n && !err; i++) {
        write_text(device, job, shape_at(job->kernel, shapes, i), expected);
        if (strcmp(text, expected) == 0) {
            memcpy(shape, shape_at(job->kernel, shapes, i), shape_bytes);
            log_info("%s: tuned shape of %s", job->output, job->kernel->name);
            return;
        }
    }
    log_warning("%s: %s/%s is ignored, as it %s; %s --tune makes a new one", job->output, directory, name,
                err == -EPERM ? "cannot be trusted: " TRUST_CURE
                : err         ? "cannot be read"
                              : "is damaged or was measured with other kernels than this program has",
                program);
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

static void log_candidate(const struct tuner_job *job, const void *shape, double ns, const char *what)
{
    char text[TUNER_TEXT_BYTES];

    tuner_format(job->kernel, shape, text);
    log_info("%s: %s: %s %.4g us: %s", job->output, job->kernel->name, what, ns / 1e3, text);
}

/* Measures all shapes.  Returns 0 with the number of the fastest, or negative errno. */
static int choose(struct device *device, const struct tuner_job *job, const uint32_t *shapes, size_t n, size_t *best)
{
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    double ns, best_ns = INFINITY;
    size_t i;

    for (i = 0; i < n && (isinf(best_ns) || clock_monotonic_ns() < end_ns); i++) {
        int err = tuner_measure(device, job, shape_at(job->kernel, shapes, i), best_ns * HOPELESS, &ns);
        if (err)
            return err;
        log_candidate(job, shape_at(job->kernel, shapes, i), ns, i == 0 ? "default" : "candidate");
        if (ns < best_ns * BETTER) {
            best_ns = ns;
            *best = i;
        }
    }
    if (isinf(best_ns))
        return -ENOMEM;
    log_candidate(job, shape_at(job->kernel, shapes, *best), best_ns, "kept");
    if (i < n)
        log_info("%s: %s: %zu candidates were not measured before time was up", job->output, job->kernel->name, n - i);
    return 0;
}

static int run_job(struct device *device, const struct tuner_job *job, char *why, size_t why_bytes)
{
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    const char *directory = device_cache_directory(device);
    char name[NAME_MAX + 1], sizes[TUNER_TEXT_BYTES], text[FILE_BYTES];
    size_t n = job->kernel->candidates(job->sizes, device, shapes), best = 0;

    job->kernel->format_sizes(job->sizes, sizes, sizeof(sizes));
    if (n < 2) {
        log_info("%s: %s: there is nothing to tune: the device has one way for %s", job->output, job->kernel->name,
                 sizes);
        return 0;
    }
    log_info("%s: measuring %s, %zu candidates, for up to %d s: %s", job->output, job->kernel->name, n,
             (int)(LIMIT_NS / NS_PER_S), sizes);
    int err = choose(device, job, shapes, n, &best);
    if (err == -ENOMEM)
        snprintf(why, why_bytes,
                 "%s: there is not enough memory to measure output %s: stop what uses the GPU, or lower it", job->key,
                 job->output);
    else if (err)
        snprintf(why, why_bytes, "%s: output %s cannot be measured: %s", job->key, job->output, strerror(-err));
    if (err)
        return err;
    name_of(device, job, name);
    write_text(device, job, shape_at(job->kernel, shapes, best), text);
    err = file_replace(directory, name, &(struct file_part){text, strlen(text)}, 1);
    if (err)
        snprintf(why, why_bytes, "device.kernel_cache: %s/%s cannot be written: %s", directory, name, strerror(-err));
    else
        log_info("%s: %s: kept in %s/%s", job->output, job->kernel->name, directory, name);
    return err;
}

/* Whether an earlier job is the same. */
static bool is_done(const struct device *device, const struct tuner_job *jobs, size_t j)
{
    char name[NAME_MAX + 1], earlier[NAME_MAX + 1];

    name_of(device, &jobs[j], name);
    for (size_t i = 0; i < j; i++) {
        name_of(device, &jobs[i], earlier);
        if (strcmp(name, earlier) == 0)
            return true;
    }
    return false;
}

int tuner_run(struct device *device, const struct tuner_job *jobs, size_t n_jobs, char *why, size_t why_bytes)
{
    const char *directory = device_cache_directory(device);
    int err = 0;

    if (!device_compiles(device)) {
        log_info("there is nothing to tune on the %s device", device_name(device));
        return 0;
    }
    /* Checked before minutes are spent on a choice that cannot be kept. */
    if (!directory || access(directory, W_OK | X_OK) != 0) {
        err = directory ? -errno : -ENOENT;
        snprintf(why, why_bytes, "device.kernel_cache: %s cannot be written: %s",
                 directory ? directory : "no directory", strerror(-err));
    }
    for (size_t j = 0; j < n_jobs && !err; j++)
        if (!is_done(device, jobs, j))
            err = run_job(device, &jobs[j], why, why_bytes);
    return err;
}
