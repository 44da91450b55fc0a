/* checksum - computes each input's correlation with the sum of all inputs.  An input's correlations from correlate must
 * add up to the same value.
 *   voltages  as in correlate.h
 *   rows      int64 [chan][ant][pol][re, im], for half floats double [chan][ant][pol][re, im, magnitude];
 *             the kernel adds to the rows
 *
 * In each channel S = sum over all inputs j of e(j), and
 *     rows[i] += sum over spectra of the batches [first_batch, first_batch + n_batches) of e(i) * conj(S)
 * For half floats magnitude += (|re e(i)| + |im e(i)|) * sum over j of (|re e(j)| + |im e(j)|).
 * So S is like one more antenna of the array.  checksum_dump.h compares the rows with the sums of correlate.
 *
 * Exactness: integers are exact.  One spectrum adds at most 2^15 times the number of inputs to a part.  So 64 bits hold
 *            2^32 spectra of 2^15 inputs.  Half floats: CUDA sums S, and the products of up to CHECKSUM_STEP_SPECTRA
 *            spectra, in float32.  CUDA adds these sums of products in double.  The C version sums in double.
 * Requires: CUDA: n_spectra a multiple of 16, voltages aligned to 16 bytes.
 * Bound by: memory: voltages are read once.  With more than CHECKSUM_SLICE_ANTS antennas, voltages are read once from
 *           memory and again from the cache for each slice of antennas.  CUDA with 4-bit voltages: instructions; each
 *           spectrum needs 6 products. */
#ifndef KERNELS_CORRELATE_CHECKSUM_H
#define KERNELS_CORRELATE_CHECKSUM_H

#include "kernels/correlate/correlate.h"

/* Returns the number of parts of an input's row. */
static inline uint32_t checksum_n_parts(enum voltage_format format)
{
    return correlate_sums_real(format) ? 3 : 2;
}

union checksum_rows {
    int64_t *integer;
    double *real; /* VOLTAGES_16_BITS */
};

struct checksum_args {
    const void *voltages;     /* shape [batch][ant][chan][spectrum][pol][re, im] */
    union checksum_rows rows; /* shape [chan][ant][pol][part] */
    enum voltage_format format;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra; /* spectra of a heap */
    uint32_t first_batch;
    uint32_t n_batches;
};

extern const struct kernel checksum_kernel;

/* checksum_constants() writes the CUDA variant's constants for the sizes in 'args'.  checksum_grid() returns the grid
 * of a launch of at least one batch. */
#define CHECKSUM_N_CONSTANTS 8
/* number of antennas that a block holds in registers: 5 in each of 16 warps; other values worth measuring: 32, 64 */
#define CHECKSUM_SLICE_ANTS 80
/* maximum number of spectra that a thread sums in 32 bits; 255 spectra would also fit */
#define CHECKSUM_STEP_SPECTRA 240
void checksum_constants(const struct checksum_args *args, struct kernel_constant *constants);
struct kernel_grid checksum_grid(const struct checksum_args *args);

#endif
