/* check_gnss_quantise - the C version against a model in double precision; the CUDA variant gives the same bits.
 * Cases: ties, both sides of the limit, NaN and infinity; guards around all outputs.  The test also checks the control
 * of the scale, and the loss that the header states. */
#include "kernels/gnss/gnss_quantise.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"

#include <math.h>

#define BEFORE      (UINT64_C(1) << 40) /* what levels begin with */
#define GUARD_BYTES 64

static const size_t sizes[] = {1, 2, 31, 32, 33, 255, 257, 4095, 4097, 20001};

struct work {
    struct gnss_quantise_args args;
    size_t out_bytes; /* with the guards */
    float *in[N_POLS];
    int8_t *out, *expected; /* guard, rows, guard */
    struct gnss_level levels[N_POLS + 1], expected_levels[N_POLS + 1];
};

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* A product of floats is exact as a double.  Returns whether the component is clipped. */
static bool model_component(float in, float scale, int *out)
{
    double v = (float)((double)in * (double)scale), below;

    *out = 0;
    if (isnan(v))
        return true;
    if (fabs(v) > 127) {
        *out = v > 0 ? 127 : -127;
        return true;
    }
    below = floor(v);
    *out = (int)below + (v - below > 0.5 || (v - below == 0.5 && fmod(below, 2) != 0));
    return false;
}

static void model(struct work *w)
{
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < w->args.n_samples; i++) {
            bool is_clipped = false;
            for (size_t part = 0; part < 2; part++) {
                int value;
                const float in = part ? w->in[pol][2 * i + 1] * w->args.im_sign : w->in[pol][2 * i];
                is_clipped |= model_component(in, w->args.scale[pol], &value);
                w->expected_levels[pol].squares += (uint64_t)(value * value);
                w->expected[GUARD_BYTES + 2 * (pol * w->args.pitch_samples + i) + part] = (int8_t)value;
            }
            w->expected_levels[pol].n_clipped += is_clipped;
        }
}

/* ---- Random work ------------------------------------------------------------------------------------------------- */

/* Before the scale, which is a power of two for these to be exact: ties, the limit and its neighbours, and worse. */
static float special_value(float scale)
{
    const float values[] = {0,      -0.0f,    0.5f,      -0.5f,    1.5f,         2.5f,          -2.5f,
                            126.5f, -126.5f,  127,       -127,     127.5f,       -127.5f,       128,
                            -128,   0x1p-149, 1e30f,     -1e30f,   0x1.fc0002p6, -0x1.fc0002p6, NAN,
                            -NAN,   INFINITY, -INFINITY, 0x1p-126, 0.49999997f};
    float value = values[random_below(ARRAY_LEN(values))];

    return value / scale;
}

static void fill(float *in, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        in[i] = random_below(8) ? (float)random_between(-150, 150) / scale : special_value(scale);
}

static void work_init(struct work *w, size_t n_samples, bool all_clipped)
{
    *w = (struct work){.args = {.n_samples = n_samples,
                                .pitch_samples = n_samples + random_below(9),
                                .im_sign = random_below(2) ? 1 : -1}};
    w->out_bytes = 2 * GUARD_BYTES + 2 * (w->args.pitch_samples + n_samples);
    w->out = malloc(w->out_bytes);
    w->expected = malloc(w->out_bytes);
    random_bytes(w->out, w->out_bytes);
    memcpy(w->expected, w->out, w->out_bytes);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        w->in[pol] = malloc(2 * n_samples * sizeof(float));
        w->args.scale[pol] = random_below(2) ? ldexpf(1, (int)random_below(12) - 8) : (float)random_between(0.001, 3);
        fill(w->in[pol], 2 * n_samples, w->args.scale[pol]);
        for (size_t i = 0; all_clipped && i < 2 * n_samples; i++)
            w->in[pol][i] = pol ? INFINITY : -1e6f;
    }
    for (size_t i = 0; i <= N_POLS; i++)
        w->expected_levels[i] = w->levels[i] = (struct gnss_level){BEFORE + i, BEFORE + 10 + i};
    model(w);
}

static void run_plain_c(struct work *w)
{
    memcpy(w->args.in, w->in, sizeof(w->in));
    w->args.out = w->out + GUARD_BYTES;
    w->args.levels = w->levels;
    gnss_quantise_kernel.cpu(&w->args, 1 + (int)random_below(3));
}

static void run_cuda(struct test_device *d, struct work *w)
{
    struct kernel_grid grid = gnss_quantise_grid(&w->args);
    int8_t *out = test_copy_in(d, w->out, w->out_bytes);

    for (size_t pol = 0; pol < N_POLS; pol++)
        w->args.in[pol] = test_copy_in(d, w->in[pol], 2 * w->args.n_samples * sizeof(float));
    w->args.out = out + GUARD_BYTES;
    w->args.levels = test_copy_in(d, w->levels, sizeof(w->levels));
    if (random_below(3) == 0)
        grid.blocks[0] = 1; /* as if there were more samples */
    test_launch(d, grid, &w->args);
    test_download(d, w->out, out, w->out_bytes);
    test_download(d, w->levels, w->args.levels, sizeof(w->levels));
}

static void work_fini(struct work *w)
{
    for (size_t i = 0; i < w->out_bytes; i++)
        ck_assert_msg(w->out[i] == w->expected[i], "byte %zu of %zu: %d, not %d", i, w->out_bytes, w->out[i],
                      w->expected[i]);
    for (size_t i = 0; i <= N_POLS; i++) {
        ck_assert_uint_eq(w->levels[i].squares, w->expected_levels[i].squares);
        ck_assert_uint_eq(w->levels[i].n_clipped, w->expected_levels[i].n_clipped);
    }
    for (size_t pol = 0; pol < N_POLS; pol++)
        free(w->in[pol]);
    free(w->out);
    free(w->expected);
}

TEST(plain_c, .end = ARRAY_LEN(sizes))
{
    for (int trial = 0; trial < 10; trial++) {
        struct work w;
        work_init(&w, sizes[_i], trial == 9);
        run_plain_c(&w);
        work_fini(&w);
    }
}

TEST_ON_DEVICE(cuda, .end = ARRAY_LEN(sizes))
{
    struct kernel_constant constants[GNSS_QUANTISE_N_CONSTANTS];

    gnss_quantise_constants(constants);
    test_kernel(d, &gnss_quantise_kernel, constants, GNSS_QUANTISE_N_CONSTANTS);
    for (int trial = 0; trial < 3; trial++) {
        struct work w;
        work_init(&w, sizes[_i], trial == 2);
        run_cuda(d, &w);
        work_fini(&w);
    }
}

/* ---- The scale --------------------------------------------------------------------------------------------------- */

static uint64_t squares_of(double rms, uint64_t n_samples)
{
    return (uint64_t)(2 * rms * rms * (double)n_samples);
}

TEST(scale_steps)
{
    for (uint64_t n = 1; n <= UINT64_C(1) << 40; n <<= 8) {
        ck_assert_float_eq(gnss_quantise_scale(0.3f, squares_of(8, n), n), 0.3f);
        ck_assert_float_eq(gnss_quantise_scale(0.3f, squares_of(32, n), n), 0.3f);
        ck_assert_float_eq(gnss_quantise_scale(0.3f, squares_of(8, n) - 1, n), 0.6f);
        ck_assert_float_eq(gnss_quantise_scale(0.3f, squares_of(32, n) + 1, n), 0.15f);
        ck_assert_float_eq(gnss_quantise_scale(GNSS_MAX_SCALE / 1.5f, 0, n), GNSS_MAX_SCALE);
        ck_assert_float_eq(gnss_quantise_scale(GNSS_MIN_SCALE * 1.5f, squares_of(127, n), n), GNSS_MIN_SCALE);
    }
    ck_assert_float_eq(gnss_quantise_scale(0.3f, 0, 0), 0.3f); /* no samples say nothing */
}

/* From any scale and any level, the true rms that results is within the limits after 24 calls at most, and stays. */
TEST(scale_settles)
{
    for (int trial = 0; trial < 1000; trial++) {
        double rms = exp2(random_between(-7, 15));
        float scale = exp2f((float)random_between(-12, 12));
        for (int call = 0; call < 24; call++)
            scale = gnss_quantise_scale(scale, squares_of(fmin(rms * scale, 120), 100000), 100000);
        ck_assert_msg(rms * scale > 7.9 && rms * scale < 32.1, "rms %g: %g steps", rms, rms * scale);
        ck_assert_float_eq(gnss_quantise_scale(scale, squares_of(rms * scale, 100000), 100000), scale);
    }
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

static const struct {
    double rms, loss_db;
} losses[] = {{2, 0.090}, {8, 0.0057}, {16, 0.0014}, {32, 0.0004}, {48, 0.0063}, {64, 0.047}};

/* A weak signal in Gaussian noise x comes through with the gain E[q x] / E[x^2] (Bussgang), beside the power E[q^2].
 * The expectations are sums over the density. */
TEST(loss, .end = ARRAY_LEN(losses))
{
    enum { N = 100000 };
    static float in[2 * N];
    static int8_t out[N_POLS][2 * N];
    struct gnss_level levels[N_POLS] = {{0}};
    double qx = 0, qq = 0, xx = 0, sum = 0;

    for (size_t i = 0; i < 2 * N; i++)
        in[i] = (float)(((double)i + 0.5) / N - 1) * 8;
    struct gnss_quantise_args args = {{in, in}, out[0], N, levels, N, {(float)losses[_i].rms, 0}, 1};
    gnss_quantise_kernel.cpu(&args, 1);
    for (size_t i = 0; i < 2 * N; i++) {
        double x = in[i], density = exp(-x * x / 2);
        qx += density * out[0][i] * x;
        qq += density * out[0][i] * out[0][i];
        xx += density * x * x;
        sum += density;
    }
    double loss_db = -10 * log10(qx / sum * (qx / sum) / (qq / sum * (xx / sum)));
    ck_assert_msg(fabs(loss_db - losses[_i].loss_db) < 0.02 * losses[_i].loss_db + 0.00005, "rms %g: %g dB",
                  losses[_i].rms, loss_db);
}

SUITE(.timeout_s = 60, .start = random_start);
