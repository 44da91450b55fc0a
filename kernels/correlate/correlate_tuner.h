/* correlate_tuner - the candidate shapes of correlate's CUDA variants (common/device/tuner.h).
 *
 * The default is correlate_device_shape().  correlate_candidates() lists the others.  Sums of half floats depend on the
 * order of the additions, so half floats have only the default. */
#ifndef KERNELS_CORRELATE_CORRELATE_TUNER_H
#define KERNELS_CORRELATE_CORRELATE_TUNER_H

#include "common/device/tuner.h"
#include "kernels/correlate/correlate_shape.h"

/* The tuner gets its sizes as a struct correlate_args.  The tuner ignores the addresses of voltages and sums in this
 * struct.  A shape is a struct correlate_shape. */
extern const struct tuner_kernel correlate_tuner;

#endif
