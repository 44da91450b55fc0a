/* check_ddc - the down-converter against its definition in long double, which reads samples bit by bit.  Cases: every
 * width, any taps and subsampling, unaligned starts.  The oscillator is compared with integer arithmetic and with its
 * own sums.  One case sends a tone through the default filter. */
#include "common/base/units.h"
#include "kernels/ddc/ddc.h"
#include "kernels/ddc/design_ddc.h"
#include "kernels/ddc/mixer.h"

#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_samples.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

static const uint32_t widths[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
#define N_WIDTHS      ARRAY_LEN(widths)
#define GUARD         8 /* values after the output that must stay */
#define BINARY_PLACES 20

static void put_sample(uint8_t *in, size_t index, uint32_t bits, int value)
{
    for (uint32_t i = 0; i < bits; i++) {
        size_t bit = index * bits + i;
        uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        in[bit / 8] = (uint8_t)(value >> (bits - 1 - i) & 1 ? in[bit / 8] | mask : in[bit / 8] & ~mask);
    }
}

/* ---- What one call works on -------------------------------------------------------------------------------------- */

struct work {
    struct ddc_args args; /* but for where */
    int64_t timestamp;    /* of the first output */
    int64_t centre, rate; /* in units of 2^-BINARY_PLACES Hz */
    struct mixer mixer;
    size_t in_bytes, n_out;
    uint8_t *in[N_POLS];
    float *filter, *out[N_POLS]; /* 'out' with GUARD values more, all poisoned */
};

/* The frequency is a random fraction of the rate, with odd denominators. */
static void work_init(struct work *w, const struct ddc_args *shape)
{
    *w = (struct work){.args = *shape, .n_out = 2 * (size_t)shape->n_out};
    w->timestamp = (int64_t)(random_u64() >> (1 + random_below(40)));
    w->rate = (INT64_C(1) << BINARY_PLACES) + 2 * (int64_t)random_below(INT64_C(1) << 50) + 1;
    w->centre = (int64_t)random_below((size_t)w->rate);
    mixer_init(&w->mixer, ldexp((double)w->centre, -BINARY_PLACES), ldexp((double)w->rate, -BINARY_PLACES));
    w->args.phase = mixer_turns(&w->mixer, w->timestamp);
    w->args.phase_step = mixer_turns(&w->mixer, shape->subsampling);
    size_t n_samples = (size_t)shape->offset + ddc_window_samples(shape->subsampling, shape->n_taps, shape->n_out);
    w->in_bytes = (n_samples * shape->sample_bits + 7) / 8;
    w->filter = (float *)alloc_to_the_edge(shape->n_taps * sizeof(float));
    for (size_t k = 0; k < shape->n_taps; k++)
        w->filter[k] = (float)(random_between(-1, 1) * (random_below(3) ? 1 : 1e-3));
    for (size_t pol = 0; pol < N_POLS; pol++) {
        w->in[pol] = alloc_to_the_edge(w->in_bytes);
        random_bytes(w->in[pol], w->in_bytes);
        w->out[pol] = malloc((w->n_out + GUARD) * sizeof(float));
        ck_assert_ptr_nonnull(w->out[pol]);
        for (size_t i = 0; i < w->n_out + GUARD; i++)
            w->out[pol][i] = NAN;
    }
}

static void work_fini(struct work *w)
{
    for (size_t pol = 0; pol < N_POLS; pol++)
        free(w->out[pol]);
}

/* Radians of -centre / rate * t, of which whole turns are taken off with integers. */
static long double angle_at(const struct work *w, int64_t t)
{
    __int128 modulus = w->rate, turns = (__int128)w->centre * t % modulus;

    return -2 * M_PIl * (long double)turns / (long double)modulus;
}

/* Output m of a polarisation as the header defines it; 'scale' is what errors are relative to. */
static void model(const struct work *w, size_t pol, size_t m, long double *re, long double *im, double *scale)
{
    const struct ddc_args *a = &w->args;

    *re = *im = 0;
    *scale = 0;
    for (size_t k = 0; k < a->n_taps; k++) {
        long double angle = angle_at(w, w->timestamp + (int64_t)(m * a->subsampling + k));
        int x = sample_at(w->in[pol], (size_t)a->offset + m * a->subsampling + k, a->sample_bits);
        *re += x * (long double)w->filter[k] * cosl(angle);
        *im += x * (long double)w->filter[k] * sinl(angle);
        *scale += fabs((double)w->filter[k]) * (1 << (a->sample_bits - 1));
    }
}

struct error {
    double largest, squares; /* in units of 'scale' of model() */
    size_t n;
};

/* Of up to 'n_checked' outputs, the first and the last among them. */
static void compare(const struct work *w, size_t n_checked, struct error *error)
{
    const struct ddc_args *a = &w->args;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        for (size_t i = 0; i < n_checked && i < a->n_out; i++) {
            size_t m = a->n_out <= n_checked ? i : i * (a->n_out - 1) / (n_checked - 1);
            long double re, im;
            double scale;
            model(w, pol, m, &re, &im, &scale);
            double off = (double)hypotl(re - (long double)w->out[pol][2 * m], im - (long double)w->out[pol][2 * m + 1]);
            if (!(off <= DDC_TOLERANCE * scale))
                ck_abort_msg("bits %u taps %u subsampling %u offset %ld n_out %u pol %zu: [%zu] is %g %g, not %Lg %Lg",
                             a->sample_bits, a->n_taps, a->subsampling, (long)a->offset, a->n_out, pol, m,
                             w->out[pol][2 * m], w->out[pol][2 * m + 1], re, im);
            error->largest = fmax(error->largest, off / scale);
            error->squares += off / scale * (off / scale);
            error->n++;
        }
        for (size_t i = 0; i < w->n_out; i++)
            ck_assert(isfinite(w->out[pol][i]));
        for (size_t i = w->n_out; i < w->n_out + GUARD; i++)
            ck_assert(isnan(w->out[pol][i]));
    }
}

static void run_plain_c(const struct ddc_args *shape, int n_threads, struct error *error)
{
    float *weights = malloc(ddc_weights_bytes(shape, NULL, false));
    struct work w;

    ck_assert_ptr_nonnull(weights);
    work_init(&w, shape);
    w.args.scale = ddc_weights(&w.args, NULL, false, w.filter, &w.mixer, weights);
    w.args.weights = weights;
    memcpy(w.args.in, w.in, sizeof(w.in));
    memcpy(w.args.out, w.out, sizeof(w.out));
    ddc_kernel.cpu(&w.args, n_threads);
    compare(&w, 300, error);
    work_fini(&w);
    free(weights);
}

static void print_error(const char *what, const struct error *error)
{
    printf("%s: rms error %.2g, largest %.2g, of the largest possible sum\n", what,
           sqrt(error->squares / (double)error->n), error->largest);
}

/* ---- The oscillator ---------------------------------------------------------------------------------------------- */

/* Expected: Python's fractions of floats, (2^64 (-centre t) / rate) rounded, modulo 2^64.  The decimals of most rows
 * are no doubles, so their exact ratio would give other numbers. */
TEST(published_phases)
{
    static const struct {
        double centre, rate;
        int64_t t;
        uint64_t turns;
    } rows[] = {
        {428e6, 1712e6, INT64_C(1), UINT64_C(0xc000000000000000)},
        {333333333.333333333, 1712000000.1, INT64_C(9223372036854775807), UINT64_C(0x664f27744ceb6f5d)},
        {214000000.1, 1712e6, INT64_C(211106232532992), UINT64_C(0x077a35b49d6b57dd)},
        {536870913.03, 1100000000, INT64_C(140737488355328), UINT64_C(0x0fbb91a879d8526f)},
        {107000000.123456789, 1712000000.000000001, INT64_C(9223372036854775807), UINT64_C(0xcfefaef1df66b821)},
        {0.7, 3.3, INT64_C(123456789012345678), UINT64_C(0xcc13fee3febaabd2)},
        {1e-9, 1e11, INT64_C(9223372036854775807), UINT64_C(0xe8635ef36dbddc39)},
        {49999999999.999999999, 99999999999.9, INT64_C(9223372036854775807), UINT64_C(0x01aff77b841abb93)},
        {5e10, 1, INT64_C(4611686018427387905), UINT64_C(0x0000000000000000)},
        {0, 5, INT64_C(77), UINT64_C(0x0000000000000000)},
        {4.999999999, 1.1, INT64_C(9223372036854775807), UINT64_C(0xf1309de1e1a9e33f)},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct mixer mixer;
        mixer_init(&mixer, rows[i].centre, rows[i].rate);
        ck_assert_uint_eq(mixer_turns(&mixer, rows[i].t), rows[i].turns);
        ck_assert_uint_eq(mixer_turns(&mixer, -rows[i].t), -rows[i].turns);
    }
}

/* Steps of a fixed-point phase stay with the exact one for as many outputs as a launch can have. */
TEST(phases_add)
{
    for (int trial = 0; trial < 1000; trial++) {
        double rate = random_between(1, 2) * pow(2, (double)random_below(36));
        double centre = random_between(1, 2) * pow(2, (double)random_below(72) - 36);
        int64_t t = (int64_t)(random_u64() >> (2 + random_below(40))), step = 1 + (int64_t)random_below(256);
        uint64_t n = random_below(1 << 30), drift;
        struct mixer mixer;
        mixer_init(&mixer, centre, rate);
        drift = mixer_turns(&mixer, t) + n * mixer_turns(&mixer, step) - mixer_turns(&mixer, t + (int64_t)n * step);
        ck_assert_uint_le(drift + (n / 2 + 1), n + 2);
    }
}

/* ---- The C version ----------------------------------------------------------------------------------------------- */

TEST(every_width, .end = N_WIDTHS)
{
    struct error error = {0};

    for (int64_t offset = 0; offset < 9; offset++) {
        struct ddc_args args = {
            .offset = offset, .n_out = 40, .n_taps = 70, .subsampling = 6, .sample_bits = widths[_i]};
        run_plain_c(&args, 1, &error);
    }
}

TEST(random_shapes)
{
    struct error error = {0};

    for (int trial = 0; trial < 60; trial++) {
        struct ddc_args args = {
            .offset = (int64_t)random_below(5000),
            .n_out = (uint32_t)random_below(400),
            .n_taps = 1 + (uint32_t)random_below(random_below(2) ? 40 : 600),
            .subsampling = 1 + (uint32_t)random_below(random_below(2) ? 9 : 130),
            .sample_bits = widths[random_below(N_WIDTHS)],
        };
        run_plain_c(&args, 1 + (int)random_below(3), &error);
    }
    print_error("plain_c", &error);
}

/* More taps of a residue than are taken at a time. */
TEST(many_taps)
{
    struct ddc_args args = {.offset = 1, .n_out = 130, .n_taps = 700, .subsampling = 3, .sample_bits = 10};
    struct error error = {0};

    run_plain_c(&args, 2, &error);
}

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

static void run_cuda(struct test_device *d, const struct ddc_args *args, const struct ddc_shape *shape,
                     struct error *error)
{
    size_t n_bytes = ddc_weights_bytes(args, shape, true), out_bytes;
    void *host = malloc(n_bytes);
    struct work w;

    ck_assert_ptr_nonnull(host);
    work_init(&w, args);
    w.args.scale = ddc_weights(&w.args, shape, true, w.filter, &w.mixer, host);
    w.args.weights = test_copy_in(d, host, n_bytes);
    out_bytes = (w.n_out + GUARD) * sizeof(float);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        w.args.in[pol] = test_keep(d, test_upload(d, w.in[pol], w.in_bytes, w.in_bytes + DDC_SPARE_BYTES));
        w.args.out[pol] = test_copy_in(d, w.out[pol], out_bytes);
    }
    test_launch(d, ddc_grid(args, shape), &w.args);
    for (size_t pol = 0; pol < N_POLS; pol++)
        test_download(d, w.out[pol], w.args.out[pol], out_bytes);
    compare(&w, 300, error);
    work_fini(&w);
    free(host);
}

/* Of one set of constants a few inputs: a compilation costs more than they do. */
static void run_cuda_shape(struct test_device *d, struct ddc_args *a, const struct ddc_shape *shape, int n_trials,
                           size_t max_out)
{
    struct kernel_constant constants[DDC_N_CONSTANTS];
    struct error error = {0};
    char what[80];

    ddc_constants(a, shape, constants);
    test_kernel(d, &ddc_kernel, constants, DDC_N_CONSTANTS);
    for (int trial = 0; trial < n_trials; trial++) {
        a->offset = (int64_t)random_below(random_below(2) ? 33 : 5000);
        a->n_out = 1 + (uint32_t)random_below(max_out);
        run_cuda(d, a, shape, &error);
    }
    snprintf(what, sizeof(what), "CUDA, subsampling %u, %u taps, %u bits", a->subsampling, a->n_taps, a->sample_bits);
    print_error(what, &error);
}

TEST_ON_DEVICE(cuda_every_width, .end = N_WIDTHS)
{
    struct ddc_args a = {.n_taps = 1 + (uint32_t)random_below(200),
                         .subsampling = 4 + (uint32_t)random_below(16),
                         .sample_bits = widths[_i]};
    struct ddc_shape shape = ddc_default_shape(&a);
    run_cuda_shape(d, &a, &shape, 3, 3000);
}

/* The default lengths of the subsamplings that matter, and the odd and smallest; other shapes. */
TEST_ON_DEVICE(cuda_sizes, .end = 14)
{
    static const struct {
        uint32_t subsampling, n_taps;
        struct ddc_shape shape;
    } sizes[] = {
        {4, 64, {0}},
        {8, 128, {0}},
        {8, 128, {2, 2, 32}},
        {16, 256, {0}},
        {16, 256, {1, 4, 128}},
        {10, 160, {0}},
        {128, 2048, {0}},
        {128, 2048, {2, 1, 96}},
        {1, 1, {0}},
        {1, 64, {0}},
        {3, 50, {0}},
        {7, 448, {2, 1, 16}},
        {64, 5, {0}},
        {256, 4096, {1, 2, 64}},
    };
    struct ddc_args a = {
        .n_taps = sizes[_i].n_taps, .subsampling = sizes[_i].subsampling, .sample_bits = random_below(4) ? 10 : 16};
    struct ddc_shape shape = sizes[_i].shape.n_warps ? sizes[_i].shape : ddc_default_shape(&a);
    run_cuda_shape(d, &a, &shape, a.subsampling > 20 ? 1 : 3, a.subsampling > 20 ? 1000 : 5000);
}

/* ---- A tone, through the default filter -------------------------------------------------------------------------- */

#define TONE_BITS 16
#define TONE_OUT  1024

/* Level of the output, in dB of a tone in the middle of the band, of a tone 'offset' from the centre in units of the
 * output's rate: by the C version, with samples of 16 bits. */
static double level_db(uint32_t subsampling, const float *filter, double offset)
{
    struct ddc_args a = {
        .n_out = TONE_OUT, .n_taps = 16 * subsampling, .subsampling = subsampling, .sample_bits = TONE_BITS};
    size_t n_samples = ddc_window_samples(subsampling, a.n_taps, a.n_out);
    uint8_t *in = calloc(n_samples, 2);
    float *weights = malloc(ddc_weights_bytes(&a, NULL, false)), *out = malloc(TONE_OUT * 2 * sizeof(*out));
    double power = 0, f = 0.31 + offset / subsampling, re = 0, im = 0;
    struct mixer mixer;

    ck_assert(in && weights && out);
    /* Dithered, so that what rounding does is noise; of that there is little in one frequency. */
    for (size_t t = 0; t < n_samples; t++)
        put_sample(in, t, TONE_BITS, (int)floor(30000 * cos(2 * M_PI * fmod(f * (double)t, 1)) + random_between(0, 1)));
    mixer_init(&mixer, 0.31, 1);
    a.scale = ddc_weights(&a, NULL, false, filter, &mixer, weights);
    a.weights = weights;
    a.in[0] = a.in[1] = in;
    a.out[0] = a.out[1] = out;
    a.phase_step = mixer_turns(&mixer, subsampling);
    ddc_kernel.cpu(&a, 1);
    for (size_t m = 0; m < TONE_OUT; m++) {
        double window = pow(sin(M_PI * ((double)m + 0.5) / TONE_OUT), 4), angle = -2 * M_PI * offset * (double)m;
        re += window * (out[2 * m] * cos(angle) - out[2 * m + 1] * sin(angle));
        im += window * (out[2 * m] * sin(angle) + out[2 * m + 1] * cos(angle));
        power += window;
    }
    free(out);
    free(weights);
    free(in);
    return 20 * log10(hypot(re, im) / power / (15000 * sqrt(subsampling)));
}

/* Aliases come down at least as far as a tone of 16 bits and its noise can tell. */
TEST(ripple_and_aliases, .end = 4)
{
    static const uint32_t subsamplings[] = {4, 8, 10, 16};
    struct design_ddc design = {subsamplings[_i], (size_t)16 * subsamplings[_i], 0.005, 0};
    float filter[256];
    double ripple = 0, alias = -INFINITY;

    ck_assert_int_eq(design_ddc(&design, filter), 0);
    for (int i = -5; i <= 5; i++) {
        ripple = fmax(ripple, fabs(level_db(design.subsampling, filter, 0.045 * i)));
        alias = fmax(alias, level_db(design.subsampling, filter, 1 + 0.045 * i));
        alias = fmax(alias, level_db(design.subsampling, filter, -1 + 0.045 * i));
    }
    printf("subsampling %u: a tone's level within %.2g dB, its aliases' at most %.0f dB\n", design.subsampling, ripple,
           alias);
    ck_assert_double_lt(ripple, 2e-4);
    ck_assert_double_lt(alias, -110);
}

SUITE(.timeout_s = 120, .start = random_start);
