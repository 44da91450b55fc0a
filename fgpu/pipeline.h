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

/* [main] Posts delay models of one antenna's one output, in place of those that there are; fgpu_output_set_delays() says
 * when they hold, and a copy is made.  What was posted before the start holds from the first spectrum on.  Returns 0,
 * or -EAGAIN where the worker has not yet taken in what was posted before. */
int fgpu_pipeline_set_delays(void *pipeline, size_t ant, size_t output, const struct fgpu_delays *delays);

/* The same of gains, complex [chan][pol]: they hold from the first batch of the next output buffer on. */
int fgpu_pipeline_set_gains(void *pipeline, size_t ant, size_t output, const float *gains);

/* [main] How many such commands have been posted, and how many of them the worker has carried out: all that is made
 * from timestamp 'steady_samples' on shows those.  It goes back where the data's time does (output.h), and then
 * fgpu_control_time_went_back() says so. */
uint64_t fgpu_pipeline_n_posted(const void *pipeline);
uint64_t fgpu_pipeline_n_obeyed(const void *pipeline, int64_t *steady_samples);

/* fgpu_output_confirmed_samples() of one antenna's one output. */
int64_t fgpu_pipeline_confirmed_samples(const void *pipeline, size_t ant, size_t output);

/* The requests that it answers. */
void fgpu_pipeline_control(void *pipeline, struct katcp_device *device);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads.  From
 * 'give_up_ns' on no more chunks are begun, and no more heaps sent.  Returns false if it had to give up, or if a capture
 * could not be written. */
bool fgpu_pipeline_stop(void *pipeline, int64_t give_up_ns);

/* NULL is accepted. */
void fgpu_pipeline_destroy(void *pipeline);

#endif
