/* reduce - converts sums to the visibilities of a dump.  The kernel clips and flags the visibilities, counts the
 * clipped ones, and zeroes the sums for the next accumulation.  If an accumulation has more spectra than the sums hold
 * (correlate.h), the kernel adds the sums to totals instead.
 *   sums         int32 or float   [chan][baseline][product][re, im]   read, then zeroed
 *   totals       int64 or double  the same, or NULL: no totals
 *   weights      uint32 [baseline]                                    spectra in each baseline
 *   out          int32 or float   [chan][baseline][product][re, im], or NULL: no dump
 *   n_saturated  uint64 [1]                             the kernel adds the number of visibilities with a clipped part
 *
 * Without 'out' (totals are required), totals += sums; weights and n_saturated are not used.
 * With 'out', a dump is totals + sums, and the totals are zeroed too.
 * Integers: a baseline with a weight below 'min_weight' is (-2^31, 1) in all channels and products and never counts in
 * n_saturated.  In other baselines each part is clipped to +-(2^31 - 1).
 * Half floats: a baseline with a weight below 'min_weight' is NaN in both parts.  Nothing is clipped or counted.
 * Bound by: memory.  For each part, 4 bytes are read, 4 bytes zeroed and 4 bytes written.  With totals, another 8
 *            bytes are read and 8 bytes zeroed.  Without a dump, 12 bytes are read, 4 bytes zeroed and 8 bytes
 *            written. */
#ifndef KERNELS_CORRELATE_REDUCE_H
#define KERNELS_CORRELATE_REDUCE_H

#include "kernels/correlate/correlate.h"

#define REDUCE_MISSING_RE  (-2147483647 - 1)
#define REDUCE_MISSING_IM  1
#define REDUCE_MISSING_NAN 0x7FC00000 /* bits of a quiet NaN (float) */

/* Address of totals; each part has 8 bytes: int64 for int32 sums, double for float sums. */
union reduce_totals {
    int64_t *integer;
    double *real; /* VOLTAGES_16_BITS */
};

union reduce_out {
    int32_t *integer;
    float *real; /* for float sums */
};

struct reduce_args {
    union correlate_sums sums;  /* shape [chan][baseline][product][re, im] */
    union reduce_totals totals; /* shape [chan][baseline][product][re, im]; may be NULL */
    const uint32_t *weights;    /* shape [baseline] */
    union reduce_out out;       /* shape [chan][baseline][product][re, im]; may be NULL */
    uint64_t *n_saturated;      /* one number */
    enum voltage_format format; /* format of the summed voltages */
    uint32_t min_weight;
    uint32_t n_baselines;
    uint32_t n_chan;
};

extern const struct kernel reduce_kernel;

/* reduce_constants() writes the CUDA variant's constants.  reduce_grid() returns the grid of a launch.  The variant
 * needs 'sums', 'totals' and 'out' aligned to 16 bytes. */
#define REDUCE_N_CONSTANTS 1
#define REDUCE_THREADS     256
/* number of items that a thread loads before its first store; other values worth measuring: 1, 2, 8 */
#define REDUCE_ITEMS       4
void reduce_constants(const struct reduce_args *args, struct kernel_constant *constants);
struct kernel_grid reduce_grid(const struct reduce_args *args);

#endif
