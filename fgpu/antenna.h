/* antenna.h - one antenna in fgpu's worker: its two polarisations put together, uploaded, and walked by every output.
 *
 * Flow:      chunks of two inputs --matcher--> pair --upload--> device input [history | chunk]
 *            each output walks through the device input (output.h)
 * History:   after upload k, the last history_samples of device input k-1 are copied in front of it on the device,
 *            presence likewise; absent if chunk k-1 is missing.  No chunk waits for the next.
 * Ends:      a stream starts with the first heap that each polarisation has in their first common chunk, and ends with
 *            the last: what lies outside is not skipped but was never expected.
 * Ownership: a chunk goes back to its receiver when its upload is done; a device input when the next chunk's history
 *            has been copied out of it; an output buffer when sent.
 * Threads:   the worker only.   Blocking: never; where it cannot go on it returns and is called again when a buffer is
 *            back. */
#ifndef FGPU_ANTENNA_H
#define FGPU_ANTENNA_H

#include "common/recv/chunk.h"
#include "fgpu/layout.h"
#include "fgpu/output.h"

#include <stdbool.h>

struct fgpu_antenna;

struct fgpu_antenna_config {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct device *device;
    struct device_stream *upload;   /* shared by all antennas */
    struct device_stream *download; /* shared by all antennas */
    struct fgpu_send *send;
    size_t ant;
    struct inbox *worker;
    int input_free_kind;               /* a device input is free: {input_free_kind, 0, struct fgpu_device_input} */
    const uint64_t *dither_seeds;      /* [output] */
    const struct fgpu_choice *choices; /* [output] */
    float *const *filters;             /* [output]; NULL of a wide band */
    struct sensors *sensors;
    struct command_channel *channel; /* woken when gains are free again */
};

int fgpu_antenna_create(const struct fgpu_antenna_config *config, struct fgpu_antenna **antenna);

/* A full chunk of polarisation 'pol'; it has one reader, us. */
void fgpu_antenna_add_chunk(struct fgpu_antenna *antenna, unsigned pol, struct chunk *chunk);

/* A device input is free again; says whose. */
struct fgpu_antenna *fgpu_antenna_give_input(struct fgpu_device_input *input);

/* No more chunks will come.  The chunks that are there are processed; none is dropped where no buffer is free. */
void fgpu_antenna_end(struct fgpu_antenna *antenna);

/* Gives back the chunks that have not been begun.  Returns how many. */
size_t fgpu_antenna_drop(struct fgpu_antenna *antenna);

/* Goes on as far as possible.  'may_wait': rather stop and be called again than drop a batch for want of an output
 * buffer (file sources, draining).  Returns true when nothing is left to do. */
bool fgpu_antenna_advance(struct fgpu_antenna *antenna, bool may_wait);

/* Whether the data's time has begun again earlier since it was last asked. */
bool fgpu_antenna_went_back(struct fgpu_antenna *antenna);

/* From any thread: the walk of one output. */
struct fgpu_output *fgpu_antenna_walk(const struct fgpu_antenna *antenna, size_t output);

/* All that was set of any output shows in what is made from this timestamp on. */
int64_t fgpu_antenna_steady_samples(const struct fgpu_antenna *antenna);

/* An output buffer is in host memory: what it says of the inputs is taken note of. */
void fgpu_antenna_measure(struct fgpu_antenna *antenna, const struct fgpu_buffer *buffer);

/* Sends the whole batches of buffers begun.  After fgpu_antenna_end() and an advance that returned true. */
void fgpu_antenna_flush(struct fgpu_antenna *antenna);

/* Logs how many chunks were of no use, and the inputs' power. */
void fgpu_antenna_log(const struct fgpu_antenna *antenna);

/* All streams of the device must be idle.  NULL is accepted. */
void fgpu_antenna_destroy(struct fgpu_antenna *antenna);

#endif
