/* check_postproc - heaps of the C version and of the CUDA variant, against a model in double.  The model takes the DFT
 * of the time series itself.  So the test judges the steps that finish the transform by their purpose.  Saturation and
 * dither have separate tests with exact values. */
#include "kernels/filterbank/postproc.h"

#include "common/base/units.h"
#include "kernels/util/philox.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"
#include "tests/unit/test_main.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#define GUARD     32
#define TOLERANCE 1e-3 /* of a quantisation step, before rounding */

#define SATURATED_BEFORE 1000 /* is added to */

enum { PLAIN_C, CUDA, N_VARIANTS };

/* Runs the C version, or the CUDA variant for one set of sizes on a device. */
static struct {
    int n_threads;             /* of the C version */
    struct test_device device; /* without a kernel: the C version */
} runner;

/* Returns false where there is no such variant. */
static bool runner_init(int variant, const struct postproc_args *args)
{
    struct kernel_constant constants[POSTPROC_N_CONSTANTS];

    runner.n_threads = 1 + (int)random_below(3);
    runner.device.kernel = NULL;
    if (variant == PLAIN_C)
        return true;
    if (!test_device_open(&runner.device))
        return false;
    postproc_constants(args, constants);
    test_kernel(&runner.device, &postproc_kernel, constants, POSTPROC_N_CONSTANTS);
    return true;
}

static void runner_fini(void)
{
    if (runner.device.kernel)
        test_device_close(&runner.device);
}

/* One call of the kernel with its memory, and for each value what it should be before it is quantised. */
struct fixture {
    struct postproc_args args;
    float *fft, *rotation, *gain;
    uint8_t *out;
    uint32_t *saturated;
    double complex *expected; /* [pol][spectrum][chan], with gain, rotation and dither */
};

static void *alloc(size_t bytes)
{
    void *memory = malloc(bytes);

    ck_assert_ptr_nonnull(memory);
    memset(memory, 0xa5, bytes);
    return memory;
}

static size_t n_values(const struct postproc_args *a)
{
    return N_POLS * (size_t)a->n_spectra * a->n_chan;
}

/* Of the transforms, complex. */
static size_t n_fft_values(const struct postproc_args *a)
{
    return a->n_bins ? N_POLS * (size_t)a->n_spectra * a->n_bins : n_values(a);
}

static size_t out_bytes(const struct postproc_args *a)
{
    return n_values(a) * 2 * a->out_bits / 8;
}

static size_t n_batches(const struct postproc_args *a)
{
    return a->n_spectra / a->spectra_per_heap;
}

/* Everything but 'expected' is poisoned; gains are 1 and rotations 0. */
static void fixture_init(struct fixture *f, const struct postproc_args *args)
{
    *f = (struct fixture){.args = *args};
    f->fft = alloc(n_fft_values(args) * 2 * sizeof(float));
    f->rotation = alloc(N_POLS * args->n_spectra * 2 * sizeof(float));
    f->gain = alloc(args->n_chan * N_POLS * 2 * sizeof(float));
    f->out = alloc(out_bytes(args) + GUARD);
    f->saturated = alloc((n_batches(args) * N_POLS + 1) * sizeof(uint32_t));
    f->expected = alloc(n_values(args) * sizeof(double complex));
    f->args.fft = f->fft;
    f->args.rotation = f->rotation;
    f->args.gain = f->gain;
    f->args.out = f->out;
    f->args.saturated = f->saturated;
    memset(f->rotation, 0, N_POLS * args->n_spectra * 2 * sizeof(float));
    for (size_t i = 0; i < args->n_chan * N_POLS * 2; i++)
        f->gain[i] = i % 2 ? 0 : 1;
    for (size_t i = 0; i < n_batches(args) * N_POLS; i++)
        f->saturated[i] = SATURATED_BEFORE;
}

static void fixture_fini(struct fixture *f)
{
    free(f->fft);
    free(f->rotation);
    free(f->gain);
    free(f->out);
    free(f->saturated);
    free(f->expected);
}

static void run_cuda(const struct fixture *f)
{
    struct test_device *d = &runner.device;
    size_t saturated_bytes = (n_batches(&f->args) * N_POLS + 1) * sizeof(uint32_t);
    struct postproc_args args = f->args;

    args.fft = test_copy_in(d, f->fft, n_fft_values(&args) * 2 * sizeof(float));
    args.rotation = test_copy_in(d, f->rotation, N_POLS * args.n_spectra * 2 * sizeof(float));
    args.gain = test_copy_in(d, f->gain, args.n_chan * N_POLS * 2 * sizeof(float));
    args.out = test_copy_in(d, f->out, out_bytes(&args) + GUARD);
    args.saturated = test_copy_in(d, f->saturated, saturated_bytes);
    test_launch(d, postproc_grid(&args), &args);
    test_download(d, f->out, args.out, out_bytes(&args) + GUARD);
    test_download(d, f->saturated, args.saturated, saturated_bytes);
}

static void run(const struct fixture *f)
{
    if (runner.device.kernel)
        run_cuda(f);
    else
        postproc_kernel.cpu(&f->args, runner.n_threads);
}

/* The quantised value of one place, however it is packed. */
static void output_at(const struct fixture *f, size_t pol, size_t s, size_t k, int value[2])
{
    const struct postproc_args *a = &f->args;
    size_t heap = s / a->spectra_per_heap, within = s % a->spectra_per_heap;
    size_t at = ((heap * a->n_chan + k) * a->spectra_per_heap + within) * N_POLS + pol;

    quantised_voltage(f->out, a->out_bits, at, value);
}

/* ---- Random spectra ---------------------------------------------------------------------------------------------- */

/* A time series of 2 n_chan samples, of which the few non-zero ones are listed. */
struct impulses {
    size_t n;
    size_t *at;
    double *height;
};

/* The transforms of the unzipped pairs, and the transform of the whole, of one spectrum of one polarisation. */
static void transform(const struct fixture *f, const struct impulses *x, size_t row)
{
    const struct postproc_args *a = &f->args;
    size_t n = a->n_chan, n_fft = n / a->unzip;
    double complex *fft = alloc(n * sizeof(*fft)), *turn = alloc(2 * n * sizeof(*turn));

    for (size_t i = 0; i < 2 * n; i++)
        turn[i] = cexp(-I * M_PI * (double)i / (double)n);
    for (size_t k = 0; k < n; k++)
        fft[k] = f->expected[row * n + k] = 0;
    for (size_t i = 0; i < x->n; i++) {
        size_t pair = x->at[i] / 2, q = pair / a->unzip, r = pair % a->unzip;
        double complex z = x->at[i] % 2 ? I * x->height[i] : x->height[i];
        for (size_t k = 0; k < n_fft; k++)
            fft[r * n_fft + k] += z * turn[k * q % n_fft * a->unzip * 2];
        for (size_t k = 0; k < n; k++)
            f->expected[row * n + k] += x->height[i] * turn[k * x->at[i] % (2 * n)];
    }
    for (size_t k = 0; k < n; k++) {
        f->fft[(row * n + k) * 2] = (float)creal(fft[k]);
        f->fft[(row * n + k) * 2 + 1] = (float)cimag(fft[k]);
    }
    free(turn);
    free(fft);
}

/* Random series; their values come to about 'sigma' in each part. */
static void fill_spectra(const struct fixture *f, size_t n_impulses, double sigma)
{
    size_t n = n_impulses < 2 * f->args.n_chan ? n_impulses : 2 * f->args.n_chan;
    struct impulses x = {.n = n, .at = alloc(n * sizeof(size_t)), .height = alloc(n * sizeof(double))};

    for (size_t row = 0; row < N_POLS * f->args.n_spectra; row++) {
        for (size_t i = 0; i < n; i++) {
            x.at[i] = random_below(2 * f->args.n_chan);
            x.height[i] = random_between(-1, 1) * sigma * sqrt(6.0 / (double)n);
        }
        transform(f, &x, row);
    }
    free(x.at);
    free(x.height);
}

/* A narrow band's: random bins, of which the middle ones are the channels and all others are not to be looked at. */
static void fill_bins(const struct fixture *f, double sigma)
{
    const struct postproc_args *a = &f->args;

    for (size_t i = 0; i < 2 * n_fft_values(a); i++)
        f->fft[i] = NAN;
    for (size_t row = 0; row < N_POLS * a->n_spectra; row++)
        for (int k = 0; k < (int)a->n_chan; k++) {
            int frequency = k - (int)a->n_chan / 2, bin = frequency < 0 ? frequency + (int)a->n_bins : frequency;
            float *x = f->fft + (row * a->n_bins + (size_t)bin) * 2;
            x[0] = (float)(random_between(-1, 1) * sigma * sqrt(3));
            x[1] = (float)(random_between(-1, 1) * sigma * sqrt(3));
            f->expected[row * a->n_chan + (size_t)k] = x[0] + I * (double)x[1];
        }
}

/* All four ways in which fine delay and phase can be there or not. */
static void rotate_spectra(const struct fixture *f)
{
    const struct postproc_args *a = &f->args;

    for (size_t row = 0; row < N_POLS * a->n_spectra; row++) {
        float fine = random_below(2) ? (float)random_between(-0.5, 0.5) : 0;
        float phase = random_below(2) ? (float)random_between(-M_PI, M_PI) : 0;
        f->rotation[row * 2] = fine;
        f->rotation[row * 2 + 1] = phase;
        for (size_t k = 0; k < a->n_chan; k++) {
            double theta = phase - M_PI * fine * ((double)k - a->n_chan / 2.0) / a->n_chan;
            f->expected[row * a->n_chan + k] *= cexp(I * theta);
        }
    }
}

static void apply_gains(const struct fixture *f)
{
    const struct postproc_args *a = &f->args;

    for (size_t i = 0; i < a->n_chan * N_POLS * 2; i++)
        f->gain[i] = (float)random_between(-1.5, 1.5);
    for (size_t row = 0; row < N_POLS * a->n_spectra; row++)
        for (size_t k = 0; k < a->n_chan; k++) {
            const float *gain = f->gain + (k * N_POLS + row / a->n_spectra) * 2;
            f->expected[row * a->n_chan + k] *= gain[0] + I * gain[1];
        }
}

/* As the header says, half of a word at a time. */
static void apply_dither(const struct fixture *f)
{
    const struct postproc_args *a = &f->args;
    const uint32_t key[2] = {a->seed & 0xffffffff, a->seed >> 32};

    for (size_t s = 0; s < a->n_spectra; s++)
        for (size_t k = 0; k < a->n_chan; k++) {
            uint64_t spectrum = a->first_spectrum + s, pair = spectrum >> 1;
            const uint32_t counter[4] = {(uint32_t)k, pair & 0xffffffff, pair >> 32, a->stream_id};
            double dither[4];
            uint32_t bits[4];
            philox4x32(counter, key, bits);
            for (int i = 0; i < 4; i++) {
                int half = (spectrum % 2 ? bits[i] >> 16 : bits[i] & 0xffff) | 1;
                dither[i] = (half < 32768 ? half : half - 65536) / 65536.0;
            }
            for (size_t pol = 0; pol < N_POLS; pol++)
                f->expected[(pol * a->n_spectra + s) * a->n_chan + k] += dither[2 * pol] + I * dither[2 * pol + 1];
        }
}

static double clamp(double value, double limit)
{
    return fmin(fmax(value, -limit), limit);
}

/* Compares a value's parts with what was expected; adds to the least and the most that may have been clipped. */
static void compare_value(const struct fixture *f, size_t pol, size_t s, size_t k, uint32_t *least, uint32_t *most)
{
    const struct postproc_args *a = &f->args;
    double limit = a->out_bits == 8 ? 127 : 7;
    double complex expected = f->expected[(pol * a->n_spectra + s) * a->n_chan + k];
    double part[2] = {creal(expected), cimag(expected)};
    double beyond = fmax(fabs(part[0]), fabs(part[1])) - limit;
    int value[2];

    output_at(f, pol, s, k, value);
    for (int i = 0; i < 2; i++)
        if (!(fabs(value[i] - clamp(part[i], limit)) <= 0.5 + TOLERANCE))
            ck_abort_msg("chans %u unzip %u bits %u: pol %zu spectrum %zu chan %zu part %d is %d, not %g", a->n_chan,
                         a->unzip, a->out_bits, pol, s, k, i, value[i], part[i]);
    *least += beyond > TOLERANCE;
    *most += beyond > -TOLERANCE;
}

static void run_and_compare(const struct fixture *f)
{
    const struct postproc_args *a = &f->args;
    uint32_t least[64][N_POLS] = {{0}}, most[64][N_POLS] = {{0}};

    run(f);
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t s = 0; s < a->n_spectra; s++)
            for (size_t k = 0; k < a->n_chan; k++) {
                size_t batch = s / a->spectra_per_heap;
                compare_value(f, pol, s, k, &least[batch][pol], &most[batch][pol]);
            }
    for (size_t i = 0; i < n_batches(a) * N_POLS; i++) {
        ck_assert_uint_le(SATURATED_BEFORE + least[i / N_POLS][i % N_POLS], f->saturated[i]);
        ck_assert_uint_ge(SATURATED_BEFORE + most[i / N_POLS][i % N_POLS], f->saturated[i]);
    }
    ck_assert_uint_eq(f->saturated[n_batches(a) * N_POLS], 0xa5a5a5a5);
    for (size_t i = 0; i < GUARD; i++)
        ck_assert_uint_eq(f->out[out_bytes(a) + i], 0xa5);
}

static struct postproc_args random_args(uint32_t least_chans)
{
    uint32_t per_heap = 16 * (1 + (uint32_t)random_below(5));

    return (struct postproc_args){
        .n_spectra = per_heap,
        .spectra_per_heap = per_heap,
        .n_chan = least_chans << random_below(6),
        .unzip = 1u << random_below(3),
        .out_bits = random_below(2) ? 8 : 4,
        .dither = (uint32_t)random_below(2),
    };
}

/* Random input, and of 'args' what is no size. */
static void try_random(struct postproc_args args)
{
    struct fixture f;

    args.first_spectrum = random_u64() >> random_below(64) & ~UINT64_C(1);
    args.seed = random_u64();
    args.stream_id = (uint32_t)random_u64();
    args.n_spectra = args.spectra_per_heap * (1 + (uint32_t)random_below(3));
    fixture_init(&f, &args);
    if (args.n_bins)
        fill_bins(&f, args.out_bits == 8 ? 50 : 3);
    else
        fill_spectra(&f, 16, args.out_bits == 8 ? 50 : 3);
    rotate_spectra(&f);
    apply_gains(&f);
    if (args.dither)
        apply_dither(&f);
    run_and_compare(&f);
    fixture_fini(&f);
}

TEST(random_shapes)
{
    for (int trial = 0; trial < 80; trial++) {
        struct postproc_args args = random_args(8);
        runner_init(PLAIN_C, &args);
        try_random(args);
    }
}

TEST(cuda_random_shapes, .end = 12)
{
    struct postproc_args args = random_args(64);

    args.unzip = 1u << _i % 3;
    if (!runner_init(CUDA, &args))
        return;
    for (int trial = 0; trial < 3; trial++)
        try_random(args);
}

/* All of the bins, and the middle half of them. */
TEST(narrow_bands)
{
    for (int trial = 0; trial < 40; trial++) {
        struct postproc_args args = random_args(8);
        args.unzip = 1;
        args.n_bins = args.n_chan << random_below(2);
        runner_init(PLAIN_C, &args);
        try_random(args);
    }
}

TEST(cuda_narrow_bands, .end = 4)
{
    struct postproc_args args = random_args(64);

    args.unzip = 1;
    args.n_bins = args.n_chan << _i % 2;
    if (!runner_init(CUDA, &args))
        return;
    for (int trial = 0; trial < 3; trial++)
        try_random(args);
}

/* The largest transform, every way of unzipping it. */
TEST(many_channels, .end = 3 * N_VARIANTS)
{
    struct postproc_args args = {
        .n_spectra = 16, .spectra_per_heap = 16, .n_chan = 65536, .unzip = 1u << _i / N_VARIANTS, .out_bits = 8};
    struct fixture f;

    if (!runner_init(_i % N_VARIANTS, &args))
        return;
    fixture_init(&f, &args);
    fill_spectra(&f, 5, 50);
    rotate_spectra(&f);
    run_and_compare(&f);
    fixture_fini(&f);
}

/* ---- Quantisation ------------------------------------------------------------------------------------------------ */

/* An impulse at sample 0 has the spectrum 1 everywhere, exactly; so the gains are the values to be quantised. */
static void fill_ones(const struct fixture *f)
{
    size_t n_fft = f->args.n_chan / f->args.unzip;

    for (size_t i = 0; i < n_values(&f->args); i++) {
        f->fft[2 * i] = i / n_fft % f->args.unzip ? 0 : 1;
        f->fft[2 * i + 1] = 0;
    }
}

static const struct {
    uint32_t out_bits;
    float value[2];
    int expected[2];
    uint32_t saturated;
} cases[] = {
    {8, {127, -127}, {127, -127}, 0},
    {8, {127.2f, 0}, {127, 0}, 1},          /* rounding alone would give 127, but it is beyond */
    {8, {127.5f, -127.5f}, {127, -127}, 1}, /* both parts: one value */
    {8, {0, -127.00001f}, {0, -127}, 1},
    {8, {126.99999f, -126.99999f}, {127, -127}, 0},
    {8, {126.5f, -126.5f}, {126, -126}, 0},
    {8, {125.5f, -125.5f}, {126, -126}, 0},
    {8, {0.5f, -0.5f}, {0, 0}, 0},
    {8, {1.5f, -1.5f}, {2, -2}, 0},
    {8, {2.5f, -2.5f}, {2, -2}, 0},
    {8, {0.50001f, 0.49999f}, {1, 0}, 0},
    {8, {-128, 1e30f}, {-127, 127}, 1},
    {8, {1e-40f, -0.0f}, {0, 0}, 0},
    {8, {NAN, 1}, {0, 0}, 1}, /* not a number in one part of a gain spoils both of the product */
    {4, {7, -7}, {7, -7}, 0},
    {4, {7.2f, -3}, {7, -3}, 1},
    {4, {7.5f, -7.5f}, {7, -7}, 1},
    {4, {6.5f, -6.5f}, {6, -6}, 0},
    {4, {5.5f, 3.5f}, {6, 4}, 0},
    {4, {-8, -1}, {-7, -1}, 1},
    {4, {-1, -8}, {-1, -7}, 1},
    {4, {NAN, NAN}, {0, 0}, 1},
};

static void check_boundary(const struct postproc_args *args, size_t i)
{
    struct fixture f;
    int value[2];

    fixture_init(&f, args);
    fill_ones(&f);
    f.gain[(5 * N_POLS + 1) * 2] = cases[i].value[0];
    f.gain[(5 * N_POLS + 1) * 2 + 1] = cases[i].value[1];
    run(&f);
    for (size_t s = 0; s < args->n_spectra; s++) {
        output_at(&f, 1, s, 5, value);
        ck_assert_int_eq(value[0], cases[i].expected[0]);
        ck_assert_int_eq(value[1], cases[i].expected[1]);
        output_at(&f, 0, s, 5, value);
        ck_assert(value[0] == 1 && value[1] == 0);
    }
    ck_assert_uint_eq(f.saturated[0], SATURATED_BEFORE);
    ck_assert_uint_eq(f.saturated[1], SATURATED_BEFORE + cases[i].saturated * args->n_spectra);
    fixture_fini(&f);
}

TEST(boundaries, .end = 6 * N_VARIANTS)
{
    struct postproc_args args = {
        .n_spectra = 16, .spectra_per_heap = 16, .n_chan = 64, .unzip = 1u << _i / 4, .out_bits = _i & 2 ? 4 : 8};

    if (!runner_init(_i % N_VARIANTS, &args))
        return;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (cases[i].out_bits == args.out_bits)
            check_boundary(&args, i);
}

/* Every value of a batch clipped, and none of the next: more than a thread or a warp has. */
TEST(all_saturated, .end = 3 * N_VARIANTS)
{
    struct postproc_args args = {
        .n_spectra = 96, .spectra_per_heap = 48, .n_chan = 256, .unzip = 1u << _i / N_VARIANTS, .out_bits = 8};
    struct fixture f;

    if (!runner_init(_i % N_VARIANTS, &args))
        return;
    fixture_init(&f, &args);
    fill_ones(&f);
    for (size_t i = 0; i < n_values(&args) * 2; i++)
        f.fft[i] *= i / 2 / args.n_chan % args.n_spectra < 48 ? 1000 : 0;
    run(&f);
    for (size_t i = 0; i < 2 * N_POLS; i++)
        ck_assert_uint_eq(f.saturated[i], SATURATED_BEFORE + (i < N_POLS ? 48 * 256 : 0));
    fixture_fini(&f);
}

/* ---- Dither ------------------------------------------------------------------------------------------------------ */

static const struct postproc_args dithered = {
    .first_spectrum = UINT64_C(0x1fffffff0), /* so that the high word of its half changes on the way */
    .seed = UINT64_C(0x123456789abcdef0),
    .stream_id = 3,
    .n_spectra = 64,
    .spectra_per_heap = 16,
    .n_chan = 256,
    .unzip = 1,
    .out_bits = 8,
    .dither = 1,
};

/* What the dithered quantiser makes of a constant 'value' (re) and its negative (im) everywhere. */
static uint8_t *quantise_constant(const struct postproc_args *args, float value)
{
    struct fixture f;
    uint8_t *out;

    fixture_init(&f, args);
    fill_ones(&f);
    for (size_t i = 0; i < args->n_chan * N_POLS; i++) {
        f.gain[2 * i] = value;
        f.gain[2 * i + 1] = -value;
    }
    run(&f);
    out = f.out;
    f.out = NULL;
    fixture_fini(&f);
    return out;
}

/* A dithered quantiser is right on average, and its error is white: expected 5 sigma at most, with fixed seeds. */
TEST(dither_statistics, .end = N_VARIANTS)
{
    size_t n = out_bytes(&dithered) / 4;
    double sum[4] = {0}, products[4][4] = {{0}};

    if (!runner_init(_i, &dithered))
        return;
    uint8_t *out = quantise_constant(&dithered, 0.3f);
    for (size_t i = 0; i < n; i++)
        for (int a = 0; a < 4; a++) { /* pol 0 re, im, pol 1 re, im */
            double error = (int8_t)out[4 * i + (size_t)a] - (a % 2 ? -0.3 : 0.3);
            sum[a] += error;
            for (int b = 0; b < 4; b++)
                products[a][b] += error * ((int8_t)out[4 * i + (size_t)b] - (b % 2 ? -0.3 : 0.3));
        }
    for (int a = 0; a < 4; a++) {
        ck_assert_double_lt(fabs(sum[a] / (double)n), 5 * sqrt(0.21 / (double)n));
        for (int b = 0; b < 4; b++) /* variance of a coin of probability 0.3 */
            ck_assert_double_lt(fabs(products[a][b] / (double)n - (a == b ? 0.21 : 0)), 5 * 0.25 / sqrt((double)n));
    }
    free(out);
}

TEST(dither_leaves_integers_alone, .end = N_VARIANTS)
{
    if (!runner_init(_i, &dithered))
        return;
    for (int value = 124; value < 128; value++) {
        uint8_t *out = quantise_constant(&dithered, (float)value);
        for (size_t i = 0; i < out_bytes(&dithered); i++)
            if ((int8_t)out[i] != (i % 2 ? -value : value))
                ck_abort_msg("%d became %d", i % 2 ? -value : value, (int8_t)out[i]);
        free(out);
    }
}

/* The dither belongs to the position: neither the threads nor where a run is cut nor the device matter. */
TEST(dither_is_reproducible, .end = N_VARIANTS)
{
    struct postproc_args half = dithered;
    size_t half_bytes = out_bytes(&dithered) / 2;

    runner_init(PLAIN_C, &dithered);
    uint8_t *whole = quantise_constant(&dithered, 0.5f);
    if (!runner_init(_i, &dithered)) {
        free(whole);
        return;
    }
    uint8_t *again = quantise_constant(&dithered, 0.5f);
    ck_assert_mem_eq(whole, again, 2 * half_bytes);
    half.n_spectra /= 2;
    for (size_t i = 0; i < 2; i++) {
        uint8_t *part = quantise_constant(&half, 0.5f);
        ck_assert_mem_eq(whole + i * half_bytes, part, half_bytes);
        free(part);
        half.first_spectrum += half.n_spectra;
    }
    free(again);
    free(whole);
}

/* Each of these must change about half of the bytes, not a few. */
TEST(dithers_differ, .end = N_VARIANTS)
{
    struct postproc_args other[4] = {dithered, dithered, dithered, dithered};
    uint8_t *out;

    if (!runner_init(_i, &dithered))
        return;
    out = quantise_constant(&dithered, 0.5f);
    other[0].seed++;
    other[1].seed ^= UINT64_C(1) << 40;
    other[2].stream_id++;
    other[3].first_spectrum += UINT64_C(1) << 33;
    for (size_t i = 0; i < 4; i++) {
        uint8_t *different = quantise_constant(&other[i], 0.5f);
        size_t n_different = 0;
        for (size_t j = 0; j < out_bytes(&dithered); j++)
            n_different += out[j] != different[j];
        ck_assert_double_eq_tol((double)n_different / (double)out_bytes(&dithered), 0.5, 0.02);
        free(different);
    }
    free(out);
}

SUITE(.timeout_s = 60, .teardown = runner_fini, .start = random_start);
