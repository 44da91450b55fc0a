/* send.c - the last stage: sends batches as heaps, one heap per substream. */
#include "fgpu/send.h"

#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/base/log.h"
#include "common/net/spead.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "fgpu/config/send_stream.h"
#include "fgpu/gnss/gnss_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_ITEMS        4
#define ITEM_TIMESTAMP 0 /* index of the item whose value changes after a heap's creation; no other item changes */

struct fgpu_send {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct engine *engine;
    struct fgpu_stream *streams; /* shape [ant][output] */
};

struct fgpu_stream *fgpu_send_stream(struct fgpu_send *send, size_t ant, size_t output)
{
    return &send->streams[ant * send->layout->n_outputs + output];
}

/* Each share of a stream has its own group for a batch.  Copies the flag and the arrival time of batch 'b' to these
 * groups.  Copies the clip counts to the group of share 0. */
static void share_group(struct fgpu_buffer *buffer, size_t b)
{
    const struct send_group *group = &buffer->job.groups[b];

    for (size_t i = 0; i < buffer->stream->n_shares; i++) {
        struct send_group *share = &buffer->shares[i].groups[b];
        share->send = group->send;
        share->ready_ns = group->ready_ns;
        for (int pol = 0; pol < N_POLS && i == 0; pol++) /* only share 0 counts clipped samples */
            share->n_clipped[pol] = buffer->saturated[b * N_POLS + (size_t)pol];
    }
}

/* Counts the sent and the saturated samples of a buffer, and updates the sensors.  The end of the last sent batch is
 * the time of the readings. */
static void tell(struct fgpu_stream *stream, const struct fgpu_buffer *buffer)
{
    int64_t batch_samples = fgpu_batch_samples(stream->output), end_samples = 0;

    for (size_t b = 0; b < buffer->job.n_groups; b++) {
        if (!buffer->job.groups[b].send)
            continue;
        end_samples = buffer->timestamp_samples + (int64_t)(b + 1) * batch_samples;
        counter_add(&stream->samples, (uint64_t)(stream->output->n_chan * stream->output->spectra_per_heap * N_POLS));
        for (int pol = 0; pol < N_POLS; pol++)
            stream->n_clipped[pol] += buffer->saturated[b * N_POLS + (size_t)pol];
    }
    for (int pol = 0; pol < N_POLS && end_samples; pol++)
        sensor_set_integer(&stream->clip_cnt[pol], timebase_unix_ns(&stream->timebase, end_samples), SENSOR_NOMINAL,
                           stream->n_clipped[pol]);
}

size_t fgpu_buffer_first_sent(const struct fgpu_buffer *buffer)
{
    size_t b = 0;

    while (b < buffer->job.n_groups && !buffer->job.groups[b].send)
        b++;
    return b;
}

void fgpu_send_push(struct fgpu_buffer *buffer)
{
    struct fgpu_stream *stream = buffer->stream;
    int64_t batch_samples = fgpu_batch_samples(stream->output);

    for (size_t b = 0; b < buffer->job.n_groups; b++) {
        struct send_group *group = &buffer->job.groups[b];
        uint64_t timestamp = (uint64_t)(buffer->timestamp_samples + (int64_t)b * batch_samples) & SPEAD_VALUE_MASK;
        for (size_t h = 0; h < group->n_heaps; h++)
            group->heaps[h].items[ITEM_TIMESTAMP].value = timestamp;
        share_group(buffer, b);
    }
    tell(stream, buffer);
    buffer_ref_set(&buffer->base.ref, (int)stream->n_shares);
    for (size_t i = 0; i < stream->n_shares; i++)
        sender_push(stream->sends[i], &buffer->shares[i]);
}

/* Returns the first destination of share 'i'.  For i == n_shares, returns the number of destinations. */
static size_t first_destination(const struct fgpu_stream *stream, size_t i)
{
    return i * stream->output->destinations.n / stream->n_shares;
}

/* Divides the heaps of the buffer's job among its shares. */
static int create_shares(struct fgpu_buffer *buffer)
{
    const struct fgpu_stream *stream = buffer->stream;
    size_t n_batches = buffer->job.n_groups;

    buffer->shares = calloc(stream->n_shares, sizeof(*buffer->shares));
    for (size_t i = 0; buffer->shares && i < stream->n_shares; i++) {
        size_t first = first_destination(stream, i), end = first_destination(stream, i + 1);
        struct send_group *groups = calloc(n_batches, sizeof(*groups));
        buffer->shares[i] = (struct send_job){.ref = &buffer->base.ref, .groups = groups, .n_groups = n_batches};
        if (!groups)
            return -ENOMEM;
        for (size_t b = 0; b < n_batches; b++) {
            groups[b] = (struct send_group){.heaps = buffer->job.groups[b].heaps + first, .n_heaps = end - first};
            for (size_t h = 0; h < groups[b].n_heaps; h++)
                groups[b].heaps[h].destination = (unsigned)h; /* index in the share's sink */
        }
    }
    return buffer->shares ? 0 : -ENOMEM;
}

/* Creates the heaps of a buffer.  The payloads lie one after the other.  'payloads' points to the first payload.  The
 * heaps are laid out only once, because later only the timestamps of the heaps change. */
static int create_job(struct fgpu_buffer *buffer, const uint8_t *payloads, uint64_t feng_id)
{
    const struct fgpu_config_output *output = buffer->stream->output;
    size_t n_batches = (size_t)output->n_batches, n_substreams = output->destinations.n;
    size_t heap_bytes = fgpu_batch_bytes(output) / n_substreams;
    struct send_heap *heaps = calloc(n_batches * n_substreams, sizeof(*heaps));

    buffer->job = (struct send_job){
        .ref = &buffer->base.ref, .groups = calloc(n_batches, sizeof(struct send_group)), .n_groups = n_batches};
    if (!heaps || !buffer->job.groups) {
        free(heaps);
        free(buffer->job.groups);
        buffer->job.groups = NULL;
        return -ENOMEM;
    }
    for (size_t b = 0; b < n_batches; b++) {
        buffer->job.groups[b] = (struct send_group){.heaps = &heaps[b * n_substreams], .n_heaps = n_substreams};
        for (size_t s = 0; s < n_substreams; s++)
            heaps[b * n_substreams + s] = (struct send_heap){
                .payload = payloads + (b * n_substreams + s) * heap_bytes,
                .payload_bytes = heap_bytes,
                .items = {[ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                          {SPEAD_FENG_ID, true, feng_id},
                          {SPEAD_FREQUENCY, true, s * (uint64_t)output->n_chan / n_substreams},
                          {SPEAD_FENG_RAW, false, 0}},
                .n_items = N_ITEMS,
            };
    }
    return create_shares(buffer);
}

static void destroy_job(struct fgpu_buffer *buffer)
{
    for (size_t i = 0; buffer->shares && i < buffer->stream->n_shares; i++)
        free(buffer->shares[i].groups);
    free(buffer->shares);
    if (buffer->job.groups)
        free(buffer->job.groups[0].heaps);
    free(buffer->job.groups);
}

static size_t voltage_bytes(const struct fgpu_config_output *output)
{
    return fgpu_batch_bytes(output) * (size_t)output->n_batches;
}

/* Allocates a buffer's voltages, and returns in 'payloads' the memory for packets' payloads.  With send.gpudirect
 * the NIC reads the voltages on the device; otherwise packets are made from a copy on the host. */
static int create_voltages(struct fgpu_send *send, struct fgpu_buffer *buffer, const uint8_t **payloads)
{
    struct fgpu_stream *stream = buffer->stream;
    size_t n_bytes = voltage_bytes(stream->output), at = (size_t)(buffer - stream->buffers) * n_bytes;

    if (send->config->send.gpudirect) {
        buffer->parts.voltages = stream->exported.device + at;
        *payloads = stream->exported.nic + at;
        return 0;
    }
    buffer->parts.voltages = device_alloc(send->engine->c.device, n_bytes);
    buffer->voltages = device_alloc_pinned(send->engine->c.device, n_bytes);
    *payloads = buffer->voltages;
    return buffer->parts.voltages && buffer->voltages ? 0 : -ENOMEM;
}

static int create_buffer(struct fgpu_send *send, struct fgpu_buffer *buffer)
{
    const struct fgpu_config_output *output = buffer->stream->output;
    size_t saturated_bytes = (size_t)output->n_batches * N_POLS * sizeof(uint32_t);
    size_t rotation_bytes = (size_t)(output->n_batches * output->spectra_per_heap) * N_POLS * 2 * sizeof(float);

    const uint8_t *payloads;
    int err = create_voltages(send, buffer, &payloads);
    if (err)
        return err;
    buffer->parts.saturated = device_alloc(send->engine->c.device, saturated_bytes);
    buffer->parts.rotation_device = device_alloc(send->engine->c.device, rotation_bytes);
    buffer->parts.rotation = device_alloc_pinned(send->engine->c.device, rotation_bytes);
    buffer->saturated = device_alloc_pinned(send->engine->c.device, saturated_bytes);
    if (!buffer->parts.saturated || !buffer->parts.rotation_device || !buffer->parts.rotation || !buffer->saturated)
        return -ENOMEM;
    if ((size_t)(output - fgpu_config_output(send->config, 0)) == fgpu_power_output(send->config)) {
        buffer->parts.power = device_alloc(send->engine->c.device, N_POLS * sizeof(*buffer->power));
        buffer->power = device_alloc_pinned(send->engine->c.device, N_POLS * sizeof(*buffer->power));
        if (!buffer->parts.power || !buffer->power)
            return -ENOMEM;
    }
    /* Sets all rotations to 0.  Otherwise a spectrum that is never appended would have an arbitrary rotation. */
    memset(buffer->parts.rotation, 0, rotation_bytes);
    err = create_job(buffer, payloads, (uint64_t)fgpu_config_antenna(send->config, buffer->stream->ant)->feng_id);
    return err ? err : outbuf_init(&buffer->base, &buffer->stream->pool, send->engine);
}

static void destroy_buffer(struct fgpu_send *send, struct fgpu_buffer *buffer)
{
    outbuf_fini(&buffer->base);
    if (!send->config->send.gpudirect)
        device_free(send->engine->c.device, buffer->parts.voltages);
    device_free(send->engine->c.device, buffer->parts.saturated);
    device_free(send->engine->c.device, buffer->parts.rotation_device);
    device_free_pinned(send->engine->c.device, buffer->parts.rotation);
    device_free_pinned(send->engine->c.device, buffer->voltages);
    device_free_pinned(send->engine->c.device, buffer->saturated);
    device_free(send->engine->c.device, buffer->parts.power);
    device_free_pinned(send->engine->c.device, buffer->power);
    destroy_job(buffer);
}

static void register_metrics(struct fgpu_send *send, struct fgpu_stream *stream)
{
    char labels[256] = "", with_pol[280];

    stats_label(labels, sizeof(labels), "antenna", fgpu_config_antenna(send->config, stream->ant)->name);
    stats_label(labels, sizeof(labels), "stream", stream->output->name);
    outbuf_metrics("fgpu_output", labels, &stream->stats);
    stats_counter("fgpu_output_samples", "Complex samples sent, of both polarisations.", labels, &stream->samples);
    stats_counter("fgpu_output_skipped_heaps", "Heaps not sent because input was missing.", labels,
                  &stream->skipped_heaps);
    stats_counter("fgpu_output_dropped_heaps", "Heaps not made because no output buffer was free.", labels,
                  &stream->dropped_heaps);
    stats_gauge_scaled("fgpu_output_ahead_seconds",
                       "Seconds until a silent stream sends again; 0 if the stream is not silent. A stream is silent "
                       "while its timestamps are ahead of its input, because a delay was too large.",
                       labels, &stream->ahead_ns, 1e-9);
    stats_gauge_scaled("fgpu_output_delay_seconds",
                       "Magnitude of the delay in the newest output; the maximum over both polarisations.", labels,
                       &stream->delay_ps, 1e-12);
    stats_gauge_scaled(
        "fgpu_output_latency_seconds",
        "Seconds from the arrival of a batch's last packet to the sending of the batch's first packet; newest value.",
        labels, &stream->stats.latency_ns, 1e-9);
    for (int pol = 0; pol < N_POLS; pol++) {
        char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_counter("fgpu_output_clipped_samples", "Number of sent complex samples that were saturated.", with_pol,
                      &stream->stats.clipped[pol]);
    }
}

static int add_sensors(struct fgpu_stream *stream, struct sensors *sensors)
{
    char name[128];
    int err = 0;

    for (unsigned pol = 0; pol < N_POLS && !err; pol++) {
        const struct sensor_desc about = {.name = name,
                                          .description = "Number of sent complex samples that were saturated, since "
                                                         "the start",
                                          .units = "",
                                          .type = SENSOR_INTEGER,
                                          .auto_shortest_s = 1.0};
        snprintf(name, sizeof(name), "%s.input%zu.feng-clip-cnt", stream->output->name, stream->ant * N_POLS + pol);
        err = sensors_add(sensors, &stream->clip_cnt[pol], &about,
                          (struct sensor_reading){clock_unix_ns(), SENSOR_NOMINAL, {.integer = 0}});
    }
    return err;
}

/* Writes the descriptors of the items in a heap of 'output'.  The heap has 'n_chan' channels. */
static void describe(const struct fgpu_config_output *output, int64_t n_chan,
                     struct spead_descriptor descriptors[N_ITEMS])
{
    const struct spead_descriptor all[N_ITEMS] = {
        OUTBUF_TIMESTAMP_DESCRIPTOR,
        FGPU_SEND_FENG_ID_DESCRIPTOR,
        SPEAD_VALUE_DESCRIPTOR(SPEAD_FREQUENCY, "frequency",
                               "Identifies the first channel in the band of frequencies in the SPEAD heap."),
        {.id = SPEAD_FENG_RAW,
         .name = "feng_raw",
         .description = "Channelised complex data from both polarisations of digitiser associated with F-Engine.",
         .dtype = output->sample_bits == 8 ? "|i1" : NULL,
         .format_type = 'i',
         .format_bits = (int)output->sample_bits,
         .n_dims = 4,
         .shape = {n_chan, output->spectra_per_heap, N_POLS, 2}},
    };

    memcpy(descriptors, all, sizeof(all));
}

static int open_share(struct fgpu_send *send, struct fgpu_stream *stream, size_t share, char *why, size_t why_bytes)
{
    size_t first = first_destination(stream, share), end = first_destination(stream, share + 1);
    const struct endpoint_list destinations = {.items = stream->output->destinations.items + first, .n = end - first};
    const struct config_send *c = &send->config->send;
    const struct fgpu_config_output *output = stream->output;
    struct spead_descriptor descriptors[N_ITEMS];

    describe(output, output->n_chan / (int64_t)output->destinations.n, descriptors);
    struct send_stream_config config;

    fgpu_send_stream_config(send->config, send->engine, stream->ant, &config);
    config.name = output->name;
    config.sink.destinations = &destinations;
    config.heap_bytes = fgpu_batch_bytes(output) / output->destinations.n;
    config.n_items = N_ITEMS;
    config.rate_bytes_per_s =
        fgpu_send_rate(send->config, output) * (double)destinations.n / (double)output->destinations.n;
    /* Two shares never use the same heap count, although no receiver receives heaps of two shares. */
    config.heap_cnt_start += share * config.heap_cnt_step;
    config.heap_cnt_step *= stream->n_shares;
    config.descriptors = descriptors;
    config.n_descriptors = ARRAY_LEN(descriptors);
    config.max_jobs = stream->n_buffers;
    config.device = c->gpudirect ? send->engine->c.device : NULL;
    config.stats = &stream->stats;
    int err = sender_group_add_stream(send->engine->senders, &config, &stream->sends[share], why, why_bytes);
    if (!err && c->gpudirect)
        return sender_add_exported(stream->sends[share], &stream->exported, why, why_bytes);
    for (size_t i = 0; i < stream->n_buffers && !err; i++)
        err =
            sender_add_memory(stream->sends[share], stream->buffers[i].voltages, voltage_bytes(output), why, why_bytes);
    return err;
}

/* With send.gpudirect, allocates the voltages of all buffers as one block.  Each share of the stream then registers
 * only this block with the NIC. */
static int create_exported(struct fgpu_send *send, struct fgpu_stream *stream, char *why, size_t why_bytes)
{
    char reason[400];

    int err = device_alloc_exported(send->engine->c.device, stream->n_buffers * voltage_bytes(stream->output),
                                    &stream->exported, reason, sizeof(reason));
    if (err) {
        snprintf(why, why_bytes, "send.gpudirect: %s", reason);
        return err;
    }
    stream->preview_voltages = device_alloc_pinned(send->engine->c.device, fgpu_preview_bytes(stream->output));
    return stream->preview_voltages ? 0 : -ENOMEM;
}

static int create_stream(struct fgpu_send *send, size_t index, char *why, size_t why_bytes)
{
    struct fgpu_stream *stream = &send->streams[index];

    stream->ant = index / send->layout->n_outputs;
    stream->output = fgpu_config_output(send->config, index % send->layout->n_outputs);
    stream->n_buffers = fgpu_output_buffers(send->config, stream->output);
    stream->n_shares = fgpu_send_shares(send->config, stream->output);
    stream->buffers = calloc(stream->n_buffers, sizeof(*stream->buffers));
    stream->sends = calloc(stream->n_shares, sizeof(struct send_stream *));
    if (!stream->buffers || !stream->sends) {
        stream->n_buffers = 0;
        return -ENOMEM;
    }
    int err = send->config->send.gpudirect ? create_exported(send, stream, why, why_bytes) : 0;
    for (size_t i = 0; i < stream->n_buffers; i++) {
        stream->buffers[i].stream = stream;
        if (!err)
            err = create_buffer(send, &stream->buffers[i]);
        if (err)
            return err;
    }
    stream->timebase = fgpu_timebase(send->config);
    register_metrics(send, stream);
    err = add_sensors(stream, send->engine->c.sensors);
    for (size_t i = 0; i < stream->n_shares && !err; i++)
        err = open_share(send, stream, i, why, why_bytes);
    return err;
}

static int create_senders(struct fgpu_send *send)
{
    size_t n_streams = 0, max_jobs = 0;

    for (size_t o = 0; o < send->layout->n_outputs; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(send->config, o);
        size_t n_shares = send->layout->n_ants * fgpu_send_shares(send->config, output);
        n_streams += n_shares;
        max_jobs += n_shares * fgpu_output_buffers(send->config, output);
    }
    n_streams += send->layout->n_ants * send->config->gnss.n;
    max_jobs += send->layout->n_ants * send->config->gnss.n * FGPU_GNSS_N_BUFFERS;
    return sender_group_create(&send->config->send, n_streams, max_jobs, &send->engine->senders);
}

int fgpu_send_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_send **send, char *why, size_t why_bytes)
{
    struct fgpu_send *s = calloc(1, sizeof(*s));

    snprintf(why, why_bytes, "outputs: there is no memory for the output buffers");
    if (!s)
        return -ENOMEM;
    s->config = config;
    s->layout = layout;
    s->engine = engine;
    s->streams = calloc(s->layout->n_ants * s->layout->n_outputs, sizeof(*s->streams));
    int err = s->streams ? create_senders(s) : -ENOMEM;
    for (size_t i = 0; !err && i < s->layout->n_ants * s->layout->n_outputs; i++)
        err = create_stream(s, i, why, why_bytes);
    if (err) {
        stats_reset(); /* must be called first; otherwise /metrics could read freed counters */
        fgpu_send_destroy(s);
        return err;
    }
    *send = s;
    return 0;
}

void fgpu_send_log(const struct fgpu_send *send)
{
    for (size_t i = 0; i < send->layout->n_ants * send->layout->n_outputs; i++) {
        const struct fgpu_stream *stream = &send->streams[i];
        uint64_t n_heaps = counter_get(&stream->stats.heaps);
        log_info("%s %s: %llu heap%s sent, %llu skipped (input missing), %llu dropped (no free output buffer)",
                 fgpu_config_antenna(send->config, stream->ant)->name, stream->output->name,
                 (unsigned long long)n_heaps, plural(n_heaps), (unsigned long long)counter_get(&stream->skipped_heaps),
                 (unsigned long long)counter_get(&stream->dropped_heaps));
    }
}

void fgpu_send_destroy(struct fgpu_send *send)
{
    if (!send)
        return;
    sender_group_destroy(send->engine->senders);
    for (size_t i = 0; send->streams && i < send->layout->n_ants * send->layout->n_outputs; i++) {
        struct fgpu_stream *stream = &send->streams[i];
        for (size_t b = 0; b < stream->n_buffers; b++)
            destroy_buffer(send, &stream->buffers[b]);
        device_free_exported(send->engine->c.device, &stream->exported);
        device_free_pinned(send->engine->c.device, stream->preview_voltages);
        free(stream->buffers);
        free(stream->sends);
    }
    free(send->streams);
    free(send);
}
