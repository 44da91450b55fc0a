/* check_dsim_pulsar.c - pulsars against their definition as a sum over all frequencies, in double precision. */
#include "common/base/units.h"
#include "tools/dsim/live.h"
#include "tools/dsim/pulsar.h"
#include "tests/unit/test_main.h"

#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 512

/* Parses and computes; the caller frees. */
static struct dsim_program *make(const char *text, const struct dsim_axis *axis)
{
    struct dsim_program *program = NULL;
    char why[256] = "";

    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "'%s': %s", text, why);
    ck_assert_int_eq(dsim_signal_choose_seeds(program), 0);
    ck_assert_msg(dsim_pulsar_compute(program, axis, why, sizeof(why)) == 0, "'%s': %s", text, why);
    return program;
}

static void evaluate(const char *text, const struct dsim_axis *axis, double values[N])
{
    struct dsim_program *program = make(text, axis);

    dsim_signal_evaluate(program->outputs[0].signal, axis, 0, N, values, NULL);
    dsim_program_free(program);
}

/* values = input, each cosine and sine of it later by dm / 2.41e-4 (1 / f^2 - 1 / f_top^2): the phase of a frequency is
 * the integral of its delay, from the top of the band on. */
static void model_dispersion(const double input[N], double dm, double radio_mhz, double rate_mhz, double values[N])
{
    double top_mhz = radio_mhz + rate_mhz / 2;

    memset(values, 0, N * sizeof(*values));
    for (int k = 0; k <= N / 2; k++) {
        double f = radio_mhz + k * rate_mhz / N;
        double integral = dm / 2.41e-4 * 1e6 * (-1 / f + 1 / top_mhz - (f - top_mhz) / (top_mhz * top_mhz));
        double complex sum = 0;
        for (int i = 0; i < N; i++)
            sum += input[i] * cexp(-2 * M_PI * I * (k * i % N) / N);
        if (k == 0 || k == N / 2)
            sum = creal(sum * cexp(-2 * M_PI * I * integral)) / 2;
        else
            sum *= cexp(-2 * M_PI * I * integral);
        for (int i = 0; i < N; i++)
            values[i] += creal(sum * cexp(2 * M_PI * I * (k * i % N) / N)) * 2 / N;
    }
}

/* Pulses without dispersion are pieces of wgn(): 4 in 512 samples, 37.5 of 128 samples long. */
TEST(test_pulses)
{
    const struct dsim_axis axis = {N, 1e6};
    double noise[N], pulses[N];

    evaluate("wgn(0.5, 9);", &axis, noise);
    evaluate("pulsar(0.5, 128e-6, 37.5e-6, 0, 1e8, 9);", &axis, pulses);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq_tol(pulses[i], i % 128 < 37.5 ? noise[i] : 0, 1e-14);
}

/* Bands at metre and centimetre waves, delays of nothing, of some samples and of many periods. */
TEST(test_dispersion, .end = 5)
{
    static const struct {
        double dm, radio_mhz, rate_mhz;
    } cases[] = {{1e-3, 100, 1}, {0.3, 400, 100}, {67.97, 856, 1712}, {1e4, 30, 2}, {5, 1e-3, 2000}};
    double dm = cases[_i].dm, radio_mhz = cases[_i].radio_mhz, rate_mhz = cases[_i].rate_mhz;
    const struct dsim_axis axis = {N, rate_mhz * 1e6};
    double period_s = N / axis.adc_sample_rate_hz / 3, pulses[N], dispersed[N], expected[N];
    char text[200];

    if (radio_mhz < 1)
        dm = 1e-12; /* the filter's phase at 0 Hz is a sum of large terms */
    snprintf(text, sizeof(text), "pulsar(1, %.17g, %.17g, 0, %.17g, 4);", period_s, period_s / 10, radio_mhz * 1e6);
    evaluate(text, &axis, pulses);
    snprintf(text, sizeof(text), "pulsar(1, %.17g, %.17g, %.17g, %.17g, 4);", period_s, period_s / 10, dm,
             radio_mhz * 1e6);
    evaluate(text, &axis, dispersed);
    model_dispersion(pulses, dm, radio_mhz, rate_mhz, expected);
    double turns = dm / 2.41e-4 * 1e6 / radio_mhz; /* rounding grows with them */
    for (int i = 0; i < N; i++)
        ck_assert_double_eq_tol(dispersed[i], expected[i], 1e-11 + turns * 1e-14);
}

/* The signal is one of the language's: delayed and added as others, in live outputs too, and computed once. */
TEST(test_in_expressions)
{
    const struct dsim_format format = {{N, 2e8}, 3, 64, 8, 1};
    struct dsim_program *program =
        make("p = pulsar(0.5, 6.4e-7, 1e-7, 0.02, 1e9, 3); p; 2 * delay(p, 5) - 1; track(p, 7, 0);", &format.axis);
    struct dsim_live *live = NULL;
    double values[3][N], scratch[2 * N];
    char why[256] = "";

    ck_assert(program->has_pulsar && program->is_live);
    for (size_t i = 0; i < 2; i++)
        dsim_signal_evaluate(program->outputs[i].signal, &format.axis, 0, N, values[i], scratch);
    ck_assert_msg(dsim_live_create(program, &format, &live, why, sizeof(why)) == 0, "%s", why);
    for (size_t first = 0; first < N; first += 64)
        dsim_live_evaluate(live, 2, (int64_t)first, 64, values[2] + first);
    for (size_t i = 0; i < N; i++) {
        ck_assert_double_eq_tol(values[1][i], 2 * values[0][(i + N - 5) % N] - 1, 1e-14);
        ck_assert_double_eq_tol(values[2][i], values[0][(i + N - 7) % N], 1e-6);
    }
    dsim_live_destroy(live);
    dsim_program_free(program);
}

TEST(test_periods)
{
    const struct dsim_axis axis = {1000, 1e6};
    struct dsim_program *program = NULL;
    char why[256] = "";

    ck_assert(dsim_pulsar_takes_period(1) && dsim_pulsar_takes_period(INT64_C(1) << 31));
    ck_assert(!dsim_pulsar_takes_period(3) && !dsim_pulsar_takes_period(1000));
    ck_assert_int_eq(dsim_parse("pulsar(1, 1, 1, 0, 1, 1);", &program, why, sizeof(why)), 0);
    ck_assert_int_eq(dsim_pulsar_compute(program, &axis, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "the period must be a power of two for pulsar(), not 1000");
    dsim_program_free(program);
}

SUITE(.timeout_s = 60);
