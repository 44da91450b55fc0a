/* stream_info.c - constant sensors, which are set once before READY. */
#include "fgpu/stream_info.h"

#include "common/base/units.h"
#include "common/engine/labels.h"
#include "fgpu/config/layout.h"

#include <inttypes.h>
#include <stdio.h>

#define MAX_PER_STREAM 20

double fgpu_ddc_group_delay(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? -(double)(fgpu_band_taps(&output->band) - 1) / 2 : 0.0;
}

double fgpu_group_delay(const struct fgpu_config_output *output)
{
    int64_t ddc_taps = output->kind == FGPU_NARROWBAND ? fgpu_band_taps(&output->band) : 1;
    int64_t subsampling = fgpu_subsampling(output);
    /* Length of the window in baseband samples.  The length that the down-converter's filter adds is not included. */
    int64_t n_steps = (fgpu_window_samples(output) - ddc_taps) / subsampling + 1;

    return -(double)(n_steps - 1) / 2 * (double)subsampling + fgpu_ddc_group_delay(output);
}

static void add_times(struct stream_info *info, const struct fgpu_config *config,
                      const struct fgpu_config_output *output)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    stream_info_integer(info, "adc-bits", config->recv.sample_bits, "Bits per digitiser sample");
    stream_info_real(info, "adc-sample-rate", "Hz", rate_hz, "Samples per second of each digitiser");
    stream_info_real(info, "scale-factor-timestamp", "Hz", rate_hz,
                     "Timestamps divided by this factor are seconds since sync-time");
    stream_info_real(info, "sync-time", "s", timebase_decimal_to_double(config->time.sync_time_s),
                     "UNIX time of timestamp 0");
    stream_info_integer(info, "n-samples-between-spectra", fgpu_batch_samples(output) / output->spectra_per_heap,
                        "Number of ADC samples from one spectrum to the next");
    stream_info_real(info, "pfb-group-delay", "", fgpu_group_delay(output),
                     "Delay of all filters together, in ADC samples");
    stream_info_real(info, "ddc-group-delay", "", fgpu_ddc_group_delay(output),
                     "Delay of the down-converter's filter alone, in ADC samples; 0: no down-converter");
}

static void add_band(struct stream_info *info, const struct fgpu_config *config,
                     const struct fgpu_config_output *output)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double bandwidth_hz = rate_hz / 2 / (double)fgpu_decimation(output);
    double centre_hz =
        output->kind == FGPU_NARROWBAND ? timebase_decimal_to_double(output->band.centre_hz) : rate_hz / 4;

    stream_info_integer(info, "n-chans", output->n_chan, "Channels of the stream");
    stream_info_integer(info, "n-chans-per-substream", output->n_chan / (int64_t)output->destinations.n,
                        "Number of channels that are sent to one destination");
    stream_info_real(info, "bandwidth", "Hz", bandwidth_hz, "Bandwidth of all channels together");
    stream_info_real(info, "center-freq", "Hz", centre_hz,
                     "Centre frequency of the stream's band; the digitised band begins at 0");
    stream_info_integer(info, "decimation-factor", fgpu_decimation(output),
                        "Bandwidth of the digitisers divided by the bandwidth of the stream");
    stream_info_integer(info, "spectra-per-heap", output->spectra_per_heap,
                        "Number of spectra of each channel in a heap");
    stream_info_integer(info, "feng-out-bits-per-sample", output->sample_bits,
                        "Bits of the real and of the imaginary part of a voltage");
}

/* Lists have the format of Python. */

static void write_labels(const void *labels, FILE *out)
{
    labels_write(labels, out);
}

static void write_indices(const void *config, FILE *out)
{
    for (size_t i = 0; i < ((const struct fgpu_config *)config)->antennas.n * N_POLS; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "[",
                fgpu_config_antenna(config, i / N_POLS)->feng_id * N_POLS + (int64_t)(i % N_POLS));
    fputc(']', out);
}

int fgpu_stream_info_init(struct stream_info *info, const struct fgpu_config *config, const struct fgpu_choice *choices,
                          const struct labels *labels, struct sensors *sensors)
{
    char seed[32];

    stream_info_init(info, config->outputs.n * MAX_PER_STREAM, sensors);
    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(config, o);
        info->stream = output->name;
        add_times(info, config, output);
        add_band(info, config, output);
        stream_info_written(info, "input-labels", write_labels, labels, "Names of the inputs, in order");
        stream_info_written(info, "source-indices", write_indices, config,
                            "Indices of the inputs among all inputs of the array, in order");
        snprintf(seed, sizeof(seed), "%" PRIu64, choices[o].dither_seed);
        stream_info_text(info, "dither-seed", seed,
                         "Seed of the dither; the same seed and the same input samples reproduce the stream exactly");
    }
    return info->err;
}
