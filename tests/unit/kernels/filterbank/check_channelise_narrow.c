/* check_channelise_narrow - complex samples to heaps, against the definition in double: stages and the two kernels.
 * The test runs on the cpu device and the emulated one, or on a GPU.  The test compares some channels of each
 * spectrum. */
#include "kernels/filterbank/channelise_narrow.h"

#include "common/base/units.h"
#include "tests/unit/test_channelise.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 2e-3 /* of a quantisation step, before rounding */
#define FAR       500  /* samples by which the polarisations' windows may lie apart */
#define N_CHECKED 24   /* channels of each spectrum */

static bool setup(struct channelise_fixture *f, const struct channelise_config *config, bool cuda)
{
    size_t n_spectra = (size_t)config->n_batches * config->spectra_per_heap;
    struct device *device = test_open_variant(cuda, 2);

    if (!device)
        return false;
    ck_assert_uint_eq(channelise_spacing_samples(config), config->n_bins);
    channelise_fixture_init(f, config, device,
                            channelise_window_samples(config) + n_spectra * (config->n_bins + 1) + FAR,
                            2 * 8 * sizeof(float));
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < 2 * f->n_samples; i++)
            ((float *)f->input[pol])[i] = (float)random_between(-300, 300);
    channelise_fixture_fill(f);
    /* The parts' rms is 173 before; 8 bits then saturate now and then. */
    for (size_t i = 0; i < config->n_chan * N_POLS * 2; i++)
        f->gain[i] = (float)random_between(-1, 1) * (config->out_bits == 8 ? 0.3f : 0.02f);
    return true;
}

/* Mostly one after the other, sometimes a sample more or less. */
static void random_spectra(struct channelise_fixture *f)
{
    for (size_t pol = 0; pol < N_POLS; pol++) {
        int64_t at = (int64_t)random_below(FAR / 2);
        for (size_t s = 0; s < f->n_spectra; s++) {
            f->spectra[pol][s] = (struct channelise_spectrum){
                .offset = at, .fine = (float)random_between(-1, 1), .phase = (float)random_between(-M_PI, M_PI)};
            at += f->config.n_bins + (random_below(8) ? 0 : (int64_t)random_below(3) - 1);
            at = at > 0 ? at : 0;
        }
    }
}

static void run(struct channelise_fixture *f, uint64_t first_spectrum)
{
    const uint8_t *input[N_POLS] = {f->input_device[0], f->input_device[1]};

    for (size_t first = 0, piece; first < f->n_spectra; first += piece) {
        const struct channelise_spectrum *spectra[N_POLS] = {f->spectra[0] + first, f->spectra[1] + first};
        piece = 1 + random_below(f->n_spectra - first);
        channelise_append(f->channelise, f->stream, input, &f->buffer, first, piece, spectra);
    }
    channelise_fixture_finish(f, first_spectrum);
}

/* Channel k before it is quantised, of the filtered samples: that of frequency (k - n_chan / 2) / n_bins. */
static double complex model(const struct channelise_fixture *f, size_t pol, size_t s, size_t k, uint64_t first_spectrum,
                            const double complex *filtered)
{
    const struct channelise_config *c = &f->config;
    const struct channelise_spectrum *spectrum = &f->spectra[pol][s];
    const float *gain = f->gain + (k * N_POLS + pol) * 2;
    double from_centre = (double)k - c->n_chan / 2.0;
    double complex sum = 0, turn = 1, step = cexp(-2 * I * M_PI * from_centre / c->n_bins);

    for (size_t i = 0; i < c->n_bins; i++, turn *= step) {
        if (i % 256 == 0)
            turn = cexp(-2 * I * M_PI * remainder(from_centre * (double)i / c->n_bins, 1));
        sum += filtered[i] * turn;
    }
    sum *= cexp(I * (spectrum->phase - M_PI * spectrum->fine * from_centre / c->n_chan)) * (gain[0] + I * gain[1]);
    return sum + channelise_fixture_dither(f, pol, first_spectrum + s, k);
}

static void compare(const struct channelise_fixture *f, size_t pol, size_t s, uint64_t first_spectrum)
{
    const struct channelise_config *c = &f->config;
    double limit = c->out_bits == 8 ? 127 : 7;
    double complex *filtered = calloc(c->n_bins, sizeof(*filtered));

    for (size_t p = 0; p < c->n_bins; p++)
        for (size_t i = 0; i < c->n_taps; i++) {
            const float *x = (const float *)f->input[pol] + 2 * ((size_t)f->spectra[pol][s].offset + i * c->n_bins + p);
            filtered[p] += f->weights[i * c->n_bins + p] * (x[0] + I * (double)x[1]);
        }
    for (size_t i = 0; i < N_CHECKED; i++) {
        size_t k = i < 2 ? i * (c->n_chan - 1) : i < 5 ? c->n_chan / 2 + i - 3 : random_below(c->n_chan);
        double complex expected = model(f, pol, s, k, first_spectrum, filtered);
        double part[2] = {creal(expected), cimag(expected)};
        int value[2];
        channelise_fixture_output(f, pol, s, k, value);
        for (int j = 0; j < 2; j++)
            if (!(fabs(value[j] - fmin(fmax(part[j], -limit), limit)) <= 0.5 + TOLERANCE))
                ck_abort_msg("%u of %u bins, %u taps: pol %zu spectrum %zu chan %zu part %d is %d, not %g", c->n_chan,
                             c->n_bins, c->n_taps, pol, s, k, j, value[j], part[j]);
    }
    free(filtered);
}

/* What is clipped is at the limit, though not all at the limit was clipped. */
static void check_saturation(const struct channelise_fixture *f)
{
    int limit = f->config.out_bits == 8 ? 127 : 7;

    for (size_t batch = 0; batch < f->config.n_batches; batch++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            size_t n_at_limit = 0, heap = f->config.spectra_per_heap;
            for (size_t s = batch * heap; s < (batch + 1) * heap; s++)
                for (size_t k = 0; k < f->config.n_chan; k++) {
                    int value[2];
                    channelise_fixture_output(f, pol, s, k, value);
                    n_at_limit += abs(value[0]) == limit || abs(value[1]) == limit;
                }
            uint32_t saturated = f->saturated[batch * N_POLS + pol];
            ck_assert_uint_le(saturated, n_at_limit);
            ck_assert_uint_ge(saturated + n_at_limit / 2 + 10, n_at_limit);
        }
}

/* clang-format off */
static const struct row {
    struct channelise_config config;
    bool cuda;
} rows[] = {
    {{ .n_chan = 64, .n_bins = 64, .n_taps = 1, .window = PFB_RECT, .spectra_per_heap = 16, .n_batches = 3 }, false},
    {{ .n_chan = 64, .n_bins = 128, .n_taps = 5, .spectra_per_heap = 48, .n_batches = 2, .out_bits = 4 }, false},
    {{ .n_chan = 2048, .n_bins = 4096, .n_taps = 16, .spectra_per_heap = 16, .n_batches = 1 }, false},
    /* Stages. */
    {{ .n_chan = 64, .n_bins = 128, .n_taps = 4, .spectra_per_heap = 32, .n_batches = 1 }, true},
    {{ .n_chan = 1024, .n_bins = 2048, .n_taps = 3, .spectra_per_heap = 16, .n_batches = 1,
       .method = CHANNELISE_STAGES }, true},
    /* The two kernels, each of their shapes. */
    {{ .n_chan = 2048, .n_bins = 2048, .n_taps = 16, .spectra_per_heap = 48, .n_batches = 2 }, true},
    {{ .n_chan = 1024, .n_bins = 2048, .n_taps = 4, .spectra_per_heap = 80, .n_batches = 1, .out_bits = 4 }, true},
    {{ .n_chan = 2048, .n_bins = 4096, .n_taps = 9, .spectra_per_heap = 32, .n_batches = 2 }, true},
    {{ .n_chan = 4096, .n_bins = 8192, .n_taps = 1, .window = PFB_RECT, .spectra_per_heap = 16, .n_batches = 1 }, true},
    {{ .n_chan = 16384, .n_bins = 16384, .n_taps = 3, .spectra_per_heap = 16, .n_batches = 1, .out_bits = 4 }, true},
    {{ .n_chan = 16384, .n_bins = 32768, .n_taps = 2, .spectra_per_heap = 16, .n_batches = 1 }, true},
    {{ .n_chan = 32768, .n_bins = 65536, .n_taps = 17, .spectra_per_heap = 16, .n_batches = 1 }, true},
    {{ .n_chan = 65536, .n_bins = 131072, .n_taps = 2, .spectra_per_heap = 16, .n_batches = 1 }, true},
};
/* clang-format on */

TEST(against_the_definition, .end = ARRAY_LEN(rows))
{
    struct channelise_config config = rows[_i].config;
    uint64_t first_spectrum = random_u64() >> random_below(60) & ~UINT64_C(1);
    struct channelise_fixture f;

    config.w_cutoff = 1;
    config.out_bits = config.out_bits ? config.out_bits : 8;
    config.dither = random_below(4) > 0;
    config.seed = random_u64();
    config.stream_id = 77;
    if (!setup(&f, &config, rows[_i].cuda))
        return;
    random_spectra(&f);
    run(&f, first_spectrum);
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t s = 0; s < f.n_spectra; s++)
            if (config.n_bins <= 4096 || s < 2 || s + 2 > f.n_spectra || random_below(4) == 0)
                compare(&f, pol, s, first_spectrum);
    check_saturation(&f);
    channelise_fixture_fini(&f);
}

/* What the object says that it takes is no less than what it does. */
TEST(scratch)
{
    const struct channelise_config config = {.n_chan = 2048,
                                             .n_bins = 4096,
                                             .n_taps = 16,
                                             .sample_bits = 10,
                                             .spectra_per_heap = 16,
                                             .n_batches = 3,
                                             .out_bits = 8};

    ck_assert_uint_eq(channelise_window_samples(&config), 16 * 4096);
    ck_assert_uint_eq(channelise_scratch_bytes(&config, 0), 16 * 4096 * 4 + 2 * (2 * 48 * 4096 * 8));
    ck_assert_uint_eq(channelise_scratch_bytes(&config, 227 << 10), (16 + 4) * 4096 * 4 + 2 * 48 * 4096 * 8);
}

/* The default of few blocks: each has twice as many spectra under way; blocks of long lines are cut as well. */
TEST(default_shapes)
{
    static const struct {
        unsigned n_bins, n_taps, append_spectra, n_multiprocessors;
        uint32_t columns, together;
    } defaults[] = {
        {2048, 16, 256, 132, 16, 16}, /* 64 blocks of 32 columns */
        {2048, 16, 256, 127, 32, 16}, /* too many of 16 columns */
        {2048, 16, 256, 64, 32, 16},  {2048, 16, 256, 63, 32, 8},  {2048, 16, 2048, 132, 32, 8},
        {2048, 16, 0, 132, 32, 8},    {2048, 17, 256, 132, 32, 4}, {4096, 16, 128, 132, 16, 16},
        {8192, 16, 128, 132, 8, 16},  {16384, 16, 128, 132, 8, 8}, {65536, 16, 16, 148, 8, 8},
    };

    for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
        struct channelise_config config = {.n_chan = defaults[i].n_bins / 2,
                                           .n_bins = defaults[i].n_bins,
                                           .n_taps = defaults[i].n_taps,
                                           .append_spectra = defaults[i].append_spectra};
        struct channelise_narrow_shape shape;
        ck_assert(channelise_narrow_fits(&config, 227 << 10, defaults[i].n_multiprocessors, &shape));
        ck_assert_uint_eq(shape.columns, defaults[i].columns);
        ck_assert_uint_eq(shape.together, defaults[i].together);
        ck_assert(channelise_narrow_valid(&config, &shape, 227 << 10));
    }
}

SUITE(.timeout_s = 300, .start = random_start);
