/* reduce.c - plain C twin of reduce: once per dump, after the last correlate of its window. */
#include "kernels/reduce.h"

#include "common/units.h"

#include <math.h>
#include <string.h>

/* Clips to the symmetric range of int32 and says whether it had to. */
static inline int32_t clip(int64_t sum, unsigned *clipped)
{
    int64_t bounded = sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum;
    *clipped |= bounded != sum;
    return (int32_t)bounded;
}

/* The four products of one baseline in one channel; returns how many were clipped. */
static unsigned reduce_integer(int64_t *sums, bool missing, int32_t *out)
{
    unsigned n_clipped = 0;

    for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
        unsigned clipped = 0;
        out[2 * product] = missing ? REDUCE_MISSING_RE : clip(sums[2 * product], &clipped);
        out[2 * product + 1] = missing ? REDUCE_MISSING_IM : clip(sums[2 * product + 1], &clipped);
        n_clipped += clipped;
    }
    memset(sums, 0, N_POL_PRODUCTS * 2 * sizeof(*sums));
    return n_clipped;
}

static void reduce_real(double *sums, bool missing, float *out)
{
    for (size_t i = 0; i < N_POL_PRODUCTS * 2; i++) {
        out[i] = missing ? NAN : (float)sums[i];
        sums[i] = 0;
    }
}

static void reduce_cpu(const void *args, int n_threads)
{
    const struct reduce_args *a = args;
    uint64_t n_saturated = 0;

#pragma omp parallel for collapse(2) reduction(+ : n_saturated) num_threads(n_threads)
    for (size_t chan = 0; chan < a->n_chan; chan++)
        for (size_t baseline = 0; baseline < a->n_baselines; baseline++) {
            size_t at = (chan * a->n_baselines + baseline) * N_POL_PRODUCTS * 2;
            bool missing = a->weights[baseline] < a->min_weight;
            if (correlate_sums_real(a->format))
                reduce_real(a->sums.real + at, missing, a->out.real + at);
            else
                n_saturated += reduce_integer(a->sums.integer + at, missing, a->out.integer + at);
        }
    *a->n_saturated += n_saturated;
}

void reduce_constants(const struct reduce_args *args, struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"REAL", correlate_sums_real(args->format)};
}

struct kernel_grid reduce_grid(const struct reduce_args *args)
{
    uint32_t n_chan = args->n_chan < 65535 ? args->n_chan : 65535;

    return (struct kernel_grid){.blocks = {(2 * args->n_baselines + REDUCE_THREADS - 1) / REDUCE_THREADS, n_chan, 1},
                                .threads = REDUCE_THREADS};
}

const struct kernel reduce_kernel = {
    .name = "reduce",
    .args_bytes = sizeof(struct reduce_args),
    .cpu = reduce_cpu,
};
