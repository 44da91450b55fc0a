/* check_dsim_signal.c - signals against models of their definitions, quantisation and packing against golden values. */
#include "common/base/units.h"
#include "tools/dsim/signal.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define POISON_BYTE 0xA5

/* Parses one expression or more; the caller frees. */
static struct dsim_program *parse(const char *text)
{
    struct dsim_program *program = NULL;
    char why[256];

    int err = dsim_parse(text, &program, why, sizeof(why));
    ck_assert_msg(err == 0, "'%s': %s", text, why);
    return program;
}

/* Evaluates an output from 'first' on in blocks of 'block_samples'; the caller frees. */
static double *evaluate(const struct dsim_program *program, size_t output, const struct dsim_axis *axis, int64_t first,
                        size_t n_samples, size_t block_samples)
{
    const struct dsim_node *signal = program->outputs[output].signal;
    double *values = malloc(n_samples * sizeof(*values));
    double *scratch = malloc((signal->n_scratch + 1) * block_samples * sizeof(*scratch));

    memset(values, POISON_BYTE, n_samples * sizeof(*values));
    for (size_t done = 0; done < n_samples; done += block_samples) {
        size_t n = n_samples - done < block_samples ? n_samples - done : block_samples;
        memset(scratch, POISON_BYTE, (signal->n_scratch + 1) * block_samples * sizeof(*scratch));
        dsim_signal_evaluate(signal, axis, first + (int64_t)done, n, values + done, scratch);
    }
    free(scratch);
    return values;
}

static double *evaluate_period(const char *text, const struct dsim_axis *axis)
{
    struct dsim_program *program = parse(text);
    double *values = evaluate(program, 0, axis, 0, (size_t)axis->period_samples, 1000);

    dsim_program_free(program);
    return values;
}

/* a cos(2 pi cycles i / period), from a phase reduced in 128 bits. */
static double model_tone(double amplitude, int64_t cycles, int64_t i, int64_t period)
{
    long double phase = (long double)(int64_t)((__int128)cycles * i % period) / (long double)period;

    return (double)(amplitude * cosl(2.0L * acosl(-1.0L) * phase));
}

/* ---- Functions of the language ---------------------------------------------------------------------------------- */

TEST(test_cycles)
{
    const struct dsim_axis axis = {1000, 8000.0};

    ck_assert_double_eq(dsim_signal_cycles(&axis, 0.0), 1.0);
    ck_assert_double_eq(dsim_signal_cycles(&axis, 8.0), 1.0);
    ck_assert_double_eq(dsim_signal_cycles(&axis, 99.0), 12.0);
    ck_assert_double_eq(dsim_signal_cycles(&axis, 1001.0), 125.0);
    ck_assert_double_eq(dsim_signal_cycles(&axis, 8000.0), 1000.0);
}

/* Close to the end of a long period, too, where a phase in floating point has lost its digits. */
TEST(test_cw_is_accurate, .end = 4)
{
    static const struct dsim_axis axes[] = {{INT64_C(1) << 31, 1712e6}, {2147483647, 1712e6}, {999999, 2e6}, {7, 10.0}};
    const struct dsim_axis *axis = &axes[_i];
    struct dsim_program *program = parse("cw(0.75, 6.12345e8); cw(1, 3.0); cw(2, 9.3e8);");
    size_t n = axis->period_samples < 1000 ? (size_t)axis->period_samples : 1000;
    int64_t first = axis->period_samples - (int64_t)n;

    for (size_t output = 0; output < program->n_outputs; output++) {
        const struct dsim_node *tone = program->outputs[output].signal;
        int64_t cycles = llround((double)axis->period_samples * tone->frequency_hz / axis->adc_sample_rate_hz);
        double *values = evaluate(program, output, axis, first, n, 99);
        cycles = cycles < 1 ? 1 : cycles;
        for (size_t i = 0; i < n; i++) {
            double expected = model_tone(tone->amplitude, cycles, first + (int64_t)i, axis->period_samples);
            ck_assert_double_eq_tol(values[i], expected, 2e-15);
        }
        free(values);
    }
    dsim_program_free(program);
}

TEST(test_multicw)
{
    const struct dsim_axis axis = {5000, 10000.0};
    double *values = evaluate_period("multicw(3, 0.5, -0.1, 100, 51);", &axis);
    const int64_t cycles[] = {50, 76, 101}; /* 100, 151, 202 Hz; 75.5 is rounded to even */

    for (int64_t i = 0; i < axis.period_samples; i++) {
        double expected = 0;
        for (int tone = 0; tone < 3; tone++)
            expected += model_tone(0.5 - 0.1 * tone, cycles[tone], i, axis.period_samples);
        ck_assert_double_eq_tol(values[i], expected, 1e-14);
    }
    free(values);
}

/* Sample i has an impulse if it is the nearest one to k period / cycles for some k, even i taking the ties. */
static bool model_comb(int64_t i, int64_t period, int64_t cycles)
{
    for (int64_t k = i * cycles / period; k <= i * cycles / period + 1; k++) {
        int64_t twice_distance = 2 * llabs(i * cycles - k * period);
        if (twice_distance < cycles || (twice_distance == cycles && i % 2 == 0))
            return true;
    }
    return false;
}

TEST(test_comb_is_exact, .end = 9)
{
    static const struct {
        int64_t period, cycles;
    } cases[] = {{4096, 16},  {1000003, 7},  {999, 998}, {1000, 1000},     {1000, 400},
                 {1001, 286}, {30030, 4620}, {8, 1},     {1 << 20, 349525}};
    int64_t period = cases[_i].period, cycles = cases[_i].cycles;
    const struct dsim_axis axis = {period, (double)period};
    char text[60];
    int64_t n_impulses = 0;

    snprintf(text, sizeof(text), "comb(-0.25, %lld);", (long long)cycles);
    double *values = evaluate_period(text, &axis);
    for (int64_t i = 0; i < period; i++) {
        bool expected = model_comb(i, period, cycles);
        ck_assert_msg(values[i] == (expected ? -0.25 : 0.0), "sample %lld of %lld, %lld impulses: %g", (long long)i,
                      (long long)period, (long long)cycles, values[i]);
        n_impulses += values[i] != 0;
    }
    ck_assert_int_eq(n_impulses, cycles);
    free(values);
}

/* At the end of the longest period, and with an impulse in every sample and more. */
TEST(test_comb_limits)
{
    const struct dsim_axis axis = {INT64_C(1) << 31, 1e9};
    struct dsim_program *program = parse("comb(1, 3e8); comb(1, 1e9); comb(1, 1e12);");
    int64_t cycles = llround((double)axis.period_samples * 0.3), first = axis.period_samples - 1000;

    for (size_t output = 0; output < 3; output++) {
        double *values = evaluate(program, output, &axis, first, 1000, 1000);
        for (int64_t i = 0; i < 1000; i++)
            ck_assert(values[i] == (output > 0 || model_comb(first + i, axis.period_samples, cycles)));
        free(values);
    }
    dsim_program_free(program);
}

TEST(test_delay_rolls, .end = 9)
{
    const struct dsim_axis axis = {1001, 1001.0};
    static const int64_t delays[] = {0, 1, -1, 500, 1000, -1000, 1001, 3500, -123456789012};
    double *source = evaluate_period("wgn(1, 7) + cw(1, 3);", &axis);
    char text[100];

    snprintf(text, sizeof(text), "delay(wgn(1, 7) + cw(1, 3), %lld);", (long long)delays[_i]);
    double *delayed = evaluate_period(text, &axis);
    for (int64_t i = 0; i < axis.period_samples; i++)
        ck_assert_double_eq(delayed[i], source[i - delays[_i] - round_down(i - delays[_i], 1001)]);
    free(source);
    free(delayed);
}

TEST(test_arithmetic)
{
    const struct dsim_axis axis = {97, 97.0};
    const char *text = "a = cw(1, 5); b = wgn(1, 3); (a - b) * (b + 2 * (a - 1 - (b - a))) - -0.5;";
    double *values = evaluate_period(text, &axis);
    double *a = evaluate_period("cw(1, 5);", &axis);
    double *b = evaluate_period("wgn(1, 3);", &axis);

    for (int i = 0; i < 97; i++)
        ck_assert_double_eq_tol(values[i], (a[i] - b[i]) * (b[i] + 2 * (a[i] - 1 - (b[i] - a[i]))) + 0.5, 1e-12);
    free(values);
    free(a);
    free(b);
}

/* ---- Noise ------------------------------------------------------------------------------------------------------ */

static double correlation(const double *a, const double *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum / (double)n;
}

/* Moments within five standard errors; neighbours and other seeds independent.  The seeds are new in each run. */
TEST(test_wgn_statistics, .end = 2)
{
    const struct dsim_axis axis = {400000, 1.0};
    const size_t n = 400000;
    unsigned seed = (unsigned)time(NULL) + (unsigned)_i;
    double five_errors = 5 / sqrt((double)n), fourth = 0;
    char text[100];
    size_t n_tail = 0;

    printf("wgn seeds %u and the next\n", seed);
    snprintf(text, sizeof(text), "wgn(1, %u);", seed);
    double *a = evaluate_period(text, &axis);
    snprintf(text, sizeof(text), "wgn(1, %u);", seed + 1);
    double *b = evaluate_period(text, &axis);
    double mean = 0;
    for (size_t i = 0; i < n; i++) {
        mean += a[i] / (double)n;
        fourth += a[i] * a[i] * a[i] * a[i] / (double)n;
        n_tail += fabs(a[i]) > 2.0;
    }
    ck_assert_double_eq_tol(mean, 0, five_errors);
    ck_assert_double_eq_tol(correlation(a, a, n), 1, five_errors * sqrt(2));
    ck_assert_double_eq_tol(fourth, 3, five_errors * sqrt(96));
    ck_assert_double_eq_tol((double)n_tail / (double)n, 0.0455003, five_errors * sqrt(0.0455));
    ck_assert_double_eq_tol(correlation(a, b, n), 0, five_errors);
    for (size_t lag = 1; lag <= 5; lag++)
        ck_assert_double_eq_tol(correlation(a, a + lag, n - lag), 0, five_errors * 1.01);
    free(a);
    free(b);
}

/* The same sample whatever the block that it is computed in. */
TEST(test_wgn_is_reproducible)
{
    const struct dsim_axis axis = {10007, 1.0};
    struct dsim_program *program = parse("wgn(0.5, 123);");
    double *whole = evaluate(program, 0, &axis, 0, 10007, 10007);
    static const size_t blocks[] = {1, 2, 3, 5, 4096};

    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        double *parts = evaluate(program, 0, &axis, 0, 10007, blocks[i]);
        ck_assert_mem_eq(parts, whole, 10007 * sizeof(*whole));
        free(parts);
    }
    free(whole);
    dsim_program_free(program);
}

TEST(test_seeds_are_chosen)
{
    struct dsim_program *program = parse("a = wgn(1); a; wgn(1); wgn(1, 5);");

    ck_assert_int_eq(dsim_signal_choose_seeds(program), 0);
    uint64_t seeds[3];
    for (int i = 0; i < 3; i++) {
        ck_assert(program->outputs[i].signal->has_seed);
        seeds[i] = program->outputs[i].signal->seed;
    }
    ck_assert_uint_ne(seeds[0], seeds[1]);
    ck_assert_uint_eq(seeds[2], 5);
    dsim_program_free(program);
}

/* ---- Samples ---------------------------------------------------------------------------------------------------- */

TEST(test_quantise_golden)
{
    const double values[] = {0.1, -0.2, 0.05, 1, -1, 1.5, -1.5, 0.5 / 511, 1.5 / 511, INFINITY, -INFINITY, NAN};
    const int32_t expected[] = {51, -102, 26, 511, -511, 511, -511, 0, 2, 511, -511, -511};
    int32_t quantised[ARRAY_LEN(values)];

    memset(quantised, POISON_BYTE, sizeof(quantised));
    dsim_quantise(values, NULL, ARRAY_LEN(values), 10, quantised);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        ck_assert_int_eq(quantised[i], expected[i]);
}

/* The dither keeps whole numbers, makes the mean of others right, and never leads beyond the range. */
TEST(test_dither)
{
    enum { N = 200000 };
    static float dither[N], again[N];
    static double values[N];
    static int32_t quantised[N];

    dsim_dither(42, 3, 0, N, dither);
    for (int i = 0; i < N; i += 7)
        dsim_dither(42, 3, i, i + 7 < N ? 7 : (size_t)(N - i), again + i);
    ck_assert_mem_eq(dither, again, sizeof(dither));
    for (int i = 0; i < N; i++) {
        ck_assert(fabsf(dither[i]) < 0.5f);
        values[i] = (i % 255 - 127) / 127.0;
    }
    dsim_quantise(values, dither, N, 8, quantised);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(quantised[i], i % 255 - 127);

    double sum = 0, product = 0;
    dsim_dither(42, 4, 0, N, again);
    for (int i = 0; i < N; i++) {
        values[i] = 10.3 / 127;
        product += (double)dither[i] * (double)again[i] / N;
    }
    dsim_quantise(values, dither, N, 8, quantised);
    for (int i = 0; i < N; i++)
        sum += quantised[i];
    ck_assert_double_eq_tol(sum / N, 10.3, 5 * sqrt(0.21 / N));
    ck_assert_double_eq_tol(product, 0, 5 * (1.0 / 12) / sqrt(N)); /* inputs are independent */
}

TEST(test_count_saturated)
{
    const int32_t samples[] = {127, 126, -127, -128, 0, -126};

    ck_assert_uint_eq(dsim_count_saturated(samples, ARRAY_LEN(samples), 8), 3);
    ck_assert_uint_eq(dsim_count_saturated(samples, ARRAY_LEN(samples), 9), 0);
    ck_assert_uint_eq(dsim_count_saturated(samples, 0, 8), 0);
}

TEST(test_pack_golden)
{
    const int32_t samples[] = {-10, 11, -1, -11, 6, 2, -5, -8};
    const uint8_t expected[] = {0xB2, 0xFF, 0x53, 0x0B, 0x78};
    uint8_t packed[6];

    memset(packed, POISON_BYTE, sizeof(packed));
    dsim_pack(samples, ARRAY_LEN(samples), 5, packed);
    ck_assert_mem_eq(packed, expected, sizeof(expected));
    ck_assert_uint_eq(packed[5], POISON_BYTE);
}

/* Bit by bit, for each width. */
TEST(test_pack_widths, .first = 2, .end = 17)
{
    enum { N = 4 * 24 };
    int bits = _i;
    unsigned seed = (unsigned)time(NULL);
    int32_t samples[N];
    uint8_t packed[N * 2 + 1];

    printf("pack seed %u\n", seed);
    for (int i = 0; i < N; i++)
        samples[i] = (int32_t)(rand_r(&seed) % (1 << bits)) - (1 << (bits - 1));
    memset(packed, POISON_BYTE, sizeof(packed));
    dsim_pack(samples, N, bits, packed);
    for (int i = 0; i < N * bits; i++) {
        int expected = samples[i / bits] >> (bits - 1 - i % bits) & 1;
        ck_assert_int_eq(packed[i / 8] >> (7 - i % 8) & 1, expected);
    }
    ck_assert_uint_eq(packed[N * bits / 8], POISON_BYTE);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------ */

static int32_t unpack(const uint8_t *packed, size_t index, int sample_bits)
{
    int32_t value = 0;

    for (size_t bit = index * (size_t)sample_bits; bit < (index + 1) * (size_t)sample_bits; bit++)
        value = value * 2 + (packed[bit / 8] >> (7 - bit % 8) & 1);
    return value >= 1 << (sample_bits - 1) ? value - (1 << sample_bits) : value;
}

static struct dsim_heaps *make_heaps(const char *text, const struct dsim_format *format)
{
    struct dsim_program *program = parse(text);
    struct dsim_heaps *heaps = NULL;
    char why[256] = "";

    int err = dsim_heaps_create(program, format, &heaps, why, sizeof(why));
    ck_assert_msg(err == 0, "%s", why);
    dsim_program_free(program);
    return heaps;
}

/* Each input its own signal, in its own heaps, at its own width. */
TEST(test_heaps, .end = 6)
{
    static const int widths[] = {2, 3, 7, 10, 12, 16};
    int bits = widths[_i], max = (1 << (bits - 1)) - 1;
    const struct dsim_format format = {{2400, 2400.0}, 3, 240, bits, 1};
    struct dsim_heaps *heaps = make_heaps("nodither(cw(1.5, 7)); 0.25; nodither(delay(cw(1.5, 7), 100));", &format);

    ck_assert_uint_eq(heaps->n_heaps, 10);
    ck_assert_uint_eq(heaps->heap_bytes, 30 * (size_t)bits);
    for (size_t heap = 0; heap < 10; heap++) {
        uint32_t n_saturated[3] = {0};
        for (size_t i = 0; i < 240; i++) {
            int64_t sample = (int64_t)(heap * 240 + i);
            double expected[3] = {max * model_tone(1.5, 7, sample, 2400), 0.25 * max,
                                  max * model_tone(1.5, 7, (sample + 2300) % 2400, 2400)};
            const double tolerance[3] = {0.5 + 1e-9, 1, 0.5 + 1e-9};
            for (size_t input = 0; input < 3; input++) {
                int32_t q = unpack(dsim_heaps_payload(heaps, input, heap), i, bits);
                ck_assert_double_eq_tol(q, fmax(-max, fmin(max, expected[input])), tolerance[input]);
                n_saturated[input] += abs(q) == max;
            }
        }
        for (size_t input = 0; input < 3; input++)
            ck_assert_uint_eq(dsim_heaps_n_saturated(heaps, input, heap), n_saturated[input]);
    }
    dsim_heaps_destroy(heaps);
}

/* A cosine of twice full scale is beyond full scale two thirds of the time. */
TEST(test_heaps_saturation)
{
    const struct dsim_format format = {{1 << 18, 1712e6}, 1, 4096, 10, 1};
    struct dsim_heaps *heaps = make_heaps("cw(2, 232101234.0);", &format);
    double n_saturated = 0;

    for (size_t heap = 0; heap < heaps->n_heaps; heap++)
        n_saturated += dsim_heaps_n_saturated(heaps, 0, heap);
    ck_assert_double_eq_tol(n_saturated / (1 << 18), 2.0 / 3.0, 0.01);
    dsim_heaps_destroy(heaps);
}

/* One expression serves all inputs, whose dithers differ; nothing depends on the threads; everything on the seeds. */
TEST(test_heaps_are_reproducible)
{
    struct dsim_format format = {{1 << 16, 1e6}, 4, 4096, 8, 99};
    const char *text = "a = wgn(0.1, 1); a + delay(cw(0.1, 1e5) * a, 17);";
    size_t bytes = (size_t)4 << 16;

#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    struct dsim_heaps *one = make_heaps(text, &format);
#ifdef _OPENMP
    omp_set_num_threads(3);
#endif
    struct dsim_heaps *three = make_heaps(text, &format);
    ck_assert_mem_eq(one->payloads, three->payloads, bytes);
    ck_assert(memcmp(dsim_heaps_payload(one, 0, 0), dsim_heaps_payload(one, 1, 0), (size_t)1 << 16) != 0);
    format.dither_seed = 100;
    struct dsim_heaps *other = make_heaps(text, &format);
    ck_assert(memcmp(one->payloads, other->payloads, bytes) != 0);
    dsim_heaps_destroy(one);
    dsim_heaps_destroy(three);
    dsim_heaps_destroy(other);
}

TEST(test_heaps_that_do_not_fit)
{
    const struct dsim_format format = {{INT64_C(1) << 31, 1e6}, 2048, 4096, 16, 1};
    struct dsim_program *program = parse("1;");
    struct dsim_heaps *heaps = (struct dsim_heaps *)&format;
    char why[256] = "";

    ck_assert_int_eq(dsim_heaps_create(program, &format, &heaps, why, sizeof(why)), -E2BIG);
    ck_assert_msg(strstr(why, "make the period shorter"), "%s", why);
    ck_assert_ptr_eq(heaps, &format);
    dsim_program_free(program);
}
