/* ddc_tuner - the candidate shapes of ddc's CUDA variant (common/device/tuner.h).
 *
 * Warps of a block and tiles of a warp vary.  The columns do not: sums are taken over one piece of so many columns, which
 * decides how they round. */
#ifndef KERNELS_DDC_DDC_TUNER_H
#define KERNELS_DDC_DDC_TUNER_H

#include "common/device/tuner.h"
#include "kernels/ddc/ddc.h"

/* Sizes: struct ddc_args, of which n_out, n_taps, subsampling and sample_bits count.  Shapes: struct ddc_shape. */
extern const struct tuner_kernel ddc_tuner;

#endif
