/* tune.h - fgpu's kernels that have shapes to choose from: fgpu --tune measures them, each start loads what was kept.
 *
 * Threads: main, when nothing else runs on the device. */
#ifndef FGPU_TUNE_H
#define FGPU_TUNE_H

#include "fgpu/layout.h"

/* Measures what is best for the outputs' sizes and keeps it ('values' is a struct fgpu_config).  Signature and errors:
 * daemon.h. */
int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* Loads the kept shapes of the outputs' sizes into choices[output], which are zeroed; the others stay defaults.  The log
 * names the kept ones. */
void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct fgpu_choice *choices);

#endif
