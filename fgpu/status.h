/* status.h - fgpu's part of /status.json: its antennas and outputs, delays in effect, and spectra of its outputs.
 *
 * Flow:      HTTP --request (snapshot.h)--> worker.  After the download of the stream's next finished buffer
 *            (output.h), the worker samples the buffer and answers HTTP.
 * Samples:   at most one sample per second and stream, and no sample without a request.  A sample averages the power
 *            of spectra of one batch that will be sent.  The spectra have FGPU_PREVIEW_SAMPLES complex samples, which
 *            take about a millisecond of the worker's time (fgpu_snapshot_seconds).  Sampling occupies no extra buffer,
 *            and delays the sampled buffer only by this time.  With send.gpudirect only these spectra, at most 2 MiB,
 *            are downloaded.
 * Threads:   the worker calls fgpu_status_sample(), HTTP calls fgpu_status_describe(). */
#ifndef FGPU_STATUS_H
#define FGPU_STATUS_H

#include "common/http/status.h"
#include "fgpu/antenna.h"

struct fgpu_status;

/* Creates the status.  Returns 0 or -ENOMEM.  'send' must remain valid while fgpu_status_describe() may be called. */
int fgpu_status_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct fgpu_send *send,
                       struct fgpu_status **status);

/* If HTTP has requested a sample, computes values for the status page from 'buffer'.  The buffer belongs to a stream of
 * 'antenna'.  Called after the buffer's download and before the sending of the buffer. */
void fgpu_status_sample(struct fgpu_status *status, const struct lane *antenna, const struct fgpu_buffer *buffer);

/* Describes fgpu as in common/http/status.h; 'arg' is the struct fgpu_status. */
void fgpu_status_describe(void *arg, const struct status_query *query, json_t *into);

/* Destroys the status.  NULL is accepted. */
void fgpu_status_destroy(struct fgpu_status *status);

/* Writes the mean powers of 'n_spectra' spectra of a batch to power[pol][chan], in units of the square of one
 * quantisation step.  The batch is [chan][spectrum of n_heap_spectra][pol], with 4 or 8 bits per component.  This
 * function is public for its test. */
void fgpu_status_power(const uint8_t *voltages, int sample_bits, size_t n_chan, size_t n_heap_spectra, size_t n_spectra,
                       float *const power[N_POLS]);

#endif
