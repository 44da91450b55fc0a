/* pfb_fir_complex.c - plain C version of pfb_fir_complex: runs between ddc.c and the FFT of a narrowband output.
 *
 * The kernel processes a block of columns spectrum by spectrum.  The windows of consecutive spectra have all rows but
 * one in common.  So the rows and the block's weights stay in the cache. */
#include "kernels/filterbank/pfb_fir_complex.h"

#include "kernels/filterbank/pfb_fir.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <string.h>

#define MAX_TAPS      32
#define BLOCK_COLUMNS 128 /* with 32 taps, a block has 32 KiB of samples and 32 KiB of weights */
#define BLOCK_SPECTRA 64  /* number of spectra that a thread filters at a time */

/* Filters spectra [s0, s1), columns [column, column + n), n <= BLOCK_COLUMNS. */
KERNEL_CLONES static void filter_block(const struct pfb_fir_complex_args *a, size_t s0, size_t s1, size_t column,
                                       size_t n)
{
    float weights[MAX_TAPS][2 * BLOCK_COLUMNS]; /* [tap][column][part]: both parts have the same weight */
    float sums[2 * BLOCK_COLUMNS];

    for (size_t i = 0; i < a->n_taps; i++)
        for (size_t c = 0; c < n; c++)
            weights[i][2 * c] = weights[i][2 * c + 1] = a->weights[i * a->n_bins + column + c];
    for (size_t s = s0; s < s1; s++) {
        memset(sums, 0, sizeof(sums));
        for (size_t i = 0; i < a->n_taps; i++) {
            const float *row = a->in + 2 * ((size_t)a->offset + (s + i) * a->n_bins + column);
            for (size_t c = 0; c < 2 * n; c++)
                sums[c] += weights[i][c] * row[c];
        }
        memcpy(a->out + 2 * (s * a->n_bins + column), sums, 2 * n * sizeof(float));
    }
}

static void pfb_fir_complex_cpu(const void *args, int n_threads)
{
    const struct pfb_fir_complex_args *a = args;

    assert(a->n_taps >= 1 && a->n_taps <= MAX_TAPS && a->offset >= 0);
    assert(a->n_bins >= 2 && (a->n_bins & (a->n_bins - 1)) == 0);
#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (size_t s = 0; s < a->n_spectra; s += BLOCK_SPECTRA)
        for (size_t column = 0; column < a->n_bins; column += BLOCK_COLUMNS) {
            size_t s1 = s + BLOCK_SPECTRA < a->n_spectra ? s + BLOCK_SPECTRA : a->n_spectra;
            size_t n = column + BLOCK_COLUMNS < a->n_bins ? BLOCK_COLUMNS : a->n_bins - column;
            filter_block(a, s, s1, column, n);
        }
}

const struct kernel pfb_fir_complex_kernel = {
    .name = "pfb_fir_complex",
    .args_bytes = sizeof(struct pfb_fir_complex_args),
    .cpu = pfb_fir_complex_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

void pfb_fir_complex_constants(const struct pfb_fir_complex_args *args, struct kernel_constant *constants)
{
    const struct kernel_constant all[PFB_FIR_COMPLEX_N_CONSTANTS] = {
        {"N_BINS", args->n_bins}, {"N_TAPS", args->n_taps}, {"N_THREADS", pfb_fir_threads(args->n_bins)}};

    assert(args->n_bins >= 64);
    memcpy(constants, all, sizeof(all));
}

struct kernel_grid pfb_fir_complex_grid(const struct pfb_fir_complex_args *args, uint32_t section_spectra)
{
    return pfb_fir_sections(args->n_bins, args->n_spectra, section_spectra);
}
