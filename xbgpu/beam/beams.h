/* beams.h - voltage beams: makes heaps of all beams from the batches of a device input, and sends the heaps as one
 * SPEAD stream.
 *
 * Flow:      xbgpu_beams_process(input) --beam_coefficients, after steering--> beamform --> output buffer
 *            --download--> xbgpu_beams_push --job--> sender: a group for each batch, a heap for each beam --> network
 * Steering:  takes effect with the first batch of the next device input, but not before the load time (steering.h).
 * Missing:   absent antennas add nothing to a beam.  If beams[].renormalise is set, the beam is scaled up to
 *            compensate.  The item beam_ants reports the number of antennas present.  A batch without any antenna is
 *            not sent.
 * Capture:   beams are always computed.  When a buffer is pushed, the capture decides which of its heaps are sent.
 * Ownership: as in common/engine/outbuf.h.
 * Threads:   the worker, except create and destroy (main).   Blocking: never; xbgpu_beams_process() returns false if no
 *            buffer is free. */
#ifndef XBGPU_BEAM_BEAMS_H
#define XBGPU_BEAM_BEAMS_H

#include "common/base/counter.h"
#include "common/telemetry/sensor.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"

#include <stdbool.h>

struct engine;
struct outbuf;
struct xbgpu_beam_health;
struct xbgpu_beams;

/* Creates buffers, kernels and the stream.  The engine must already have its senders.  If there are no beams, '*beams'
 * is NULL, which all functions accept.  Returns 0, or negative errno with one sentence in 'why'. */
int xbgpu_beams_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                       struct xbgpu_beams **beams, char *why, size_t why_bytes);

/* Destroys the beams.  The streams of the device must be idle.  NULL is accepted. */
void xbgpu_beams_destroy(struct xbgpu_beams *beams);

/* Begins a device input.  All batches of the device input use the steering that was set before this call. */
void xbgpu_beams_begin(struct xbgpu_beams *beams);

/* Queues the computation of the device input's beams on the device stream 'compute'.  If no buffer is free and
 * 'may_wait' is true, returns false.  If no buffer is free and 'may_wait' is false, drops and counts the batches. */
bool xbgpu_beams_process(struct xbgpu_beams *beams, struct device_stream *compute,
                         const struct xbgpu_output_input *input, bool may_wait);

/* Steers a beam with the model 'steering' [ant], which starts at 'start_samples' (steering.h).  May also be called
 * before the worker starts (main). */
void xbgpu_beams_steer(struct xbgpu_beams *beams, size_t beam, int64_t start_samples,
                       const struct beam_steering *steering);

/* Sets the calibration gains of an antenna's input for all beams.  'gains' is complex [chan].  May also be called
 * before the worker starts (main). */
void xbgpu_beams_calibrate(struct xbgpu_beams *beams, size_t input, const float *gains);

/* Sets a beam's capture.  Returns the value that xbgpu_beam_stream_set_capture() returns. */
int64_t xbgpu_beams_set_capture(struct xbgpu_beams *beams, size_t beam, bool on, int64_t from_samples);

/* [any] Returns the timestamp up to which a beam has been made. */
int64_t xbgpu_beams_next_samples(const struct xbgpu_beams *beams, size_t beam);

/* Returns whether a buffer belongs to the beams. */
bool xbgpu_beams_own(const struct xbgpu_beams *beams, const struct outbuf *buffer);

/* Compares a downloaded buffer with the results of the host's audit.  Returns whether they agree. */
bool xbgpu_beams_check(struct outbuf *buffer);

/* Hands a downloaded buffer to the sender. */
void xbgpu_beams_push(struct outbuf *buffer);

/* Returns the statistics of the beams; NULL if there are no beams. */
struct xbgpu_beam_health *xbgpu_beams_health(const struct xbgpu_beams *beams);

/* Returns the seed of a beam's dither. */
uint64_t xbgpu_beams_seed(const struct xbgpu_beams *beams, size_t beam);

/* Logs the counts of each beam, after the senders have stopped. */
void xbgpu_beams_log(const struct xbgpu_beams *beams);

#endif
