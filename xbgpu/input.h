/* input.h - xbgpu's device inputs: uploads sets of chunks to the device as batches for the outputs.  If inputs are
 * shifted, history precedes the batches.
 *
 * Flow:      matcher's set --upload-->
 *            device input [history batches | chunk's batches][antenna][channel][spectrum][pol]
 *            --select_spectra, if inputs are shifted--> batches of an input
 * Shifts:    antenna input i at spectrum t reads spectrum t - shift[i].  Batch b of a device input is batch b of its
 *            chunk.  If any shift is negative, batch b of a device input is batch b - 1 (layout.n_lag).  The data for
 *            batch b come from batch b of the chunk, and from up to layout.n_history batches before it.  An antenna
 *            counts as present in a batch if all heaps that its two antenna inputs read have arrived.
 * Sets:      set 0 of shifts is recv.shifts, and commands change this set.  The voltages of set 0 are shifted here, once
 *            for all outputs with this set.  Each other set belongs to one output.  This output shifts the batches of
 *            its accumulation by select_spectra (output.c).
 * History:   after an upload the last n_history batches of the previous device input are copied in front of the new
 *            batches.  The voltages are copied on the device, and their presence on the host.  The history is absent if
 *            the previous chunk is missing.  With a lag, the last batch of a chunk waits for the next chunk.  No other
 *            batch waits.  If no chunk follows, the batch after the chunk counts as absent.  A batch is correlated only
 *            if at least one heap of its chunk has arrived.  So if a shift would move spectra into a missing chunk,
 *            these spectra are lost.
 * Missing:   absent heaps are zeros in the correlated batches, so they add nothing.
 * Ownership: a chunk returns to its receiver when its upload has ended and neither outputs nor the audit will read it
 *            again.  With history, the chunk returns n_history sets later.  If the host cannot read a chunk, the
 *            chunk is not read after the upload.  A device input returns when its last reader has ended.
 * Threads:   the worker only.   Blocking: never. */
#ifndef XBGPU_INPUT_H
#define XBGPU_INPUT_H

#include "common/engine/lane.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/send.h"

#include <stdbool.h>

struct command;
struct engine;
struct xbgpu_beams;
struct xbgpu_detected;
struct xbgpu_inputs;

/* Creates the single lane of the engine, with all outputs.  'beams' and 'detected' are NULL if there are no such beams.
 * Returns 0 or negative errno. */
int xbgpu_inputs_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                        struct xbgpu_send *send, struct xbgpu_beams *beams, struct xbgpu_detected *detected,
                        struct xbgpu_inputs **inputs);

/* These functions implement the engine's operations (common/engine/engine.h).  The command is a struct
 * xbgpu_command. */
bool xbgpu_inputs_begin(struct lane *lane, bool ended);
bool xbgpu_inputs_process(struct lane *lane, bool may_wait);
void xbgpu_inputs_release(struct lane *lane);
bool xbgpu_inputs_flush(struct lane *lane);
void xbgpu_inputs_apply(struct engine *engine, struct command *command);

/* Logs the number of chunks that arrived too late. */
void xbgpu_inputs_log(const struct xbgpu_inputs *inputs);

/* Destroys the inputs.  The streams of the device must be idle.  NULL is accepted. */
void xbgpu_inputs_destroy(struct xbgpu_inputs *inputs);

#endif
