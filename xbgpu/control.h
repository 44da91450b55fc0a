/* control.h - handles the KATCP requests of a running xbgpu: checks them, saves the settings, and posts commands to the
 * worker.
 *
 * Flow:      katcp/server.c --request--> whole request checked --command--> worker applies it --answer--> reply
 *            The reply waits for the worker, so that steady-state-timestamp is up to date when the client receives the
 *            reply.  If the timestamps of the data go back, steady-state-timestamp goes back, too.
 * State:     the file "control" of the state directory contains the settings.  At the next start, these settings
 *            override the YAML.
 * Threads:   main.
 *
 * ?capture-start STREAM [TIMESTAMP], ?capture-stop STREAM, ?input-shift [INPUT [SHIFT INPUT SHIFT...]],
 * ?gate [NAME [FROM KEY=VALUE...]], ?beam-weights BEAM WEIGHT..., ?beam-delays BEAM [LOAD_TIME] DELAY:PHASE...,
 * ?beam-quant-gains BEAM GAIN, ?beam-calibration INPUT VALUE...; docs/katcp.md. */
#ifndef XBGPU_CONTROL_H
#define XBGPU_CONTROL_H

#include "xbgpu/config/layout.h"

struct engine;
struct katcp_device;
struct xbgpu_beams;
struct xbgpu_detected;
struct xbgpu_control;
struct labels;

/* Creates the control, and posts the saved settings as commands, so that the worker applies them before the first data.
 * The slots of the engine's command channel must have the size of a struct xbgpu_command.  Returns 0, or negative errno
 * with one sentence in 'why'. */
int xbgpu_control_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                         const struct labels *labels, struct engine *engine, struct xbgpu_beams *beams,
                         struct xbgpu_detected *detected, struct xbgpu_control **control, char *why, size_t why_bytes);

/* Registers the requests with 'device'. */
void xbgpu_control_serve(struct xbgpu_control *control, struct katcp_device *device);

/* Writes the settings to the state file, and destroys the control.  The worker must have ended, and no request may
 * wait for an answer.  NULL is accepted. */
void xbgpu_control_destroy(struct xbgpu_control *control);

#endif
