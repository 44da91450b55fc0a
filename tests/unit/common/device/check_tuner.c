/* check_tuner - the candidates of all kernels for made-up GPUs, the search with made-up times, and the file that keeps
 * the result.  On the emulated device, or with CBF_TEST_DEVICE=cuda on a GPU: no bit of output depends on the shape. */
#include "common/device/tuner.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "kernels/correlate/correlate_tuner.h"
#include "kernels/ddc/ddc_tuner.h"
#include "kernels/filterbank/channelise_tuner.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Ten times the compute capability, shared memory of a block in KiB, multiprocessors. */
static const unsigned gpus[][3] = {{80, 163, 108},  {86, 99, 84},  {89, 99, 142}, {90, 227, 132},
                                   {100, 227, 148}, {89, 99, 128}, {90, 227, 114}};

#define COMMON .w_cutoff = 1, .spectra_per_heap = 16, .out_bits = 8, .dither = true
static const struct channelise_config
    wide = {.n_chan = 128, .n_taps = 4, .sample_bits = 8, .n_batches = 2, .append_spectra = 20, COMMON},
    narrow = {.n_chan = 1024, .n_bins = 2048, .n_taps = 3, .n_batches = 1, .append_spectra = 10, COMMON};
static const struct ddc_args ddc = {.n_out = 500, .n_taps = 128, .subsampling = 8, .sample_bits = 10};
static const struct correlate_args correlate = {
    .format = VOLTAGES_8_BITS, .n_ants = 20, .n_chan = 2, .n_spectra = 32, .n_batches = 3};

enum { FRONT, BACK, NARROW, DDC, CORRELATE };
static const struct {
    const struct tuner_kernel *kernel;
    const void *sizes;  /* small sizes */
    const char *decide; /* names of the numbers that decide bits */
} kernels[] = {{&channelise_front_tuner, &wide, "front_rows front_radix"},
               {&channelise_back_tuner, &wide, "back_radix"},
               {&channelise_narrow_tuner, &narrow, "front_radix_a front_radix_b back_radix_a back_radix_b"},
               {&ddc_tuner, &ddc, "columns"},
               {&correlate_tuner, &correlate, ""}};

/* Checks that all candidates are valid, have different texts and give the same bits, and that the first is the default.
 * Returns the number of candidates. */
static size_t check_candidates(size_t k, const void *sizes, const struct device *device, const void *base)
{
    static char texts[TUNER_MAX_SHAPES][TUNER_TEXT_BYTES];
    const struct tuner_kernel *kernel = kernels[k].kernel;
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    size_t n = kernel->candidates(kernel, sizes, device, shapes);

    ck_assert(n <= TUNER_MAX_SHAPES && kernel->n_numbers <= TUNER_MAX_NUMBERS);
    ck_assert(n == 0 || memcmp(shapes, base, kernel->n_numbers * sizeof(*shapes)) == 0);
    for (size_t i = 0; i < n; i++) {
        const void *shape = shapes + i * kernel->n_numbers;
        bool valid = k == CORRELATE ? correlate_shape_valid(sizes, shape, device->shared_bytes)
                     : k == NARROW  ? channelise_narrow_valid(sizes, shape, device->shared_bytes)
                     : k != DDC     ? channelise_shape_valid(sizes, shape, device->shared_bytes)
                                    : ddc_grid(sizes, shape).shared_bytes <= device->shared_bytes &&
                                      ddc_grid(sizes, shape).threads <= 512;
        tuner_format(kernel, shape, texts[i]);
        ck_assert(valid && strlen(texts[i]) < TUNER_TEXT_BYTES - 1);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(texts[i], texts[j]);
        for (size_t m = 0; m < kernel->n_numbers; m++)
            ck_assert((kernel->numbers[m] && !strstr(kernels[k].decide, kernel->numbers[m])) ||
                      ((const uint32_t *)shape)[m] == shapes[m]);
    }
    return n;
}

TEST(candidates_of_gpus, .end = ARRAY_LEN(gpus), .unless = test_on_cuda())
{
    static const uint32_t subsamplings[] = {1, 2, 3, 4, 7, 8, 10, 16, 32, 64, 128, 256}, bits[] = {2, 8, 10, 16, 12};
    struct device gpu = {.compiles = true, .shared_bytes = gpus[_i][1] << 10, .n_multiprocessors = gpus[_i][2]};
    struct channelise_config w = wide, c = narrow;
    struct channelise_narrow_shape narrow_base;

    snprintf(gpu.model, sizeof(gpu.model), "compute capability %.1f", gpus[_i][0] / 10.0);
    /* All combinations of 12 sizes, 32 numbers of taps and 5 widths, and of 512 numbers of antennas and 4 formats. */
    for (uint32_t i = 0; i < 512 * 4; i++) {
        w.n_chan = 64u << i % 12 % 11;
        c.n_bins = 64u << i % 12;
        w.n_taps = c.n_taps = 1 + i / 12 % 32;
        w.sample_bits = bits[i / 12 / 32 % 5];
        uint32_t ratio = subsamplings[i % 12];
        struct ddc_args a = {.n_out = 1000, .n_taps = 16 * ratio, .subsampling = ratio, .sample_bits = w.sample_bits};
        struct correlate_args x = {
            .format = i / 512, .n_ants = 1 + i % 512, .n_chan = 2, .n_spectra = 32, .n_batches = 3};
        struct channelise_shape base = channelise_fused_shape(&w, gpu.shared_bytes);
        struct ddc_shape ddc_base = ddc_default_shape(&a);
        struct correlate_shape x_base = correlate_device_shape(&x, &gpu);
        bool fits = channelise_narrow_fits(&c, gpu.shared_bytes, gpu.n_multiprocessors, &narrow_base);
        size_t front = check_candidates(FRONT, &w, &gpu, &base), back = check_candidates(BACK, &w, &gpu, &base);
        size_t n = check_candidates(CORRELATE, &x, &gpu, &x_base);
        bool valid = channelise_shape_valid(&w, &base, gpu.shared_bytes);
        ck_assert(valid ? front > 0 && back > 0 && (w.n_taps > 16 || front + back > 3) : front + back == 0);
        ck_assert((check_candidates(NARROW, &c, &gpu, &narrow_base) > 0) == fits);
        ck_assert_uint_gt(check_candidates(DDC, &a, &gpu, &ddc_base), 3);
        ck_assert_uint_eq(x_base.wgmma, x.n_ants >= 17 && gpus[_i][0] == 90);
        ck_assert(correlate_sums_real(x.format) ? n == 1 : n >= 2);
    }
}

/* Runs candidates once, and compares all memory of each run. */
TEST_ON_DEVICE(no_bit_depends_on_the_choice, .end = ARRAY_LEN(kernels))
{
    const struct tuner_kernel *kernel = kernels[_i].kernel;
    uint32_t shapes[TUNER_MAX_SHAPES * TUNER_MAX_NUMBERS];
    size_t n = kernel->candidates(kernel, kernels[_i].sizes, d->device, shapes);
    struct hash first;

    for (size_t round = 0; round < (test_on_cuda() ? n : 4); round++) {
        size_t i = test_on_cuda() || round == 0 ? round : 1 + random_below(n - 1);
        struct tuner_bed bed = {.device = d->device, .stream = d->stream};
        struct hash hash = HASH_START;
        void *work = calloc(1, kernel->work_bytes);
        ck_assert(n > 1 && kernel->create(&bed, kernels[_i].sizes, shapes + i * kernel->n_numbers, work) == 0);
        kernel->queue(work, d->stream);
        for (const struct tuner_memory *m = bed.memory; m < bed.memory + bed.n_memory; m++) {
            void *host = malloc(m->bytes);
            test_download(d, host, m->at, m->bytes);
            hash_bytes(&hash, host, m->bytes);
            free(host);
            (m->pinned ? device_free_pinned : device_free)(d->device, m->at);
        }
        kernel->destroy(work);
        free(work);
        first = round == 0 ? hash : first;
        ck_assert_msg(memcmp(&hash, &first, sizeof(hash)) == 0, "candidate %zu differs from the default", i);
    }
}

/* ---- The search and its file ------------------------------------------------------------------------------------- */

static const char path[] = "GPU-0-ddc-subsampling-8--128-taps--10-bits--500-at-a-time.tuned";
static struct device *device;       /* the cpu device, which claims to be a GPU */
static struct tuner_kernel made_up; /* the kernel ddc with the shapes 1, 2, 3 ... and made-up times */
static const struct ddc_args other = {.n_out = 600, .n_taps = 128, .subsampling = 8, .sample_bits = 10};
static uint32_t loaded;
static const struct tuner_job jobs[] = {{&made_up, &ddc, "out", "some.key", &loaded},
                                        {&made_up, &ddc, "out2", "some.key", &loaded},
                                        {&made_up, &other, "out", "some.key", &loaded}};
static struct step {
    int64_t n_shapes, alloc_bytes, last_ns, last_err; /* time of the last shape, and error of its creation */
    bool compiles;
    const char *directory, *words;                        /* words of the error */
    int64_t n_jobs, n_created, err, loaded, loaded_other; /* n_created is a countdown while the tuner runs */
} step;

static size_t list_shapes(const struct tuner_kernel *kernel, const void *sizes, const struct device *on, void *shapes)
{
    memcpy(shapes, (const uint32_t[]){1, 2, 3, 4, 5}, (size_t)step.n_shapes * sizeof(uint32_t));
    return (size_t)step.n_shapes;
}

static int made_up_create(struct tuner_bed *bed, const void *sizes, const void *shape, void *work)
{
    step.n_created--;
    tuner_alloc(bed, (size_t)step.alloc_bytes, TUNER_HALVES);
    tuner_alloc(bed, (size_t)step.alloc_bytes, TUNER_PINNED);
    return (*(uint32_t *)work = *(const uint32_t *)shape) == step.n_shapes ? (int)step.last_err : 0;
}

static void made_up_queue(void *work, struct device_stream *stream)
{
    const int64_t start_ns = clock_monotonic_ns(), times_ns[] = {0, 800000, 600000, 3000, 2000000, step.last_ns};

    while (clock_monotonic_ns() < start_ns + times_ns[*(uint32_t *)work])
        ;
}

static void setup(void)
{
    char directory[] = "/tmp/cbf-tune-XXXXXX";

    umask(022);
    ck_assert(mkdtemp(directory) && chdir(directory) == 0);
    step = (struct step){5, 100000, 799000, 0, true, "."};
    device = test_open_kind(DEVICE_CPU, 1);
    device->compiles = true;
    device->cache_directory = ".";
    strcpy(device->model, "GPU/0");
    made_up = ddc_tuner;
    made_up.n_numbers = 1;
    made_up.candidates = list_shapes;
    made_up.create = made_up_create;
    made_up.queue = made_up_queue;
}

/* Checks that no other files are left. */
static void teardown(void)
{
    ck_assert_int_eq(system("rm -rf GPU-0-*.tuned && rmdir $PWD"), 0);
    device_close(device);
}

static uint32_t load(const struct tuner_job *job)
{
    loaded = 0;
    tuner_load(device, "program", job);
    return loaded;
}

TEST(search, .setup = setup, .teardown = teardown, .unless = test_on_cuda())
{
    static const struct step steps[] = {
        {5, 100000, 799000, 0, true, ".", "", 3, 10, 0, 3, 3}, /* equal jobs are measured once */
        {5, 100000, 1, 0, true, ".", "", 1, 5, 0, 5, 3},
        {1, 100000, 1, 0, true, ".", "", 3, 0, 0, 1, 1}, /* the saved shapes are no candidates any more */
        {0, 100000, 1, 0, true, ".", "", 3, 0, 0, 0, 0},
        {5, 100000, 1, 0, false, ".", "", 3, 0, 0, 0, 0},
        {5, 100000, 1, -ENOMEM, true, ".", "", 1, 5, 0, 3, 3},
        {5, 100000, 1, -EIO, true, ".", "some.key: output out cannot be measured: Input/output", 1, 5, -EIO, 3, 3},
        {5, -1, 1, 0, true, ".", "some.key: there is not enough memory to measure output out", 1, 5, -ENOMEM, 3, 3},
        {5, 100000, 1, 0, true, "none", "device.kernel_cache: none cannot be written", 1, 0, -ENOENT, 1, 1},
        {5, 100000, 1, 0, true, NULL, "device.kernel_cache: ", 1, 0, -ENOENT, 1, 1}};

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        char why[500] = "";
        step = steps[i];
        device->compiles = step.compiles;
        device->cache_directory = step.directory;
        ck_assert_int_eq(tuner_run(device, jobs, (size_t)step.n_jobs, why, sizeof(why)), step.err);
        ck_assert_msg(strstr(why, step.words) && !why[0] == !step.err, "step %zu: '%s'", i, why);
        ck_assert(step.n_created == 0 && load(&jobs[0]) == step.loaded && load(&jobs[2]) == step.loaded_other);
    }
}

/* Several processes save shape 3 or 5 at once, and each load finds one of them.  Wrong files are ignored. */
TEST(file_is_whole_and_checked, .setup = setup, .teardown = teardown, .unless = test_on_cuda())
{
    char text[4096] = "", changed[8192];

    ck_assert(load(&jobs[0]) == 1 && mkdir(path, 0755) == 0 && load(&jobs[0]) == 1 && rmdir(path) == 0);
    for (int child = 0; child < 6; child++)
        if (fork() == 0) {
            step.last_ns = child % 2 ? 1 : 799000;
            for (size_t i = 0; i < 150; i++)
                ck_assert(tuner_run(device, jobs, i % 50 == 0, text, sizeof(text)) == 0 && load(&jobs[0]) >= 3);
            _exit(0);
        }
    for (int status = 0; wait(&status) > 0;)
        ck_assert_int_eq(status, 0);
    const uint32_t saved = load(&jobs[0]);
    FILE *file = fopen(path, "r");
    ck_assert(fread(text, 1, sizeof(text) - 1, file) > 0 && fclose(file) == 0);
    ck_assert(
        strstr(text, "kernel: ddc\ngpu: GPU/0\nsizes: subsampling 8, 128 taps, 10 bits, 500 at a time\nkernels: "));
    file = fopen(path, "w");
    ck_assert(fprintf(file, "%s%5000s", text, "") > 5000 && fclose(file) == 0 && load(&jobs[0]) == 1);
    snprintf(changed, sizeof(changed), "%s", text);
    *strpbrk(strstr(changed, "n_warps"), "35") = '2'; /* a valid file of somebody's hand */
    file = fopen(path, "w");
    ck_assert(fputs(changed, file) >= 0 && fclose(file) == 0 && load(&jobs[0]) == 2);
    /* For each byte, the text ends before the byte, or the byte is changed, inserted changed, or left out. */
    for (size_t i = 0; i < 2 * strlen(text) + 2; i++) {
        size_t n = i / 2, edit = i % 2 ? 0 : 1 + (strlen(text) - n) % 3;
        snprintf(changed, sizeof(changed), "%.*s%.*s%s", (int)n, text, edit == 1 || edit == 2, (char[]){text[n] ^ 4},
                 edit == 0 ? "" : text + n + (edit != 2));
        file = fopen(path, "w");
        ck_assert(fputs(changed, file) >= 0 && fclose(file) == 0);
        ck_assert_msg(load(&jobs[0]) == (strcmp(changed, text) == 0 ? saved : 1), "%s", changed);
    }
    for (int i = 0; i < 4; i++) /* others may change the file, or the directory */
        ck_assert(chmod(i < 2 ? path : ".", i % 2 ? 0755 : 0777) == 0 && load(&jobs[0]) == (i % 2 ? saved : 1));
    ck_assert(strcpy(device->model, "GPU/1") && load(&jobs[0]) == 1);
}

SUITE(.timeout_s = 300, .start = random_start);
