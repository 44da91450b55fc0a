/* input.h - xbgpu's device inputs: sets of chunks on the device, where inputs are shifted with history in front of
 * them, as batches that outputs can correlate.
 *
 * Flow:      matcher's set --upload--> device input [history batches | chunk's batches][antenna][channel][spectrum][pol]
 *            --select_spectra, where inputs are shifted--> batches of the worker's walk
 * Shifts:    input i at spectrum t reads t - shift[i].  Batch b of a walk is batch b of its chunk, or the one before it
 *            where some input reads ahead (layout.n_lag), so that all reads are delays by up to layout.n_history
 *            batches.  An antenna counts as present in a batch if every heap that its two inputs' reads touch came.
 * History:   after an upload the last n_history batches of the device input before it are copied in front of it on the
 *            device, presence likewise; absent if the chunk before it is missing.  No chunk waits for the next: only the
 *            lag's batch does, and what is behind it is absent where no chunk follows.
 *            Batches are walked that belong to chunks of which something came, and no others: what shifts would take
 *            from such a chunk into a missing one has no place to go.
 * Missing:   absent heaps are zero in what is walked, so they add nothing.
 * Ownership: a chunk goes back to its receiver when its upload is done and neither outputs nor the audit will look at it
 *            again, which with history is n_history sets later; a device input when its last reader is done.
 *            A chunk that the host cannot read is never looked at again.
 * Threads:   the worker only.   Blocking: never. */
#ifndef XBGPU_INPUT_H
#define XBGPU_INPUT_H

#include "common/base/inbox.h"
#include "common/telemetry/sensor.h"
#include "xbgpu/output.h"
#include "xbgpu/layout.h"

#include <stdbool.h>

struct xbgpu_gate;
struct matcher;
struct xbgpu_inputs;

/* What of it is there, as sensors; set for each set of chunks that was taken. */
struct xbgpu_input_sensors {
    struct sensor timestamp, unixtime; /* of the set's first sample */
    struct sensor missing_unixtime;    /* the same, of the last set of which something was lost, or before which */
    struct sensor device_status;       /* of those above */
};

/* Adds them under their names.  Silence of so long is an error, and forgives what was lost before.  Returns 0 or
 * -ENOMEM. */
int xbgpu_input_sensors_add(struct xbgpu_input_sensors *xbgpu_input_sensors, struct sensors *sensors,
                            int64_t timeout_ns);

struct xbgpu_input_config {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct device *device;
    struct device_stream *upload, *compute;
    struct matcher *matcher;
    struct inbox *worker;
    int free_kind; /* a device input has no readers left: {free_kind, 0, input} */
    struct xbgpu_input_sensors *sensors;
};

/* Returns 0 or negative errno. */
int xbgpu_inputs_create(const struct xbgpu_input_config *config, struct xbgpu_inputs **inputs);

/* Whether the data's time has begun again earlier since it was last asked, and then at which timestamp. */
bool xbgpu_inputs_went_back(struct xbgpu_inputs *inputs, int64_t *first_samples);

/* Makes the next batches the current input and says what there is to walk.  'ended': no more chunks will come.  Returns
 * false if there are none, or nowhere to put them. */
bool xbgpu_inputs_next(struct xbgpu_inputs *inputs, bool ended, struct xbgpu_output_input *walk);

/* The first timestamp of which no walk has been made: what is set now holds from there on.  Where the data's time goes
 * back, so does it; 0 before there was an input. */
int64_t xbgpu_inputs_next_samples(const struct xbgpu_inputs *inputs);

/* Sets delays[ant][pol] (xbgpu_delay()) of all walks that are made from now on; a copy is made. */
void xbgpu_inputs_set_delays(struct xbgpu_inputs *inputs, const uint32_t *delays);

/* Sets what a gate takes from a timestamp on, but not of walks that have been made; as xbgpu_gate_schedule_set(). */
void xbgpu_inputs_set_gate(struct xbgpu_inputs *inputs, size_t gate, struct xbgpu_gate **definition,
                           int64_t from_samples);

/* The outputs have taken all they need of the current input. */
void xbgpu_inputs_release(struct xbgpu_inputs *inputs);

/* An input that came home. */
void xbgpu_inputs_give(struct xbgpu_inputs *inputs, void *input);

/* Whether there is room for another input: if not, there may be more sets. */
bool xbgpu_inputs_have_room(const struct xbgpu_inputs *inputs);

/* No more inputs will be made: chunks that are kept for their history go home. */
void xbgpu_inputs_end(struct xbgpu_inputs *inputs);

/* The streams of the device must be idle.  NULL is accepted. */
void xbgpu_inputs_destroy(struct xbgpu_inputs *inputs);

#endif
