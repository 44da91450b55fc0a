/* check_correlate - the plain C version against the definition, in 64-bit integers, or in double for voltages of half
 * floats.  The CUDA variant, in all shapes, is compared with the C version. */
#include "kernels/correlate/correlate.h"

#include "common/base/units.h"
#include "kernels/correlate/correlate_shape.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define GUARD 16

static const enum voltage_format formats[] = {VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET, VOLTAGES_8_BITS,
                                              VOLTAGES_16_BITS};
static const char *const format_names[] = {"4 bits", "4 bits offset", "8 bits", "16 bits"};

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* The sum of a part, and of the magnitudes of what is summed; integers of full scale stay below 2^53. */
struct model_sum {
    double sum[2], magnitude[2];
};

/* One product of one baseline and channel: a1 <= a2. */
static struct model_sum model(const struct correlate_args *a, size_t a1, size_t p1, size_t a2, size_t p2, size_t chan)
{
    struct model_sum m = {{0}, {0}};

    for (size_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
        for (size_t s = 0; s < a->n_spectra; s++) {
            size_t e1 = (((batch * a->n_ants + a1) * a->n_chan + chan) * a->n_spectra + s) * 2 + p1;
            size_t e2 = (((batch * a->n_ants + a2) * a->n_chan + chan) * a->n_spectra + s) * 2 + p2;
            double r1 = voltage_part(a->voltages, a->format, e1, 0), i1 = voltage_part(a->voltages, a->format, e1, 1);
            double r2 = voltage_part(a->voltages, a->format, e2, 0), i2 = voltage_part(a->voltages, a->format, e2, 1);
            m.sum[0] += r1 * r2 + i1 * i2;
            m.sum[1] += i1 * r2 - r1 * i2;
            m.magnitude[0] += fabs(r1 * r2) + fabs(i1 * i2);
            m.magnitude[1] += fabs(i1 * r2) + fabs(r1 * i2);
        }
    return m;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static size_t voltages_bytes(const struct correlate_args *a, size_t n_batches)
{
    return n_batches * a->n_ants * a->n_chan * a->n_spectra * N_POLS * voltage_bytes(a->format);
}

union sum {
    int32_t integer;
    float real;
};

/* Such that there is room for the products of 'a'. */
static union sum random_sum(const struct correlate_args *a)
{
    uint32_t room = INT32_MAX - a->n_batches * a->n_spectra * (1u << 15);

    if (correlate_sums_real(a->format))
        return (union sum){.real = (float)random_between(-1, 1)};
    return (union sum){.integer = (int32_t)((int64_t)random_below(2 * (uint64_t)room + 1) - room)};
}

/* Floats to within the rounding of the sum in memory. */
static bool is_right(enum voltage_format format, union sum before, const struct model_sum *m, int part, union sum after)
{
    double sum = (double)before.real + m->sum[part];

    if (correlate_sums_real(format))
        return fabs((double)after.real - sum) <= 0x1p-24 * fabs(sum) + 1e-12 * m->magnitude[part];
    return after.integer == before.integer + (int64_t)m->sum[part];
}

/* The sums are added to what is there; every product of every baseline is compared. */
static void run_and_compare(struct correlate_args *a, int n_threads)
{
    size_t n_baselines = (size_t)a->n_ants * (a->n_ants + 1) / 2;
    size_t n = n_baselines * a->n_chan * N_POL_PRODUCTS * 2;
    union sum *sums = malloc((n + GUARD) * sizeof(*sums)), *before = malloc((n + GUARD) * sizeof(*sums));

    ck_assert(sums && before);
    for (size_t i = 0; i < n + GUARD; i++)
        before[i] = sums[i] = random_sum(a);
    a->sums.integer = &sums->integer;
    correlate_kernel.cpu(a, n_threads);
    for (size_t chan = 0; chan < a->n_chan; chan++)
        for (size_t a2 = 0, baseline = 0; a2 < a->n_ants; a2++)
            for (size_t a1 = 0; a1 <= a2; a1++, baseline++)
                for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
                    size_t at = ((chan * n_baselines + baseline) * N_POL_PRODUCTS + product) * 2;
                    struct model_sum m = model(a, a1, product % 2, a2, product / 2, chan);
                    for (int part = 0; part < 2; part++)
                        if (!is_right(a->format, before[at + (size_t)part], &m, part, sums[at + (size_t)part]))
                            ck_abort_msg("%s ants %u chans %u spectra %u: ants %zu, %zu product %zu chan %zu is wrong",
                                         format_names[a->format], a->n_ants, a->n_chan, a->n_spectra, a1, a2, product,
                                         chan);
                }
    ck_assert_mem_eq(sums + n, before + n, GUARD * sizeof(*sums));
    free(before);
    free(sums);
}

/* Any bits are a voltage, but for half floats that are infinite or not a number. */
static void random_voltages(enum voltage_format format, void *voltages, size_t bytes)
{
    uint16_t *halves = voltages;

    random_bytes(voltages, bytes);
    for (size_t i = 0; format == VOLTAGES_16_BITS && i < bytes / 2; i++)
        if ((halves[i] & 0x7C00) == 0x7C00)
            halves[i] ^= 0x4000;
}

static void run_random(struct correlate_args *a, size_t n_batches, int n_threads)
{
    size_t bytes = voltages_bytes(a, n_batches);
    void *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    random_voltages(a->format, voltages, bytes);
    a->voltages = voltages;
    run_and_compare(a, n_threads);
    free(voltages);
}

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

/* Sums after the launch of 'args', whose sums are host memory, as CUDA leaves them. */
static void launch(struct test_device *d, struct correlate_args args, size_t n_batches,
                   const struct correlate_shape *shape, uint32_t n_parts, union sum *sums, size_t n_sums)
{
    struct correlate_kernels kernels;

    ck_assert_int_eq(correlate_kernels_create(d->device, &args, shape, &kernels), 0);
    args.voltages = test_copy_in(d, args.voltages, voltages_bytes(&args, n_batches));
    args.sums.integer = test_copy_in(d, sums, n_sums * sizeof(*sums));
    correlate_kernels_launch(&kernels, d->stream, &args, n_parts);
    test_download(d, sums, args.sums.integer, n_sums * sizeof(*sums));
    correlate_kernels_destroy(&kernels);
}

/* Integers are the same; half floats, whose parts are below 2 here, within float32 sums: those of matrix units are cut
 * off, not rounded, with every operation of 8 spectra, so they lose up to a last place of the largest sum each time. */
static bool is_same(const struct correlate_args *a, union sum plain_c, union sum cuda)
{
    double largest = 8.0 * a->n_spectra * a->n_batches, operations = a->n_spectra * a->n_batches / 8.0;

    if (correlate_sums_real(a->format))
        return fabs((double)plain_c.real - (double)cuda.real) <= 0x1p-23 * largest * (operations + 8);
    return plain_c.integer == cuda.integer;
}

static bool on_a_gpu(const struct test_device *d)
{
    return strcmp(device_name(d->device), "emulated") != 0;
}

/* Adds 'args' to random sums by the C version and by CUDA, and compares them all; 'shape' NULL: the default. */
static void compare_variants(struct test_device *d, struct correlate_args *a, size_t n_batches,
                             const struct correlate_shape *shape, uint32_t n_parts)
{
    size_t n = correlate_n_baselines(a->n_ants) * a->n_chan * N_POL_PRODUCTS * 2;
    union sum *plain_c = malloc((n + GUARD) * sizeof(*plain_c)), *cuda = malloc((n + GUARD) * sizeof(*cuda));
    struct correlate_shape chosen = shape ? *shape : correlate_default_shape(a, device_shared_bytes(d->device));
    char text[200];

    ck_assert(plain_c && cuda);
    for (size_t i = 0; i < n + GUARD; i++)
        plain_c[i] = cuda[i] = random_sum(a);
    a->sums.integer = &plain_c->integer;
    correlate_kernel.cpu(a, on_a_gpu(d) ? 8 : 2); /* where there is a GPU there are CPUs */
    launch(d, *a, n_batches, &chosen, n_parts, cuda, n + GUARD);
    correlate_shape_format(&chosen, text, sizeof(text));
    for (size_t i = 0; i < n && !device_emulated_only_compiles(); i++)
        if (!is_same(a, plain_c[i], cuda[i]))
            ck_abort_msg("%s, %u ants, %u chans, %u spectra, batches %u + %u, %u parts of time, %s: part %zu, product "
                         "%zu, baseline %zu, chan %zu is wrong: %d or %.9g, must be %d or %.9g",
                         format_names[a->format], a->n_ants, a->n_chan, a->n_spectra, a->first_batch, a->n_batches,
                         n_parts, text, i % 2, i / 2 % N_POL_PRODUCTS, i / 8 % correlate_n_baselines(a->n_ants),
                         i / 8 / correlate_n_baselines(a->n_ants), cuda[i].integer, (double)cuda[i].real,
                         plain_c[i].integer, (double)plain_c[i].real);
    ck_assert_mem_eq(plain_c + n, cuda + n, GUARD * sizeof(*plain_c));
    free(cuda);
    free(plain_c);
}

/* Half floats are of any size from 1/8 to below 2. */
static void compare_random(struct test_device *d, struct correlate_args *a, size_t n_batches,
                           const struct correlate_shape *shape, uint32_t n_parts)
{
    size_t bytes = voltages_bytes(a, n_batches);
    uint16_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    random_bytes(voltages, bytes);
    for (size_t i = 0; a->format == VOLTAGES_16_BITS && i < bytes / 2; i++)
        voltages[i] = (uint16_t)((voltages[i] & 0x8FFF) | 0x3000);
    a->voltages = voltages;
    compare_variants(d, a, n_batches, shape, n_parts);
    free(voltages);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

TEST(array_sizes, .end = ARRAY_LEN(formats), .group = "cpu")
{
    static const uint32_t n_ants[] = {1, 2, 3, 4, 7, 8, 9, 16, 33};

    for (size_t i = 0; i < ARRAY_LEN(n_ants); i++) {
        struct correlate_args args = {
            .format = formats[_i], .n_ants = n_ants[i], .n_chan = 3, .n_spectra = 48, .n_batches = 1};
        run_random(&args, 1, 1 + (int)(i % 3));
    }
}

TEST(random_shapes, .group = "cpu")
{
    for (int trial = 0; trial < 60; trial++) {
        uint32_t n_batches = 1 + (uint32_t)random_below(5), first = (uint32_t)random_below(n_batches);
        struct correlate_args args = {
            .format = formats[random_below(ARRAY_LEN(formats))],
            .n_ants = 1 + (uint32_t)random_below(11),
            .n_chan = 1 + (uint32_t)random_below(5),
            .n_spectra = 1 + (uint32_t)random_below(300),
            .first_batch = first,
            .n_batches = (uint32_t)random_below(n_batches - first + 1), /* none too */
        };
        run_random(&args, n_batches, 1 + (int)random_below(3));
    }
}

/* The largest sums that there can be, of each sign and in both parts: of a batch of as many spectra as sums hold, and
 * of many batches that make as many together. */
TEST(full_scale, .end = 8, .group = "cpu")
{
    static const struct {
        uint32_t n_spectra, n_batches;
    } sizes[] = {{65535, 1}, {255, 257}};
    static const int8_t values[][4] = {
        {-128, -128, -128, -128}, /* autocorrelations 2^15 a spectrum */
        {-128, -128, -128, 127},  /* imaginary part near 2^15 */
        {127, 127, -128, -128},   /* real part near -2^15 */
        {127, -128, 127, 127},
    };
    struct correlate_args args = {.format = VOLTAGES_8_BITS,
                                  .n_ants = 2,
                                  .n_chan = 1,
                                  .n_spectra = sizes[_i % 2].n_spectra,
                                  .n_batches = sizes[_i % 2].n_batches};
    size_t bytes = voltages_bytes(&args, args.n_batches);
    int8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes; i += 4)
        memcpy(voltages + i, values[_i / 2], 4);
    args.voltages = voltages;
    run_and_compare(&args, 1);
    free(voltages);
}

/* Only the two ends of the range: -128 or 127, -8 or 7. */
TEST(ends_of_the_range, .end = 3, .group = "cpu")
{
    static const uint8_t ends[][2] = {{0x88, 0x77}, {0x00, 0xFF}, {0x80, 0x7F}}; /* by format */
    struct correlate_args args = {.n_ants = 9, .n_chan = 2, .n_spectra = 200, .n_batches = 1, .format = formats[_i]};
    size_t bytes = voltages_bytes(&args, 1);
    uint8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t high = ends[_i][random_below(2)], low = ends[_i][random_below(2)];
        voltages[i] = args.format == VOLTAGES_8_BITS ? high : (uint8_t)((high & 0xF0) | (low & 0x0F));
    }
    args.voltages = voltages;
    run_and_compare(&args, 2);
    free(voltages);
}

/* The byte of a buffer of zeros adds nothing. */
TEST(zeros_are_zero, .end = ARRAY_LEN(formats), .group = "cpu")
{
    struct correlate_args args = {.n_ants = 3, .n_chan = 1, .n_spectra = 32, .n_batches = 1, .format = formats[_i]};
    size_t bytes = voltages_bytes(&args, 1);
    union sum sums[6 * N_POL_PRODUCTS * 2];
    uint8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    memset(voltages, voltage_zero(args.format), bytes);
    memset(sums, 0, sizeof(sums));
    args.voltages = voltages;
    args.sums.integer = &sums->integer;
    correlate_kernel.cpu(&args, 1);
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        ck_assert_int_eq(sums[i].integer, 0); /* as a double too: both parts of a double 0 */
    free(voltages);
}

TEST(baseline_order, .group = "cpu")
{
    static const size_t pairs[][2] = {{0, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 2}};

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        ck_assert_uint_eq(correlate_baseline(pairs[i][0], pairs[i][1]), i);
    ck_assert_uint_eq(correlate_n_baselines(3), ARRAY_LEN(pairs));
}

/* Any array has a shape, of mma.sync, on any GPU; every tile of it that is wanted is there. */
TEST(default_shapes, .group = "cpu")
{
    static const size_t shared_bytes[] = {99 << 10, 163 << 10, 227 << 10};

    for (uint32_t n_ants = 1; n_ants <= 4096; n_ants += n_ants < 300 ? 1 : 97)
        for (size_t i = 0; i < ARRAY_LEN(shared_bytes); i++) {
            struct correlate_args args = {
                .format = VOLTAGES_8_BITS, .n_ants = n_ants, .n_chan = 64, .n_spectra = 256, .n_batches = 8};
            struct correlate_shape shape = correlate_default_shape(&args, shared_bytes[i]);
            struct correlate_plan plan = correlate_plan(&args, &shape);
            ck_assert(!shape.wgmma && correlate_shape_valid(&args, &shape, shared_bytes[i]));
            ck_assert(plan.computed > 0 && plan.computed <= 1);
            ck_assert_uint_le(plan.shared_bytes * shape.resident, shared_bytes[i]);
            ck_assert(n_ants < 300 || plan.computed > 0.6);
        }
}

/* By default a launch fills the device: its blocks and parts of time for several numbers of multiprocessors. */
TEST(grids_by_multiprocessors, .group = "cpu")
{
    static const uint32_t n_multiprocessors[] = {1, 8, 66, 132, 264};
    static const struct {
        uint32_t n_ants, n_chan, n_spectra, n_batches, wgmma;
        uint32_t blocks[ARRAY_LEN(n_multiprocessors)][2];
    } rows[] = {
        {16, 64, 1024, 32, 0, {{64, 1}, {64, 1}, {64, 3}, {64, 6}, {64, 12}}},
        {4, 4, 256, 1, 0, {{4, 1}, {4, 2}, {4, 2}, {4, 2}, {4, 2}}},
        {128, 64, 1024, 32, 0, {{192, 1}, {192, 1}, {192, 1}, {192, 2}, {192, 4}}},
        {64, 64, 1024, 32, 1, {{1, 1}, {8, 1}, {66, 1}, {132, 1}, {264, 1}}},
        {64, 1, 1024, 8, 1, {{1, 1}, {8, 1}, {16, 1}, {16, 1}, {16, 1}}},
    };

    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (size_t i = 0; i < ARRAY_LEN(n_multiprocessors); i++) {
            const struct correlate_args args = {.format = VOLTAGES_8_BITS,
                                                .n_ants = rows[r].n_ants,
                                                .n_chan = rows[r].n_chan,
                                                .n_spectra = rows[r].n_spectra,
                                                .n_batches = rows[r].n_batches};
            struct correlate_kernels kernels = {.shape = {.wgmma = 1}, .n_multiprocessors = n_multiprocessors[i]};
            if (!rows[r].wgmma)
                kernels.shape = correlate_default_shape(&args, 227 << 10);
            struct kernel_grid grid = correlate_kernels_grid(&kernels, &args, 0, 0);
            ck_assert_uint_eq(grid.blocks[0], rows[r].blocks[i][0]);
            ck_assert_uint_eq(grid.blocks[1], rows[r].blocks[i][1]);
            grid = correlate_kernels_grid(&kernels, &args, 0, 3); /* as told */
            ck_assert_uint_eq(grid.blocks[0] * grid.blocks[1],
                              rows[r].wgmma ? n_multiprocessors[i] < 3 ? 1 : 3 : rows[r].blocks[i][0] * 3);
        }
}

/* Defaults of common GPUs, with the shared memory that a block may use: shapes, blocks and parts of time. */
TEST(shapes_of_common_gpus, .group = "cpu")
{
#define RUN(tile, n, in_time, steps, stages, resident)                                                                 \
    "tiles " tile ", " n " runs, " in_time " in time, " steps " steps, " stages " stages, " resident " resident"
#define SQUARES "tiles 4 x 2, squares of 2 x 4, 1 in time, 2 steps, 4 stages, 1 resident"
    static const uint32_t n_ants[] = {4, 16, 64, 80, 128, 256, 1024};
    static const char *const tiles[] = {RUN("1 x 1", "1", "8", "1", "6", "2"),
                                        RUN("2 x 2", "1", "4", "2", "5", "3"),
                                        RUN("2 x 2", "1", "1", "2", "5", "1"),
                                        RUN("2 x 2", "1", "1", "1", "6", "1"),
                                        RUN("2 x 2", "3", "1", "2", "4", "1"),
                                        SQUARES,
                                        SQUARES};
    static const struct {
        struct device device;
        const char *of_16;        /* antennas; NULL: as in tiles */
        uint32_t blocks[7], n[7]; /* n: parts of time */
    } rows[] = {
        {{.model = "A100, compute capability 8.0", .shared_bytes = 163 << 10, .n_multiprocessors = 108},
         NULL,
         {64, 64, 64, 64, 192, 640, 8704},
         {3, 5, 5, 5, 5, 1, 1}},
        {{.model = "L40, compute capability 8.9", .shared_bytes = 99 << 10, .n_multiprocessors = 142},
         RUN("2 x 2", "1", "4", "2", "5", "2"),
         {64, 64, 64, 64, 192, 640, 8704},
         {4, 4, 2, 2, 5, 3, 1}},
        {{.model = "RTX 4090, compute capability 8.9", .shared_bytes = 99 << 10, .n_multiprocessors = 128},
         RUN("2 x 2", "1", "4", "2", "5", "2"),
         {64, 64, 64, 64, 192, 640, 8704},
         {4, 4, 2, 2, 2, 1, 1}},
        {{.model = "H100 PCIe, compute capability 9.0", .shared_bytes = 227 << 10, .n_multiprocessors = 114},
         NULL,
         {64, 64, 114, 114, 114, 114, 114},
         {3, 5, 1, 1, 1, 1, 1}},
        {{.model = "H200, compute capability 9.0", .shared_bytes = 227 << 10, .n_multiprocessors = 132},
         NULL,
         {64, 64, 132, 132, 132, 132, 132},
         {4, 6, 1, 1, 1, 1, 1}},
    };

    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (size_t i = 0; i < ARRAY_LEN(n_ants); i++) {
            const struct correlate_args args = {
                .format = VOLTAGES_8_BITS, .n_ants = n_ants[i], .n_chan = 64, .n_spectra = 1024, .n_batches = 32};
            struct device device = rows[r].device;
            char text[128];
            device.compiles = true;
            struct correlate_kernels kernels = {.shape = correlate_device_shape(&args, &device),
                                                .n_multiprocessors = device_multiprocessors(&device)};
            struct kernel_grid grid = correlate_kernels_grid(&kernels, &args, 0, 0);
            correlate_shape_format(&kernels.shape, text, sizeof(text));
            ck_assert_str_eq(text, kernels.shape.wgmma ? "wgmma" : i == 1 && rows[r].of_16 ? rows[r].of_16 : tiles[i]);
            ck_assert_uint_eq(kernels.shape.wgmma, n_ants[i] >= 17 && device.shared_bytes == 227 << 10);
            ck_assert_uint_eq(grid.blocks[0], rows[r].blocks[i]);
            ck_assert_uint_eq(grid.blocks[1], rows[r].n[i]);
        }
}

/* Every array size with its default shape; on the emulator each with one format, and few spectra. */
TEST_ON_DEVICE(cuda_array_sizes, .end = 13, .group = "cuda")
{
    static const uint32_t n_ants[] = {1, 2, 3, 5, 16, 19, 33, 64, 80, 127, 100, 256, 1024};

    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        struct correlate_args args = {.format = formats[(f + (size_t)_i) % ARRAY_LEN(formats)],
                                      .n_ants = n_ants[_i],
                                      .n_chan = on_a_gpu(d) ? 5 : 2,
                                      .n_spectra = on_a_gpu(d) ? 112 : 48,
                                      .first_batch = 1,
                                      .n_batches = 2};
        if (on_a_gpu(d) || (f == 0 && args.n_ants < 200))
            compare_random(d, &args, 4, NULL, 0);
    }
}

/* Shapes of all kinds, valid ones, on arrays that they may not be meant for. */
TEST_ON_DEVICE(cuda_random_shapes, .end = 12, .group = "cuda_shapes")
{
    for (int i = 0; i < _i; i++)
        random_u64(); /* each round is forked off the same state */
    for (int n_done = 0; n_done < (on_a_gpu(d) ? 2 : 1);) {
        uint32_t n_batches = 1 + (uint32_t)random_below(5), first = (uint32_t)random_below(n_batches);
        struct correlate_args args = {
            .format = formats[random_below(ARRAY_LEN(formats))],
            .n_ants = 1 + (uint32_t)random_below(70),
            .n_chan = 1 + (uint32_t)random_below(3),
            .n_spectra = 16 * (1 + (uint32_t)random_below(5)),
            .first_batch = first,
            .n_batches = 1 + (uint32_t)random_below(n_batches - first),
        };
        struct correlate_shape shape = {
            .row_eights = 1 + (uint32_t)random_below(4),
            .column_eights = 1 + (uint32_t)random_below(3),
            .n_runs = (uint32_t)random_below(4),
            .block_rows = 1 + (uint32_t)random_below(3),
            .block_columns = 1 + (uint32_t)random_below(3),
            .time_warps = 1 + (uint32_t)random_below(3),
            .steps = 1 + (uint32_t)random_below(2),
            .stages = 2 + (uint32_t)random_below(3),
            .resident = 1,
            .atomic_adds = random_below(2),
        };
        if (!correlate_shape_valid(&args, &shape, device_shared_bytes(d->device)))
            continue;
        compare_random(d, &args, n_batches, &shape, 1 + (uint32_t)random_below(3));
        n_done++;
    }
}

/* One size of array in all formats, heaps of any multiple of 16, parts of time; on the emulator large ones in one
 * format. */
static void compare_formats(struct test_device *d, int number, uint32_t n_ants, uint32_t large,
                            const struct correlate_shape *shape)
{
    static const uint32_t n_spectra[] = {16, 48, 32, 64, 80, 128, 192};

    for (size_t f = 0; device_has_wgmma(d->device) && f < ARRAY_LEN(formats); f++) {
        struct correlate_args args = {.format = formats[(f + (size_t)number) % ARRAY_LEN(formats)],
                                      .n_ants = n_ants,
                                      .n_chan = on_a_gpu(d) ? 5 : 2,
                                      .n_spectra = n_spectra[random_below(ARRAY_LEN(n_spectra))],
                                      .first_batch = 1,
                                      .n_batches = 1 + (uint32_t)random_below(3)};
        if (on_a_gpu(d) || n_ants < large || (f == 0 && n_ants < 200))
            compare_random(d, &args, 4, shape, 1 + (uint32_t)random_below(4));
    }
}

/* One block of all antennas, tiles of 16. */
TEST_ON_DEVICE(cuda_whole, .end = 14, .group = "cuda_whole")
{
    static const uint32_t n_ants[] = {17, 18, 31, 32, 33, 44, 47, 48, 49, 63, 64, 65, 79, 80};
    const struct correlate_shape shape = {.wgmma = true};

    compare_formats(d, _i, n_ants[_i], 81, &shape);
}

/* Blocks of 64 antennas; the last block has any number of tiles.  512 and 1024 antennas run only on a GPU.  The
 * emulator runs the smaller arrays with one format each (compare_formats()). */
TEST_ON_DEVICE(cuda_wgmma, .end = 10, .group = "cuda_wgmma")
{
    static const uint32_t n_ants[] = {81, 100, 112, 127, 128, 129, 150, 197, 512, 1024};
    const struct correlate_shape shape = {.wgmma = true};

    compare_formats(d, _i, n_ants[_i], 20, &shape);
}

/* Every candidate shape of some arrays, on a GPU; formats by turns. */
TEST_ON_DEVICE(cuda_candidates, .end = 5, .group = "cuda_shapes")
{
    static const uint32_t n_ants[] = {16, 60, 80, 128, 200};
    struct correlate_shape shapes[64];
    struct correlate_args args = {.n_ants = n_ants[_i], .n_chan = 3, .n_spectra = 80, .n_batches = 3};
    size_t n = correlate_candidates(&args, device_shared_bytes(d->device), ARRAY_LEN(shapes), shapes);

    for (size_t i = 0; on_a_gpu(d) && i < n; i++) {
        args.format = formats[i % ARRAY_LEN(formats)];
        compare_random(d, &args, 3, &shapes[i], 0);
    }
}

/* The largest sums, as in full_scale, of 8 and of 4 bits; in one part of time and in two. */
static void compare_full_scale(struct test_device *d, int number, uint32_t n_ants, const struct correlate_shape *shape)
{
    static const uint8_t values[][4] = {
        {0x80, 0x80, 0x80, 0x80}, {0x80, 0x80, 0x80, 0x7F}, {0x7F, 0x7F, 0x80, 0x80}, {0x7F, 0x80, 0x7F, 0x7F}};
    static const uint8_t nibbles[][2] = {{0x88, 0x88}, {0x88, 0x87}, {0x77, 0x88}, {0x78, 0x77}};
    struct correlate_args args = {.format = number % 2 ? VOLTAGES_8_BITS : VOLTAGES_4_BITS,
                                  .n_ants = n_ants,
                                  .n_chan = 1,
                                  .n_spectra = number / 2 % 2 ? 65520 : 16,
                                  .n_batches = number / 2 % 2 ? 1 : 4095};
    size_t bytes = voltages_bytes(&args, args.n_batches);
    uint8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (int value = 0; value < 4; value++) {
        for (size_t i = 0; i < bytes; i++)
            voltages[i] = number % 2 ? values[value][i % 4] : nibbles[value][i % 2];
        args.voltages = voltages;
        compare_variants(d, &args, args.n_batches, shape, 1 + (uint32_t)value % 2);
    }
    free(voltages);
}

TEST_ON_DEVICE(cuda_full_scale, .end = 4, .group = "cuda_shapes")
{
    const struct correlate_shape wgmma = {.wgmma = true};

    compare_full_scale(d, _i, 2, NULL);
    if (on_a_gpu(d) && device_has_wgmma(d->device)) {
        compare_full_scale(d, _i, 19, &wgmma);
        compare_full_scale(d, _i, 82, &wgmma);
    }
}

/* As many half floats as sums hold, with a large mean: every tenth of a per cent would show. */
TEST_ON_DEVICE(cuda_long_floats, .group = "cuda")
{
    struct correlate_args args = {
        .format = VOLTAGES_16_BITS, .n_ants = 3, .n_chan = 1, .n_spectra = 1024, .n_batches = 8};
    size_t bytes = voltages_bytes(&args, args.n_batches);
    uint16_t *voltages = malloc(bytes);

    ck_assert_uint_eq(args.n_spectra * args.n_batches, CORRELATE_FLOAT_SPECTRA);
    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes / 2; i++)
        voltages[i] = (uint16_t)(0x3C00 + random_below(0x400)); /* 1 to 2 */
    args.voltages = voltages;
    compare_variants(d, &args, args.n_batches, NULL, 0);
    free(voltages);
}

/* The largest array. */
TEST_ON_DEVICE(cuda_4096_antennas, .end = ARRAY_LEN(formats), .group = "cuda_largest")
{
    struct correlate_args args = {.format = formats[_i], .n_ants = 4096, .n_chan = 2, .n_spectra = 16, .n_batches = 1};
    const struct correlate_shape wgmma = {.wgmma = true};

    if (on_a_gpu(d))
        compare_random(d, &args, 1, NULL, 0);
    if (on_a_gpu(d) && device_has_wgmma(d->device))
        compare_random(d, &args, 1, &wgmma, 0);
}

SUITE(.timeout_s = 600, .start = random_start);
