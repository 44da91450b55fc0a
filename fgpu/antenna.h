/* antenna.h - one antenna, a lane of fgpu's engine: two polarisations matched, uploaded, and read by every output.
 *
 * Flow:      chunks of two inputs --matcher--> pair --upload--> device input [history | chunk]
 *            each output reads the device input (output.h)
 * History:   after upload k, the last history_samples of device input k-1 are copied in front of it on the device,
 *            presence likewise; absent if chunk k-1 is missing.  No chunk waits for the next.
 * Ends:      a stream starts with the first heap that each polarisation has in their first common chunk, and ends with
 *            the last.  Heaps outside these ends do not count as skipped, because the stream never expected them.
 * Ownership: a chunk goes back to its receiver when its upload is done; a device input when the next chunk's history
 *            has been copied out of it; an output buffer when sent.
 * Threads:   the worker only.   Blocking: never; where it cannot go on it returns and is called again when a buffer is
 *            back. */
#ifndef FGPU_ANTENNA_H
#define FGPU_ANTENNA_H

#include "common/engine/lane.h"
#include "fgpu/layout.h"
#include "fgpu/output.h"

#include <stdbool.h>

struct chunk;
struct command;
struct engine;
struct fgpu_gnss;

/* Makes all antennas, each a lane of the engine: engine->lanes[ant]; 'gnss' gets their inputs, too.  Returns 0 or negative errno; then there are none. */
int fgpu_antennas_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                         struct fgpu_send *send, struct fgpu_gnss *gnss, const struct fgpu_choice *choices);

/* The engine's operations (common/engine/engine.h); the command is a struct fgpu_command. */
void fgpu_antenna_look(struct lane *lane, unsigned pol, const struct chunk *chunk);
bool fgpu_antenna_begin(struct lane *lane, bool ended);
bool fgpu_antenna_process(struct lane *lane, bool may_wait);
void fgpu_antenna_release(struct lane *lane);
void fgpu_antenna_flush(struct lane *lane);
void fgpu_antenna_apply(struct engine *engine, struct command *command);

/* [any] One output of an antenna. */
struct fgpu_output *fgpu_antenna_output(const struct lane *lane, size_t output);

/* Takes the inputs' power from an output buffer that has reached host memory. */
void fgpu_antenna_measure(struct lane *lane, const struct fgpu_buffer *buffer);

/* Logs how many chunks were of no use, and the inputs' power. */
void fgpu_antenna_log(const struct lane *lane);

/* Requires that all streams of the device are idle.  An engine of zeros is accepted. */
void fgpu_antennas_destroy(struct engine *engine);

#endif
