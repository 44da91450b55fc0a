/* antenna.h - one antenna, which is a lane of fgpu's engine.  The antenna combines chunks of its two polarisations
 * that have the same timestamp, and uploads each pair.  Every output reads these pairs.
 *
 * Flow:      chunks of two inputs --matcher--> pair --upload--> device input [history | chunk]
 *            each output reads the device input (output.h)
 * History:   after upload k, the last history_samples of device input k-1 are copied in front of it on the device,
 *            with their presence flags.  The history is absent if chunk k-1 is missing.  No chunk waits for the next
 *            chunk.
 * Ends:      a stream starts with the first heap of each polarisation in their first common chunk, and ends with the
 *            last heap of each polarisation.  Heaps before this start and after this end do not count as skipped,
 *            because they do not belong to the stream.
 * Ownership: a chunk returns to its receiver when its upload is done.  A device input is free when the next chunk's
 *            history has been copied from it.  An output buffer is free when it has been sent.
 * Threads:   the worker only.   Blocking: never.  A function that cannot continue returns; the engine calls the
 *            function again when a buffer has been returned. */
#ifndef FGPU_ANTENNA_H
#define FGPU_ANTENNA_H

#include "common/engine/lane.h"
#include "fgpu/config/layout.h"
#include "fgpu/output.h"

#include <stdbool.h>

struct chunk;
struct command;
struct engine;
struct fgpu_gnss;

/* Creates all antennas, each as a lane of the engine: engine->lanes[ant].  'gnss' also processes the antennas' device
 * inputs.  Returns 0 or negative errno; on failure no antenna exists. */
int fgpu_antennas_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                         struct fgpu_send *send, struct fgpu_gnss *gnss, const struct fgpu_choice *choices);

/* The engine's operations on an antenna (common/engine/engine.h).  The command is a struct fgpu_command. */
void fgpu_antenna_look(struct lane *lane, unsigned pol, const struct chunk *chunk);
bool fgpu_antenna_begin(struct lane *lane, bool ended);
bool fgpu_antenna_process(struct lane *lane, bool may_wait);
void fgpu_antenna_release(struct lane *lane);
bool fgpu_antenna_flush(struct lane *lane);
void fgpu_antenna_apply(struct engine *engine, struct command *command);

/* [any] Returns one output of an antenna. */
struct fgpu_output *fgpu_antenna_output(const struct lane *lane, size_t output);

/* Adds the input power in a downloaded output buffer to the antenna's power windows (level.h), if the buffer's output
 * measures the inputs. */
void fgpu_antenna_measure(struct lane *lane, const struct fgpu_buffer *buffer);

/* Logs the number of chunks that were discarded, and the input power of both polarisations. */
void fgpu_antenna_log(const struct lane *lane);

/* Destroys all antennas.  All streams of the device must be idle.  A zero-initialised engine is accepted. */
void fgpu_antennas_destroy(struct engine *engine);

#endif
