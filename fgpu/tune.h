/* tune.h - the tuner's view of fgpu's kernels that have several shapes: fgpu --tune measures the shapes, each start
 * loads the kept results.
 *
 * Threads: main, while nothing else runs on the device. */
#ifndef FGPU_TUNE_H
#define FGPU_TUNE_H

#include "fgpu/layout.h"

/* Measures the best shapes for the outputs' sizes and keeps them.  'values' is a struct fgpu_config.  Signature and
 * errors: daemon.h. */
int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* Loads the kept shapes for the outputs' sizes into choices[output], which must be zeroed.  The other shapes stay
 * defaults.  Logs the kept shapes. */
void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct fgpu_choice *choices);

#endif
