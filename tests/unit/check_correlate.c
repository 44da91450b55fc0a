/* check_correlate - sums of products against 64-bit arithmetic straight from the definition. */
#include "kernels/correlate.h"

#include "common/units.h"
#include "tests/unit/test_random.h"

#include <check.h>
#include <string.h>

#define GUARD 16

/* One product of one baseline and channel: a1 <= a2. */
static void model(const struct correlate_args *a, size_t a1, size_t p1, size_t a2, size_t p2, size_t chan,
                  int64_t sum[2])
{
    for (size_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
        for (size_t s = 0; s < a->n_spectra; s++) {
            const int8_t *e1 =
                a->voltages + ((((batch * a->n_ants + a1) * a->n_chan + chan) * a->n_spectra + s) * 2 + p1) * 2;
            const int8_t *e2 =
                a->voltages + ((((batch * a->n_ants + a2) * a->n_chan + chan) * a->n_spectra + s) * 2 + p2) * 2;
            sum[0] += (int64_t)e1[0] * e2[0] + (int64_t)e1[1] * e2[1];
            sum[1] += (int64_t)e1[1] * e2[0] - (int64_t)e1[0] * e2[1];
        }
}

static size_t n_voltages(const struct correlate_args *a, size_t n_batches)
{
    return n_batches * a->n_ants * a->n_chan * a->n_spectra * N_POLS * 2;
}

/* The sums are added to what is there; every product of every baseline is compared. */
static void run_and_compare(struct correlate_args *a, int n_threads)
{
    size_t n_baselines = (size_t)a->n_ants * (a->n_ants + 1) / 2;
    size_t n = n_baselines * a->n_chan * N_POL_PRODUCTS * 2;
    int64_t *sums = malloc((n + GUARD) * sizeof(*sums)), *before = malloc((n + GUARD) * sizeof(*sums));

    ck_assert(sums && before);
    for (size_t i = 0; i < n + GUARD; i++)
        before[i] = sums[i] = (int64_t)random_u64() >> 8;
    a->sums = sums;
    correlate_kernel.cpu(a, n_threads);
    for (size_t chan = 0; chan < a->n_chan; chan++)
        for (size_t a2 = 0, baseline = 0; a2 < a->n_ants; a2++)
            for (size_t a1 = 0; a1 <= a2; a1++, baseline++)
                for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
                    size_t at = ((chan * n_baselines + baseline) * N_POL_PRODUCTS + product) * 2;
                    model(a, a1, product % 2, a2, product / 2, chan, before + at);
                    if (before[at] != sums[at] || before[at + 1] != sums[at + 1])
                        ck_abort_msg("ants %u chans %u spectra %u: ants %zu, %zu product %zu chan %zu is wrong",
                                     a->n_ants, a->n_chan, a->n_spectra, a1, a2, product, chan);
                }
    ck_assert_mem_eq(sums + n, before + n, GUARD * sizeof(*sums));
    free(before);
    free(sums);
}

static void run_random(struct correlate_args *a, size_t n_batches, int n_threads)
{
    int8_t *voltages = malloc(n_voltages(a, n_batches));

    ck_assert_ptr_nonnull(voltages);
    random_bytes(voltages, n_voltages(a, n_batches));
    a->voltages = voltages;
    run_and_compare(a, n_threads);
    free(voltages);
}

START_TEST(array_sizes)
{
    static const uint32_t n_ants[] = {1, 2, 3, 4, 7, 8, 9, 16, 33};

    for (size_t i = 0; i < ARRAY_LEN(n_ants); i++) {
        struct correlate_args args = {.n_ants = n_ants[i], .n_chan = 3, .n_spectra = 48, .n_batches = 1};
        run_random(&args, 1, 1 + (int)(i % 3));
    }
}
END_TEST

START_TEST(random_shapes)
{
    for (int trial = 0; trial < 60; trial++) {
        uint32_t n_batches = 1 + (uint32_t)random_below(5), first = (uint32_t)random_below(n_batches);
        struct correlate_args args = {
            .n_ants = 1 + (uint32_t)random_below(11),
            .n_chan = 1 + (uint32_t)random_below(5),
            .n_spectra = 1 + (uint32_t)random_below(300),
            .first_batch = first,
            .n_batches = (uint32_t)random_below(n_batches - first + 1), /* none too */
        };
        run_random(&args, n_batches, 1 + (int)random_below(3));
    }
}
END_TEST

/* The largest sums that there can be, of each sign and in both parts: at the largest number of spectra of a batch, and
 * of many batches that make as many together, and one more. */
START_TEST(full_scale)
{
    static const struct {
        uint32_t n_spectra, n_batches;
    } sizes[] = {{65535, 2}, {255, 258}};
    static const int8_t values[][4] = {
        {-128, -128, -128, -128}, /* autocorrelations 2^15 a spectrum */
        {-128, -128, -128, 127},  /* imaginary part near 2^15 */
        {127, 127, -128, -128},   /* real part near -2^15 */
        {127, -128, 127, 127},
    };
    struct correlate_args args = {
        .n_ants = 2, .n_chan = 1, .n_spectra = sizes[_i % 2].n_spectra, .n_batches = sizes[_i % 2].n_batches};
    size_t bytes = n_voltages(&args, args.n_batches);
    int8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes; i += 4)
        memcpy(voltages + i, values[_i / 2], 4);
    args.voltages = voltages;
    run_and_compare(&args, 1);
    free(voltages);
}
END_TEST

START_TEST(minus_128_is_exact)
{
    struct correlate_args args = {.n_ants = 9, .n_chan = 2, .n_spectra = 200, .n_batches = 1};
    int8_t *voltages = malloc(n_voltages(&args, 1));

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < n_voltages(&args, 1); i++)
        voltages[i] = random_below(2) ? -128 : 127;
    args.voltages = voltages;
    run_and_compare(&args, 2);
    free(voltages);
}
END_TEST

START_TEST(baseline_order)
{
    static const size_t pairs[][2] = {{0, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 2}};

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        ck_assert_uint_eq(correlate_baseline(pairs[i][0], pairs[i][1]), i);
    ck_assert_uint_eq(correlate_n_baselines(3), ARRAY_LEN(pairs));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("correlate");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, array_sizes);
    tcase_add_test(tcase, random_shapes);
    tcase_add_loop_test(tcase, full_scale, 0, 8);
    tcase_add_test(tcase, minus_128_is_exact);
    tcase_add_test(tcase, baseline_order);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
