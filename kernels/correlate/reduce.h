/* reduce - sums to the visibilities of a dump: saturate, flag, count, and start the next accumulation at zero; or, where
 * an accumulation is longer than sums hold (correlate.h), sums to totals.
 *   sums         int32 or float   [chan][baseline][product][re, im]   read, then zeroed
 *   totals       int64 or double  the same, or NULL where there are none
 *   weights      uint32 [baseline]                                    spectra that went into each baseline
 *   out          int32 or float   [chan][baseline][product][re, im], or NULL: no dump
 *   n_saturated  uint64 [1]                             complex visibilities with a part clipped; added to
 *
 * Without 'out' (totals there must be), totals += sums; weights and n_saturated are not looked at.
 * With 'out', a dump is totals + sums, and totals are zeroed as well:
 * Integers: a baseline whose weight is below 'min_weight' is (-2^31, 1) in all channels and products
 * and never counts.  Else each part is clipped to +-(2^31 - 1).
 * Half floats: such a baseline is not a number, in both parts.  Nothing is clipped, nothing counts.
 * Bound by: memory; for each part 4 B in, 4 B zeroed, 4 B out, with totals 8 B in and 8 B zeroed more; without a dump
 *            4 B in, 4 B zeroed, 8 B in, 8 B out. */
#ifndef KERNELS_CORRELATE_REDUCE_H
#define KERNELS_CORRELATE_REDUCE_H

#include "kernels/correlate/correlate.h"

#define REDUCE_MISSING_RE  (-2147483647 - 1)
#define REDUCE_MISSING_IM  1
#define REDUCE_MISSING_NAN 0x7FC00000 /* the bits of a float: a quiet NaN */

/* 8 bytes a part, of the type that goes with the sums'. */
union reduce_totals {
    int64_t *integer;
    double *real; /* VOLTAGES_16_BITS */
};

union reduce_out {
    int32_t *integer;
    float *real; /* where the sums are */
};

struct reduce_args {
    union correlate_sums sums;  /* [chan][baseline][product][re, im] */
    union reduce_totals totals; /* the same, or NULL */
    const uint32_t *weights;    /* [baseline] */
    union reduce_out out;       /* [chan][baseline][product][re, im], or NULL */
    uint64_t *n_saturated;      /* [1] */
    enum voltage_format format; /* that the sums are of */
    uint32_t min_weight;
    uint32_t n_baselines;
    uint32_t n_chan;
};

extern const struct kernel reduce_kernel;

/* Constants of the CUDA variant, and the grid of a launch.  The variant needs 'sums', 'totals' and 'out' aligned to 16
 * bytes. */
#define REDUCE_N_CONSTANTS 1
#define REDUCE_THREADS     256
#define REDUCE_ITEMS       4 /* that a thread loads before it stores any.  To be measured: 1, 2, 4, 8 */
void reduce_constants(const struct reduce_args *args, struct kernel_constant *constants);
struct kernel_grid reduce_grid(const struct reduce_args *args);

#endif
