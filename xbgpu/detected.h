/* detected.h - detected beams: from the batches of an input to heaps of the powers of all beams of a stream.
 *
 * Flow:      xbgpu_detected_process(input) --beam_coefficients, where a beam was steered--> beam_detect adds to the
 *            powers of the open heap; at its end beam_finish --> download --> xbgpu_detected_push --job--> sender
 * Time:      heap n of a stream has the spectra [n N, (n + 1) N) counted from the sync time, N = windows * spectra; so
 *            inputs and heaps begin and end independently.  Where time goes on behind a heap, or goes back, the open
 *            heap ends as it is.
 * Missing:   absent antennas and batches add nothing.  The fraction of a window says how much was there.  A heap of
 *            which nothing came is not made.  A heap that is open when the process ends is dropped.
 * Steering:  holds from the first batch that no input has yet, and from its load time on (steering.h).
 * Incoherent: a stream has the incoherent beam in place of coherent ones, by beam_incoherent; of its steering only the
 *            amplitudes are used (incoherent.h).
 * Beams:     are counted over all streams here, in the order of the configuration.
 * Ownership: as in common/engine/outbuf.h; the open heap's buffer is the worker's.
 * Threads:   the worker, except create and destroy (main).   Blocking: never; process returns where it needs one of
 *            the buffers. */
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

/* Makes buffers, kernels and streams.  The engine has its senders already.  With no stream configured
 * '*detected' is NULL, which all functions accept.  Returns 0 or negative errno with one sentence in 'why'. */
int xbgpu_detected_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                          struct xbgpu_detected **detected, char *why, size_t why_bytes);

/* The streams of the device must be idle.  NULL is accepted. */
void xbgpu_detected_destroy(struct xbgpu_detected *detected);

/* A new input, of which all batches have the steering that was set before. */
void xbgpu_detected_begin(struct xbgpu_detected *detected, const struct xbgpu_output_input *input);

/* Queues the powers of the input, 'compute' being the lane's stream.  Returns false if it must wait for a buffer (only
 * if 'may_wait'; else what the heap would have of the input is dropped and counted). */
bool xbgpu_detected_process(struct xbgpu_detected *detected, struct device_stream *compute,
                            const struct xbgpu_output_input *input, bool may_wait);

/* Points a beam by a model that starts at 'start_samples' (steering.h): steering [pol][ant].  Also before the worker starts
 * (main). */
void xbgpu_detected_steer(struct xbgpu_detected *detected, size_t beam, int64_t start_samples,
                          const struct beam_steering *steering);

/* Calibrates an input for all beams: gains, complex [chan].  Also before the worker starts (main). */
void xbgpu_detected_calibrate(struct xbgpu_detected *detected, size_t input, const float *gains);

/* As xbgpu_stream_set_capture(), of the stream of a beam. */
int64_t xbgpu_detected_set_capture(struct xbgpu_detected *detected, size_t beam, bool on, int64_t from_samples);

/* [any] The timestamp up to which a beam's heaps have been made. */
int64_t xbgpu_detected_next_samples(struct xbgpu_detected *detected, size_t beam);

/* Whether a buffer is one of detected beams. */
bool xbgpu_detected_own(const struct xbgpu_detected *detected, const struct outbuf *buffer);

/* Compares a power of a downloaded buffer with the host's, where one was drawn.  Returns whether they agree. */
bool xbgpu_detected_check(struct outbuf *buffer);

/* Hands a downloaded buffer to the sender. */
void xbgpu_detected_push(struct outbuf *buffer);

/* [HTTP] Adds "detected". */
void xbgpu_detected_describe(const struct xbgpu_detected *detected, json_t *into);

/* Logs what each stream sent.  After the senders have stopped. */
void xbgpu_detected_log(const struct xbgpu_detected *detected);

#endif
