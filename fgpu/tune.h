/* tune.h - fgpu --tune: what is measured for each output, and taken at the next start.
 *
 * Threads: main, when nothing else runs on the device. */
#ifndef FGPU_TUNE_H
#define FGPU_TUNE_H

#include "fgpu/config.h"
#include "kernels/filterbank/channelise_choice.h"

/* Measures what is best for the outputs' sizes and keeps it ('values' is a struct fgpu_config); says in the log what it
 * found, or that there is nothing to measure.  Signature and errors: daemon.h. */
int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes);

/* What has been kept for the outputs' sizes, choices[output], else the defaults; says in the log which. */
void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct channelise_choice *choices);

#endif
