/* pipeline.h - fgpu's worker: one thread that feeds the device for all antennas.
 *
 * Flow:      inbox (chunks, returned buffers, ends) --> the antenna concerned goes on --> output buffers --> senders
 * Threads:   the worker itself; the functions below are for main.
 * Blocking:  the worker sleeps only on its inbox, and waits for the device only when it ends. */
#ifndef FGPU_PIPELINE_H
#define FGPU_PIPELINE_H

#include "fgpu/layout.h"

struct device;
struct fgpu_pipeline;

struct fgpu_pipeline_config {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct device *device;
    /* Called by the worker: with 0 when all sources have ended (files) and all is sent on, with 1 as soon as one has died. */
    void (*ended)(void *context, int exit_code);
    void *context;
};

/* Makes everything between the sockets: receivers, antennas, senders.  Returns 0 or negative errno with one sentence in
 * 'why'. */
int fgpu_pipeline_create(const struct fgpu_pipeline_config *config, struct fgpu_pipeline **pipeline, char *why,
                         size_t why_bytes);

/* Starts senders, worker and receivers, in that order. */
int fgpu_pipeline_start(struct fgpu_pipeline *pipeline);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads. */
void fgpu_pipeline_stop(struct fgpu_pipeline *pipeline);

/* NULL is accepted. */
void fgpu_pipeline_destroy(struct fgpu_pipeline *pipeline);

#endif
