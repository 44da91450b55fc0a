/* reduce - sums to the visibilities of a dump: saturate, flag, count, and start the next accumulation at zero.
 *   sums         int64  [chan][baseline][product][re, im]   read, then zeroed
 *   weights      uint32 [baseline]                          spectra that went into each baseline
 *   out          int32  [chan][baseline][product][re, im]
 *   n_saturated  uint64 [1]                                 complex visibilities with a part clipped; written
 *
 * A baseline whose weight is below 'min_weight' is (-2^31, 1) in all channels and products and never counts.
 * Else each part is clipped to +-(2^31 - 1).
 * Bound by: memory; 16 B in, 16 B zeroed, 8 B out per visibility. */
#ifndef KERNELS_REDUCE_H
#define KERNELS_REDUCE_H

#include "common/device.h"

#define REDUCE_MISSING_RE INT32_MIN
#define REDUCE_MISSING_IM 1

struct reduce_args {
    int64_t *sums;
    const uint32_t *weights;
    int32_t *out;
    uint64_t *n_saturated;
    uint32_t min_weight;
    uint32_t n_baselines;
    uint32_t n_chan;
};

extern const struct kernel reduce_kernel;

#endif
