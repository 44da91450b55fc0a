/* pipeline.h - fgpu's engine: antennas as lanes, and the order in which the stages are made and unmade.
 *
 * Flow:      chunks of both polarisations --> antenna's lane --> output buffers --> senders (common/engine/engine.h)
 * Threads:   main. */
#ifndef FGPU_PIPELINE_H
#define FGPU_PIPELINE_H

#include "common/daemon/daemon.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes everything between the sockets: receivers, device side, senders ('values' is a struct fgpu_config; the pipeline
 * made begins with a struct engine).  Signatures and errors: daemon.h. */
int fgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                         size_t why_bytes);

/* The requests that it answers. */
void fgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* As engine_stop(), with a line of each stage in the log. */
bool fgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* After stop; half-made pipelines are accepted. */
void fgpu_pipeline_destroy(void *pipeline);

#endif
