/* gnss_quantise.c - plain C version of the kernel gnss_quantise, and the control of the kernel's scale.  The kernel
 * runs after ddc and before gnss_correlate. */
#include "kernels/gnss/gnss_quantise.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <math.h>

#define LIMIT         ((float)GNSS_QUANTISE_LIMIT)
#define BLOCK_SAMPLES 4096 /* number of samples whose sum of squares fits in 32 bits: 4096 * 2 * 127^2 < 2^28 */

KERNEL_CLONES static void quantise_block(const float *restrict in, float scale, float im_scale, size_t n,
                                         int8_t *restrict out, struct gnss_level *level)
{
    uint32_t squares = 0, n_clipped = 0;

    for (size_t i = 0; i < n; i++) {
        float re = in[2 * i] * scale, im = in[2 * i + 1] * im_scale;
        n_clipped += !(fabsf(re) <= LIMIT) | !(fabsf(im) <= LIMIT);
        re = re > LIMIT ? LIMIT : re < -LIMIT ? -LIMIT : re == re ? re : 0;
        im = im > LIMIT ? LIMIT : im < -LIMIT ? -LIMIT : im == im ? im : 0;
        int32_t a = (int32_t)lrintf(re), b = (int32_t)lrintf(im);
        squares += (uint32_t)(a * a + b * b);
        out[2 * i] = (int8_t)a;
        out[2 * i + 1] = (int8_t)b;
    }
    level->squares += squares;
    level->n_clipped += n_clipped;
}

static void quantise_row(const struct gnss_quantise_args *a, size_t pol, int n_threads)
{
    int8_t *out = a->out + 2 * pol * a->pitch_samples;
    uint64_t squares = 0, n_clipped = 0;

#pragma omp parallel for reduction(+ : squares, n_clipped) num_threads(n_threads)
    for (uint64_t at = 0; at < a->n_samples; at += BLOCK_SAMPLES) {
        struct gnss_level level = {0};
        quantise_block(a->in[pol] + 2 * at, a->scale[pol], a->scale[pol] * a->im_sign,
                       least(a->n_samples - at, BLOCK_SAMPLES), out + 2 * at, &level);
        squares += level.squares;
        n_clipped += level.n_clipped;
    }
    a->levels[pol].squares += squares;
    a->levels[pol].n_clipped += n_clipped;
}

static void gnss_quantise_cpu(const void *args, int n_threads)
{
    const struct gnss_quantise_args *a = args;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        assert(isfinite(a->scale[pol]) && fabsf(a->im_sign) == 1);
        quantise_row(a, pol, n_threads);
    }
}

const struct kernel gnss_quantise_kernel = {
    .name = "gnss_quantise",
    .args_bytes = sizeof(struct gnss_quantise_args),
    .cpu = gnss_quantise_cpu,
};

/* Returns the next scale.  The limits of the rms differ by a factor of four, and the scale changes by a factor of two.
 * So after a change of the scale, the level must change by another factor of two before the next change. */
float gnss_quantise_scale(float scale, uint64_t squares, uint64_t n_samples)
{
    uint64_t n_components = 2 * n_samples;

    if (squares < n_components * GNSS_MIN_RMS * GNSS_MIN_RMS)
        return fminf(2 * scale, GNSS_MAX_SCALE);
    if (squares > n_components * GNSS_MAX_RMS * GNSS_MAX_RMS)
        return fmaxf(scale / 2, GNSS_MIN_SCALE);
    return scale;
}

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_THREADS  256
#define MAX_BLOCKS 1024

void gnss_quantise_constants(struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"N_THREADS", N_THREADS};
}

struct kernel_grid gnss_quantise_grid(const struct gnss_quantise_args *args)
{
    uint64_t n_blocks = (args->n_samples + N_THREADS - 1) / N_THREADS;

    assert(args->n_samples > 0);
    return (struct kernel_grid){.blocks = {(uint32_t)least(n_blocks, MAX_BLOCKS), N_POLS, 1}, .threads = N_THREADS};
}
