/* ddc_tuner - the candidate shapes of ddc's CUDA variant (common/device/tuner.h).
 *
 * The shapes differ in the number of warps of a block and the number of tiles of a warp.  The columns do not vary:
 * sums are taken over one chunk of columns, so the number of columns decides the rounding of sums. */
#ifndef KERNELS_DDC_DDC_TUNER_H
#define KERNELS_DDC_DDC_TUNER_H

#include "common/device/tuner.h"
#include "kernels/ddc/ddc.h"

/* The argument 'sizes' of the tuner's functions is a struct ddc_args.  The functions use only n_out, n_taps,
 * subsampling and sample_bits.  A shape is a struct ddc_shape. */
extern const struct tuner_kernel ddc_tuner;

#endif
