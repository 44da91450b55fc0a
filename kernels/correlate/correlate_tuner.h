/* correlate_tuner - the candidate shapes of correlate's CUDA variants (common/device/tuner.h).
 *
 * The default is the device's (correlate_device_shape); the others are those of correlate_candidates().  Sums of half
 * floats round by the order of the additions, so for these there is the default only. */
#ifndef KERNELS_CORRELATE_CORRELATE_TUNER_H
#define KERNELS_CORRELATE_CORRELATE_TUNER_H

#include "common/device/tuner.h"
#include "kernels/correlate/correlate_shape.h"

/* Sizes: struct correlate_args, all but where the voltages and sums are.  Shapes: struct correlate_shape. */
extern const struct tuner_kernel correlate_tuner;

#endif
