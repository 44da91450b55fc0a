/* channelise - converts ADC samples, or complex samples of a narrow band, to quantised spectra, for both polarisations
 * of one antenna and for one output.
 *
 * Flow:      channelise_append(input, spectra...)*  ->  channelise_finish(buffer), repeatedly, all on one stream
 *            pfb_fir per run of regular offsets  ->  FFT of the whole buffer  ->  postproc
 *            or, with fewer passes over memory, the two kernels of channelise_fused.h
 * Narrow:    with n_bins the input is the complex float output of ddc: pfb_fir_complex -> FFT of n_bins points ->
 *            postproc, which keeps the n_chan bins in the middle; or the two kernels of channelise_narrow.h.  Offsets
 *            and sizes then count complex samples.  A spectrum's 'fine' is in units of 1 / (width of the n_chan
 *            channels).
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

/* Two fused kernels (channelise_fused.h), or the equivalent stages, which 'Flow' above lists.  The cpu device always
 * uses the stages. */
enum channelise_method { CHANNELISE_FUSED, CHANNELISE_STAGES };

struct channelise_shape;
struct channelise_narrow_shape;

/* Largest number of spectra of an output buffer with CUDA variants.  A launch has at most 65535 blocks in one
 * dimension, and a block has at least 4 spectra. */
#define CHANNELISE_CUDA_SPECTRA (4 * 65535)

struct channelise_config {
    unsigned n_chan; /* a power of two, 64..65536 */
    unsigned n_bins; /* points of the FFT for complex input, a power of two >= n_chan; 0: real, packed input */
    unsigned n_taps; /* 1..32 */
    double w_cutoff;
    enum pfb_window window;
    unsigned sample_bits;      /* 2..10, 12 or 16; used only for packed input */
    unsigned spectra_per_heap; /* a multiple of 16 */
    /* number of batches of an output buffer; CUDA: the batches have at most CHANNELISE_CUDA_SPECTRA spectra in all */
    unsigned n_batches;
    unsigned out_bits; /* 8 or 4 */
    bool dither;
    bool power; /* true: a buffer's 'power' is computed; possible only for real input */
    uint64_t seed;
    uint32_t stream_id;
    /* The following fields are for CUDA variants. */
    unsigned append_spectra; /* usual number of spectra of a call of channelise_append(); 0: unknown */
    enum channelise_method method;
    /* for the fused kernels: tile sizes; NULL: the default for these sizes */
    const struct channelise_shape *shape;
    /* for the fused kernels of complex input: tile sizes; NULL: the default */
    const struct channelise_narrow_shape *narrow;
    unsigned unzip; /* for the stages: number of FFTs per spectrum, 1, 2 or 4; 0: the default for these sizes */
};

/* Number of bytes after the last sample of an input that must be readable. */
#define CHANNELISE_SPARE_BYTES 32

/* Input window, delay and phase of one output spectrum of one polarisation. */
struct channelise_spectrum {
    int64_t offset; /* index of the window's first sample in the device input */
    /* delay that remains after the shift by whole samples, in samples: [-1/2, 1/2]; in a narrow band [-1, 1] */
    float fine;
    float phase; /* phase at the band's centre, in radians */
};

/* Arrays of an output buffer.  n_spectra is n_batches * spectra_per_heap. */
struct channelise_buffer {
    uint8_t *voltages;      /* device: heaps [batch][chan][spectrum][pol] */
    uint32_t *saturated;    /* device: [batch][pol] */
    float *rotation;        /* pinned host: [pol][n_spectra][fine delay, phase]; append writes it, finish copies it */
    float *rotation_device; /* device: copy of 'rotation' */
    /* device: [pol]; for each spectrum, channelise_append() adds the exact sum of squares of the window's first 2
     * n_chan samples.  If consecutive windows advance by 2 n_chan samples, each sample counts once. */
    uint64_t *power;
};

struct channelise;

/* channelise_window_samples() returns the number of input samples of a spectrum's window: n_taps * spacing.
 * channelise_spacing_samples() returns the number of samples by which the windows of consecutive spectra advance: 2
 * n_chan, or n_bins. */
size_t channelise_window_samples(const struct channelise_config *config);
size_t channelise_spacing_samples(const struct channelise_config *config);
/* Returns the size in bytes of a buffer's voltages. */
size_t channelise_voltage_bytes(const struct channelise_config *config);
/* Returns the number of bytes of device memory that the object uses.  'shared_bytes' is the device's shared memory
 * for a block. */
size_t channelise_scratch_bytes(const struct channelise_config *config, size_t shared_bytes);

/* Creates the object.  Returns 0 or negative errno: -ENOMEM if memory is short. */
int channelise_create(struct device *device, const struct channelise_config *config, struct channelise **channelise);
void channelise_destroy(struct channelise *channelise);

/* Filters 'n' spectra from input[pol] (device memory, packed samples or complex float).  Writes to the output buffer's
 * spectra [first, first + n).  The window of every spectra[pol][0..n) must lie in the input.  If the offset does not
 * advance by exactly the spacing, a new launch begins with the next spectrum.  Reads 'spectra' before returning. */
void channelise_append(struct channelise *channelise, struct device_stream *stream, const uint8_t *const input[N_POLS],
                       const struct channelise_buffer *buffer, size_t first, size_t n,
                       const struct channelise_spectrum *const spectra[N_POLS]);

/* Transforms and quantises the whole buffer.  If a spectrum of a heap was not appended, the heap's content is
 * undefined, and the heap must not be sent.  'first_spectrum' is the absolute index of spectrum 0, an even number.
 * 'gain' is device memory, complex float [chan][pol]. */
void channelise_finish(struct channelise *channelise, struct device_stream *stream,
                       const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum);

#endif
