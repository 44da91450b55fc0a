/* tune.h - xbgpu's kernel that has shapes to choose from: xbgpu --tune measures them, each start loads what was kept.
 *
 * Threads: main, when nothing else runs on the device. */
#ifndef XBGPU_TUNE_H
#define XBGPU_TUNE_H

#include "kernels/correlate/correlate_shape.h"
#include "xbgpu/layout.h"

/* Measures which shapes are fastest for the outputs' sizes and keeps them.  'values' is a struct xbgpu_config.
 * Signature and errors: daemon.h. */
int xbgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* Returns the shape kept for the output's sizes, else the default.  Logs if a kept shape is used. */
struct correlate_shape xbgpu_tune_load(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                       struct device *device, const struct xbgpu_config_output *output);

#endif
