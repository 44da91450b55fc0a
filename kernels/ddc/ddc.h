/* ddc - the digital down-converter: converts packed ADC samples of both polarisations to complex samples of a narrow
 * band.
 *   in       uint8 [pol][...]            packed two's complement, 'sample_bits' each, most significant bit first
 *   weights  as ddc_weights() makes them from the filter and the mixer
 *   out      complex float [pol][n_out]
 *
 * out[pol][m] = e^{2 pi i (phase + m phase_step)} * sum over k < n_taps of x[offset + A m + k] w_k,
 *     w_k = h_k e^{2 pi i f k}
 *
 * x[j] is sample j of in[pol], A the subsampling, h the filter (design_ddc.h), and f = -centre / rate (mixer.h).  Set
 * phase = mixer_turns(timestamp of sample 'offset') and phase_step = mixer_turns(A).  Then 'out' is the input mixed
 * with e^{2 pi i f t} at the input's timestamps t, filtered and subsampled.  out[m] has the timestamp of its window's
 * first sample.  An output depends only on the samples in its window.  So the outputs of several launches form one
 * sequence if all launches use the same grid of A samples.
 *
 * Requires: n_taps, A >= 1; sample_bits 2..10, 12 or 16; offset >= 0; n_out < 2^30.
 *           CUDA: 'in' aligned to 16 bytes, and DDC_SPARE_BYTES readable after the last used sample; 'out' aligned to
 *           16 bytes; n_taps <= 64 A.
 * Exactness: the C version multiplies and adds in float32; all other steps are in double.  CUDA: samples are exact,
 *           weights have a relative error of at most 2^-22, and the tensor cores truncate sums to float32.  The outputs
 *           of both variants are within DDC_TOLERANCE * (sum of |w_k|) * (largest sample) of the formula.
 * Bound by: memory; 2 * sample_bits / 8 B in + 16 / A B out per dual-polarisation sample of input. */
#ifndef KERNELS_DDC_DDC_H
#define KERNELS_DDC_DDC_H

#include "common/device/device.h"

struct ddc_args {
    const uint8_t *in[2]; /* [pol]: packed samples */
    float *out[2];        /* [pol]: complex [n_out] */
    const void *weights;  /* plain C: complex float [n_taps].  CUDA: half [chunk][shift][step][high, low][lane][8] */
    int64_t offset;       /* sample index in 'in' of the first sample of out[0]'s window */
    uint64_t phase;       /* phase of out[0] in 2^-64 turns */
    uint64_t phase_step;  /* phase difference between consecutive outputs, in 2^-64 turns */
    uint32_t n_out;       /* number of outputs of each polarisation */
    uint32_t n_taps;
    uint32_t subsampling;
    uint32_t sample_bits;
    float scale; /* value that ddc_weights() returned */
};

extern const struct kernel ddc_kernel;

#define DDC_TOLERANCE   1e-6
#define DDC_SPARE_BYTES 16

/* Returns the number of input samples that 'n_out' outputs use.  0 outputs use 0 samples. */
static inline uint64_t ddc_window_samples(uint32_t subsampling, uint32_t n_taps, uint32_t n_out)
{
    return n_out ? (uint64_t)(n_out - 1) * subsampling + n_taps : 0;
}

/* Shape of the CUDA variant: the sizes of the parts into which it divides its work. */
struct ddc_shape {
    uint32_t n_warps; /* warps of a block; 1..16 */
    uint32_t n_tiles; /* number of tiles of a warp; a tile is 16 rows of DDC_ROW_OUTPUTS outputs */
    uint32_t columns; /* number of samples of a row that shared memory holds at a time; a multiple of 16 */
};

#define DDC_ROW_OUTPUTS 8

/* Number of 16-byte units of a segment.  A segment contains n_bits consecutive bits at any alignment, and also the word
 * after these bits.  The number is odd, so eight adjacent segments begin in different banks. */
#define DDC_SEGMENT_QUADS(n_bits) ((127 + (n_bits) + 62 + 127) / 128 | 1)

/* Returns the default shape for the sizes in 'args'.  This function and the functions below use only n_taps,
 * subsampling and sample_bits of 'args'. */
struct ddc_shape ddc_default_shape(const struct ddc_args *args);

/* Returns the size in bytes of the weights, in the order and precision of the device's variant.  'compiles' is the
 * result of device_compiles(). */
size_t ddc_weights_bytes(const struct ddc_args *args, const struct ddc_shape *shape, bool compiles);

/* Writes the weights of the filter h[n_taps] to host memory.  Returns the value for ddc_args.scale. */
struct mixer;
float ddc_weights(const struct ddc_args *args, const struct ddc_shape *shape, bool compiles, const float *filter,
                  const struct mixer *mixer, void *weights);

/* ddc_constants() writes the constants of the CUDA variant.  ddc_grid() returns the grid of a launch of at least one
 * output. */
#define DDC_N_CONSTANTS 7
void ddc_constants(const struct ddc_args *args, const struct ddc_shape *shape, struct kernel_constant *constants);
struct kernel_grid ddc_grid(const struct ddc_args *args, const struct ddc_shape *shape);

#endif
