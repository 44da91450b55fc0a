/* xpipeline.h - xbgpu's worker for correlation: one thread that feeds the device.
 *
 * Flow:      chunks of all members --matcher--> set --upload--> device input [batch][ant][chan][spectrum][pol]
 *            each output: its windows' share of the batches --correlate--> sums --reduce--> dump --download--> audit -->
 *            sender
 * Missing:   absent heaps are zeroed on the device, so they add nothing; who was there is kept per window (window.h).
 * Ownership: a chunk goes back to its receiver when its upload is done; a device input when its correlation is; a dump when
 *            sent.
 * Threads:   the worker itself; the functions below are for main.
 * Blocking:  the worker sleeps only on its inbox, and waits for the device only when it ends. */
#ifndef XBGPU_XPIPELINE_H
#define XBGPU_XPIPELINE_H

#include "common/stats.h"
#include "xbgpu/layout.h"

struct device;
struct inbox;
struct xpipeline;
struct xstream;

struct xpipeline_config {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct device *device;
    /* Called by the worker: with 0 when all sources have ended (files) and all is sent on, with 1 as soon as one has died. */
    void (*ended)(void *context, int exit_code);
    void *context;
};

/* Makes everything between the sockets.  Returns 0 or negative errno with one sentence in 'why'. */
int xpipeline_create(const struct xpipeline_config *config, struct xpipeline **pipeline, char *why, size_t why_bytes);

/* Starts senders, worker and receivers, in that order. */
int xpipeline_start(struct xpipeline *pipeline);

/* The counters of an output, for tests and status. */
const struct xstream *xpipeline_stream(const struct xpipeline *pipeline, size_t output);

/* 1 while every audited product agreed, 0 after one did not. */
int64_t xpipeline_device_ok(const struct xpipeline *pipeline);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads.  An
 * accumulation that has not ended is not sent. */
void xpipeline_stop(struct xpipeline *pipeline);

/* NULL is accepted. */
void xpipeline_destroy(struct xpipeline *pipeline);

#endif
