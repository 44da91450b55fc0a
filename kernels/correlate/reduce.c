/* reduce.c - plain C version of reduce: runs once per dump, after the dump's last correlate.  The host also runs it
 * before a launch of correlate, if the launch's spectra would overflow the sums. */
#include "kernels/correlate/reduce.h"

#include "common/base/units.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define N_PARTS (N_POL_PRODUCTS * 2) /* parts of a baseline */

/* ---- Sums to totals ---------------------------------------------------------------------------------------------- */

/* Adds 'n' sums of one channel, beginning with index 'at', to the totals, and zeroes these sums. */
static void add_to_totals(const struct reduce_args *a, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        if (correlate_sums_real(a->format)) {
            a->totals.real[i] += (double)a->sums.real[i];
            a->sums.real[i] = 0;
        } else {
            a->totals.integer[i] = add_wrapped(a->totals.integer[i], a->sums.integer[i]);
            a->sums.integer[i] = 0;
        }
}

/* ---- A dump ------------------------------------------------------------------------------------------------------ */

/* Writes the sums of a baseline in one channel to 'taken'.  If totals exist, adds the baseline's totals to 'taken'.
 * Zeroes the sums and totals. */
static inline void take_integers(const struct reduce_args *a, size_t at, int64_t taken[N_PARTS])
{
    int32_t *sums = a->sums.integer + at;

    for (size_t i = 0; i < N_PARTS; i++)
        taken[i] = sums[i];
    memset(sums, 0, N_PARTS * sizeof(*sums));
    if (!a->totals.integer)
        return;
    int64_t *totals = a->totals.integer + at;
    for (size_t i = 0; i < N_PARTS; i++)
        taken[i] = add_wrapped(taken[i], totals[i]);
    memset(totals, 0, N_PARTS * sizeof(*totals));
}

static inline void take_reals(const struct reduce_args *a, size_t at, double taken[N_PARTS])
{
    float *sums = a->sums.real + at;

    for (size_t i = 0; i < N_PARTS; i++) {
        taken[i] = (double)sums[i];
        sums[i] = 0;
    }
    if (!a->totals.real)
        return;
    double *totals = a->totals.real + at;
    for (size_t i = 0; i < N_PARTS; i++) {
        taken[i] += totals[i];
        totals[i] = 0;
    }
}

/* Clips a sum to the range +-(2^31 - 1).  Sets 'clipped' if the sum was outside this range. */
static inline int32_t clip(int64_t sum, unsigned *clipped)
{
    int64_t bounded = sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum;
    *clipped |= bounded != sum;
    return (int32_t)bounded;
}

/* Dumps the four products of one baseline in one channel.  Returns the number of clipped products. */
static unsigned dump_integers(const struct reduce_args *a, size_t at, bool missing)
{
    int32_t *out = a->out.integer + at;
    int64_t sums[N_PARTS];
    unsigned n_clipped = 0;

    take_integers(a, at, sums);
    for (size_t i = 0; i < N_PARTS; i += 2) {
        unsigned clipped = 0;
        out[i] = missing ? REDUCE_MISSING_RE : clip(sums[i], &clipped);
        out[i + 1] = missing ? REDUCE_MISSING_IM : clip(sums[i + 1], &clipped);
        n_clipped += clipped;
    }
    return n_clipped;
}

static void dump_reals(const struct reduce_args *a, size_t at, bool missing)
{
    double sums[N_PARTS];

    take_reals(a, at, sums);
    for (size_t i = 0; i < N_PARTS; i++)
        a->out.real[at + i] = missing ? NAN : (float)sums[i];
}

static uint64_t dump_chan(const struct reduce_args *a, size_t chan)
{
    uint64_t n_saturated = 0;

    for (size_t baseline = 0; baseline < a->n_baselines; baseline++) {
        size_t at = (chan * a->n_baselines + baseline) * N_PARTS;
        bool missing = a->weights[baseline] < a->min_weight;
        if (correlate_sums_real(a->format))
            dump_reals(a, at, missing);
        else
            n_saturated += dump_integers(a, at, missing);
    }
    return n_saturated;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static void reduce_cpu(const void *args, int n_threads)
{
    const struct reduce_args *a = args;
    size_t n_parts = a->n_baselines * N_PARTS;
    uint64_t n_saturated = 0;

    assert(a->out.integer || a->totals.integer);
#pragma omp parallel for reduction(+ : n_saturated) num_threads(n_threads)
    for (size_t chan = 0; chan < a->n_chan; chan++)
        if (a->out.integer)
            n_saturated += dump_chan(a, chan);
        else
            add_to_totals(a, chan * n_parts, n_parts);
    if (a->out.integer)
        *a->n_saturated += n_saturated;
}

void reduce_constants(const struct reduce_args *args, struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"REAL", correlate_sums_real(args->format)};
}

struct kernel_grid reduce_grid(const struct reduce_args *args)
{
    /* Without totals, an item has two visibilities.  With totals, an item has one visibility. */
    uint64_t n_items = (uint64_t)args->n_chan * args->n_baselines * N_POL_PRODUCTS / (args->totals.integer ? 1 : 2);
    uint64_t of_block = REDUCE_THREADS * REDUCE_ITEMS;

    return (struct kernel_grid){.blocks = {(uint32_t)((n_items + of_block - 1) / of_block), 1, 1},
                                .threads = REDUCE_THREADS};
}

const struct kernel reduce_kernel = {
    .name = "reduce",
    .args_bytes = sizeof(struct reduce_args),
    .cpu = reduce_cpu,
};
