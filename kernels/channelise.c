/* channelise.c - the F-engine's work on the device, between the pipeline's input and output buffers. */
#include "kernels/channelise.h"

#include "kernels/channelise_fused.h"
#include "kernels/pfb_fir.h"
#include "kernels/postproc.h"

#include <errno.h>
#include <stdlib.h>

/* FFTs per spectrum; the cpu device's FFT gains nothing from being cut into smaller ones. */
#define UNZIP 1

struct channelise {
    struct channelise_config config;
    size_t n_spectra; /* of an output buffer */
    struct device *device;
    float *weights;         /* device: [n_taps][2 n_chan] */
    float *filtered;        /* device: [pol][n_spectra][2 n_chan] */
    float *transformed;     /* device: complex [pol][n_spectra][UNZIP][n_chan / UNZIP] */
    struct device_fft *fft; /* filtered to transformed */
    struct device_kernel *pfb_fir, *postproc;
    struct channelise_fused *fused; /* instead of all from 'weights' on; or NULL */
};

size_t channelise_spacing_samples(const struct channelise_config *config)
{
    return 2 * (size_t)config->n_chan;
}

size_t channelise_window_samples(const struct channelise_config *config)
{
    return config->n_taps * channelise_spacing_samples(config);
}

static size_t n_spectra_of(const struct channelise_config *config)
{
    return (size_t)config->n_batches * config->spectra_per_heap;
}

size_t channelise_voltage_bytes(const struct channelise_config *config)
{
    return n_spectra_of(config) * config->n_chan * N_POLS * 2 * config->out_bits / 8;
}

static size_t weights_bytes(const struct channelise_config *config)
{
    return channelise_window_samples(config) * sizeof(float);
}

/* Of the filtered samples, and again of their transforms. */
static size_t spectra_bytes(const struct channelise_config *config)
{
    return N_POLS * n_spectra_of(config) * channelise_spacing_samples(config) * sizeof(float);
}

static bool is_fused(const struct channelise_config *config, bool compiles)
{
    return compiles && config->method == CHANNELISE_FUSED;
}

size_t channelise_scratch_bytes(const struct channelise_config *config, bool compiles)
{
    if (is_fused(config, compiles))
        return channelise_fused_scratch_bytes(config);
    return weights_bytes(config) + 2 * spectra_bytes(config);
}

/* Designs the filter and brings it to the device. */
static int upload_weights(struct channelise *c)
{
    const struct channelise_config *config = &c->config;
    struct device_stream *stream;
    float *host;
    int err = -ENOMEM;

    host = device_alloc_pinned(c->device, weights_bytes(config));
    if (!host)
        return err;
    err = device_stream_create(c->device, "weights", &stream);
    if (err)
        goto undo_host;
    design_pfb(channelise_spacing_samples(config), config->n_taps, config->w_cutoff, config->window, host);
    device_copy(stream, c->weights, host, weights_bytes(config));
    device_stream_wait(stream);
    device_stream_destroy(stream);
undo_host:
    device_free_pinned(c->device, host);
    return err;
}

static int create_stages(struct channelise *c)
{
    const struct channelise_config *config = &c->config;
    int err;

    c->weights = device_alloc(c->device, weights_bytes(config));
    c->filtered = device_alloc(c->device, spectra_bytes(config));
    c->transformed = device_alloc(c->device, spectra_bytes(config));
    if (!c->weights || !c->filtered || !c->transformed)
        return -ENOMEM;
    err = device_fft_create(c->device, config->n_chan / UNZIP, N_POLS * c->n_spectra * UNZIP, &c->fft);
    if (!err)
        err = device_kernel_create(c->device, &pfb_fir_kernel, NULL, 0, &c->pfb_fir);
    if (!err)
        err = device_kernel_create(c->device, &postproc_kernel, NULL, 0, &c->postproc);
    return err ? err : upload_weights(c);
}

int channelise_create(struct device *device, const struct channelise_config *config, struct channelise **channelise)
{
    struct channelise *c = calloc(1, sizeof(*c));
    int err;

    if (!c)
        return -ENOMEM;
    c->config = *config;
    c->n_spectra = n_spectra_of(config);
    c->device = device;
    err = is_fused(config, device_compiles(device)) ? channelise_fused_create(device, config, &c->fused)
                                                    : create_stages(c);
    if (err) {
        channelise_destroy(c);
        return err;
    }
    *channelise = c;
    return 0;
}

void channelise_destroy(struct channelise *channelise)
{
    if (!channelise)
        return;
    channelise_fused_destroy(channelise->fused);
    device_kernel_destroy(channelise->postproc);
    device_kernel_destroy(channelise->pfb_fir);
    device_fft_destroy(channelise->fft);
    device_free(channelise->device, channelise->transformed);
    device_free(channelise->device, channelise->filtered);
    device_free(channelise->device, channelise->weights);
    free(channelise);
}

/* How many of spectra[0..n), n > 0, one launch can filter: while windows advance by exactly the spacing. */
static size_t regular_run(const struct channelise_spectrum *spectra, size_t n, size_t spacing)
{
    size_t run = 1;

    while (run < n && spectra[run].offset == spectra[run - 1].offset + (int64_t)spacing)
        run++;
    return run;
}

/* One polarisation, spectra [first, first + n), by stages. */
static void filter(struct channelise *c, struct device_stream *stream, const uint8_t *input, size_t pol, size_t first,
                   size_t n, const struct channelise_spectrum *spectra)
{
    const struct channelise_config *config = &c->config;
    size_t spacing = channelise_spacing_samples(config), row = pol * c->n_spectra + first, run;

    for (size_t i = 0; i < n; i += run) {
        run = regular_run(spectra + i, n - i, spacing);
        struct pfb_fir_args args = {
            .in = input,
            .weights = c->weights,
            .out = c->filtered + (row + i) * spacing,
            .offset = spectra[i].offset,
            .n_spectra = (uint32_t)run,
            .n_chan = config->n_chan,
            .n_taps = config->n_taps,
            .sample_bits = config->sample_bits,
            .unzip = UNZIP,
        };
        device_launch(stream, c->pfb_fir, NULL, &args);
    }
}

/* Both polarisations at once, so in runs that are regular in both. */
static void filter_fused(struct channelise *c, struct device_stream *stream, const uint8_t *const input[N_POLS],
                         size_t first, size_t n, const struct channelise_spectrum *const spectra[N_POLS])
{
    size_t spacing = channelise_spacing_samples(&c->config), run;

    for (size_t i = 0; i < n; i += run) {
        const int64_t offset[N_POLS] = {spectra[0][i].offset, spectra[1][i].offset};
        run = regular_run(spectra[0] + i, n - i, spacing);
        run = regular_run(spectra[1] + i, run, spacing);
        channelise_fused_front(c->fused, stream, input, offset, first + i, run);
    }
}

void channelise_append(struct channelise *channelise, struct device_stream *stream, const uint8_t *const input[N_POLS],
                       const struct channelise_buffer *buffer, size_t first, size_t n,
                       const struct channelise_spectrum *const spectra[N_POLS])
{
    if (channelise->fused)
        filter_fused(channelise, stream, input, first, n, spectra);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        float *rotation = buffer->rotation + (pol * channelise->n_spectra + first) * 2;
        if (!channelise->fused)
            filter(channelise, stream, input[pol], pol, first, n, spectra[pol]);
        for (size_t i = 0; i < n; i++) {
            rotation[2 * i] = spectra[pol][i].fine;
            rotation[2 * i + 1] = spectra[pol][i].phase;
        }
    }
}

void channelise_finish(struct channelise *channelise, struct device_stream *stream,
                       const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum)
{
    const struct channelise_config *config = &channelise->config;
    struct postproc_args args = {
        .fft = channelise->transformed,
        .rotation = buffer->rotation_device,
        .gain = gain,
        .out = buffer->voltages,
        .saturated = buffer->saturated,
        .first_spectrum = first_spectrum,
        .seed = config->seed,
        .stream_id = config->stream_id,
        .n_spectra = (uint32_t)channelise->n_spectra,
        .spectra_per_heap = config->spectra_per_heap,
        .n_chan = config->n_chan,
        .unzip = UNZIP,
        .out_bits = config->out_bits,
        .dither = config->dither,
    };

    device_copy(stream, buffer->rotation_device, buffer->rotation, N_POLS * channelise->n_spectra * 2 * sizeof(float));
    if (channelise->fused) {
        channelise_fused_back(channelise->fused, stream, buffer, gain, first_spectrum);
        return;
    }
    device_fft_run(stream, channelise->fft, channelise->filtered, channelise->transformed);
    device_fill(stream, buffer->saturated, 0, config->n_batches * N_POLS * sizeof(*buffer->saturated));
    device_launch(stream, channelise->postproc, NULL, &args);
}
