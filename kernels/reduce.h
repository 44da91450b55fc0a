/* reduce - sums to the visibilities of a dump: saturate, flag, count, and start the next accumulation at zero.
 *   sums         int64 or double  [chan][baseline][product][re, im]   read, then zeroed
 *   weights      uint32 [baseline]                                    spectra that went into each baseline
 *   out          int32 or float   [chan][baseline][product][re, im]
 *   n_saturated  uint64 [1]                             complex visibilities with a part clipped; added to
 *
 * Integers (int64 to int32): a baseline whose weight is below 'min_weight' is (-2^31, 1) in all channels and products
 * and never counts.  Else each part is clipped to +-(2^31 - 1).
 * Half floats (double to float): such a baseline is not a number, in both parts.  Nothing is clipped, nothing counts.
 * Bound by: memory; 16 B in, 16 B zeroed, 8 B out per visibility. */
#ifndef KERNELS_REDUCE_H
#define KERNELS_REDUCE_H

#include "kernels/correlate.h"

#define REDUCE_MISSING_RE (-2147483647 - 1)
#define REDUCE_MISSING_IM 1

union reduce_out {
    int32_t *integer;
    float *real; /* where the sums are */
};

struct reduce_args {
    union correlate_sums sums;
    const uint32_t *weights;
    union reduce_out out;
    uint64_t *n_saturated;
    enum voltage_format format; /* that the sums are of */
    uint32_t min_weight;
    uint32_t n_baselines;
    uint32_t n_chan;
};

extern const struct kernel reduce_kernel;

/* What the CUDA variant is compiled with, and the shape of a launch.  'sums' and 'out' aligned to 16 bytes. */
#define REDUCE_N_CONSTANTS 1
#define REDUCE_THREADS     256
void reduce_constants(const struct reduce_args *args, struct kernel_constant *constants);
struct kernel_grid reduce_grid(const struct reduce_args *args);

#endif
