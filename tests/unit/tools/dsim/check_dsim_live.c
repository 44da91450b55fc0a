/* check_dsim_live.c - track() against its definition in long double: tones at positions between samples, at any
 * timestamp, delay and rate; and the resulting heaps. */
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tools/dsim/live.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POISON_BYTE 0xA5
#define MAX_ERROR   3.1623e-5 /* -90 dB */

static struct dsim_program *program;
static struct dsim_live *live;

static void open_live(const char *text, const struct dsim_format *format)
{
    char why[256] = "";

    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "'%s': %s", text, why);
    ck_assert(program->is_live);
    ck_assert_int_eq(dsim_signal_choose_seeds(program), 0);
    ck_assert_msg(dsim_live_create(program, format, &live, why, sizeof(why)) == 0, "%s", why);
}

static void close_live(void)
{
    dsim_live_destroy(live);
    dsim_program_free(program);
}

/* cos(2 pi cycles (t - samples - rate t) / period), its whole periods taken out in integers first. */
static double model(int64_t cycles, int64_t period, int64_t t, double samples, double rate)
{
    long double delay = (long double)samples + (long double)rate * (long double)t;
    long double whole = floorl(delay);
    __int128 position = (__int128)t - (__int128)whole;
    long double turns = (long double)(int64_t)(position * cycles % period) - (long double)cycles * (delay - whole);

    return (double)cosl(2.0L * acosl(-1.0L) * turns / (long double)period);
}

/* In blocks of random length from 'first' on; returns the largest error. */
static double worst_error(int64_t cycles, const struct dsim_format *format, int64_t first, size_t n_samples,
                          double samples, double rate)
{
    double *values = malloc(format->packet_samples * sizeof(*values)), worst = 0.0;

    for (size_t done = 0; done < n_samples;) {
        size_t n = 1 + random_below(format->packet_samples);
        memset(values, POISON_BYTE, format->packet_samples * sizeof(*values));
        dsim_live_evaluate(live, 0, first + (int64_t)done, n, values);
        for (size_t i = 0; i < n; i++) {
            int64_t t = first + (int64_t)(done + i);
            double error = fabs(values[i] - model(cycles, format->axis.period_samples, t, samples, rate));
            worst = error <= worst ? worst : error; /* a NaN stays */
        }
        done += n;
    }
    free(values);
    return worst;
}

static const double rates[] = {0.0, 1e-9, -2.56e-9, 3e-6, -1e-4, 1e-3, -1e-3};

/* All over the band, both sides of the end of a period, whichever way the delay goes. */
TEST(tones_between_samples, .end = 4)
{
    static const struct {
        int64_t period;
        size_t packet_samples;
    } shapes[] = {{1 << 16, 4096}, {4000, 1000}, {24, 8}, {1000003 / 7 * 7, 7}};
    const struct dsim_format format = {.axis = {shapes[_i].period, (double)shapes[_i].period},
                                       .packet_samples = shapes[_i].packet_samples,
                                       .n_inputs = 1};
    int64_t period = format.axis.period_samples;

    for (size_t i = 0; i < 12 * ARRAY_LEN(rates); i++) {
        double rate = rates[i % ARRAY_LEN(rates)];
        double samples = ((double)random_below(1000001) / 1e6 - 0.5) * (i % 3 ? 10.0 : 2e6);
        int64_t highest = period * 45 / 100, cycles = i % 4 == 0 ? highest : 1 + (int64_t)random_below((size_t)highest);
        int64_t first = (1 + (int64_t)random_below(5)) * period - 1500;
        char text[200];

        first = i % 5 == 0 ? (INT64_C(1) << 48) - 1500 : i % 5 == 1 ? INT64_C(100000000000000) : first < 0 ? 0 : first;
        snprintf(text, sizeof(text), "nodither(track(cw(1, %lld), %.17g, %.17g));", (long long)cycles, samples, rate);
        open_live(text, &format);
        double worst = worst_error(cycles, &format, first, 3000, samples, rate);
        ck_assert_msg(worst < MAX_ERROR, "%s from %lld on: error %g", text, (long long)first, worst);
        close_live();
    }
}

/* The help says where the filter ends: that it is no better than it says. */
TEST(band_ends)
{
    const struct dsim_format format = {.axis = {1 << 16, 1 << 16}, .packet_samples = 4096, .n_inputs = 1};
    char text[100];
    int64_t cycles = (1 << 16) * 47 / 100;

    snprintf(text, sizeof(text), "track(cw(1, %lld), 0.5, 0);", (long long)cycles);
    open_live(text, &format);
    ck_assert_double_gt(worst_error(cycles, &format, 0, 3000, 0.5, 0), 10 * MAX_ERROR);
    close_live();
}

/* A whole delay is the signal itself, and all operators take it beside signals that repeat, constants and itself. */
TEST(expressions)
{
    const struct dsim_format format = {.axis = {6000, 6000}, .packet_samples = 1000, .n_inputs = 3};
    const char *repeats = "s = wgn(0.1, 5) + cw(0.2, 7); n = wgn(0.1, 6); 2 * delay(s, 7) - n * delay(s, -3) + 0.25;"
                          "delay(s, 7) + n; delay(0.5, 3);";
    const char *tracks =
        "s = wgn(0.1, 5) + cw(0.2, 7); n = wgn(0.1, 6); 2 * track(s, 7, 0) - n * track(s, -3, 0) + 0.25;"
        "track(s, 7, 0) + n; track(0.5, 3, 0);";
    struct dsim_program *model_program = NULL;
    double values[1000], expected[1000], scratch[8 * 1000];
    char why[256];

    ck_assert_int_eq(dsim_parse(repeats, &model_program, why, sizeof(why)), 0);
    open_live(tracks, &format);
    for (size_t output = 0; output < 3; output++) {
        for (int64_t heap = 0; heap < 15; heap++) {
            int64_t first = heap * 1000;
            memset(values, POISON_BYTE, sizeof(values));
            dsim_live_evaluate(live, output, first, 1000, values);
            dsim_signal_evaluate(model_program->outputs[output].signal, &format.axis, first % 6000, 1000, expected,
                                 scratch);
            for (size_t i = 0; i < 1000; i++)
                ck_assert_double_eq_tol(values[i], expected[i], 2e-7);
        }
    }
    close_live();
    dsim_program_free(model_program);
}

/* Rate 0 and a whole delay: heaps as those of a period, the dither of the first period the same, later another. */
TEST(heaps)
{
    const struct dsim_format format = {
        .axis = {24000, 24000}, .n_inputs = 3, .packet_samples = 800, .sample_bits = 10, .dither_seed = 11};
    struct dsim_program *model_program = NULL;
    struct dsim_heaps *expected = NULL;
    uint8_t payload[1000];
    char why[256];
    size_t n_other = 0;

    ck_assert_int_eq(dsim_parse("s = cw(1.2, 700); s; delay(s, 5); nodither(delay(s, -9));", &model_program, why, 256),
                     0);
    ck_assert_int_eq(dsim_heaps_create(model_program, &format, &expected, why, sizeof(why)), 0);
    open_live("s = cw(1.2, 700); track(s, 0, 0); track(s, 5, 0); nodither(track(s, -9, 0));", &format);
    for (size_t input = 0; input < 3; input++) {
        for (size_t heap = 0; heap < 60; heap++) {
            memset(payload, POISON_BYTE, sizeof(payload));
            uint32_t n_saturated = dsim_live_heap(live, input, (int64_t)heap * 800, payload);
            bool same = memcmp(payload, dsim_heaps_payload(expected, input, heap % 30), 1000) == 0;
            if (heap < 30 || input == 2) {
                ck_assert_msg(same, "input %zu heap %zu", input, heap);
                ck_assert_uint_eq(n_saturated, dsim_heaps_n_saturated(expected, input, heap % 30));
            }
            n_other += !same;
        }
    }
    ck_assert_uint_eq(n_other, 60);
    close_live();
    dsim_heaps_destroy(expected);
    dsim_program_free(model_program);
}

TEST(what_does_not_fit)
{
    const struct dsim_format format = {.axis = {INT64_C(1) << 31, 1e6}, .n_inputs = 1, .packet_samples = 4096};
    struct dsim_live *none = (struct dsim_live *)&format;
    char text[8192] = "", why[256] = "";

    for (size_t i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "track(cw(1,%zu),0,0)+", i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "1;");
    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(dsim_live_create(program, &format, &none, why, sizeof(why)), -E2BIG);
    ck_assert_msg(strstr(why, "make the period shorter"), "%s", why);
    ck_assert_ptr_eq(none, &format);
    dsim_program_free(program);
}

SUITE(.timeout_s = 300, .start = random_start);
