/* gnss_quantise - complex float samples of a narrow band to the int8 samples that gnss_correlate takes.
 *   in      complex float [pol][sample]   as ddc makes them
 *   out     int8 [pol][sample][re, im]    rows 'pitch_samples' apart
 *   levels  [pol]                         added to
 *
 * Each component is v = in * scale[pol], the imaginary one times im_sign, rounded to float32, then clipped to +-GNSS_QUANTISE_LIMIT, then rounded half
 * to even.  NaN becomes 0.  A sample is clipped if a component is NaN or beyond the limit before rounding; it counts
 * once.  'squares' adds up re^2 + im^2 of the written samples.
 *
 * Level:      gnss_quantise_scale() keeps the rms of a component between GNSS_MIN_RMS and GNSS_MAX_RMS steps.  It
 *             doubles or halves the scale, so sums before and after a change differ by an exact power of two.
 * Loss:       of signal to noise, for a weak signal in Gaussian noise (a step adds 1/12 of its square to the noise):
 *                 rms   2        8        16       32       48       64 steps
 *                 dB    0.090    0.0057   0.0014   0.0004   0.0063   0.047
 *             Within the rms that is kept the loss is below 0.006 dB.  The rms has the interference, too: where that
 *             has 12 dB more than the noise, the noise keeps an rms of 2 steps.
 * Exactness:  all is exact but the one rounding to float32, so CUDA and the twin agree in every bit.
 * Requires:   scales finite.  CUDA: 'in' aligned to 8 bytes, 'out' to 2.
 * Users:      fgpu/gnss.c.
 * Bound by:   memory; 8 B in + 2 B out per sample. */
#ifndef KERNELS_GNSS_GNSS_QUANTISE_H
#define KERNELS_GNSS_GNSS_QUANTISE_H

#include "common/device/device.h"

#define GNSS_QUANTISE_LIMIT 127

struct gnss_level {
    uint64_t squares;
    uint64_t n_clipped; /* samples */
};

struct gnss_quantise_args {
    const float *in[2];        /* [pol]: complex [sample] */
    int8_t *out;               /* [pol][sample][re, im] */
    uint64_t pitch_samples;    /* from one polarisation to the next */
    struct gnss_level *levels; /* [pol] */
    uint64_t n_samples;        /* of each polarisation */
    float scale[2];            /* [pol] */
    float im_sign;             /* 1, or -1 to write the conjugates: of a band whose frequencies run backwards */
};

extern const struct kernel gnss_quantise_kernel;

/* Constants that the CUDA variant is compiled with, and the grid of a launch of at least one sample. */
#define GNSS_QUANTISE_N_CONSTANTS 1
void gnss_quantise_constants(struct kernel_constant *constants);
struct kernel_grid gnss_quantise_grid(const struct gnss_quantise_args *args);

#define GNSS_MIN_RMS   8 /* of a component, in steps */
#define GNSS_MAX_RMS   32
#define GNSS_MIN_SCALE 0x1p-12f
#define GNSS_MAX_SCALE 0x1p12f

/* The scale for the samples to come: of 'n_samples' samples quantised with 'scale', 'squares' is the sum of squares.  A
 * scale follows the level by a factor of two a call, between GNSS_MIN_SCALE and GNSS_MAX_SCALE.  Pure. */
float gnss_quantise_scale(float scale, uint64_t squares, uint64_t n_samples);

#endif
