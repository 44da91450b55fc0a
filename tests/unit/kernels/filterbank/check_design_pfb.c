/* check_design_pfb - the filter against its formula, and its response against the F-engine's promises. */
#include "kernels/filterbank/design_pfb.h"

#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>

static float *design(size_t step, size_t n_taps, double w_cutoff, enum pfb_window window)
{
    float *weights = malloc(step * n_taps * sizeof(*weights));

    ck_assert_ptr_nonnull(weights);
    for (size_t i = 0; i < step * n_taps; i++)
        weights[i] = NAN;
    design_pfb(step, n_taps, w_cutoff, window, weights);
    return weights;
}

/* Power response to a tone 'channels' away from a channel's centre, in dB. */
static double response_db(const float *weights, size_t step, size_t n_taps, double channels)
{
    double re = 0, im = 0;

    for (size_t i = 0; i < step * n_taps; i++) {
        double angle = 2 * M_PI * channels * (double)i / (double)step;
        re += weights[i] * cos(angle);
        im += weights[i] * sin(angle);
    }
    return 10 * log10(re * re + im * im);
}

/* Full width at which the response falls to 'level_db', by bisection; the flanks fall monotonically. */
static double width(const float *weights, size_t step, size_t n_taps, double level_db)
{
    double low = 0.4, high = 0.8;

    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2;
        if (response_db(weights, step, n_taps, middle) > level_db)
            low = middle;
        else
            high = middle;
    }
    return 2 * low;
}

static void compare_with_formula(void)
{
    size_t step = 2 + random_below(40), n_taps = 1 + random_below(20), n = step * n_taps;
    double w_cutoff = random_below(4) ? random_between(0, 2) : (double)random_below(3);
    enum pfb_window window = n > 2 && random_below(2) ? PFB_HANN : PFB_RECT;
    float *weights = design(step, n_taps, w_cutoff, window);
    long double power = 0, squares = 0;
    long double *model = malloc(n * sizeof(*model));

    ck_assert_ptr_nonnull(model);
    for (size_t i = 0; i < n; i++) {
        long double x = M_PIl * w_cutoff * (((long double)i + 0.5L) / step - n_taps / 2.0L);
        long double s = window == PFB_HANN ? sinl(M_PIl * i / (n - 1)) : 1;
        model[i] = s * s * (x == 0 ? 1 : sinl(x) / x);
        power += model[i] * model[i];
    }
    for (size_t i = 0; i < n; i++) {
        ck_assert_double_eq_tol(weights[i], (double)(model[i] / sqrtl(power)), 1e-7);
        ck_assert(weights[i] == weights[n - 1 - i]);
        squares += (long double)weights[i] * weights[i];
    }
    ck_assert_double_eq_tol((double)squares, 1, 1e-6);
    if (window == PFB_HANN)
        ck_assert(weights[0] == 0 && weights[n - 1] == 0);
    free(model);
    free(weights);
}

TEST(follows_the_formula)
{
    for (int trial = 0; trial < 100; trial++)
        compare_with_formula();
}

/* Levels are relative to the peak, which is a twentieth of a dB above the centre.  Expected: the formula in numpy. */
TEST(default_response)
{
    const size_t step = 2048, n_taps = 16;
    float *weights = design(step, n_taps, 1.0, PFB_HANN);
    double sum = 0, peak_db = -INFINITY;

    for (size_t i = 0; i < step * n_taps; i++)
        sum += weights[i];
    ck_assert_double_eq_tol(sum, 46.463, 0.001);
    for (double channels = 0; channels < 0.5; channels += 0.002)
        peak_db = fmax(peak_db, response_db(weights, step, n_taps, channels));
    ck_assert_double_eq_tol(peak_db, 20 * log10(sum) + 0.0535, 0.0005);
    ck_assert_double_eq_tol(width(weights, step, n_taps, peak_db + 10 * log10(0.5)), 0.9448, 0.0005);
    ck_assert_double_eq_tol(width(weights, step, n_taps, peak_db - 6), 0.9989, 0.0005);
    ck_assert_double_eq_tol(width(weights, step, n_taps, peak_db - 53), 1.3024, 0.001);
    ck_assert_double_eq_tol(response_db(weights, step, n_taps, 0.5) - peak_db, -6.075, 0.001);
    for (double channels = 1.0; channels < 4; channels += 0.0437)
        ck_assert_double_lt(response_db(weights, step, n_taps, channels) - peak_db, -80);
    free(weights);
}

/* taps=1, w_cutoff=0, rect: a plain FFT, from which the time domain can be had back. */
TEST(plain_fft)
{
    float *weights = design(256, 1, 0, PFB_RECT);

    for (size_t i = 0; i < 256; i++)
        ck_assert(weights[i] == 1.0f / 16);
    free(weights);
}

SUITE(.timeout_s = 60, .start = random_start);
