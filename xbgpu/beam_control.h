/* beam_control.h - handles the KATCP requests for beams: checks them, saves the settings, and posts commands to the
 * worker (control.h).
 *
 * State:     the file "beams" of the state directory contains the settings; calibration.h names the files of
 *            calibrations.
 * Threads:   main. */
#ifndef XBGPU_BEAM_CONTROL_H
#define XBGPU_BEAM_CONTROL_H

#include "xbgpu/config/layout.h"

#include <stdbool.h>

struct engine;
struct katcp_call;
struct labels;
struct state_files;
struct xbgpu_beam_control;
struct xbgpu_beams;
struct xbgpu_command;
struct xbgpu_detected;

/* Creates the control and adds the sensors.  If the configuration has no beams, '*control' refuses all requests for
 * beams.  Returns 0 or negative errno; the caller must call destroy in either case. */
int xbgpu_beam_control_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                              const struct labels *labels, struct engine *engine, struct xbgpu_beams *formed,
                              struct xbgpu_detected *detected, struct xbgpu_beam_control **control);

/* Posts the saved settings, and the calibration that the files contain.  Returns 0, or negative errno with one sentence
 * in 'why'. */
int xbgpu_beam_control_restore(struct xbgpu_beam_control *control, struct state_files *files, char *why,
                               size_t why_bytes);

/* Destroys the control, after the state files have been closed.  NULL is accepted. */
void xbgpu_beam_control_destroy(struct xbgpu_beam_control *control);

/* Requests: ?beam-weights, ?beam-delays, ?beam-quant-gains, ?beam-calibration. */
void xbgpu_beam_control_weights(struct xbgpu_beam_control *control, struct katcp_call *call);
void xbgpu_beam_control_delays(struct xbgpu_beam_control *control, struct katcp_call *call);
void xbgpu_beam_control_gain(struct xbgpu_beam_control *control, struct katcp_call *call);
void xbgpu_beam_control_calibration(struct xbgpu_beam_control *control, struct katcp_call *call);

/* Handles ?capture-start and ?capture-stop.  The caller ensures that a command slot is free.  Returns whether the call
 * names a stream of beams. */
bool xbgpu_beam_control_capture(struct xbgpu_beam_control *control, bool on, int64_t from_samples,
                                struct katcp_call *call);

/* Sets the sensors of a beam after the worker has applied a steering command. */
void xbgpu_beam_control_show(struct xbgpu_beam_control *control, const struct xbgpu_command *command);

#endif
