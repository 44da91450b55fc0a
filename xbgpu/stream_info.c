/* stream_info.c - sensors of what the configuration says; pipeline.c adds them before READY. */
#include "xbgpu/stream_info.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "xbgpu/labels.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PER_STREAM     16
#define MAX_ORDERING_BYTES (8u << 20) /* what a client's line is sure to hold */

struct adding {
    struct xbgpu_stream_info *facts;
    struct sensors *sensors;
    size_t max; /* sensors that there is room for */
    const char *stream;
    int64_t now_ns;
    int err;
};

static struct sensor *add(struct adding *a, const char *name, const char *units, enum sensor_type type,
                          union sensor_value value, const char *description)
{
    char full[160];
    struct sensor *sensor = &a->facts->sensors[a->facts->n];

    assert(a->facts->n < a->max);
    snprintf(full, sizeof(full), "%s.%s", a->stream, name);
    const struct sensor_desc about = {.name = full, .description = description, .units = units, .type = type};
    if (!a->err)
        a->err = sensors_add(a->sensors, sensor, &about, (struct sensor_reading){a->now_ns, SENSOR_NOMINAL, value});
    a->facts->n++;
    return sensor;
}

static void add_integer(struct adding *a, const char *name, int64_t value, const char *description)
{
    add(a, name, "", SENSOR_INTEGER, (union sensor_value){.integer = value}, description);
}

static void add_real(struct adding *a, const char *name, const char *units, double value, const char *description)
{
    add(a, name, units, SENSOR_FLOAT, (union sensor_value){.real = value}, description);
}

/* 'text' is freed; NULL: it is too long to be told. */
static void add_text(struct adding *a, const char *name, char *text, const char *description)
{
    struct sensor *sensor = add(a, name, "", SENSOR_STRING, (union sensor_value){0}, description);

    if (!a->err)
        a->err =
            sensors_set_text(a->sensors, sensor, a->now_ns, text ? SENSOR_NOMINAL : SENSOR_INACTIVE, text ? text : "");
    free(text);
}

/* What 'write' writes; NULL where it would be too long, or there is no memory, which a->err says. */
static char *write_text(struct adding *a, const struct xbgpu_labels *labels, size_t n_pieces,
                        void (*write)(const struct xbgpu_labels *labels, FILE *out))
{
    size_t piece_bytes = 0, text_bytes;
    char *text = NULL;

    for (size_t i = 0; i < labels->n; i++)
        piece_bytes = strlen(labels->labels[i]) + 4 > piece_bytes ? strlen(labels->labels[i]) + 4 : piece_bytes;
    if (n_pieces > MAX_ORDERING_BYTES / piece_bytes)
        return NULL;
    FILE *out = open_memstream(&text, &text_bytes);
    if (out)
        write(labels, out);
    if (!out || fclose(out) != 0)
        a->err = -ENOMEM;
    return text;
}

static void add_stream(struct adding *a, const struct xbgpu_config *config, const struct xbgpu_layout *l,
                       const struct xbgpu_config_output *output, const struct xbgpu_labels *labels)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    int64_t n_batches = xbgpu_integration_batches(config, output);
    int64_t first = recv->chan_offset, last = first + recv->n_chan_substream - 1;
    size_t n_products = l->n_baselines * N_POL_PRODUCTS;
    char *range = NULL;

    a->stream = output->name;
    if (asprintf(&range, "(%" PRId64 ",%" PRId64 ")", first, last) < 0)
        a->err = -ENOMEM;
    else
        add_text(a, "chan-range", range, "The first and the last channel that this engine processes, as (first,last).");
    add_real(a, "sync-time", "s", timebase_decimal_to_double(config->time.sync_time_s), "UNIX time of ADC sample 0.");
    add_real(a, "scale-factor-timestamp", "Hz", rate_hz, "Timestamps divided by this are seconds since sync-time.");
    add_real(a, "adc-sample-rate", "Hz", rate_hz, "Samples per second of each digitiser.");
    add_real(a, "bandwidth", "Hz", rate_hz / (double)recv->samples_between_spectra * (double)recv->n_chan,
             "Bandwidth of all channels of the stream.");
    if (recv->centre_frequency_hz > 0)
        add_real(a, "center-freq", "Hz", recv->centre_frequency_hz,
                 "Radio frequency of the stream's centre; only with recv.centre_frequency.");
    add_integer(a, "n-chans", recv->n_chan, "Channels of the stream, over all engines.");
    add_integer(a, "n-chans-per-substream", recv->n_chan_substream, "Channels that one engine processes.");
    add_integer(a, "n-xengs", recv->n_chan / recv->n_chan_substream, "X-engines that make the stream.");
    add_integer(a, "n-ants", recv->n_ants, "Antennas, of two polarisations each.");
    add_text(a, "input-labels", write_text(a, labels, labels->n, xbgpu_labels_write),
             "Labels of the inputs, as a list: both polarisations of antenna 0, then of antenna 1, and so on.");
    add_integer(a, "n-bls", (int64_t)n_products,
                "Correlation products of each channel: four of each pair of antennas.");
    add_text(a, "bls-ordering", write_text(a, labels, 2 * n_products, xbgpu_labels_write_products),
             "Correlation products in the order of a dump, as pairs of input labels; the second one is conjugated.");
    add_integer(a, "n-accs", n_batches * recv->spectra_per_heap, "Spectra that a dump is the sum of.");
    add_real(a, "int-time", "s", (double)(n_batches * l->batch_samples) / rate_hz, "Length of an accumulation.");
    add_integer(a, "xeng-out-bits-per-sample", 32, "Bits of the real and of the imaginary part of a visibility.");
}

int xbgpu_stream_info_init(struct xbgpu_stream_info *facts, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct xbgpu_labels *labels,
                           struct sensors *sensors)
{
    *facts = (struct xbgpu_stream_info){calloc(layout->n_outputs * MAX_PER_STREAM, sizeof(struct sensor)), 0};
    struct adding a = {.facts = facts,
                       .sensors = sensors,
                       .max = layout->n_outputs * MAX_PER_STREAM,
                       .now_ns = clock_unix_ns(),
                       .err = facts->sensors ? 0 : -ENOMEM};

    if (a.err)
        return a.err;
    for (size_t o = 0; o < layout->n_outputs; o++)
        add_stream(&a, config, layout, xbgpu_config_output(config, o), labels);
    return a.err;
}

void xbgpu_stream_info_fini(struct xbgpu_stream_info *facts)
{
    free(facts->sensors);
    *facts = (struct xbgpu_stream_info){0};
}
