/* detected.h - detected beams: computes the powers of all beams of a stream from the batches of a device input, and
 * makes heaps of the powers.
 *
 * Flow:      xbgpu_detected_process(input) --beam_coefficients, after steering--> beam_detect adds to the powers of the
 *            open heap; at the heap's end beam_finish --> download --> xbgpu_detected_push --job--> sender
 * Time:      heap n of a stream has the spectra [n * N, (n + 1) * N), counted from the sync time, where N = windows *
 *            spectra.  So a device input and a heap can begin and end at different times.  If the timestamps jump
 *            beyond the open heap, or go back, the open heap is finished with the data so far.
 * Missing:   absent antennas and batches add nothing.  For each window a heap states the fraction of the window's data
 *            that was present.  A heap without any data is not made.  A heap that is still open when the process ends
 *            is dropped.
 * Steering:  takes effect with the first batch of the next device input, but not before the load time (steering.h).
 * Incoherent: a stream may have one incoherent beam, made by beam_incoherent, instead of coherent beams.  The
 *            incoherent beam uses only the amplitudes of its steering (incoherent.h).
 * Beams:     beam numbers count the beams of all streams, in the order of the configuration.
 * Ownership: as in common/engine/outbuf.h; the open heap's buffer belongs to the worker.
 * Threads:   the worker, except create and destroy (main).   Blocking: never; xbgpu_detected_process() returns false if
 *            no buffer is free. */
#ifndef XBGPU_BEAM_DETECTED_H
#define XBGPU_BEAM_DETECTED_H

#include "common/http/status.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"

#include <stdbool.h>

struct engine;
struct outbuf;
struct xbgpu_detected;

/* Creates buffers, kernels and streams.  The engine must already have its senders.  If there is no stream of detected
 * beams, '*detected' is NULL, which all functions accept.  Returns 0, or negative errno with one sentence in 'why'. */
int xbgpu_detected_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                          struct xbgpu_detected **detected, char *why, size_t why_bytes);

/* Destroys the detected beams.  The streams of the device must be idle.  NULL is accepted. */
void xbgpu_detected_destroy(struct xbgpu_detected *detected);

/* Begins a device input.  All batches of the device input use the steering that was set before this call. */
void xbgpu_detected_begin(struct xbgpu_detected *detected, const struct xbgpu_output_input *input);

/* Queues the computation of the device input's powers on the device stream 'compute'.  If no buffer is free and
 * 'may_wait' is true, returns false.  If no buffer is free and 'may_wait' is false, drops and counts the part of the
 * heap that lies in this device input. */
bool xbgpu_detected_process(struct xbgpu_detected *detected, struct device_stream *compute,
                            const struct xbgpu_output_input *input, bool may_wait);

/* Steers a beam with the model 'steering' [pol][ant], which starts at 'start_samples' (steering.h).  May also be called
 * before the worker starts (main). */
void xbgpu_detected_steer(struct xbgpu_detected *detected, size_t beam, int64_t start_samples,
                          const struct beam_steering *steering);

/* Sets the calibration gains of an antenna's input for all beams.  'gains' is complex [chan].  May also be called
 * before the worker starts (main). */
void xbgpu_detected_calibrate(struct xbgpu_detected *detected, size_t input, const float *gains);

/* Sets the capture of a beam's stream.  Returns the value that xbgpu_beam_stream_set_capture() returns. */
int64_t xbgpu_detected_set_capture(struct xbgpu_detected *detected, size_t beam, bool on, int64_t from_samples);

/* [any] Returns the timestamp up to which a beam's heaps have been made. */
int64_t xbgpu_detected_next_samples(struct xbgpu_detected *detected, size_t beam);

/* Returns whether a buffer belongs to the detected beams. */
bool xbgpu_detected_own(const struct xbgpu_detected *detected, const struct outbuf *buffer);

/* Compares the powers of a downloaded buffer with the results of the host's audit, if the audit drew from this heap.
 * Returns whether they agree. */
bool xbgpu_detected_check(struct outbuf *buffer);

/* Hands a downloaded buffer to the sender. */
void xbgpu_detected_push(struct outbuf *buffer);

/* [HTTP] Adds "detected" to the JSON. */
void xbgpu_detected_describe(const struct xbgpu_detected *detected, json_t *into);

/* Logs the counts of each stream, after the senders have stopped. */
void xbgpu_detected_log(const struct xbgpu_detected *detected);

#endif
