/* check_reduce - dumps of both variants against the definition, with and without totals.  Sums lie on both sides of the
 * limits.  The test also checks sums that are added to totals. */
#include "kernels/correlate/reduce.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define MIN_WEIGHT  1000
#define N_SATURATED 12345
#define GUARD       16
#define POISON      0xa5

enum what { DUMP_SUMS, DUMP_TOTALS, ADD_TO_TOTALS, N_WHAT };
static const char *const names[] = {"a dump of sums", "a dump of totals", "sums to totals"};

/* What a launch works on, in host memory, and the same before it: 'n' parts and a guard. */
struct bed {
    enum what what;
    bool real;
    uint32_t n_baselines, n_chan;
    size_t n;
    union {
        int32_t *integer;
        float *real;
    } sums, sums_before;
    union {
        int64_t *integer;
        double *real;
    } totals, totals_before;
    uint32_t *weights;
    uint8_t *out;
    uint64_t n_saturated[2];
};

/* ---- What is there before ---------------------------------------------------------------------------------------- */

static int32_t random_sum(void)
{
    static const int32_t corners[] = {0, -1, INT32_MAX, INT32_MAX - 1, INT32_MIN, -INT32_MAX};

    return random_below(4) == 0 ? corners[random_below(ARRAY_LEN(corners))] : (int32_t)random_u64();
}

/* Often so that the limits are near, or just crossed, once 'sum' is added. */
static int64_t random_total(int32_t sum)
{
    static const int64_t corners[] = {0,         -1,         INT32_MAX, INT32_MAX - 1, INT32_MAX + INT64_C(1),
                                      INT32_MIN, -INT32_MAX, 1LL << 47, -(1LL << 47),  INT32_MIN - INT64_C(1)};

    switch (random_below(6)) {
    case 0: return corners[random_below(ARRAY_LEN(corners))];
    case 1: return corners[random_below(ARRAY_LEN(corners))] - sum;
    case 2: return (int64_t)random_u64() >> 16;
    default: return (int64_t)random_u64() >> 33;
    }
}

static void *poisoned(size_t bytes)
{
    void *memory = malloc(bytes);

    ck_assert_ptr_nonnull(memory);
    memset(memory, POISON, bytes);
    return memory;
}

static void make_bed(struct bed *b, enum what what, bool real, uint32_t n_baselines, uint32_t n_chan)
{
    *b = (struct bed){.what = what, .real = real, .n_baselines = n_baselines, .n_chan = n_chan};
    b->n = (size_t)n_baselines * n_chan * N_POL_PRODUCTS * 2;
    b->n_saturated[0] = N_SATURATED;
    b->n_saturated[1] = N_SATURATED + 1;
    b->sums.integer = poisoned((b->n + GUARD) * 4);
    b->sums_before.integer = poisoned((b->n + GUARD) * 4);
    b->totals.integer = poisoned((b->n + GUARD) * 8);
    b->totals_before.integer = poisoned((b->n + GUARD) * 8);
    b->out = poisoned((b->n + GUARD) * 4);
    b->weights = poisoned(n_baselines * sizeof(*b->weights));
    for (size_t i = 0; i < b->n; i++)
        if (real) { /* also beyond int32 */
            b->sums.real[i] = (float)ldexp(random_between(-1, 1), (int)random_below(40));
            b->totals.real[i] = ldexp(random_between(-1, 1), (int)random_below(70));
        } else {
            b->sums.integer[i] = random_sum();
            b->totals.integer[i] = random_total(b->sums.integer[i]);
        }
    for (size_t i = 0; i < n_baselines; i++)
        b->weights[i] = MIN_WEIGHT - 1 + (uint32_t)random_below(3);
    memcpy(b->sums_before.integer, b->sums.integer, (b->n + GUARD) * 4);
    memcpy(b->totals_before.integer, b->totals.integer, (b->n + GUARD) * 8);
}

static void free_bed(struct bed *b)
{
    free(b->sums.integer);
    free(b->sums_before.integer);
    free(b->totals.integer);
    free(b->totals_before.integer);
    free(b->out);
    free(b->weights);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* On the device, or NULL, the C version. */
static void run(struct test_device *d, struct bed *b, int n_threads)
{
    struct reduce_args args = {.sums = {b->sums.integer},
                               .totals = {b->what == DUMP_SUMS ? NULL : b->totals.integer},
                               .weights = b->what == ADD_TO_TOTALS ? NULL : b->weights,
                               .out = {b->what == ADD_TO_TOTALS ? NULL : (int32_t *)(void *)b->out},
                               .n_saturated = b->what == ADD_TO_TOTALS ? NULL : b->n_saturated,
                               .format = b->real ? VOLTAGES_16_BITS : VOLTAGES_4_BITS,
                               .min_weight = MIN_WEIGHT,
                               .n_baselines = b->n_baselines,
                               .n_chan = b->n_chan};
    struct kernel_constant constants[REDUCE_N_CONSTANTS];
    size_t bytes = (b->n + GUARD) * 4;

    if (!d) {
        reduce_kernel.cpu(&args, n_threads);
        return;
    }
    void *out = test_copy_in(d, b->out, bytes), *totals = test_copy_in(d, b->totals.integer, 2 * bytes);
    void *n_saturated = test_copy_in(d, b->n_saturated, sizeof(b->n_saturated));
    args.sums.integer = test_copy_in(d, b->sums.integer, bytes);
    args.totals.integer = args.totals.integer ? totals : NULL;
    args.weights = test_copy_in(d, args.weights, b->n_baselines * 4);
    args.out.integer = args.out.integer ? out : NULL;
    args.n_saturated = args.n_saturated ? n_saturated : NULL;
    reduce_constants(&args, constants);
    test_kernel(d, &reduce_kernel, constants, REDUCE_N_CONSTANTS);
    test_launch(d, reduce_grid(&args), &args);
    test_download(d, b->sums.integer, args.sums.integer, bytes);
    test_download(d, b->totals.integer, totals, 2 * bytes);
    test_download(d, b->out, out, bytes);
    test_download(d, b->n_saturated, n_saturated, sizeof(b->n_saturated));
}

/* ---- What must be there after ------------------------------------------------------------------------------------ */

static int32_t clip_model(int64_t sum)
{
    if (sum > 2147483647)
        return 2147483647;
    if (sum < -2147483647)
        return -2147483647;
    return (int32_t)sum;
}

/* Compares one visibility, of parts i and i + 1; returns whether it saturated. */
static int compare_integers(const struct bed *b, size_t i, bool missing)
{
    const int32_t *out = (const int32_t *)(const void *)b->out + i;
    int64_t sum[2];

    for (size_t part = 0; part < 2; part++)
        sum[part] = b->sums_before.integer[i + part] + (b->what == DUMP_SUMS ? 0 : b->totals_before.integer[i + part]);
    ck_assert_int_eq(out[0], missing ? INT32_MIN : clip_model(sum[0]));
    ck_assert_int_eq(out[1], missing ? 1 : clip_model(sum[1]));
    return !missing && (clip_model(sum[0]) != sum[0] || clip_model(sum[1]) != sum[1]);
}

/* Of half floats: not a number where it is missing, and nothing counts. */
static void compare_reals(const struct bed *b, size_t i, bool missing)
{
    for (size_t part = i; part < i + 2; part++) {
        double sum = (double)b->sums_before.real[part] + (b->what == DUMP_SUMS ? 0 : b->totals_before.real[part]);
        float out;
        memcpy(&out, b->out + 4 * part, sizeof(out));
        if (missing ? !isnan(out) : fabs(out - sum) > 0x1p-24 * fabs(sum))
            ck_abort_msg("part %zu is %g instead of %g", part, (double)out, missing ? NAN : sum);
    }
}

static void check_dump(const struct bed *b)
{
    uint64_t n_saturated = 0;

    for (size_t i = 0; i < b->n; i += 2) {
        bool missing = b->weights[i / (N_POL_PRODUCTS * 2) % b->n_baselines] < MIN_WEIGHT;
        if (b->real)
            compare_reals(b, i, missing);
        else
            n_saturated += (uint64_t)compare_integers(b, i, missing);
    }
    ck_assert_uint_eq(b->n_saturated[0], N_SATURATED + n_saturated);
}

static void check_totals(const struct bed *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->real ? b->totals.real[i] != b->totals_before.real[i] + (double)b->sums_before.real[i]
                    : b->totals.integer[i] != b->totals_before.integer[i] + b->sums_before.integer[i])
            ck_abort_msg("total %zu is wrong", i);
    }
    ck_assert_uint_eq(b->n_saturated[0], N_SATURATED);
}

/* Whether 'bytes' from 'memory' on are the same. */
static bool is_all(const void *memory, uint8_t byte, size_t bytes)
{
    const uint8_t *at = memory;

    for (size_t i = 0; i < bytes; i++)
        if (at[i] != byte)
            return false;
    return true;
}

static void run_and_compare(struct test_device *d, enum what what, bool real, uint32_t n_baselines, uint32_t n_chan,
                            int n_threads)
{
    struct bed b;

    make_bed(&b, what, real, n_baselines, n_chan);
    run(d, &b, n_threads);
    if (what == ADD_TO_TOTALS)
        check_totals(&b);
    else
        check_dump(&b);
    size_t n_out = what == ADD_TO_TOTALS ? 0 : b.n;
    bool ok = is_all(b.sums.integer, 0, b.n * 4) && is_all(b.sums.integer + b.n, POISON, GUARD * 4) &&
              is_all(b.totals.integer + b.n, POISON, GUARD * 8) &&
              is_all(b.out + n_out * 4, POISON, (b.n - n_out + GUARD) * 4) && b.n_saturated[1] == N_SATURATED + 1;
    if (what == DUMP_TOTALS)
        ok = ok && is_all(b.totals.integer, 0, b.n * 8);
    if (what == DUMP_SUMS)
        ok = ok && memcmp(b.totals.integer, b.totals_before.integer, b.n * 8) == 0;
    if (!ok)
        ck_abort_msg("%s of %s, %u baselines, %u channels: something was not zeroed, or written that is none of its",
                     names[what], real ? "floats" : "integers", n_baselines, n_chan);
    free_bed(&b);
}

static void run_random(struct test_device *d, size_t max_baselines)
{
    uint32_t n_baselines = 1 + (uint32_t)random_below(max_baselines), n_chan = 1 + (uint32_t)random_below(17);

    for (int what = 0; what < N_WHAT; what++)
        for (int real = 0; real < 2; real++)
            run_and_compare(d, (enum what)what, real, n_baselines, n_chan, 1 + (int)random_below(3));
}

TEST(random_dumps)
{
    for (int trial = 0; trial < 30; trial++)
        run_random(NULL, 40);
}

TEST_ON_DEVICE(cuda_random_dumps)
{
    for (int trial = 0; trial < 30; trial++)
        run_random(d, trial % 3 ? 40 : 400);
}

SUITE(.timeout_s = 60, .start = random_start);
