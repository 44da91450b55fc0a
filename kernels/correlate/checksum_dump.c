/* checksum_dump.c - plain C version of checksum_dump: runs once per dump, after the dump's last correlate and before
 * the kernel reduce.  The file also has the functions that compute the sums of a downloaded dump on the host. */
#include "kernels/correlate/checksum_dump.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"

#include <math.h>
#include <string.h>

#define N_PARTS (N_POL_PRODUCTS * 2) /* parts of a baseline */

/* ---- Words ------------------------------------------------------------------------------------------------------- */

KERNEL_CLONES static void sum_integers(const uint32_t *words, size_t first, size_t n, uint64_t *sums)
{
    uint64_t plain = 0, weighted = 0;

    for (size_t i = 0; i < n; i++) {
        plain += words[i];
        weighted += (uint64_t)words[i] * (uint32_t)(first + i + 1);
    }
    sums[0] += plain;
    sums[1] += weighted;
}

KERNEL_CLONES static void sum_reals(const uint32_t *words, size_t first, size_t n, uint64_t *sums)
{
    uint64_t plain = 0, weighted = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t word = (words[i] & 0x7FFFFFFF) > 0x7F800000 ? REDUCE_MISSING_NAN : words[i];
        plain += word;
        weighted += (uint64_t)word * (uint32_t)(first + i + 1);
    }
    sums[0] += plain;
    sums[1] += weighted;
}

void checksum_dump_words(const uint32_t *words, size_t first, size_t n, bool real, uint64_t *sums)
{
    if (real)
        sum_reals(words, first, n, sums);
    else
        sum_integers(words, first, n, sums);
}

/* ---- A channel: subtracts the correlator's sums from the rows; zeros must remain --------------------------------- */

/* A baseline.  'at' is the index of the baseline's first sum. */
struct baseline {
    size_t at;
    size_t first, second; /* index of each antenna's row for polarisation 0; the next row is for polarisation 1 */
    bool missing;
};

/* Subtracts a baseline's sums from the rows.  Returns the number of clipped products. */
static unsigned take_integers(const struct checksum_dump_args *a, const struct baseline *b, uint32_t *words)
{
    uint64_t *rows = (uint64_t *)a->rows.integer;
    unsigned n_clipped = 0;

    for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
        uint64_t parts[2];
        bool clipped = false;
        for (size_t i = 0; i < 2; i++) {
            size_t part = b->at + 2 * product + i;
            parts[i] = (uint64_t)(int64_t)a->sums.integer[part];
            parts[i] += a->totals.integer ? (uint64_t)a->totals.integer[part] : 0;
            int64_t sum = (int64_t)parts[i];
            clipped |= sum > INT32_MAX || sum < -INT32_MAX;
            sum = sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum;
            words[2 * product + i] = (uint32_t)(b->missing ? (i ? REDUCE_MISSING_IM : REDUCE_MISSING_RE) : sum);
        }
        n_clipped += clipped && !b->missing;
        uint64_t *first = rows + b->first + product % N_POLS * 2, *second = rows + b->second + product / N_POLS * 2;
        first[0] -= parts[0];
        first[1] -= parts[1];
        if (b->first == b->second)
            continue;
        second[0] -= parts[0];
        second[1] += parts[1];
    }
    return n_clipped;
}

static void take_reals(const struct checksum_dump_args *a, const struct baseline *b, uint32_t *words)
{
    for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
        double parts[2];
        for (size_t i = 0; i < 2; i++) {
            size_t part = b->at + 2 * product + i;
            parts[i] = (double)a->sums.real[part] + (a->totals.real ? a->totals.real[part] : 0);
            float converted = b->missing ? NAN : (float)parts[i];
            memcpy(&words[2 * product + i], &converted, sizeof(converted));
        }
        double *first = a->rows.real + b->first + product % N_POLS * 3;
        double *second = a->rows.real + b->second + product / N_POLS * 3;
        first[0] -= parts[0];
        first[1] -= parts[1];
        if (b->first == b->second)
            continue;
        second[0] -= parts[0];
        second[1] += parts[1];
    }
}

/* Subtracts a channel's sums from the rows.  Returns the number of clipped products. */
static uint64_t take_chan(const struct checksum_dump_args *a, size_t chan)
{
    size_t ant_parts = N_POLS * checksum_n_parts(a->format);
    bool real = correlate_sums_real(a->format);
    uint32_t words[N_PARTS];
    uint64_t n_clipped = 0;

    for (size_t a2 = 0, number = 0; a2 < a->n_ants; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++, number++) {
            struct baseline baseline = {
                .at = (chan * correlate_n_baselines(a->n_ants) + number) * N_PARTS,
                .first = (chan * a->n_ants + a1) * ant_parts,
                .second = (chan * a->n_ants + a2) * ant_parts,
                .missing = a->weights[number] < a->min_weight,
            };
            if (real)
                take_reals(a, &baseline, words);
            else
                n_clipped += take_integers(a, &baseline, words);
            checksum_dump_words(words, number * N_PARTS, N_PARTS, real, a->words + 2 * chan);
        }
    return n_clipped;
}

/* Checks a row from which all sums have been subtracted.  Returns true if the row is zero.  For half floats, the row
 * may also be within the tolerance.  Zeroes the row. */
static bool row_agrees(const struct checksum_dump_args *a, size_t row)
{
    if (!correlate_sums_real(a->format)) {
        int64_t *left = a->rows.integer + 2 * row;
        bool agrees = left[0] == 0 && left[1] == 0;
        memset(left, 0, 2 * sizeof(*left));
        return agrees;
    }
    double *left = a->rows.real + 3 * row, most = CHECKSUM_TOLERANCE * left[2];
    bool agrees = !isfinite(left[2]) || (fabs(left[0]) <= most && fabs(left[1]) <= most);
    memset(left, 0, 3 * sizeof(*left));
    return agrees;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static void checksum_dump_cpu(const void *args, int n_threads)
{
    const struct checksum_dump_args *a = args;
    size_t n_rows = a->n_ants * N_POLS;
    uint64_t n_agreed = 0, n_saturated = 0, first_wrong = a->verdict[VERDICT_FIRST_WRONG];

#pragma omp parallel for reduction(+ : n_agreed, n_saturated) reduction(min : first_wrong) num_threads(n_threads)
    for (size_t chan = 0; chan < a->n_chan; chan++) {
        n_saturated += take_chan(a, chan);
        for (size_t row = chan * n_rows; row < (chan + 1) * n_rows; row++)
            if (row_agrees(a, row))
                n_agreed++;
            else if (row < first_wrong)
                first_wrong = row;
    }
    a->verdict[VERDICT_N_AGREED] += n_agreed;
    a->verdict[VERDICT_FIRST_WRONG] = first_wrong;
    a->verdict[VERDICT_N_SATURATED] += n_saturated;
}

const struct kernel checksum_dump_kernel = {
    .name = "checksum_dump",
    .args_bytes = sizeof(struct checksum_dump_args),
    .cpu = checksum_dump_cpu,
};

void checksum_dump_constants(const struct checksum_dump_args *args, struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"REAL", correlate_sums_real(args->format)};
}

struct kernel_grid checksum_dump_grid(const struct checksum_dump_args *args)
{
    uint64_t n_warps = (uint64_t)args->n_chan * args->n_ants, of_block = CHECKSUM_DUMP_THREADS / 32;

    return (struct kernel_grid){.blocks = {(uint32_t)((n_warps + of_block - 1) / of_block), 1, 1},
                                .threads = CHECKSUM_DUMP_THREADS};
}
