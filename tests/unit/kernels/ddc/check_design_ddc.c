/* check_design_ddc - the down-converter's filter.  The filter is the best one: its error alternates as often as the
 * theorem requires.  The test also checks ripple and rejection, and the sentence if no filter exists.
 *
 * check_design_ddc --design SUBSAMPLING TAPS WEIGHT_PASS PASS_FRACTION prints the taps before they are rounded to
 * float.  tests/system/test_design_ddc.py compares them with scipy's. */
#include "kernels/ddc/design_ddc.h"
#include "kernels/ddc/remez.h"

#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct design_ddc usual(unsigned decimation, double pass_fraction)
{
    unsigned subsampling = pass_fraction > 0 ? 2 * decimation : decimation;

    return (struct design_ddc){subsampling, (size_t)16 * subsampling, 0.005, pass_fraction};
}

/* Of a symmetric filter, without its delay: a sum of cosines.  'f' in cycles per sample. */
static double response(const double *taps, size_t n_taps, double f)
{
    double sum = 0;

    for (size_t i = 0; i < n_taps; i++)
        sum += taps[i] * cos(2 * M_PI * f * ((double)i - (double)(n_taps - 1) / 2));
    return sum;
}

/* Whether 'f', in units of the rate after subsampling, is in a band; 'desired' and 'weight' then. */
static bool in_band(const struct design_ddc *d, double f, double *desired, double *weight)
{
    double edge = d->pass_fraction > 0 ? d->pass_fraction / 2 : 0.25;

    *desired = f <= edge;
    *weight = f <= edge ? d->weight_pass : 1;
    if (f <= edge)
        return true;
    return d->pass_fraction > 0 ? f >= 1 - edge : f >= 0.75 && fabs(f - rint(f)) <= 0.25;
}

struct errors {
    double largest;       /* weighted */
    size_t n_alternating; /* errors of alternating sign that reach 0.999 times the largest */
};

/* On the grid of remez.h, which is what the filter is the best on. */
static struct errors find_errors(const struct design_ddc *d, const double *taps)
{
    double step = 0.5 / (double)(16 * ((d->n_taps + 1) / 2)), *error = calloc(64 * d->n_taps, sizeof(*error));
    double largest = 0, last = 0, edge = d->pass_fraction > 0 ? d->pass_fraction / 2 : 0.25;
    size_t n = 0, n_alternating = 0;

    ck_assert_ptr_nonnull(error);
    for (double low = 0; low < d->subsampling / 2.0; low = low == 0 ? 1 - edge : low + 1) {
        double high = low == 0 ? edge : d->pass_fraction > 0 ? d->subsampling / 2.0 : low + 0.5;
        high = fmin(high, d->subsampling / 2.0) / d->subsampling;
        for (double f = low / d->subsampling; f < high + step / 2; f += step) {
            double weight = low == 0 ? d->weight_pass : 1, at = f + step > high ? high : f;
            if (d->n_taps % 2 == 0 && at > 0.5 - step)
                break;
            error[n] = weight * (response(taps, d->n_taps, at) / sqrt(d->subsampling) - (low == 0));
            largest = fmax(largest, fabs(error[n++]));
            if (at == high)
                break;
        }
        if (d->pass_fraction > 0 && low > 0)
            break;
    }
    for (size_t i = 0; i < n; i++)
        if (fabs(error[i]) >= 0.999 * largest && (last == 0 || signbit(error[i]) != signbit(last))) {
            last = error[i];
            n_alternating++;
        }
    free(error);
    return (struct errors){largest, n_alternating};
}

static double *design(const struct design_ddc *d)
{
    double *taps = malloc(d->n_taps * sizeof(*taps));

    ck_assert_ptr_nonnull(taps);
    for (size_t i = 0; i < d->n_taps; i++)
        taps[i] = NAN;
    ck_assert_int_eq(design_ddc_double(d, taps), 0);
    for (size_t i = 0; i < d->n_taps; i++)
        ck_assert(taps[i] == taps[d->n_taps - 1 - i]);
    return taps;
}

/* The alternation theorem: of all filters the best is the one whose error alternates at as many frequencies as there are
 * coefficients, and one more. */
TEST(is_the_best)
{
    for (int trial = 0; trial < 20; trial++) {
        struct design_ddc d = {.subsampling = 2 + (unsigned)random_below(15),
                               .weight_pass = pow(10, random_between(-3, 1)),
                               .pass_fraction = random_below(2) ? random_between(0.3, 0.8) : 0};
        d.n_taps = 10 + random_below(8 * d.subsampling + 1);
        double *taps = design(&d);
        struct errors errors = find_errors(&d, taps);
        if (errors.n_alternating < (d.n_taps + 1) / 2 + 1)
            ck_abort_msg("subsampling %u taps %zu weight %.17g pass %.17g: %zu alternate", d.subsampling, d.n_taps,
                         d.weight_pass, d.pass_fraction, errors.n_alternating);
        free(taps);
    }
}

static double db(double ratio)
{
    return 20 * log10(ratio);
}

/* What astronomers get by default, after rounding to float: ripple within the pass band, and how much less is what
 * aliases into it. */
TEST(ripple_and_rejection, .end = 8)
{
    static const struct {
        unsigned decimation;
        double pass_fraction, ripple_db, rejection_db;
    } rows[] = {
        {4, 0, 6e-5, -140},   {8, 0, 6e-5, -140},
        {10, 0, 6e-5, -140},  {16, 0, 6e-5, -140},
        {64, 0, 6e-5, -140},  {8, 64 / 107.0, 0.0015, -126},
        {5, 0.5, 2e-4, -138}, {16, 64 / 107.0, 0.0015, -126},
    };
    struct design_ddc d = usual(rows[_i].decimation, rows[_i].pass_fraction);
    float *rounded = malloc(d.n_taps * sizeof(*rounded));
    double *taps = malloc(d.n_taps * sizeof(*taps)), least = INFINITY, most = 0, aliased = 0;

    ck_assert(rounded && taps);
    ck_assert_int_eq(design_ddc(&d, rounded), 0);
    for (size_t i = 0; i < d.n_taps; i++)
        taps[i] = rounded[i];
    for (size_t i = 0; i <= 32 * d.n_taps; i++) {
        double f = 0.5 * (double)i / (32.0 * (double)d.n_taps), desired, weight;
        if (!in_band(&d, f * d.subsampling, &desired, &weight))
            continue;
        double size = fabs(response(taps, d.n_taps, f)) / sqrt(d.subsampling);
        if (desired > 0) {
            least = fmin(least, size);
            most = fmax(most, size);
        } else {
            aliased = fmax(aliased, size);
        }
    }
    printf("decimation %u, pass fraction %.3f: ripple %.2g dB, aliases %.1f dB\n", rows[_i].decimation,
           rows[_i].pass_fraction, db(most / least), db(aliased));
    ck_assert_double_lt(db(most / least), rows[_i].ripple_db);
    ck_assert_double_lt(db(aliased), rows[_i].rejection_db);
    free(taps);
    free(rounded);
}

/* More taps than double precision can make use of: an error, and no taps. */
TEST(does_not_converge)
{
    struct design_ddc d = {.subsampling = 4, .n_taps = 4096, .weight_pass = 1, .pass_fraction = 0.2};
    static float taps[4096];

    for (size_t i = 0; i < d.n_taps; i++)
        taps[i] = 123;
    ck_assert_int_eq(design_ddc(&d, taps), -EDOM);
    for (size_t i = 0; i < d.n_taps; i++)
        ck_assert(taps[i] == 123);
}

/* The smallest that is allowed, and a band up to 1/2 with taps odd and even. */
TEST(small)
{
    static const struct remez_band bands[] = {{0, 0.1, 1, 1}, {0.3, 0.5, 0, 1}};
    double taps[8];

    for (size_t n_taps = 4; n_taps <= 8; n_taps++) {
        ck_assert_int_eq(remez(n_taps, bands, 2, taps), 0);
        ck_assert_double_lt(fabs(response(taps, n_taps, 0) - 1), 0.3);
        ck_assert_double_lt(fabs(response(taps, n_taps, 0.5)), 0.3);
    }
}

static int print_design(int n_arguments, char **argument)
{
    if (n_arguments != 6 || strcmp(argument[1], "--design") != 0)
        return EXIT_FAILURE;
    argument += 2;

    struct design_ddc d = {.subsampling = (unsigned)strtoul(argument[0], NULL, 10),
                           .n_taps = strtoul(argument[1], NULL, 10),
                           .weight_pass = strtod(argument[2], NULL),
                           .pass_fraction = strtod(argument[3], NULL)};
    double *taps = malloc(d.n_taps * sizeof(*taps));
    int err = taps ? design_ddc_double(&d, taps) : -ENOMEM;

    for (size_t i = 0; i < d.n_taps && !err; i++)
        printf("%.17g\n", taps[i]);
    free(taps);
    return err ? EXIT_FAILURE : EXIT_SUCCESS;
}

SUITE(.timeout_s = 120, .start = random_start, .command = print_design);
