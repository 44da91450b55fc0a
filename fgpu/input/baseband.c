/* baseband.c - converts the device inputs of antenna.c to the samples of a narrow band. */
#include "fgpu/input/baseband.h"

#include "common/device/device.h"
#include "common/base/units.h"
#include "fgpu/input/device_input.h"
#include "kernels/ddc/design_ddc.h"
#include "kernels/ddc/mixer.h"
#include "kernels/util/power.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SAMPLE_BYTES (2 * sizeof(float))

struct fgpu_baseband {
    struct device *device;
    struct device_kernel *ddc, *power; /* 'power' is NULL if this band does not measure the inputs */
    void *weights;                     /* device */
    float *samples[N_POLS];            /* device: complex [capacity] */
    size_t capacity;
    struct ddc_args args; /* [const] except for fields that depend on the input */
    struct ddc_shape shape;
    struct mixer mixer;
    /* [const] spacing of the measured spectra, in ADC samples; 0: no measurement */
    int64_t spacing_samples;
    /* [const] number of samples in the history, and in the whole device input */
    int64_t history_samples, input_samples;
    bool valid;                /* true if a device input has been converted since the last restart */
    int64_t timestamp_samples; /* timestamp of the last device input */
    int64_t first, end;        /* range of sample numbers (timestamp / subsampling) in samples[] */
    int64_t made;              /* number of the first sample that the last fgpu_baseband_advance() computed */
};

struct ddc_args fgpu_baseband_sizes(const struct fgpu_config *config, const struct fgpu_config_band *band)
{
    return (struct ddc_args){
        .n_taps = (uint32_t)fgpu_band_taps(band),
        .subsampling = (uint32_t)fgpu_band_subsampling(band),
        .sample_bits = (uint32_t)config->recv.sample_bits,
    };
}

/* Returns the largest number of baseband samples that a device input yields.  It includes three extra samples.  One
 * extra sample is needed if the first sample is moved to an even index.  The other two are needed if the input begins
 * or ends between two baseband samples. */
static size_t capacity_of(const struct fgpu_layout *layout, const struct fgpu_config *config,
                          const struct fgpu_config_band *band)
{
    return (size_t)((layout->history_samples + config->recv.chunk_samples) / fgpu_band_subsampling(band)) + 3;
}

uint64_t fgpu_baseband_bytes(const struct fgpu_layout *layout, const struct fgpu_config *config,
                             const struct fgpu_config_band *band, bool compiles)
{
    const struct ddc_args args = fgpu_baseband_sizes(config, band);
    const struct ddc_shape shape = ddc_default_shape(&args);

    return N_POLS * capacity_of(layout, config, band) * SAMPLE_BYTES + ddc_weights_bytes(&args, &shape, compiles);
}

int fgpu_baseband_design(const struct fgpu_config *config, const struct fgpu_config_band *band, float **filter)
{
    double band_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz) / 2 / (double)band->decimation;
    const struct design_ddc design = {
        .subsampling = (unsigned)fgpu_band_subsampling(band),
        .n_taps = (size_t)fgpu_band_taps(band),
        .weight_pass = band->weight_pass,
        .pass_fraction = band->pass_bandwidth_hz / band_hz,
    };
    float *taps = malloc(design.n_taps * sizeof(*taps));
    int err = taps ? design_ddc(&design, taps) : -ENOMEM;

    if (err) {
        free(taps);
        return err;
    }
    *filter = taps;
    return 0;
}

/* ---- From input to input ----------------------------------------------------------------------------------------- */

/* Queues the kernel that computes samples [from, to) from the device input. */
static void convert(struct fgpu_baseband *b, struct device_stream *stream, const struct fgpu_device_input *in,
                    int64_t from, int64_t to)
{
    struct ddc_args args = b->args;
    int64_t timestamp = from * (int64_t)args.subsampling;
    struct kernel_grid grid;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        args.in[pol] = in->samples[pol];
        args.out[pol] = b->samples[pol] + 2 * (from - b->first);
    }
    args.offset = timestamp - in->timestamp_samples;
    args.phase = mixer_turns(&b->mixer, timestamp);
    args.phase_step = mixer_turns(&b->mixer, args.subsampling);
    args.n_out = (uint32_t)(to - from);
    grid = ddc_grid(&args, &b->shape);
    device_launch(stream, b->ddc, &grid, &args);
}

void fgpu_baseband_advance(struct fgpu_baseband *b, struct device_stream *stream, const struct fgpu_device_input *in)
{
    int64_t step = b->args.subsampling, first = -floor_div(-in->timestamp_samples, step);
    int64_t end = floor_div(in->timestamp_samples + b->input_samples - b->args.n_taps, step) + 1;
    int64_t from = -floor_div(-(in->timestamp_samples + b->history_samples), step);

    if (b->valid && b->timestamp_samples == in->timestamp_samples)
        return;
    if (b->valid && in->has_history) {
        int64_t moved = first - b->first, kept = b->end - first;
        assert(kept > 0 && kept <= moved); /* source and destination must not overlap */
        for (unsigned pol = 0; pol < N_POLS; pol++)
            device_copy(stream, b->samples[pol], b->samples[pol] + 2 * moved, (size_t)kept * SAMPLE_BYTES);
        from = b->end;
    }
    b->valid = true;
    b->timestamp_samples = in->timestamp_samples;
    b->first = first;
    b->end = end;
    b->made = from;
    from -= (from - first) & 1; /* the kernel's first sample must have an even index */
    assert(from >= first && (size_t)(end - first) <= b->capacity);
    if (from < end)
        convert(b, stream, in, from, end);
}

/* Launches the kernel once for each series of spectra that follow each other without a gap on both polarisations. */
void fgpu_baseband_measure(const struct fgpu_baseband *b, struct device_stream *stream,
                           const struct fgpu_device_input *in, const struct channelise_spectrum *const spectra[N_POLS],
                           size_t n, uint64_t *power)
{
    struct power_args args = {
        .in = {in->samples[0], in->samples[1]}, .power = power, .sample_bits = b->args.sample_bits};

    for (size_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n; run++)
            if (spectra[0][i + run].offset - spectra[0][i + run - 1].offset != b->spacing_samples ||
                spectra[1][i + run].offset - spectra[1][i + run - 1].offset != b->spacing_samples)
                break;
        for (unsigned pol = 0; pol < N_POLS; pol++)
            args.offset[pol] = spectra[pol][i].offset;
        args.n_samples = run * (uint64_t)b->spacing_samples;
        struct kernel_grid grid = power_grid(&args);
        device_launch(stream, b->power, &grid, &args);
    }
}

void fgpu_baseband_restart(struct fgpu_baseband *baseband)
{
    baseband->valid = false;
}

void fgpu_baseband_made(const struct fgpu_baseband *baseband, int64_t *from, int64_t *to)
{
    *from = baseband->made;
    *to = baseband->end;
}

const uint8_t *fgpu_baseband_samples(const struct fgpu_baseband *baseband, unsigned pol)
{
    return (const uint8_t *)baseband->samples[pol];
}

int64_t fgpu_baseband_index(const struct fgpu_baseband *baseband, int64_t timestamp_samples)
{
    return timestamp_samples / (int64_t)baseband->args.subsampling - baseband->first;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int upload_weights(struct fgpu_baseband *b, const float *filter)
{
    bool compiles = device_compiles(b->device);
    size_t bytes = ddc_weights_bytes(&b->args, &b->shape, compiles);
    void *host = device_alloc_pinned(b->device, bytes);
    struct device_stream *stream;
    int err = -ENOMEM;

    b->weights = device_alloc(b->device, bytes);
    if (!host || !b->weights)
        goto undo_host;
    err = device_stream_create(b->device, "weights", &stream);
    if (err)
        goto undo_host;
    b->args.scale = ddc_weights(&b->args, &b->shape, compiles, filter, &b->mixer, host);
    b->args.weights = b->weights;
    device_copy(stream, b->weights, host, bytes);
    device_stream_wait(stream);
    device_stream_destroy(stream);
undo_host:
    device_free_pinned(b->device, host);
    return err;
}

static int create_power(struct fgpu_baseband *b)
{
    const struct power_args args = {.sample_bits = b->args.sample_bits};
    struct kernel_constant constants[POWER_N_CONSTANTS];

    power_constants(&args, constants);
    return device_kernel_create(b->device, &power_kernel, constants, POWER_N_CONSTANTS, &b->power);
}

int fgpu_baseband_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct device *device,
                         const struct fgpu_config_band *band, const float *filter, const struct ddc_shape *shape,
                         int64_t measured_spacing_samples, struct fgpu_baseband **baseband)
{
    struct fgpu_baseband *b = calloc(1, sizeof(*b));
    struct kernel_constant constants[DDC_N_CONSTANTS];
    int err;

    if (!b)
        return -ENOMEM;
    b->device = device;
    b->args = fgpu_baseband_sizes(config, band);
    b->shape = shape->n_warps > 0 ? *shape : ddc_default_shape(&b->args);
    b->capacity = capacity_of(layout, config, band);
    b->history_samples = layout->history_samples;
    b->input_samples = layout->history_samples + config->recv.chunk_samples;
    mixer_init(&b->mixer, timebase_decimal_to_double(band->centre_hz),
               timebase_decimal_to_double(config->time.adc_sample_rate_hz));
    ddc_constants(&b->args, &b->shape, constants);
    b->spacing_samples = measured_spacing_samples;
    err = device_kernel_create(device, &ddc_kernel, constants, DDC_N_CONSTANTS, &b->ddc);
    if (!err && measured_spacing_samples > 0)
        err = create_power(b);
    for (unsigned pol = 0; pol < N_POLS && !err; pol++) {
        b->samples[pol] = device_alloc(device, b->capacity * SAMPLE_BYTES);
        if (!b->samples[pol])
            err = -ENOMEM;
    }
    if (!err)
        err = upload_weights(b, filter);
    if (err) {
        fgpu_baseband_destroy(b);
        return err;
    }
    *baseband = b;
    return 0;
}

void fgpu_baseband_destroy(struct fgpu_baseband *baseband)
{
    if (!baseband)
        return;
    device_kernel_destroy(baseband->power);
    device_kernel_destroy(baseband->ddc);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        device_free(baseband->device, baseband->samples[pol]);
    device_free(baseband->device, baseband->weights);
    free(baseband);
}
