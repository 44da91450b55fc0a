/* power.c - plain C version of power: the power of the inputs, used if all outputs are narrow bands. */
#include "kernels/util/power.h"

#include "common/base/units.h"
#include "kernels/util/unpack.h"

#include <assert.h>
#include <string.h>

static uint64_t sum_squares(const uint8_t *in, uint64_t offset, uint64_t n, unsigned sample_bits, int n_threads)
{
    uint64_t sum = 0;

#pragma omp parallel for reduction(+ : sum) num_threads(n_threads)
    for (uint64_t i = offset; i < offset + n; i++) {
        int32_t x = (int32_t)unpack_one(in, i * sample_bits, sample_bits);
        sum += (uint64_t)((int64_t)x * x);
    }
    return sum;
}

static void power_cpu(const void *args, int n_threads)
{
    const struct power_args *a = args;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        assert(a->offset[pol] >= 0);
        a->power[pol] += sum_squares(a->in[pol], (uint64_t)a->offset[pol], a->n_samples, a->sample_bits, n_threads);
    }
}

const struct kernel power_kernel = {
    .name = "power",
    .args_bytes = sizeof(struct power_args),
    .cpu = power_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_THREADS     256
#define GROUP_SAMPLES 32 /* number of samples that a thread adds at a time */
#define MAX_BLOCKS    1024

void power_constants(const struct power_args *args, struct kernel_constant *constants)
{
    const struct kernel_constant all[POWER_N_CONSTANTS] = {{"SAMPLE_BITS", args->sample_bits},
                                                           {"N_THREADS", N_THREADS}};

    memcpy(constants, all, sizeof(all));
}

struct kernel_grid power_grid(const struct power_args *args)
{
    uint64_t n_groups = args->n_samples / GROUP_SAMPLES + 2, n_blocks = (n_groups + N_THREADS - 1) / N_THREADS;

    assert(args->n_samples > 0);
    return (struct kernel_grid){.blocks = {n_blocks < MAX_BLOCKS ? (uint32_t)n_blocks : MAX_BLOCKS, N_POLS, 1},
                                .threads = N_THREADS};
}
