/* check_checksum - rows of both variants against the definition, in 64-bit integers, or in double for voltages of half
 * floats.  The sums of correlate's products of the same voltages equal the rows, in every format.  One flipped bit
 * breaks the equality.  For half floats, an error larger than rounding breaks it. */
#include "kernels/correlate/checksum.h"

#include "common/base/units.h"
#include "kernels/correlate/checksum_dump.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define GUARD      16
#define MIN_WEIGHT 7

static const enum voltage_format formats[] = {VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET, VOLTAGES_8_BITS,
                                              VOLTAGES_16_BITS};

/* ---- Voltages ---------------------------------------------------------------------------------------------------- */

enum fill { FILL_RANDOM, FILL_LOWEST, FILL_HIGHEST, N_FILLS };

static size_t voltages_bytes(const struct checksum_args *a)
{
    return (size_t)(a->first_batch + a->n_batches) * a->n_ants * a->n_chan * a->n_spectra * N_POLS *
           voltage_bytes(a->format);
}

/* Every part the lowest, or the highest, that the format has; or any, of half floats of size 1. */
static void fill_voltages(enum voltage_format format, enum fill fill, void *voltages, size_t bytes)
{
    static const uint8_t extremes[][2] = {[VOLTAGES_4_BITS] = {0x88, 0x77},
                                          [VOLTAGES_4_BITS_OFFSET] = {0x00, 0xff},
                                          [VOLTAGES_8_BITS] = {0x80, 0x7f},
                                          [VOLTAGES_16_BITS] = {0xbc, 0x3c}};
    uint16_t *halves = voltages;

    if (fill != FILL_RANDOM)
        memset(voltages, extremes[format][fill == FILL_HIGHEST], bytes);
    else
        random_bytes(voltages, bytes);
    for (size_t i = 0; fill == FILL_RANDOM && format == VOLTAGES_16_BITS && i < bytes / 2; i++)
        halves[i] = (halves[i] & 0x83FF) | (uint16_t)((14 + random_below(3)) << 10);
}

/* ---- Rows from voltages ------------------------------------------------------------------------------------------ */

union row_part {
    int64_t integer;
    double real;
};

struct model_sum {
    double re, im, magnitude;
};

static size_t model_index(const struct checksum_args *a, size_t batch, size_t ant, size_t chan, size_t s, size_t pol)
{
    return (((batch * a->n_ants + ant) * a->n_chan + chan) * a->n_spectra + s) * N_POLS + pol;
}

/* S of a spectrum. */
static struct model_sum model_total(const struct checksum_args *a, size_t batch, size_t chan, size_t s)
{
    struct model_sum sum = {0, 0, 0};

    for (size_t ant = 0; ant < a->n_ants; ant++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            size_t at = model_index(a, batch, ant, chan, s, pol);
            double re = voltage_part(a->voltages, a->format, at, 0), im = voltage_part(a->voltages, a->format, at, 1);
            sum.re += re;
            sum.im += im;
            sum.magnitude += fabs(re) + fabs(im);
        }
    return sum;
}

/* Adds what a launch must add to the rows [ant][pol] of a channel; all below 2^53. */
static void model(const struct checksum_args *a, size_t chan, struct model_sum *rows)
{
    for (size_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
        for (size_t s = 0; s < a->n_spectra; s++) {
            struct model_sum sum = model_total(a, batch, chan, s);
            for (size_t ant = 0; ant < a->n_ants; ant++)
                for (size_t pol = 0; pol < N_POLS; pol++) {
                    size_t at = model_index(a, batch, ant, chan, s, pol);
                    double re = voltage_part(a->voltages, a->format, at, 0),
                           im = voltage_part(a->voltages, a->format, at, 1);
                    rows[ant * N_POLS + pol].re += re * sum.re + im * sum.im;
                    rows[ant * N_POLS + pol].im += im * sum.re - re * sum.im;
                    rows[ant * N_POLS + pol].magnitude += (fabs(re) + fabs(im)) * sum.magnitude;
                }
        }
}

/* Runs on the device, or NULL, the C version. */
static void run(struct test_device *d, struct checksum_args args, size_t n_rows, int n_threads)
{
    struct kernel_constant constants[CHECKSUM_N_CONSTANTS];
    size_t bytes = (n_rows * checksum_n_parts(args.format) + GUARD) * 8;
    void *host = args.rows.integer;

    if (!d) {
        checksum_kernel.cpu(&args, n_threads);
        return;
    }
    checksum_constants(&args, constants);
    test_kernel(d, &checksum_kernel, constants, CHECKSUM_N_CONSTANTS);
    args.voltages = test_copy_in(d, args.voltages, voltages_bytes(&args));
    args.rows.integer = test_copy_in(d, host, bytes);
    test_launch(d, checksum_grid(&args), &args);
    test_download(d, host, args.rows.integer, bytes);
}

/* Floats to within their rounding: of sums of 'n' values and of a thread's products. */
static bool is_right(const struct checksum_args *a, const union row_part *row, const union row_part *before,
                     const struct model_sum *m)
{
    double tolerance = 0x1p-24 * (2 * a->n_ants + CHECKSUM_STEP_SPECTRA) * m->magnitude;

    if (correlate_sums_real(a->format))
        return fabs(row[0].real - before[0].real - m->re) <= tolerance &&
               fabs(row[1].real - before[1].real - m->im) <= tolerance &&
               fabs(row[2].real - before[2].real - m->magnitude) <= tolerance;
    return row[0].integer == before[0].integer + (int64_t)m->re && row[1].integer == before[1].integer + (int64_t)m->im;
}

/* Rows are added to what is there; all are compared. */
static void run_and_compare(struct test_device *d, struct checksum_args args, enum fill fill, int n_threads)
{
    size_t n_rows = (size_t)args.n_chan * args.n_ants * N_POLS, n_parts = checksum_n_parts(args.format);
    size_t n = n_rows * n_parts + GUARD, bytes = voltages_bytes(&args);
    union row_part *rows = malloc(n * sizeof(*rows)), *before = malloc(n * sizeof(*rows));
    void *voltages = malloc(bytes);

    ck_assert(rows && before && voltages);
    fill_voltages(args.format, fill, voltages, bytes);
    for (size_t i = 0; i < n; i++)
        if (correlate_sums_real(args.format))
            before[i].real = random_between(-1, 1);
        else
            before[i].integer = (int64_t)random_u64() >> 16;
    memcpy(rows, before, n * sizeof(*rows));
    args.voltages = voltages;
    args.rows.integer = &rows->integer;
    run(d, args, n_rows, n_threads);
    for (size_t chan = 0; chan < args.n_chan; chan++) {
        struct model_sum *m = calloc((size_t)args.n_ants * N_POLS, sizeof(*m));
        model(&args, chan, m);
        for (size_t i = 0; i < args.n_ants * N_POLS; i++) {
            size_t at = (chan * args.n_ants * N_POLS + i) * n_parts;
            if (!is_right(&args, rows + at, before + at, &m[i]))
                ck_abort_msg("format %d, fill %d, %u antennas, %u channels, %u spectra, %u batches from %u: row %zu of "
                             "channel %zu is wrong",
                             args.format, fill, args.n_ants, args.n_chan, args.n_spectra, args.n_batches,
                             args.first_batch, i, chan);
        }
        free(m);
    }
    ck_assert_mem_eq(rows + n - GUARD, before + n - GUARD, GUARD * sizeof(*rows));
    free(voltages);
    free(before);
    free(rows);
}

static struct checksum_args random_sizes(enum voltage_format format, size_t max_ants, size_t max_spectra)
{
    return (struct checksum_args){.format = format,
                                  .n_ants = 1 + (uint32_t)random_below(max_ants),
                                  .n_chan = 1 + (uint32_t)random_below(3),
                                  .n_spectra = 16 * (1 + (uint32_t)random_below(max_spectra / 16)),
                                  .first_batch = (uint32_t)random_below(3),
                                  .n_batches = 1 + (uint32_t)random_below(4)};
}

TEST(rows_of_plain_c, .end = ARRAY_LEN(formats))
{
    for (int trial = 0; trial < 40; trial++)
        run_and_compare(NULL, random_sizes(formats[_i], trial % 4 ? 12 : 70, 320), FILL_RANDOM,
                        1 + (int)random_below(3));
    /* More inputs than 16 bits hold the sum of. */
    for (int fill = 0; fill < N_FILLS; fill++) {
        struct checksum_args args = random_sizes(formats[_i], 12, 160);
        args.n_ants = 126 + (uint32_t)random_below(5);
        args.n_chan = 1;
        run_and_compare(NULL, args, (enum fill)fill, 1);
    }
}

TEST_ON_DEVICE(rows_of_cuda, .end = ARRAY_LEN(formats))
{
    run_and_compare(d, random_sizes(formats[_i], 40, 320), FILL_RANDOM, 1);
    /* Two slices, and sums S of one term and of two. */
    struct checksum_args args = random_sizes(formats[_i], 1, 64);
    args.n_ants = 126 + (uint32_t)random_below(2);
    run_and_compare(d, args, FILL_HIGHEST, 1);
    args.n_ants = 128 + (uint32_t)random_below(40);
    run_and_compare(d, args, FILL_LOWEST, 1);
    /* So many channels that each block takes several steps. */
    args = (struct checksum_args){
        .format = formats[_i], .n_ants = 2, .n_chan = 600, .n_spectra = 16, .n_batches = 40, .first_batch = 1};
    run_and_compare(d, args, FILL_RANDOM, 1);
}

/* ---- Rows of dumps ----------------------------------------------------------------------------------------------- */

/* An accumulation: voltages, and what both ways make of it. */
struct bed {
    struct correlate_args correlate;
    struct checksum_args checksum;
    size_t n_baselines, n_parts, n_rows, row_bytes, voltages_bytes;
    uint8_t *voltages;
    uint32_t *sums;
    uint64_t *totals, *rows, *words, *out_words;
    uint32_t *weights, *out;
    uint64_t verdict[VERDICT_LENGTH], n_saturated;
    bool with_totals;
};

static void make_bed(struct bed *b, enum voltage_format format, uint32_t n_ants, uint32_t n_chan, bool with_totals)
{
    *b = (struct bed){.n_baselines = correlate_n_baselines(n_ants), .with_totals = with_totals};
    b->checksum =
        (struct checksum_args){.format = format, .n_ants = n_ants, .n_chan = n_chan, .n_spectra = 32, .n_batches = 2};
    b->voltages_bytes = voltages_bytes(&b->checksum);
    b->n_parts = b->n_baselines * n_chan * N_POL_PRODUCTS * 2;
    b->n_rows = (size_t)n_ants * n_chan * N_POLS;
    b->row_bytes = b->n_rows * checksum_n_parts(format) * sizeof(uint64_t);
    b->voltages = malloc(b->voltages_bytes);
    b->sums = calloc(b->n_parts, sizeof(*b->sums));
    b->totals = calloc(b->n_parts, sizeof(*b->totals));
    b->rows = calloc(1, b->row_bytes);
    b->words = calloc(2 * (size_t)n_chan, sizeof(*b->words));
    b->out_words = calloc(2 * (size_t)n_chan, sizeof(*b->words));
    b->weights = calloc(b->n_baselines, sizeof(*b->weights));
    b->out = calloc(b->n_parts, sizeof(*b->out));
    fill_voltages(format, FILL_RANDOM, b->voltages, b->voltages_bytes);
    b->checksum.voltages = b->voltages;
    b->checksum.rows.integer = (int64_t *)b->rows;
    b->correlate = (struct correlate_args){.voltages = b->voltages,
                                           .sums = {(int32_t *)b->sums},
                                           .format = format,
                                           .n_ants = n_ants,
                                           .n_chan = n_chan,
                                           .n_spectra = 32,
                                           .n_batches = 2};
    for (size_t i = 0; i < b->n_baselines; i++)
        b->weights[i] = MIN_WEIGHT - (random_below(4) == 0);
}

static void free_bed(struct bed *b)
{
    free(b->voltages);
    free(b->sums);
    free(b->totals);
    free(b->rows);
    free(b->words);
    free(b->out_words);
    free(b->weights);
    free(b->out);
}

static struct reduce_args reduce_args(const struct bed *b)
{
    return (struct reduce_args){.sums = {(int32_t *)b->sums},
                                .totals = {b->with_totals ? (int64_t *)b->totals : NULL},
                                .weights = b->weights,
                                .out = {(int32_t *)b->out},
                                .n_saturated = (uint64_t *)&b->n_saturated,
                                .format = b->correlate.format,
                                .min_weight = MIN_WEIGHT,
                                .n_baselines = (uint32_t)b->n_baselines,
                                .n_chan = b->correlate.n_chan};
}

/* Fills sums, totals and rows with what correlate and checksum make of the voltages, twice where there are totals. */
static void accumulate(struct bed *b)
{
    memset(b->sums, 0, b->n_parts * sizeof(*b->sums));
    memset(b->totals, 0, b->n_parts * sizeof(*b->totals));
    memset(b->rows, 0, b->row_bytes);
    for (int i = 0; i < 1 + b->with_totals; i++) {
        correlate_kernel.cpu(&b->correlate, 1);
        checksum_kernel.cpu(&b->checksum, 1);
        struct reduce_args to_totals = reduce_args(b);
        to_totals.out.integer = NULL;
        if (b->with_totals && i == 0)
            reduce_kernel.cpu(&to_totals, 1);
    }
}

/* Judges on the device, or NULL, by the C version. */
static void judge(struct test_device *d, struct bed *b)
{
    struct checksum_dump_args args = {.sums = {(int32_t *)b->sums},
                                      .totals = {b->with_totals ? (int64_t *)b->totals : NULL},
                                      .rows = {(int64_t *)b->rows},
                                      .weights = b->weights,
                                      .verdict = b->verdict,
                                      .words = b->words,
                                      .format = b->correlate.format,
                                      .min_weight = MIN_WEIGHT,
                                      .n_ants = b->correlate.n_ants,
                                      .n_chan = b->correlate.n_chan};
    struct kernel_constant constants[CHECKSUM_DUMP_N_CONSTANTS];
    size_t words_bytes = 2 * (size_t)args.n_chan * sizeof(*b->words);

    b->verdict[0] = 0;
    b->verdict[1] = UINT64_MAX;
    b->verdict[2] = 0;
    memset(b->words, 0, words_bytes);
    if (!d) {
        checksum_dump_kernel.cpu(&args, 1 + (int)random_below(3));
        return;
    }
    checksum_dump_constants(&args, constants);
    test_kernel(d, &checksum_dump_kernel, constants, CHECKSUM_DUMP_N_CONSTANTS);
    args.sums.integer = test_copy_in(d, b->sums, b->n_parts * 4);
    args.totals.integer = test_copy_in(d, args.totals.integer, b->n_parts * 8);
    args.rows.integer = test_copy_in(d, b->rows, b->row_bytes);
    args.weights = test_copy_in(d, b->weights, b->n_baselines * 4);
    args.verdict = test_copy_in(d, b->verdict, sizeof(b->verdict));
    args.words = test_copy_in(d, b->words, words_bytes);
    test_launch(d, checksum_dump_grid(&args), &args);
    test_download(d, b->rows, args.rows.integer, b->row_bytes);
    test_download(d, b->verdict, args.verdict, sizeof(b->verdict));
    test_download(d, b->words, args.words, words_bytes);
}

/* The host's model of the dump that reduce makes; clears sums and totals. */
static bool words_agree(struct bed *b)
{
    struct reduce_args dump = reduce_args(b);
    size_t n = b->n_baselines * N_POL_PRODUCTS * 2, n_chan = b->correlate.n_chan;

    reduce_kernel.cpu(&dump, 1);
    memset(b->out_words, 0, 2 * n_chan * sizeof(*b->out_words));
    for (size_t chan = 0; chan < n_chan; chan++)
        checksum_dump_words(b->out + chan * n, 0, n, correlate_sums_real(b->correlate.format), b->out_words + 2 * chan);
    return memcmp(b->words, b->out_words, 2 * n_chan * sizeof(*b->words)) == 0;
}

static bool rows_are_zero(const struct bed *b)
{
    for (size_t i = 0; i < b->row_bytes / sizeof(*b->rows); i++)
        if (b->rows[i])
            return false;
    return true;
}

/* For the rows of half floats. */
static float largest_magnitude(const struct bed *b)
{
    double largest = 0;

    for (size_t row = 0; row < b->n_rows; row++)
        largest = fmax(largest, ((const double *)b->rows)[3 * row + 2]);
    return (float)largest;
}

/* Good dumps agree, with flags and beyond the limits of 32 bits; a bit that flips is found in the first row it is in.
 * */
static void check_dumps(struct test_device *d, enum voltage_format format, bool with_totals, size_t max_ants)
{
    struct bed b;

    make_bed(&b, format, 1 + (uint32_t)random_below(max_ants), 1 + (uint32_t)random_below(5), with_totals);
    accumulate(&b);
    bool saturates = with_totals && format != VOLTAGES_16_BITS;
    if (saturates) { /* a product that saturates, and its row */
        b.totals[0] += UINT64_C(1) << 40;
        b.rows[0] += UINT64_C(1) << 40;
    }
    judge(d, &b);
    ck_assert_uint_eq(b.verdict[0], b.n_rows);
    ck_assert_uint_eq(b.verdict[1], UINT64_MAX);
    ck_assert_uint_eq(b.verdict[2], saturates && b.weights[0] == MIN_WEIGHT);
    ck_assert(rows_are_zero(&b));
    ck_assert(words_agree(&b));
    ck_assert_uint_eq(b.n_saturated, b.verdict[2]);
    accumulate(&b);
    size_t part = random_below(b.n_parts), baseline = part / 8 % b.n_baselines, a2 = 0, product = part % 8 / 2;
    while (correlate_baseline(0, a2 + 1) <= baseline)
        a2++;
    size_t a1 = baseline - correlate_baseline(0, a2), chan = part / 8 / b.n_baselines;
    size_t row = (chan * b.correlate.n_ants + a1) * 2 + product % 2;
    if (format == VOLTAGES_16_BITS)
        ((float *)b.sums)[part] += largest_magnitude(&b) / 64;
    else
        b.sums[part] ^= 1u << random_below(32);
    judge(d, &b);
    ck_assert_uint_eq(b.verdict[0], b.n_rows - (a1 == a2 ? 1 : 2));
    ck_assert_uint_eq(b.verdict[1], row);
    ck_assert(rows_are_zero(&b));
    free_bed(&b);
}

TEST(dumps_by_plain_c, .end = ARRAY_LEN(formats))
{
    for (int trial = 0; trial < 40; trial++)
        check_dumps(NULL, formats[_i], trial % 2, 12);
}

TEST_ON_DEVICE(dumps_by_cuda, .end = ARRAY_LEN(formats))
{
    for (int trial = 0; trial < 4; trial++)
        check_dumps(d, formats[_i], trial % 2, trial % 3 ? 12 : 70);
}

SUITE(.timeout_s = 120, .start = random_start);
