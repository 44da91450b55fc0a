/* output.c - correlates the batches of one output, and makes its dumps. */
#include "xbgpu/output.h"

#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/correlate/correlate.h"
#include "kernels/correlate/reduce.h"
#include "kernels/correlate/select_spectra.h"
#include "xbgpu/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_WINDOW INT64_MIN

static void clear_sums(struct xbgpu_output *c)
{
    device_fill(c->compute, c->sums, 0, c->layout->vis_bytes); /* the sums have as many bytes as a dump */
    if (c->totals)
        device_fill(c->compute, c->totals, 0, c->layout->totals_bytes);
    xbgpu_checksums_clear(&c->checksums, c->compute);
}

/* Returns the sizes of each launch of correlate. */
static struct correlate_args correlate_sizes(const struct xbgpu_output *c)
{
    struct correlate_args args = xbgpu_correlate_sizes(c->layout, c->gate >= 0);

    args.sums.integer = c->sums;
    return args;
}

static int create_select(struct xbgpu_output *c)
{
    const struct select_spectra_args sizes = {.format = c->layout->format,
                                              .n_spectra = (uint32_t)c->layout->n_spectra,
                                              .n_out_spectra = correlate_sizes(c).n_spectra};
    struct kernel_constant constants[SELECT_SPECTRA_N_CONSTANTS];

    select_spectra_constants(&sizes, constants);
    return device_kernel_create(c->device, &select_spectra_kernel, constants, SELECT_SPECTRA_N_CONSTANTS, &c->select);
}

static struct reduce_args reduce_sizes(const struct xbgpu_output *c)
{
    return (struct reduce_args){
        .sums = {c->sums},
        .totals = {c->totals},
        .format = c->layout->format,
        .n_baselines = (uint32_t)c->layout->n_baselines,
        .n_chan = (uint32_t)c->layout->n_chan,
    };
}

static int create_kernels(struct xbgpu_output *c, const struct correlate_shape *shape)
{
    struct correlate_args correlate = correlate_sizes(c);
    struct reduce_args reduce = reduce_sizes(c);
    struct kernel_constant constants[REDUCE_N_CONSTANTS];
    int err = correlate_kernels_create(c->device, &correlate, shape, &c->correlate);

    if (err)
        return err;
    reduce_constants(&reduce, constants);
    return device_kernel_create(c->device, &reduce_kernel, constants,
                                device_compiles(c->device) ? REDUCE_N_CONSTANTS : 0, &c->reduce);
}

static void launch_reduce(struct xbgpu_output *c, const struct reduce_args *args)
{
    struct kernel_grid grid = reduce_grid(args);

    device_launch(c->compute, c->reduce, &grid, args);
}

int xbgpu_output_init(struct xbgpu_output *correlation, const struct xbgpu_config *config,
                      const struct xbgpu_layout *layout, struct engine *engine, struct device_stream *compute,
                      void *selected, struct xbgpu_stream *stream)
{
    const struct xbgpu_config_output *output = stream->output;
    struct device *device = engine->c.device;
    const struct correlate_shape shape = xbgpu_tune_load(config, layout, device, output);

    *correlation = (struct xbgpu_output){.layout = layout,
                                         .device = device,
                                         .compute = compute,
                                         .download = engine->download,
                                         .stream = stream,
                                         .gate = xbgpu_output_gate(config, output),
                                         .shift_set = xbgpu_output_shift_set(config, output),
                                         .selected = selected,
                                         .next_window = NO_WINDOW};
    int err = xbgpu_window_init(&correlation->window, xbgpu_integration_batches(config, output), layout->n_ants,
                                xbgpu_output_gate_rows(config, output), output->missing == XBGPU_MISSING_WEIGHTS);
    if (!err)
        err = xbgpu_audit_init(&correlation->audit, (size_t)output->audit_samples, layout->format, layout->n_ants,
                               layout->n_chan, layout->n_spectra);
    if (!err)
        err = create_kernels(correlation, &shape);
    if (!err && output->audit_checksum)
        err = xbgpu_checksums_init(&correlation->checksums, layout, device, correlate_sizes(correlation).n_spectra);
    if (!err && (correlation->gate >= 0 || correlation->shift_set > 0))
        err = create_select(correlation);
    if (!err && !(correlation->sums = device_alloc(device, layout->vis_bytes)))
        err = -ENOMEM;
    if (!err && xbgpu_output_has_totals(layout, config, output) &&
        !(correlation->totals = device_alloc(device, layout->totals_bytes)))
        err = -ENOMEM;
    if (!err && !(correlation->audited = malloc(2 * layout->n_spectra * N_POLS * voltage_bytes(layout->format))))
        err = -ENOMEM;
    if (err) {
        xbgpu_output_fini(correlation);
        return err;
    }
    clear_sums(correlation);
    return 0;
}

void xbgpu_output_fini(struct xbgpu_output *correlation)
{
    xbgpu_window_fini(&correlation->window);
    xbgpu_audit_fini(&correlation->audit);
    xbgpu_checksums_fini(&correlation->checksums);
    free(correlation->audited);
    device_kernel_destroy(correlation->select);
    device_kernel_destroy(correlation->reduce);
    correlate_kernels_destroy(&correlation->correlate);
    if (correlation->device) {
        device_free(correlation->device, correlation->sums);
        device_free(correlation->device, correlation->totals);
    }
}

int xbgpu_outputs_init(struct xbgpu_outputs *outputs, const struct xbgpu_config *config,
                       const struct xbgpu_layout *layout, struct engine *engine, struct xbgpu_send *send)
{
    const struct xbgpu_layout *l = layout;
    size_t selected_bytes =
        l->n_selected_batches * l->n_selected_spectra * l->n_ants * l->n_chan * N_POLS * voltage_bytes(l->format);
    int err = 0;

    outputs->device = engine->c.device;
    outputs->items = calloc(l->n_outputs, sizeof(*outputs->items));
    if (!outputs->items || (selected_bytes && !(outputs->selected = device_alloc(outputs->device, selected_bytes))))
        return -ENOMEM;
    for (; outputs->n < l->n_outputs && !err; outputs->n++) {
        struct xbgpu_stream *stream = xbgpu_send_stream(send, outputs->n);
        struct xbgpu_output *output = &outputs->items[outputs->n];
        err = xbgpu_output_init(output, config, l, engine, engine->lanes[0]->compute, outputs->selected, stream);
        if (err)
            return err;
        if (!stream->output->send_enabled)
            log_warning("%s: dumps are not sent before ?capture-start, because send_enabled is false",
                        stream->output->name);
        log_info("%s: an accumulation has %lld batches and lasts %.9g s", stream->output->name,
                 (long long)output->window.n_length,
                 (double)(output->window.n_length * l->batch_samples) /
                     timebase_decimal_to_double(config->time.adc_sample_rate_hz));
    }
    return err;
}

void xbgpu_outputs_fini(struct xbgpu_outputs *outputs)
{
    for (size_t o = 0; o < outputs->n; o++)
        xbgpu_output_fini(&outputs->items[o]);
    free(outputs->items);
    if (outputs->device)
        device_free(outputs->device, outputs->selected);
}

/* Queues the reduction and the download of the dump for the window that has ended.  'is_part' is true if the engine
 * received only the end of the window.  The dump is then not sent, because another instance of the engine may have
 * received the whole window. */
static void finish_dump(struct xbgpu_output *c, struct xbgpu_dump *dump, bool is_part)
{
    const struct xbgpu_layout *l = c->layout;
    size_t weight_bytes = l->n_baselines * sizeof(uint32_t);
    bool by_baseline = c->window.count_baselines;

    dump->timestamp_samples = xbgpu_window_first(&c->window) * l->batch_samples;
    dump->min_weight = by_baseline ? 1 : (uint32_t)(c->window.n_length * (int64_t)l->n_spectra);
    dump->n_weighted = xbgpu_window_weights(&c->window, (uint32_t)l->n_spectra, dump->weights);
    if (dump->gate_weights)
        xbgpu_window_gate_weights(&c->window, dump->gate_weights);
    for (size_t chan = 0; c->gate >= 0 && chan < l->n_chan; chan++)
        dump->gate_spectra[chan] = c->window.n_taken[c->window.n_rows == 1 ? 0 : chan];
    dump->group.ready_ns = c->last_arrival_ns;
    memcpy(dump->audit, c->audit.samples, c->audit.n_samples * sizeof(*dump->audit));
    if (c->window.n_full < c->window.n_length && !is_part)
        counter_add(&c->stream->incomplete_accs, 1);
    dump->group.send = dump->n_weighted > 0 || c->stream->output->missing_dump != XBGPU_MISSING_DUMP_SKIP;
    if (!dump->group.send && !is_part)
        counter_add(&c->stream->skipped_accs, 1);
    dump->group.send &= !is_part;

    struct reduce_args args = reduce_sizes(c);
    args.weights = dump->device_weights;
    args.out = (union reduce_out){dump->device_visibilities};
    args.n_saturated = dump->device_n_saturated;
    args.min_weight = dump->min_weight;
    device_copy(c->compute, dump->device_weights, dump->weights, weight_bytes);
    device_fill(c->compute, dump->device_n_saturated, 0, sizeof(uint64_t));
    xbgpu_checksums_finish(&c->checksums, c->compute, &args, dump->device_checks);
    launch_reduce(c, &args);
    outbuf_finish(&dump->base, c->compute, c->download);
    device_copy(c->download, dump->visibilities, dump->device_visibilities, l->vis_bytes);
    device_copy(c->download, dump->n_saturated, dump->device_n_saturated, sizeof(uint64_t));
    if (dump->checks)
        device_copy(c->download, dump->checks, dump->device_checks, l->checks_bytes);
    outbuf_download(&dump->base, c->download);
}

/* Counts the windows without a heap between the last window with a heap and the open window.  Called when the open
 * window, which has a heap, ends.  Windows before the first window with a heap are not counted.  If a stream
 * restarts, windows before the restart are not counted. */
static void count_absent(struct xbgpu_output *c)
{
    if (c->next_window != NO_WINDOW && c->window.index > c->next_window)
        counter_add(&c->stream->absent_accs, (uint64_t)(c->window.index - c->next_window));
    c->next_window = c->window.index + 1;
}

/* Makes the dump of the open window.  If no buffer is free and 'may_wait' is true, changes nothing and returns
 * false. */
static bool make_dump(struct xbgpu_output *c, bool may_wait)
{
    struct xbgpu_dump *dump = (struct xbgpu_dump *)outbuf_take(&c->stream->pool);
    bool is_part = !c->has_begun && xbgpu_window_is_partial(&c->window);

    if (!dump && may_wait)
        return false;
    c->has_begun = true;
    count_absent(c);
    xbgpu_stream_ended(c->stream, xbgpu_window_end(&c->window) * c->layout->batch_samples,
                       c->window.n_full == c->window.n_length);
    if (dump) {
        finish_dump(c, dump, is_part);
    } else {
        counter_add(&c->stream->dropped_accs, 1);
        clear_sums(c);
    }
    return true;
}

/* If missing_dump is 'always', makes a dump for each absent window between the last window with a heap and the open
 * window.  An absent window has no heap.  If the open window's first heap is not among the next 'n' batches, makes no
 * dumps yet.  The sums are zero until that heap.  If there are more absent windows than buffers, makes no dumps.
 * Otherwise enough buffers should be free, because the absent windows needed no buffer.  Returns false in the same case
 * as make_dump(). */
static bool make_absent_dumps(struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t n, bool may_wait)
{
    int64_t index = c->window.index;
    size_t n_ants = c->layout->n_ants;
    bool made = true;

    if (c->stream->output->missing_dump != XBGPU_MISSING_DUMP_ALWAYS || c->next_window == NO_WINDOW ||
        index - c->next_window > (int64_t)c->stream->n_dumps || c->window.n_heaps > 0 ||
        !memchr(input->present + c->next * n_ants, 1, n * n_ants))
        return true;
    c->last_arrival_ns = input->last_arrival_ns;
    while (made && c->next_window < index) {
        c->window.index = c->next_window;
        made = make_dump(c, may_wait);
    }
    c->window.index = index;
    return made;
}

/* Ends the open window.  If no buffer is free for the window's dump and 'may_wait' is true, changes nothing and returns
 * false. */
static bool close_window(struct xbgpu_output *c, bool may_wait)
{
    if (c->window.n_heaps > 0 && !make_dump(c, may_wait))
        return false;
    /* A window without a heap has added nothing to the sums, so it ends without a dump. */
    c->window.open = false;
    c->n_held = 0;
    return true;
}

void xbgpu_output_begin(struct xbgpu_output *correlation, const struct xbgpu_output_input *input)
{
    correlation->next = input->begin;
}

/* Spectra of one channel: 'n' entries of a gate's list, or 'n' consecutive spectra that begin with 'first'.  Spectrum 0
 * is the first spectrum of batch 0. */
struct spectra {
    const uint32_t *list; /* NULL: no gate */
    size_t first, n;
};

static struct spectra find_spectra(const struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t batch,
                                   size_t chan)
{
    if (c->gate < 0)
        return (struct spectra){NULL, batch * c->layout->n_spectra, c->layout->n_spectra};
    const struct xbgpu_output_sums *gate = &input->gates[c->gate];
    size_t row = gate->n_rows == 1 ? 0 : chan;
    const uint32_t *ends = gate->ends + row * gate->ends_pitch + batch;
    return (struct spectra){gate->spectra + row * gate->row_pitch + ends[0], 0, ends[1] - ends[0]};
}

/* Copies an audited antenna's voltages in one channel from the received heaps.  Applies the same selection and shifts
 * as the device. */
static void gather(const struct xbgpu_output *c, const struct xbgpu_output_input *input, struct spectra spectra,
                   size_t ant, size_t chan, uint8_t *out)
{
    const struct xbgpu_layout *l = c->layout;
    size_t bytes = voltage_bytes(l->format), history = input->n_history * l->n_spectra;

    for (size_t i = 0; i < spectra.n; i++)
        for (size_t pol = 0; pol < N_POLS; pol++, out += bytes) {
            size_t from = history + (spectra.list ? spectra.list[i] : spectra.first + i);
            from -= input->delays ? input->delays[ant * N_POLS + pol] : 0;
            const uint8_t *heap = input->heaps[from / l->n_spectra * l->n_ants + ant];
            memcpy(out, heap + ((chan * l->n_spectra + from % l->n_spectra) * N_POLS + pol) * bytes, bytes);
        }
}

/* Adds a batch to the audit.  If the device correlates the received heaps unchanged, adds these heaps.  Otherwise adds
 * the selected and shifted spectra. */
static void audit_batch(struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t batch)
{
    const struct xbgpu_layout *l = c->layout;
    const uint8_t *present = input->present + batch * l->n_ants;
    uint8_t *x = c->audited, *y = c->audited + l->n_spectra * N_POLS * voltage_bytes(l->format);

    if (!input->delays && c->gate < 0) {
        xbgpu_audit_add(&c->audit, input->heaps + (input->n_history + batch) * l->n_ants);
        return;
    }
    for (size_t i = 0; i < c->audit.n_samples; i++) {
        const struct xbgpu_audit_sample *s = &c->audit.samples[i];
        if (!present[s->ant1] || !present[s->ant2])
            continue;
        struct spectra spectra = find_spectra(c, input, batch, s->chan);
        gather(c, input, spectra, s->ant1, s->chan, x);
        gather(c, input, spectra, s->ant2, s->chan, y);
        xbgpu_audit_add_spectra(&c->audit, i, x, y, spectra.n);
    }
}

/* Returns the largest number of spectra that the gate takes from any one channel in batches [next, next + n). */
static size_t most_taken(const struct xbgpu_output *c, const struct xbgpu_output_sums *gate, size_t n)
{
    size_t most = 0;

    for (size_t row = 0; row < gate->n_rows; row++) {
        const uint32_t *ends = gate->ends + row * gate->ends_pitch + c->next;
        most = ends[n] - ends[0] > most ? ends[n] - ends[0] : most;
    }
    return most;
}

/* Queues the kernel 'select_spectra'.  This kernel selects the gate's spectra from batches [next, next + n).  If there
 * is no gate, the kernel selects all spectra.  The kernel also applies the output's own shifts.  The kernel 'correlate'
 * then reads the selected spectra instead of the batches. */
static void select_taken(struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t n,
                         struct correlate_args *correlate)
{
    const struct xbgpu_layout *l = c->layout;
    const struct xbgpu_output_sums all = {.n_rows = 1}, *gate = c->gate >= 0 ? &input->gates[c->gate] : &all;
    size_t most = c->gate >= 0 ? most_taken(c, gate, n) : n * l->n_spectra;
    struct select_spectra_args args = {
        .in = input->voltages,
        .out = c->selected,
        .delays = input->device_delays,
        .present = input->device_present,
        .spectra = gate->device_spectra,
        .ends = gate->device_ends,
        .format = l->format,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
        .n_spectra = (uint32_t)l->n_spectra,
        .n_history = input->device_delays ? (uint32_t)input->n_history : 0,
        .first_batch = (uint32_t)c->next,
        .n_batches = (uint32_t)n,
        .n_out_spectra = correlate->n_spectra,
        .n_out_batches = (uint32_t)((most + correlate->n_spectra - 1) / correlate->n_spectra),
        .n_rows = (uint32_t)gate->n_rows,
        .row_pitch = (uint32_t)gate->row_pitch,
        .ends_pitch = (uint32_t)gate->ends_pitch,
    };

    if (args.n_out_batches > 0) {
        struct kernel_grid grid = select_spectra_grid(&args);
        device_launch(c->compute, c->select, &grid, &args);
    }
    correlate->voltages = c->selected;
    correlate->first_batch = 0;
    correlate->n_batches = args.n_out_batches;
}

static void count_taken(struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t batch)
{
    const struct xbgpu_output_sums *gate = &input->gates[c->gate];

    for (size_t row = 0; row < gate->n_rows; row++) {
        const uint32_t *ends = gate->ends + row * gate->ends_pitch + batch;
        xbgpu_window_add_taken(&c->window, input->present + batch * c->layout->n_ants, row, ends[1] - ends[0]);
    }
}

/* Returns the number of batches that can be added to 'sums' before the 32-bit sums may overflow. */
static size_t n_room(const struct xbgpu_output *c)
{
    return (correlate_max_spectra(c->layout->format) - c->n_held) / c->layout->n_spectra;
}

/* Makes room in the 32-bit sums for 'n' batches.  If empty sums have room for fewer batches, makes room for as many
 * batches as possible.  To make room, queues the addition of the sums to the totals.  Returns the number of batches for
 * which there is room, at most 'n'. */
static size_t make_room(struct xbgpu_output *c, size_t n)
{
    size_t most = correlate_max_spectra(c->layout->format) / c->layout->n_spectra;
    struct reduce_args args = reduce_sizes(c);

    n = n < most ? n : most;
    if (c->totals && n > n_room(c)) {
        launch_reduce(c, &args);
        c->n_held = 0;
    }
    return n < n_room(c) ? n : n_room(c);
}

/* Correlates batches [next, next + n).  All of these batches are in the open window, and fit in the sums. */
static void add_batches(struct xbgpu_output *c, const struct xbgpu_output_input *input, size_t n)
{
    const struct xbgpu_layout *l = c->layout;
    struct correlate_args args = correlate_sizes(c);

    args.voltages = input->voltages;
    args.first_batch = (uint32_t)c->next;
    args.n_batches = (uint32_t)n;
    if (c->select)
        select_taken(c, input, n, &args);
    if (args.n_batches > 0) {
        xbgpu_checksums_add(&c->checksums, c->compute, &args);
        correlate_kernels_launch(&c->correlate, c->compute, &args, 0);
    }
    c->n_held += (uint32_t)(n * l->n_spectra);
    for (size_t b = c->next; b < c->next + n; b++) {
        xbgpu_window_add(&c->window, input->present + b * l->n_ants);
        if (c->gate >= 0)
            count_taken(c, input, b);
        audit_batch(c, input, b);
    }
    c->last_arrival_ns = input->last_arrival_ns;
    c->next += n;
    c->end = input->first_batch + (int64_t)c->next;
}

bool xbgpu_output_correlate(struct xbgpu_output *correlation, const struct xbgpu_output_input *input, bool may_wait)
{
    struct xbgpu_output *c = correlation;

    for (;;) {
        int64_t batch = input->first_batch + (int64_t)c->next;
        /* If the timestamps go back, the dump ends, even if its window has not ended.  So no dump contains a batch
         * twice. */
        bool outside = c->window.open && (batch >= xbgpu_window_end(&c->window) || batch < c->end);
        if (outside && !close_window(c, may_wait))
            return false;
        if (c->next == input->n_batches)
            return true;
        if (!c->window.open) {
            if (input->restarts)
                c->next_window = NO_WINDOW;
            xbgpu_window_open(&c->window, batch);
            xbgpu_audit_draw(&c->audit);
        }
        int64_t n = xbgpu_window_end(&c->window) - batch, n_left = (int64_t)(input->n_batches - c->next);
        n = n < n_left ? n : n_left;
        if (!make_absent_dumps(c, input, (size_t)n, may_wait))
            return false;
        add_batches(c, input, make_room(c, (size_t)n));
    }
}

static bool check_checksums(struct xbgpu_dump *dump)
{
    static struct log_limit limit;
    const struct xbgpu_stream *stream = dump->stream;
    char why[240];

    if (!dump->checks ||
        xbgpu_checksums_agree(stream->layout, dump->checks, dump->visibilities, *dump->n_saturated, why, sizeof(why)))
        return true;
    log_limited(&limit, LOG_LEVEL_ERROR, "%s: dump %lld is wrong: %s: the memory, the bus or the GPU corrupts data",
                stream->output->name, (long long)dump->timestamp_samples, why);
    return false;
}

bool xbgpu_output_check(struct xbgpu_dump *dump)
{
    static struct log_limit limit;
    struct xbgpu_stream *stream = dump->stream;
    bool ok = check_checksums(dump);

    for (size_t i = 0; i < (size_t)stream->output->audit_samples; i++) {
        const struct xbgpu_audit_sample *s = &dump->audit[i];
        bool flagged = dump->weights[correlate_baseline(s->ant1, s->ant2)] < dump->min_weight;
        counter_add(&stream->audits, 1);
        if (xbgpu_audit_agrees(s, stream->layout->format, stream->layout->n_baselines, dump->visibilities, flagged))
            continue;
        counter_add(&stream->audit_failures, 1);
        log_limited(&limit, LOG_LEVEL_ERROR,
                    "%s: the device's sum of baseline (%zu, %zu), channel %zu, dump %lld is wrong: the memory, the bus "
                    "or the GPU corrupts data",
                    stream->output->name, s->ant1, s->ant2, s->chan, (long long)dump->timestamp_samples);
        ok = false;
    }
    return ok;
}
