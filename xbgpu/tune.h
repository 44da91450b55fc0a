/* tune.h - tuning of the kernel correlate, the only kernel of xbgpu that has several shapes: xbgpu --tune measures the
 * shapes, and each start loads the saved result.
 *
 * Threads:   main, when nothing else runs on the device. */
#ifndef XBGPU_TUNE_H
#define XBGPU_TUNE_H

#include "kernels/correlate/correlate_shape.h"
#include "xbgpu/config/layout.h"

/* Finds the fastest shapes for the outputs' sizes and saves them.  'values' is a struct xbgpu_config.  daemon.h
 * describes the signature and errors. */
int xbgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* Returns the shape that was saved for the output's sizes, or the default shape if none was saved.  Logs the use of a
 * saved shape. */
struct correlate_shape xbgpu_tune_load(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                       struct device *device, const struct xbgpu_config_output *output);

#endif
