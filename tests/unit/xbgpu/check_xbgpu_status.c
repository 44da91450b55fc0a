/* check_xbgpu_status.c - which parts of a dump the status page gets, for which client, and when. */
#include "xbgpu/status.h"

#include "common/telemetry/stats.h"
#include "kernels/correlate/reduce.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_ANTS      5
#define N_BASELINES 15
#define N_CHAN      24
#define N_SUMMED    512 /* spectra in a dump */

static const char yaml[] =
    "time: {sync_time: 1000, adc_sample_rate: 48000}\n"
    "recv: {sources: 239.9.9.9, antennas: 5, channels: 96, channels_per_substream: 24, channel_offset: 48,\n"
    "       spectra_per_heap: 32, samples_between_spectra: 192, sample_bits: 8, batches_per_chunk: 2}\n"
    "outputs:\n"
    "  - {kind: correlate, name: first, integration_batches: 16, destination: 239.8.8.8}\n"
    "  - {kind: correlate, name: second, integration_batches: 16, destination: 239.8.8.9}\n";

static struct rig {
    struct xbgpu_config config;
    struct config *errors;
    struct xbgpu_layout layout;
    struct xbgpu_status *status;
    struct xbgpu_stream stream;
    struct xbgpu_dump dump;
    int32_t visibilities[N_CHAN][N_BASELINES][N_POL_PRODUCTS][2];
    uint32_t weights[N_BASELINES];
    json_t *answer;
} r;

static void rig_open(void)
{
    load_config(&xbgpu_config_table, yaml, &r.config, &r.errors);
    xbgpu_layout_init(&r.layout, &r.config);
    ck_assert_uint_eq(r.layout.n_baselines, N_BASELINES);
    ck_assert_int_eq(xbgpu_status_create(&r.config, &r.layout, &r.status), 0);
    r.stream.output = xbgpu_config_output(&r.config, 0);
    r.dump = (struct xbgpu_dump){.stream = &r.stream,
                                 .visibilities = r.visibilities,
                                 .weights = r.weights,
                                 .min_weight = N_SUMMED,
                                 .timestamp_samples = 96000};
    for (size_t c = 0; c < N_CHAN; c++)
        for (size_t b = 0; b < N_BASELINES; b++)
            for (size_t p = 0; p < N_POL_PRODUCTS; p++)
                for (size_t part = 0; part < 2; part++)
                    r.visibilities[c][b][p][part] = (int32_t)random_below(2000000) - 1000000;
    for (size_t b = 0; b < N_BASELINES; b++)
        r.weights[b] = N_SUMMED;
    for (size_t ant = 0; ant < N_ANTS; ant++)
        for (size_t c = 0; c < N_CHAN; c++)
            for (size_t p = 0; p < N_POL_PRODUCTS; p += 3) {
                int32_t *v = r.visibilities[c][ant * (ant + 1) / 2 + ant][p];
                v[0] = abs(v[0]) + 1;
                v[1] = 0;
            }
}

static void rig_close(void)
{
    xbgpu_status_destroy(r.status);
    xbgpu_status_destroy(NULL);
    json_decref(r.answer);
    config_free(&xbgpu_config_table, &r.config, r.errors);
    stats_reset();
    r = (struct rig){0};
}

/* The answer is there until the next question. */
static json_t *ask_about(const struct status_query *query)
{
    json_decref(r.answer);
    r.answer = json_object();
    xbgpu_status_describe(r.status, query, r.answer);
    return r.answer;
}

static json_t *ask(const char *stream, const char *baseline)
{
    return ask_about(&(struct status_query){.stream = stream, .baseline = baseline});
}

/* Whether an answer has a spectrum, and if so of this baseline. */
static bool has_spectrum(json_t *json, int ant1, int ant2)
{
    json_t *spectrum = json_object_get(json, "spectrum"), *baseline = json_object_get(spectrum, "baseline");

    if (!json_is_object(spectrum)) {
        ck_assert(json_is_null(spectrum));
        return false;
    }
    ck_assert_int_eq(json_integer_value(json_array_get(baseline, 0)), ant1);
    ck_assert_int_eq(json_integer_value(json_array_get(baseline, 1)), ant2);
    return true;
}

static void check_number(const json_t *array, size_t i, double expected, double tolerance)
{
    const json_t *number = json_array_get(array, i);

    if (isnan(expected)) {
        ck_assert_msg(json_is_null(number), "%zu: %g, not nothing", i, json_number_value(number));
        return;
    }
    ck_assert_msg(json_is_real(number), "%zu: nothing, not %g", i, expected);
    ck_assert_double_eq_tol(json_real_value(number), expected, tolerance);
}

static double dbfs(double power)
{
    return 10 * log10(power / (127.0 * 127.0));
}

/* Compares a curve with the dump, of which every channel is a point. */
static void check_curve(const json_t *curve, int ant1, int ant2, int product)
{
    size_t baseline = (size_t)(ant2 * (ant2 + 1) / 2 + ant1);
    bool is_cross = !strcmp(json_string_value(json_object_get(curve, "kind")), "cross");
    json_t *pols = json_object_get(curve, "pols");

    ck_assert_int_eq(json_integer_value(json_array_get(pols, 0)), product % 2);
    ck_assert_int_eq(json_integer_value(json_array_get(pols, 1)), product / 2);
    ck_assert_uint_eq(json_array_size(json_object_get(curve, "mean")), N_CHAN);
    for (size_t c = 0; c < N_CHAN; c++) {
        double re = r.visibilities[c][baseline][product][0], im = r.visibilities[c][baseline][product][1];
        double magnitude = hypot(re, im) / N_SUMMED;
        if (r.weights[baseline] < N_SUMMED)
            re = im = magnitude = NAN;
        check_number(json_object_get(curve, "mean"), c, dbfs(magnitude), 0.006);
        check_number(json_object_get(curve, "most"), c, dbfs(magnitude), 0.006);
        if (!is_cross)
            continue;
        check_number(json_object_get(curve, "phase_deg"), c, atan2(-im, re) * 180 / M_PI, 0.06); /* of the conjugate */
        double power1 = r.visibilities[c][ant1 * (ant1 + 1) / 2 + ant1][3 * (product % 2)][0];
        double power2 = r.visibilities[c][ant2 * (ant2 + 1) / 2 + ant2][3 * (product / 2)][0];
        check_number(json_object_get(curve, "coherence"), c, magnitude * N_SUMMED / sqrt(power1 * power2), 1e-4);
    }
}

TEST(spectra)
{
    static const int products[] = {0, 3, 0, 3, 0, 1, 2, 3};

    json_t *json = ask("first", "3,1"); /* either order */
    ck_assert(!has_spectrum(json, 1, 3));
    xbgpu_status_sample(r.status, &r.dump);
    json = ask("first", "3,1");
    ck_assert(has_spectrum(json, 1, 3));
    json_t *spectrum = json_object_get(json, "spectrum"), *curves = json_object_get(spectrum, "curves");
    json_t *axis = json_object_get(spectrum, "axis");
    ck_assert_int_eq(json_integer_value(json_object_get(spectrum, "timestamp")), 96000);
    ck_assert_double_eq(json_real_value(json_object_get(spectrum, "time")), 1002);
    ck_assert_int_eq(json_integer_value(json_object_get(axis, "first_channel")), 48);
    ck_assert_double_eq(json_real_value(json_object_get(axis, "step_hz")), 250);
    ck_assert_double_eq(json_real_value(json_object_get(axis, "first_hz")), 48 * 250);
    ck_assert(json_is_false(json_object_get(spectrum, "relative")));
    ck_assert_uint_eq(json_array_size(curves), 8);
    for (size_t i = 0; i < 8; i++)
        check_curve(json_array_get(curves, i), i == 2 || i == 3 ? 3 : 1, i < 2 ? 1 : 3, products[i]);
}

/* A question without a spectrum requests nothing from the worker. */
TEST(without_spectrum)
{
    const struct status_query none = {.baseline = "0,1", .no_spectrum = true};

    ck_assert(json_is_null(json_object_get(ask_about(&none), "spectrum")));
    xbgpu_status_sample(r.status, &r.dump);
    json_t *json = ask(NULL, "0,1");
    ck_assert(!has_spectrum(json, 0, 1));
    ck_assert_uint_eq(json_array_size(json_object_get(json, "levels")), 0);
    xbgpu_status_sample(r.status, &r.dump);
    ck_assert(json_is_null(json_object_get(ask_about(&none), "spectrum")));
    ck_assert(has_spectrum(ask(NULL, "0,1"), 0, 1));
}

/* Some channels alone. */
TEST(closer)
{
    ask(NULL, "0,2");
    xbgpu_status_sample(r.status, &r.dump);
    json_t *json = ask_about(&(struct status_query){.baseline = "0,2", .channels = "50,54"});
    ck_assert(has_spectrum(json, 0, 2));
    json_t *spectrum = json_object_get(json, "spectrum"), *axis = json_object_get(spectrum, "axis");
    ck_assert_int_eq(json_integer_value(json_object_get(axis, "first_channel")), 50);
    ck_assert_int_eq(json_integer_value(json_object_get(axis, "channels")), 5);
    ck_assert_double_eq(json_real_value(json_object_get(axis, "first_hz")), 50 * 250);
    const json_t *phases = json_object_get(json_array_get(json_object_get(spectrum, "curves"), 6), "phase_deg");
    ck_assert_uint_eq(json_array_size(phases), 5);
    for (size_t c = 0; c < 5; c++)
        check_number(phases, c, atan2(-r.visibilities[c + 2][3][2][1], r.visibilities[c + 2][3][2][0]) * 180 / M_PI,
                     0.06);
}

/* What is flagged is nothing, not (-2^31, 1). */
TEST(flagged)
{
    const size_t baseline = 2 * 3 / 2 + 1; /* of 1 and 2 */

    for (size_t c = 0; c < N_CHAN; c++)
        for (size_t p = 0; p < N_POL_PRODUCTS; p++) {
            r.visibilities[c][baseline][p][0] = REDUCE_MISSING_RE;
            r.visibilities[c][baseline][p][1] = REDUCE_MISSING_IM;
        }
    r.weights[baseline] = N_SUMMED - 32;
    ask(NULL, "1,2");
    xbgpu_status_sample(r.status, &r.dump);
    json_t *json = ask(NULL, "1,2");
    ck_assert(has_spectrum(json, 1, 2));
    json_t *curves = json_object_get(json_object_get(json, "spectrum"), "curves");
    check_curve(json_array_get(curves, 1), 1, 1, 3);
    check_curve(json_array_get(curves, 4), 1, 2, 0);
}

TEST(levels)
{
    json_t *json = ask(NULL, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "levels")), 0);
    ck_assert(json_is_null(json_object_get(json, "levels_time")));
    r.weights[5] = 0; /* antenna 2 with itself */
    xbgpu_status_sample(r.status, &r.dump);
    json = ask(NULL, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "levels")), N_ANTS);
    ck_assert_double_eq(json_real_value(json_object_get(json, "levels_time")), 1002);
    for (size_t ant = 0; ant < N_ANTS; ant++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            double sum = 0;
            for (size_t c = 0; c < N_CHAN; c++)
                sum += r.visibilities[c][ant * (ant + 1) / 2 + ant][3 * pol][0];
            check_number(json_array_get(json_object_get(json, "levels"), ant), pol,
                         ant == 2 ? NAN : dbfs(sum / N_CHAN / N_SUMMED), 0.006);
        }
}

/* Several people look at different baselines; each gets his own, and one more than there are views takes turns. */
TEST(several)
{
    static const char *const baselines[] = {"0,0", "0,4", "1,2", "3,3", "2,4"};

    for (int i = 0; i < XBGPU_N_VIEWS; i++)
        ask(NULL, baselines[i]);
    xbgpu_status_sample(r.status, &r.dump);
    for (int i = 0; i < XBGPU_N_VIEWS; i++)
        ck_assert(has_spectrum(ask(NULL, baselines[i]), baselines[i][0] - '0', baselines[i][2] - '0'));
    ck_assert(!has_spectrum(ask(NULL, baselines[XBGPU_N_VIEWS]), 2, 4));
    xbgpu_status_sample(r.status, &r.dump);
    ck_assert(has_spectrum(ask(NULL, baselines[XBGPU_N_VIEWS]), 2, 4));
    ck_assert(has_spectrum(ask(NULL, baselines[1]), 0, 4)); /* still there, though another had to go */
}

/* What makes no sense is the first baseline; an output that nobody asks for is not looked at. */
TEST(other_questions)
{
    static const char *const questions[] = {"",    "0",    "0,5",  "5,0", "-1,0", "0,1,2",
                                            "a,b", "0,1x", " 0,1", ",",   "0,1,", "99999999999999999999999,1"};

    for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
        ask("no such", questions[i]);
        xbgpu_status_sample(r.status, &r.dump);
        json_t *json = ask("no such", questions[i]);
        ck_assert_msg(has_spectrum(json, 0, 1), "%s", questions[i]);
    }
    r.stream.output = xbgpu_config_output(&r.config, 1);
    xbgpu_status_sample(r.status, &r.dump);
    ck_assert(!has_spectrum(ask("second", "0,1"), 0, 1));
}

SUITE(.setup = rig_open, .teardown = rig_close, .start = random_start);
