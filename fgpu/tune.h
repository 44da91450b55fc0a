/* tune.h - tunes the kernels of fgpu that have several shapes.  fgpu --tune measures the shapes, and each start loads
 * the saved results.
 *
 * Threads: main, while nothing else runs on the device. */
#ifndef FGPU_TUNE_H
#define FGPU_TUNE_H

#include "fgpu/config/layout.h"

/* Finds the fastest shapes for the outputs' sizes and saves them.  'values' is a struct fgpu_config.  daemon.h
 * describes signature and errors. */
int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* Loads the saved shapes for the outputs' sizes into choices[output], which must be zeroed.  Shapes that were not saved
 * stay at their defaults.  Logs the loaded shapes. */
void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct fgpu_choice *choices);

#endif
