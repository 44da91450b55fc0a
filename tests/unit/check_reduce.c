/* check_reduce - dumps of both variants against the definition, with sums on both sides of the limits. */
#include "kernels/reduce.h"

#include "common/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"

#include <check.h>
#include <math.h>
#include <string.h>

#define MIN_WEIGHT 1000
#define GUARD      16

static int64_t random_sum(void)
{
    static const int64_t corners[] = {0,         -1,         INT32_MAX, INT32_MAX - 1, INT32_MAX + INT64_C(1),
                                      INT32_MIN, -INT32_MAX, INT64_MAX, INT64_MIN,     INT32_MIN - INT64_C(1)};

    switch (random_below(8)) {
    case 0: return corners[random_below(ARRAY_LEN(corners))];
    case 1: return (int64_t)random_u64();
    default: return (int64_t)random_u64() >> 33;
    }
}

static int32_t clip_model(int64_t sum)
{
    if (sum > 2147483647)
        return 2147483647;
    if (sum < -2147483647)
        return -2147483647;
    return (int32_t)sum;
}

/* Compares one visibility; returns whether it saturated. */
static int compare(const int64_t *sum, uint32_t weight, const int32_t *out)
{
    int32_t re = clip_model(sum[0]), im = clip_model(sum[1]);

    if (weight < MIN_WEIGHT) {
        ck_assert_int_eq(out[0], INT32_MIN);
        ck_assert_int_eq(out[1], 1);
        return 0;
    }
    ck_assert_int_eq(out[0], re);
    ck_assert_int_eq(out[1], im);
    return re != sum[0] || im != sum[1];
}

/* Runs 'args', all host memory, of n + GUARD sums and outputs: on the device, or NULL, the twin. */
static void run(const struct test_device *d, const struct reduce_args *args, size_t n, int n_threads)
{
    struct kernel_constant constants[REDUCE_N_CONSTANTS];
    struct kernel_grid grid = reduce_grid(args);
    struct reduce_args there = *args;
    struct device_kernel *kernel;
    size_t sums = (n + GUARD) * sizeof(int64_t), out = (n + GUARD) * sizeof(int32_t);

    if (!d) {
        reduce_kernel.cpu(args, n_threads);
        return;
    }
    there.sums.integer = test_upload(d, args->sums.integer, sums, sums);
    there.out.integer = test_upload(d, args->out.integer, out, out);
    there.weights = test_upload(d, args->weights, args->n_baselines * 4, args->n_baselines * 4);
    there.n_saturated = test_upload(d, args->n_saturated, 8, 8);
    reduce_constants(args, constants);
    ck_assert_int_eq(device_kernel_create(d->device, &reduce_kernel, constants, REDUCE_N_CONSTANTS, &kernel), 0);
    device_launch(d->stream, kernel, &grid, &there);
    test_download(d, args->sums.integer, there.sums.integer, sums);
    test_download(d, args->out.integer, there.out.integer, out);
    test_download(d, args->n_saturated, there.n_saturated, 8);
    device_kernel_destroy(kernel);
    device_free(d->device, there.sums.integer);
    device_free(d->device, there.out.integer);
    device_free(d->device, (void *)there.weights);
    device_free(d->device, there.n_saturated);
}

static void run_and_compare(const struct test_device *d, uint32_t n_baselines, uint32_t n_chan, int n_threads)
{
    size_t n = (size_t)n_baselines * n_chan * N_POL_PRODUCTS * 2;
    int64_t *sums = malloc((n + GUARD) * sizeof(*sums)), *before = malloc((n + GUARD) * sizeof(*sums));
    int32_t *out = malloc((n + GUARD) * sizeof(*out));
    uint32_t *weights = malloc(n_baselines * sizeof(*weights));
    uint64_t n_saturated[2] = {12345, 67890}, expected = 0;
    struct reduce_args args = {{sums}, weights, {out}, n_saturated, VOLTAGES_4_BITS, MIN_WEIGHT, n_baselines, n_chan};

    ck_assert(sums && before && out && weights);
    for (size_t i = 0; i < n + GUARD; i++)
        sums[i] = random_sum();
    memcpy(before, sums, (n + GUARD) * sizeof(*sums));
    memset(out, 0xa5, (n + GUARD) * sizeof(*out));
    for (size_t i = 0; i < n_baselines; i++)
        weights[i] = MIN_WEIGHT - 1 + (uint32_t)random_below(3);
    run(d, &args, n, n_threads);
    for (size_t i = 0; i < n; i += 2)
        expected += (uint64_t)compare(before + i, weights[i / (N_POL_PRODUCTS * 2) % n_baselines], out + i);
    ck_assert_uint_eq(n_saturated[0], 12345 + expected);
    ck_assert_uint_eq(n_saturated[1], 67890);
    for (size_t i = 0; i < n; i++)
        if (sums[i])
            ck_abort_msg("sum %zu was not zeroed", i);
    ck_assert_mem_eq(sums + n, before + n, GUARD * sizeof(*sums));
    for (size_t i = n; i < n + GUARD; i++)
        ck_assert_int_eq(out[i], (int32_t)0xa5a5a5a5);
    free(weights);
    free(out);
    free(before);
    free(sums);
}

/* Of half floats: double to float, not a number where it is missing, and nothing counts. */
static void run_and_compare_real(const struct test_device *d, uint32_t n_baselines, uint32_t n_chan, int n_threads)
{
    size_t n = (size_t)n_baselines * n_chan * N_POL_PRODUCTS * 2;
    double *sums = malloc((n + GUARD) * sizeof(*sums)), *before = malloc((n + GUARD) * sizeof(*sums));
    float *out = malloc((n + GUARD) * sizeof(*out));
    uint32_t *weights = malloc(n_baselines * sizeof(*weights)), poison;
    uint64_t n_saturated = 12345;
    struct reduce_args args = {.sums.real = sums,
                               .weights = weights,
                               .out.real = out,
                               .n_saturated = &n_saturated,
                               .format = VOLTAGES_16_BITS,
                               .min_weight = MIN_WEIGHT,
                               .n_baselines = n_baselines,
                               .n_chan = n_chan};

    ck_assert(sums && before && out && weights);
    for (size_t i = 0; i < n + GUARD; i++) /* also beyond int32 */
        before[i] = sums[i] = ldexp(random_between(-1, 1), (int)random_below(70));
    memset(out, 0xa5, (n + GUARD) * sizeof(*out));
    for (size_t i = 0; i < n_baselines; i++)
        weights[i] = MIN_WEIGHT - 1 + (uint32_t)random_below(3);
    run(d, &args, n, n_threads);
    ck_assert_uint_eq(n_saturated, 12345);
    for (size_t i = 0; i < n; i++) {
        bool missing = weights[i / (N_POL_PRODUCTS * 2) % n_baselines] < MIN_WEIGHT;
        if (missing ? !isnan(out[i]) : fabs(out[i] - before[i]) > 0x1p-24 * fabs(before[i]))
            ck_abort_msg("sum %zu is %g instead of %g", i, (double)out[i], missing ? NAN : before[i]);
        if (sums[i] != 0)
            ck_abort_msg("sum %zu was not zeroed", i);
    }
    ck_assert_mem_eq(sums + n, before + n, GUARD * sizeof(*sums));
    for (size_t i = n; i < n + GUARD; i++) {
        memcpy(&poison, &out[i], sizeof(poison));
        ck_assert_uint_eq(poison, 0xa5a5a5a5);
    }
    free(weights);
    free(out);
    free(before);
    free(sums);
}

static void run_random(const struct test_device *d, size_t max_baselines)
{
    uint32_t n_baselines = 1 + (uint32_t)random_below(max_baselines), n_chan = 1 + (uint32_t)random_below(17);

    run_and_compare(d, n_baselines, n_chan, 1 + (int)random_below(3));
    run_and_compare_real(d, n_baselines, n_chan, 1 + (int)random_below(3));
}

START_TEST(random_dumps)
{
    for (int trial = 0; trial < 30; trial++)
        run_random(NULL, 40);
}
END_TEST

START_TEST(cuda_random_dumps)
{
    struct test_device d;

    if (!test_device_open(&d))
        return;
    for (int trial = 0; trial < 30; trial++)
        run_random(&d, trial % 3 ? 40 : 400);
    test_device_close(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reduce");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, random_dumps);
    tcase_add_test(tcase, cuda_random_dumps);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
