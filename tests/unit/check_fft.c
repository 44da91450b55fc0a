/* check_fft - transforms of every size against the definition in double, whatever the number of threads. */
#include "kernels/fft.h"

#include "common/units.h"
#include "tests/unit/test_random.h"

#include <check.h>
#include <complex.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#define GUARD        16
#define MAX_ALL_BINS 1024 /* of longer transforms a few bins are computed, for every one takes n^2 */

static double complex dft_bin(size_t n, const float *in, const double complex *turns, size_t bin)
{
    double complex sum = 0;

    for (size_t j = 0; j < n; j++)
        sum += (in[2 * j] + I * in[2 * j + 1]) * turns[j * bin % n];
    return sum;
}

/* The error of one transform, relative to the level of its bins: rms, and of the worst bin. */
static void compare(size_t n, const float *in, const float *out, const double complex *turns, double *rms,
                    double *worst)
{
    size_t n_bins = n <= MAX_ALL_BINS ? n : 20;
    double level = sqrt(2.0 / 3 * (double)n); /* of white noise, uniform in [-1, 1) */

    *rms = *worst = 0;
    for (size_t k = 0; k < n_bins; k++) {
        size_t bin = n_bins == n ? k : random_below(n);
        double error = cabs(out[2 * bin] + I * out[2 * bin + 1] - dft_bin(n, in, turns, bin)) / level;
        ck_assert_msg(!isnan(error), "n %zu bin %zu is not a number", n, bin);
        *rms += error * error / (double)n_bins;
        *worst = fmax(*worst, error);
    }
    *rms = sqrt(*rms);
}

static void run(size_t n, size_t batch, int n_threads, const float *in, float *out)
{
    struct fft *fft;

    ck_assert_int_eq(fft_create(n, n_threads, &fft), 0);
    memset(out, 0xff, (2 * n * batch + GUARD) * sizeof(*out)); /* not a number */
    fft_run(fft, batch, in, out);
    for (size_t i = 2 * n * batch; i < 2 * n * batch + GUARD; i++)
        ck_assert(isnan(out[i]));
    fft_destroy(fft);
    fft_destroy(NULL);
}

START_TEST(is_the_definition)
{
    size_t n = (size_t)1 << _i, batch = 3;
    float *in = malloc(2 * n * batch * sizeof(*in));
    float *out = malloc((2 * n * batch + GUARD) * sizeof(*out));
    double complex *turns = malloc(n * sizeof(*turns));

    for (size_t i = 0; i < 2 * n * batch; i++)
        in[i] = (float)random_between(-1, 1);
    for (size_t i = 0; i < n; i++)
        turns[i] = cexp(-2 * M_PI * I * (double)i / (double)n);
    run(n, batch, 1, in, out);
    for (size_t b = 0; b < batch; b++) {
        double rms, worst;
        compare(n, in + 2 * b * n, out + 2 * b * n, turns, &rms, &worst);
        if (!(rms < 4e-7 && worst < 2e-6))
            ck_abort_msg("n %zu: the error is %g rms, %g at the worst", n, rms, worst);
    }
    free(turns);
    free(out);
    free(in);
}
END_TEST

START_TEST(threads_change_no_bits)
{
    size_t n = 4096; /* long enough that threads which shared their scratch would meet */

    for (size_t batch = 0; batch < 9; batch++) {
        size_t bytes = (2 * n * batch + GUARD) * sizeof(float);
        float *in = malloc(bytes), *one = malloc(bytes), *many = malloc(bytes);

        for (size_t i = 0; i < 2 * n * batch; i++)
            in[i] = (float)random_between(-1, 1);
        run(n, batch, 1, in, one);
        for (int n_threads = 2; n_threads < 6; n_threads++) {
            run(n, batch, n_threads, in, many);
            ck_assert_mem_eq(one, many, bytes);
        }
        free(many);
        free(one);
        free(in);
    }
}
END_TEST

START_TEST(aborts_when_not_a_power_of_two)
{
    struct fft *fft;

    fft_create(96, 1, &fft);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fft");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, is_the_definition, 0, 17);
    tcase_add_test(tcase, threads_change_no_bits);
    tcase_add_test_raise_signal(tcase, aborts_when_not_a_power_of_two, SIGABRT);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
