/* xinput.c - from sets of chunks to batches on the device, between the matcher and correlation.c. */
#include "xbgpu/xinput.h"

#include "common/chunk.h"
#include "common/device.h"
#include "common/matcher.h"
#include "kernels/select_spectra.h"
#include "xbgpu/gate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct device_input {
    struct loan loan;        /* home: the worker's inbox */
    uint8_t *voltages;       /* [const] device: [n_history + n_batches][ant][chan][spectrum][pol] */
    uint8_t *present;        /* [const] pinned: [n_batches][ant] who counts as present; where inputs are shifted */
    uint8_t *device_present; /* [const] the same on the device */
    struct correlation_gate *gates; /* [const] [n_gates] what they take of it */
    struct device_event *uploaded;  /* [const] */
};

struct xinputs {
    struct xinput_config c;
    const struct xbgpu_layout *layout;
    size_t row_bytes; /* [const] of a batch: all antennas' heaps */
    struct device_input inputs[XBGPU_N_DEVICE_INPUTS];
    struct device_input *free[XBGPU_N_DEVICE_INPUTS];
    size_t n_free;
    struct device_input *current;
    struct device_kernel *select; /* where inputs are shifted, with what follows */
    uint8_t *shifted;             /* device: [n_batches][ant][chan][spectrum][pol], of the current input */
    uint32_t *delays;             /* pinned: [ant][pol] spectra */
    uint32_t *device_delays;
    struct gate *gates; /* [n_gates] */
    /* Of the last input, for the next one's history. */
    bool have_last;
    struct device_input *last; /* not home yet; NULL without history */
    int64_t next_batch;        /* the one behind its last */
    size_t n_last_batches;
    struct chunk **held; /* [n_history][n_members] sets before the current one, the youngest first */
    /* The set that the matcher gave last. */
    struct chunk **set; /* [n_members] */
    bool set_waits;     /* it is not an input yet */
    int64_t set_samples;
    bool flushing;         /* the current input has no set, only what the last one left */
    uint8_t *came;         /* [n_history + n_batches][ant] whose heaps came */
    const uint8_t **heaps; /* [n_history + n_batches][ant] and where they are; NULL: absent */
    size_t n_batches;      /* of the current input */
    int64_t last_arrival_ns;
};

bool xinputs_have_room(const struct xinputs *inputs)
{
    return inputs->n_free > 0;
}

void xinputs_give(struct xinputs *inputs, void *input)
{
    assert(inputs->n_free < XBGPU_N_DEVICE_INPUTS);
    inputs->free[inputs->n_free++] = input;
}

/* ---- What goes home ---------------------------------------------------------------------------------------------- */

static void send_home(struct xinputs *x, struct device_input *input)
{
    loan_out(&input->loan, 1);
    device_then(x->c.compute, loan_put, &input->loan);
}

static void put_set(struct xinputs *x, struct chunk **set)
{
    for (size_t m = 0; m < x->layout->n_members; m++) {
        if (set[m])
            device_then(x->c.upload, loan_put, &set[m]->loan);
        set[m] = NULL;
    }
}

/* What comes next has no history. */
static void forget_last(struct xinputs *x)
{
    const struct xbgpu_layout *l = x->layout;

    for (size_t h = 0; h < l->n_history; h++)
        put_set(x, x->held + h * l->n_members);
    if (x->last)
        send_home(x, x->last);
    x->last = NULL;
    x->have_last = false;
    memset(x->came, 0, (l->n_history + l->n_batches) * l->n_ants);
    memset(x->heaps, 0, (l->n_history + l->n_batches) * l->n_ants * sizeof(*x->heaps));
}

/* Keeps the current set for its history, as the youngest of n_history. */
static void hold_set(struct xinputs *x)
{
    size_t n_members = x->layout->n_members, n_history = x->layout->n_history;

    if (n_history == 0) {
        put_set(x, x->set);
        return;
    }
    put_set(x, x->held + (n_history - 1) * n_members);
    memmove(x->held + n_members, x->held, (n_history - 1) * n_members * sizeof(*x->held));
    memcpy(x->held, x->set, n_members * sizeof(*x->held));
    memset(x->set, 0, n_members * sizeof(*x->set));
}

void xinputs_release(struct xinputs *inputs)
{
    struct device_input *input = inputs->current;

    inputs->current = NULL;
    if (inputs->flushing) {
        inputs->flushing = false;
        send_home(inputs, input);
        forget_last(inputs);
        return;
    }
    hold_set(inputs);
    if (inputs->layout->n_history > 0)
        inputs->last = input;
    else
        send_home(inputs, input);
}

void xinputs_end(struct xinputs *inputs)
{
    forget_last(inputs);
}

/* ---- Sets to device inputs --------------------------------------------------------------------------------------- */

/* Puts the end of the last input in front of the current one, host and device. */
static void copy_history(struct xinputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    size_t n = l->n_history * l->n_ants, from = x->n_last_batches * l->n_ants;

    memmove(x->came, x->came + from, n);
    memmove(x->heaps, x->heaps + from, n * sizeof(*x->heaps));
    if (!x->last)
        return;
    device_copy(x->c.upload, x->current->voltages, x->last->voltages + x->n_last_batches * x->row_bytes,
                l->n_history * x->row_bytes);
    send_home(x, x->last);
    x->last = NULL;
}

/* Queues the upload of a member's chunk into the antennas' places, and zeroes for what is absent. */
static void upload_member(struct xinputs *x, size_t m, const struct chunk *chunk)
{
    const struct xbgpu_layout *l = x->layout;
    size_t first = xbgpu_member_first(l, m), n_sources = xbgpu_member_first(l, m + 1) - first;
    uint8_t *voltages = x->current->voltages + l->n_history * x->row_bytes;

    if (chunk)
        device_copy_2d(x->c.upload, voltages + first * l->heap_bytes, x->row_bytes, chunk->payload,
                       n_sources * l->heap_bytes, n_sources * l->heap_bytes, l->n_batches);
    for (size_t b = 0; b < l->n_batches; b++)
        for (size_t s = 0; s < n_sources; s++) {
            size_t ant = b * l->n_ants + first + s, to = l->n_history * l->n_ants + ant;
            x->came[to] = chunk && chunk->present[b * n_sources + s];
            x->heaps[to] = x->came[to] ? chunk->payload + (b * n_sources + s) * l->heap_bytes : NULL;
            if (!x->came[to])
                device_fill(x->c.upload, voltages + ant * l->heap_bytes, voltage_zero(l->format), l->heap_bytes);
        }
    if (chunk && chunk->last_arrival_ns > x->last_arrival_ns)
        x->last_arrival_ns = chunk->last_arrival_ns;
    if (chunk && chunk->n_times > x->n_batches)
        x->n_batches = chunk->n_times;
}

/* Whether all that an input reads for batch 'b' came. */
static bool reads_present(const struct xinputs *x, size_t b, size_t ant, size_t pol)
{
    const struct xbgpu_layout *l = x->layout;
    size_t first = (l->n_history + b) * l->n_spectra - x->delays[ant * N_POLS + pol];

    return x->came[first / l->n_spectra * l->n_ants + ant] &&
           x->came[(first + l->n_spectra - 1) / l->n_spectra * l->n_ants + ant];
}

/* Queues the shift of the current input, once it has been uploaded. */
static void shift(struct xinputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    struct device_input *in = x->current;
    struct select_spectra_args args = {
        .in = in->voltages,
        .out = x->shifted,
        .delays = x->device_delays,
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

    device_launch(x->c.compute, x->select, &grid, &args);
}

/* Decides what each gate takes of the current input, whose batch 0 has this timestamp, and queues its upload. */
static void apply_gates(struct xinputs *x, int64_t timestamp_samples)
{
    const struct xbgpu_layout *l = x->layout;

    for (size_t g = 0; g < l->n_gates; g++) {
        struct correlation_gate *gate = &x->current->gates[g];
        size_t most = gate_list(&x->gates[g], timestamp_samples, x->c.config->recv.samples_between_spectra,
                                l->n_spectra, x->n_batches, gate->row_pitch, gate->spectra, gate->ends);
        gate->ends_pitch = x->n_batches + 1;
        device_copy(x->c.upload, gate->device_ends, gate->ends, gate->n_rows * gate->ends_pitch * sizeof(*gate->ends));
        if (most > 0)
            device_copy_2d(x->c.upload, gate->device_spectra, gate->row_pitch * sizeof(uint32_t), gate->spectra,
                           gate->row_pitch * sizeof(uint32_t), most * sizeof(uint32_t), gate->n_rows);
    }
}

/* What the current input reads is queued: makes it ready to be walked. */
static void finish_input(struct xinputs *x, int64_t first_batch, bool follows, struct correlation_input *walk)
{
    const struct xbgpu_layout *l = x->layout;
    struct device_input *in = x->current;

    if (l->shifted) {
        for (size_t b = 0; b < x->n_batches; b++)
            for (size_t ant = 0; ant < l->n_ants; ant++)
                in->present[b * l->n_ants + ant] = reads_present(x, b, ant, 0) && reads_present(x, b, ant, 1);
        device_copy(x->c.upload, in->device_present, in->present, x->n_batches * l->n_ants);
    }
    apply_gates(x, (first_batch - (int64_t)l->n_lag) * l->batch_samples);
    device_event_record(in->uploaded, x->c.upload);
    device_stream_wait_event(x->c.compute, in->uploaded);
    if (l->shifted)
        shift(x);
    *walk = (struct correlation_input){
        .first_batch = first_batch - (int64_t)l->n_lag,
        .begin = follows ? 0 : l->n_lag,
        .n_batches = x->n_batches,
        .voltages = l->shifted ? x->shifted : in->voltages,
        .present = l->shifted ? in->present : x->came,
        .heaps = x->heaps,
        .n_history = l->n_history,
        .delays = l->shifted ? x->delays : NULL,
        .gates = in->gates,
        .last_arrival_ns = x->last_arrival_ns,
    };
    x->have_last = true;
    x->next_batch = first_batch + (int64_t)x->n_batches;
    x->n_last_batches = x->n_batches;
}

/* The batches that wait for what is behind the last chunk: nothing is. */
static void flush(struct xinputs *x, struct correlation_input *walk)
{
    const struct xbgpu_layout *l = x->layout;

    copy_history(x);
    memset(x->came + l->n_history * l->n_ants, 0, l->n_lag * l->n_ants);
    memset(x->heaps + l->n_history * l->n_ants, 0, l->n_lag * l->n_ants * sizeof(*x->heaps));
    x->n_batches = l->n_lag;
    x->flushing = true;
    finish_input(x, x->next_batch, true, walk);
}

bool xinputs_next(struct xinputs *inputs, bool ended, struct correlation_input *walk)
{
    struct xinputs *x = inputs;
    const struct xbgpu_layout *l = x->layout;

    if (!x->n_free)
        return false;
    if (!x->set_waits)
        x->set_waits = matcher_next(x->c.matcher, x->set, &x->set_samples);
    int64_t first_batch = x->set_waits ? x->set_samples / l->batch_samples : 0;
    bool follows = x->have_last && x->set_waits && first_batch == x->next_batch;
    bool leaves_rest = x->have_last && l->n_lag > 0 && !follows && (x->set_waits || ended);

    if (!x->set_waits && !leaves_rest)
        return false;
    x->current = x->free[--x->n_free];
    if (leaves_rest) {
        flush(x, walk);
        return true;
    }
    if (follows)
        copy_history(x);
    else
        forget_last(x);
    x->set_waits = false;
    x->n_batches = 0;
    x->last_arrival_ns = 0;
    for (size_t m = 0; m < l->n_members; m++)
        upload_member(x, m, x->set[m]);
    finish_input(x, first_batch, follows, walk);
    return true;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_gate_lists(struct xinputs *x, struct correlation_gate *gate, size_t n_rows)
{
    const struct xbgpu_layout *l = x->layout;
    size_t row_pitch = l->n_batches * l->n_spectra;
    size_t list_bytes = n_rows * row_pitch * sizeof(uint32_t),
           end_bytes = n_rows * (l->n_batches + 1) * sizeof(uint32_t);

    *gate = (struct correlation_gate){
        .n_rows = n_rows,
        .row_pitch = row_pitch,
        .spectra = device_alloc_pinned(x->c.device, list_bytes),
        .ends = device_alloc_pinned(x->c.device, end_bytes),
        .device_spectra = device_alloc(x->c.device, list_bytes),
        .device_ends = device_alloc(x->c.device, end_bytes),
    };
    return gate->spectra && gate->ends && gate->device_spectra && gate->device_ends ? 0 : -ENOMEM;
}

static void free_gate_lists(struct device *device, struct correlation_gate *gate)
{
    device_free_pinned(device, gate->spectra);
    device_free_pinned(device, gate->ends);
    device_free(device, gate->device_spectra);
    device_free(device, gate->device_ends);
}

static int create_gates(struct xinputs *x)
{
    const struct xbgpu_config *config = x->c.config;

    x->gates = calloc(x->layout->n_gates + 1, sizeof(*x->gates));
    if (!x->gates)
        return -ENOMEM;
    for (size_t g = 0; g < x->layout->n_gates; g++) {
        int err = gate_init(&x->gates[g], xbgpu_config_gate(&config->gates, g), config);
        if (err)
            return err;
    }
    return 0;
}

static int create_input(struct xinputs *x, struct device_input *in)
{
    const struct xbgpu_layout *l = x->layout;
    size_t n_present = l->n_batches * l->n_ants;

    loan_init(&in->loan, x->c.worker, (struct inbox_item){x->c.free_kind, 0, in});
    in->voltages = device_alloc(x->c.device, (l->n_history + l->n_batches) * x->row_bytes);
    in->gates = calloc(l->n_gates + 1, sizeof(*in->gates));
    if (!in->voltages || !in->gates)
        return -ENOMEM;
    for (size_t g = 0; g < l->n_gates; g++)
        if (create_gate_lists(x, &in->gates[g], x->gates[g].n_rows))
            return -ENOMEM;
    if (l->shifted) {
        in->present = device_alloc_pinned(x->c.device, n_present);
        in->device_present = device_alloc(x->c.device, n_present);
        if (!in->present || !in->device_present)
            return -ENOMEM;
    }
    return device_event_create(x->c.device, &in->uploaded);
}

/* What shifting takes beside the inputs themselves. */
static int create_shift(struct xinputs *x)
{
    const struct xbgpu_layout *l = x->layout;
    const struct select_spectra_args sizes = {
        .format = l->format, .n_spectra = (uint32_t)l->n_spectra, .n_out_spectra = (uint32_t)l->n_spectra};
    struct kernel_constant constants[SELECT_SPECTRA_N_CONSTANTS];
    size_t delay_bytes = l->n_ants * N_POLS * sizeof(*x->delays);

    x->shifted = device_alloc(x->c.device, l->n_batches * x->row_bytes);
    x->delays = device_alloc_pinned(x->c.device, delay_bytes);
    x->device_delays = device_alloc(x->c.device, delay_bytes);
    if (!x->shifted || !x->delays || !x->device_delays)
        return -ENOMEM;
    for (size_t i = 0; i < l->n_ants * N_POLS; i++)
        x->delays[i] = xbgpu_delay(l, x->c.config, i);
    device_copy(x->c.upload, x->device_delays, x->delays, delay_bytes);
    select_spectra_constants(&sizes, constants);
    return device_kernel_create(x->c.device, &select_spectra_kernel, constants, SELECT_SPECTRA_N_CONSTANTS, &x->select);
}

int xinputs_create(const struct xinput_config *config, struct xinputs **inputs)
{
    struct xinputs *x = calloc(1, sizeof(*x));
    const struct xbgpu_layout *l = config->layout;
    size_t n_rows = l->n_history + l->n_batches;

    if (!x)
        return -ENOMEM;
    x->c = *config;
    x->layout = l;
    x->row_bytes = l->n_ants * l->heap_bytes;
    x->set = calloc(l->n_members, sizeof(*x->set));
    x->held = calloc(l->n_history * l->n_members + 1, sizeof(*x->held));
    x->came = calloc(n_rows * l->n_ants, 1);
    x->heaps = calloc(n_rows * l->n_ants, sizeof(*x->heaps));
    int err = x->set && x->held && x->came && x->heaps ? 0 : -ENOMEM;
    if (!err)
        err = create_gates(x);
    for (size_t i = 0; !err && i < XBGPU_N_DEVICE_INPUTS; i++) {
        err = create_input(x, &x->inputs[i]);
        xinputs_give(x, &x->inputs[i]);
    }
    if (!err && l->shifted)
        err = create_shift(x);
    if (err) {
        xinputs_destroy(x);
        return err;
    }
    *inputs = x;
    return 0;
}

void xinputs_destroy(struct xinputs *inputs)
{
    if (!inputs)
        return;
    struct device *device = inputs->c.device;
    for (size_t i = 0; i < XBGPU_N_DEVICE_INPUTS; i++) {
        struct device_input *in = &inputs->inputs[i];
        for (size_t g = 0; in->gates && g < inputs->layout->n_gates; g++)
            free_gate_lists(device, &in->gates[g]);
        free(in->gates);
        device_event_destroy(inputs->inputs[i].uploaded);
        device_free(device, inputs->inputs[i].voltages);
        device_free(device, inputs->inputs[i].device_present);
        device_free_pinned(device, inputs->inputs[i].present);
    }
    for (size_t g = 0; inputs->gates && g < inputs->layout->n_gates; g++)
        gate_fini(&inputs->gates[g]);
    free(inputs->gates);
    device_kernel_destroy(inputs->select);
    device_free(device, inputs->shifted);
    device_free(device, inputs->device_delays);
    device_free_pinned(device, inputs->delays);
    free(inputs->set);
    free(inputs->held);
    free(inputs->came);
    free(inputs->heaps);
    free(inputs);
}
