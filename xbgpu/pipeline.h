/* pipeline.h - xbgpu's worker for correlation: one thread that feeds the device.
 *
 * Flow:      chunks of all members --matcher--> set --upload--> device input (input.h)
 *            each output: its windows' share of the batches --correlate--> sums --reduce--> dump --download--> audit
 *            --> sender
 * Missing:   absent heaps are zeroed on the device, so they add nothing; who was there is kept per window (window.h).
 * Ownership: a chunk goes back to its receiver when its upload is done; a device input when its correlation is; a dump
 *            when sent.
 * Threads:   the worker itself; the functions below are for main.
 * Blocking:  the worker sleeps only on its inbox, and waits for the device only when it ends. */
#ifndef XBGPU_PIPELINE_H
#define XBGPU_PIPELINE_H

#include "common/daemon/daemon.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes everything between the sockets: receivers, device side, senders ('values' is a struct xbgpu_config; the
 * pipeline made is a struct xbgpu_pipeline).  Signature and errors: daemon.h. */
int xbgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                          size_t why_bytes);

/* What requests it answers (daemon.h). */
void xbgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* Starts senders, worker and receivers, in that order. */
int xbgpu_pipeline_start(void *pipeline);

/* Has packets come.  Returns 0 or negative errno with one sentence in 'why'. */
int xbgpu_pipeline_enable(void *pipeline, char *why, size_t why_bytes);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads.  An
 * accumulation that has not ended is not sent.  From 'give_up_ns' on no more chunks are begun, and no more dumps sent.
 * Returns false if it had to give up, or if a capture could not be written. */
bool xbgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* NULL is accepted. */
void xbgpu_pipeline_destroy(void *pipeline);

#endif
