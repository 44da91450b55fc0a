/* check_tuner - the candidates of all kernels for made-up GPUs, the file that keeps a choice, and the search with
 * made-up times.  On the emulated device (or with CBF_TEST_DEVICE=cuda on a GPU): no output bit depends on the
 * choice. */
#include "common/device/tuner.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/units.h"
#include "kernels/correlate/correlate_tuner.h"
#include "kernels/ddc/ddc_tuner.h"
#include "kernels/filterbank/channelise_tuner.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64], path[PATH_MAX], text[4096];

static void setup(void)
{
    strcpy(directory, "/tmp/cbf-tune-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Counts the kept files; the last one's path is in 'path'. */
static size_t count_files(bool removes)
{
    glob_t found;

    snprintf(path, sizeof(path), "%s/*", directory);
    glob(path, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        snprintf(path, sizeof(path), "%s", found.gl_pathv[i]);
        if (removes)
            remove(path);
    }
    globfree(&found);
    return found.gl_pathc;
}

static void teardown(void)
{
    count_files(true);
    rmdir(directory);
}

/* ---- The tables -------------------------------------------------------------------------------------------------- */

/* With the shared memory that a block may use, by compute capability. */
static const struct device gpus[] = {
    {.model = "NVIDIA A100, compute capability 8.0", .shared_bytes = 163 << 10, .n_multiprocessors = 108},
    {.model = "NVIDIA A40, compute capability 8.6", .shared_bytes = 99 << 10, .n_multiprocessors = 84},
    {.model = "NVIDIA L40, compute capability 8.9", .shared_bytes = 99 << 10, .n_multiprocessors = 142},
    {.model = "NVIDIA H200/NVL, compute capability 9.0", .shared_bytes = 227 << 10, .n_multiprocessors = 132},
    {.model = "NVIDIA B200, compute capability 10.0", .shared_bytes = 227 << 10, .n_multiprocessors = 148},
    {.model = "NVIDIA GeForce RTX 4090, compute capability 8.9", .shared_bytes = 99 << 10, .n_multiprocessors = 128},
    {.model = "NVIDIA H100 PCIe, compute capability 9.0", .shared_bytes = 227 << 10, .n_multiprocessors = 114},
};

static const struct channelise_config wide = {.n_chan = 128,
                                              .n_taps = 4,
                                              .w_cutoff = 1,
                                              .sample_bits = 8,
                                              .spectra_per_heap = 16,
                                              .n_batches = 2,
                                              .out_bits = 8,
                                              .dither = true,
                                              .append_spectra = 20},
                                      narrow = {.n_chan = 1024,
                                                .n_bins = 2048,
                                                .n_taps = 3,
                                                .w_cutoff = 1,
                                                .spectra_per_heap = 16,
                                                .n_batches = 1,
                                                .out_bits = 8,
                                                .dither = true,
                                                .append_spectra = 10};
static const struct ddc_args ddc = {.n_out = 500, .n_taps = 128, .subsampling = 8, .sample_bits = 10};
static const struct correlate_args correlate = {
    .format = VOLTAGES_8_BITS, .n_ants = 20, .n_chan = 2, .n_spectra = 32, .n_batches = 3};

enum { FRONT, BACK, NARROW, DDC, CORRELATE };
static const struct {
    const struct tuner_kernel *kernel;
    const void *sizes;  /* small ones */
    const char *decide; /* numbers that decide bits */
} kernels[] = {
    [FRONT] = {&channelise_front_tuner, &wide, "front_rows front_radix"},
    [BACK] = {&channelise_back_tuner, &wide, "back_radix"},
    [NARROW] = {&channelise_narrow_tuner, &narrow, "front_radix_a front_radix_b back_radix_a back_radix_b"},
    [DDC] = {&ddc_tuner, &ddc, "columns"},
    [CORRELATE] = {&correlate_tuner, &correlate, ""},
};

static bool is_valid(size_t k, const void *sizes, const void *shape, size_t shared_bytes)
{
    switch (k) {
    case CORRELATE: return correlate_shape_valid(sizes, shape, shared_bytes);
    case DDC: return ddc_grid(sizes, shape).shared_bytes <= shared_bytes && ddc_grid(sizes, shape).threads <= 512;
    case NARROW: return channelise_narrow_valid(sizes, shape, shared_bytes);
    default: return channelise_shape_valid(sizes, shape, shared_bytes);
    }
}

/* All candidates are valid, differ, by their texts too, and come to the same bits; 'base' is the first.  Returns how many. */
static size_t check_candidates(size_t k, const void *sizes, const struct device *device, const void *base)
{
    static char texts[TUNER_MAX_SHAPES][TUNER_TEXT_BYTES];
    const struct tuner_kernel *kernel = kernels[k].kernel;
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS], *shape = shapes;
    size_t n = kernel->candidates(kernel, sizes, device, shapes);

    ck_assert(n <= TUNER_MAX_SHAPES && kernel->n_numbers <= TUNER_MAX_NUMBERS);
    ck_assert(n == 0 || memcmp(shapes, base, kernel->n_numbers * sizeof(*shapes)) == 0);
    for (size_t i = 0; i < n; i++, shape += kernel->n_numbers) {
        ck_assert(is_valid(k, sizes, shape, device->shared_bytes));
        tuner_format(kernel, shape, texts[i]);
        ck_assert_uint_lt(strlen(texts[i]), TUNER_TEXT_BYTES - 1);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(texts[i], texts[j]);
        for (size_t m = 0; m < kernel->n_numbers; m++)
            if (!kernel->numbers[m] || strstr(kernels[k].decide, kernel->numbers[m]))
                ck_assert_uint_eq(shape[m], shapes[m]);
    }
    return n;
}

TEST(wide_candidates, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    static const unsigned taps[] = {1, 4, 16, 17, 32}, bits[] = {2, 8, 10, 16};
    struct device device = gpus[_i];
    struct channelise_config c = wide;

    for (c.n_chan = 64; c.n_chan <= 65536; c.n_chan *= 2)
        for (size_t i = 0; i < ARRAY_LEN(taps) * ARRAY_LEN(bits); i++) {
            c.n_taps = taps[i / ARRAY_LEN(bits)];
            c.sample_bits = bits[i % ARRAY_LEN(bits)];
            struct channelise_shape base = channelise_fused_shape(&c, device.shared_bytes);
            size_t n_front = check_candidates(FRONT, &c, &device, &base);
            size_t n_back = check_candidates(BACK, &c, &device, &base);
            if (is_valid(FRONT, &c, &base, device.shared_bytes))
                ck_assert(n_front > 0 && n_back > 0 && (c.n_taps > 16 || n_front + n_back > 3));
            else
                ck_assert_uint_eq(n_front + n_back, 0);
        }
}

TEST(narrow_candidates, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    static const uint32_t subsamplings[] = {1, 2, 3, 4, 7, 8, 10, 16, 32, 64, 128, 256}, widths[] = {2, 8, 10, 12, 16};
    struct device device = gpus[_i];
    struct channelise_config c = narrow;

    for (c.n_bins = 64; c.n_bins <= 131072; c.n_bins *= 2)
        for (c.n_taps = 1; c.n_taps <= 32; c.n_taps++) {
            struct channelise_narrow_shape base;
            bool fits = channelise_narrow_fits(&c, device.shared_bytes, device.n_multiprocessors, &base);
            ck_assert_uint_eq(check_candidates(NARROW, &c, &device, &base) > 0, fits);
        }
    for (size_t i = 0; i < ARRAY_LEN(subsamplings) * ARRAY_LEN(widths); i++) {
        const struct ddc_args args = {.n_out = 1000,
                                      .n_taps = 16 * subsamplings[i / ARRAY_LEN(widths)],
                                      .subsampling = subsamplings[i / ARRAY_LEN(widths)],
                                      .sample_bits = widths[i % ARRAY_LEN(widths)]};
        struct ddc_shape base = ddc_default_shape(&args);
        ck_assert_uint_gt(check_candidates(DDC, &args, &device, &base), 3);
    }
}

TEST(correlate_shapes, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    struct device device = gpus[_i];
    struct correlate_args args = correlate;

    device.compiles = true;
    for (args.n_ants = 1; args.n_ants <= 512; args.n_ants++)
        for (args.format = VOLTAGES_4_BITS; args.format <= VOLTAGES_16_BITS; args.format++) {
            struct correlate_shape base = correlate_device_shape(&args, &device);
            size_t n = check_candidates(CORRELATE, &args, &device, &base);
            ck_assert_uint_eq(base.wgmma, args.n_ants >= 17 && strstr(device.model, "capability 9.0"));
            ck_assert(correlate_sums_real(args.format) ? n == 1 : n >= 2);
        }
}

/* ---- A kernel made up -------------------------------------------------------------------------------------------- */

/* Shapes 1, 2, 3 ... that take so long. */
static struct made_up {
    int64_t ns[5];
    size_t n;
    int create_err;     /* of the last shape */
    size_t alloc_bytes; /* of each */
    size_t n_created;
} made_up;

static size_t made_up_candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                                 void *shapes)
{
    for (uint32_t i = 0; i < made_up.n; i++)
        ((uint32_t *)shapes)[i] = i + 1;
    return made_up.n;
}

static void made_up_sizes(const void *sizes, char *to, size_t bytes)
{
    snprintf(to, bytes, "size %u", *(const unsigned *)sizes);
}

static int made_up_create(struct tuner_bed *bed, const void *sizes, const void *shape, void *work)
{
    *(uint32_t *)work = *(const uint32_t *)shape;
    made_up.n_created++;
    tuner_alloc(bed, made_up.alloc_bytes, TUNER_HALVES);
    tuner_alloc(bed, made_up.alloc_bytes, TUNER_PINNED);
    return *(uint32_t *)work == made_up.n ? made_up.create_err : 0;
}

static void made_up_queue(void *work, struct device_stream *stream)
{
    for (int64_t end_ns = clock_monotonic_ns() + made_up.ns[*(uint32_t *)work - 1]; clock_monotonic_ns() < end_ns;)
        ;
}

static void made_up_destroy(void *work)
{
}

static const char *const made_up_numbers[] = {"width"};
static const struct tuner_kernel made_up_kernel = {"made_up",        made_up_numbers,    1,
                                                   sizeof(uint32_t), made_up_candidates, made_up_sizes,
                                                   made_up_create,   made_up_queue,      made_up_destroy};
static uint32_t loaded;
static const struct tuner_job job = {&made_up_kernel, &(const unsigned){5}, "out", "some.key", &loaded},
                              other_output = {&made_up_kernel, &(const unsigned){5}, "other", "some.key", &loaded},
                              other_size = {&made_up_kernel, &(const unsigned){6}, "out", "some.key", &loaded};

/* The cpu device with a GPU's model. */
static struct device *open_made_up(int i)
{
    struct device *device = test_open_kind(DEVICE_CPU, 1);

    device->compiles = true;
    device->cache_directory = directory;
    strcpy(device->model, gpus[i].model);
    made_up = (struct made_up){.ns = {800000, 600000, 3000, 2000000, 799000}, .n = 5, .alloc_bytes = 100000};
    return device;
}

static uint32_t load(struct device *device, const struct tuner_job *of)
{
    loaded = 0;
    tuner_load(device, "program", of);
    return loaded;
}

/* Returns how many shapes were measured; 'words' are of the sentence of an error. */
static size_t tune(struct device *device, const struct tuner_job *jobs, size_t n, int expected, const char *words)
{
    char why[500] = "";

    made_up.n_created = 0;
    ck_assert_int_eq(tuner_run(device, jobs, n, why, sizeof(why)), expected);
    ck_assert_msg(strstr(why, words) && (expected || !why[0]), "'%s' has no '%s'", why, words);
    return made_up.n_created;
}

/* The fastest is found and taken by the next start; equal jobs are measured once. */
TEST(fastest_is_kept, .unless = test_on_cuda())
{
    struct device *device = open_made_up(3);
    const struct tuner_job jobs[] = {job, other_output, other_size};

    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_uint_eq(tune(device, jobs, 3, 0, ""), 10);
    ck_assert_uint_eq(count_files(false), 2);
    ck_assert(load(device, &job) == 3 && load(device, &other_size) == 3);
    made_up.ns[1] = 1; /* measured again */
    tune(device, &job, 1, 0, "");
    ck_assert(load(device, &job) == 2 && load(device, &other_size) == 3);
    for (made_up.n = 1; made_up.n < 2; made_up.n--) { /* another program, in which 2 and 3 are no candidates any more */
        ck_assert_uint_eq(load(device, &job), made_up.n);
        ck_assert_uint_eq(tune(device, jobs, 3, 0, ""), 0); /* nothing to choose from */
    }
    device->compiles = false;
    made_up.n = 5;
    ck_assert_uint_eq(load(device, &job), 0);
    ck_assert_uint_eq(tune(device, jobs, 3, 0, ""), 0);
    device_close(device);
}

TEST(what_cannot_be_measured, .unless = test_on_cuda())
{
    struct device *device = open_made_up(0);

    made_up.create_err = -ENOMEM; /* of one candidate */
    made_up.ns[4] = 1;
    tune(device, &job, 1, 0, "");
    ck_assert_uint_eq(load(device, &job), 3);
    made_up.create_err = -EIO;
    tune(device, &job, 1, -EIO, "some.key: output out cannot be measured: Input/output error");
    ck_assert_uint_eq(load(device, &job), 3); /* of before */
    device->cache_directory = "/tmp/cbf-tune-is-not-there";
    ck_assert_uint_eq(
        tune(device, &job, 1, -ENOENT, "device.kernel_cache: /tmp/cbf-tune-is-not-there cannot be written"), 0);
    device->cache_directory = NULL;
    ck_assert_uint_eq(tune(device, &job, 1, -ENOENT, "device.kernel_cache: "), 0);
    ck_assert_uint_eq(load(device, &job), 1);
    device_close(device);
}

#ifdef CBF_SANITIZE
#define NEVER_REFUSED "a sanitizer ends the process that asks for too much memory"
#else
#define NEVER_REFUSED NULL
#endif

TEST(too_little_memory_to_measure, .unless = test_on_cuda(), .skip = NEVER_REFUSED)
{
    struct device *device = open_made_up(0);

    tune(device, &job, 1, 0, "");
    made_up.alloc_bytes = (size_t)1 << 60;
    tune(device, &job, 1, -ENOMEM, "some.key: there is not enough memory to measure output out");
    ck_assert_uint_eq(load(device, &job), 3); /* of before */
    device_close(device);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void spew(const char *what, size_t bytes)
{
    FILE *file = fopen(path, "w");

    ck_assert_uint_eq(fwrite(what, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* Writes the kept text with the first 'old' replaced, and loads it. */
static uint32_t load_changed(struct device *device, const char *old, const char *new)
{
    char changed[8192];
    const char *at = strstr(text, old);

    ck_assert_msg(at != NULL, "no '%s' in %s", old, text);
    spew(changed,
         (size_t)snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, new, at + strlen(old)));
    return load(device, &job);
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
    char long_text[5000];

    tune(device, &job, 1, 0, "");
    ck_assert_uint_eq(count_files(false), 1);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    ck_assert_uint_eq(load(other, &job), 1);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        ck_assert_msg(load_changed(device, changes[i][0], changes[i][1]) == 1, "with '%s'", changes[i][1]);
    ck_assert_uint_eq(load_changed(device, "width 3", "width 2"), 2); /* somebody's hand */
    for (size_t n = 0; n < strlen(text); n++) {
        spew(text, n);
        ck_assert_uint_eq(load(device, &job), 1);
    }
    memset(long_text, '#', sizeof(long_text));
    spew(long_text, sizeof(long_text));
    ck_assert_uint_eq(load(device, &job), 1);
    ck_assert_uint_eq(load_changed(device, "", ""), 3);
    for (int i = 0; i < 4; i++) { /* others may change the file, or the directory */
        ck_assert_int_eq(chmod(i < 2 ? path : directory, i % 2 ? 0755 : 0777), 0);
        ck_assert_uint_eq(load(device, &job), i % 2 ? 3 : 1);
    }
    ck_assert_int_eq(unlink(path) | mkdir(path, 0755), 0);
    ck_assert_uint_eq(load(device, &job), 1);
    device_close(other);
    device_close(device);
}

/* Tunes and loads again and again.  Returns 0, or 1 where something other than the first two shapes was loaded. */
static int write_and_read(struct device *device)
{
    for (int i = 0; i < 3; i++) {
        tune(device, &job, 1, 0, "");
        for (int j = 0; j < 50; j++)
            if (load(device, &job) - 1 > 1)
                return 1;
    }
    return 0;
}

/* Writers of the same choice at once, and readers: each sees one of those written, whole. */
TEST(several_at_once, .unless = test_on_cuda())
{
    struct device *device = open_made_up(3);
    int status;

    made_up.n = 2;
    made_up.ns[0] = 5000;
    for (int writer = 0; writer < 6; writer++) {
        made_up.ns[1] = writer % 2 ? 100 : 100000; /* the others keep the default */
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
            _exit(write_and_read(device));
    }
    while (wait(&status) > 0)
        ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(count_files(false), 1);
    device_close(device);
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

/* A hash of the memory that a shape has worked on once. */
static struct hash run_shape(const struct test_device *d, int k, const void *shape)
{
    struct tuner_bed bed = {.device = d->device, .stream = d->stream};
    struct hash hash = HASH_START;
    void *work = calloc(1, kernels[k].kernel->work_bytes);

    ck_assert_int_eq(kernels[k].kernel->create(&bed, kernels[k].sizes, shape, work), 0);
    kernels[k].kernel->queue(work, d->stream);
    device_stream_wait(d->stream);
    for (const struct tuner_memory *m = bed.memory; m < bed.memory + bed.n_memory; m++) {
        void *host = malloc(m->bytes);
        test_download(d, host, m->at, m->bytes);
        hash_bytes(&hash, host, m->bytes);
        free(host);
        (m->pinned ? device_free_pinned : device_free)(d->device, m->at);
    }
    kernels[k].kernel->destroy(work);
    free(work);
    return hash;
}

TEST_ON_DEVICE(no_bit_depends_on_the_choice, .end = ARRAY_LEN(kernels))
{
    const struct tuner_kernel *kernel = kernels[_i].kernel;
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    size_t n = kernel->candidates(kernel, kernels[_i].sizes, d->device, shapes);

    ck_assert_uint_gt(n, 1);
    struct hash expected = run_shape(d, _i, shapes);
    for (size_t round = 0; round < (test_on_cuda() ? n : 3); round++) {
        const uint32_t *shape = shapes + (test_on_cuda() ? round : 1 + random_below(n - 1)) * kernel->n_numbers;
        struct hash got = run_shape(d, _i, shape);
        tuner_format(kernel, shape, text);
        ck_assert_msg(memcmp(&got, &expected, sizeof(got)) == 0, "%s differs from the default", text);
    }
}

static void start(void)
{
    umask(022);
    random_start();
}

SUITE(.timeout_s = 300, .setup = setup, .teardown = teardown, .start = start);
