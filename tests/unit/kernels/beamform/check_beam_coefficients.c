/* check_beam_coefficients - phasors and coefficients of the C version and of the CUDA variant, against double
 * precision.  Both give the same bits.  Fragments are compared with a model, byte by byte. */
#include "kernels/beamform/beam_coefficients.h"

#include "common/base/units.h"
#include "kernels/beamform/beamform.h"
#include "tests/unit/test_fragments.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <complex.h>
#include <math.h>

static double turns_of(uint64_t phase)
{
    return ldexp((double)(int64_t)phase, -64);
}

TEST(phasors)
{
    for (int i = 0; i < 200000; i++) {
        uint64_t phase = i < 64 ? UINT64_C(1) << i : i < 128 ? -(UINT64_C(1) << (i - 64)) : random_u64();
        struct beam_complex found = beam_phasor(phase);
        double complex expected = cexp(2 * I * M_PI * turns_of(phase));
        ck_assert_msg(fabs(found.re - creal(expected)) < 0x1p-23 && fabs(found.im - cimag(expected)) < 0x1p-23,
                      "phase %016llx: %.9g %.9g, not %.9g %.9g", (unsigned long long)phase, (double)found.re,
                      (double)found.im, creal(expected), cimag(expected));
    }
}

TEST(quarter_turns_are_exact)
{
    static const float re[] = {1, 0, -1, 0}, im[] = {0, 1, 0, -1};

    for (unsigned quarter = 0; quarter < 4; quarter++) {
        struct beam_complex found = beam_phasor((uint64_t)quarter << 62);
        ck_assert(found.re == re[quarter] && found.im == im[quarter]);
    }
}

TEST(largest_exponents)
{
    ck_assert_int_eq(beam_exponent(0), BEAM_EXPONENT_MAX);
    ck_assert_int_eq(beam_exponent(1), 14);
    for (int i = 0; i < 200000; i++) {
        float most = ldexpf((float)(1 + random_below(1 << 24)), (int)random_below(80) - 60);
        int32_t exponent = beam_exponent(most);
        ck_assert_double_le(ldexp((double)most, exponent), BEAM_COEFFICIENT_MAX);
        ck_assert(exponent == BEAM_EXPONENT_MAX || ldexp((double)most, exponent + 1) > BEAM_COEFFICIENT_MAX);
        ck_assert(ldexp(1, -exponent) == (double)beam_power_of_two(-exponent));
    }
}

/* ---- Coefficients ------------------------------------------------------------------------------------------------ */

#define N_MODELS 3

struct work {
    struct beam_coefficients_args args;
    size_t n_steering, n_calibration, n_coefficients, n_exponents, fragments_bytes;
    struct beam_steering *steering;
    int64_t *starts;
    struct beam *beams;
    float *calibration;
    int16_t *coefficients;
    int32_t *exponents;
    uint32_t *slots, *slot_of;
    int8_t *fragments;
};

static void work_init(struct work *w, uint32_t n_beams, uint32_t n_ants, uint32_t n_chan, bool calibrated)
{
    *w = (struct work){.args = {.n_models = N_MODELS, .n_beams = n_beams, .n_ants = n_ants, .n_chan = n_chan},
                       .n_steering = (size_t)n_beams * N_MODELS * n_ants,
                       .n_calibration = calibrated ? (size_t)n_ants * N_POLS * n_chan * 2 : 0,
                       .n_coefficients = (size_t)n_chan * n_beams * n_ants * 2,
                       .n_exponents = (size_t)n_chan * n_beams};
    w->steering = calloc(w->n_steering, sizeof(*w->steering));
    w->starts = calloc((size_t)n_beams * N_MODELS, sizeof(*w->starts));
    w->beams = calloc(n_beams, sizeof(*w->beams));
    w->calibration = calloc(w->n_calibration + 1, sizeof(*w->calibration));
    w->coefficients = malloc((w->n_coefficients + 1) * sizeof(*w->coefficients));
    w->exponents = malloc((w->n_exponents + 1) * sizeof(*w->exponents));
    memset(w->coefficients, 0xa5, (w->n_coefficients + 1) * sizeof(*w->coefficients));
    memset(w->exponents, 0xa5, (w->n_exponents + 1) * sizeof(*w->exponents));
    w->args.time = random_u64();
    w->args.at = (int64_t)(random_u64() >> 2);
    for (size_t b = 0; b < n_beams; b++) {
        size_t n_started = random_below(N_MODELS + 1);
        for (size_t m = 0; m < N_MODELS; m++)
            w->starts[b * N_MODELS + m] = m < n_started ? w->args.at - (int64_t)((n_started - 1 - m) * random_below(9))
                                                        : w->args.at + (int64_t)(1 + m);
    }
    for (size_t i = 0; i < w->n_steering; i++)
        w->steering[i] = (struct beam_steering){.phase = random_u64(),
                                                .slope = random_u64(),
                                                .amplitude = (float)random_below(1000) / 64,
                                                .phase_rate = random_u64(),
                                                .slope_rate = random_u64()};
    for (size_t b = 0; b < n_beams; b++)
        w->beams[b].pol = (uint32_t)random_below(2);
    w->slots = calloc(beamform_max_slots(n_beams), sizeof(*w->slots));
    w->slot_of = calloc(n_beams, sizeof(*w->slot_of));
    w->args.n_slots = beamform_slots(w->beams, n_beams, w->slots, w->slot_of);
    w->fragments_bytes = test_fragments_bytes(n_chan, w->args.n_slots, n_ants);
    w->fragments = malloc(w->fragments_bytes + 1);
    memset(w->fragments, TEST_FRAGMENTS_POISON, w->fragments_bytes + 1);
    for (size_t i = 0; i < w->n_calibration; i++)
        w->calibration[i] = ldexpf((float)random_below(20000) / 10000 - 1, i / 2 % n_chan == 0 ? 20 : 0);
}

static void work_fini(struct work *w)
{
    free(w->steering);
    free(w->starts);
    free(w->beams);
    free(w->calibration);
    free(w->coefficients);
    free(w->exponents);
    free(w->slots);
    free(w->slot_of);
    free(w->fragments);
}

/* The model of a beam that holds: [ant]. */
static struct beam_steering *model_of(const struct work *w, size_t beam)
{
    size_t n_started = 0;

    while (n_started < N_MODELS && w->starts[beam * N_MODELS + n_started] <= w->args.at)
        n_started++;
    return w->steering + (beam * N_MODELS + (n_started > 0 ? n_started - 1 : 0)) * w->args.n_ants;
}

static double complex model(const struct work *w, size_t beam, size_t ant, size_t chan)
{
    const struct beam_steering *s = &model_of(w, beam)[ant];
    const float *at = w->calibration + ((ant * N_POLS + w->beams[beam].pol) * w->args.n_chan + chan) * 2;
    double complex gain = w->n_calibration ? at[0] + I * at[1] : 1;

    uint64_t phase = s->phase + w->args.time * s->phase_rate, slope = s->slope + w->args.time * s->slope_rate;

    return s->amplitude * gain * cexp(2 * I * M_PI * turns_of(phase + chan * slope));
}

/* All fragments are the model's, of the coefficients as they are. */
static void check_fragments(const struct work *w)
{
    int8_t *expected =
        test_fragments(w->coefficients, w->args.n_chan, w->args.n_beams, w->args.n_ants, w->slots, w->args.n_slots);

    for (size_t i = 0; i < w->fragments_bytes; i++)
        if (w->fragments[i] != expected[i])
            ck_abort_msg("byte %zu of %zu: %d, not %d", i, w->fragments_bytes, w->fragments[i], expected[i]);
    ck_assert_int_eq(w->fragments[w->fragments_bytes], TEST_FRAGMENTS_POISON);
    free(expected);
}

/* Every coefficient is the model's to half a step and what single precision loses; the largest has all its bits. */
static void check(const struct work *w)
{
    for (size_t row = 0; row < w->n_exponents; row++) {
        size_t beam = row % w->args.n_beams, chan = row / w->args.n_beams;
        int most = 0;
        for (size_t ant = 0; ant < w->args.n_ants; ant++) {
            const int16_t *found = w->coefficients + (row * w->args.n_ants + ant) * 2;
            double complex expected = model(w, beam, ant, chan);
            double re = ldexp(creal(expected), w->exponents[row]), im = ldexp(cimag(expected), w->exponents[row]);
            ck_assert_msg(fabs(found[0] - re) < 0.5 + 0x1p-6 && fabs(found[1] - im) < 0.5 + 0x1p-6,
                          "beam %zu, channel %zu, antenna %zu: %d %d, not %g %g", beam, chan, ant, found[0], found[1],
                          re, im);
            most = abs(found[0]) > most ? abs(found[0]) : most;
            most = abs(found[1]) > most ? abs(found[1]) : most;
        }
        ck_assert_int_le(most, BEAM_COEFFICIENT_MAX);
        ck_assert(most == 0 || w->exponents[row] == BEAM_EXPONENT_MAX || most >= (BEAM_COEFFICIENT_MAX + 1) / 2 - 1);
    }
    ck_assert_int_eq(w->coefficients[w->n_coefficients], (int16_t)0xa5a5);
    ck_assert_int_eq(w->exponents[w->n_exponents], (int32_t)0xa5a5a5a5);
    check_fragments(w);
}

static void run_plain_c(struct work *w)
{
    w->args.steering = w->steering;
    w->args.starts = w->starts;
    w->args.beams = w->beams;
    w->args.calibration = w->n_calibration ? w->calibration : NULL;
    w->args.coefficients = w->coefficients;
    w->args.exponents = w->exponents;
    w->args.fragments = w->fragments;
    w->args.slot_of = w->slot_of;
    beam_coefficients_kernel.cpu(&w->args, 1 + (int)random_below(3));
}

static const struct {
    uint32_t n_beams, n_ants, n_chan;
} sizes[] = {{1, 1, 1}, {2, 3, 5}, {5, 33, 7}, {16, 80, 3}, {1, 127, 64}, {3, 257, 4}, {17, 130, 9}, {2, 1025, 2}};

TEST(plain_c, .end = 2 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, sizes[_i / 2].n_beams, sizes[_i / 2].n_ants, sizes[_i / 2].n_chan, _i % 2);
    run_plain_c(&w);
    check(&w);
    work_fini(&w);
}

/* Weights that are whole numbers give coefficients of which the sums are whole. */
TEST(whole_numbers_stay_whole)
{
    struct work w;

    work_init(&w, 3, 20, 4, false);
    for (size_t i = 0; i < w.n_steering; i++)
        w.steering[i] =
            (struct beam_steering){.phase = (uint64_t)random_below(4) << 62, .amplitude = (float)random_below(300)};
    run_plain_c(&w);
    for (size_t row = 0; row < w.n_exponents; row++)
        for (size_t ant = 0; ant < w.args.n_ants; ant++) {
            const int16_t *found = w.coefficients + (row * w.args.n_ants + ant) * 2;
            double whole = ldexp(abs(found[0]) + abs(found[1]), -w.exponents[row]);
            ck_assert(whole == (double)model_of(&w, row % 3)[ant].amplitude);
        }
    work_fini(&w);
}

/* The kernel makes only the coefficients of listed beams. */
TEST(listed_beams)
{
    static const uint32_t listed[] = {4, 1};
    struct work w;

    work_init(&w, 5, 7, 3, false);
    run_plain_c(&w);
    int16_t *before = malloc(w.n_coefficients * sizeof(*before));
    memcpy(before, w.coefficients, w.n_coefficients * sizeof(*before));
    w.args.time++;
    w.args.listed = listed;
    w.args.n_listed = ARRAY_LEN(listed);
    run_plain_c(&w);
    check_fragments(&w);
    for (size_t row = 0; row < w.n_exponents; row++) {
        bool same = memcmp(w.coefficients + row * 7 * 2, before + row * 7 * 2, 7 * 2 * sizeof(*before)) == 0;
        ck_assert(same == (row % 5 != 4 && row % 5 != 1));
    }
    w.args.listed = NULL;
    memcpy(before, w.coefficients, w.n_coefficients * sizeof(*before));
    run_plain_c(&w);
    check(&w);
    for (size_t row = 0; row < w.n_exponents; row++)
        if (row % 5 == 4 || row % 5 == 1)
            ck_assert_int_eq(memcmp(w.coefficients + row * 7 * 2, before + row * 7 * 2, 7 * 2 * sizeof(*before)), 0);
    free(before);
    work_fini(&w);
}

/* A calibration that is far off in one channel leaves all others as they are. */
TEST(a_wild_channel_spoils_no_other)
{
    struct work w, wild;

    work_init(&w, 2, 9, 6, true);
    run_plain_c(&w);
    wild = w;
    wild.coefficients = malloc(w.n_coefficients * sizeof(*w.coefficients));
    wild.exponents = malloc(w.n_exponents * sizeof(*w.exponents));
    w.calibration[(4 * N_POLS * 6 + 3) * 2] = 0x1p30f; /* antenna 4, polarisation 0, channel 3 */
    w.beams[0].pol = w.beams[1].pol = 0;
    run_plain_c(&w);
    w.calibration[(4 * N_POLS * 6 + 3) * 2] = 1;
    run_plain_c(&wild);
    for (size_t row = 0; row < w.n_exponents; row++) {
        bool same = memcmp(w.coefficients + row * 9 * 2, wild.coefficients + row * 9 * 2, 9 * 2 * sizeof(int16_t)) == 0;
        ck_assert(same == (row / 2 != 3) && (w.exponents[row] == wild.exponents[row]) == (row / 2 != 3));
    }
    free(wild.coefficients);
    free(wild.exponents);
    work_fini(&w);
}

TEST(cuda, .end = 2 * ARRAY_LEN(sizes))
{
    struct test_device d;
    struct device_kernel *kernel;
    struct work w;

    if (!test_device_open(&d))
        return;
    work_init(&w, sizes[_i / 2].n_beams, sizes[_i / 2].n_ants, sizes[_i / 2].n_chan, _i % 2);
    run_plain_c(&w);
    struct beam_coefficients_args args = w.args;
    size_t coefficients_bytes = w.n_coefficients * sizeof(*w.coefficients),
           exponents_bytes = w.n_exponents * sizeof(*w.exponents);
    int16_t *coefficients = malloc(coefficients_bytes);
    int32_t *exponents = malloc(exponents_bytes);
    args.steering = test_upload(&d, w.steering, w.n_steering * sizeof(*w.steering), w.n_steering * sizeof(*w.steering));
    size_t starts_bytes = (size_t)w.args.n_beams * N_MODELS * sizeof(*w.starts);
    args.starts = test_upload(&d, w.starts, starts_bytes, starts_bytes);
    args.beams = test_upload(&d, w.beams, w.args.n_beams * sizeof(*w.beams), w.args.n_beams * sizeof(*w.beams));
    if (args.calibration)
        args.calibration =
            test_upload(&d, w.calibration, w.n_calibration * sizeof(float), w.n_calibration * sizeof(float));
    args.coefficients = test_upload(&d, "", 0, coefficients_bytes);
    args.exponents = test_upload(&d, "", 0, exponents_bytes);
    args.slot_of = test_upload(&d, w.slot_of, args.n_beams * sizeof(*w.slot_of), args.n_beams * sizeof(*w.slot_of));
    memset(w.fragments, TEST_FRAGMENTS_POISON, w.fragments_bytes);
    args.fragments = test_upload(&d, w.fragments, w.fragments_bytes, w.fragments_bytes);
    uint32_t *listed = calloc(args.n_beams, sizeof(*listed)); /* all, from the last one on */
    for (uint32_t b = 0; b < args.n_beams; b++)
        listed[b] = args.n_beams - 1 - b;
    args.n_listed = args.n_beams;
    args.listed = test_upload(&d, listed, args.n_beams * sizeof(*listed), args.n_beams * sizeof(*listed));
    ck_assert_int_eq(device_kernel_create(d.device, &beam_coefficients_kernel, NULL, 0, &kernel), 0);
    struct kernel_grid grid = beam_coefficients_grid(&args);
    device_launch(d.stream, kernel, &grid, &args);
    test_download(&d, coefficients, args.coefficients, coefficients_bytes);
    test_download(&d, exponents, args.exponents, exponents_bytes);
    ck_assert_int_eq(memcmp(coefficients, w.coefficients, coefficients_bytes), 0);
    ck_assert_int_eq(memcmp(exponents, w.exponents, exponents_bytes), 0);
    test_download(&d, w.fragments, args.fragments, w.fragments_bytes);
    check_fragments(&w);
    device_kernel_destroy(kernel);
    device_free(d.device, (void *)args.steering);
    device_free(d.device, (void *)args.starts);
    device_free(d.device, (void *)args.beams);
    device_free(d.device, (void *)args.calibration);
    device_free(d.device, (void *)args.listed);
    device_free(d.device, args.coefficients);
    device_free(d.device, args.exponents);
    device_free(d.device, (void *)args.slot_of);
    device_free(d.device, args.fragments);
    free(coefficients);
    free(exponents);
    free(listed);
    work_fini(&w);
    test_device_close(&d);
}

SUITE(.timeout_s = 60, .start = random_start);
