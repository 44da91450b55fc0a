/* check_correlate - sums of products against arithmetic straight from the definition, in 64-bit integers, or in double
 * where the voltages are half floats. */
#include "kernels/correlate.h"

#include "common/units.h"
#include "tests/unit/test_random.h"

#include <check.h>
#include <math.h>
#include <string.h>

#define GUARD 16

static const enum voltage_format formats[] = {VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET, VOLTAGES_8_BITS,
                                              VOLTAGES_16_BITS};
static const char *const format_names[] = {"4 bits", "4 bits offset", "8 bits", "16 bits"};

/* ---- The model --------------------------------------------------------------------------------------------------- */

static double model_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

    return bits & 0x8000 ? -magnitude : magnitude;
}

/* Part 0 (real) or 1 of complex sample 'index'. */
static double model_part(const struct correlate_args *a, size_t index, int part)
{
    const uint8_t *bytes = a->voltages;
    int nibble = bytes[index] >> (part ? 0 : 4) & 15; /* read anyway: the other formats have more bytes */

    switch (a->format) {
    case VOLTAGES_4_BITS: return nibble >= 8 ? nibble - 16 : nibble;
    case VOLTAGES_4_BITS_OFFSET: return nibble - 8;
    case VOLTAGES_8_BITS: return ((const int8_t *)bytes)[2 * index + (size_t)part];
    default: return model_half(((const uint16_t *)(const void *)bytes)[2 * index + (size_t)part]);
    }
}

/* The sum of a part, and of the magnitudes of what is summed; integers of full scale stay below 2^53. */
struct model_sum {
    double sum[2], magnitude[2];
};

/* One product of one baseline and channel: a1 <= a2. */
static struct model_sum model(const struct correlate_args *a, size_t a1, size_t p1, size_t a2, size_t p2, size_t chan)
{
    struct model_sum m = {{0}, {0}};

    for (size_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
        for (size_t s = 0; s < a->n_spectra; s++) {
            size_t e1 = (((batch * a->n_ants + a1) * a->n_chan + chan) * a->n_spectra + s) * 2 + p1;
            size_t e2 = (((batch * a->n_ants + a2) * a->n_chan + chan) * a->n_spectra + s) * 2 + p2;
            double r1 = model_part(a, e1, 0), i1 = model_part(a, e1, 1);
            double r2 = model_part(a, e2, 0), i2 = model_part(a, e2, 1);
            m.sum[0] += r1 * r2 + i1 * i2;
            m.sum[1] += i1 * r2 - r1 * i2;
            m.magnitude[0] += fabs(r1 * r2) + fabs(i1 * i2);
            m.magnitude[1] += fabs(i1 * r2) + fabs(r1 * i2);
        }
    return m;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static size_t voltages_bytes(const struct correlate_args *a, size_t n_batches)
{
    return n_batches * a->n_ants * a->n_chan * a->n_spectra * N_POLS * voltage_bytes(a->format);
}

union sum {
    int64_t integer;
    double real;
};

static union sum random_sum(enum voltage_format format)
{
    if (correlate_sums_real(format))
        return (union sum){.real = random_between(-1, 1)};
    return (union sum){.integer = (int64_t)random_u64() >> 8};
}

static bool is_right(enum voltage_format format, union sum before, const struct model_sum *m, int part, union sum after)
{
    if (correlate_sums_real(format))
        return fabs(after.real - before.real - m->sum[part]) <= 1e-12 * (m->magnitude[part] + fabs(before.real));
    return after.integer == before.integer + (int64_t)m->sum[part];
}

/* The sums are added to what is there; every product of every baseline is compared. */
static void run_and_compare(struct correlate_args *a, int n_threads)
{
    size_t n_baselines = (size_t)a->n_ants * (a->n_ants + 1) / 2;
    size_t n = n_baselines * a->n_chan * N_POL_PRODUCTS * 2;
    union sum *sums = malloc((n + GUARD) * sizeof(*sums)), *before = malloc((n + GUARD) * sizeof(*sums));

    ck_assert(sums && before);
    for (size_t i = 0; i < n + GUARD; i++)
        before[i] = sums[i] = random_sum(a->format);
    a->sums.integer = &sums->integer;
    correlate_kernel.cpu(a, n_threads);
    for (size_t chan = 0; chan < a->n_chan; chan++)
        for (size_t a2 = 0, baseline = 0; a2 < a->n_ants; a2++)
            for (size_t a1 = 0; a1 <= a2; a1++, baseline++)
                for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
                    size_t at = ((chan * n_baselines + baseline) * N_POL_PRODUCTS + product) * 2;
                    struct model_sum m = model(a, a1, product % 2, a2, product / 2, chan);
                    for (int part = 0; part < 2; part++)
                        if (!is_right(a->format, before[at + (size_t)part], &m, part, sums[at + (size_t)part]))
                            ck_abort_msg("%s ants %u chans %u spectra %u: ants %zu, %zu product %zu chan %zu is wrong",
                                         format_names[a->format], a->n_ants, a->n_chan, a->n_spectra, a1, a2, product,
                                         chan);
                }
    ck_assert_mem_eq(sums + n, before + n, GUARD * sizeof(*sums));
    free(before);
    free(sums);
}

/* Any bits are a voltage, but for half floats that are infinite or not a number. */
static void random_voltages(enum voltage_format format, void *voltages, size_t bytes)
{
    uint16_t *halves = voltages;

    random_bytes(voltages, bytes);
    for (size_t i = 0; format == VOLTAGES_16_BITS && i < bytes / 2; i++)
        if ((halves[i] & 0x7C00) == 0x7C00)
            halves[i] ^= 0x4000;
}

static void run_random(struct correlate_args *a, size_t n_batches, int n_threads)
{
    size_t bytes = voltages_bytes(a, n_batches);
    void *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    random_voltages(a->format, voltages, bytes);
    a->voltages = voltages;
    run_and_compare(a, n_threads);
    free(voltages);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

START_TEST(array_sizes)
{
    static const uint32_t n_ants[] = {1, 2, 3, 4, 7, 8, 9, 16, 33};

    for (size_t i = 0; i < ARRAY_LEN(n_ants); i++) {
        struct correlate_args args = {
            .format = formats[_i], .n_ants = n_ants[i], .n_chan = 3, .n_spectra = 48, .n_batches = 1};
        run_random(&args, 1, 1 + (int)(i % 3));
    }
}
END_TEST

START_TEST(random_shapes)
{
    for (int trial = 0; trial < 60; trial++) {
        uint32_t n_batches = 1 + (uint32_t)random_below(5), first = (uint32_t)random_below(n_batches);
        struct correlate_args args = {
            .format = formats[random_below(ARRAY_LEN(formats))],
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
    struct correlate_args args = {.format = VOLTAGES_8_BITS,
                                  .n_ants = 2,
                                  .n_chan = 1,
                                  .n_spectra = sizes[_i % 2].n_spectra,
                                  .n_batches = sizes[_i % 2].n_batches};
    size_t bytes = voltages_bytes(&args, args.n_batches);
    int8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes; i += 4)
        memcpy(voltages + i, values[_i / 2], 4);
    args.voltages = voltages;
    run_and_compare(&args, 1);
    free(voltages);
}
END_TEST

/* Only the two ends of the range: -128 or 127, -8 or 7. */
START_TEST(ends_of_the_range)
{
    static const uint8_t ends[][2] = {{0x88, 0x77}, {0x00, 0xFF}, {0x80, 0x7F}}; /* by format */
    struct correlate_args args = {.n_ants = 9, .n_chan = 2, .n_spectra = 200, .n_batches = 1, .format = formats[_i]};
    size_t bytes = voltages_bytes(&args, 1);
    uint8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t high = ends[_i][random_below(2)], low = ends[_i][random_below(2)];
        voltages[i] = args.format == VOLTAGES_8_BITS ? high : (uint8_t)((high & 0xF0) | (low & 0x0F));
    }
    args.voltages = voltages;
    run_and_compare(&args, 2);
    free(voltages);
}
END_TEST

/* The byte of a buffer of zeros adds nothing. */
START_TEST(zeros_are_zero)
{
    struct correlate_args args = {.n_ants = 3, .n_chan = 1, .n_spectra = 32, .n_batches = 1, .format = formats[_i]};
    size_t bytes = voltages_bytes(&args, 1);
    union sum sums[6 * N_POL_PRODUCTS * 2];
    uint8_t *voltages = malloc(bytes);

    ck_assert_ptr_nonnull(voltages);
    memset(voltages, voltage_zero(args.format), bytes);
    memset(sums, 0, sizeof(sums));
    args.voltages = voltages;
    args.sums.integer = &sums->integer;
    correlate_kernel.cpu(&args, 1);
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        ck_assert_int_eq(sums[i].integer, 0); /* as a double too: both parts of a double 0 */
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
    tcase_add_loop_test(tcase, array_sizes, 0, ARRAY_LEN(formats));
    tcase_add_test(tcase, random_shapes);
    tcase_add_loop_test(tcase, full_scale, 0, 8);
    tcase_add_loop_test(tcase, ends_of_the_range, 0, 3);
    tcase_add_loop_test(tcase, zeros_are_zero, 0, ARRAY_LEN(formats));
    tcase_add_test(tcase, baseline_order);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
