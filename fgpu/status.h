/* status.h - what fgpu adds to /status.json: its antennas and outputs, delays in force, and spectra of what it sends.
 *
 * Flow:      HTTP asks --snapshot.h--> worker, of the next buffer of a stream that it finishes (output.h), when that has
 *            been downloaded: looks --> HTTP
 * Looks:     at most one a second of each stream, and none unless somebody asks.  A look averages the power of spectra
 *            of one batch that will be sent, as many as make FGPU_PREVIEW_SAMPLES complex samples: a millisecond or so of
 *            the worker (fgpu_look_seconds).  It holds no buffer and delays none but by that.  With send.gpudirect
 *            these spectra, 2 MiB at most, are what is downloaded of the buffer.
 * Threads:   fgpu_status_sample() is the worker's, fgpu_status_describe() HTTP's. */
#ifndef FGPU_STATUS_H
#define FGPU_STATUS_H

#include "common/http/status.h"
#include "fgpu/antenna.h"

struct fgpu_status;

/* Returns 0 or -ENOMEM.  'send' must live as long as anybody describes. */
int fgpu_status_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct fgpu_send *send,
                       struct fgpu_status **status);

/* A downloaded buffer, before it is sent, of a stream of 'antenna': looks at it if that is wanted. */
void fgpu_status_sample(struct fgpu_status *status, const struct lane *antenna,
                        const struct fgpu_buffer *buffer);

/* As of status.h; 'arg' is the struct fgpu_status. */
void fgpu_status_describe(void *arg, const struct status_query *query, json_t *into);

/* NULL is accepted. */
void fgpu_status_destroy(struct fgpu_status *status);

/* Writes the mean powers of 'n_spectra' spectra of a batch to power[pol][chan], in squares of the smallest step.  The
 * batch is [chan][spectrum of n_heap_spectra][pol], 4 or 8 bits a component.  Public for its test. */
void fgpu_status_power(const uint8_t *voltages, int sample_bits, size_t n_chan, size_t n_heap_spectra, size_t n_spectra,
                       float *const power[N_POLS]);

#endif
