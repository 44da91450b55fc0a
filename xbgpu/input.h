/* input.h - xbgpu's device inputs: sets of chunks on the device, where inputs are shifted with history in front of
 * them, as batches that outputs can correlate.
 *
 * Flow:      matcher's set --upload--> device input [history batches | chunk's batches][antenna][channel][spectrum][pol]
 *            --select_spectra, where inputs are shifted--> batches of an input
 * Shifts:    input i at spectrum t reads t - shift[i].  Batch b of an input is batch b of its chunk, or the one before it
 *            where some input reads ahead (layout.n_lag), so that all reads are delays by up to layout.n_history
 *            batches.  An antenna counts as present in a batch if every heap that its two inputs' reads touch came.
 *            Set 0 of shifts is recv's, which commands change; it is shifted here, once for all that have it.  Other sets are
 *            of one output each, which has select_spectra shift the batches that it takes (output.c).
 * History:   after an upload the last n_history batches of the device input before it are copied in front of it on the
 *            device, presence likewise; absent if the chunk before it is missing.  No chunk waits for the next: only the
 *            lag's batch does, and the batches behind it are absent where no chunk follows.
 *            A batch is correlated only if any heap of its chunk came.  So spectra that a shift would move from such a
 *            chunk into a missing chunk are lost.
 * Missing:   absent heaps are zeros in the correlated batches, so they add nothing.
 * Ownership: a chunk goes back to its receiver when its upload is done and neither outputs nor the audit will look at it
 *            again, which with history is n_history sets later; a device input when its last reader is done.
 *            A chunk that the host cannot read is never looked at again.
 * Threads:   the worker only.   Blocking: never. */
#ifndef XBGPU_INPUT_H
#define XBGPU_INPUT_H

#include "common/engine/lane.h"
#include "xbgpu/layout.h"
#include "xbgpu/send.h"

#include <stdbool.h>

struct command;
struct engine;
struct xbgpu_beams;
struct xbgpu_detected;
struct xbgpu_inputs;

/* Makes the engine's one lane, with all outputs, and with beams of both kinds (NULL: none).  Returns 0 or negative errno. */
int xbgpu_inputs_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                        struct xbgpu_send *send, struct xbgpu_beams *beams, struct xbgpu_detected *detected,
                        struct xbgpu_inputs **inputs);

/* The engine's operations (common/engine/engine.h); the command is a struct xbgpu_command. */
bool xbgpu_inputs_begin(struct lane *lane, bool ended);
bool xbgpu_inputs_process(struct lane *lane, bool may_wait);
void xbgpu_inputs_release(struct lane *lane);
void xbgpu_inputs_flush(struct lane *lane);
void xbgpu_inputs_apply(struct engine *engine, struct command *command);

/* Logs how many chunks were of no use. */
void xbgpu_inputs_log(const struct xbgpu_inputs *inputs);

/* The streams of the device must be idle.  NULL is accepted. */
void xbgpu_inputs_destroy(struct xbgpu_inputs *inputs);

#endif
