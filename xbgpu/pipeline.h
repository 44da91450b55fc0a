/* pipeline.h - xbgpu's engine: all F-engines as one lane, and the order in which the stages are created and destroyed.
 *
 * Flow:      chunks of all members --> lane --> dumps of each output --> senders (common/engine/engine.h)
 * Threads:   main. */
#ifndef XBGPU_PIPELINE_H
#define XBGPU_PIPELINE_H

#include "common/daemon/daemon.h"

#include <stdbool.h>
#include <stddef.h>

/* Creates all stages: receivers, device side, senders.  'values' is a struct xbgpu_config.  The first member of the
 * pipeline's struct is a struct engine.  daemon.h describes signatures and errors. */
int xbgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                          size_t why_bytes);

/* Registers the pipeline's requests with 'device'. */
void xbgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* Stops as engine_stop() does, and logs a line for each stage. */
bool xbgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* Destroys the pipeline after stop.  Partly created pipelines are accepted. */
void xbgpu_pipeline_destroy(void *pipeline);

#endif
