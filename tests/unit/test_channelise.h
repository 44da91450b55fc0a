/* test_channelise.h - a channeliser with its buffers, for the tests of wide bands and of narrow bands. */
#ifndef TESTS_UNIT_TEST_CHANNELISE_H
#define TESTS_UNIT_TEST_CHANNELISE_H

#include "kernels/filterbank/channelise.h"
#include "kernels/util/philox.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_voltages.h"

#include <check.h>
#include <complex.h>
#include <stdlib.h>
#include <string.h>

struct channelise_fixture {
    struct channelise_config config;
    size_t n_spectra, n_chan, n_samples;
    struct device *device;
    struct device_stream *stream;
    struct channelise *channelise;
    struct channelise_buffer buffer;
    size_t input_bytes;
    void *input[N_POLS], *input_device[N_POLS];
    float *gain, *gain_device;
    uint8_t *voltages;   /* copy of the output on the host */
    uint32_t *saturated; /* the same */
    uint64_t power[N_POLS];
    float *weights;
    struct channelise_spectrum *spectra[N_POLS];
};

/* Takes ownership of an open device.  Each input has 'n_samples' samples of 'sample_bits' bits.  The test must set the
 * contents of the inputs and gains. */
static inline void channelise_fixture_init(struct channelise_fixture *f, const struct channelise_config *config,
                                           struct device *device, size_t n_samples, size_t sample_bits)
{
    *f = (struct channelise_fixture){
        .config = *config, .n_chan = config->n_chan, .n_samples = n_samples, .device = device};
    f->n_spectra = (size_t)config->n_batches * config->spectra_per_heap;
    f->input_bytes = n_samples * sample_bits / 8;
    size_t rotation_bytes = N_POLS * f->n_spectra * 2 * sizeof(float);
    ck_assert_int_eq(device_stream_create(device, "test", &f->stream), 0);
    ck_assert_int_eq(channelise_create(device, config, &f->channelise), 0);
    f->buffer.voltages = device_alloc(device, channelise_voltage_bytes(config));
    f->buffer.saturated = device_alloc(device, config->n_batches * N_POLS * sizeof(uint32_t));
    f->buffer.power = config->power ? device_alloc(device, sizeof(f->power)) : NULL;
    f->buffer.rotation = device_alloc_pinned(device, rotation_bytes);
    f->buffer.rotation_device = device_alloc(device, rotation_bytes);
    memset(f->buffer.rotation, 0xff, rotation_bytes); /* NaN if no spectrum is appended at this position */
    for (size_t pol = 0; pol < N_POLS; pol++) {
        f->input[pol] = malloc(f->input_bytes);
        f->input_device[pol] = device_alloc(device, f->input_bytes + CHANNELISE_SPARE_BYTES);
        f->spectra[pol] = calloc(f->n_spectra, sizeof(*f->spectra[pol]));
    }
    f->gain = malloc(f->n_chan * N_POLS * 2 * sizeof(float));
    f->gain_device = device_alloc(device, f->n_chan * N_POLS * 2 * sizeof(float));
    f->voltages = malloc(channelise_voltage_bytes(config));
    f->saturated = malloc(config->n_batches * N_POLS * sizeof(uint32_t));
    f->weights = malloc(channelise_window_samples(config) * sizeof(float));
    design_pfb(channelise_spacing_samples(config), config->n_taps, config->w_cutoff, config->window, f->weights);
}

/* Copies the inputs to the device, and fills the memory of the outputs with 0x55. */
static inline void channelise_fixture_fill(struct channelise_fixture *f)
{
    for (size_t pol = 0; pol < N_POLS; pol++)
        test_write(f->stream, f->input_device[pol], f->input[pol], f->input_bytes);
    device_fill(f->stream, f->buffer.voltages, 0x55, channelise_voltage_bytes(&f->config));
    device_fill(f->stream, f->buffer.saturated, 0x55, f->config.n_batches * N_POLS * sizeof(uint32_t));
}

/* Finishes a buffer, and copies its outputs to the host. */
static inline void channelise_fixture_finish(struct channelise_fixture *f, uint64_t first_spectrum)
{
    test_write(f->stream, f->gain_device, f->gain, f->n_chan * N_POLS * 2 * sizeof(float));
    channelise_finish(f->channelise, f->stream, &f->buffer, f->gain_device, first_spectrum);
    test_read(f->stream, f->voltages, f->buffer.voltages, channelise_voltage_bytes(&f->config));
    test_read(f->stream, f->saturated, f->buffer.saturated, f->config.n_batches * N_POLS * sizeof(uint32_t));
    if (f->config.power)
        test_read(f->stream, f->power, f->buffer.power, sizeof(f->power));
}

/* Reads the real and imaginary part of an output voltage. */
static inline void channelise_fixture_output(const struct channelise_fixture *f, size_t pol, size_t s, size_t k,
                                             int value[2])
{
    size_t heap = s / f->config.spectra_per_heap, within = s % f->config.spectra_per_heap;
    size_t at = ((heap * f->n_chan + k) * f->config.spectra_per_heap + within) * N_POLS + pol;

    quantised_voltage(f->voltages, f->config.out_bits, at, value);
}

/* Returns the dither that is added to channel k of a spectrum before rounding. */
static inline double complex channelise_fixture_dither(const struct channelise_fixture *f, size_t pol, uint64_t index,
                                                       size_t k)
{
    const uint32_t counter[4] = {(uint32_t)k, (uint32_t)(index >> 1), (uint32_t)(index >> 33), f->config.stream_id};
    const uint32_t key[2] = {(uint32_t)f->config.seed, (uint32_t)(f->config.seed >> 32)};
    uint32_t bits[4];

    if (!f->config.dither)
        return 0;
    philox4x32(counter, key, bits);
    return philox_dither(bits[2 * pol], index % 2) + I * philox_dither(bits[2 * pol + 1], index % 2);
}

static inline void channelise_fixture_fini(struct channelise_fixture *f)
{
    free(f->weights);
    free(f->saturated);
    free(f->voltages);
    device_free(f->device, f->gain_device);
    free(f->gain);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        free(f->spectra[pol]);
        device_free(f->device, f->input_device[pol]);
        free(f->input[pol]);
    }
    device_free(f->device, f->buffer.rotation_device);
    device_free_pinned(f->device, f->buffer.rotation);
    device_free(f->device, f->buffer.power);
    device_free(f->device, f->buffer.saturated);
    device_free(f->device, f->buffer.voltages);
    channelise_destroy(f->channelise);
    device_stream_destroy(f->stream);
    device_close(f->device);
}

#endif
