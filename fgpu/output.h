/* output.h - one output of an antenna.  The output places the windows of spectra in the antenna's device inputs, fills
 * output buffers with these spectra, and decides when a buffer is complete.
 *
 * Flow:      device input (of a narrow band: the samples of baseband.c) --> spectra whose windows, shifted by their
 *            polarisation's delay, lie in it --append--> output buffer --finish--> download --> worker's inbox
 * Grid:      every output timestamp is a multiple of spectra_per_heap * spacing.  If the input for the next spectrum is
 *            gone, the output skips the incomplete batch.  The output then starts again at the first such multiple for
 *            which both polarisations have input.  Input is gone after a gap in the input, or if a delay grew by more
 *            than the length of the history.  If the input has not arrived yet, the output continues with the next
 *            input.  So the output uses some input twice if a delay jumps up, and skips input if a delay jumps down.
 * Delays:    a delay is evaluated for every spectrum of every polarisation (delay.h), at the spectrum's output time.
 *            All models that were set stay, so no jump of the data's time loses a model.
 * Time:      after fgpu_output_restart() time may begin again at any timestamp.  Only gains and delay models survive
 *            the restart.  A steady timestamp (fgpu_output_steady_samples()) later than the new beginning is set to the
 *            new beginning.  An output confirms its time after it has produced CONFIRM_NS of data without a gap of
 *            CONFIRM_NS or more.  A few packets with wrong timestamps may make a receiver assume a jump of time.
 *            These packets confirm no time.
 * Ahead:     a delay that jumps up moves the output's timestamps ahead of the input's timestamps.  When the delay then
 *            jumps down, the output waits until the input has reached these timestamps, because an output never goes
 *            back without a request.  Meanwhile the delay sensors are in error.  Only 'resumes' of struct fgpu_delays
 *            makes the output go back.  The next batch then begins after all input so far, so no old input is sent
 *            again.
 * Missing:   a batch is sent only if all packets that overlap its windows have arrived, on both polarisations.
 * Threads:   the worker, unless a function says otherwise.   Blocking: never. */
#ifndef FGPU_OUTPUT_H
#define FGPU_OUTPUT_H

#include "common/base/buffer_ref.h"
#include "common/telemetry/sensor.h"
#include "fgpu/delay.h"
#include "fgpu/config/layout.h"
#include "fgpu/send.h"

#include <stdbool.h>

struct command_channel;
struct fgpu_device_input;
struct fgpu_output;

struct fgpu_output_config {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct device *device;
    struct device_stream *compute;  /* the antenna's CUDA stream */
    struct device_stream *download; /* CUDA stream that all antennas share */
    struct fgpu_stream *stream;
    size_t output;
    const struct fgpu_choice *choice;
    struct command_channel *channel; /* channel to wake when a gain buffer is free again; NULL: none */
};

/* The delay models of both polarisations. */
struct fgpu_delays {
    struct fgpu_delay_queue pols[N_POLS];
    bool resumes; /* if true, an output that is ahead of its input resumes immediately */
};

/* Gains on their way to the worker. */
struct fgpu_gains {
    struct buffer_ref ref; /* when the last reference is released, the gains return to the output's free gains */
    size_t ant, output;    /* [const] */
    float *values;         /* [const] in pinned host memory: complex [chan][pol] */
};

int fgpu_output_create(const struct fgpu_output_config *config, struct fgpu_output **walk);

/* Makes all spectra whose windows lie in 'in'.  If no output buffer is free and 'may_wait' is true, returns false; the
 * caller must then call again with the same input.  If 'may_wait' is false, batches without an output buffer are
 * dropped. */
bool fgpu_output_advance(struct fgpu_output *walk, const struct fgpu_device_input *in, bool may_wait);

/* Replaces the delay models.  The models take effect at their start or, if the start has passed, with the next
 * spectrum.  If 'resumes' is true, an output that is ahead of its input resumes immediately.  Returns the timestamp
 * from which all output uses the new models; 0 before the first output. */
int64_t fgpu_output_set_delays(struct fgpu_output *walk, const struct fgpu_delays *delays);

/* [worker] Returns the models of a polarisation. */
const struct fgpu_delay_queue *fgpu_output_delays(const struct fgpu_output *walk, unsigned pol);

/* Returns gains for the caller to fill in and to post.  If all gains are on their way to the worker, returns NULL.
 * Never called from the worker, and called from one thread at a time. */
struct fgpu_gains *fgpu_output_take_gains(struct fgpu_output *walk);

/* Sets gains that take effect with the first batch of the next buffer.  Discards earlier gains that have not taken
 * effect.  Returns the same timestamp as fgpu_output_set_delays(). */
int64_t fgpu_output_set_gains(struct fgpu_output *walk, struct fgpu_gains *gains);

/* Discards the incomplete batch of the open buffer, and hands over the buffer's complete batches.  Only a restart may
 * follow. */
void fgpu_output_flush(struct fgpu_output *walk);

/* Flushes the output.  The next input starts a new stream, at any timestamp. */
void fgpu_output_restart(struct fgpu_output *walk);

/* [worker] Returns a timestamp.  From this timestamp on, the output uses all settings that were made.  The timestamp is
 * 0 before the first setting. */
int64_t fgpu_output_steady_samples(const struct fgpu_output *walk);

/* [any] Returns the last confirmed time.  If the output's present time is earlier, returns the present time.  Returns
 * 0 before the first confirmed time. */
int64_t fgpu_output_confirmed_samples(const struct fgpu_output *walk);

/* Returns the sensor that shows a polarisation's delay model in effect.  fgpu_delay_text_format() formats the
 * reading. */
struct sensor *fgpu_output_delay_sensor(struct fgpu_output *walk, unsigned pol);

/* Destroys the output.  The compute stream must be idle.  NULL is accepted. */
void fgpu_output_destroy(struct fgpu_output *walk);

#endif
