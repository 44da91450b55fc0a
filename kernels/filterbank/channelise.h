/* channelise - ADC samples, or complex ones of a narrow band, to quantised spectra, for one antenna (two polarisations)
 * and one output.
 *
 * Flow:      channelise_append(input, spectra...)*  ->  channelise_finish(buffer), again and again, all on one stream
 *            pfb_fir per run of regular offsets  ->  FFT of the whole buffer  ->  postproc
 *            or, the same with fewer passes over memory, the two kernels of channelise_fused.h
 * Narrow:    with n_bins the input is complex float, which ddc made: pfb_fir_complex -> FFT of n_bins points ->
 *            postproc, which keeps the n_chan bins in the middle; or the two kernels of channelise_narrow.h.  A sample
 *            is then one of those, also in all offsets and sizes; a spectrum's 'fine' is in units of 1 / (width of the
 *            n_chan channels).
 * Ownership: the object owns its scratch (filtered samples, spectra), weights and plan; buffers belong to the pipeline.
 * Threads:   the worker.   Blocking and allocation: none after create.
 * Source:    Price, "Spectrometers and Polyphase Filterbanks in Radio Astronomy" (2016), for the method. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_H
#define KERNELS_FILTERBANK_CHANNELISE_H

#include "common/device/device.h"
#include "common/base/units.h"
#include "kernels/filterbank/design_pfb.h"

#include <stdbool.h>
#include <stdint.h>

/* The stages of the header above, or the same in two kernels (channelise_fused.h).  The cpu device has stages only. */
enum channelise_method { CHANNELISE_FUSED, CHANNELISE_STAGES };

struct channelise_shape;
struct channelise_narrow_shape;

/* Largest number of spectra of an output buffer with CUDA variants.  A launch has at most 65535 blocks in one
 * dimension, and a block has at least 4 spectra. */
#define CHANNELISE_CUDA_SPECTRA (4 * 65535)

struct channelise_config {
    unsigned n_chan; /* power of two, 64..65536 */
    unsigned n_bins; /* 0: real, packed input; else a power of two >= n_chan: complex input */
    unsigned n_taps; /* 1..32 */
    double w_cutoff;
    enum pfb_window window;
    unsigned sample_bits;      /* 2..10, 12, 16; of packed input */
    unsigned spectra_per_heap; /* a multiple of 16 */
    unsigned n_batches;        /* of an output buffer, at most CHANNELISE_CUDA_SPECTRA spectra */
    unsigned out_bits;         /* 8 or 4 */
    bool dither;
    bool power; /* a buffer's 'power' is wanted; not of complex input */
    uint64_t seed;
    uint32_t stream_id;
    /* Where CUDA variants run: */
    unsigned append_spectra; /* that are usually appended at a time; 0: not known */
    enum channelise_method method;
    const struct channelise_shape *shape;         /* fused: how the work is cut; NULL: as is good for these sizes */
    const struct channelise_narrow_shape *narrow; /* fused, of complex input: the same */
    unsigned unzip; /* stages: FFTs per spectrum, 1, 2 or 4; 0: as is good for these sizes */
};

/* Bytes after the samples of an input that must be readable. */
#define CHANNELISE_SPARE_BYTES 32

/* Where one output spectrum of one polarisation comes from. */
struct channelise_spectrum {
    int64_t offset; /* index in the device input of the first sample of its window */
    float fine;     /* remaining delay, samples, [-1/2, 1/2]; in a narrow band up to 1 either way */
    float phase;    /* radians, at the band's centre */
};

/* An output buffer's parts; n_spectra = n_batches * spectra_per_heap. */
struct channelise_buffer {
    uint8_t *voltages;      /* device: heaps [batch][chan][spectrum][pol] */
    uint32_t *saturated;    /* device: [batch][pol] */
    float *rotation;        /* pinned host: [pol][n_spectra][2], written by append and copied by finish */
    float *rotation_device; /* device: the same */
    /* device: [pol], added to by append: the squares of all samples of the spectra's first taps, exact; so each sample once
     * where spectra follow each other. */
    uint64_t *power;
};

struct channelise;

/* Samples of input that a spectrum looks at: n_taps * spacing; and samples from spectrum to spectrum: 2 n_chan, or
 * n_bins. */
size_t channelise_window_samples(const struct channelise_config *config);
size_t channelise_spacing_samples(const struct channelise_config *config);
size_t channelise_voltage_bytes(const struct channelise_config *config); /* of a buffer's voltages */
/* Device memory of the object; 'shared_bytes' as of the device. */
size_t channelise_scratch_bytes(const struct channelise_config *config, size_t shared_bytes);

/* Returns 0 or negative errno: -ENOMEM where memory is short. */
int channelise_create(struct device *device, const struct channelise_config *config, struct channelise **channelise);
void channelise_destroy(struct channelise *channelise);

/* Filters 'n' spectra, the output buffer's spectra [first, first + n), out of input[pol] (device memory, packed
 * samples or complex float).  spectra[pol][0..n): every window must lie in the input.  Splits runs in which the offset
 * does not advance by exactly the spacing.  Reads 'spectra' before it returns. */
void channelise_append(struct channelise *channelise, struct device_stream *stream, const uint8_t *const input[N_POLS],
                       const struct channelise_buffer *buffer, size_t first, size_t n,
                       const struct channelise_spectrum *const spectra[N_POLS]);

/* Transforms and quantises the whole buffer.  Spectra that were not appended give unspecified heaps (never to be sent).
 * 'first_spectrum' is the absolute index of spectrum 0, even; 'gain' is device memory, complex float [chan][pol]. */
void channelise_finish(struct channelise *channelise, struct device_stream *stream,
                       const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum);

#endif
