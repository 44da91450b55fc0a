/* detected.h - detected beams: makes heaps of the powers of all beams of a stream from the batches of an input.
 *
 * Flow:      xbgpu_detected_process(input) --beam_coefficients, after steering--> beam_detect adds to the powers of the
 *            open heap; at the heap's end beam_finish --> download --> xbgpu_detected_push --job--> sender
 * Time:      heap n of a stream has the spectra [n N, (n + 1) N) counted from the sync time, N = windows * spectra.  So
 *            inputs and heaps begin and end independently.  If time jumps ahead of the open heap, or goes back, the
 *            open heap ends as it is.
 * Missing:   absent antennas and batches add nothing.  The fraction that a heap has for each window says how much of
 *            the window's data was present.  A heap without any data is not made.  A heap that is open when the process
 *            ends is dropped.
 * Steering:  takes effect with the first batch that is in no input yet, but not before the load time (steering.h).
 * Incoherent: a stream may have one incoherent beam, made by beam_incoherent, instead of coherent beams.  The
 *            incoherent beam uses only the amplitudes of its steering (incoherent.h).
 * Beams:     beam numbers count the beams of all streams, in the order of the configuration.
 * Ownership: as in common/engine/outbuf.h; the open heap's buffer belongs to the worker.
 * Threads:   the worker, except create and destroy (main).   Blocking: never; process returns if it needs a buffer. */
#ifndef XBGPU_DETECTED_H
#define XBGPU_DETECTED_H

#include "common/http/status.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/layout.h"
#include "xbgpu/output.h"

#include <stdbool.h>

struct engine;
struct outbuf;
struct xbgpu_detected;

/* Creates buffers, kernels and streams.  The engine must already have its senders.  Without a stream of detected beams
 * '*detected' is NULL, which all functions accept.  Returns 0, or negative errno with one sentence in 'why'. */
int xbgpu_detected_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                          struct xbgpu_detected **detected, char *why, size_t why_bytes);

/* Destroys the detected beams.  The streams of the device must be idle.  NULL is accepted. */
void xbgpu_detected_destroy(struct xbgpu_detected *detected);

/* Begins an input.  All its batches have the steering that was set before. */
void xbgpu_detected_begin(struct xbgpu_detected *detected, const struct xbgpu_output_input *input);

/* Queues the powers of the input on 'compute', the lane's stream.  If no buffer is free and 'may_wait' is true, returns
 * false.  Without 'may_wait' drops and counts the input's part of the heap. */
bool xbgpu_detected_process(struct xbgpu_detected *detected, struct device_stream *compute,
                            const struct xbgpu_output_input *input, bool may_wait);

/* Steers a beam with a model that starts at 'start_samples' (steering.h): steering [pol][ant].  May also be called
 * before the worker starts (main). */
void xbgpu_detected_steer(struct xbgpu_detected *detected, size_t beam, int64_t start_samples,
                          const struct beam_steering *steering);

/* Calibrates an input for all beams: gains, complex [chan].  May also be called before the worker starts (main). */
void xbgpu_detected_calibrate(struct xbgpu_detected *detected, size_t input, const float *gains);

/* Sets the capture of a beam's stream, as xbgpu_beam_stream_set_capture() does. */
int64_t xbgpu_detected_set_capture(struct xbgpu_detected *detected, size_t beam, bool on, int64_t from_samples);

/* [any] Returns the timestamp up to which a beam's heaps have been made. */
int64_t xbgpu_detected_next_samples(struct xbgpu_detected *detected, size_t beam);

/* Returns whether a buffer belongs to the detected beams. */
bool xbgpu_detected_own(const struct xbgpu_detected *detected, const struct outbuf *buffer);

/* Compares the powers of a downloaded buffer with the host's audit, if the audit drew from this heap.  Returns whether
 * they agree. */
bool xbgpu_detected_check(struct outbuf *buffer);

/* Hands a downloaded buffer to the sender. */
void xbgpu_detected_push(struct outbuf *buffer);

/* [HTTP] Adds "detected" to the JSON. */
void xbgpu_detected_describe(const struct xbgpu_detected *detected, json_t *into);

/* Logs the counts of each stream, after the senders have stopped. */
void xbgpu_detected_log(const struct xbgpu_detected *detected);

#endif
