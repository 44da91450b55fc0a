/* detected.c - computes the powers of detected beams from batches, and makes their heaps. */
#include "xbgpu/beam/detected.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/engine/outbuf.h"
#include "common/net/spead.h"
#include "common/send/sender.h"
#include "common/send/sender_group.h"
#include "common/telemetry/stats.h"
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beam_finish.h"
#include "kernels/beamform/beam_incoherent.h"
#include "xbgpu/beam/beam_stream.h"
#include "xbgpu/beam/detected_audit.h"
#include "xbgpu/beam/detected_health.h"
#include "xbgpu/beam/incoherent.h"
#include "xbgpu/beam/steering.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TAPS 16

enum {
    ITEM_TIMESTAMP,
    ITEM_FREQUENCY,
    ITEM_CENTRE,
    ITEM_FRACTIONS,
    ITEM_OFFSETS,
    ITEM_SCALES
}; /* index of the powers, which are always the last item of a heap */

/* An output buffer: one heap of powers. */
struct powers {
    struct outbuf base; /* first */
    struct detected_stream *stream;
    int64_t *device_powers;     /* [const] [window][beam][cell] */
    uint8_t *device_payload;    /* [const] content of the heap, laid out as in struct xbgpu_detected_sizes */
    uint32_t *device_saturated; /* [const] [beam] */
    uint8_t *payload;           /* [const] pinned copy of device_payload */
    uint32_t *saturated;        /* [const] pinned copy of device_saturated */
    uint64_t *n_present;        /* [const] [window] number of spectra present, summed over all antennas */
    bool is_first;              /* true if no earlier heap of the stream has data */
    int64_t number;             /* number of the heap */
    int64_t end;                /* number of the spectrum after the last spectrum that has been added to the heap */
    int64_t last_arrival_ns;
    struct send_heap heap;
    struct send_group group;
    struct send_job job;
};

struct detected_stream {
    struct xbgpu_detected *detected;
    const struct xbgpu_config_detected *config; /* [const] */
    struct xbgpu_detected_sizes sizes;          /* [const] */
    struct xbgpu_steering steering;             /* used only for coherent beams; a row is a pair [beam][pol] */
    struct xbgpu_incoherent incoherent;         /* incoherent beam only */
    int64_t next;                               /* number of the next spectrum to process */
    bool has_begun;                             /* true after the first heap with data */
    struct powers *open;                        /* the open heap; NULL: none */
    struct powers *buffers;                     /* [n_buffers] */
    struct outbuf_pool pool;
    struct device_kernel *detect, *finish;
    struct xbgpu_beam_stream sent;
    struct xbgpu_detected_health health;
    struct xbgpu_detected_audit audit;
    struct send_stream *send;
    struct send_stream_stats stats;
    struct counter skipped_heaps; /* number of heaps not sent because no antenna was present */
    struct counter dropped_heaps; /* number of heaps or parts of heaps not made because no buffer was free */
};

struct xbgpu_detected {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct engine *engine;
    struct timebase timebase;
    size_t n; /* [const] streams */
    struct detected_stream *streams;
};

static bool is_incoherent(const struct detected_stream *s)
{
    return s->config->kind == XBGPU_BEAM_INCOHERENT;
}

/* ---- Making heaps ------------------------------------------------------------------------------------------------ */

static int64_t first_spectrum(const struct xbgpu_detected *d, const struct xbgpu_output_input *input, size_t batch)
{
    return (input->first_batch + (int64_t)batch) * (int64_t)d->layout->n_spectra;
}

void xbgpu_detected_begin(struct xbgpu_detected *detected, const struct xbgpu_output_input *input)
{
    for (size_t i = 0; detected && i < detected->n; i++) {
        struct detected_stream *s = &detected->streams[i];
        if (is_incoherent(s))
            xbgpu_incoherent_begin(&s->incoherent);
        else
            xbgpu_steering_begin(&s->steering);
        s->next = first_spectrum(detected, input, input->begin);
    }
}

/* Ends the open heap: writes the fractions of present data, and queues the kernel beam_finish and the download. */
static void finish_heap(struct detected_stream *s, struct device_stream *compute)
{
    struct powers *p = s->open;
    const struct xbgpu_detected_sizes *z = &s->sizes;
    struct device_stream *download = s->detected->engine->download;
    double whole = (double)s->config->window_spectra * (double)s->detected->layout->n_ants;
    size_t made_bytes = z->heap_bytes - z->fractions_bytes;
    uint8_t *made = p->device_payload + z->fractions_bytes;
    const struct beam_finish_args args = {
        .powers = p->device_powers,
        .out = made + 2 * z->scales_bytes,
        .offsets = z->scales_bytes ? (float *)made : NULL,
        .scales = z->scales_bytes ? (float *)(made + z->scales_bytes) : NULL,
        .n_windows = (uint32_t)s->config->heap_windows,
        .n_beams = (uint32_t)z->n_beams,
        .n_cells = (uint32_t)z->n_cells,
    };
    struct kernel_grid grid = beam_finish_grid(&args);

    s->open = NULL;
    p->is_first = !s->has_begun;
    for (int64_t w = 0; w < s->config->heap_windows; w++) {
        ((float *)p->payload)[w] = (float)((double)p->n_present[w] / whole);
        s->has_begun |= p->n_present[w] > 0;
    }
    device_launch(compute, s->finish, &grid, &args);
    outbuf_finish(&p->base, compute, download);
    xbgpu_detected_audit_fetch(&s->audit, p, download, p->device_powers);
    device_copy(download, p->payload + z->fractions_bytes, made, made_bytes);
    device_copy(download, p->saturated, p->device_saturated, z->n_beams * sizeof(*p->saturated));
    outbuf_download(&p->base, download);
}

/* Opens a heap.  Returns false if no buffer is free. */
static bool open_heap(struct detected_stream *s, struct device_stream *compute, int64_t number)
{
    struct powers *p = (struct powers *)outbuf_take(&s->pool);

    if (!p)
        return false;
    p->number = number;
    memset(p->n_present, 0, (size_t)s->config->heap_windows * sizeof(*p->n_present));
    device_fill(compute, p->device_powers, 0, s->sizes.n_powers * sizeof(*p->device_powers));
    device_fill(compute, p->device_saturated, 0, s->sizes.n_beams * sizeof(*p->device_saturated));
    xbgpu_detected_audit_draw(&s->audit, p, number);
    s->open = p;
    return true;
}

/* Counts the spectra in [begin, end) that are present, summed over all antennas.  Adds the numbers to 'n_present' of
 * the open heap. */
static void count_present(struct detected_stream *s, const struct xbgpu_output_input *input, int64_t begin, int64_t end)
{
    const struct xbgpu_layout *l = s->detected->layout;
    int64_t first = first_spectrum(s->detected, input, 0), heap = s->open->number * s->sizes.heap_spectra;

    for (int64_t from = begin, to; from < end; from = to) {
        int64_t batch = (from - first) / (int64_t)l->n_spectra, window = (from - heap) / s->config->window_spectra;
        int64_t batch_end = first + (batch + 1) * (int64_t)l->n_spectra;
        int64_t window_end = heap + (window + 1) * s->config->window_spectra;
        uint64_t n = 0;
        to = batch_end < window_end ? batch_end : window_end;
        to = to < end ? to : end;
        for (size_t ant = 0; ant < l->n_ants; ant++)
            n += input->present[(size_t)batch * l->n_ants + ant];
        s->open->n_present[window] += n * (uint64_t)(to - from);
    }
}

/* Queues the kernel beam_detect for batches [begin, end) of the device input.  The kernel ignores spectra outside the
 * open heap. */
static void add_batches(struct detected_stream *s, struct device_stream *compute,
                        const struct xbgpu_output_input *input, int64_t begin, int64_t end)
{
    const struct xbgpu_layout *l = s->detected->layout;
    const struct beam_detect_args args = {
        .form = {.voltages = input->voltages,
                 .coefficients = s->steering.coefficients,
                 .fragments = s->steering.fragments,
                 .exponents = s->steering.exponents,
                 .beams = s->steering.parameters,
                 .slots = s->steering.slots,
                 .n_slots = s->steering.n_slots,
                 .saturated = s->open->device_saturated,
                 .first_spectrum = (uint64_t)first_spectrum(s->detected, input, 0),
                 .format = l->format,
                 .n_beams = (uint32_t)s->steering.n,
                 .n_ants = (uint32_t)l->n_ants,
                 .n_chan = (uint32_t)l->n_chan,
                 .n_spectra = (uint32_t)l->n_spectra,
                 .chan_offset = (uint32_t)s->detected->config->recv.chan_offset,
                 .first_batch = (uint32_t)(begin - input->first_batch),
                 .n_batches = (uint32_t)(end - begin),
                 .wgmma = beamform_wgmma(s->detected->engine->c.device)},
        .powers = s->open->device_powers,
        .first = (uint64_t)(s->open->number * s->sizes.heap_spectra),
        .products = (enum beam_products)s->config->products,
        .n_windows = (uint32_t)s->config->heap_windows,
        .window_spectra = (uint32_t)s->config->window_spectra,
        .group_channels = (uint32_t)s->config->group_channels,
    };
    struct kernel_grid grid = beam_detect_grid(&args);

    device_launch(compute, s->detect, &grid, &args);
}

/* Does the same as add_batches() for the incoherent beam. */
static void add_incoherent(struct detected_stream *s, struct device_stream *compute,
                           const struct xbgpu_output_input *input, int64_t begin, int64_t end)
{
    const struct xbgpu_layout *l = s->detected->layout;
    const struct beam_incoherent_args args = {
        .voltages = input->voltages,
        .weights = s->incoherent.weights,
        .powers = s->open->device_powers,
        .first_spectrum = (uint64_t)first_spectrum(s->detected, input, 0),
        .first = (uint64_t)(s->open->number * s->sizes.heap_spectra),
        .format = l->format,
        .products = (enum beam_products)s->config->products,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
        .n_spectra = (uint32_t)l->n_spectra,
        .first_batch = (uint32_t)(begin - input->first_batch),
        .n_batches = (uint32_t)(end - begin),
        .n_windows = (uint32_t)s->config->heap_windows,
        .window_spectra = (uint32_t)s->config->window_spectra,
        .group_channels = (uint32_t)s->config->group_channels,
    };
    struct kernel_grid grid = beam_incoherent_grid(&args);

    xbgpu_incoherent_upload(&s->incoherent, compute);
    device_launch(compute, s->detect, &grid, &args);
}

/* Queues the processing of spectra [begin, end) of the device input, which all belong to the open heap.  If new
 * coefficients are due, first queues their computation. */
static void detect(struct detected_stream *s, struct device_stream *compute, const struct xbgpu_output_input *input,
                   int64_t begin, int64_t end)
{
    int64_t n_spectra = (int64_t)s->detected->layout->n_spectra, first = first_spectrum(s->detected, input, 0);
    int64_t first_batch = floor_div(begin, n_spectra), end_batch = -floor_div(-end, n_spectra);

    if (is_incoherent(s)) {
        add_incoherent(s, compute, input, first_batch, end_batch);
        xbgpu_detected_audit_take_incoherent(&s->audit, s->open, compute, input, first, begin, end,
                                             s->incoherent.weights);
    }
    for (int64_t batch = first_batch, next; !is_incoherent(s) && batch < end_batch; batch = next) {
        next = xbgpu_steering_make(&s->steering, compute, batch, end_batch);
        add_batches(s, compute, input, batch, next);
        int64_t from = batch * n_spectra > begin ? batch * n_spectra : begin;
        int64_t to = next * n_spectra < end ? next * n_spectra : end;
        xbgpu_detected_audit_take(&s->audit, s->open, compute, input, first, from, to, s->steering.coefficients,
                                  s->steering.exponents);
    }
    count_present(s, input, begin, end);
    s->open->end = end;
    s->open->last_arrival_ns = input->last_arrival_ns;
}

/* Processes the remaining spectra of the device input.  Returns false if the stream must wait for a buffer. */
static bool process_stream(struct detected_stream *s, struct device_stream *compute,
                           const struct xbgpu_output_input *input, bool may_wait)
{
    int64_t input_end = first_spectrum(s->detected, input, input->n_batches);

    while (s->next < input_end) {
        int64_t number = s->next / s->sizes.heap_spectra, heap_end = (number + 1) * s->sizes.heap_spectra;
        int64_t end = heap_end < input_end ? heap_end : input_end;
        if (s->open && (s->open->number != number || s->open->end > s->next))
            finish_heap(s, compute);
        if (!s->open && !open_heap(s, compute, number)) {
            if (may_wait)
                return false;
            counter_add(&s->dropped_heaps, 1);
        } else {
            detect(s, compute, input, s->next, end);
        }
        s->next = end;
        if (s->open && end == heap_end)
            finish_heap(s, compute);
    }
    return true;
}

bool xbgpu_detected_process(struct xbgpu_detected *detected, struct device_stream *compute,
                            const struct xbgpu_output_input *input, bool may_wait)
{
    bool done = true;

    for (size_t i = 0; detected && i < detected->n; i++)
        done = process_stream(&detected->streams[i], compute, input, may_wait) && done;
    return done;
}

/* Returns the stream of a beam, and changes '*beam' from the number among all beams to the number within this
 * stream. */
static struct detected_stream *stream_of(struct xbgpu_detected *detected, size_t *beam)
{
    struct detected_stream *s = detected->streams;

    for (; *beam >= s->sizes.n_beams; s++)
        *beam -= s->sizes.n_beams;
    return s;
}

void xbgpu_detected_steer(struct xbgpu_detected *detected, size_t beam, int64_t start_samples,
                          const struct beam_steering *steering)
{
    struct detected_stream *s = stream_of(detected, &beam);

    if (is_incoherent(s))
        xbgpu_incoherent_set(&s->incoherent, steering);
    for (size_t pol = 0; !is_incoherent(s) && pol < N_POLS; pol++)
        xbgpu_steering_set(&s->steering, beam * N_POLS + pol, start_samples, steering + pol * detected->layout->n_ants);
}

void xbgpu_detected_calibrate(struct xbgpu_detected *detected, size_t input, const float *gains)
{
    for (size_t i = 0; detected && i < detected->n; i++)
        if (!is_incoherent(&detected->streams[i]))
            xbgpu_steering_calibrate(&detected->streams[i].steering, input, gains);
}

int64_t xbgpu_detected_next_samples(struct xbgpu_detected *detected, size_t beam)
{
    return sensor_read(&stream_of(detected, &beam)->sent.next_timestamp).value.integer;
}

int64_t xbgpu_detected_set_capture(struct xbgpu_detected *detected, size_t beam, bool on, int64_t from_samples)
{
    return xbgpu_beam_stream_set_capture(&stream_of(detected, &beam)->sent, on, from_samples);
}

/* ---- Sending heaps ----------------------------------------------------------------------------------------------- */

bool xbgpu_detected_own(const struct xbgpu_detected *detected, const struct outbuf *buffer)
{
    for (size_t i = 0; detected && i < detected->n; i++)
        if (buffer->pool == &detected->streams[i].pool)
            return true;
    return false;
}

bool xbgpu_detected_check(struct outbuf *base)
{
    static struct log_limit limit;
    struct powers *p = (struct powers *)base;
    struct detected_stream *s = p->stream;
    struct xbgpu_detected_audit *audit = &s->audit;

    if (!xbgpu_detected_audit_has(audit, p))
        return true;
    counter_add(&s->sent.audits, 1);
    if (xbgpu_detected_audit_agrees(audit, p->payload))
        return true;
    counter_add(&s->sent.audit_failures, 1);
    log_limited(&limit, LOG_LEVEL_ERROR,
                "%s.%zu: the device's powers are wrong (first channel %zu, window %zu, heap %lld): the memory, the bus "
                "or the GPU corrupts data",
                s->config->name, audit->beam, audit->group * (size_t)s->config->group_channels, audit->window,
                (long long)p->number);
    return false;
}

void xbgpu_detected_push(struct outbuf *base)
{
    struct powers *p = (struct powers *)base;
    struct detected_stream *s = p->stream;
    const struct xbgpu_layout *l = s->detected->layout;
    int64_t spectrum_samples = s->detected->config->recv.samples_between_spectra;
    int64_t timestamp = p->number * s->sizes.heap_spectra * spectrum_samples;
    int64_t end_samples = timestamp + s->sizes.heap_spectra * spectrum_samples;
    uint64_t n_clipped = 0, n_present = 0;

    for (size_t b = 0; b < s->sizes.n_beams; b++)
        n_clipped += p->saturated[b];
    for (int64_t w = 0; w < s->config->heap_windows; w++)
        n_present += p->n_present[w];
    s->sent.n_clipped += n_clipped;
    if (n_present == 0)
        counter_add(&s->skipped_heaps, 1);
    xbgpu_detected_health_take(&s->health, p->number, p->payload, p->saturated, p->n_present);
    /* The first data usually arrive in the middle of a heap.  Another instance of the engine may have received all data
     * of this heap, so the engine does not send a part of the heap. */
    bool is_part = p->is_first && p->n_present[0] < (uint64_t)s->config->window_spectra * l->n_ants;
    p->group.send = n_present > 0 && !is_part && xbgpu_beam_stream_sends(&s->sent, timestamp);
    p->group.ready_ns = p->last_arrival_ns;
    p->heap.items[ITEM_TIMESTAMP].value = (uint64_t)timestamp & SPEAD_VALUE_MASK;
    if (p->group.send)
        xbgpu_beam_stream_count(&s->sent, s->sizes.heap_bytes,
                                (uint64_t)s->sizes.heap_spectra * l->n_chan * s->sizes.n_beams * N_POLS, n_clipped);
    xbgpu_beam_stream_show(&s->sent, end_samples, timebase_unix_ns(&s->detected->timebase, end_samples));
    buffer_ref_set(&p->base.ref, 1);
    sender_push(s->send, &p->job);
}

void xbgpu_detected_log(const struct xbgpu_detected *detected)
{
    for (size_t i = 0; detected && i < detected->n; i++) {
        const struct detected_stream *s = &detected->streams[i];
        xbgpu_beam_stream_log(&s->sent);
        log_info("%s: %" PRIu64 " heaps skipped (no antenna's heaps arrived), %" PRIu64
                 " dropped (no free output buffer)",
                 s->config->name, counter_get(&s->skipped_heaps), counter_get(&s->dropped_heaps));
    }
}

void xbgpu_detected_describe(const struct xbgpu_detected *detected, json_t *into)
{
    json_t *streams = json_array();

    for (size_t i = 0; detected && i < detected->n; i++) {
        const struct xbgpu_config_detected *c = detected->streams[i].config;
        json_array_append_new(streams, json_pack("{s:s, s:I, s:o}", "name", c->name, "beams", (json_int_t)c->n_beams,
                                                 "destinations", status_endpoints(&c->destination)));
    }
    json_object_set_new(into, "detected", streams);
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

/* Returns the number of samples from a heap's timestamp to the centre of its first window.  A spectrum is made from
 * filter_samples samples.  The first of these samples is at the spectrum's timestamp. */
static uint64_t centre_samples(const struct detected_stream *s)
{
    const struct xbgpu_config_recv *recv = &s->detected->config->recv;
    int64_t filter = recv->filter_samples ? recv->filter_samples : DEFAULT_TAPS * recv->samples_between_spectra;

    return (uint64_t)(filter + (s->config->window_spectra - 1) * recv->samples_between_spectra) / 2;
}

static void lay_out_heap(struct detected_stream *s, struct powers *p)
{
    const struct xbgpu_detected_sizes *z = &s->sizes;
    size_t fractions = z->fractions_bytes, scales = z->scales_bytes;

    p->heap = (struct send_heap){
        .payload = p->payload,
        .payload_bytes = z->heap_bytes,
        .items = {[ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                  [ITEM_FREQUENCY] = {SPEAD_FREQUENCY, true, (uint64_t)s->detected->config->recv.chan_offset},
                  [ITEM_CENTRE] = {SPEAD_BEAM_CENTRE, true, centre_samples(s)},
                  [ITEM_FRACTIONS] = {SPEAD_BEAM_FRACTIONS, false, 0},
                  [ITEM_OFFSETS] = {SPEAD_BEAM_OFFSETS, false, fractions},
                  [ITEM_SCALES] = {SPEAD_BEAM_SCALES, false, fractions + scales}},
        .n_items = z->n_items,
    };
    p->heap.items[z->n_items - 1] = (struct spead_item){SPEAD_BEAM_POWERS, false, fractions + 2 * scales};
    p->group = (struct send_group){.heaps = &p->heap, .n_heaps = 1};
    p->job = (struct send_job){.ref = &p->base.ref, .groups = &p->group, .n_groups = 1};
}

static int create_buffer(struct detected_stream *s, struct powers *p)
{
    struct device *device = s->detected->engine->c.device;
    const struct xbgpu_detected_sizes *z = &s->sizes;

    p->stream = s;
    p->device_powers = device_alloc(device, z->n_powers * sizeof(*p->device_powers));
    p->device_payload = device_alloc(device, z->heap_bytes);
    p->device_saturated = device_alloc(device, z->n_beams * sizeof(*p->device_saturated));
    p->payload = device_alloc_pinned(device, z->heap_bytes);
    p->saturated = device_alloc_pinned(device, z->n_beams * sizeof(*p->saturated));
    p->n_present = calloc((size_t)s->config->heap_windows, sizeof(*p->n_present));
    if (!p->device_powers || !p->device_payload || !p->device_saturated || !p->payload || !p->saturated ||
        !p->n_present)
        return -ENOMEM;
    lay_out_heap(s, p);
    return outbuf_init(&p->base, &s->pool, s->detected->engine);
}

static void destroy_buffer(struct device *device, struct powers *p)
{
    outbuf_fini(&p->base);
    device_free(device, p->device_powers);
    device_free(device, p->device_payload);
    device_free(device, p->device_saturated);
    device_free_pinned(device, p->payload);
    device_free_pinned(device, p->saturated);
    free(p->n_present);
}

static int create_steering(struct detected_stream *s)
{
    size_t n_rows = s->sizes.n_beams * N_POLS;
    struct beam *rows = calloc(n_rows, sizeof(*rows));
    int err = rows ? 0 : -ENOMEM;

    for (size_t i = 0; !err && i < n_rows; i++)
        rows[i].pol = i % N_POLS;
    if (!err)
        err = xbgpu_steering_init(&s->steering, s->detected->config, s->detected->layout, s->detected->engine->c.device,
                                  rows, n_rows);
    free(rows);
    return err;
}

static int create_detect(struct detected_stream *s)
{
    const struct beam_detect_args args = {.form = {.format = s->detected->layout->format,
                                                   .n_ants = (uint32_t)s->detected->layout->n_ants,
                                                   .n_slots = s->steering.n_slots,
                                                   .wgmma = beamform_wgmma(s->detected->engine->c.device)},
                                          .products = (enum beam_products)s->config->products};
    struct kernel_constant constants[BEAM_DETECT_N_CONSTANTS];

    beam_detect_constants(&args, constants);
    return device_kernel_create(s->detected->engine->c.device, &beam_detect_kernel, constants, BEAM_DETECT_N_CONSTANTS,
                                &s->detect);
}

static int create_incoherent(struct detected_stream *s)
{
    const struct beam_incoherent_args args = {.format = s->detected->layout->format,
                                              .products = (enum beam_products)s->config->products};
    struct kernel_constant constants[BEAM_INCOHERENT_N_CONSTANTS];

    beam_incoherent_constants(&args, constants);
    return device_kernel_create(s->detected->engine->c.device, &beam_incoherent_kernel, constants,
                                BEAM_INCOHERENT_N_CONSTANTS, &s->detect);
}

/* Creates the weights or the steering of the beams, and the kernels. */
static int create_arithmetic(struct detected_stream *s)
{
    struct device *device = s->detected->engine->c.device;
    int err = is_incoherent(s) ? xbgpu_incoherent_init(&s->incoherent, s->detected->config, s->config, device)
                               : create_steering(s);

    if (!err)
        err = is_incoherent(s) ? create_incoherent(s) : create_detect(s);
    return err ? err : device_kernel_create(device, &beam_finish_kernel, NULL, 0, &s->finish);
}

static int open_stream(struct detected_stream *s, char *why, size_t why_bytes)
{
    const struct xbgpu_detected_sizes *z = &s->sizes;
    const struct xbgpu_config *c = s->detected->config;
    int64_t n_beams = (int64_t)z->n_beams, products = (int64_t)z->n_products, groups = (int64_t)z->n_groups;
    struct spead_descriptor descriptors[] = {
        [ITEM_TIMESTAMP] = OUTBUF_TIMESTAMP_DESCRIPTOR,
        [ITEM_FREQUENCY] =
            SPEAD_VALUE_DESCRIPTOR(SPEAD_FREQUENCY, "frequency", "Value of first channel in collections stored here."),
        [ITEM_CENTRE] = SPEAD_VALUE_DESCRIPTOR(SPEAD_BEAM_CENTRE, "beam_centre",
                                               "Samples from the timestamp to the centre of the first window."),
        [ITEM_FRACTIONS] = {SPEAD_BEAM_FRACTIONS, "beam_fractions", "Fraction of each window's data that was present.",
                            "<f4", .n_dims = 1, .shape = {s->config->heap_windows}},
        [ITEM_OFFSETS] = {SPEAD_BEAM_OFFSETS, "beam_offsets", "Powers are offset + scale * value.", "<f4", .n_dims = 3,
                          .shape = {n_beams, products, groups}},
        [ITEM_SCALES] = {SPEAD_BEAM_SCALES, "beam_scales", "Powers are offset + scale * value.", "<f4", .n_dims = 3,
                         .shape = {n_beams, products, groups}},
        {0},
    };
    struct send_stream_config config;

    descriptors[z->n_items - 1] = (struct spead_descriptor){
        SPEAD_BEAM_POWERS,
        "beam_powers",
        "Powers of beams: beam, window, product, channel.",
        z->scales_bytes ? "|u1" : "<f4",
        .n_dims = 4,
        .shape = {n_beams, s->config->heap_windows, products, groups},
    };
    outbuf_stream_config(&c->send, s->detected->engine, &config);
    config.name = s->config->name;
    config.sink.destinations = &s->config->destination;
    config.heap_bytes = z->heap_bytes;
    config.n_items = z->n_items;
    config.rate_bytes_per_s = z->rate;
    config.heap_cnt_start = (uint64_t)(c->recv.chan_offset / c->recv.n_chan_substream);
    config.heap_cnt_step = (uint64_t)(c->recv.n_chan / c->recv.n_chan_substream);
    config.descriptors = descriptors;
    config.n_descriptors = z->n_items;
    config.max_jobs = z->n_buffers;
    config.stats = &s->stats;
    int err = sender_group_add_stream(s->detected->engine->senders, &config, &s->send, why, why_bytes);
    for (size_t i = 0; !err && i < z->n_buffers; i++)
        err = sender_add_memory(s->send, s->buffers[i].payload, z->heap_bytes, why, why_bytes);
    return err;
}

static void register_metrics(struct detected_stream *s)
{
    char labels[128] = "";

    stats_label(labels, sizeof(labels), "stream", s->config->name);
    stats_counter("xbgpu_detected_skipped_heaps",
                  "Heaps of detected beams not sent because no antenna's heaps arrived.", labels, &s->skipped_heaps);
    stats_counter("xbgpu_detected_dropped_heaps",
                  "Heaps, or parts of heaps, of detected beams that were not made because no output buffer was free.",
                  labels, &s->dropped_heaps);
}

static int create_stream(struct detected_stream *s, char *why, size_t why_bytes)
{
    struct xbgpu_detected *d = s->detected;
    int err = create_arithmetic(s);

    s->buffers = calloc(s->sizes.n_buffers, sizeof(*s->buffers));
    if (!s->buffers)
        return -ENOMEM;
    for (size_t b = 0; !err && b < s->sizes.n_buffers; b++)
        err = create_buffer(s, &s->buffers[b]);
    register_metrics(s);
    if (!err)
        err = xbgpu_detected_health_init(&s->health, d->config, d->layout, (size_t)(s - d->streams));
    if (!err)
        err = xbgpu_detected_audit_init(&s->audit, d->config, d->layout, (size_t)(s - d->streams), d->engine->c.device);
    if (!err)
        err = xbgpu_beam_stream_init(&s->sent, s->config->name, s->config->send_enabled, d->engine->c.sensors,
                                     timebase_unix_ns(&d->timebase, 0));
    return err ? err : open_stream(s, why, why_bytes);
}

int xbgpu_detected_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                          struct xbgpu_detected **detected, char *why, size_t why_bytes)
{
    int err = 0;

    *detected = NULL;
    if (config->detected.n == 0)
        return 0;
    struct xbgpu_detected *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    *d = (struct xbgpu_detected){
        .config = config,
        .layout = layout,
        .engine = engine,
        .timebase = {config->time.sync_time_s, config->time.adc_sample_rate_hz, false},
        .n = config->detected.n,
        .streams = calloc(config->detected.n, sizeof(*d->streams)),
    };
    if (!d->streams) {
        free(d);
        return -ENOMEM;
    }
    *detected = d;
    for (size_t i = 0; i < d->n; i++) {
        struct detected_stream *s = &d->streams[i];
        s->detected = d;
        s->config = xbgpu_config_detected(config, i);
        s->sizes = xbgpu_detected_sizes(config, layout, i);
    }
    for (size_t i = 0; !err && i < d->n; i++)
        err = create_stream(&d->streams[i], why, why_bytes);
    return err;
}

void xbgpu_detected_destroy(struct xbgpu_detected *detected)
{
    if (!detected)
        return;
    struct device *device = detected->engine->c.device;
    for (size_t i = 0; i < detected->n; i++) {
        struct detected_stream *s = &detected->streams[i];
        for (size_t b = 0; s->buffers && b < s->sizes.n_buffers; b++)
            destroy_buffer(device, &s->buffers[b]);
        if (s->steering.device)
            xbgpu_steering_fini(&s->steering);
        xbgpu_incoherent_fini(&s->incoherent);
        device_kernel_destroy(s->detect);
        device_kernel_destroy(s->finish);
        xbgpu_detected_health_fini(&s->health);
        xbgpu_detected_audit_fini(&s->audit, device);
        free(s->buffers);
    }
    free(detected->streams);
    free(detected);
}
