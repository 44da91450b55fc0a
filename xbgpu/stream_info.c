/* stream_info.c - constant sensors from the configuration; control.c adds them before READY. */
#include "xbgpu/stream_info.h"

#include "common/base/units.h"
#include "common/engine/labels.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PER_STREAM     16
#define MAX_ORDERING_BYTES (8u << 20) /* maximum length of a list, so that the list fits in one KATCP line */

static void write_labels(const void *labels, FILE *out)
{
    labels_write(labels, out);
}

static void write_products(const void *labels, FILE *out)
{
    labels_write_products(labels, out);
}

/* Adds a sensor whose value is a list of labels.  If the list is too long, the sensor has no value. */
static void add_list(struct stream_info *info, const struct labels *labels, size_t n_pieces, const char *name,
                     void (*write)(const void *labels, FILE *out), const char *description)
{
    size_t piece_bytes = 0;

    for (size_t i = 0; i < labels->n; i++)
        piece_bytes = strlen(labels->labels[i]) + 4 > piece_bytes ? strlen(labels->labels[i]) + 4 : piece_bytes;
    if (n_pieces > MAX_ORDERING_BYTES / piece_bytes)
        stream_info_text(info, name, NULL, description);
    else
        stream_info_written(info, name, write, labels, description);
}

/* Adds the channel range of this engine. */
static void add_range(struct stream_info *info, const struct xbgpu_config *config, const char *stream)
{
    int64_t first = config->recv.chan_offset, last = first + config->recv.n_chan_substream - 1;
    char range[64];

    info->stream = stream;
    snprintf(range, sizeof(range), "(%" PRId64 ",%" PRId64 ")", first, last);
    stream_info_text(info, "chan-range", range,
                     "The first and the last channel that this engine processes, as (first,last).");
}

static void add_stream(struct stream_info *info, const struct xbgpu_config *config, const struct xbgpu_layout *l,
                       const struct xbgpu_config_output *output, const struct labels *labels)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    int64_t n_batches = xbgpu_integration_batches(config, output);
    size_t n_products = l->n_baselines * N_POL_PRODUCTS;

    add_range(info, config, output->name);
    stream_info_real(info, "sync-time", "s", timebase_decimal_to_double(config->time.sync_time_s),
                     "UNIX time of ADC sample 0.");
    stream_info_real(info, "scale-factor-timestamp", "Hz", rate_hz,
                     "Timestamps divided by this factor are seconds since sync-time.");
    stream_info_real(info, "adc-sample-rate", "Hz", rate_hz, "Samples per second of each digitiser.");
    stream_info_real(info, "bandwidth", "Hz", rate_hz / (double)recv->samples_between_spectra * (double)recv->n_chan,
                     "Bandwidth of all channels of the stream.");
    if (recv->centre_frequency_hz > 0)
        stream_info_real(info, "center-freq", "Hz", recv->centre_frequency_hz,
                         "Radio frequency of the stream's centre; only with recv.centre_frequency.");
    stream_info_integer(info, "n-chans", recv->n_chan, "Number of channels of the stream, over all engines.");
    stream_info_integer(info, "n-chans-per-substream", recv->n_chan_substream,
                        "Number of channels that one engine processes.");
    stream_info_integer(info, "n-xengs", recv->n_chan / recv->n_chan_substream,
                        "Number of X-engines that make the stream.");
    stream_info_integer(info, "n-ants", recv->n_ants, "Number of antennas; each has two polarisations.");
    add_list(info, labels, labels->n, "input-labels", write_labels,
             "Labels of the inputs, as a list: both polarisations of antenna 0, then of antenna 1, and so on.");
    stream_info_integer(info, "n-bls", (int64_t)n_products,
                        "Number of correlation products per channel: four for each pair of antennas.");
    add_list(info, labels, 2 * n_products, "bls-ordering", write_products,
             "Correlation products in the order of a dump, as pairs of input labels; the second input is conjugated.");
    stream_info_integer(info, "n-accs", n_batches * recv->spectra_per_heap,
                        "Number of spectra that are summed in a dump.");
    stream_info_real(info, "int-time", "s", (double)(n_batches * l->batch_samples) / rate_hz,
                     "Length of an accumulation.");
    stream_info_integer(info, "xeng-out-bits-per-sample", 32,
                        "Number of bits of the real part, and also of the imaginary part, of a visibility.");
}

int xbgpu_stream_info_init(struct stream_info *info, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct sensors *sensors)
{
    stream_info_init(info, layout->n_outputs * MAX_PER_STREAM + config->beams.n + config->detected.n, sensors);
    for (size_t o = 0; o < layout->n_outputs; o++)
        add_stream(info, config, layout, xbgpu_config_output(config, o), labels);
    for (size_t b = 0; b < config->beams.n; b++)
        add_range(info, config, xbgpu_config_beam(config, b)->name);
    for (size_t i = 0; i < config->detected.n; i++)
        add_range(info, config, xbgpu_config_detected(config, i)->name);
    return info->err;
}
