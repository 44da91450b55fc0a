/* check_channelise - packed samples to heaps, against the definition of the filter bank in double.  The test runs on
 * the cpu device and, with the CUDA variants, on the emulated one; or with CBF_TEST_DEVICE=cuda on a GPU. */
#include "kernels/filterbank/channelise.h"

#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/channelise_tuner.h"
#include "tests/unit/test_channelise.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_samples.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define TOLERANCE  2e-3 /* of a quantisation step, before rounding */
#define FAR        3000 /* samples that a jump may go back */
#define SIGMA_8BIT 45   /* of the output's parts: some saturate */
#define SIGMA_4BIT 3

/* Which device a test is about: with CBF_TEST_DEVICE=cuda always that. */
enum test_target { ON_CPU, EMULATED };

static bool open_target(struct channelise_fixture *f, enum test_target target)
{
    f->device = test_open_variant(target == EMULATED, 2);
    return f->device != NULL;
}

/* On the device that has been opened. */
static void fixture_init_on(struct channelise_fixture *f, const struct channelise_config *config)
{
    size_t n_spectra = config->n_batches * config->spectra_per_heap;
    size_t n_samples =
        channelise_window_samples(config) + (n_spectra + 2) * (channelise_spacing_samples(config) + 1) + FAR;

    channelise_fixture_init(f, config, f->device, (n_samples + 7) / 8 * 8, config->sample_bits);
    for (size_t pol = 0; pol < N_POLS; pol++)
        random_bytes(f->input[pol], f->input_bytes);
    channelise_fixture_fill(f);
}

/* Returns false where the target cannot be tested, which has been said. */
static bool fixture_init(struct channelise_fixture *f, const struct channelise_config *config, enum test_target target)
{
    if (!open_target(f, target))
        return false;
    fixture_init_on(f, config);
    return true;
}

/* Gains that bring white noise of full-scale samples to the levels above, with random phases. */
static void random_gains(struct channelise_fixture *f)
{
    double sigma_in = ldexp(1, (int)f->config.sample_bits) / sqrt(12);
    double scale = (f->config.out_bits == 8 ? SIGMA_8BIT : SIGMA_4BIT) * sqrt(2) / sigma_in;

    for (size_t i = 0; i < f->n_chan * N_POLS; i++) {
        double angle = random_between(-M_PI, M_PI);
        f->gain[2 * i] = (float)(scale * cos(angle));
        f->gain[2 * i + 1] = (float)(scale * sin(angle));
    }
}

/* Starts anywhere, then goes on by the spacing, sometimes by a sample more or less, and once far; each polarisation its
 * own way. */
static void random_spectra(struct channelise_fixture *f)
{
    int64_t spacing = (int64_t)channelise_spacing_samples(&f->config);
    int64_t last = (int64_t)f->n_samples - (int64_t)channelise_window_samples(&f->config);

    for (size_t pol = 0; pol < N_POLS; pol++) {
        int64_t offset = (int64_t)random_below(1000);
        size_t jump = random_below(f->n_spectra);
        for (size_t s = 0; s < f->n_spectra; s++) {
            ck_assert_int_le(offset, last);
            f->spectra[pol][s] = (struct channelise_spectrum){
                .offset = offset,
                .fine = random_below(4) ? (float)random_between(-0.5, 0.5) : 0,
                .phase = random_below(4) ? (float)random_between(-M_PI, M_PI) : 0,
            };
            offset += spacing;
            if (random_below(8) == 0 && offset > 0)
                offset += random_below(2) ? 1 : -1;
            if (s == jump && offset > FAR)
                offset -= (int64_t)random_below(FAR);
        }
    }
}

/* The filtered samples of a spectrum: one period of what is transformed. */
static void model_filter(const struct channelise_fixture *f, size_t pol, size_t s, double *out)
{
    size_t step = 2 * f->n_chan;

    for (size_t p = 0; p < step; p++) {
        out[p] = 0;
        for (size_t i = 0; i < f->config.n_taps; i++)
            out[p] += f->weights[i * step + p] *
                      sample_at(f->input[pol], (size_t)f->spectra[pol][s].offset + i * step + p, f->config.sample_bits);
    }
}

/* Channel k of a spectrum before it is quantised; turn[i] is e^{-2 pi j i / 2 n_chan}. */
static double complex model_channel(const struct channelise_fixture *f, size_t pol, size_t s, size_t k,
                                    uint64_t first_spectrum, const double *filtered, const double complex *turn)
{
    const struct channelise_spectrum *spectrum = &f->spectra[pol][s];
    const float *gain = f->gain + (k * N_POLS + pol) * 2;
    double theta = spectrum->phase - M_PI * spectrum->fine * ((double)k - (double)f->n_chan / 2) / (double)f->n_chan;
    double complex sum = 0;

    /* The second half of the samples has the turns of the first, times (-1)^k.  'angle' is i * k modulo a whole turn. */
    for (size_t i = 0, angle = 0; i < f->n_chan; i++) {
        double second = filtered[f->n_chan + i];
        sum += (filtered[i] + (k % 2 ? -second : second)) * turn[angle];
        angle += k;
        angle -= angle < 2 * f->n_chan ? 0 : 2 * f->n_chan;
    }
    return sum * cexp(I * theta) * (gain[0] + I * gain[1]) + channelise_fixture_dither(f, pol, first_spectrum + s, k);
}

/* Compares spectra [0, n_spectra) of one polarisation, and the saturation of the batches that they fill. */
static void compare(const struct channelise_fixture *f, size_t pol, size_t n_spectra, uint64_t first_spectrum)
{
    double limit = f->config.out_bits == 8 ? 127 : 7;
    double *filtered = malloc(2 * f->n_chan * sizeof(*filtered));
    double complex *turn = malloc(2 * f->n_chan * sizeof(*turn));
    uint32_t least = 0, most = 0;

    for (size_t i = 0; i < 2 * f->n_chan; i++)
        turn[i] = cexp(-I * M_PI * (double)i / (double)f->n_chan);
    for (size_t s = 0; s < n_spectra; s++) {
        model_filter(f, pol, s, filtered);
        for (size_t k = 0; k < f->n_chan; k++) {
            double complex expected = model_channel(f, pol, s, k, first_spectrum, filtered, turn);
            double part[2] = {creal(expected), cimag(expected)};
            double beyond = fmax(fabs(part[0]), fabs(part[1])) - limit;
            int value[2];

            channelise_fixture_output(f, pol, s, k, value);
            for (int i = 0; i < 2; i++)
                if (!(fabs(value[i] - fmin(fmax(part[i], -limit), limit)) <= 0.5 + TOLERANCE))
                    ck_abort_msg("pol %zu spectrum %zu chan %zu part %d is %d, not %g", pol, s, k, i, value[i],
                                 part[i]);
            least += beyond > TOLERANCE;
            most += beyond > -TOLERANCE;
        }
        if ((s + 1) % f->config.spectra_per_heap == 0) {
            uint32_t saturated = f->saturated[s / f->config.spectra_per_heap * N_POLS + pol];
            ck_assert_uint_le(least, saturated);
            ck_assert_uint_ge(most, saturated);
            least = most = 0;
        }
    }
    free(turn);
    free(filtered);
}

/* The squares of the samples of each spectrum's first tap, on top of what was there. */
static void compare_power(const struct channelise_fixture *f)
{
    for (size_t pol = 0; pol < N_POLS && f->config.power; pol++) {
        uint64_t expected = UINT64_C(1) << 50;
        for (size_t s = 0; s < f->n_spectra; s++)
            for (size_t i = 0; i < 2 * f->n_chan; i++) {
                int x = sample_at(f->input[pol], (size_t)f->spectra[pol][s].offset + i, f->config.sample_bits);
                expected += (uint64_t)((int64_t)x * x);
            }
        ck_assert_uint_eq(f->power[pol], expected);
    }
}

/* Fills 'n' spectra of the buffer in random pieces, as input chunks would. */
static void append_in_pieces(struct channelise_fixture *f, size_t n)
{
    const uint8_t *input[N_POLS] = {f->input_device[0], f->input_device[1]};

    for (size_t pol = 0; pol < N_POLS; pol++)
        f->power[pol] = UINT64_C(1) << 50;
    if (f->config.power)
        test_write(f->stream, f->buffer.power, f->power, sizeof(f->power));

    for (size_t first = 0, piece; first < n; first += piece) {
        const struct channelise_spectrum *spectra[N_POLS] = {f->spectra[0] + first, f->spectra[1] + first};
        piece = 1 + random_below(n - first);
        channelise_append(f->channelise, f->stream, input, &f->buffer, first, piece, spectra);
    }
}

/* clang-format off */
static const struct channelise_config configs[] = {
    { .n_chan = 64, .n_taps = 16, .w_cutoff = 1, .window = PFB_HANN, .sample_bits = 10, .spectra_per_heap = 16,
      .n_batches = 3, .out_bits = 8, .dither = true, .power = true, .seed = UINT64_C(0xfedcba9876543210), .stream_id = 7 },
    { .n_chan = 256, .n_taps = 8, .w_cutoff = 0.9, .window = PFB_HANN, .sample_bits = 12, .spectra_per_heap = 16,
      .n_batches = 2, .out_bits = 4, .dither = true, .seed = 99, .stream_id = 65536 },
    { .n_chan = 128, .n_taps = 4, .w_cutoff = 1, .window = PFB_HANN, .sample_bits = 8, .spectra_per_heap = 48,
      .n_batches = 2, .out_bits = 8, .dither = false, .power = true },
    { .n_chan = 64, .n_taps = 1, .w_cutoff = 0, .window = PFB_RECT, .sample_bits = 3, .spectra_per_heap = 32,
      .n_batches = 1, .out_bits = 4, .dither = false },
};
/* clang-format on */

/* Twice, with other spectra and another time, as buffers and scratch are used again and again; on the device that has
 * been opened, which it closes. */
static void run_end_to_end_on(struct channelise_fixture *f, const struct channelise_config *config)
{
    fixture_init_on(f, config);
    for (uint64_t first_spectrum = 6; first_spectrum < UINT64_C(1) << 40; first_spectrum <<= 31) {
        random_gains(f);
        random_spectra(f);
        append_in_pieces(f, f->n_spectra);
        channelise_fixture_finish(f, first_spectrum);
        for (size_t pol = 0; pol < N_POLS; pol++)
            compare(f, pol, f->n_spectra, first_spectrum);
        compare_power(f);
    }
    channelise_fixture_fini(f);
}

/* Returns false where there is no such device. */
static bool run_end_to_end(const struct channelise_config *config, enum test_target target)
{
    struct channelise_fixture f;

    if (!open_target(&f, target))
        return false;
    run_end_to_end_on(&f, config);
    return true;
}

TEST(end_to_end, .end = ARRAY_LEN(configs), .unless = test_on_cuda())
{
    run_end_to_end(&configs[_i], ON_CPU);
}

TEST(end_to_end_emulated, .end = ARRAY_LEN(configs))
{
    run_end_to_end(&configs[_i], EMULATED);
}

static struct channelise_config random_config(unsigned log2_channels, enum channelise_method method)
{
    static const unsigned widths[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
    struct channelise_config config = {
        .n_chan = 1u << log2_channels,
        .n_taps = 1 + (unsigned)random_below(random_below(3) ? 16 : 32),
        .w_cutoff = 1,
        .window = random_below(2) ? PFB_HANN : PFB_RECT,
        .sample_bits = widths[random_below(ARRAY_LEN(widths))],
        .spectra_per_heap = 16 * (1 + (unsigned)random_below(log2_channels < 10 ? 5 : 1)),
        .n_batches = 1 + (unsigned)random_below(2),
        .out_bits = random_below(3) ? 8 : 4,
        .dither = random_below(2),
        .power = random_below(2),
        .seed = random_u64(),
        .stream_id = (uint32_t)random_u64(),
        .method = method,
        .unzip = random_below(4) ? 1u << random_below(3) : 0,
    };

    printf("%u channels, %u taps, %u bits, %u x %u spectra, %u bits out, dither %d, method %d, unzip %u\n",
           config.n_chan, config.n_taps, config.sample_bits, config.n_batches, config.spectra_per_heap, config.out_bits,
           config.dither, config.method, config.unzip);
    return config;
}

TEST(random_sizes, .end = 2)
{
    for (int i = 0; i < (test_on_cuda() ? 20 : 2); i++) {
        struct channelise_config config =
            random_config(6 + (unsigned)random_below(4), _i ? CHANNELISE_STAGES : CHANNELISE_FUSED);
        if (!run_end_to_end(&config, EMULATED))
            return;
    }
}

/* Any numbers that go together, as somebody might write them by hand.  Returns false if none were found soon. */
static bool random_valid_shape(const struct channelise_config *config, size_t shared_bytes,
                               struct channelise_shape *shape)
{
    for (int i = 0; i < 20000000; i++) {
        for (size_t k = 0; k < sizeof(*shape) / sizeof(uint32_t); k++)
            ((uint32_t *)shape)[k] = 1u << random_below(9);
        shape->front_section = shape->front_spectra * (uint32_t)random_below(5);
        shape->front_blocks = 1 + (uint32_t)random_below(16);
        shape->back_blocks = 1 + (uint32_t)random_below(16);
        shape->front_stages = 2 + (uint32_t)random_below(5);
        shape->front_tensors = (uint32_t)random_below(2);
        shape->back_bulk = (uint32_t)random_below(2);
        shape->back_tiles = 1 + (uint32_t)random_below(2);
        if (channelise_shape_valid(config, shape, shared_bytes))
            return true;
    }
    return false;
}

/* One of the candidates that fgpu --tune measures of the front, and one of the back, for some number of rows. */
static struct channelise_shape random_candidate(const struct channelise_config *config, size_t shared_bytes)
{
    struct channelise_shape base, candidates[TUNER_MAX_SHAPES];
    uint32_t most = config->n_chan / 8 < 256 ? config->n_chan / 8 : 256;
    size_t n = 0;

    do
        base = channelise_shape_of_rows(config, 8u << random_below(6), shared_bytes);
    while (base.front_rows > most || !channelise_shape_valid(config, &base, shared_bytes));
    n = channelise_candidates(&channelise_front_tuner, config, shared_bytes, &base, candidates);
    base = candidates[random_below(n)];
    n = channelise_candidates(&channelise_back_tuner, config, shared_bytes, &base, candidates);
    base = candidates[random_below(n)];
    return base;
}

static struct channelise_shape random_shape(const struct channelise_config *config, size_t shared_bytes)
{
    struct channelise_shape shape;

    if (random_below(2) || !random_valid_shape(config, shared_bytes, &shape))
        shape = random_candidate(config, shared_bytes);
    printf("shape:");
    for (size_t i = 0; i < sizeof(shape) / sizeof(uint32_t); i++)
        printf(" %" PRIu32, ((const uint32_t *)&shape)[i]);
    printf("\n");
    return shape;
}

/* However the work is cut, the same comes out. */
TEST(random_shapes)
{
    for (int i = 0; i < (test_on_cuda() ? 20 : 3); i++) {
        struct channelise_config config = random_config(7 + (unsigned)random_below(3), CHANNELISE_FUSED);
        struct channelise_shape shape;
        struct channelise_fixture f;

        if (!open_target(&f, EMULATED))
            return;
        shape = random_shape(&config, device_shared_bytes(f.device));
        config.shape = &shape;
        run_end_to_end_on(&f, &config);
    }
}

/* The shapes that the bench has been given to measure have names of members, and can be cut. */
TEST(shapes_of_the_bench, .unless = test_on_cuda())
{
    FILE *file = fopen("scripts/bench/fgpu_shapes.txt", "re");
    const char *const *front = channelise_front_tuner.numbers, *const *back = channelise_back_tuner.numbers;
    char line[512], *rest;
    size_t n_lines = 0;

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file)) {
        struct channelise_config config = {
            .n_chan = (unsigned)strtoul(line, &rest, 10), .n_taps = 16, .sample_bits = 10, .out_bits = 8};
        unsigned rows;
        if (line[0] == '#')
            continue;
        struct channelise_shape shape = channelise_fused_shape(&config, 227 << 10);
        if (strstr(rest, "front_rows=") && sscanf(strstr(rest, "front_rows="), "front_rows=%u", &rows) == 1)
            shape = channelise_shape_of_rows(&config, rows, 227 << 10);
        for (char *word; (word = strsep(&rest, " \n"));) {
            char *value = strchr(word, '=');
            size_t i = 0;
            if (!*word)
                continue;
            ck_assert_msg(value != NULL, "%s", word);
            *value++ = '\0';
            while (strcmp(word, front[i] ? front[i] : back[i]) != 0)
                ck_assert_msg(++i < channelise_front_tuner.n_numbers, "%s", word);
            ((uint32_t *)&shape)[i] = (uint32_t)strtoul(value, NULL, 10);
        }
        ck_assert_msg(channelise_shape_valid(&config, &shape, 227 << 10), "%u channels, line %zu", config.n_chan,
                      n_lines);
        n_lines++;
    }
    ck_assert_uint_gt(n_lines, 20);
    fclose(file);
}

/* The cpu device with the inputs of 'other'. */
static void fixture_init_like(struct channelise_fixture *f, const struct channelise_fixture *other)
{
    f->device = test_open_kind(DEVICE_CPU, 2);
    fixture_init_on(f, &other->config);
    memcpy(f->gain, other->gain, f->n_chan * N_POLS * 2 * sizeof(float));
    for (size_t pol = 0; pol < N_POLS; pol++) {
        memcpy(f->input[pol], other->input[pol], f->n_samples * f->config.sample_bits / 8);
        memcpy(f->spectra[pol], other->spectra[pol], f->n_spectra * sizeof(*f->spectra[pol]));
    }
    channelise_fixture_fill(f);
}

/* The same inputs through the stages on the cpu device: equal but where the rounding of the transforms decides. */
static void compare_with_cpu(const struct channelise_config *config)
{
    size_t n_bytes = channelise_voltage_bytes(config), n_different = 0, n_saturated[2] = {0, 0};
    struct channelise_fixture f[2];

    if (!fixture_init(&f[0], config, EMULATED))
        return;
    random_gains(&f[0]);
    random_spectra(&f[0]);
    append_in_pieces(&f[0], f[0].n_spectra);
    channelise_fixture_finish(&f[0], 1000);
    compare_power(&f[0]);
    fixture_init_like(&f[1], &f[0]);
    append_in_pieces(&f[1], f[1].n_spectra);
    channelise_fixture_finish(&f[1], 1000);
    for (size_t i = 0; i < n_bytes; i++) {
        int a = f[0].voltages[i], b = f[1].voltages[i];
        if (a == b)
            continue;
        n_different++;
        for (int half = 0; half < (config->out_bits == 4 ? 2 : 1); half++) {
            int x = config->out_bits == 8 ? (int8_t)a : (int)((unsigned)(a >> 4 * half & 15) ^ 8) - 8;
            int y = config->out_bits == 8 ? (int8_t)b : (int)((unsigned)(b >> 4 * half & 15) ^ 8) - 8;
            ck_assert_int_le(abs(x - y), 1);
        }
    }
    for (size_t i = 0; i < config->n_batches * N_POLS; i++)
        for (int w = 0; w < 2; w++)
            n_saturated[w] += f[w].saturated[i];
    ck_assert_msg((double)n_different <= 1e-3 * (double)n_bytes + 2, "%zu of %zu differ", n_different, n_bytes);
    ck_assert_msg(fabs((double)n_saturated[0] - (double)n_saturated[1]) <= 1e-3 * (double)n_bytes + 2,
                  "saturated: %zu, not %zu", n_saturated[0], n_saturated[1]);
    channelise_fixture_fini(&f[0]);
    channelise_fixture_fini(&f[1]);
}

/* From 1024 channels on, where the definition takes too long. */
TEST(large_sizes, .end = 2 * (test_on_cuda() ? 7 : 4))
{
    for (int i = 0; i < _i; i++)
        random_u64(); /* each test is a process that begins with the same seed */
    for (int i = 0; i < (test_on_cuda() ? 3 : 1); i++) {
        struct channelise_config config =
            random_config(10 + (unsigned)_i / 2, _i % 2 ? CHANNELISE_STAGES : CHANNELISE_FUSED);
        compare_with_cpu(&config);
    }
}

/* A flushed buffer: what was appended is right, whatever the rest of the scratch holds. */
TEST(partly_filled, .first = test_on_cuda(), .end = 2)
{
    struct channelise_fixture f;

    if (!fixture_init(&f, &configs[0], _i ? EMULATED : ON_CPU))
        return;
    random_gains(&f);
    random_spectra(&f);
    append_in_pieces(&f, 20);
    channelise_fixture_finish(&f, 1000);
    for (size_t pol = 0; pol < N_POLS; pol++)
        compare(&f, pol, 20, 1000);
    channelise_fixture_fini(&f);
}

/* A tone in the middle of channel 20, of amplitude a, comes out as a * sum(weights) / 2, and nowhere else. */
TEST(tone, .first = test_on_cuda(), .end = 2)
{
    struct channelise_config config = configs[0];
    const uint8_t *input[N_POLS];
    const struct channelise_spectrum *spectra[N_POLS];
    struct channelise_fixture f;
    double sum = 0;
    int value[2];

    config.dither = false;
    config.sample_bits = 16;
    config.n_taps = 16;
    if (!fixture_init(&f, &config, _i ? EMULATED : ON_CPU))
        return;
    for (size_t i = 0; i < channelise_window_samples(&config); i++)
        sum += f.weights[i];
    for (size_t pol = 0; pol < N_POLS; pol++) {
        for (size_t i = 0; i < f.n_samples; i++) {
            uint16_t sample = (uint16_t)lrint(20000 * cos(M_PI * 20 * (double)i / 64));
            uint8_t *at = (uint8_t *)f.input[pol] + 2 * i;
            at[0] = (uint8_t)(sample >> 8);
            at[1] = (uint8_t)sample;
        }
        for (size_t s = 0; s < f.n_spectra; s++)
            f.spectra[pol][s].offset = (int64_t)(s * channelise_spacing_samples(&config));
        input[pol] = f.input_device[pol];
        spectra[pol] = f.spectra[pol];
    }
    channelise_fixture_fill(&f);
    for (size_t i = 0; i < f.n_chan * N_POLS; i++) {
        f.gain[2 * i] = (float)(100 / (20000 * sum / 2));
        f.gain[2 * i + 1] = 0;
    }
    channelise_append(f.channelise, f.stream, input, &f.buffer, 0, f.n_spectra, spectra);
    channelise_fixture_finish(&f, 0);
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t k = 0; k < f.n_chan; k++) {
            channelise_fixture_output(&f, pol, 17, k, value);
            ck_assert_int_eq(value[0], k == 20 ? 100 : 0);
            ck_assert_int_eq(value[1], 0);
        }
    channelise_fixture_fini(&f);
}

TEST(sizes, .unless = test_on_cuda())
{
    ck_assert_uint_eq(channelise_window_samples(&configs[0]), 16 * 128);
    ck_assert_uint_eq(channelise_spacing_samples(&configs[0]), 128);
    ck_assert_uint_eq(channelise_voltage_bytes(&configs[0]), 48 * 64 * 4);
    ck_assert_uint_eq(channelise_voltage_bytes(&configs[1]), 32 * 256 * 2);
    ck_assert_uint_eq(channelise_scratch_bytes(&configs[0], 0), 16 * 128 * 4 + 2 * 2 * 48 * 128 * 4);
    channelise_destroy(NULL);
}

/* Pieces of few bits, which begin in the last bits of the 16 bytes that are fetched at a time. */
TEST(short_pieces, .end = 2)
{
    struct channelise_config config = configs[0];
    struct channelise_shape shape;

    config.n_chan = 128;
    config.n_taps = 19;
    config.sample_bits = 2 + (unsigned)_i;
    shape = channelise_shape_of_rows(&config, 16, 227 << 10);
    shape.front_per_thread = 1;
    shape.front_columns = 4;
    ck_assert(channelise_shape_valid(&config, &shape, 227 << 10));
    config.shape = &shape;
    run_end_to_end(&config, EMULATED);
}

/* Samples of every width, fetched as boxes of a tensor. */
TEST(boxes, .end = 15)
{
    static const unsigned bits[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 10, 10, 9, 16}, columns[] = {4, 16, 64, 32};
    const bool pairs = _i >= 11; /* boxes have pairs of rows */
    struct channelise_config config = configs[0];
    struct channelise_shape shape;

    for (int i = 0; i < _i; i++)
        random_u64(); /* as in large_sizes */
    config.n_chan = 512;
    config.n_batches = 2;
    config.spectra_per_heap = 16 + 16 * (unsigned)(_i % 3);
    config.n_taps = 1 + (unsigned)random_below(20);
    config.sample_bits = bits[_i];
    shape = channelise_shape_of_rows(&config, columns[_i % 4] == 4 ? 16 : 8, 227 << 10); /* a block has two warps */
    shape.front_tensors = 1;
    shape.front_columns = columns[_i % 4];
    shape.front_per_thread = shape.front_columns > 32 ? 2 : shape.front_columns < 8 ? 1 : 1 + (uint32_t)random_below(2);
    if (pairs) {
        shape.front_columns = 16;
        shape.front_per_thread = 2;
        shape.front_spectra = _i == 13 ? 2 : 4;
    }
    shape.front_blocks = 1;
    shape.front_section = _i % 2 ? 16 : 0;
    ck_assert(channelise_shape_valid(&config, &shape, 227 << 10));
    ck_assert(!channelise_shape_valid(&config, &shape, 163 << 10)); /* of a GPU that has none */
    config.shape = &shape;
    run_end_to_end(&config, EMULATED);
}

/* A block of the back has several tiles, and its lines come by bulk copies; or only one of both. */
TEST(tiles, .end = 12)
{
    struct channelise_config config = configs[0];
    struct channelise_shape shape;

    for (int i = 0; i < _i; i++)
        random_u64(); /* as in large_sizes */
    config.n_chan = _i < 8 ? 256 : 2048;
    config.n_batches = 2;
    config.spectra_per_heap = 16 + 16 * (unsigned)(_i % 3);
    config.n_taps = 1 + (unsigned)random_below(4);
    config.out_bits = _i % 2 ? 4 : 8;
    shape = channelise_shape_of_rows(&config, 8, 227 << 10);
    shape.back_spectra = _i / 2 % 2 ? 8 : 4;
    shape.back_tiles = _i == 7 ? 1 : 2;
    shape.back_bulk = _i / 4 != 0;
    shape.back_pairs = 1u << random_below(_i < 8 ? 3 : 2);
    shape.back_radix = _i < 8 ? 8 : 16u << random_below(2);
    shape.back_threads = 32u << random_below(2);
    ck_assert(channelise_shape_valid(&config, &shape, 227 << 10));
    ck_assert(!shape.back_bulk || !channelise_shape_valid(&config, &shape, 163 << 10)); /* of a GPU that has none */
    config.shape = &shape;
    run_end_to_end(&config, EMULATED);
}

/* Whatever may be configured has a shape on every GPU, but for very many channels and taps where there is little shared
 * memory: they go by stages. */
TEST(every_size_has_a_shape, .unless = test_on_cuda())
{
    static const size_t shared_bytes[] = {99 << 10, 163 << 10, 227 << 10}; /* of GPUs from sm_80 on */

    for (unsigned log2_channels = 6; log2_channels <= 16; log2_channels++)
        for (unsigned n_taps = 1; n_taps <= 32; n_taps++)
            for (unsigned bits = 2; bits <= 16; bits++)
                for (size_t i = 0; i < ARRAY_LEN(shared_bytes); i++) {
                    struct channelise_config config = {
                        .n_chan = 1u << log2_channels, .n_taps = n_taps, .sample_bits = bits, .out_bits = 8};
                    struct channelise_shape shape = channelise_fused_shape(&config, shared_bytes[i]);
                    bool valid = channelise_shape_valid(&config, &shape, shared_bytes[i]);
                    ck_assert_msg(valid || (log2_channels == 16 && n_taps > 16 && i == 0),
                                  "%u channels, %u taps, %u bits, %zu B", config.n_chan, n_taps, bits, shared_bytes[i]);
                }
}

SUITE(.timeout_s = 300, .start = random_start);
