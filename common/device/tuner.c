/* tuner.c - measures candidates, saves the fastest in a file, and checks this file when it is read. */
#include "common/device/tuner.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/trust.h"
#include "common/base/units.h"
#include "common/base/why.h"
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

#define LIMIT_NS     (60 * NS_PER_S)  /* after this time, a job measures no further candidate */
#define RUN_NS       (20 * NS_PER_MS) /* a run must take at least this time to be used as a measurement */
#define N_RUNS       5                /* number of runs of a candidate; odd */
#define HOPELESS     1.5              /* a candidate stops after two runs longer than HOPELESS times the best time */
#define BETTER       0.995            /* a new best shape must take less than this fraction of the best time */
#define RANDOM_BYTES (1 << 20)        /* random bytes that the host makes; larger memory gets several copies */
#define FILE_BYTES   2048

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Fills memory with random bits, or with floating-point numbers of random sign and mantissa, with magnitudes from 1/2
 * to 1.  The random generator is Marsaglia's xorshift64 (2003). */
static void fill_random(struct tuner_bed *bed, uint8_t *memory, size_t bytes, enum tuner_fill fill)
{
    static const uint64_t keep[] = {UINT64_MAX, UINT64_C(0x807fffff807fffff), UINT64_C(0x83ff83ff83ff83ff)};
    static const uint64_t set[] = {0, UINT64_C(0x3f0000003f000000), UINT64_C(0x3800380038003800)};
    uint64_t *host = device_alloc_pinned(bed->device, RANDOM_BYTES), state = UINT64_C(88172645463325252);

    bed->is_short |= !host;
    for (size_t i = 0; host && i < RANDOM_BYTES / sizeof(*host); i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        host[i] = (state & keep[fill]) | set[fill];
    }
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

/* Returns the median time of one call of 'queue', in nanoseconds. */
static double median_ns(const struct tuner_bed *bed, const struct tuner_kernel *kernel, void *work, double hopeless_ns)
{
    double runs[N_RUNS]; /* in ascending order */
    size_t n_runs = 0, n = 1, i;

    while (n_runs < N_RUNS && (n_runs < 2 || runs[0] <= hopeless_ns)) {
        int64_t start_ns = clock_monotonic_ns();
        for (i = 0; i < n; i++)
            kernel->queue(work, bed->stream);
        device_stream_wait(bed->stream);
        int64_t run_ns = clock_monotonic_ns() - start_ns;
        if (run_ns < RUN_NS) { /* in a short run, the time of the final wait would distort the result */
            n *= 2;
            n_runs = 0;
            continue;
        }
        for (i = n_runs++; i > 0 && runs[i - 1] > (double)run_ns / (double)n; i--)
            runs[i] = runs[i - 1];
        runs[i] = (double)run_ns / (double)n;
    }
    return runs[(n_runs - 1) / 2];
}

int tuner_measure(struct device *device, const struct tuner_job *job, const void *shape, double hopeless_ns, double *ns)
{
    struct tuner_bed bed = {.device = device};
    void *work = calloc(1, job->kernel->work_bytes);
    int err = work ? device_stream_create(device, "tune", &bed.stream) : -ENOMEM;

    *ns = INFINITY;
    if (!err)
        err = job->kernel->create(&bed, job->sizes, shape, work);
    if (!err && !bed.is_short)
        *ns = median_ns(&bed, job->kernel, work, hopeless_ns);
    if (work)
        job->kernel->destroy(work);
    free(work);
    device_stream_destroy(bed.stream);
    for (struct tuner_memory *m = bed.memory; m < bed.memory + bed.n_memory; m++)
        (m->pinned ? device_free_pinned : device_free)(device, m->at);
    return err && err != -ENOMEM ? err : device_ok(device) ? 0 : -EIO;
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

/* Name and text of the file with a saved shape. */
struct kept {
    char name[NAME_MAX + 1], text[FILE_BYTES];
};

/* Writes the name and the text of the file.  The name contains the GPU and the sizes, but not the kernels' texts.  So
 * the shape that a new version chooses replaces the old shape.  The text contains a hash of all kernels' texts,
 * because any kernel's text may affect the speed. */
static void describe(const struct device *device, const struct tuner_job *job, const void *shape, struct kept *kept)
{
    char sizes[TUNER_TEXT_BYTES], numbers[TUNER_TEXT_BYTES];
    struct hash hash = HASH_START;

    job->kernel->format_sizes(job->sizes, sizes, sizeof(sizes));
    tuner_format(job->kernel, shape, numbers);
    for (size_t k = 0; k < n_kernel_texts; k++) {
        hash_text(&hash, kernel_texts[k].name);
        hash_text(&hash, kernel_texts[k].text);
    }
    snprintf(kept->name, sizeof(kept->name), "%.80s-%s-%.120s.tuned", device_model(device), job->kernel->name, sizes);
    for (char *at = kept->name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
    snprintf(kept->text, sizeof(kept->text),
             "# The fastest shape of a kernel on this GPU, as --tune has measured it.  May be removed.\n"
             "kernel: %s\ngpu: %s\nsizes: %s\nkernels: %016" PRIx64 "%016" PRIx64 "\nshape: %s\n",
             job->kernel->name, device_model(device), sizes, hash.high, hash.low, numbers);
}

void tuner_load(struct device *device, const char *program, const struct tuner_job *job)
{
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS], *shape = shapes, *found = NULL;
    const char *directory = device_cache_directory(device);
    size_t n = device_compiles(device) ? job->kernel->candidates(job->kernel, job->sizes, device, shapes) : 0;
    char text[FILE_BYTES];
    struct kept kept;

    if (n == 0)
        return;
    describe(device, job, shapes, &kept);
    int fd = directory ? trust_open(directory, kept.name) : -ENOENT;
    ssize_t n_read = fd < 0 ? fd : read(fd, text, sizeof(text) - 1);
    text[n_read < 0 ? 0 : n_read] = '\0';
    if (fd >= 0)
        close(fd);
    for (; n > 0 && n_read > 0 && !found; n--, shape += job->kernel->n_numbers) {
        describe(device, job, shape, &kept);
        found = strcmp(text, kept.text) == 0 ? shape : NULL;
    }
    for (size_t i = 0; i < job->kernel->n_numbers; i++)
        if (job->kernel->numbers[i])
            ((uint32_t *)job->shape)[i] = (found ? found : shapes)[i];
    if (found)
        log_info("%s: the kernel %s uses its tuned shape", job->output, job->kernel->name);
    else if (fd != -ENOENT)
        log_warning("%s: %s/%s is ignored, because it %s; %s --tune makes a new file", job->output, directory,
                    kept.name,
                    fd == -EPERM ? "cannot be trusted: " TRUST_CURE
                    : n_read < 0 ? "cannot be read"
                                 : "is damaged or was measured with kernels other than this program's kernels",
                    program);
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

static void log_candidate(const struct tuner_job *job, const void *shape, double ns, const char *what)
{
    char text[TUNER_TEXT_BYTES];

    tuner_format(job->kernel, shape, text);
    log_info("%s: %s: %s %.4g us: %s", job->output, job->kernel->name, what, ns / 1e3, text);
}

/* Measures 'n' shapes.  Sets '*best' to the fastest shape.  Returns 0 or negative errno. */
static int choose(struct device *device, const struct tuner_job *job, const uint32_t *shapes, size_t n,
                  const uint32_t **best)
{
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    double ns, best_ns = INFINITY;
    size_t i;

    for (i = 0; i < n && (isinf(best_ns) || clock_monotonic_ns() < end_ns); i++) {
        const uint32_t *shape = shapes + i * job->kernel->n_numbers;
        int err = tuner_measure(device, job, shape, best_ns * HOPELESS, &ns);
        if (err)
            return err;
        log_candidate(job, shape, ns, i == 0 ? "default" : "candidate");
        if (ns < best_ns * BETTER) {
            best_ns = ns;
            *best = shape;
        }
    }
    if (isinf(best_ns))
        return -ENOMEM;
    log_candidate(job, *best, best_ns, "kept");
    if (i < n)
        log_info("%s: %s: %zu candidates were not measured within the time limit", job->output, job->kernel->name,
                 n - i);
    return 0;
}

static int run_job(struct device *device, const struct tuner_job *job, char *why, size_t why_bytes)
{
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    const char *directory = device_cache_directory(device), *name = job->kernel->name;
    size_t n = job->kernel->candidates(job->kernel, job->sizes, device, shapes);
    const uint32_t *best = shapes;
    char sizes[TUNER_TEXT_BYTES];
    struct kept kept;

    job->kernel->format_sizes(job->sizes, sizes, sizeof(sizes));
    if (n < 2) {
        log_info("%s: %s: there is nothing to tune: at most one shape is valid for %s", job->output, name, sizes);
        return 0;
    }
    log_info("%s: measuring the kernel %s with %zu candidate shapes, for up to %d s: %s", job->output, name, n,
             (int)(LIMIT_NS / NS_PER_S), sizes);
    int err = choose(device, job, shapes, n, &best);
    if (err == -ENOMEM)
        return why_fail(
            err, why, why_bytes,
            "%s: there is not enough memory to measure output %s: stop other programs on the GPU, or lower this key",
            job->key, job->output);
    if (err)
        return why_fail(err, why, why_bytes, "%s: output %s cannot be measured: %s", job->key, job->output,
                        strerror(-err));
    describe(device, job, best, &kept);
    err = file_replace(directory, kept.name, &(struct file_part){kept.text, strlen(kept.text)}, 1);
    if (err)
        return why_fail(err, why, why_bytes, "device.kernel_cache: %s/%s cannot be written: %s", directory, kept.name,
                        strerror(-err));
    log_info("%s: %s: the shape is saved in %s/%s", job->output, name, directory, kept.name);
    return 0;
}

/* Returns the index of the first job that has the same kernel and sizes as job j. */
static size_t first_like(const struct device *device, const struct tuner_job *jobs, size_t j)
{
    static const uint32_t any_shape[TUNER_MAX_NUMBERS];
    struct kept kept, first;
    size_t i = 0;

    describe(device, &jobs[j], any_shape, &kept);
    do
        describe(device, &jobs[i], any_shape, &first);
    while (strcmp(kept.name, first.name) != 0 && ++i);
    return i;
}

int tuner_run(struct device *device, const struct tuner_job *jobs, size_t n_jobs, char *why, size_t why_bytes)
{
    const char *directory = device_cache_directory(device);

    if (!device_compiles(device)) {
        log_info("there is nothing to tune on the %s device", device_name(device));
        return 0;
    }
    /* The directory is checked first, so that no time is spent on a shape that cannot be saved. */
    int err = !directory ? -ENOENT : access(directory, W_OK | X_OK) != 0 ? -errno : 0;
    if (!directory)
        snprintf(why, why_bytes, "device.kernel_cache: there is no directory to which a shape can be written");
    else if (err)
        snprintf(why, why_bytes, "device.kernel_cache: %s cannot be written: %s", directory, strerror(-err));
    for (size_t j = 0; j < n_jobs && !err; j++)
        if (first_like(device, jobs, j) == j)
            err = run_job(device, &jobs[j], why, why_bytes);
    return err;
}
