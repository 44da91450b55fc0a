/* beams.c - computes voltage beams from batches, and makes their heaps. */
#include "xbgpu/beam/beams.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/engine/outbuf.h"
#include "common/net/spead.h"
#include "common/send/sender.h"
#include "common/send/sender_group.h"
#include "common/telemetry/stats.h"
#include "kernels/beamform/beamform.h"
#include "xbgpu/beam/beam_audit.h"
#include "xbgpu/beam/beam_health.h"
#include "xbgpu/beam/beam_stream.h"
#include "xbgpu/beam/steering.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_TIMESTAMP, ITEM_FREQUENCY, ITEM_BEAM_ANTS, ITEM_RAW, ITEM_MASK, N_ITEMS };

/* An output buffer for all beams of one device input. */
struct beam_buffer {
    struct outbuf base; /* first */
    struct xbgpu_beams *beams;
    int8_t *device_voltages;    /* [const] [batch][beam][chan][spectrum][re, im] */
    uint32_t *device_saturated; /* [const] [batch][beam] */
    uint8_t *payloads;          /* [const] pinned: [batch][beam] voltages, and the bitmap if heaps contain it */
    uint32_t *saturated;        /* [const] pinned copy of device_saturated */
    uint32_t *n_present;        /* [const] [batch] number of antennas whose heaps arrived */
    float *device_renormalise;  /* [const] [batch][beam] factors of the beams; NULL: no beam is renormalised */
    float *renormalise;         /* [const] pinned: factors to copy to device_renormalise */
    int64_t first_batch;        /* number of batch 0 */
    size_t begin, end;          /* range of the batches whose heaps are in the buffer */
    int64_t last_arrival_ns;
    struct xbgpu_beam_audit audit;
    struct send_heap *heaps;   /* [const] [batch][beam] heaps of all beams */
    struct send_heap *sent;    /* [batch][beam] heaps to send, at the beginning of each batch's row */
    struct send_group *groups; /* [const] [batch] */
    struct send_job job;
};

struct beam_output {
    const struct xbgpu_config_beam *config; /* [const] */
    struct xbgpu_beam_stream sent;
};

struct xbgpu_beams {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct engine *engine;
    size_t n;             /* [const] beams */
    size_t heap_bytes;    /* [const] bytes of a heap's voltages */
    size_t payload_bytes; /* [const] bytes of a heap's voltages, and of its bitmap if heaps contain it */
    size_t n_items;       /* [const] number of items in a heap */
    bool renormalises;    /* [const] true if at least one beam is renormalised */
    struct timebase timebase;
    struct beam *parameters; /* [n] on the host */
    struct xbgpu_steering steering;
    struct device_kernel *kernel;
    struct outbuf_pool pool;
    struct beam_buffer *buffers; /* [n_buffers] */
    size_t n_buffers;            /* [const] */
    bool taken;                  /* true if the current input's batches have been queued or dropped */
    struct beam_output *outputs; /* [n] */
    struct endpoint_list destinations;
    struct send_stream *send;
    struct send_stream_stats stats;
    struct xbgpu_beam_health *health;
    struct counter skipped_heaps; /* number of heaps not sent because no antenna was present */
    struct counter dropped_heaps; /* number of heaps not made because no buffer was free */
};

/* ---- Making heaps ------------------------------------------------------------------------------------------------ */

void xbgpu_beams_begin(struct xbgpu_beams *beams)
{
    if (!beams)
        return;
    beams->taken = false;
    xbgpu_steering_begin(&beams->steering);
}

/* Queues the beamform kernel for batches [begin, end) of the input. */
static void form(struct xbgpu_beams *b, struct device_stream *compute, const struct xbgpu_output_input *input,
                 struct beam_buffer *buffer, size_t begin, size_t end)
{
    const struct xbgpu_layout *l = b->layout;
    const struct beamform_args args = {
        .voltages = input->voltages,
        .coefficients = b->steering.coefficients,
        .fragments = b->steering.fragments,
        .exponents = b->steering.exponents,
        .beams = b->steering.parameters,
        .slots = b->steering.slots,
        .n_slots = b->steering.n_slots,
        .renormalise = buffer->device_renormalise,
        .out = buffer->device_voltages,
        .saturated = buffer->device_saturated,
        .first_spectrum = (uint64_t)input->first_batch * l->n_spectra,
        .format = l->format,
        .n_beams = (uint32_t)b->n,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
        .n_spectra = (uint32_t)l->n_spectra,
        .chan_offset = (uint32_t)b->config->recv.chan_offset,
        .first_batch = (uint32_t)begin,
        .n_batches = (uint32_t)(end - begin),
        .wgmma = beamform_wgmma(b->engine->c.device),
    };
    struct kernel_grid grid = beamform_grid(&args);

    device_launch(compute, b->kernel, &grid, &args);
}

/* Queues all work for a buffer.  If new coefficients are due, first queues their computation. */
static void fill(struct xbgpu_beams *b, struct device_stream *compute, const struct xbgpu_output_input *input,
                 struct beam_buffer *buffer)
{
    const struct xbgpu_layout *l = b->layout;
    size_t first = buffer->begin, n = buffer->end - first;
    struct device_stream *download = b->engine->download;

    if (b->renormalises)
        device_copy(compute, buffer->device_renormalise + first * b->n, buffer->renormalise + first * b->n,
                    n * b->n * sizeof(*buffer->renormalise));
    device_fill(compute, buffer->device_saturated, 0, l->n_batches * b->n * sizeof(*buffer->saturated));
    for (size_t begin = first, end; begin < buffer->end; begin = end) {
        end = (size_t)(xbgpu_steering_make(&b->steering, compute, input->first_batch + (int64_t)begin,
                                           input->first_batch + (int64_t)buffer->end) -
                       input->first_batch);
        form(b, compute, input, buffer, begin, end);
        xbgpu_beam_audit_fetch(&buffer->audit, compute, begin, end, b->steering.coefficients, b->steering.exponents);
    }
    outbuf_finish(&buffer->base, compute, download);
    device_copy_2d(download, buffer->payloads + first * b->n * b->payload_bytes, b->payload_bytes,
                   buffer->device_voltages + first * b->n * b->heap_bytes, b->heap_bytes, b->heap_bytes, n * b->n);
    device_copy(download, buffer->saturated, buffer->device_saturated,
                l->n_batches * b->n * sizeof(*buffer->saturated));
    outbuf_download(&buffer->base, download);
}

static uint32_t count_present(const struct xbgpu_beams *b, const struct xbgpu_output_input *input, size_t batch)
{
    uint32_t n = 0;

    for (size_t ant = 0; ant < b->layout->n_ants; ant++)
        n += input->present[batch * b->layout->n_ants + ant];
    return n;
}

/* If heaps contain the bitmap of antennas, writes the bitmap after the voltages of each heap of a batch.  Antenna a
 * is bit a % 8 of byte a / 8. */
static void write_mask(const struct xbgpu_beams *b, const struct xbgpu_output_input *input, struct beam_buffer *buffer,
                       size_t batch)
{
    const uint8_t *present = input->present + batch * b->layout->n_ants;
    size_t n_bytes = b->payload_bytes - b->heap_bytes;
    uint8_t *mask = buffer->payloads + batch * b->n * b->payload_bytes + b->heap_bytes;

    if (n_bytes == 0)
        return;
    memset(mask, 0, n_bytes);
    for (size_t ant = 0; ant < b->layout->n_ants; ant++)
        mask[ant / 8] |= (uint8_t)((present[ant] != 0) << ant % 8);
    for (size_t beam = 1; beam < b->n; beam++)
        memcpy(mask + beam * b->payload_bytes, mask, n_bytes);
}

/* Returns the factor by which a beam is scaled up in a batch, to compensate for absent antennas that have a weight. */
static float factor_of(const struct xbgpu_beams *b, size_t beam, const uint8_t *present)
{
    const float *amplitudes = b->steering.amplitudes + beam * b->layout->n_ants;
    uint32_t n = 0, n_present = 0;

    for (size_t ant = 0; ant < b->layout->n_ants; ant++) {
        bool is_used = amplitudes[ant] != 0;
        n += is_used;
        n_present += is_used && present[ant];
    }
    return n_present > 0 ? (float)sqrt((double)n / n_present) : 1;
}

static void set_factors(const struct xbgpu_beams *b, const struct xbgpu_output_input *input, struct beam_buffer *buffer,
                        size_t batch)
{
    size_t n_ants = b->layout->n_ants;
    bool misses = buffer->n_present[batch] < n_ants;

    for (size_t beam = 0; beam < b->n; beam++)
        buffer->renormalise[batch * b->n + beam] =
            misses && b->outputs[beam].config->renormalise ? factor_of(b, beam, input->present + batch * n_ants) : 1;
}

static void take(struct xbgpu_beams *b, struct device_stream *compute, const struct xbgpu_output_input *input,
                 struct beam_buffer *buffer)
{
    buffer->first_batch = input->first_batch;
    buffer->begin = input->begin;
    buffer->end = input->n_batches;
    buffer->last_arrival_ns = input->last_arrival_ns;
    for (size_t batch = buffer->begin; batch < buffer->end; batch++) {
        buffer->n_present[batch] = count_present(b, input, batch);
        write_mask(b, input, buffer, batch);
        if (b->renormalises)
            set_factors(b, input, buffer, batch);
    }
    xbgpu_beam_audit_draw(&buffer->audit, input, buffer->begin, buffer->end);
    fill(b, compute, input, buffer);
}

bool xbgpu_beams_process(struct xbgpu_beams *beams, struct device_stream *compute,
                         const struct xbgpu_output_input *input, bool may_wait)
{
    struct xbgpu_beams *b = beams;

    if (!b || b->taken || input->begin >= input->n_batches)
        return true;
    struct beam_buffer *buffer = (struct beam_buffer *)outbuf_take(&b->pool);
    if (!buffer && may_wait)
        return false;
    b->taken = true;
    if (buffer)
        take(b, compute, input, buffer);
    else
        counter_add(&b->dropped_heaps, (input->n_batches - input->begin) * b->n);
    return true;
}

void xbgpu_beams_steer(struct xbgpu_beams *beams, size_t beam, int64_t start_samples,
                       const struct beam_steering *steering)
{
    xbgpu_steering_set(&beams->steering, beam, start_samples, steering);
}

void xbgpu_beams_calibrate(struct xbgpu_beams *beams, size_t input, const float *gains)
{
    if (beams)
        xbgpu_steering_calibrate(&beams->steering, input, gains);
}

int64_t xbgpu_beams_next_samples(const struct xbgpu_beams *beams, size_t beam)
{
    return sensor_read(&beams->outputs[beam].sent.next_timestamp).value.integer;
}

int64_t xbgpu_beams_set_capture(struct xbgpu_beams *beams, size_t beam, bool on, int64_t from_samples)
{
    return xbgpu_beam_stream_set_capture(&beams->outputs[beam].sent, on, from_samples);
}

/* ---- Sending heaps ----------------------------------------------------------------------------------------------- */

bool xbgpu_beams_own(const struct xbgpu_beams *beams, const struct outbuf *buffer)
{
    return beams && buffer->pool == &beams->pool;
}

bool xbgpu_beams_check(struct outbuf *base)
{
    static struct log_limit limit;
    struct beam_buffer *buffer = (struct beam_buffer *)base;
    const struct xbgpu_beam_audit *audit = &buffer->audit;
    const struct xbgpu_beams *b = buffer->beams;
    struct beam_output *output = &b->outputs[audit->beam];

    if (!audit->drawn)
        return true;
    counter_add(&output->sent.audits, 1);
    if (xbgpu_beam_audit_agrees(audit, buffer->payloads, b->payload_bytes, buffer->renormalise, buffer->first_batch))
        return true;
    counter_add(&output->sent.audit_failures, 1);
    log_limited(&limit, LOG_LEVEL_ERROR,
                "%s: the device's beam in channel %zu, spectra %zu to %zu, batch %lld is wrong: the memory, the bus or "
                "the GPU corrupts data",
                output->config->name, audit->chan, audit->first, audit->first + audit->n - 1,
                (long long)(buffer->first_batch + (int64_t)audit->batch));
    return false;
}

/* Counts the clipped samples of a beam's heap.  Adds the heap to the batch's group if the heap is to be sent. */
static void push_heap(struct xbgpu_beams *b, struct beam_buffer *buffer, size_t batch, size_t beam, int64_t timestamp)
{
    struct xbgpu_beam_stream *stream = &b->outputs[beam].sent;
    struct send_group *group = &buffer->groups[batch];
    uint32_t n_clipped = buffer->saturated[batch * b->n + beam];

    stream->n_clipped += n_clipped;
    if (!group->send || !xbgpu_beam_stream_sends(stream, timestamp))
        return;
    struct send_heap *heap = &group->heaps[group->n_heaps++];
    *heap = buffer->heaps[batch * b->n + beam];
    heap->items[ITEM_TIMESTAMP].value = (uint64_t)timestamp & SPEAD_VALUE_MASK;
    heap->items[ITEM_BEAM_ANTS].value = buffer->n_present[batch];
    xbgpu_beam_stream_count(stream, b->payload_bytes, b->heap_bytes / 2, n_clipped);
}

void xbgpu_beams_push(struct outbuf *base)
{
    struct beam_buffer *buffer = (struct beam_buffer *)base;
    struct xbgpu_beams *b = buffer->beams;

    for (size_t batch = buffer->begin; batch < buffer->end; batch++) {
        struct send_group *group = &buffer->groups[batch];
        int64_t number = buffer->first_batch + (int64_t)batch, timestamp = number * b->layout->batch_samples;
        group->send = buffer->n_present[batch] > 0;
        group->n_heaps = 0;
        group->ready_ns = buffer->last_arrival_ns;
        if (!group->send)
            counter_add(&b->skipped_heaps, b->n);
        xbgpu_beam_health_take(b->health, number, buffer->payloads + batch * b->n * b->payload_bytes, b->payload_bytes,
                               buffer->n_present[batch]);
        for (size_t beam = 0; beam < b->n; beam++)
            push_heap(b, buffer, batch, beam, timestamp);
        group->send = group->n_heaps > 0;
    }
    int64_t end_samples = (buffer->first_batch + (int64_t)buffer->end) * b->layout->batch_samples;
    int64_t end_ns = timebase_unix_ns(&b->timebase, end_samples);
    for (size_t beam = 0; beam < b->n; beam++)
        xbgpu_beam_stream_show(&b->outputs[beam].sent, end_samples, end_ns);
    buffer->job.groups = buffer->groups + buffer->begin;
    buffer->job.n_groups = buffer->end - buffer->begin;
    buffer_ref_set(&buffer->base.ref, 1);
    sender_push(b->send, &buffer->job);
}

struct xbgpu_beam_health *xbgpu_beams_health(const struct xbgpu_beams *beams)
{
    return beams ? beams->health : NULL;
}

uint64_t xbgpu_beams_seed(const struct xbgpu_beams *beams, size_t beam)
{
    return beams->parameters[beam].seed;
}

void xbgpu_beams_log(const struct xbgpu_beams *beams)
{
    for (size_t beam = 0; beams && beam < beams->n; beam++)
        xbgpu_beam_stream_log(&beams->outputs[beam].sent);
    if (beams)
        log_info("beams: %" PRIu64 " heaps skipped (no antenna's heaps arrived), %" PRIu64
                 " dropped (no free output buffer)",
                 counter_get(&beams->skipped_heaps), counter_get(&beams->dropped_heaps));
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static void lay_out_heaps(struct xbgpu_beams *b, struct beam_buffer *buffer)
{
    for (size_t i = 0; i < b->layout->n_batches * b->n; i++)
        buffer->heaps[i] = (struct send_heap){
            .destination = (unsigned)(i % b->n),
            .payload = buffer->payloads + i * b->payload_bytes,
            .payload_bytes = b->payload_bytes,
            .items = {[ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                      [ITEM_FREQUENCY] = {SPEAD_FREQUENCY, true, (uint64_t)b->config->recv.chan_offset},
                      [ITEM_BEAM_ANTS] = {SPEAD_BEAM_ANTS, true, 0},
                      [ITEM_RAW] = {SPEAD_BF_RAW, false, 0},
                      [ITEM_MASK] = {SPEAD_BEAM_MASK, false, b->heap_bytes}},
            .n_items = b->n_items,
        };
    for (size_t batch = 0; batch < b->layout->n_batches; batch++)
        buffer->groups[batch].heaps = buffer->sent + batch * b->n;
    buffer->job.ref = &buffer->base.ref;
}

static int create_buffer(struct xbgpu_beams *b, struct beam_buffer *buffer)
{
    struct device *device = b->engine->c.device;
    size_t n_heaps = b->layout->n_batches * b->n;

    buffer->beams = b;
    buffer->device_voltages = device_alloc(device, n_heaps * b->heap_bytes);
    buffer->device_saturated = device_alloc(device, n_heaps * sizeof(*buffer->saturated));
    buffer->payloads = device_alloc_pinned(device, n_heaps * b->payload_bytes);
    buffer->saturated = device_alloc_pinned(device, n_heaps * sizeof(*buffer->saturated));
    buffer->n_present = calloc(b->layout->n_batches, sizeof(*buffer->n_present));
    if (b->renormalises) {
        buffer->device_renormalise = device_alloc(device, n_heaps * sizeof(*buffer->renormalise));
        buffer->renormalise = device_alloc_pinned(device, n_heaps * sizeof(*buffer->renormalise));
    }
    buffer->heaps = calloc(n_heaps, sizeof(*buffer->heaps));
    buffer->sent = calloc(n_heaps, sizeof(*buffer->sent));
    buffer->groups = calloc(b->layout->n_batches, sizeof(*buffer->groups));
    if (!buffer->device_voltages || !buffer->device_saturated || !buffer->payloads || !buffer->saturated ||
        !buffer->n_present || !buffer->heaps || !buffer->sent || !buffer->groups ||
        (b->renormalises && (!buffer->device_renormalise || !buffer->renormalise)))
        return -ENOMEM;
    int err = xbgpu_beam_audit_init(&buffer->audit, b->config, b->layout, device, b->parameters);
    if (err)
        return err;
    lay_out_heaps(b, buffer);
    return outbuf_init(&buffer->base, &b->pool, b->engine);
}

static void destroy_buffer(struct xbgpu_beams *b, struct beam_buffer *buffer)
{
    struct device *device = b->engine->c.device;

    outbuf_fini(&buffer->base);
    xbgpu_beam_audit_fini(&buffer->audit, device);
    device_free(device, buffer->device_voltages);
    device_free(device, buffer->device_saturated);
    device_free_pinned(device, buffer->payloads);
    device_free_pinned(device, buffer->saturated);
    device_free(device, buffer->device_renormalise);
    device_free_pinned(device, buffer->renormalise);
    free(buffer->n_present);
    free(buffer->heaps);
    free(buffer->sent);
    free(buffer->groups);
}

static int create_parameters(struct xbgpu_beams *b)
{
    b->parameters = calloc(b->n, sizeof(*b->parameters));
    if (!b->parameters)
        return -ENOMEM;
    for (size_t i = 0; i < b->n; i++) {
        const struct xbgpu_config_beam *config = xbgpu_config_beam(b->config, i);
        uint64_t seed;
        if (engine_dither_seed(config->dither_seed, &seed))
            return -EIO;
        b->parameters[i] = (struct beam){
            .seed = seed,
            .pol = (uint32_t)config->pol,
            .dither = config->dither == XBGPU_DITHER_UNIFORM,
        };
    }
    return 0;
}

static int create_kernel(struct xbgpu_beams *b)
{
    const struct beamform_args args = {
        .format = b->layout->format,
        .n_ants = (uint32_t)b->layout->n_ants,
        .n_slots = b->steering.n_slots,
        .wgmma = beamform_wgmma(b->engine->c.device),
    };
    struct kernel_constant constants[BEAMFORM_N_CONSTANTS];

    beamform_constants(&args, constants);
    return device_kernel_create(b->engine->c.device, &beamform_kernel, constants, BEAMFORM_N_CONSTANTS, &b->kernel);
}

static int create_streams(struct xbgpu_beams *b)
{
    int err = 0;

    b->outputs = calloc(b->n, sizeof(*b->outputs));
    b->destinations.items = calloc(b->n, sizeof(*b->destinations.items));
    if (!b->outputs || !b->destinations.items)
        return -ENOMEM;
    for (size_t i = 0; !err && i < b->n; i++) {
        struct beam_output *output = &b->outputs[i];
        output->config = xbgpu_config_beam(b->config, i);
        b->destinations.items[b->destinations.n++] = output->config->destination.items[0];
        err = xbgpu_beam_stream_init(&output->sent, output->config->name, output->config->send_enabled,
                                     b->engine->c.sensors, timebase_unix_ns(&b->timebase, 0));
    }
    stats_counter("xbgpu_beam_skipped_heaps", "Heaps of beams not sent because no antenna's heaps arrived.", NULL,
                  &b->skipped_heaps);
    stats_counter("xbgpu_beam_dropped_heaps", "Heaps of beams not made because no output buffer was free.", NULL,
                  &b->dropped_heaps);
    return err;
}

static int open_stream(struct xbgpu_beams *b, char *why, size_t why_bytes)
{
    const struct spead_descriptor descriptors[N_ITEMS] = {
        [ITEM_TIMESTAMP] = OUTBUF_TIMESTAMP_DESCRIPTOR,
        [ITEM_FREQUENCY] = SPEAD_VALUE_DESCRIPTOR(SPEAD_FREQUENCY, "frequency",
                                                  "Value of the first channel in collections stored here."),
        [ITEM_BEAM_ANTS] =
            SPEAD_VALUE_DESCRIPTOR(SPEAD_BEAM_ANTS, "beam_ants", "Count of antennas included in the beam sum."),
        [ITEM_RAW] = {.id = SPEAD_BF_RAW,
                      .name = "bf_raw",
                      .description = "Beamformer output for frequency-domain beam.",
                      .dtype = "|i1",
                      .format_type = 'i',
                      .format_bits = 8,
                      .n_dims = 3,
                      .shape = {(int64_t)b->layout->n_chan, (int64_t)b->layout->n_spectra, 2}},
        [ITEM_MASK] = {.id = SPEAD_BEAM_MASK,
                       .name = "beam_mask",
                       .description = "Antennas included in beam: antenna a is bit a % 8 of byte a / 8.",
                       .dtype = "|u1",
                       .format_type = 'u',
                       .format_bits = 8,
                       .n_dims = 1,
                       .shape = {(int64_t)(b->payload_bytes - b->heap_bytes)}},
    };
    struct send_stream_config config;

    outbuf_stream_config(&b->config->send, b->engine, &config);
    config.name = "beams";
    config.sink.destinations = &b->destinations;
    config.heap_bytes = b->payload_bytes;
    config.n_items = b->n_items;
    config.rate_bytes_per_s = xbgpu_beam_rate(b->config, b->layout);
    config.heap_cnt_start = (uint64_t)(b->config->recv.chan_offset / b->config->recv.n_chan_substream);
    config.heap_cnt_step = (uint64_t)(b->config->recv.n_chan / b->config->recv.n_chan_substream);
    config.descriptors = descriptors;
    config.n_descriptors = b->n_items;
    config.max_jobs = b->n_buffers;
    config.stats = &b->stats;
    int err = sender_group_add_stream(b->engine->senders, &config, &b->send, why, why_bytes);
    for (size_t i = 0; !err && i < b->n_buffers; i++)
        err = sender_add_memory(b->send, b->buffers[i].payloads, b->layout->n_batches * b->n * b->payload_bytes, why,
                                why_bytes);
    return err;
}

int xbgpu_beams_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                       struct xbgpu_beams **beams, char *why, size_t why_bytes)
{
    *beams = NULL;
    if (config->beams.n == 0)
        return 0;
    struct xbgpu_beams *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->config = config;
    b->layout = layout;
    b->engine = engine;
    b->n = config->beams.n;
    b->heap_bytes = layout->n_chan * layout->n_spectra * 2;
    b->payload_bytes = xbgpu_beam_payload_bytes(config, layout);
    b->n_items = config->steering.antenna_mask ? N_ITEMS : ITEM_MASK;
    b->renormalises = xbgpu_renormalises(config);
    b->timebase = (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz, false};
    b->n_buffers = xbgpu_beam_buffers(config, layout);
    b->buffers = calloc(b->n_buffers, sizeof(*b->buffers));
    int err = b->buffers ? create_parameters(b) : -ENOMEM;
    if (!err)
        err = xbgpu_steering_init(&b->steering, config, layout, engine->c.device, b->parameters, b->n);
    if (!err)
        err = create_kernel(b);
    for (size_t i = 0; !err && i < b->n_buffers; i++)
        err = create_buffer(b, &b->buffers[i]);
    if (!err)
        err = create_streams(b);
    if (!err)
        err = xbgpu_beam_health_create(config, layout, &b->health);
    if (!err)
        err = open_stream(b, why, why_bytes);
    if (err) {
        xbgpu_beams_destroy(b);
        return err;
    }
    *beams = b;
    return 0;
}

void xbgpu_beams_destroy(struct xbgpu_beams *beams)
{
    struct xbgpu_beams *b = beams;

    if (!b)
        return;
    for (size_t i = 0; b->buffers && i < b->n_buffers; i++)
        destroy_buffer(b, &b->buffers[i]);
    xbgpu_steering_fini(&b->steering);
    xbgpu_beam_health_destroy(b->health);
    device_kernel_destroy(b->kernel);
    free(b->buffers);
    free(b->parameters);
    free(b->outputs);
    free(b->destinations.items);
    free(b);
}
