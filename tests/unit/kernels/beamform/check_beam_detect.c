/* check_beam_detect - powers of beams of the C version and of the CUDA variant, against sums of integers.  The parts of
 * a sum are computed in double precision.  Both variants give the same bits.  Cases: windows that begin and end
 * anywhere, all products, groups of channels, saturation, absent antennas, renormalisation, all formats; then both
 * formats of beam_finish. */
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beam_finish.h"

#include "common/base/units.h"
#include "tests/unit/test_fragments.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"

#include <math.h>

#define N_BATCHES 4
#define GUARD     0x5a5a5a5a5a5a

/* The windows' spectra and number, and how far behind the first spectrum they begin (before it, if negative).  More
 * than 8 beams of up to 96 antennas: warps hold their voltages; 140 beams in two blocks.  530 beams need two blocks
 * with wgmma.  With up to 128 spectra, and in the last part of 360 spectra, half of the producer's warps load nothing. */
static const struct {
    uint32_t n_beams, n_ants, n_chan, n_spectra, group_channels, window_spectra, n_windows;
    int begin;
} sizes[] = {{1, 1, 1, 16, 1, 1, 48, 0},      {2, 2, 4, 32, 2, 7, 11, 5},      {9, 16, 2, 64, 2, 64, 2, 64},
             {3, 33, 3, 144, 1, 37, 12, -9},  {1, 80, 2, 128, 1, 4096, 1, -7}, {17, 5, 2, 40, 1, 16, 9, -30},
             {2, 257, 1, 48, 1, 9, 16, 0},    {1, 1024, 1, 16, 1, 3, 16, 1},   {9, 97, 2, 48, 1, 32, 3, 0},
             {12, 80, 1, 264, 1, 33, 16, -2}, {140, 96, 1, 72, 1, 5, 40, -1},  {10, 65, 1, 160, 1, 32, 9, 32},
             {65, 80, 2, 328, 2, 47, 14, 3},  {64, 16, 1, 64, 1, 32, 4, 0},    {72, 5, 1, 40, 1, 16, 9, -30},
             {530, 3, 1, 24, 1, 16, 4, -5},   {64, 5, 8, 104, 2, 20, 9, 3},    {64, 16, 4, 360, 1, 47, 14, 3}};
static const unsigned of_wgmma[] = {10, 12, 13, 14, 15, 16, 17}; /* sizes with enough beams and few enough antennas */
static const enum voltage_format formats[] = {VOLTAGES_8_BITS, VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET};
static const enum beam_products products[] = {BEAM_STOKES, BEAM_TOTAL, BEAM_POWER_0, BEAM_POWER_1};

struct work {
    struct beam_detect_args args;
    size_t n_voltages, n_coefficients, n_exponents, n_powers; /* n_voltages in bytes */
    uint8_t *voltages;
    int16_t *coefficients;
    int32_t *exponents;
    struct beam *beams;
    float *renormalise; /* [batch][row] */
    int64_t *powers;
    uint32_t *saturated;
};

static void work_init(struct work *w, size_t size, enum voltage_format format, enum beam_products wanted)
{
    const struct beam_detect_args args = {
        .form = {.format = format,
                 .n_beams = 2 * sizes[size].n_beams,
                 .n_ants = sizes[size].n_ants,
                 .n_chan = sizes[size].n_chan,
                 .n_spectra = sizes[size].n_spectra,
                 .first_spectrum = ((random_u64() >> 16) + 100) & ~UINT64_C(3),
                 .first_batch = 1,
                 .n_batches = N_BATCHES - 1},
        .products = wanted,
        .n_windows = sizes[size].n_windows,
        .window_spectra = sizes[size].window_spectra,
        .group_channels = sizes[size].group_channels,
    };
    const struct beamform_args *f = &args.form;
    size_t heap_bytes = (size_t)f->n_chan * f->n_spectra * N_POLS * voltage_bytes(format);

    *w = (struct work){.args = args,
                       .n_voltages = N_BATCHES * f->n_ants * heap_bytes,
                       .n_coefficients = (size_t)f->n_chan * f->n_beams * f->n_ants * 2,
                       .n_exponents = (size_t)f->n_chan * f->n_beams,
                       .n_powers = (size_t)args.n_windows * sizes[size].n_beams * beam_n_products(wanted) * f->n_chan /
                                   args.group_channels};
    w->args.first = f->first_spectrum + f->n_spectra + (uint64_t)(int64_t)sizes[size].begin;
    w->voltages = malloc(w->n_voltages);
    w->coefficients = malloc(w->n_coefficients * sizeof(*w->coefficients));
    w->exponents = malloc(w->n_exponents * sizeof(*w->exponents));
    w->beams = calloc(f->n_beams, sizeof(*w->beams));
    w->powers = malloc((w->n_powers + 1) * sizeof(*w->powers));
    w->saturated = malloc((f->n_beams / 2 + 1) * sizeof(*w->saturated));
    random_bytes(w->voltages, w->n_voltages);
    for (size_t heap = 0; heap < (size_t)N_BATCHES * f->n_ants; heap++)
        if (random_below(8) == 0) /* absent */
            memset(w->voltages + heap * heap_bytes, voltage_zero(format), heap_bytes);
    for (size_t i = 0; i < w->n_coefficients; i++)
        w->coefficients[i] = (int16_t)((int)random_below(2 * BEAM_COEFFICIENT_MAX + 1) - BEAM_COEFFICIENT_MAX);
    /* An rms of about 50 steps, so that some parts are clipped. */
    int usual = (int)lrint(log2(sqrt(f->n_ants) * 19000 * (format == VOLTAGES_8_BITS ? 104 : 6.5) / 50));
    for (size_t i = 0; i < w->n_exponents; i++)
        w->exponents[i] = usual + (int)random_below(3) - 1;
    for (uint32_t b = 0; b < f->n_beams; b++)
        w->beams[b].pol = b % 2;
    w->renormalise = malloc((size_t)N_BATCHES * f->n_beams * sizeof(*w->renormalise));
    for (size_t b = 0; b < (size_t)N_BATCHES * f->n_beams; b++)
        w->renormalise[b] = (float)sqrt(1.0 + (double)random_below(100) / 100);
    if (size % 2)
        w->args.form.renormalise = w->renormalise;
    for (size_t i = 0; i <= w->n_powers; i++)
        w->powers[i] = GUARD;
    for (size_t i = 0; i <= f->n_beams / 2; i++)
        w->saturated[i] = 7;
}

static void work_fini(struct work *w)
{
    free(w->voltages);
    free(w->coefficients);
    free(w->exponents);
    free(w->beams);
    free(w->renormalise);
    free(w->powers);
    free(w->saturated);
}

/* A sample of a beam's polarisation, as integers.  Returns whether it is clipped.  The float's roundings are those of
 * beamform.h; products with 2^-exponent and 256 are exact. */
static bool sample(const struct work *w, size_t batch, size_t row, size_t chan, size_t s, int64_t parts[2])
{
    const struct beamform_args *f = &w->args.form;
    double scale = ldexp(256, -w->exponents[chan * f->n_beams + row]);
    int64_t total[2] = {0, 0};
    bool clipped = false;

    for (size_t ant = 0; ant < f->n_ants; ant++) {
        size_t at = (((batch * f->n_ants + ant) * f->n_chan + chan) * f->n_spectra + s) * N_POLS + row % 2;
        const int16_t *c = w->coefficients + ((chan * f->n_beams + row) * f->n_ants + ant) * 2;
        int64_t re = (int64_t)voltage_part(w->voltages, f->format, at, 0),
                im = (int64_t)voltage_part(w->voltages, f->format, at, 1);
        total[0] += c[0] * re - c[1] * im;
        total[1] += c[0] * im + c[1] * re;
    }
    for (int part = 0; part < 2; part++) {
        float v = (float)total[part] * (f->renormalise ? w->renormalise[batch * f->n_beams + row] : 1.0f);
        double scaled = (double)v * scale;
        clipped = clipped || fabs(scaled) > 32767;
        parts[part] = (int64_t)rint(fmax(-32767, fmin(32767, scaled)));
    }
    return clipped;
}

/* Adds up in 'powers' and 'saturated' what the kernel must add. */
static void model(const struct work *w, int64_t *powers, uint32_t *saturated)
{
    const struct beam_detect_args *a = &w->args;
    size_t n = beam_n_products(a->products), n_groups = a->form.n_chan / a->group_channels,
           n_beams = a->form.n_beams / 2;

    for (size_t i = 0; i < (size_t)a->form.n_batches * a->form.n_spectra * a->form.n_chan * n_beams; i++) {
        size_t beam = i % n_beams, chan = i / n_beams % a->form.n_chan, at = i / n_beams / a->form.n_chan;
        size_t batch = 1 + at / a->form.n_spectra, s = at % a->form.n_spectra;
        int64_t from = (int64_t)(a->form.first_spectrum + batch * a->form.n_spectra + s - a->first), x[2], y[2];
        if (from < 0 || from >= (int64_t)a->n_windows * a->window_spectra)
            continue;
        saturated[beam] += sample(w, batch, 2 * beam, chan, s, x);
        saturated[beam] += sample(w, batch, 2 * beam + 1, chan, s, y);
        int64_t xx = x[0] * x[0] + x[1] * x[1], yy = y[0] * y[0] + y[1] * y[1];
        const int64_t all[] = {
            xx, yy, xx + yy, xx - yy, 2 * (x[0] * y[0] + x[1] * y[1]), 2 * (x[1] * y[0] - x[0] * y[1])};
        size_t first = a->products == BEAM_POWER_0 ? 0 : a->products == BEAM_POWER_1 ? 1 : 2;
        size_t row = ((size_t)from / a->window_spectra * n_beams + beam) * n;
        for (size_t p = 0; p < n; p++)
            powers[(row + p) * n_groups + chan / a->group_channels] += all[first + p];
    }
}

static void run_plain_c(struct work *w)
{
    w->args.form.voltages = w->voltages;
    w->args.form.coefficients = w->coefficients;
    w->args.form.exponents = w->exponents;
    w->args.form.beams = w->beams;
    w->args.form.saturated = w->saturated;
    w->args.powers = w->powers;
    beam_detect_kernel.cpu(&w->args, 1 + (int)random_below(3));
}

TEST(plain_c, .end = 3 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, (size_t)_i / 3, formats[_i % 3], products[_i % 4]);
    size_t powers_bytes = (w.n_powers + 1) * sizeof(*w.powers), n_beams = w.args.form.n_beams / 2;
    int64_t *powers = malloc(powers_bytes);
    uint32_t *saturated = malloc((n_beams + 1) * sizeof(*saturated));
    memcpy(powers, w.powers, powers_bytes);
    memcpy(saturated, w.saturated, (n_beams + 1) * sizeof(*saturated));
    model(&w, powers, saturated);
    run_plain_c(&w);
    for (size_t i = 0; i <= w.n_powers; i++)
        ck_assert_msg(w.powers[i] == powers[i], "power %zu of %zu: %lld, not %lld", i, w.n_powers,
                      (long long)w.powers[i], (long long)powers[i]);
    for (size_t i = 0; i <= n_beams; i++)
        ck_assert_uint_eq(w.saturated[i], saturated[i]);
    free(powers);
    free(saturated);
    work_fini(&w);
}

static void run_cuda(const struct test_device *d, const struct work *w, int64_t *powers, uint32_t *saturated)
{
    struct kernel_constant constants[BEAM_DETECT_N_CONSTANTS];
    struct device_kernel *kernel;
    struct beam_detect_args args = w->args;
    struct beamform_args *f = &args.form;

    f->wgmma = device_has_wgmma(d->device) ? w->args.form.wgmma : 0;
    size_t exponents_bytes = w->n_exponents * sizeof(*w->exponents), beams_bytes = f->n_beams * sizeof(*w->beams),
           saturated_bytes = (f->n_beams / 2 + 1) * sizeof(*saturated),
           renormalise_bytes = (size_t)N_BATCHES * f->n_beams * sizeof(*w->renormalise),
           powers_bytes = (w->n_powers + 1) * sizeof(*powers);
    uint32_t *slots = malloc((beamform_max_slots(f->n_beams) + f->n_beams) * sizeof(*slots));

    f->voltages = test_upload(d, w->voltages, w->n_voltages, w->n_voltages);
    f->coefficients = NULL;
    f->exponents = test_upload(d, w->exponents, exponents_bytes, exponents_bytes);
    f->beams = test_upload(d, w->beams, beams_bytes, beams_bytes);
    if (f->renormalise)
        f->renormalise = test_upload(d, w->renormalise, renormalise_bytes, renormalise_bytes);
    f->n_slots = beamform_slots(w->beams, f->n_beams, slots, slots + beamform_max_slots(f->n_beams));
    f->slots = test_upload(d, slots, f->n_slots * sizeof(*slots), f->n_slots * sizeof(*slots));
    size_t fragments_bytes = test_fragments_bytes(f->n_chan, f->n_slots, f->n_ants);
    int8_t *fragments = test_fragments(w->coefficients, f->n_chan, f->n_beams, f->n_ants, slots, f->n_slots);
    f->fragments = test_upload(d, fragments, fragments_bytes, fragments_bytes);
    free(fragments);
    free(slots);
    args.powers = test_upload(d, w->powers, powers_bytes, powers_bytes);
    f->saturated = test_upload(d, w->saturated, saturated_bytes, saturated_bytes);
    beam_detect_constants(&args, constants);
    ck_assert_int_eq(device_kernel_create(d->device, &beam_detect_kernel, constants, BEAM_DETECT_N_CONSTANTS, &kernel),
                     0);
    struct kernel_grid grid = beam_detect_grid(&args);
    device_launch(d->stream, kernel, &grid, &args);
    test_download(d, powers, args.powers, powers_bytes);
    test_download(d, saturated, f->saturated, saturated_bytes);
    device_kernel_destroy(kernel);
    device_free(d->device, (void *)f->voltages);
    device_free(d->device, (void *)f->fragments);
    device_free(d->device, (void *)f->exponents);
    device_free(d->device, (void *)f->beams);
    device_free(d->device, (void *)f->slots);
    device_free(d->device, (void *)f->renormalise);
    device_free(d->device, args.powers);
    device_free(d->device, f->saturated);
}

/* Compares CUDA with the C version. */
static void compare(size_t size, enum voltage_format format, enum beam_products wanted, bool wgmma)
{
    struct test_device d;
    struct work w;

    if (!test_device_open(&d))
        return;
    work_init(&w, size, format, wanted);
    w.args.form.wgmma = wgmma ? 1 + (uint32_t)random_below(4) : 0; /* few blocks, so that a block has several items */
    size_t powers_bytes = (w.n_powers + 1) * sizeof(*w.powers), saturated_bytes = (w.args.form.n_beams / 2 + 1) * 4;
    int64_t *powers = malloc(powers_bytes);
    uint32_t *saturated = malloc(saturated_bytes);
    run_cuda(&d, &w, powers, saturated);
    run_plain_c(&w);
    ck_assert_int_eq(memcmp(powers, w.powers, powers_bytes), 0);
    ck_assert_int_eq(memcmp(saturated, w.saturated, saturated_bytes), 0);
    free(powers);
    free(saturated);
    work_fini(&w);
    test_device_close(&d);
}

TEST(cuda, .end = 3 * ARRAY_LEN(sizes))
{
    compare((size_t)_i / 3, formats[_i % 3], products[_i % 4], false);
}

TEST(wgmma, .end = 3 * ARRAY_LEN(of_wgmma))
{
    compare(of_wgmma[_i / 3], formats[_i % 3], products[1 + (_i + _i / 3) % 3], true);
}

/* ---- beam_finish ------------------------------------------------------------------------------------------------- */

#define N_WINDOWS 5
#define N_BEAMS   3
#define N_CELLS   50
#define N_POWERS  (N_WINDOWS * N_BEAMS * N_CELLS)

/* Powers of all magnitudes.  Cell 0 has one power in all windows. */
static void random_powers(int64_t powers[N_POWERS])
{
    for (size_t i = 0; i < N_POWERS; i++)
        powers[i] = i % N_CELLS ? (int64_t)random_u64() >> (2 + random_below(59)) : 12345;
}

static void finish_plain_c(const int64_t *powers, void *out, float *offsets, float *scales)
{
    const struct beam_finish_args args = {powers, out, offsets, scales, N_WINDOWS, N_BEAMS, N_CELLS};

    beam_finish_kernel.cpu(&args, 2);
}

TEST(finish)
{
    int64_t powers[N_POWERS];
    float floats[N_POWERS], offsets[N_BEAMS * N_CELLS], scales[N_BEAMS * N_CELLS];
    uint8_t bytes[N_POWERS];

    random_powers(powers);
    finish_plain_c(powers, floats, NULL, NULL);
    finish_plain_c(powers, bytes, offsets, scales);
    for (size_t i = 0; i < N_POWERS; i++) {
        size_t window = i / N_CELLS % N_WINDOWS, beam = i / N_CELLS / N_WINDOWS, cell = i % N_CELLS;
        double power = (double)powers[(window * N_BEAMS + beam) * N_CELLS + cell];
        double offset = (double)offsets[beam * N_CELLS + cell], scale = (double)scales[beam * N_CELLS + cell];
        ck_assert(floats[i] == (float)power);
        ck_assert_msg(fabs(offset + bytes[i] * scale - power) <= 0.5 * scale + fabs(offset) * 2e-7 + scale * 5e-5,
                      "%zu: %d * %g + %g, not %g", i, bytes[i], scale, offset, power);
        ck_assert(cell > 0 || (bytes[i] == 0 && scale == 0 && offset == 12345));
    }
}

TEST(finish_cuda)
{
    int64_t powers[N_POWERS];
    struct test_device d;
    struct {
        uint8_t out[4 * N_POWERS];
        float offsets[N_BEAMS * N_CELLS], scales[N_BEAMS * N_CELLS];
    } expected = {{0}}, found = {{0}};

    if (!test_device_open(&d))
        return;
    random_powers(powers);
    for (int bits = 8; bits <= 32; bits += 24) {
        struct device_kernel *kernel;
        struct beam_finish_args args = {.n_windows = N_WINDOWS, .n_beams = N_BEAMS, .n_cells = N_CELLS};
        args.powers = test_upload(&d, powers, sizeof(powers), sizeof(powers));
        args.out = test_upload(&d, expected.out, sizeof(expected.out), sizeof(expected.out));
        args.offsets =
            bits == 8 ? test_upload(&d, expected.offsets, sizeof(expected.offsets), sizeof(expected.offsets)) : NULL;
        args.scales =
            bits == 8 ? test_upload(&d, expected.scales, sizeof(expected.scales), sizeof(expected.scales)) : NULL;
        ck_assert_int_eq(device_kernel_create(d.device, &beam_finish_kernel, NULL, 0, &kernel), 0);
        struct kernel_grid grid = beam_finish_grid(&args);
        device_launch(d.stream, kernel, &grid, &args);
        test_download(&d, found.out, args.out, sizeof(found.out));
        if (bits == 8) {
            test_download(&d, found.offsets, args.offsets, sizeof(found.offsets));
            test_download(&d, found.scales, args.scales, sizeof(found.scales));
        }
        finish_plain_c(powers, expected.out, bits == 8 ? expected.offsets : NULL, expected.scales);
        ck_assert_int_eq(memcmp(&found, &expected, sizeof(expected)), 0);
        device_kernel_destroy(kernel);
        device_free(d.device, (void *)args.powers);
        device_free(d.device, args.out);
        device_free(d.device, args.offsets);
        device_free(d.device, args.scales);
    }
    test_device_close(&d);
}

SUITE(.timeout_s = 60, .start = random_start);
