/* tune.h - xbgpu's kernel that has shapes to choose from: xbgpu --tune measures them, each start loads what was kept.
 *
 * Threads: main, when nothing else runs on the device. */
#ifndef XBGPU_TUNE_H
#define XBGPU_TUNE_H

#include "kernels/correlate/correlate_shape.h"
#include "xbgpu/layout.h"

/* Measures what is best for the outputs' sizes and keeps it ('values' is a struct xbgpu_config).  Signature and errors:
 * daemon.h. */
int xbgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* What has been kept for an output's sizes, else the default; says in the log which. */
struct correlate_shape xbgpu_tune_load(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                       struct device *device, const struct xbgpu_config_output *output);

#endif
