/* channelise.c - runs the F-engine's kernels on the device, from the pipeline's input to its output buffers. */
#include "kernels/filterbank/channelise.h"

#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/channelise_narrow.h"
#include "kernels/filterbank/pfb_fir.h"
#include "kernels/filterbank/pfb_fir_complex.h"
#include "kernels/filterbank/postproc.h"

#include <errno.h>
#include <stdlib.h>

/* Largest number of points of an FFT for which a GPU reads and writes memory only once. */
#define MAX_FFT_POINTS 16384

struct channelise {
    struct channelise_config config;
    size_t n_spectra; /* number of spectra of an output buffer */
    uint32_t unzip;   /* FFTs per spectrum */
    struct device *device;
    float *weights;  /* device: [n_taps][spacing] */
    float *filtered; /* device: [pol][n_spectra][2 n_chan], or complex [pol][n_spectra][n_bins] */
    /* device: complex [pol][n_spectra][unzip][n_chan / unzip]; for complex input, the same shape as 'filtered' */
    float *transformed;
    struct device_fft *fft; /* Fourier transform from 'filtered' to 'transformed' */
    /* kernels of the stages; if the input is complex, 'pfb_fir' is pfb_fir_complex */
    struct device_kernel *pfb_fir, *postproc;
    /* fused kernels for real input, which replace the members 'weights' to 'postproc'; or NULL */
    struct channelise_fused *fused;
    /* fused kernels for complex input, which replace the same members; or NULL */
    struct channelise_narrow *narrow;
};

size_t channelise_spacing_samples(const struct channelise_config *config)
{
    return config->n_bins ? config->n_bins : 2 * (size_t)config->n_chan;
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

/* Returns the size in bytes of the filtered samples of a buffer.  The transforms of the buffer have the same size. */
static size_t spectra_bytes(const struct channelise_config *config)
{
    size_t row = channelise_spacing_samples(config) * (config->n_bins ? 2 : 1);

    return N_POLS * n_spectra_of(config) * row * sizeof(float);
}

/* Returns true if the object uses the two fused kernels for real input.  The kernels need real input and a device that
 * runs CUDA variants.  The kernels also need enough shared memory for the numbers of channels and taps. */
static bool is_fused(const struct channelise_config *config, size_t shared_bytes)
{
    struct channelise_shape shape;

    if (config->n_bins)
        return false;
    shape = config->shape ? *config->shape : channelise_fused_shape(config, shared_bytes);
    return shared_bytes > 0 && config->method == CHANNELISE_FUSED &&
           channelise_shape_valid(config, &shape, shared_bytes);
}

/* Returns true if the two fused kernels for complex input run.  They do not support all sizes. */
static bool is_narrow(const struct channelise_config *config, size_t shared_bytes)
{
    struct channelise_narrow_shape shape;

    return config->n_bins > 0 && shared_bytes > 0 && config->method == CHANNELISE_FUSED &&
           channelise_narrow_fits(config, shared_bytes, 1, &shape);
}

size_t channelise_scratch_bytes(const struct channelise_config *config, size_t shared_bytes)
{
    if (is_fused(config, shared_bytes))
        return channelise_fused_scratch_bytes(config);
    if (is_narrow(config, shared_bytes))
        return channelise_narrow_scratch_bytes(config);
    return weights_bytes(config) + 2 * spectra_bytes(config);
}

/* Designs the filter and uploads it to the device. */
static int upload_weights(struct channelise *c)
{
    const struct channelise_config *config = &c->config;
    float *host = device_alloc_pinned(c->device, weights_bytes(config));

    if (!host)
        return -ENOMEM;
    design_pfb(channelise_spacing_samples(config), config->n_taps, config->w_cutoff, config->window, host);
    int err = device_upload(c->device, c->weights, host, weights_bytes(config));
    device_free_pinned(c->device, host);
    return err;
}

/* Returns the number of FFTs per spectrum.  Smaller FFTs make the cpu device no faster.  Complex input has one FFT
 * per spectrum. */
static uint32_t unzip_of(const struct channelise_config *config, bool compiles)
{
    if (!compiles || config->n_bins)
        return 1;
    if (config->unzip)
        return config->unzip;
    return config->n_chan <= MAX_FFT_POINTS ? 1 : config->n_chan / MAX_FFT_POINTS;
}

/* Returns the arguments for filtering 'n' spectra of one polarisation.  'row' is the index of the first of these
 * spectra in the buffer, [pol][n_spectra]. */
static struct pfb_fir_args fir_args(const struct channelise *c, const uint8_t *input, size_t row, int64_t offset,
                                    size_t n)
{
    return (struct pfb_fir_args){
        .in = input,
        .weights = c->weights,
        .out = c->filtered + row * channelise_spacing_samples(&c->config),
        .offset = offset,
        .n_spectra = (uint32_t)n,
        .n_chan = c->config.n_chan,
        .n_taps = c->config.n_taps,
        .sample_bits = c->config.sample_bits,
        .unzip = c->unzip,
    };
}

static struct pfb_fir_complex_args complex_args(const struct channelise *c, const uint8_t *input, size_t row,
                                                int64_t offset, size_t n)
{
    return (struct pfb_fir_complex_args){
        .in = (const float *)(const void *)input,
        .weights = c->weights,
        .out = c->filtered + 2 * row * c->config.n_bins,
        .offset = offset,
        .n_spectra = (uint32_t)n,
        .n_bins = c->config.n_bins,
        .n_taps = c->config.n_taps,
    };
}

/* Returns the arguments for a whole buffer, without the buffer's addresses, the gains and the time. */
static struct postproc_args post_args(const struct channelise *c)
{
    return (struct postproc_args){
        .fft = c->transformed,
        .seed = c->config.seed,
        .stream_id = c->config.stream_id,
        .n_spectra = (uint32_t)c->n_spectra,
        .spectra_per_heap = c->config.spectra_per_heap,
        .n_chan = c->config.n_chan,
        .n_bins = c->config.n_bins,
        .unzip = c->unzip,
        .out_bits = c->config.out_bits,
        .dither = c->config.dither,
    };
}

static int create_fir(struct channelise *c)
{
    struct pfb_fir_args real = fir_args(c, NULL, 0, 0, c->n_spectra);
    struct pfb_fir_complex_args narrow = complex_args(c, NULL, 0, 0, c->n_spectra);
    struct kernel_constant for_real[PFB_FIR_N_CONSTANTS], for_narrow[PFB_FIR_COMPLEX_N_CONSTANTS];

    if (!c->config.n_bins) {
        pfb_fir_constants(&real, for_real);
        return device_kernel_create(c->device, &pfb_fir_kernel, for_real, PFB_FIR_N_CONSTANTS, &c->pfb_fir);
    }
    pfb_fir_complex_constants(&narrow, for_narrow);
    return device_kernel_create(c->device, &pfb_fir_complex_kernel, for_narrow, PFB_FIR_COMPLEX_N_CONSTANTS,
                                &c->pfb_fir);
}

static int create_kernels(struct channelise *c)
{
    struct postproc_args post = post_args(c);
    struct kernel_constant for_post[POSTPROC_N_CONSTANTS];
    int err = create_fir(c);

    postproc_constants(&post, for_post);
    return err ? err : device_kernel_create(c->device, &postproc_kernel, for_post, POSTPROC_N_CONSTANTS, &c->postproc);
}

static int create_stages(struct channelise *c)
{
    const struct channelise_config *config = &c->config;
    int err;

    c->unzip = unzip_of(config, device_compiles(c->device));
    c->weights = device_alloc(c->device, weights_bytes(config));
    c->filtered = device_alloc(c->device, spectra_bytes(config));
    c->transformed = device_alloc(c->device, spectra_bytes(config));
    if (!c->weights || !c->filtered || !c->transformed)
        return -ENOMEM;
    err = device_fft_create(c->device, config->n_bins ? config->n_bins : config->n_chan / c->unzip,
                            N_POLS * c->n_spectra * c->unzip, &c->fft);
    if (!err)
        err = create_kernels(c);
    return err ? err : upload_weights(c);
}

int channelise_create(struct device *device, const struct channelise_config *config, struct channelise **channelise)
{
    struct channelise *c = calloc(1, sizeof(*c));
    int err;

    if (!c)
        return -ENOMEM;
    c->config = *config;
    /* the caller may free both shapes after channelise_create(), because the kernels have copies */
    c->config.shape = NULL;
    c->config.narrow = NULL;
    c->n_spectra = n_spectra_of(config);
    c->device = device;
    if (is_fused(config, device_shared_bytes(device)))
        err = channelise_fused_create(device, config, &c->fused);
    else if (is_narrow(config, device_shared_bytes(device)))
        err = channelise_narrow_create(device, config, &c->narrow);
    else
        err = create_stages(c);
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
    channelise_narrow_destroy(channelise->narrow);
    channelise_fused_destroy(channelise->fused);
    device_kernel_destroy(channelise->postproc);
    device_kernel_destroy(channelise->pfb_fir);
    device_fft_destroy(channelise->fft);
    device_free(channelise->device, channelise->transformed);
    device_free(channelise->device, channelise->filtered);
    device_free(channelise->device, channelise->weights);
    free(channelise);
}

/* Returns the number of spectra that one launch can filter, beginning with spectra[0].  The windows of these spectra
 * begin exactly one spacing apart.  n > 0. */
static size_t regular_run(const struct channelise_spectrum *spectra, size_t n, size_t spacing)
{
    size_t run = 1;

    while (run < n && spectra[run].offset == spectra[run - 1].offset + (int64_t)spacing)
        run++;
    return run;
}

/* Filters spectra [first, first + n) of one polarisation with the kernel of the filter stage. */
static void filter(struct channelise *c, struct device_stream *stream, const uint8_t *input, size_t pol, size_t first,
                   size_t n, const struct channelise_spectrum *spectra, uint64_t *power)
{
    size_t spacing = channelise_spacing_samples(&c->config), row = pol * c->n_spectra + first, run;

    for (size_t i = 0; i < n; i += run) {
        run = regular_run(spectra + i, n - i, spacing);
        struct pfb_fir_complex_args narrow = complex_args(c, input, row + i, spectra[i].offset, run);
        struct pfb_fir_args real = fir_args(c, input, row + i, spectra[i].offset, run);
        struct kernel_grid grid = c->config.n_bins ? pfb_fir_complex_grid(&narrow, 0) : pfb_fir_grid(&real, 0);
        real.power = power;
        device_launch(stream, c->pfb_fir, &grid, c->config.n_bins ? (void *)&narrow : (void *)&real);
    }
}

/* Filters both polarisations with the fused kernel.  Each launch has a run of spectra whose windows begin exactly one
 * spacing apart in both polarisations. */
static void filter_fused(struct channelise *c, struct device_stream *stream, const uint8_t *const input[N_POLS],
                         size_t first, size_t n, const struct channelise_spectrum *const spectra[N_POLS],
                         uint64_t *power)
{
    size_t spacing = channelise_spacing_samples(&c->config), run;

    for (size_t i = 0; i < n; i += run) {
        const int64_t offset[N_POLS] = {spectra[0][i].offset, spectra[1][i].offset};
        run = regular_run(spectra[0] + i, n - i, spacing);
        run = regular_run(spectra[1] + i, run, spacing);
        if (c->narrow)
            channelise_narrow_front(c->narrow, stream, input, offset, first + i, run);
        else
            channelise_fused_front(c->fused, stream, input, offset, first + i, run, power);
    }
}

void channelise_append(struct channelise *channelise, struct device_stream *stream, const uint8_t *const input[N_POLS],
                       const struct channelise_buffer *buffer, size_t first, size_t n,
                       const struct channelise_spectrum *const spectra[N_POLS])
{
    uint64_t *power = channelise->config.power ? buffer->power : NULL;

    const bool both = channelise->fused || channelise->narrow;

    if (both)
        filter_fused(channelise, stream, input, first, n, spectra, power);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        float *rotation = buffer->rotation + (pol * channelise->n_spectra + first) * 2;
        if (!both)
            filter(channelise, stream, input[pol], pol, first, n, spectra[pol], power ? power + pol : NULL);
        for (size_t i = 0; i < n; i++) {
            rotation[2 * i] = spectra[pol][i].fine;
            rotation[2 * i + 1] = spectra[pol][i].phase;
        }
    }
}

static void finish_stages(struct channelise *c, struct device_stream *stream, const struct channelise_buffer *buffer,
                          const float *gain, uint64_t first_spectrum)
{
    struct postproc_args args = post_args(c);
    struct kernel_grid grid = postproc_grid(&args);

    args.rotation = buffer->rotation_device;
    args.gain = gain;
    args.out = buffer->voltages;
    args.saturated = buffer->saturated;
    args.first_spectrum = first_spectrum;
    device_fft_run(stream, c->fft, c->filtered, c->transformed);
    device_fill(stream, buffer->saturated, 0, c->config.n_batches * N_POLS * sizeof(*buffer->saturated));
    device_launch(stream, c->postproc, &grid, &args);
}

void channelise_finish(struct channelise *channelise, struct device_stream *stream,
                       const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum)
{
    device_copy(stream, buffer->rotation_device, buffer->rotation, N_POLS * channelise->n_spectra * 2 * sizeof(float));
    if (channelise->fused)
        channelise_fused_back(channelise->fused, stream, buffer, gain, first_spectrum);
    else if (channelise->narrow)
        channelise_narrow_back(channelise->narrow, stream, buffer, gain, first_spectrum);
    else
        finish_stages(channelise, stream, buffer, gain, first_spectrum);
}
