/* beam_stream.c - implements the capture, the counters and the sensors of a stream of beams. */
#include "xbgpu/beam/beam_stream.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/telemetry/stats.h"

#include <inttypes.h>
#include <stdio.h>

int64_t xbgpu_beam_stream_set_capture(struct xbgpu_beam_stream *stream, bool on, int64_t from_samples)
{
    stream->capture = on;
    stream->from_samples = from_samples;
    return sensor_read(&stream->next_timestamp).value.integer;
}

bool xbgpu_beam_stream_sends(const struct xbgpu_beam_stream *stream, int64_t samples)
{
    return stream->capture && samples >= stream->from_samples;
}

void xbgpu_beam_stream_count(struct xbgpu_beam_stream *stream, size_t bytes, uint64_t n_samples, uint64_t n_clipped)
{
    counter_add(&stream->heaps, 1);
    counter_add(&stream->bytes, bytes);
    counter_add(&stream->samples, n_samples);
    counter_add(&stream->clipped_samples, n_clipped);
}

void xbgpu_beam_stream_show(struct xbgpu_beam_stream *stream, int64_t end_samples, int64_t end_ns)
{
    sensor_set_integer(&stream->clip_cnt, end_ns, SENSOR_NOMINAL, (int64_t)stream->n_clipped);
    sensor_set_integer(&stream->next_timestamp, end_ns, SENSOR_NOMINAL, end_samples);
}

void xbgpu_beam_stream_log(const struct xbgpu_beam_stream *stream)
{
    uint64_t n_heaps = counter_get(&stream->heaps);

    log_info("%s: %" PRIu64 " heap%s sent, %" PRIu64 " of their samples clipped", stream->name, n_heaps,
             plural(n_heaps), counter_get(&stream->clipped_samples));
    log_info("%s: %" PRIu64 " heaps audited, %" PRIu64 " wrong", stream->name, counter_get(&stream->audits),
             counter_get(&stream->audit_failures));
}

static int add_sensors(struct xbgpu_beam_stream *stream, struct sensors *sensors, int64_t begin_ns)
{
    const struct {
        const char *name, *help;
        struct sensor *sensor;
    } rows[] = {
        {"beng-clip-cnt", "Complex samples of the beam that saturated, since the start.", &stream->clip_cnt},
        {"tx.next-timestamp", "ADC timestamp (in samples) up to which the beam has been computed.",
         &stream->next_timestamp},
    };
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_LEN(rows); i++) {
        char name[160];
        snprintf(name, sizeof(name), "%s.%s", stream->name, rows[i].name);
        const struct sensor_desc about = {
            .name = name, .description = rows[i].help, .units = "", .type = SENSOR_INTEGER, .auto_shortest_s = 1};
        err = sensors_add(sensors, rows[i].sensor, &about, (struct sensor_reading){begin_ns, SENSOR_NOMINAL, {0}});
    }
    return err;
}

static void register_metrics(struct xbgpu_beam_stream *stream)
{
    char labels[128] = "";
    const struct {
        const char *name, *help;
        const struct counter *counter;
    } rows[] = {
        {"xbgpu_output_b_heaps", "Heaps of a beam handed to the sender.", &stream->heaps},
        {"xbgpu_output_b_bytes", "Payload bytes of the beam heaps handed to the sender.", &stream->bytes},
        {"xbgpu_output_b_samples", "Complex samples of the beam heaps handed to the sender.", &stream->samples},
        {"xbgpu_output_b_clipped_samples", "Saturated complex samples of the beam heaps handed to the sender.",
         &stream->clipped_samples},
    };

    stats_label(labels, sizeof(labels), "stream", stream->name);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        stats_counter(rows[i].name, rows[i].help, labels, rows[i].counter);
    stats_counter("xbgpu_audits", "Products whose sums the host computed again.", labels, &stream->audits);
    stats_counter("xbgpu_audit_failures", "Products whose sums differed between host and device.", labels,
                  &stream->audit_failures);
}

int xbgpu_beam_stream_init(struct xbgpu_beam_stream *stream, const char *name, bool capture, struct sensors *sensors,
                           int64_t begin_ns)
{
    stream->name = name;
    stream->capture = capture;
    register_metrics(stream);
    return add_sensors(stream, sensors, begin_ns);
}
