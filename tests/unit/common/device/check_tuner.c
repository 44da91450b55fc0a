/* check_tuner - the candidates of all kernels for GPUs made up, the file that keeps a choice, and the search with times made
 * up.  On the emulated device (or with CBF_TEST_DEVICE=cuda on a GPU): no bit depends on the choice. */
#include "common/device/tuner.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "kernels/correlate/correlate_tuner.h"
#include "kernels/ddc/ddc_tuner.h"
#include "kernels/filterbank/channelise_tuner.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_WRITERS 6
#define N_WRITES  50

static char directory[64], text[4096], path[PATH_MAX];

static void setup(void)
{
    strcpy(directory, "/tmp/cbf-tune-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Counts the directory's files; the last one's path is in 'path'. */
static int count_files(bool removes)
{
    DIR *dir = opendir(directory);
    int n = 0;

    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
            if (removes)
                unlink(path);
            n++;
        }
    closedir(dir);
    return n;
}

static void teardown(void)
{
    count_files(true);
    rmdir(directory);
}

/* ---- The tables -------------------------------------------------------------------------------------------------- */

/* Shared memory that a block may use, by compute capability. */
static const struct {
    const char *model;
    size_t shared_bytes;
} gpus[] = {
    {"NVIDIA A100, compute capability 8.0", 163 << 10},  {"NVIDIA A40, compute capability 8.6", 99 << 10},
    {"NVIDIA L40, compute capability 8.9", 99 << 10},    {"NVIDIA H200/NVL, compute capability 9.0", 227 << 10},
    {"NVIDIA B200, compute capability 10.0", 227 << 10},
};

static struct device gpu(int i)
{
    struct device device = {.compiles = true, .shared_bytes = gpus[i].shared_bytes, .cache_directory = directory};

    snprintf(device.model, sizeof(device.model), "%s", gpus[i].model);
    return device;
}

/* Returns how many candidates there are: all different, by their texts too. */
static size_t find_candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                              uint32_t *shapes)
{
    static char texts[TUNER_MAX_SHAPES][TUNER_TEXT_BYTES];
    size_t n = kernel->candidates(sizes, device, shapes);

    ck_assert_uint_le(n, TUNER_MAX_SHAPES);
    ck_assert_uint_le(kernel->n_numbers, TUNER_MAX_NUMBERS);
    for (size_t i = 0; i < n; i++) {
        tuner_format(kernel, shapes + i * kernel->n_numbers, texts[i]);
        ck_assert_uint_lt(strlen(texts[i]), TUNER_TEXT_BYTES - 1);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(texts[i], texts[j]);
    }
    return n;
}

static void check_wide(const struct channelise_work *work, const struct device *device)
{
    const struct channelise_config *c = &work->config;
    struct channelise_shape shapes[TUNER_MAX_SHAPES], base = channelise_fused_shape(c, device->shared_bytes);
    const size_t back = offsetof(struct channelise_shape, back_radix);
    size_t n[2];

    n[0] = find_candidates(&channelise_front_tuner, work, device, (uint32_t *)shapes);
    for (size_t i = 0; i < n[0]; i++) {
        ck_assert_mem_eq((char *)&shapes[i] + back, (char *)&base + back, sizeof(base) - back);
        ck_assert_uint_eq(shapes[i].front_rows, base.front_rows);
        ck_assert_uint_eq(shapes[i].front_radix, base.front_radix);
        ck_assert(channelise_shape_valid(c, &shapes[i], device->shared_bytes));
    }
    ck_assert(n[0] == 0 || memcmp(&shapes[0], &base, sizeof(base)) == 0);
    n[1] = find_candidates(&channelise_back_tuner, work, device, (uint32_t *)shapes);
    for (size_t i = 0; i < n[1]; i++) {
        ck_assert_mem_eq(&shapes[i], &base, back);
        ck_assert_uint_eq(shapes[i].back_radix, base.back_radix);
        ck_assert(channelise_shape_valid(c, &shapes[i], device->shared_bytes));
    }
    if (c->n_taps == 16 && c->sample_bits == 10)
        printf("%u channels, %s: %zu and %zu candidates\n", c->n_chan, device->model, n[0], n[1]);
    ck_assert(n[0] == 0 ? !channelise_shape_valid(c, &base, device->shared_bytes) && n[1] == 0 : n[1] > 0);
    ck_assert(n[0] == 0 || c->n_taps > 16 || n[0] + n[1] > 3);
}

TEST(wide_candidates, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    static const unsigned taps[] = {1, 4, 16, 17, 32}, bits[] = {2, 8, 10, 16};
    struct device device = gpu(_i);

    for (unsigned n_chan = 64; n_chan <= 65536; n_chan *= 2)
        for (size_t t = 0; t < ARRAY_LEN(taps); t++)
            for (size_t b = 0; b < ARRAY_LEN(bits); b++)
                check_wide(&(struct channelise_work){{.n_chan = n_chan,
                                                      .n_taps = taps[t],
                                                      .sample_bits = bits[b],
                                                      .spectra_per_heap = 256,
                                                      .n_batches = 1,
                                                      .out_bits = 8},
                                                     256},
                           &device);
}

TEST(narrow_candidates, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    static const uint32_t subsamplings[] = {1, 2, 3, 4, 7, 8, 10, 16, 32, 64, 128, 256}, widths[] = {2, 8, 10, 12, 16};
    struct device device = gpu(_i);
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];

    for (unsigned n_bins = 64; n_bins <= 131072; n_bins *= 2)
        for (unsigned n_taps = 1; n_taps <= 32; n_taps++) {
            struct channelise_work work = {{.n_chan = n_bins / 2, .n_bins = n_bins, .n_taps = n_taps}, 16};
            struct channelise_narrow_shape *narrow = (void *)shapes, base;
            size_t n = find_candidates(&channelise_narrow_tuner, &work, &device, shapes);
            bool fits = channelise_narrow_fits(&work.config, device.shared_bytes, &base);
            ck_assert(n > 1 ? fits && memcmp(&base, &narrow[0], sizeof(base)) == 0 : n == fits);
            for (size_t i = 0; i < n; i++)
                ck_assert(channelise_narrow_valid(&work.config, &narrow[i], device.shared_bytes));
        }
    for (size_t s = 0; s < ARRAY_LEN(subsamplings); s++)
        for (size_t b = 0; b < ARRAY_LEN(widths); b++) {
            const struct ddc_args args = {.n_out = 1000,
                                          .n_taps = 16 * subsamplings[s],
                                          .subsampling = subsamplings[s],
                                          .sample_bits = widths[b]};
            struct ddc_shape *ddc = (void *)shapes, base = ddc_default_shape(&args);
            size_t n = find_candidates(&ddc_tuner, &args, &device, shapes);
            ck_assert_mem_eq(&base, &ddc[0], sizeof(base));
            ck_assert_uint_gt(n, 3);
            for (size_t i = 0; i < n; i++) {
                ck_assert_uint_eq(ddc[i].columns, base.columns);
                ck_assert_uint_le(ddc_grid(&args, &ddc[i]).shared_bytes, device.shared_bytes);
                ck_assert_uint_le(ddc_grid(&args, &ddc[i]).threads, 512);
            }
        }
}

TEST(correlate_shapes, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    struct device device = gpu(_i);
    struct correlate_shape shapes[TUNER_MAX_SHAPES];

    for (uint32_t n_ants = 1; n_ants <= 512; n_ants++)
        for (enum voltage_format format = VOLTAGES_4_BITS; format <= VOLTAGES_16_BITS; format++) {
            const struct correlate_args args = {
                .format = format, .n_ants = n_ants, .n_chan = 4, .n_spectra = 64, .n_batches = 1};
            struct correlate_shape base = correlate_device_shape(&args, &device);
            size_t n = find_candidates(&correlate_tuner, &args, &device, (uint32_t *)shapes);
            ck_assert_mem_eq(&base, &shapes[0], sizeof(base));
            ck_assert_uint_eq(base.wgmma, n_ants >= 17 && strstr(device.model, "capability 9.0"));
            ck_assert(correlate_sums_real(format) ? n == 1 : n >= 2);
            for (size_t i = 0; i < n; i++)
                ck_assert(correlate_shape_valid(&args, &shapes[i], device.shared_bytes));
        }
}

/* The shapes that the bench has been given to measure have names of members, and can be cut. */
TEST(shapes_of_the_bench, .unless = test_on_cuda())
{
    FILE *file = fopen("scripts/bench/fgpu_shapes.txt", "re");
    const char *const *front = channelise_front_tuner.numbers, *const *back = channelise_back_tuner.numbers;
    size_t n_lines = 0;
    char line[512], *rest;

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file)) {
        struct channelise_config config = {
            .n_chan = (unsigned)strtoul(line, &rest, 10), .n_taps = 16, .sample_bits = 10, .out_bits = 8};
        const char *rows = strstr(rest, "front_rows=");
        if (line[0] == '#')
            continue;
        struct channelise_shape shape = channelise_fused_shape(&config, 227 << 10);
        if (rows)
            shape = channelise_shape_of_rows(&config, (uint32_t)strtoul(strchr(rows, '=') + 1, NULL, 10), 227 << 10);
        for (char *word; (word = strsep(&rest, " \n"));)
            for (size_t i = 0, found = 0; *word && !found; i++) {
                const char *name = front[i] ? front[i] : back[i];
                found = strncmp(word, name, strlen(name)) == 0 && word[strlen(name)] == '=';
                if (found)
                    ((uint32_t *)&shape)[i] = (uint32_t)strtoul(word + strlen(name) + 1, NULL, 10);
                ck_assert_msg(found || i + 1 < channelise_front_tuner.n_numbers, "%s", word);
            }
        ck_assert_msg(channelise_shape_valid(&config, &shape, 227 << 10), "%u channels, line %zu", config.n_chan,
                      n_lines);
        n_lines++;
    }
    ck_assert_uint_gt(n_lines, 20);
    fclose(file);
}

/* ---- A kernel made up -------------------------------------------------------------------------------------------- */

/* Shapes 1, 2, 3 ... that take so long. */
struct made_up {
    int64_t ns[8];
    size_t n;
    int create_err;     /* of the last shape */
    size_t alloc_bytes; /* of each */
    size_t n_created;
};

static struct made_up made_up;
static uint32_t shape_now;

static size_t made_up_candidates(const void *sizes, const struct device *device, void *shapes)
{
    for (uint32_t i = 0; i < made_up.n; i++)
        ((uint32_t *)shapes)[i] = i + 1;
    return made_up.n;
}

static void made_up_sizes(const void *sizes, char *to, size_t bytes)
{
    snprintf(to, bytes, "size %u", *(const unsigned *)sizes);
}

static int made_up_create(struct tuner_bed *bed, const void *sizes, const void *shape, void **work)
{
    shape_now = *(const uint32_t *)shape;
    made_up.n_created++;
    tuner_alloc(bed, made_up.alloc_bytes, TUNER_HALVES);
    tuner_alloc(bed, made_up.alloc_bytes, TUNER_PINNED);
    return shape_now == made_up.n ? made_up.create_err : 0;
}

static void made_up_queue(void *work, struct device_stream *stream)
{
    for (int64_t end_ns = clock_monotonic_ns() + made_up.ns[shape_now - 1]; clock_monotonic_ns() < end_ns;)
        ;
}

static void made_up_destroy(void *work)
{
}

static const char *const made_up_numbers[] = {"width"};
static const struct tuner_kernel made_up_kernel = {.name = "made_up",
                                                   .numbers = made_up_numbers,
                                                   .n_numbers = 1,
                                                   .candidates = made_up_candidates,
                                                   .format_sizes = made_up_sizes,
                                                   .create = made_up_create,
                                                   .queue = made_up_queue,
                                                   .destroy = made_up_destroy};
static const unsigned size_a = 5, size_b = 6;
static const struct tuner_job job = {&made_up_kernel, &size_a, "out", "some.key"};

/* The cpu device with a GPU's properties. */
static struct device *open_made_up(int i)
{
    const struct device_config config = {.kind = DEVICE_CPU, .n_threads = 1};
    struct device *device;
    char why[500] = "";

    ck_assert_int_eq(device_open(&config, &device, why, sizeof(why)), 0);
    device->compiles = true;
    device->cache_directory = directory;
    snprintf(device->model, sizeof(device->model), "%s", gpus[i].model);
    made_up = (struct made_up){.ns = {80000, 60000, 30000, 200000, 79900}, .n = 5, .alloc_bytes = 100000};
    return device;
}

static uint32_t load(struct device *device, const struct tuner_job *of)
{
    uint32_t shape = 99;

    tuner_load(device, "program", of, &shape);
    return shape;
}

static int tune(struct device *device, const struct tuner_job *jobs, size_t n, const char *words)
{
    char why[500] = "";
    int err = tuner_run(device, jobs, n, why, sizeof(why));

    ck_assert_msg(strstr(why, words) && (err || !why[0]), "'%s' has no '%s'", why, words);
    return err;
}

/* The fastest is found and taken by the next start; equal jobs are measured once. */
TEST(fastest_is_kept, .unless = test_on_cuda())
{
    struct device *device = open_made_up(3);
    struct tuner_job jobs[3] = {job, job, job};

    jobs[1].output = "other";
    jobs[2].sizes = &size_b;
    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_int_eq(tune(device, jobs, 3, ""), 0);
    ck_assert_uint_eq(made_up.n_created, 10);
    ck_assert_int_eq(count_files(false), 2);
    ck_assert_uint_eq(load(device, &jobs[0]), 3);
    ck_assert_uint_eq(load(device, &jobs[2]), 3);
    made_up.ns[1] = 1000; /* measured again */
    ck_assert_int_eq(tune(device, jobs, 1, ""), 0);
    ck_assert_uint_eq(load(device, &jobs[0]), 2);
    ck_assert_uint_eq(load(device, &jobs[2]), 3);
    made_up.n = 1; /* another program, in which 2 and 3 are no candidates any more */
    ck_assert_uint_eq(load(device, &jobs[0]), 1);
    made_up.n_created = 0;
    ck_assert_int_eq(tune(device, jobs, 3, ""), 0);
    ck_assert_uint_eq(made_up.n_created, 0); /* nothing to choose from */
    made_up.n = 0;
    ck_assert_uint_eq(load(device, &job), 0);
    device->compiles = false;
    made_up.n = 5;
    ck_assert_uint_eq(load(device, &job), 0);
    ck_assert_int_eq(tune(device, jobs, 3, ""), 0);
    ck_assert_uint_eq(made_up.n_created, 0);
    device_close(device);
}

TEST(what_cannot_be_measured, .unless = test_on_cuda())
{
    struct device *device = open_made_up(0);

    made_up.create_err = -ENOMEM; /* of one candidate */
    made_up.ns[4] = 1;
    ck_assert_int_eq(tune(device, &job, 1, ""), 0);
    ck_assert_uint_eq(load(device, &job), 3);
    made_up.create_err = -EIO;
    ck_assert_int_eq(tune(device, &job, 1, "some.key: output out cannot be measured: Input/output error"), -EIO);
    ck_assert_uint_eq(load(device, &job), 3); /* of before */
    made_up.create_err = 0;
    device->cache_directory = "/tmp/cbf-tune-is-not-there";
    made_up.n_created = 0;
    ck_assert_int_eq(tune(device, &job, 1, "device.kernel_cache: /tmp/cbf-tune-is-not-there cannot be written"),
                     -ENOENT);
    device->cache_directory = NULL;
    ck_assert_int_eq(tune(device, &job, 1, "device.kernel_cache: "), -ENOENT);
    ck_assert_uint_eq(made_up.n_created, 0);
    ck_assert_uint_eq(load(device, &job), 1);
    device_close(device);
}

static const char *never_refused(void)
{
#ifdef CBF_SANITIZE
    return "a sanitizer ends the process that asks for too much memory";
#else
    return NULL;
#endif
}

TEST(too_little_memory_to_measure, .unless = test_on_cuda(), .skip = never_refused())
{
    struct device *device = open_made_up(0);

    ck_assert_int_eq(tune(device, &job, 1, ""), 0);
    made_up.alloc_bytes = (size_t)1 << 60;
    ck_assert_int_eq(tune(device, &job, 1, "some.key: there is not enough memory to measure output out"), -ENOMEM);
    ck_assert_uint_eq(load(device, &job), 3); /* of before */
    device_close(device);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void spew(const char *to, const char *what, size_t bytes)
{
    FILE *file = fopen(to, "w");

    ck_assert_uint_eq(fwrite(what, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* The kept text with the first 'old' replaced. */
static void spew_changed(const char *old, const char *new)
{
    char changed[8192];
    const char *at = strstr(text, old);

    ck_assert_msg(at != NULL, "no '%s' in %s", old, text);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    spew(path, changed, strlen(changed));
}

TEST(wrong_files_are_ignored, .unless = test_on_cuda())
{
    static const char *const changes[][2] = {
        {"gpu: NVIDIA H200", "gpu: NVIDIA H100"},
        {"size 5", "size 6"},
        {"kernels: ", "kernels: 0"},
        {"width 3", "width 6"},
        {"width 3", "width -3"},
        {"width 3", "width three"},
        {"width 3", "width 3, height 1"},
        {"width 3", "widths 3"},
        {"kernel: made_up", "kernel: ddc"},
        {"shape: ", "#shape: "},
        {"gpu: ", "gpu:"},
        {"width 3", "width 99999999999999999999"},
    };
    struct device *device = open_made_up(3), *other = open_made_up(2);
    char name[PATH_MAX], long_text[5000];

    ck_assert_int_eq(tune(device, &job, 1, ""), 0);
    ck_assert_int_eq(count_files(false), 1);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    ck_assert_uint_eq(load(other, &job), 1);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        spew_changed(changes[i][0], changes[i][1]);
        ck_assert_msg(load(device, &job) == 1, "with '%s'", changes[i][1]);
    }
    spew_changed("width 3", "width 2"); /* somebody's hand */
    ck_assert_uint_eq(load(device, &job), 2);
    for (size_t n = 0; n < strlen(text); n++) {
        spew(path, text, n);
        ck_assert_uint_eq(load(device, &job), 1);
    }
    memset(long_text, '#', sizeof(long_text));
    spew(path, long_text, sizeof(long_text));
    ck_assert_uint_eq(load(device, &job), 1);
    spew(path, text, strlen(text));
    ck_assert_uint_eq(load(device, &job), 3);
    ck_assert_int_eq(chmod(path, 0666), 0); /* others may change it */
    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_uint_eq(load(device, &job), 3);
    ck_assert_int_eq(chmod(directory, 0777), 0);
    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_int_eq(chmod(directory, 0755), 0);
    snprintf(name, sizeof(name), "%s", path);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(mkdir(name, 0755), 0);
    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_int_eq(rmdir(name), 0);
    device_close(other);
    device_close(device);
}

/* Writers of the same choice at once, and readers: each sees one of those written, whole. */
TEST(several_at_once, .unless = test_on_cuda())
{
    struct device *device = open_made_up(3);
    int status;

    made_up.n = 2;
    made_up.ns[0] = 2000;
    for (int writer = 0; writer < N_WRITERS; writer++) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid > 0)
            continue;
        made_up.ns[1] = writer % 2 ? 100 : 100000; /* the others keep the default */
        for (int i = 0; i < 3; i++) {
            char why[500];
            uint32_t shape;
            int err = tuner_run(device, &job, 1, why, sizeof(why));
            for (int j = 0; j < N_WRITES && !err; j++)
                if ((shape = load(device, &job)) != 1 && shape != 2)
                    err = -1;
            if (err)
                _exit(1);
        }
        _exit(0);
    }
    for (int writer = 0; writer < N_WRITERS; writer++) {
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(count_files(false), 1);
    device_close(device);
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

static const struct channelise_work wide = {.config = {.n_chan = 128,
                                                       .n_taps = 4,
                                                       .w_cutoff = 1,
                                                       .sample_bits = 8,
                                                       .spectra_per_heap = 16,
                                                       .n_batches = 2,
                                                       .out_bits = 8,
                                                       .dither = true},
                                            .append_spectra = 20},
                                    narrow = {.config = {.n_chan = 1024,
                                                         .n_bins = 2048,
                                                         .n_taps = 3,
                                                         .w_cutoff = 1,
                                                         .spectra_per_heap = 16,
                                                         .n_batches = 1,
                                                         .out_bits = 8,
                                                         .dither = true},
                                              .append_spectra = 10};
static const struct ddc_args ddc = {.n_out = 500, .n_taps = 128, .subsampling = 8, .sample_bits = 10};
static const struct correlate_args correlate = {
    .format = VOLTAGES_8_BITS, .n_ants = 20, .n_chan = 2, .n_spectra = 32, .n_batches = 3};

static const struct {
    const struct tuner_kernel *kernel;
    const void *sizes;
} kernels[] = {
    {&channelise_front_tuner, &wide},    {&channelise_back_tuner, &wide},
    {&channelise_narrow_tuner, &narrow}, {&ddc_tuner, &ddc},
    {&correlate_tuner, &correlate},
};

/* Runs a shape once.  Returns the memory that it worked on, the caller's to free. */
static uint8_t *run_shape(const struct test_device *d, int k, const void *shape, size_t *bytes)
{
    struct tuner_bed bed = {.device = d->device, .stream = d->stream};
    uint8_t *memory = NULL;
    void *work;

    ck_assert_int_eq(kernels[k].kernel->create(&bed, kernels[k].sizes, shape, &work), 0);
    kernels[k].kernel->queue(work, d->stream);
    device_stream_wait(d->stream);
    *bytes = 0;
    for (const struct tuner_memory *m = bed.memory; m < bed.memory + bed.n_memory; m++) {
        memory = realloc(memory, *bytes + m->bytes);
        if (m->pinned)
            memcpy(memory + *bytes, m->at, m->bytes);
        else
            test_download(d, memory + *bytes, m->at, m->bytes);
        *bytes += m->bytes;
        (m->pinned ? device_free_pinned : device_free)(d->device, m->at);
    }
    kernels[k].kernel->destroy(work);
    return memory;
}

TEST(no_bit_depends_on_the_choice, .end = ARRAY_LEN(kernels))
{
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    struct test_device d;
    size_t bytes, expected_bytes;

    if (!test_device_open(&d))
        return;
    size_t n = find_candidates(kernels[_i].kernel, kernels[_i].sizes, d.device, shapes);
    ck_assert_uint_gt(n, 1);
    uint8_t *expected = run_shape(&d, _i, shapes, &expected_bytes);
    for (size_t round = 0; round < (test_on_cuda() ? n : 3); round++) {
        const uint32_t *shape =
            shapes + (test_on_cuda() ? round : 1 + random_below(n - 1)) * kernels[_i].kernel->n_numbers;
        uint8_t *got = run_shape(&d, _i, shape, &bytes);
        tuner_format(kernels[_i].kernel, shape, text);
        ck_assert_uint_eq(bytes, expected_bytes);
        ck_assert_msg(memcmp(got, expected, bytes) == 0, "%s differs from the default", text);
        free(got);
    }
    free(expected);
    test_device_close(&d);
}

static void start(void)
{
    umask(022);
    random_start();
}

SUITE(.timeout_s = 300, .setup = setup, .teardown = teardown, .start = start);
