/* send.c - the last stage of correlation: sends dumps as heaps. */
#include "xbgpu/send.h"

#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/base/log.h"
#include "common/net/spead.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "xbgpu/config/gate.h"
#include "kernels/correlate/correlate.h"
#include "kernels/correlate/reduce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEM_TIMESTAMP  1  /* index of the timestamp in the heap's items */
#define MAX_WRONG_DUMPS 10 /* the process ends after this number of wrong dumps */

struct xbgpu_send {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct engine *engine;
    struct xbgpu_stream *streams; /* [n_outputs] */
    int n_wrong;                  /* [worker] wrong dumps */
};

struct xbgpu_stream *xbgpu_send_stream(struct xbgpu_send *send, size_t output)
{
    return &send->streams[output];
}

int64_t xbgpu_stream_set_capture(struct xbgpu_stream *stream, bool on, int64_t from_samples)
{
    stream->capture = on;
    stream->from_samples = from_samples;
    gauge_set(&stream->sending_from, !on                                   ? -1
                                     : from_samples > stream->next_samples ? from_samples
                                                                           : stream->next_samples);
    return stream->next_samples;
}

void xbgpu_send_describe(const struct xbgpu_send *send, json_t *into)
{
    json_t *outputs = json_object_get(into, "outputs");

    for (size_t o = 0; o < send->layout->n_outputs && o < json_array_size(outputs); o++) {
        int64_t from_samples = gauge_get(&send->streams[o].sending_from);
        json_object_set_new(json_array_get(outputs, o), "sending_from",
                            from_samples < 0 ? json_null() : json_integer((json_int_t)from_samples));
    }
}

void xbgpu_stream_ended(struct xbgpu_stream *stream, int64_t end_samples, bool complete)
{
    sensor_set_integer(&stream->synchronised, timebase_unix_ns(&stream->timebase, end_samples),
                       complete ? SENSOR_NOMINAL : SENSOR_ERROR, complete);
}

static void set_dump_sensors(struct xbgpu_stream *stream)
{
    int64_t end_ns = timebase_unix_ns(&stream->timebase, stream->next_samples);
    uint64_t n_failures = counter_get(&stream->audit_failures), n_wrong = counter_get(&stream->wrong_accs);

    sensor_set_integer(&stream->clip_cnt, end_ns, SENSOR_NOMINAL, (int64_t)counter_get(&stream->clipped_visibilities));
    sensor_set_integer(&stream->next_timestamp, end_ns, SENSOR_NOMINAL, stream->next_samples);
    sensor_set_integer(&stream->audit_failure_cnt, end_ns, n_failures > 0 ? SENSOR_ERROR : SENSOR_NOMINAL,
                       (int64_t)n_failures);
    sensor_set_integer(&stream->wrong_dump_cnt, end_ns, n_wrong > 0 ? SENSOR_ERROR : SENSOR_NOMINAL, (int64_t)n_wrong);
}

void xbgpu_stream_flag(struct xbgpu_dump *dump)
{
    struct xbgpu_stream *stream = dump->stream;
    const struct xbgpu_layout *l = stream->layout;
    int32_t *v = dump->visibilities;

    for (size_t i = 0; i < l->vis_bytes / sizeof(*v); i++)
        v[i] = correlate_sums_real(l->format) ? REDUCE_MISSING_NAN : i % 2 ? REDUCE_MISSING_IM : REDUCE_MISSING_RE;
    memset(dump->weights, 0, l->n_baselines * sizeof(*dump->weights));
    if (dump->gate_weights)
        memset(dump->gate_weights, 0, dump->gate_weights_bytes);
    *dump->n_saturated = 0;
    dump->n_weighted = 0;
    dump->group.send = dump->group.send && stream->output->missing_dump != XBGPU_MISSING_DUMP_SKIP;
    counter_add(&stream->wrong_accs, 1);
}

void xbgpu_send_flag(struct xbgpu_send *send, struct xbgpu_dump *dump)
{
    xbgpu_stream_flag(dump);
    xbgpu_send_fail(send);
}

void xbgpu_send_fail(struct xbgpu_send *send)
{
    const struct daemon_context *c = &send->engine->c;

    if (gauge_get(c->healthy))
        service_status(c->service, "FAILED: sums of the device are wrong");
    gauge_set(c->healthy, 0);
    if (++send->n_wrong != MAX_WRONG_DUMPS)
        return;
    log_error("%d dumps were wrong since the start: the process ends", MAX_WRONG_DUMPS);
    service_stop(c->service, 1);
}

void xbgpu_send_push(struct xbgpu_dump *dump)
{
    struct xbgpu_stream *stream = dump->stream;

    dump->heap.items[ITEM_TIMESTAMP].value = (uint64_t)dump->timestamp_samples & SPEAD_VALUE_MASK;
    dump->group.send = dump->group.send && stream->capture && dump->timestamp_samples >= stream->from_samples;
    if (dump->group.send) {
        counter_add(&stream->visibilities, stream->layout->vis_bytes / (2 * sizeof(int32_t)));
        counter_add(&stream->clipped_visibilities, *dump->n_saturated);
    }
    stream->next_samples = dump->timestamp_samples + stream->dump_samples;
    set_dump_sensors(stream);
    buffer_ref_set(&dump->base.ref, 1);
    sender_push(stream->send, &dump->job);
}

static void create_job(struct xbgpu_send *send, struct xbgpu_dump *dump)
{
    const struct xbgpu_config_output *output = dump->stream->output;
    size_t vis_bytes = send->layout->vis_bytes, weights_bytes = xbgpu_weights_bytes(send->layout, send->config, output);

    dump->heap = (struct send_heap){
        .payload = dump->visibilities,
        .payload_bytes = xbgpu_dump_bytes(send->layout, send->config, output),
        .items = {{SPEAD_FREQUENCY, true, (uint64_t)send->config->recv.chan_offset},
                  [ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                  {SPEAD_XENG_RAW, false, 0}},
        .n_items = 3,
    };
    if (weights_bytes)
        dump->heap.items[dump->heap.n_items++] = (struct spead_item){SPEAD_XENG_WEIGHTS, false, vis_bytes};
    if (output->gate) {
        uint64_t gate = (uint64_t)xbgpu_output_gate(send->config, output);
        dump->heap.items[dump->heap.n_items++] = (struct spead_item){SPEAD_XENG_GATE, true, gate};
        dump->heap.items[dump->heap.n_items++] =
            (struct spead_item){SPEAD_XENG_GATE_SPECTRA, false, vis_bytes + weights_bytes};
    }
    dump->group = (struct send_group){.heaps = &dump->heap, .n_heaps = 1};
    dump->job = (struct send_job){.ref = &dump->base.ref, .groups = &dump->group, .n_groups = 1};
}

/* Sets the pointers to the weights and counts, which follow the visibilities. */
static void place_counts(struct xbgpu_send *send, struct xbgpu_dump *dump)
{
    const struct xbgpu_config_output *output = dump->stream->output;
    size_t weights_bytes = xbgpu_weights_bytes(send->layout, send->config, output);
    uint8_t *behind = (uint8_t *)dump->visibilities + send->layout->vis_bytes;

    dump->weights = (uint32_t *)behind;
    if (!output->gate)
        return;
    dump->gate_weights = weights_bytes ? (uint32_t *)behind : NULL;
    dump->gate_weights_bytes = weights_bytes;
    dump->gate_spectra = (uint32_t *)(behind + weights_bytes);
    dump->weights = dump->gate_spectra + send->layout->n_chan; /* not sent */
}

static int create_dump(struct xbgpu_send *send, struct xbgpu_dump *dump)
{
    const struct xbgpu_config_output *output = dump->stream->output;
    size_t vis_bytes = send->layout->vis_bytes, weight_bytes = send->layout->n_baselines * sizeof(uint32_t);
    size_t sent_bytes = xbgpu_dump_bytes(send->layout, send->config, output);

    dump->device_visibilities = device_alloc(send->engine->c.device, vis_bytes);
    dump->device_weights = device_alloc(send->engine->c.device, weight_bytes);
    dump->device_n_saturated = device_alloc(send->engine->c.device, sizeof(uint64_t));
    dump->visibilities =
        device_alloc_pinned(send->engine->c.device, (output->gate ? sent_bytes : vis_bytes) + weight_bytes);
    dump->n_saturated = device_alloc_pinned(send->engine->c.device, sizeof(uint64_t));
    dump->audit = calloc((size_t)dump->stream->output->audit_samples + 1, sizeof(*dump->audit));
    if (output->audit_checksum) {
        dump->device_checks = device_alloc(send->engine->c.device, send->layout->checks_bytes);
        dump->checks = device_alloc_pinned(send->engine->c.device, send->layout->checks_bytes);
        if (!dump->device_checks || !dump->checks)
            return -ENOMEM;
    }
    if (!dump->device_visibilities || !dump->device_weights || !dump->device_n_saturated || !dump->visibilities ||
        !dump->n_saturated || !dump->audit)
        return -ENOMEM;
    place_counts(send, dump);
    create_job(send, dump);
    return outbuf_init(&dump->base, &dump->stream->pool, send->engine);
}

static void destroy_dump(struct xbgpu_send *send, struct xbgpu_dump *dump)
{
    outbuf_fini(&dump->base);
    device_free(send->engine->c.device, dump->device_visibilities);
    device_free(send->engine->c.device, dump->device_weights);
    device_free(send->engine->c.device, dump->device_n_saturated);
    device_free_pinned(send->engine->c.device, dump->visibilities);
    device_free_pinned(send->engine->c.device, dump->n_saturated);
    device_free(send->engine->c.device, dump->device_checks);
    device_free_pinned(send->engine->c.device, dump->checks);
    free(dump->audit);
}

static void register_metrics(struct xbgpu_stream *stream)
{
    char labels[128] = "";
    const struct {
        const char *name, *help;
        const struct counter *counter;
    } rows[] = {
        {"xbgpu_output_x_visibilities", "Scalar visibilities sent.", &stream->visibilities},
        {"xbgpu_output_x_clipped_visibilities", "Number of sent scalar visibilities that were saturated.",
         &stream->clipped_visibilities},
        {"xbgpu_output_x_skipped_accs", "Accumulations not sent because no baseline was complete.",
         &stream->skipped_accs},
        {"xbgpu_output_x_incomplete_accs", "Accumulations with incomplete baselines.", &stream->incomplete_accs},
        {"xbgpu_output_x_absent_accs", "Accumulations not made because none of their heaps arrived.",
         &stream->absent_accs},
        {"xbgpu_output_x_dropped_accs", "Accumulations not sent because no output buffer was free.",
         &stream->dropped_accs},
        {"xbgpu_output_x_wrong_accs",
         "Accumulations flagged because a checksum or a sum of the host differed from the device's sums.",
         &stream->wrong_accs},
        {"xbgpu_audits", "Products whose sums the host computed again.", &stream->audits},
        {"xbgpu_audit_failures", "Products whose sums differed between host and device.", &stream->audit_failures},
    };

    stats_label(labels, sizeof(labels), "stream", stream->output->name);
    outbuf_metrics("xbgpu_output_x", labels, &stream->stats);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        stats_counter(rows[i].name, rows[i].help, labels, rows[i].counter);
    stats_gauge_scaled("xbgpu_output_x_latency_seconds",
                       "Seconds from receiving a dump's last packet to sending its first packet; newest value.", labels,
                       &stream->stats.latency_ns, 1e-9);
}

static int add_sensors(struct xbgpu_stream *stream, struct sensors *sensors)
{
    const struct {
        const char *name, *help;
        enum sensor_type type;
        enum sensor_status status;
        struct sensor *sensor;
    } rows[] = {
        {"rx.synchronised", "True if the last accumulation had the data of all F-engines; error if not.",
         SENSOR_BOOLEAN, SENSOR_ERROR, &stream->synchronised},
        {"xeng-clip-cnt", "Number of sent visibilities that were saturated, since the start.", SENSOR_INTEGER,
         SENSOR_NOMINAL, &stream->clip_cnt},
        {"tx.next-timestamp",
         "ADC timestamp (in samples) of the end of the last dump, sent or not; the next dump begins at this timestamp "
         "or later.",
         SENSOR_INTEGER, SENSOR_NOMINAL, &stream->next_timestamp},
        {"audit-failure-cnt", "Products whose sums differed between host and device; above 0 is an error.",
         SENSOR_INTEGER, SENSOR_NOMINAL, &stream->audit_failure_cnt},
        {"wrong-dump-cnt",
         "Accumulations flagged because a checksum or a sum of the host differed from the device's sums; above 0 is an "
         "error.",
         SENSOR_INTEGER, SENSOR_NOMINAL, &stream->wrong_dump_cnt},
    };
    int64_t begin_ns = timebase_unix_ns(&stream->timebase, 0);
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_LEN(rows); i++) {
        char name[160];
        snprintf(name, sizeof(name), "%s.%s", stream->output->name, rows[i].name);
        const struct sensor_desc about = {.name = name, .description = rows[i].help, .units = "", .type = rows[i].type};
        err = sensors_add(sensors, rows[i].sensor, &about, (struct sensor_reading){begin_ns, rows[i].status, {0}});
    }
    return err;
}

/* Writes the descriptors of a dump's items.  Returns their number. */
static size_t describe(const struct xbgpu_send *send, const struct xbgpu_config_output *output,
                       struct spead_descriptor *descriptors, char *gate_help, size_t gate_help_bytes)
{
    const struct xbgpu_layout *l = send->layout;
    bool real = correlate_sums_real(l->format);
    int64_t n_chan = (int64_t)l->n_chan, n_baselines = (int64_t)l->n_baselines;
    int gate_index = xbgpu_output_gate(send->config, output);
    bool by_channel =
        gate_index >= 0 && xbgpu_gate_is_dispersed(xbgpu_config_gate(&send->config->gates, (size_t)gate_index));
    const struct spead_descriptor all[] = {
        SPEAD_VALUE_DESCRIPTOR(SPEAD_FREQUENCY, "frequency", "Value of first channel in collections stored here."),
        OUTBUF_TIMESTAMP_DESCRIPTOR,
        {.id = SPEAD_XENG_RAW,
         .name = "xeng_raw",
         .description = "Integrated baseline correlation products.",
         .dtype = real ? "<f4" : "<i4",
         .format_type = real ? 'f' : 'i',
         .format_bits = 32,
         .n_dims = 3,
         .shape = {n_chan, n_baselines * N_POL_PRODUCTS, 2}},
    };
    const struct spead_descriptor weights = {
        .id = SPEAD_XENG_WEIGHTS,
        .name = "xeng_weights",
        .description = "Spectra that were added to each baseline of antennas.",
        .dtype = "<u4",
        .format_type = 'u',
        .format_bits = 32,
        .n_dims = by_channel ? 2 : 1,
        .shape = {by_channel ? n_chan : n_baselines, n_baselines},
    };
    const struct spead_descriptor gate = SPEAD_VALUE_DESCRIPTOR(SPEAD_XENG_GATE, "gate", gate_help);
    const struct spead_descriptor spectra = {
        .id = SPEAD_XENG_GATE_SPECTRA,
        .name = "gate_spectra",
        .description = "Spectra that the gate took from each channel.",
        .dtype = "<u4",
        .format_type = 'u',
        .format_bits = 32,
        .n_dims = 1,
        .shape = {n_chan},
    };
    size_t n = ARRAY_LEN(all);

    memcpy(descriptors, all, sizeof(all));
    if (output->missing == XBGPU_MISSING_WEIGHTS)
        descriptors[n++] = weights;
    if (output->gate) {
        snprintf(gate_help, gate_help_bytes, "Number of the gate, which is called %s.", output->gate);
        descriptors[n++] = gate;
        descriptors[n++] = spectra;
    }
    return n;
}

static int open_stream(struct xbgpu_send *send, struct xbgpu_stream *stream, char *why, size_t why_bytes)
{
    struct spead_descriptor descriptors[SEND_ITEMS_MAX];
    char gate_help[160];
    struct send_stream_config config;

    outbuf_stream_config(&send->config->send, send->engine, &config);
    config.name = stream->output->name;
    config.sink.destinations = &stream->output->destination;
    config.heap_bytes = stream->dumps[0].heap.payload_bytes;
    config.n_items = stream->dumps[0].heap.n_items;
    config.rate_bytes_per_s = xbgpu_send_rate(send->config, send->layout, stream->output);
    config.heap_cnt_start = (uint64_t)(send->config->recv.chan_offset / send->config->recv.n_chan_substream);
    config.heap_cnt_step = (uint64_t)(send->config->recv.n_chan / send->config->recv.n_chan_substream);
    config.descriptors = descriptors;
    config.n_descriptors = describe(send, stream->output, descriptors, gate_help, sizeof(gate_help));
    config.max_jobs = stream->n_dumps;
    config.stats = &stream->stats;
    int err = sender_group_add_stream(send->engine->senders, &config, &stream->send, why, why_bytes);
    for (size_t d = 0; d < stream->n_dumps && !err; d++)
        err = sender_add_memory(stream->send, stream->dumps[d].heap.payload, stream->dumps[d].heap.payload_bytes, why,
                                why_bytes);
    return err;
}

static int create_stream(struct xbgpu_send *send, size_t index, char *why, size_t why_bytes)
{
    struct xbgpu_stream *stream = &send->streams[index];

    stream->output = xbgpu_config_output(send->config, index);
    stream->layout = send->layout;
    stream->timebase = (struct timebase){send->config->time.sync_time_s, send->config->time.adc_sample_rate_hz, false};
    stream->dump_samples = xbgpu_integration_batches(send->config, stream->output) * send->layout->batch_samples;
    stream->capture = stream->output->send_enabled;
    gauge_set(&stream->sending_from, stream->capture ? 0 : -1);
    size_t n_dumps = xbgpu_output_buffers(send->config, stream->output);
    stream->dumps = calloc(n_dumps, sizeof(*stream->dumps));
    if (!stream->dumps)
        return -ENOMEM;
    for (stream->n_dumps = 0; stream->n_dumps < n_dumps;) {
        struct xbgpu_dump *dump = &stream->dumps[stream->n_dumps++];
        dump->stream = stream;
        int err = create_dump(send, dump);
        if (err)
            return err;
    }
    register_metrics(stream);
    int err = add_sensors(stream, send->engine->c.sensors);
    return err ? err : open_stream(send, stream, why, why_bytes);
}

static int create_senders(struct xbgpu_send *send)
{
    bool has_beams = send->config->beams.n > 0;
    size_t n_streams = send->layout->n_outputs + has_beams + send->config->detected.n;
    size_t max_jobs = xbgpu_beam_buffers(send->config, send->layout);

    for (size_t o = 0; o < send->layout->n_outputs; o++)
        max_jobs += xbgpu_output_buffers(send->config, xbgpu_config_output(send->config, o));
    for (size_t i = 0; i < send->config->detected.n; i++)
        max_jobs += xbgpu_detected_sizes(send->config, send->layout, i).n_buffers;
    return sender_group_create(&send->config->send, n_streams, max_jobs, &send->engine->senders);
}

int xbgpu_send_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                      struct xbgpu_send **send, char *why, size_t why_bytes)
{
    struct xbgpu_send *s = calloc(1, sizeof(*s));

    snprintf(why, why_bytes, "outputs: there is no memory for dumps of %zu MiB", layout->vis_bytes >> 20);
    if (!s)
        return -ENOMEM;
    s->config = config;
    s->layout = layout;
    s->engine = engine;
    s->streams = calloc(s->layout->n_outputs, sizeof(*s->streams));
    int err = s->streams ? create_senders(s) : -ENOMEM;
    for (size_t o = 0; !err && o < s->layout->n_outputs; o++)
        err = create_stream(s, o, why, why_bytes);
    if (err) {
        stats_reset(); /* this call must be first, so that /metrics cannot read freed counters */
        xbgpu_send_destroy(s);
        return err;
    }
    stats_gauge("xbgpu_device_ok", "1 if all checksums and audited products have agreed since the start, else 0.", NULL,
                engine->c.healthy);
    *send = s;
    return 0;
}

void xbgpu_send_log(const struct xbgpu_send *send)
{
    for (size_t o = 0; o < send->layout->n_outputs; o++) {
        const struct xbgpu_stream *stream = &send->streams[o];
        uint64_t n_dumps = counter_get(&stream->stats.heaps), n_audits = counter_get(&stream->audits);
        uint64_t n_wrong = counter_get(&stream->wrong_accs);
        log_info(
            "%s: %llu dump%s sent, %llu incomplete, %llu skipped (no complete baseline), %llu absent (no heaps "
            "arrived), %llu dropped (no free output buffer); %llu product%s audited, %llu wrong; %llu dump%s wrong",
            stream->output->name, (unsigned long long)n_dumps, plural(n_dumps),
            (unsigned long long)counter_get(&stream->incomplete_accs),
            (unsigned long long)counter_get(&stream->skipped_accs),
            (unsigned long long)counter_get(&stream->absent_accs),
            (unsigned long long)counter_get(&stream->dropped_accs), (unsigned long long)n_audits, plural(n_audits),
            (unsigned long long)counter_get(&stream->audit_failures), (unsigned long long)n_wrong, plural(n_wrong));
    }
}

void xbgpu_send_destroy(struct xbgpu_send *send)
{
    if (!send)
        return;
    sender_group_destroy(send->engine->senders);
    for (size_t o = 0; send->streams && o < send->layout->n_outputs; o++) {
        struct xbgpu_stream *stream = &send->streams[o];
        for (size_t d = 0; d < stream->n_dumps; d++)
            destroy_dump(send, &stream->dumps[d]);
        free(stream->dumps);
    }
    free(send->streams);
    free(send);
}
