/* stream_info.c - beside the pipeline: nothing here changes while it runs. */
#include "fgpu/stream_info.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "fgpu/layout.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_FACTS 20 /* at most, of an output */

struct fgpu_stream_info {
    struct sensors *sensors;
    int64_t now_ns;
    int err;
    size_t n;
    struct sensor items[];
};

double fgpu_ddc_group_delay(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? -(double)(fgpu_ddc_taps(output) - 1) / 2 : 0.0;
}

double fgpu_group_delay(const struct fgpu_config_output *output)
{
    int64_t ddc_taps = output->kind == FGPU_NARROWBAND ? fgpu_ddc_taps(output) : 1;
    int64_t subsampling = fgpu_subsampling(output);
    /* The window without what the down-converter's filter adds, as steps of what is channelised. */
    int64_t n_steps = (fgpu_window_samples(output) - ddc_taps) / subsampling + 1;

    return -(double)(n_steps - 1) / 2 * (double)subsampling + fgpu_ddc_group_delay(output);
}

/* ---- Adding ------------------------------------------------------------------------------------------------------ */

struct fact {
    const char *name, *description, *units;
};

static struct sensor *add(struct fgpu_stream_info *f, const struct fgpu_config_output *output, const struct fact *fact,
                          enum sensor_type type, union sensor_value value)
{
    struct sensor *sensor = &f->items[f->n++];
    char name[128];

    snprintf(name, sizeof(name), "%s.%s", output->name, fact->name);
    const struct sensor_desc about = {
        .name = name, .description = fact->description, .units = fact->units, .type = type};
    if (!f->err)
        f->err = sensors_add(f->sensors, sensor, &about, (struct sensor_reading){f->now_ns, SENSOR_NOMINAL, value});
    return sensor;
}

static void add_integer(struct fgpu_stream_info *f, const struct fgpu_config_output *output, const struct fact *fact,
                        int64_t value)
{
    add(f, output, fact, SENSOR_INTEGER, (union sensor_value){.integer = value});
}

static void add_real(struct fgpu_stream_info *f, const struct fgpu_config_output *output, const struct fact *fact,
                     double value)
{
    add(f, output, fact, SENSOR_FLOAT, (union sensor_value){.real = value});
}

static void add_text(struct fgpu_stream_info *f, const struct fgpu_config_output *output, const struct fact *fact,
                     const char *text)
{
    struct sensor *sensor = add(f, output, fact, SENSOR_STRING, (union sensor_value){0});

    if (!f->err)
        f->err = sensors_set_text(f->sensors, sensor, f->now_ns, SENSOR_NOMINAL, text);
}

/* ---- What there is to say ---------------------------------------------------------------------------------------- */

static void add_times(struct fgpu_stream_info *f, const struct fgpu_config *config,
                      const struct fgpu_config_output *output)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    add_integer(f, output, &(struct fact){"adc-bits", "Bits of a digitiser's sample", ""}, config->recv.sample_bits);
    add_real(f, output, &(struct fact){"adc-sample-rate", "Samples per second of each digitiser", "Hz"}, rate_hz);
    add_real(f, output,
             &(struct fact){"scale-factor-timestamp", "Timestamps divided by this are seconds since sync-time", "Hz"},
             rate_hz);
    add_real(f, output, &(struct fact){"sync-time", "UNIX time of timestamp 0", "s"},
             timebase_decimal_to_double(config->time.sync_time_s));
    add_integer(f, output, &(struct fact){"n-samples-between-spectra", "ADC samples from one spectrum to the next", ""},
                fgpu_batch_samples(output) / output->spectra_per_heap);
    add_real(f, output, &(struct fact){"pfb-group-delay", "Delay of all filters together, in ADC samples", ""},
             fgpu_group_delay(output));
    add_real(
        f, output,
        &(struct fact){"ddc-group-delay", "Delay of the down-converter's filter alone, in ADC samples; 0: none", ""},
        fgpu_ddc_group_delay(output));
}

static void add_band(struct fgpu_stream_info *f, const struct fgpu_config *config,
                     const struct fgpu_config_output *output)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double bandwidth_hz = rate_hz / 2 / (double)fgpu_decimation(output);
    double centre_hz = output->kind == FGPU_NARROWBAND ? timebase_decimal_to_double(output->centre_hz) : rate_hz / 4;

    add_integer(f, output, &(struct fact){"n-chans", "Channels of the stream", ""}, output->n_chan);
    add_integer(f, output, &(struct fact){"n-chans-per-substream", "Channels that go to one destination", ""},
                output->n_chan / (int64_t)output->destinations.n);
    add_real(f, output, &(struct fact){"bandwidth", "Bandwidth of all channels together", "Hz"}, bandwidth_hz);
    add_real(
        f, output,
        &(struct fact){"center-freq", "Centre of the stream's band within the digitised one, which begins at 0", "Hz"},
        centre_hz);
    add_integer(f, output,
                &(struct fact){"decimation-factor", "Bandwidth of the digitisers over that of the stream", ""},
                fgpu_decimation(output));
    add_integer(f, output, &(struct fact){"spectra-per-heap", "Spectra of each channel in a heap", ""},
                output->spectra_per_heap);
    add_integer(
        f, output,
        &(struct fact){"feng-out-bits-per-sample", "Bits of the real and of the imaginary part of a voltage", ""},
        output->sample_bits);
}

/* Lists as Python writes them; 256 antennas with names of 64 characters fit. */
static void add_inputs(struct fgpu_stream_info *f, const struct fgpu_config *config,
                       const struct fgpu_config_output *output)
{
    size_t n = config->antennas.n * N_POLS, bytes = n * 72 + 3;
    char *labels = malloc(bytes), *indices = malloc(bytes);
    size_t label_end = 0, index_end = 0;

    if (!labels || !indices) {
        f->err = -ENOMEM;
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const struct fgpu_config_antenna *antenna = fgpu_config_antenna(config, i / N_POLS);
        const char *before = i ? ", " : "[";
        label_end += (size_t)snprintf(labels + label_end, bytes - label_end, "%s'%s%c'", before, antenna->name,
                                      "vh"[i % N_POLS]);
        index_end += (size_t)snprintf(indices + index_end, bytes - index_end, "%s%" PRId64, before,
                                      antenna->feng_id * N_POLS + (int64_t)(i % N_POLS));
    }
    strcpy(labels + label_end, "]");
    strcpy(indices + index_end, "]");
    add_text(f, output, &(struct fact){"input-labels", "What the inputs are called, in order", ""}, labels);
    add_text(f, output, &(struct fact){"source-indices", "Where the inputs are among those of the array, in order", ""},
             indices);
out:
    free(labels);
    free(indices);
}

int fgpu_stream_info_create(const struct fgpu_config *config, const uint64_t *dither_seeds, struct sensors *sensors,
                            struct fgpu_stream_info **stream_info)
{
    struct fgpu_stream_info *f = calloc(1, sizeof(*f) + config->outputs.n * N_FACTS * sizeof(f->items[0]));
    char seed[32];

    if (!f)
        return -ENOMEM;
    f->sensors = sensors;
    f->now_ns = clock_unix_ns();
    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(config, o);
        add_times(f, config, output);
        add_band(f, config, output);
        add_inputs(f, config, output);
        snprintf(seed, sizeof(seed), "%" PRIu64, dither_seeds[o]);
        add_text(
            f, output,
            &(struct fact){"dither-seed", "Seed of the dither: the same seed and samples give the same stream", ""},
            seed);
        assert(f->n <= (o + 1) * N_FACTS);
    }
    if (f->err) {
        int err = f->err;
        fgpu_stream_info_destroy(f);
        return err;
    }
    *stream_info = f;
    return 0;
}

void fgpu_stream_info_destroy(struct fgpu_stream_info *stream_info)
{
    free(stream_info);
}
