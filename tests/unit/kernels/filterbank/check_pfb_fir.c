/* check_pfb_fir - the filter against a model that reads samples bit by bit.  Cases: every width, unaligned starts, and,
 * for the C version, input that ends at the end of the mapped memory. */
#include "kernels/filterbank/pfb_fir.h"

#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_samples.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

static const uint32_t widths[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))
#define GUARD    64 /* values after the output that must stay */

/* What one call works on; 'out' has GUARD values more than it needs, all of them poisoned. */
struct memory {
    size_t in_bytes, n_weights, n_out;
    uint8_t *in;
    float *weights, *out;
    uint64_t power;
};

/* out[s][p] as the header defines it: in float, in order of taps, and in double. */
static void model(const struct pfb_fir_args *a, const struct memory *m, size_t s, size_t p, float *exact, double *ideal,
                  double *scale)
{
    *exact = 0;
    *ideal = *scale = 0;
    for (size_t i = 0; i < a->n_taps; i++) {
        int x = sample_at(m->in, (size_t)a->offset + (s + i) * 2 * a->n_chan + p, a->sample_bits);
        float w = m->weights[i * 2 * a->n_chan + p];
        *exact += w * (float)x;
        *ideal += (double)w * x;
        *scale += fabs((double)w * x);
    }
}

/* Where value p of a spectrum is stored. */
static size_t unzipped(const struct pfb_fir_args *a, size_t p)
{
    size_t pair = p / 2;
    return 2 * (pair % a->unzip * (a->n_chan / a->unzip) + pair / a->unzip) + p % 2;
}

static void memory_init(const struct pfb_fir_args *a, struct memory *m)
{
    size_t step = 2 * (size_t)a->n_chan;
    size_t n_samples = (size_t)a->offset + (a->n_spectra + a->n_taps - 1) * step;

    m->in_bytes = (n_samples * a->sample_bits + 7) / 8;
    m->n_weights = a->n_taps * step;
    m->n_out = a->n_spectra * step;
    m->in = alloc_to_the_edge(m->in_bytes);
    m->weights = (float *)alloc_to_the_edge(m->n_weights * sizeof(float));
    m->out = malloc((m->n_out + GUARD) * sizeof(float));
    ck_assert_ptr_nonnull(m->out);
    random_bytes(m->in, m->in_bytes);
    for (size_t i = 0; i < m->n_weights; i++)
        m->weights[i] = (float)random_between(-1, 1);
    for (size_t i = 0; i < m->n_out + GUARD; i++)
        m->out[i] = NAN;
    m->power = 12345;
}

/* The C version gives the very bits of the formula; CUDA, which does not round the products, only its value. */
static void compare(const struct pfb_fir_args *a, const struct memory *m, bool exactly)
{
    size_t step = 2 * (size_t)a->n_chan;
    uint64_t power = 12345;

    for (size_t s = 0; s < a->n_spectra; s++)
        for (size_t p = 0; p < step; p++) {
            float exact, got = m->out[s * step + unzipped(a, p)];
            double ideal, scale;
            model(a, m, s, p, &exact, &ideal, &scale);
            if ((exactly && got != exact) || !(fabs(got - ideal) <= 2e-6 * scale))
                ck_abort_msg("bits %u chans %u taps %u unzip %u offset %ld: [%zu][%zu] is %g, not %g (%g)",
                             a->sample_bits, a->n_chan, a->n_taps, a->unzip, (long)a->offset, s, p, got, exact, ideal);
        }
    for (size_t i = m->n_out; i < m->n_out + GUARD; i++)
        ck_assert(isnan(m->out[i]));
    for (size_t i = 0; i < a->n_spectra * step && a->power; i++) {
        int64_t x = sample_at(m->in, (size_t)a->offset + i, a->sample_bits);
        power += (uint64_t)(x * x);
    }
    ck_assert_uint_eq(m->power, power);
}

static void run_plain_c(const struct pfb_fir_args *shape, int n_threads)
{
    struct pfb_fir_args a = *shape;
    struct memory m;

    memory_init(&a, &m);
    a.in = m.in;
    a.weights = m.weights;
    a.out = m.out;
    a.power = random_below(2) ? &m.power : NULL;
    pfb_fir_kernel.cpu(&a, n_threads);
    compare(&a, &m, true);
    free(m.out);
}

/* 'section' as pfb_fir_grid() takes it. */
static void run_cuda(struct test_device *d, const struct pfb_fir_args *shape, uint32_t section)
{
    struct pfb_fir_args a = *shape;
    struct memory m;

    memory_init(&a, &m);
    void *power = test_copy_in(d, &m.power, sizeof(m.power));
    a.in = test_keep(d, test_upload(d, m.in, m.in_bytes, (m.in_bytes + 3) / 4 * 4));
    a.weights = test_copy_in(d, m.weights, m.n_weights * sizeof(float));
    a.out = test_copy_in(d, m.out, (m.n_out + GUARD) * sizeof(float));
    a.power = random_below(2) ? power : NULL;
    test_launch(d, pfb_fir_grid(&a, section), &a);
    test_download(d, m.out, a.out, (m.n_out + GUARD) * sizeof(float));
    test_download(d, &m.power, power, sizeof(m.power));
    compare(&a, &m, false);
    free(m.out);
}

/* ---- The C version ----------------------------------------------------------------------------------------------- */

TEST(every_width, .end = N_WIDTHS)
{
    for (uint32_t unzip = 1; unzip <= 4; unzip *= 2)
        for (int64_t offset = 0; offset < 9; offset++) {
            struct pfb_fir_args args = {
                .offset = offset, .n_spectra = 5, .n_chan = 64, .n_taps = 4, .sample_bits = widths[_i], .unzip = unzip};
            run_plain_c(&args, 1);
        }
}

TEST(random_shapes)
{
    for (int trial = 0; trial < 60; trial++) {
        uint32_t unzip = 1u << random_below(3);
        struct pfb_fir_args args = {
            .offset = (int64_t)random_below(5000),
            .n_spectra = 1 + (uint32_t)random_below(20),
            .n_chan = 2 * unzip << random_below(7),
            .n_taps = 1 + (uint32_t)random_below(32),
            .sample_bits = widths[random_below(N_WIDTHS)],
            .unzip = unzip,
        };
        run_plain_c(&args, 1 + (int)random_below(3));
    }
}

/* More spectra than a thread takes at a time. */
TEST(long_runs)
{
    struct pfb_fir_args args = {
        .offset = 3, .n_spectra = 700, .n_chan = 64, .n_taps = 16, .sample_bits = 10, .unzip = 1};
    run_plain_c(&args, 2);
}

TEST(no_spectra)
{
    struct pfb_fir_args args = {.n_spectra = 0, .n_chan = 64, .n_taps = 16, .sample_bits = 10, .unzip = 1};
    pfb_fir_kernel.cpu(&args, 2);
}

/* Full scale of the widest samples, more than 32 bits can count. */
TEST(full_scale_power)
{
    static const uint8_t in[2 * 2 * 8 * 64] = {0x80}; /* one sample of -2^15, and zeros */
    static float weights[2 * 64], out[8 * 2 * 64];
    uint64_t power = UINT64_MAX - 9;
    struct pfb_fir_args args = {.in = in,
                                .weights = weights,
                                .out = out,
                                .power = &power,
                                .n_spectra = 8,
                                .n_chan = 64,
                                .n_taps = 1,
                                .sample_bits = 16,
                                .unzip = 1};

    for (int i = 0; i < 10; i++)
        pfb_fir_kernel.cpu(&args, 1);
    ck_assert_uint_eq(power, (UINT64_C(10) << 30) - 10);
}

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

/* Of one set of constants a few inputs: a compilation costs more than they do. */
static void run_cuda_shape(struct test_device *d, struct pfb_fir_args *a, int n_trials, size_t max_spectra)
{
    struct kernel_constant constants[PFB_FIR_N_CONSTANTS];

    pfb_fir_constants(a, constants);
    test_kernel(d, &pfb_fir_kernel, constants, PFB_FIR_N_CONSTANTS);
    for (int trial = 0; trial < n_trials; trial++) {
        a->offset = (int64_t)random_below(random_below(2) ? 33 : 5000);
        a->n_spectra = 1 + (uint32_t)random_below(max_spectra);
        run_cuda(d, a, random_below(3) ? 1 + (uint32_t)random_below(2 * max_spectra) : 0);
    }
}

TEST_ON_DEVICE(cuda_every_width, .end = N_WIDTHS)
{
    struct pfb_fir_args a = {
        .n_chan = 64u << random_below(3),
        .n_taps = 1 + (uint32_t)random_below(32),
        .sample_bits = widths[_i],
        .unzip = 1u << random_below(3),
    };
    run_cuda_shape(d, &a, 12, 20);
}

TEST_ON_DEVICE(cuda_extremes, .end = 4)
{
    static const struct pfb_fir_args extremes[] = {
        {.n_chan = 64, .n_taps = 1, .sample_bits = 10, .unzip = 1},
        {.n_chan = 64, .n_taps = 2, .sample_bits = 12, .unzip = 4},
        {.n_chan = 128, .n_taps = 32, .sample_bits = 8, .unzip = 2},
        {.n_chan = 65536, .n_taps = 3, .sample_bits = 10, .unzip = 4},
    };
    struct pfb_fir_args a = extremes[_i];
    run_cuda_shape(d, &a, 3, a.n_chan > 1000 ? 3 : 300);
}

/* The shape of a launch that nobody chose: no section for nothing, none missed, and none too many for a device. */
TEST(grids)
{
    for (int trial = 0; trial < 1000; trial++) {
        struct pfb_fir_args a = {.n_chan = 64u << random_below(11),
                                 .n_spectra = 1 + (uint32_t)random_below((size_t)1 << random_below(31))};
        struct kernel_grid grid = pfb_fir_grid(&a, random_below(2) ? 1 + (uint32_t)random_below(5000) : 0);
        ck_assert_uint_eq(grid.blocks[0] * grid.threads, a.n_chan);
        ck_assert(grid.blocks[1] >= 1 && grid.blocks[1] <= 65535 && grid.blocks[1] <= a.n_spectra);
        ck_assert(grid.blocks[2] == 1 && grid.threads % 32 == 0 && grid.threads <= 1024 && grid.shared_bytes == 0);
    }
}

SUITE(.timeout_s = 60, .start = random_start);
