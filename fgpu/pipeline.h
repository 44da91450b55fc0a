/* pipeline.h - fgpu's worker: one thread that feeds the device for all antennas.
 *
 * Flow:      inbox (chunks, returned buffers, ends) --> the antenna concerned goes on --> output buffers --> senders
 * Threads:   the worker itself; the functions below are for main.
 * Blocking:  the worker sleeps only on its inbox, and waits for the device only when it ends. */
#ifndef FGPU_PIPELINE_H
#define FGPU_PIPELINE_H

#include "common/daemon/daemon.h"
#include "fgpu/output.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes everything between the sockets: receivers, device side, senders ('values' is a struct fgpu_config; the pipeline
 * made is a struct fgpu_pipeline).  Signature and errors: daemon.h. */
int fgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                         size_t why_bytes);

/* Starts senders, worker and receivers, in that order. */
int fgpu_pipeline_start(void *pipeline);

/* Has packets come.  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_pipeline_enable(void *pipeline, char *why, size_t why_bytes);

/* [main] The walk of one antenna's one output. */
struct fgpu_output *fgpu_pipeline_walk(const void *pipeline, size_t ant, size_t output);

/* The requests that it answers. */
void fgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads.  From
 * 'give_up_ns' on no more chunks are begun, and no more heaps sent.  Returns false if it had to give up, or if a capture
 * could not be written. */
bool fgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* NULL is accepted. */
void fgpu_pipeline_destroy(void *pipeline);

#endif
