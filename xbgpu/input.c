/* input.c - converts the matcher's sets of chunks to batches on the device, for output.c. */
#include "xbgpu/input.h"

#include "common/recv/chunk.h"
#include "common/base/log.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/telemetry/stats.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "kernels/correlate/select_spectra.h"
#include "xbgpu/settings.h"
#include "xbgpu/gate_schedule.h"
#include "xbgpu/beam/beams.h"
#include "xbgpu/beam/detected.h"
#include "xbgpu/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct input {
    struct device_input base;        /* first */
    uint8_t *voltages;               /* [const] device: [n_history + n_batches][ant][chan][spectrum][pol] */
    uint8_t *present;                /* [const] pinned, for shifted inputs: [set][batch][ant] 1 if present */
    uint8_t *device_present;         /* [const] copy of 'present' on the device */
    uint32_t *delays;                /* [const] pinned, for shifted inputs: [set][ant][pol] delays in spectra */
    uint32_t *device_delays;         /* [const] copy of 'delays' on the device */
    struct xbgpu_output_sums *gates; /* [const] [n_gates] lists of the spectra that gates take */
};

/* Sensors that describe the last set of chunks from the matcher. */
struct input_sensors {
    struct sensor timestamp, unixtime; /* time of the set's first sample */
    struct sensor missing_unixtime;    /* time of the last set that had lost heaps or followed a gap */
    struct sensor device_status;       /* aggregate of the sensors above */
};

struct xbgpu_inputs {
    struct lane lane; /* first */
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct input_sensors sensors;
    size_t row_bytes; /* [const] bytes of a batch with the heaps of all antennas */
    struct input inputs[LANE_N_INPUTS];
    struct input *current;
    struct xbgpu_output_input *shown; /* [set of shifts] current input for the outputs with this set */
    struct xbgpu_outputs outputs;
    struct xbgpu_beams *beams;       /* NULL: none */
    struct xbgpu_detected *detected; /* NULL: none */
    struct device_kernel *select;    /* 'select', 'shifted' and 'delays' are NULL if inputs are not shifted */
    uint8_t *shifted;                /* device: [n_batches][ant][chan][spectrum][pol] current input, shifted by set 0 */
    uint32_t *delays;                /* [set][ant][pol] delays in spectra, for future inputs */
    struct xbgpu_gate_schedule gating;
    int64_t next_samples; /* timestamp of the end of the newest input; 0 after time has gone back */
    struct timebase timebase;
    bool readable; /* [const] true if the host can read chunks */
    bool began;    /* true if a set has been processed */
    /* The previous device input, which is the history of the next device input. */
    bool have_last;
    struct input *last; /* previous device input, not yet returned; NULL without history */
    int64_t next_batch; /* number of the batch after the last input */
    size_t n_last_batches;
    struct chunk **held; /* [n_history][n_members] sets of chunks before the current set, the newest first */
    /* The set that the matcher returned last. */
    struct chunk **set; /* [n_members] */
    bool set_waits;     /* true if the set has not become an input yet */
    int64_t set_samples;
    bool flushing;         /* true if the current input has no new chunks, only batches left from the last input */
    uint8_t *came;         /* [n_history + n_batches][ant] 1 if the antenna's heap arrived */
    const uint8_t **heaps; /* [n_history + n_batches][ant] addresses of the heaps; NULL: absent */
    size_t n_batches;      /* number of batches in the current input */
    int64_t last_arrival_ns;
    bool restarts; /* true if a stream begins with a chunk of the current input */
};

/* ---- Returning chunks and inputs --------------------------------------------------------------------------------- */

static void put_set(struct xbgpu_inputs *x, struct chunk **set)
{
    for (size_t m = 0; m < x->layout->n_members; m++) {
        if (set[m])
            device_then(x->lane.engine->upload, buffer_ref_put, &set[m]->ref);
        set[m] = NULL;
    }
}

/* Drops the history.  The next input starts without history. */
static void forget_last(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;

    for (size_t h = 0; h < l->n_history; h++)
        put_set(x, x->held + h * l->n_members);
    if (x->last)
        lane_return_input(&x->last->base);
    x->last = NULL;
    x->have_last = false;
    memset(x->came, 0, (l->n_history + l->n_batches) * l->n_ants);
    memset(x->heaps, 0, (l->n_history + l->n_batches) * l->n_ants * sizeof(*x->heaps));
}

/* Keeps the current set of chunks for the history, as the newest set.  The history needs n_history sets. */
static void hold_set(struct xbgpu_inputs *x)
{
    size_t n_members = x->layout->n_members, n_history = x->layout->n_history;

    if (n_history == 0 || !x->readable) {
        put_set(x, x->set);
        return;
    }
    put_set(x, x->held + (n_history - 1) * n_members);
    memmove(x->held + n_members, x->held, (n_history - 1) * n_members * sizeof(*x->held));
    memcpy(x->held, x->set, n_members * sizeof(*x->held));
    memset(x->set, 0, n_members * sizeof(*x->set));
}

void xbgpu_inputs_log(const struct xbgpu_inputs *inputs)
{
    uint64_t n_late = counter_get(&inputs->lane.late_chunks);

    if (n_late)
        log_warning(
            "%llu chunk%s discarded, because %s came after later chunks had been processed: recv.window is too short",
            (unsigned long long)n_late, plural(n_late), n_late == 1 ? "it" : "they");
}

void xbgpu_inputs_release(struct lane *lane)
{
    struct xbgpu_inputs *inputs = (struct xbgpu_inputs *)lane;
    struct input *input = inputs->current;

    inputs->current = NULL;
    if (inputs->flushing) {
        inputs->flushing = false;
        lane_return_input(&input->base);
        forget_last(inputs);
        return;
    }
    hold_set(inputs);
    if (inputs->layout->n_history > 0)
        inputs->last = input;
    else
        lane_return_input(&input->base);
}

bool xbgpu_inputs_flush(struct lane *lane)
{
    forget_last((struct xbgpu_inputs *)lane);
    return true;
}

/* ---- Sets to device inputs --------------------------------------------------------------------------------------- */

/* Copies the last batches of the previous device input in front of the batches of the current device input, on host
 * and device. */
static void copy_history(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    size_t n = l->n_history * l->n_ants, from = x->n_last_batches * l->n_ants;

    memmove(x->came, x->came + from, n);
    memmove(x->heaps, x->heaps + from, n * sizeof(*x->heaps));
    if (!x->last)
        return;
    device_copy(x->lane.engine->upload, x->current->voltages, x->last->voltages + x->n_last_batches * x->row_bytes,
                l->n_history * x->row_bytes);
    lane_return_input(&x->last->base);
    x->last = NULL;
}

/* Queues the upload of a member's chunk.  Each heap is copied to the position of its antenna.  Absent heaps become
 * zeros. */
static void upload_member(struct xbgpu_inputs *x, size_t m, const struct chunk *chunk)
{
    const struct xbgpu_layout *l = x->layout;
    size_t first = xbgpu_member_first(l, m), n_sources = xbgpu_member_first(l, m + 1) - first;
    uint8_t *voltages = x->current->voltages + l->n_history * x->row_bytes;

    if (chunk)
        chunk_gather(chunk, x->lane.engine->upload, x->lane.gather);
    if (chunk)
        device_copy_2d(x->lane.engine->upload, voltages + first * l->heap_bytes, x->row_bytes, chunk->source,
                       n_sources * l->heap_bytes, n_sources * l->heap_bytes, l->n_batches);
    for (size_t b = 0; b < l->n_batches; b++)
        for (size_t s = 0; s < n_sources; s++) {
            size_t ant = b * l->n_ants + first + s, to = l->n_history * l->n_ants + ant;
            x->came[to] = chunk && chunk->present[b * n_sources + s];
            x->heaps[to] = x->came[to] && x->readable ? chunk->payload + (b * n_sources + s) * l->heap_bytes : NULL;
            if (!x->came[to])
                device_fill(x->lane.engine->upload, voltages + ant * l->heap_bytes, voltage_zero(l->format),
                            l->heap_bytes);
        }
    x->restarts = x->restarts || (chunk && chunk->restarts);
    if (chunk && chunk->last_arrival_ns > x->last_arrival_ns)
        x->last_arrival_ns = chunk->last_arrival_ns;
    if (chunk && chunk->n_times > x->n_batches)
        x->n_batches = chunk->n_times;
}

/* A shifted polarisation of an antenna takes the spectra of batch 'b' from one or more heaps.  Returns whether all of
 * these heaps have arrived. */
static bool reads_present(const struct xbgpu_inputs *x, const uint32_t *delays, size_t b, size_t ant, size_t pol)
{
    const struct xbgpu_layout *l = x->layout;
    size_t first = (l->n_history + b) * l->n_spectra - delays[ant * N_POLS + pol];

    return x->came[first / l->n_spectra * l->n_ants + ant] &&
           x->came[(first + l->n_spectra - 1) / l->n_spectra * l->n_ants + ant];
}

/* Queues the upload of all sets of shifts.  Also uploads, for each set, flags that say which antennas count as
 * present. */
static void upload_shifts(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    struct input *in = x->current;
    size_t n_delays = l->n_ants * N_POLS, delay_bytes = l->n_shift_sets * n_delays * sizeof(*x->delays);
    size_t n_present = x->n_batches * l->n_ants;

    memcpy(in->delays, x->delays, delay_bytes);
    device_copy(x->lane.engine->upload, in->device_delays, in->delays, delay_bytes);
    for (size_t i = 0; i < l->n_shift_sets * n_present; i++) {
        const uint32_t *delays = in->delays + i / n_present * n_delays;
        size_t b = i % n_present / l->n_ants, ant = i % l->n_ants;
        in->present[i] = reads_present(x, delays, b, ant, 0) && reads_present(x, delays, b, ant, 1);
    }
    device_copy(x->lane.engine->upload, in->device_present, in->present, l->n_shift_sets * n_present);
}

/* Queues the kernel that shifts the current input, to run after the input's upload. */
static void shift(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    struct input *in = x->current;
    struct select_spectra_args args = {
        .in = in->voltages,
        .out = x->shifted,
        .delays = in->device_delays,
        .present = in->device_present,
        .format = l->format,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
        .n_spectra = (uint32_t)l->n_spectra,
        .n_history = (uint32_t)l->n_history,
        .n_batches = (uint32_t)x->n_batches,
        .n_out_spectra = (uint32_t)l->n_spectra,
        .n_out_batches = (uint32_t)x->n_batches,
        .n_rows = 1,
    };
    struct kernel_grid grid = select_spectra_grid(&args);

    device_launch(x->lane.compute, x->select, &grid, &args);
}

/* Makes the current input ready for the outputs.  Called when all of its uploads have been queued. */
static void finish_input(struct xbgpu_inputs *x, int64_t first_batch, bool follows)
{
    const struct xbgpu_layout *l = x->layout;
    struct input *in = x->current;

    if (l->shifted)
        upload_shifts(x);
    xbgpu_gate_schedule_list(&x->gating, (first_batch - (int64_t)l->n_lag) * l->batch_samples, x->n_batches,
                             x->lane.engine->upload, in->gates);
    lane_uploaded(&in->base);
    if (l->shifted)
        shift(x);
    x->shown[0] = (struct xbgpu_output_input){
        .first_batch = first_batch - (int64_t)l->n_lag,
        .begin = follows ? 0 : l->n_lag,
        .n_batches = x->n_batches,
        .voltages = l->shifted ? x->shifted : in->voltages,
        .present = l->shifted ? in->present : x->came,
        .heaps = x->heaps,
        .n_history = l->n_history,
        .delays = l->shifted ? in->delays : NULL,
        .gates = in->gates,
        .last_arrival_ns = x->last_arrival_ns,
        .restarts = x->restarts,
    };
    for (size_t set = 1; set < l->n_shift_sets; set++) {
        struct xbgpu_output_input *shown = &x->shown[set];
        *shown = x->shown[0];
        shown->voltages = in->voltages;
        shown->present = in->present + set * x->n_batches * l->n_ants;
        shown->delays = in->delays + set * l->n_ants * N_POLS;
        shown->device_present = in->device_present + set * x->n_batches * l->n_ants;
        shown->device_delays = in->device_delays + set * l->n_ants * N_POLS;
    }
    int64_t end_samples = (x->shown->first_batch + (int64_t)x->n_batches) * l->batch_samples;
    x->next_samples = end_samples > x->next_samples ? end_samples : x->next_samples;
    x->have_last = true;
    x->next_batch = first_batch + (int64_t)x->n_batches;
    x->n_last_batches = x->n_batches;
}

/* Returns whether any heap of the current input is missing.  In the very first input, batches before the first heap do
 * not count. */
static bool misses_heaps(const struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    const uint8_t *came = x->came + l->n_history * l->n_ants, *end = came + x->n_batches * l->n_ants;
    const uint8_t *first = x->began ? came : memchr(came, 1, (size_t)(end - came));

    if (!first)
        return true;
    first = came + (size_t)(first - came) / l->n_ants * l->n_ants;
    return memchr(first, 0, (size_t)(end - first)) != NULL;
}

/* Sets the sensors for a set of chunks that becomes a device input.  'follows_gap' is true if sets are missing before
 * this set. */
static void set_sensors(struct xbgpu_inputs *x, bool follows_gap)
{
    struct input_sensors *sensors = &x->sensors;
    int64_t unix_ns = timebase_unix_ns(&x->timebase, x->set_samples);

    /* This sensor is set first.  So a client that sees new readings of the other sensors also sees this reading. */
    if (misses_heaps(x) || (x->began && follows_gap))
        sensor_set_real(&sensors->missing_unixtime, unix_ns, SENSOR_ERROR, (double)unix_ns / NS_PER_S);
    sensor_set_integer(&sensors->timestamp, unix_ns, SENSOR_NOMINAL, x->set_samples);
    sensor_set_real(&sensors->unixtime, unix_ns, SENSOR_NOMINAL, (double)unix_ns / NS_PER_S);
    x->began = true;
}

/* Processes the batches that wait for data of the next chunk.  Called when the next chunk will not arrive. */
static void flush(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;

    copy_history(x);
    memset(x->came + l->n_history * l->n_ants, 0, l->n_lag * l->n_ants);
    memset(x->heaps + l->n_history * l->n_ants, 0, l->n_lag * l->n_ants * sizeof(*x->heaps));
    x->n_batches = l->n_lag;
    x->flushing = true;
    finish_input(x, x->next_batch, true);
}

/* Call if the timestamps of the data jump back.  All settings applied so far take effect at the new time. */
static void go_back(struct xbgpu_inputs *x, int64_t first_samples)
{
    struct command_channel *channel = x->lane.engine->channel;

    x->next_samples = 0;
    if (first_samples < command_steady_samples(channel))
        command_steady(channel, first_samples);
}

/* Makes the next batches the current input.  Returns false if there are no more batches, or if no device input is
 * free. */
static bool begin_input(struct xbgpu_inputs *x, bool ended)
{
    const struct xbgpu_layout *l = x->layout;

    if (!x->lane.n_free)
        return false;
    if (!x->set_waits)
        x->set_waits = matcher_next(x->lane.matcher, x->set, &x->set_samples);
    int64_t first_batch = x->set_waits ? x->set_samples / l->batch_samples : 0;
    bool follows = x->have_last && x->set_waits && first_batch == x->next_batch;
    bool leaves_rest = x->have_last && l->n_lag > 0 && !follows && (x->set_waits || ended);

    if (!x->set_waits && !leaves_rest)
        return false;
    x->current = (struct input *)lane_take_input(&x->lane);
    if (leaves_rest) {
        flush(x);
        return true;
    }
    if (follows)
        copy_history(x);
    else
        forget_last(x);
    x->set_waits = false;
    x->n_batches = 0;
    x->last_arrival_ns = 0;
    x->restarts = false;
    for (size_t m = 0; m < l->n_members; m++)
        upload_member(x, m, x->set[m]);
    if (x->began && first_batch < x->next_batch) {
        go_back(x, first_batch * l->batch_samples);
    }
    set_sensors(x, first_batch > x->next_batch);
    finish_input(x, first_batch, follows);
    return true;
}

bool xbgpu_inputs_begin(struct lane *lane, bool ended)
{
    struct xbgpu_inputs *x = (struct xbgpu_inputs *)lane;

    if (!begin_input(x, ended))
        return false;
    for (size_t o = 0; o < x->outputs.n; o++)
        xbgpu_output_begin(&x->outputs.items[o], x->shown);
    xbgpu_beams_begin(x->beams);
    xbgpu_detected_begin(x->detected, x->shown);
    return true;
}

bool xbgpu_inputs_process(struct lane *lane, bool may_wait)
{
    struct xbgpu_inputs *x = (struct xbgpu_inputs *)lane;
    bool done = true;

    for (size_t o = 0; o < x->outputs.n; o++) {
        struct xbgpu_output *output = &x->outputs.items[o];
        done = xbgpu_output_correlate(output, &x->shown[output->shift_set], may_wait) && done;
    }
    done = xbgpu_beams_process(x->beams, x->lane.compute, x->shown, may_wait) && done;
    return xbgpu_detected_process(x->detected, x->lane.compute, x->shown, may_wait) && done;
}

/* Applies a setting.  The setting takes effect at the end of the newest input. */
void xbgpu_inputs_apply(struct engine *engine, struct command *base)
{
    struct xbgpu_inputs *x = (struct xbgpu_inputs *)engine->lanes[0];
    struct xbgpu_command *command = (struct xbgpu_command *)base;
    bool is_voltages = command->index < x->config->beams.n;                  /* true for a voltage beam */
    size_t detected = is_voltages ? 0 : command->index - x->config->beams.n; /* detected beam's index */
    int64_t samples, steady_samples = command_steady_samples(engine->channel);

    command->effective_samples = x->next_samples;
    switch (command->what) {
    case XBGPU_COMMAND_CAPTURE:
        samples = xbgpu_stream_set_capture(x->outputs.items[command->index].stream, command->on, command->from_samples);
        if (samples < x->next_samples) /* the condition is false if time has gone back while an older dump is
                                        * pending */
            command->effective_samples = samples;
        break;
    case XBGPU_COMMAND_BEAM_CAPTURE:
        samples = is_voltages ? xbgpu_beams_set_capture(x->beams, command->index, command->on, command->from_samples)
                              : xbgpu_detected_set_capture(x->detected, detected, command->on, command->from_samples);
        if (samples < x->next_samples) /* some batches have been neither sent nor withheld yet */
            command->effective_samples = samples;
        break;
    case XBGPU_COMMAND_BEAM:
        if (is_voltages)
            xbgpu_beams_steer(x->beams, command->index, command->from_samples, command->steering);
        else
            xbgpu_detected_steer(x->detected, detected, command->from_samples, command->steering);
        break;
    case XBGPU_COMMAND_CALIBRATION:
        xbgpu_beams_calibrate(x->beams, command->index, command->calibration);
        xbgpu_detected_calibrate(x->detected, command->index, command->calibration);
        break;
    case XBGPU_COMMAND_SHIFTS:
        if (x->layout->shifted)
            memcpy(x->delays, command->delays, x->layout->n_ants * N_POLS * sizeof(*x->delays));
        break;
    case XBGPU_COMMAND_GATE:
        xbgpu_gate_schedule_set(&x->gating, command->index, &command->gate, command->from_samples, x->next_samples);
        break;
    }
    command_answer(engine->channel, base,
                   command->effective_samples > steady_samples ? command->effective_samples : steady_samples);
}

static bool is_rx(const char *name)
{
    return strncmp(name, "rx.", 3) == 0;
}

/* Adds the sensors.  After xbgpu_rx_timeout_ns() without a new reading, the status of rx.timestamp and rx.unixtime
 * becomes error, and the status of rx.missing-unixtime becomes nominal. */
static int add_sensors(struct xbgpu_inputs *x)
{
    struct input_sensors *s = &x->sensors;
    const int64_t timeout_ns = xbgpu_rx_timeout_ns(x->config, x->layout);
    const struct {
        struct sensor_desc about;
        struct sensor *sensor;
        struct sensor_reading first;
    } rows[] = {
        {{.name = "rx.timestamp",
          .description = "ADC timestamp (in samples) of the start of the last chunk received; error after a silence.",
          .type = SENSOR_INTEGER,
          .auto_shortest_s = 1,
          .timeout_ns = timeout_ns},
         &s->timestamp,
         {0, SENSOR_ERROR, {.integer = -1}}},
        {{.name = "rx.unixtime",
          .description = "UNIX time of the start of the last chunk received; error after a silence.",
          .units = "s",
          .type = SENSOR_TIMESTAMP,
          .auto_shortest_s = 1,
          .timeout_ns = timeout_ns},
         &s->unixtime,
         {0, SENSOR_ERROR, {.real = -1}}},
        {{.name = "rx.missing-unixtime",
          .description =
              "UNIX time of the last chunk with lost heaps; error after a loss, nominal after some time without loss.",
          .units = "s",
          .type = SENSOR_TIMESTAMP,
          .auto_shortest_s = 1,
          .timeout_ns = timeout_ns,
          .recovers = true},
         &s->missing_unixtime,
         {0, SENSOR_NOMINAL, {.real = -1}}},
        {{.name = "rx.device-status",
          .description = "Degraded while any receive sensor (rx) is worse than nominal.",
          .type = SENSOR_DISCRETE,
          .words = sensor_aggregate_words,
          .includes = is_rx},
         &s->device_status,
         {0, SENSOR_NOMINAL, {0}}},
    };
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_LEN(rows); i++) {
        struct sensor_desc about = rows[i].about;
        about.units = about.units ? about.units : "";
        err = sensors_add(x->lane.engine->c.sensors, rows[i].sensor, &about, rows[i].first);
    }
    return err;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_input(struct xbgpu_inputs *x, struct input *in)
{
    const struct xbgpu_layout *l = x->layout;
    size_t n_present = l->n_shift_sets * l->n_batches * l->n_ants;
    size_t delay_bytes = l->n_shift_sets * l->n_ants * N_POLS * sizeof(*in->delays);

    in->voltages = device_alloc(x->lane.engine->c.device, (l->n_history + l->n_batches) * x->row_bytes);
    if (!in->voltages || xbgpu_gate_schedule_create_lists(&x->gating, &in->gates))
        return -ENOMEM;
    if (l->shifted) {
        in->present = device_alloc_pinned(x->lane.engine->c.device, n_present);
        in->device_present = device_alloc(x->lane.engine->c.device, n_present);
        in->delays = device_alloc_pinned(x->lane.engine->c.device, delay_bytes);
        in->device_delays = device_alloc(x->lane.engine->c.device, delay_bytes);
        if (!in->present || !in->device_present || !in->delays || !in->device_delays)
            return -ENOMEM;
    }
    return lane_add_input(&x->lane, &in->base);
}

/* Creates the shared buffer, the delays and the kernel for shifting.  The buffers that each input needs are created
 * with the input. */
static int create_shift(struct xbgpu_inputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    const struct select_spectra_args sizes = {
        .format = l->format, .n_spectra = (uint32_t)l->n_spectra, .n_out_spectra = (uint32_t)l->n_spectra};
    struct kernel_constant constants[SELECT_SPECTRA_N_CONSTANTS];
    size_t n_delays = l->n_ants * N_POLS;

    x->shifted = device_alloc(x->lane.engine->c.device, l->n_batches * x->row_bytes);
    x->delays = calloc(l->n_shift_sets * n_delays, sizeof(*x->delays));
    if (!x->shifted || !x->delays)
        return -ENOMEM;
    for (size_t i = 0; i < n_delays; i++)
        x->delays[i] = xbgpu_delay(l, xbgpu_config_shift(x->config, i));
    for (size_t o = 0; o < l->n_outputs; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(x->config, o);
        uint32_t *delays = x->delays + xbgpu_output_shift_set(x->config, output) * n_delays;
        for (size_t i = 0; i < output->shifts.n; i++)
            delays[i] = xbgpu_delay(l, output->shifts.items[i]);
    }
    select_spectra_constants(&sizes, constants);
    return device_kernel_create(x->lane.engine->c.device, &select_spectra_kernel, constants, SELECT_SPECTRA_N_CONSTANTS,
                                &x->select);
}

static int create_lane(struct xbgpu_inputs *x, struct engine *engine)
{
    const struct matcher_config matcher = {
        .n_members = (unsigned)x->layout->n_members,
        .window_chunks = (unsigned)x->config->recv.base.window_chunks,
        .wait_chunks = (unsigned)x->config->recv.base.window_chunks,
        .jump_members = 2,
        .chunk_samples = x->layout->chunk_samples,
        .max_chunks = x->layout->n_members * (size_t)x->config->recv.base.n_chunks,
    };
    int err = lane_init(&x->lane, engine, &matcher, "compute", x->config->recv.base.gpudirect);

    for (size_t i = 0; !err && i < LANE_N_INPUTS; i++)
        err = create_input(x, &x->inputs[i]);
    if (!err)
        stats_counter("xbgpu_late_chunks",
                      "Chunks discarded because the worker got them after it had processed later chunks.", NULL,
                      &x->lane.late_chunks);
    return err;
}

int xbgpu_inputs_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                        struct xbgpu_send *send, struct xbgpu_beams *beams, struct xbgpu_detected *detected,
                        struct xbgpu_inputs **inputs)
{
    struct xbgpu_inputs *x = calloc(1, sizeof(*x));
    const struct xbgpu_layout *l = layout;
    size_t n_rows = l->n_history + l->n_batches;

    if (!x)
        return -ENOMEM;
    x->config = config;
    x->layout = l;
    x->beams = beams;
    x->detected = detected;
    x->readable = xbgpu_can_read(config);
    if (!x->readable)
        log_info("recv.%s: the host does not audit the device's sums, because voltages go directly to the device",
                 config->recv.base.direct ? "direct" : "gpudirect");
    x->row_bytes = l->n_ants * l->heap_bytes;
    x->timebase = (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz, false};
    x->set = calloc(l->n_members, sizeof(*x->set));
    x->held = calloc(l->n_history * l->n_members + 1, sizeof(*x->held));
    x->came = calloc(n_rows * l->n_ants, 1);
    x->heaps = calloc(n_rows * l->n_ants, sizeof(*x->heaps));
    x->shown = calloc(l->n_shift_sets, sizeof(*x->shown));
    int err = x->set && x->held && x->came && x->heaps && x->shown ? 0 : -ENOMEM;
    if (!err)
        err = xbgpu_gate_schedule_init(&x->gating, config, l, engine->c.device);
    if (!err)
        err = create_lane(x, engine);
    if (!err && l->shifted)
        err = create_shift(x);
    if (!err)
        err = add_sensors(x);
    if (!err)
        err = xbgpu_outputs_init(&x->outputs, config, l, engine, send);
    if (err) {
        xbgpu_inputs_destroy(x);
        return err;
    }
    *inputs = x;
    return 0;
}

void xbgpu_inputs_destroy(struct xbgpu_inputs *inputs)
{
    if (!inputs)
        return;
    struct device *device = inputs->lane.engine ? inputs->lane.engine->c.device : NULL;
    lane_fini(&inputs->lane);
    xbgpu_outputs_fini(&inputs->outputs);
    for (size_t i = 0; device && i < LANE_N_INPUTS; i++) {
        struct input *in = &inputs->inputs[i];
        xbgpu_gate_schedule_free_lists(&inputs->gating, in->gates);
        lane_fini_input(&in->base);
        device_free(device, in->voltages);
        device_free(device, in->device_present);
        device_free_pinned(device, in->present);
        device_free(device, in->device_delays);
        device_free_pinned(device, in->delays);
    }
    xbgpu_gate_schedule_fini(&inputs->gating);
    device_kernel_destroy(inputs->select);
    if (device)
        device_free(device, inputs->shifted);
    free(inputs->delays);
    free(inputs->set);
    free(inputs->held);
    free(inputs->came);
    free(inputs->heaps);
    free(inputs->shown);
    free(inputs);
}
