/* pipeline.h - fgpu's engine: antennas as lanes, and the order in which the stages are created and destroyed.
 *
 * Flow:      chunks of both polarisations --> antenna's lane --> output buffers --> senders (common/engine/engine.h)
 * Threads:   main. */
#ifndef FGPU_PIPELINE_H
#define FGPU_PIPELINE_H

#include "common/daemon/daemon.h"

#include <stdbool.h>
#include <stddef.h>

/* Creates all stages from the receiving to the sending sockets: receivers, device side, senders.  'values' is a struct
 * fgpu_config.  The created pipeline begins with a struct engine.  daemon.h describes signature and errors. */
int fgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                         size_t why_bytes);

/* Registers the pipeline's requests with 'device'. */
void fgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* Stops as engine_stop() does, and logs a line for each stage. */
bool fgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* Destroys the pipeline after it has been stopped.  A partly created pipeline is accepted. */
void fgpu_pipeline_destroy(void *pipeline);

#endif
