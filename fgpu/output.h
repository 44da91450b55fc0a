/* output.h - one output's path through the device inputs of its antenna: the destination of each spectrum of an input,
 * and the time when a buffer is ready.
 *
 * Flow:      device input (of a narrow band: the samples of baseband.c) --> spectra whose windows, shifted by their
 *            polarisation's delay, lie in it --append--> output buffer --finish--> download --> worker's inbox
 * Grid:      every output timestamp is a multiple of spectra_per_heap * spacing.  If the input
 *            for the next spectrum is gone (a gap; a delay that grew by more than the history holds), the output starts
 *            again at the first such multiple with input on both polarisations.  A batch that this cuts is skipped.  If
 *            the input has not arrived yet, the output continues with the next input.  So a delay that jumps up reuses
 *            input, and a delay that jumps down skips input.
 * Delays:    evaluated for every spectrum of every polarisation (delay.h), at the start of its window.  All models that
 *            were set stay.  So no jump of the data's time loses a model.
 * Time:      may begin again anywhere (fgpu_output_restart()).  Only gains and models stay from the time before.  If
 *            the timestamp from which output shows all settings was later than the new beginning, it becomes the new
 *            beginning (fgpu_output_steady_samples()).  Output of CONFIRM_NS without a gap that long confirms a time.
 *            The few packets that make a receiver believe a jump confirm none.
 * Ahead:     a delay that jumps up moves the output's timestamps ahead of its input's.  After a jump down the output
 *            waits until the input has reached these timestamps, because timestamps do not go back by themselves.
 *            Meanwhile the delay sensors are in error.  Only 'resumes' takes timestamps back: the next batch is the
 *            first after all input so far.  So no old input is sent again.
 * Missing:   a batch is sent only if every packet that its windows touch arrived on both polarisations.
 * Threads:   the worker, unless a function says otherwise.   Blocking: never. */
#ifndef FGPU_OUTPUT_H
#define FGPU_OUTPUT_H

#include "common/base/buffer_ref.h"
#include "common/engine/lane.h"
#include "common/telemetry/sensor.h"
#include "fgpu/delay.h"
#include "fgpu/layout.h"
#include "fgpu/send.h"

#include <stdbool.h>

struct command_channel;
struct fgpu_output;

/* A pair of chunks on the device, behind its history. */
struct fgpu_device_input {
    struct device_input base;      /* first */
    uint8_t *samples[N_POLS];      /* [const] device: [history | chunk], packed */
    uint8_t *present[N_POLS];      /* [const] [history_heaps + heaps_per_chunk] flags */
    uint32_t *sums[N_POLS];        /* [const] their prefix sums */
    int64_t timestamp_samples;     /* of the first sample of the history */
    int64_t first_samples[N_POLS]; /* timestamp of the first sample that arrived, if a stream starts here */
    int64_t end_samples[N_POLS];   /* timestamp after the last sample that has arrived */
    bool has_history;
    int64_t last_arrival_ns;
};

struct fgpu_output_config {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct device *device;
    struct device_stream *compute;  /* the antenna's */
    struct device_stream *download; /* shared by all antennas */
    struct fgpu_stream *stream;
    size_t output;
    const struct fgpu_choice *choice;
    struct command_channel *channel; /* woken when gains are free again; NULL: nobody waits for them */
};

/* The delay models of both polarisations. */
struct fgpu_delays {
    struct fgpu_delay_queue pols[N_POLS];
    bool resumes; /* an output that waits for its input does not wait any longer */
};

/* Gains on their way to the worker. */
struct fgpu_gains {
    struct buffer_ref ref;   /* home: the walk's free ones */
    size_t ant, output; /* [const] */
    float *values;      /* [const] pinned host: complex [chan][pol] */
};

int fgpu_output_create(const struct fgpu_output_config *config, struct fgpu_output **walk);

/* Makes what spectra 'in' allows.  'may_wait': rather stop and be called again with the same input than drop a batch for
 * want of an output buffer.  Returns false if it must wait for one. */
bool fgpu_output_advance(struct fgpu_output *walk, const struct fgpu_device_input *in, bool may_wait);

/* Delay models in place of those that there were; they hold from their start or, where that has passed, from the next
 * spectrum on.  With 'resumes' an output that is ahead of its input resumes at once.  Returns the timestamp from which on nothing is made without them; 0 before the first. */
int64_t fgpu_output_set_delays(struct fgpu_output *walk, const struct fgpu_delays *delays);

/* The models of a polarisation.  The worker's. */
const struct fgpu_delay_queue *fgpu_output_delays(const struct fgpu_output *walk, unsigned pol);

/* Gains to fill in and to post, or NULL while all are on their way.  From one thread at a time, not the worker. */
struct fgpu_gains *fgpu_output_take_gains(struct fgpu_output *walk);

/* Sets gains that hold from the first batch of the next buffer on.  Earlier gains that do not hold yet are discarded.
 * Returns the timestamp as fgpu_output_set_delays() does. */
int64_t fgpu_output_set_gains(struct fgpu_output *walk, struct fgpu_gains *gains);

/* Gives up the batch that is being filled and hands over what has been filled before it.  Only a restart may follow. */
void fgpu_output_flush(struct fgpu_output *walk);

/* Flushes; the next input starts a stream, wherever in time it is. */
void fgpu_output_restart(struct fgpu_output *walk);

/* All that was set shows in what is made from this timestamp on; 0 before anything was set.  The worker's. */
int64_t fgpu_output_steady_samples(const struct fgpu_output *walk);

/* From any thread: the last time that was confirmed, or what came behind it and was earlier; 0 before the first. */
int64_t fgpu_output_confirmed_samples(const struct fgpu_output *walk);

/* The delay model in effect of a polarisation; of fgpu_delay_text_format(). */
struct sensor *fgpu_output_delay_sensor(struct fgpu_output *walk, unsigned pol);

/* The compute stream must be idle.  NULL is accepted. */
void fgpu_output_destroy(struct fgpu_output *walk);

#endif
