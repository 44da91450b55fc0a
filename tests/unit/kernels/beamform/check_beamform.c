/* check_beamform - beams of the C version and of the CUDA variant, against sums of integers and double precision.  Both
 * give the same bits.  Cases: -128, saturation, absent antennas, renormalisation, all formats. */
#include "kernels/beamform/beamform.h"

#include "common/base/units.h"
#include "tests/unit/test_fragments.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"
#include "tests/unit/test_main.h"

#include <math.h>

#define N_BATCHES 3
#define NEAR_HALF 1e-4 /* of a step: the model may round to either side */

/* 24, 40, 300 and 1040 beams: blocks hold their voltages; 300 beams need two blocks.  33 beams have too many antennas
 * for that.  40, 300 and 1040 beams are enough for wgmma, and 1040 beams need two blocks with wgmma. */
static const struct {
    uint32_t n_beams, n_ants, n_chan, n_spectra;
} sizes[] = {{1, 1, 1, 16},    {4, 2, 3, 32},   {5, 3, 2, 144},   {1, 5, 4, 16},   {9, 16, 2, 64},
             {2, 33, 3, 48},   {3, 80, 2, 128}, {17, 127, 1, 32}, {2, 256, 2, 16}, {24, 20, 2, 144},
             {40, 80, 1, 264}, {300, 96, 1, 8}, {1040, 3, 1, 24}, {33, 97, 1, 16}, {1, 1025, 1, 136}};
static const enum voltage_format formats[] = {VOLTAGES_8_BITS, VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET};

struct work {
    struct beamform_args args;
    size_t n_voltages, n_coefficients, n_exponents, n_out, n_saturated; /* n_voltages in bytes */
    uint8_t *voltages;
    int16_t *coefficients;
    int32_t *exponents;
    struct beam *beams;
    float *renormalise;
    int8_t *out;
    uint32_t *saturated;
};

static void clear(struct work *w)
{
    memset(w->out, 0x5a, w->n_out + 1);
    for (size_t i = 0; i <= w->n_saturated; i++)
        w->saturated[i] = 7;
}

/* The first batch of the voltages is not used, so that batches are counted. */
static void work_init(struct work *w, size_t size, enum voltage_format format, bool renormalises)
{
    const struct beamform_args args = {.format = format,
                                       .n_beams = sizes[size].n_beams,
                                       .n_ants = sizes[size].n_ants,
                                       .n_chan = sizes[size].n_chan,
                                       .n_spectra = sizes[size].n_spectra,
                                       .chan_offset = (uint32_t)random_below(60000),
                                       .first_spectrum = random_u64() >> 16 & ~UINT64_C(7),
                                       .first_batch = 1,
                                       .n_batches = N_BATCHES - 1};
    size_t n_samples = (size_t)N_BATCHES * args.n_ants * args.n_chan * args.n_spectra * N_POLS;

    *w = (struct work){.args = args,
                       .n_voltages = n_samples * voltage_bytes(format),
                       .n_coefficients = (size_t)args.n_chan * args.n_beams * args.n_ants * 2,
                       .n_exponents = (size_t)args.n_chan * args.n_beams,
                       .n_out = (size_t)N_BATCHES * args.n_beams * args.n_chan * args.n_spectra * 2,
                       .n_saturated = (size_t)N_BATCHES * args.n_beams};
    w->voltages = malloc(w->n_voltages);
    w->coefficients = malloc(w->n_coefficients * sizeof(*w->coefficients));
    w->exponents = malloc(w->n_exponents * sizeof(*w->exponents));
    w->beams = calloc(args.n_beams, sizeof(*w->beams));
    w->out = malloc(w->n_out + 1);
    w->saturated = malloc((w->n_saturated + 1) * sizeof(*w->saturated));
    random_bytes(w->voltages, w->n_voltages);
    size_t heap_bytes = (size_t)args.n_chan * args.n_spectra * N_POLS * voltage_bytes(format);
    for (size_t heap = 0; heap < (size_t)N_BATCHES * args.n_ants; heap++)
        if (random_below(8) == 0) /* absent */
            memset(w->voltages + heap * heap_bytes, voltage_zero(format), heap_bytes);
    for (size_t i = 0; i < w->n_coefficients; i++)
        w->coefficients[i] =
            (int16_t)(random_below(16)  ? (int)random_below(2 * BEAM_COEFFICIENT_MAX + 1) - BEAM_COEFFICIENT_MAX
                      : random_below(2) ? BEAM_COEFFICIENT_MAX
                                        : -BEAM_COEFFICIENT_MAX);
    /* An rms of about 50 steps, so that some parts are clipped. */
    int usual = (int)lrint(log2(sqrt(args.n_ants) * 19000 * (format == VOLTAGES_8_BITS ? 104 : 6.5) / 50));
    for (size_t i = 0; i < w->n_exponents; i++)
        w->exponents[i] = usual + (int)random_below(3) - 1;
    for (size_t b = 0; b < args.n_beams; b++)
        w->beams[b] = (struct beam){random_u64(), (uint32_t)random_below(2), (uint32_t)random_below(4) > 0};
    w->renormalise = malloc(w->n_saturated * sizeof(*w->renormalise));
    for (size_t heap = 0; heap < w->n_saturated; heap++)
        w->renormalise[heap] = (float)sqrt(1.0 + (double)random_below(100) / 100);
    w->args.renormalise = renormalises ? w->renormalise : NULL;
    clear(w);
}

static void work_fini(struct work *w)
{
    free(w->voltages);
    free(w->coefficients);
    free(w->exponents);
    free(w->beams);
    free(w->renormalise);
    free(w->out);
    free(w->saturated);
}

/* Sums over the antennas, exact. */
static void sum(const struct work *w, size_t batch, size_t beam, size_t chan, size_t s, int64_t total[2])
{
    const struct beamform_args *a = &w->args;

    total[0] = total[1] = 0;
    for (size_t ant = 0; ant < a->n_ants; ant++) {
        size_t at = (((batch * a->n_ants + ant) * a->n_chan + chan) * a->n_spectra + s) * N_POLS + w->beams[beam].pol;
        const int16_t *c = w->coefficients + ((chan * a->n_beams + beam) * a->n_ants + ant) * 2;
        int64_t re = (int64_t)voltage_part(w->voltages, a->format, at, 0),
                im = (int64_t)voltage_part(w->voltages, a->format, at, 1);
        total[0] += c[0] * re - c[1] * im;
        total[1] += c[0] * im + c[1] * re;
    }
}

/* Part 0 or 1 of a sample's dither, out of a block of eight spectra: four words of Philox, and four combinations. */
static double dither(const struct work *w, size_t batch, size_t beam, size_t chan, size_t s, int part)
{
    const struct beamform_args *a = &w->args;
    uint64_t spectrum = a->first_spectrum + batch * a->n_spectra + s, seed = w->beams[beam].seed;
    const uint32_t counter[4] = {a->chan_offset + (uint32_t)chan, (uint32_t)(spectrum / 8), (uint32_t)(spectrum >> 35),
                                 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];

    philox4x32(counter, key, words);
    uint32_t i = spectrum % 4, word = words[i];
    if (spectrum % 8 >= 4)
        word = 0x9E3779B1 * word + words[(i + 1) % 4];
    uint32_t half = (word >> (16 * part) & 0xffff) | 1;
    return w->beams[beam].dither ? half / 65536.0 - 0.5 : 0;
}

/* What a heap has; counts samples that are clipped for certain, and those that may be. */
static void check_heap(const struct work *w, size_t batch, size_t beam)
{
    const struct beamform_args *a = &w->args;
    size_t n_clipped = 0, n_unsure = 0, heap = batch * a->n_beams + beam;

    for (size_t i = 0; i < (size_t)a->n_chan * a->n_spectra; i++) {
        size_t chan = i / a->n_spectra, s = i % a->n_spectra;
        double scale = ldexp(1, -w->exponents[chan * a->n_beams + beam]);
        int64_t total[2];
        bool clipped = false, unsure = false;
        sum(w, batch, beam, chan, s, total);
        for (int part = 0; part < 2; part++) {
            double v = (double)total[part] * scale * (double)(a->renormalise ? w->renormalise[heap] : 1.0f) +
                       dither(w, batch, beam, chan, s, part);
            double expected = rint(fmax(-127, fmin(127, v)));
            int found = w->out[(heap * a->n_chan * a->n_spectra + i) * 2 + (size_t)part];
            bool either = fabs(v - floor(v) - 0.5) < NEAR_HALF;
            ck_assert_msg(fabs(found - expected) <= (either ? 1 : 0),
                          "batch %zu, beam %zu, channel %zu, spectrum %zu: %d, not %g", batch, beam, chan, s, found, v);
            clipped = clipped || fabs(v) > 127 + NEAR_HALF;
            unsure = unsure || fabs(fabs(v) - 127) <= NEAR_HALF;
        }
        n_clipped += clipped;
        n_unsure += unsure && !clipped;
    }
    size_t counted = w->saturated[heap] - 7;
    ck_assert_msg(counted >= n_clipped && counted <= n_clipped + n_unsure, "%zu clipped, not %zu", counted, n_clipped);
}

static void check(const struct work *w)
{
    size_t heap_bytes = (size_t)w->args.n_chan * w->args.n_spectra * 2;

    for (size_t batch = 1; batch < N_BATCHES; batch++)
        for (size_t beam = 0; beam < w->args.n_beams; beam++)
            check_heap(w, batch, beam);
    for (size_t i = 0; i < w->args.n_beams * heap_bytes; i++)
        ck_assert_int_eq(w->out[i], 0x5a); /* the batch before the first */
    ck_assert_int_eq(w->out[w->n_out], 0x5a);
    for (size_t i = 0; i < w->args.n_beams; i++)
        ck_assert_uint_eq(w->saturated[i], 7);
    ck_assert_uint_eq(w->saturated[w->n_saturated], 7);
}

static void run_plain_c(struct work *w)
{
    w->args.voltages = w->voltages;
    w->args.coefficients = w->coefficients;
    w->args.exponents = w->exponents;
    w->args.beams = w->beams;
    w->args.out = w->out;
    w->args.saturated = w->saturated;
    beamform_kernel.cpu(&w->args, 1 + (int)random_below(3));
}

TEST(plain_c, .end = 3 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, (size_t)_i / 3, formats[_i % 3], _i % 2);
    run_plain_c(&w);
    check(&w);
    work_fini(&w);
}

/* Equal weights of 1 and no dither: each part is the sum of the voltages, and no more. */
TEST(plain_sums_are_exact)
{
    struct work w;

    work_init(&w, 3, VOLTAGES_8_BITS, false);
    for (size_t i = 0; i < w.n_coefficients; i++)
        w.coefficients[i] = i % 2 ? 0 : 1 << 14;
    for (size_t i = 0; i < w.n_exponents; i++)
        w.exponents[i] = 14;
    for (size_t i = 0; i < w.n_voltages; i++)
        w.voltages[i] = (uint8_t)((int)random_below(51) - 25);
    run_plain_c(&w);
    for (size_t i = 0; i < (size_t)w.args.n_chan * w.args.n_spectra; i++) {
        int64_t total[2];
        sum(&w, 1, 0, i / w.args.n_spectra, i % w.args.n_spectra, total);
        const int8_t *found = w.out + ((size_t)w.args.n_chan * w.args.n_spectra + i) * 2;
        ck_assert(found[0] == total[0] >> 14 && found[1] == total[1] >> 14);
    }
    ck_assert_uint_eq(w.saturated[1], 7); /* of sums of up to 125 */
    work_fini(&w);
}

static void run_cuda(const struct test_device *d, const struct work *w, int8_t *out, uint32_t *saturated)
{
    struct kernel_constant constants[BEAMFORM_N_CONSTANTS];
    struct device_kernel *kernel;
    struct beamform_args args = w->args;
    size_t exponents_bytes = w->n_exponents * sizeof(*w->exponents), beams_bytes = w->args.n_beams * sizeof(*w->beams),
           saturated_bytes = (w->n_saturated + 1) * sizeof(*w->saturated),
           renormalise_bytes = w->n_saturated * sizeof(*w->renormalise);

    args.voltages = test_upload(d, w->voltages, w->n_voltages, w->n_voltages);
    args.coefficients = NULL;
    args.exponents = test_upload(d, w->exponents, exponents_bytes, exponents_bytes);
    args.beams = test_upload(d, w->beams, beams_bytes, beams_bytes);
    if (args.renormalise)
        args.renormalise = test_upload(d, w->renormalise, renormalise_bytes, renormalise_bytes);
    uint32_t *slots = malloc((beamform_max_slots(args.n_beams) + args.n_beams) * sizeof(*slots)),
             *slot_of = slots + beamform_max_slots(args.n_beams);
    args.n_slots = beamform_slots(w->beams, args.n_beams, slots, slot_of);
    ck_assert_uint_le(args.n_slots, beamform_max_slots(args.n_beams));
    for (uint32_t b = 0; b < args.n_beams; b++)
        ck_assert_uint_eq(slots[slot_of[b]], b);
    args.slots = test_upload(d, slots, args.n_slots * sizeof(*slots), args.n_slots * sizeof(*slots));
    size_t fragments_bytes = test_fragments_bytes(args.n_chan, args.n_slots, args.n_ants);
    int8_t *fragments = test_fragments(w->coefficients, args.n_chan, args.n_beams, args.n_ants, slots, args.n_slots);
    args.fragments = test_upload(d, fragments, fragments_bytes, fragments_bytes);
    free(fragments);
    free(slots);
    args.out = test_upload(d, w->out, w->n_out + 1, w->n_out + 1);
    args.saturated = test_upload(d, w->saturated, saturated_bytes, saturated_bytes);
    args.wgmma = device_has_wgmma(d->device) ? w->args.wgmma : 0;
    beamform_constants(&args, constants);
    ck_assert_int_eq(device_kernel_create(d->device, &beamform_kernel, constants, BEAMFORM_N_CONSTANTS, &kernel), 0);
    struct kernel_grid grid = beamform_grid(&args);
    device_launch(d->stream, kernel, &grid, &args);
    test_download(d, out, args.out, w->n_out + 1);
    test_download(d, saturated, args.saturated, saturated_bytes);
    device_kernel_destroy(kernel);
    device_free(d->device, (void *)args.voltages);
    device_free(d->device, (void *)args.fragments);
    device_free(d->device, (void *)args.exponents);
    device_free(d->device, (void *)args.beams);
    device_free(d->device, (void *)args.slots);
    device_free(d->device, (void *)args.renormalise);
    device_free(d->device, args.out);
    device_free(d->device, args.saturated);
}

/* Both variants for each size: i / 6 is the size, i / 2 % 3 the format. */
TEST(cuda, .end = 6 * ARRAY_LEN(sizes))
{
    struct test_device d;
    struct work w;

    if (!test_device_open(&d))
        return;
    work_init(&w, (size_t)_i / 6, formats[_i / 2 % 3], random_below(2));
    w.args.wgmma = _i % 2 ? 1 + (uint32_t)random_below(4) : 0; /* few blocks, so that a block has several items */
    int8_t *out = malloc(w.n_out + 1);
    uint32_t *saturated = malloc((w.n_saturated + 1) * sizeof(*saturated));
    run_cuda(&d, &w, out, saturated);
    run_plain_c(&w);
    ck_assert_int_eq(memcmp(out, w.out, w.n_out + 1), 0);
    ck_assert_int_eq(memcmp(saturated, w.saturated, (w.n_saturated + 1) * sizeof(*saturated)), 0);
    free(out);
    free(saturated);
    work_fini(&w);
    test_device_close(&d);
}

static const uint32_t full_ants[] = {256, 257};

/* -128 times the largest coefficients, all of one sign in each part: the sums that need most bits. */
/* The dithers of eight spectra are uniform and uncorrelated, each part with each other part. */
TEST(dither_is_uncorrelated)
{
    enum { N_DRAWS = 100000, N_PARTS = 16 };
    const double sigma = 1 / sqrt(N_DRAWS);
    double means[N_PARTS] = {0}, products[N_PARTS][N_PARTS] = {{0}};
    uint64_t seed = random_u64();

    for (uint64_t draw = 0; draw < N_DRAWS; draw++) {
        uint32_t words[4];
        double parts[N_PARTS];
        beamform_dither(seed, 17, draw, words);
        for (uint32_t i = 0; i < N_PARTS; i++) {
            parts[i] = ((beamform_dither_word(words, i / 2) >> (16 * (i % 2)) & 0xffff) | 1) / 65536.0 - 0.5;
            means[i] += parts[i] / N_DRAWS;
        }
        for (size_t i = 0; i < N_PARTS; i++)
            for (size_t j = 0; j <= i; j++)
                products[i][j] += parts[i] * parts[j] * 12 / N_DRAWS;
    }
    for (size_t i = 0; i < N_PARTS; i++) {
        ck_assert_double_lt(fabs(means[i]), 6 * sigma / sqrt(12));
        for (size_t j = 0; j <= i; j++)
            ck_assert_double_eq_tol(products[i][j], i == j, 6 * sigma);
    }
}

TEST(full_scale, .end = ARRAY_LEN(full_ants))
{
    struct test_device d;
    struct work w;

    if (!test_device_open(&d))
        return;
    work_init(&w, ARRAY_LEN(sizes) - 1, VOLTAGES_8_BITS, false); /* of which fewer antennas are used */
    w.args.n_ants = full_ants[_i];
    memset(w.voltages, 0x80, w.n_voltages);
    for (size_t i = 0; i < w.n_coefficients; i++)
        w.coefficients[i] = i % 2 ? BEAM_COEFFICIENT_MAX : -BEAM_COEFFICIENT_MAX;
    for (size_t i = 0; i < w.n_exponents; i++)
        w.exponents[i] = 25;
    w.beams[0].dither = 0;
    int8_t *out = malloc(w.n_out + 1);
    uint32_t *saturated = malloc((w.n_saturated + 1) * sizeof(*saturated));
    run_cuda(&d, &w, out, saturated);
    run_plain_c(&w);
    check(&w);
    ck_assert_int_eq(memcmp(out, w.out, w.n_out + 1), 0);
    double expected = ldexp(2.0 * 128 * BEAM_COEFFICIENT_MAX * full_ants[_i], -25);
    ck_assert_int_eq(w.out[w.n_out / N_BATCHES], (int8_t)lrint(expected));
    free(out);
    free(saturated);
    work_fini(&w);
    test_device_close(&d);
}

SUITE(.timeout_s = 60, .start = random_start);
