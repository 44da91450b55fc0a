/* gnss_quantise - converts complex float samples of a narrow band to int8 samples for gnss_correlate.
 *   in      complex float [pol][sample]   the output of ddc
 *   out     int8 [pol][sample][re, im]    rows 'pitch_samples' apart
 *   levels  [pol]                         the kernel adds to these sums
 *
 * Each component is v = in * scale[pol], rounded to float32; the imaginary component is also multiplied by im_sign.  v
 * is clipped to +-GNSS_QUANTISE_LIMIT and rounded half to even.  NaN becomes 0.  A sample counts once as clipped if a
 * component is NaN or beyond the limit before rounding.  'squares' is the sum of re^2 + im^2 of the written samples.
 *
 * Level:      gnss_quantise_scale() keeps the rms of a component between GNSS_MIN_RMS and GNSS_MAX_RMS steps.  The
 *             function doubles or halves the scale, so sums before and after a change differ by an exact power of two.
 * Loss:       loss of signal-to-noise ratio, for a weak signal in Gaussian noise.  Rounding adds a noise power of 1/12
 *             of a squared step:
 *                 rms   2        8        16       32       48       64 steps
 *                 dB    0.090    0.0057   0.0014   0.0004   0.0063   0.047
 *             Between GNSS_MIN_RMS and GNSS_MAX_RMS the loss is below 0.006 dB.  The rms includes interference.  If the
 *             interference is 12 dB above the noise, the noise still has an rms of 2 steps.
 * Exactness:  the only inexact step is one rounding to float32, so CUDA and the C version agree in every bit.
 * Requires:   finite scales.  CUDA: 'in' aligned to 8 bytes, 'out' aligned to 2 bytes.
 * Users:      fgpu/gnss/gnss.c.
 * Bound by:   memory; 8 B in + 2 B out per sample. */
#ifndef KERNELS_GNSS_GNSS_QUANTISE_H
#define KERNELS_GNSS_GNSS_QUANTISE_H

#include "common/device/device.h"

#define GNSS_QUANTISE_LIMIT 127

struct gnss_level {
    uint64_t squares;
    uint64_t n_clipped; /* number of clipped samples */
};

struct gnss_quantise_args {
    const float *in[2];        /* [pol]: complex [sample] */
    int8_t *out;               /* [pol][sample][re, im] */
    uint64_t pitch_samples;    /* distance between the rows of the polarisations, in samples */
    struct gnss_level *levels; /* [pol] */
    uint64_t n_samples;        /* number of samples of each polarisation */
    float scale[2];            /* [pol] */
    float im_sign;             /* 1, or -1 to conjugate the samples if the frequencies of the band are reversed */
};

extern const struct kernel gnss_quantise_kernel;

/* gnss_quantise_constants() writes the constants of the CUDA variant.  gnss_quantise_grid() returns the grid of a
 * launch of at least one sample. */
#define GNSS_QUANTISE_N_CONSTANTS 1
void gnss_quantise_constants(struct kernel_constant *constants);
struct kernel_grid gnss_quantise_grid(const struct gnss_quantise_args *args);

#define GNSS_MIN_RMS   8 /* rms of a real or imaginary part, in quantisation steps */
#define GNSS_MAX_RMS   32
#define GNSS_MIN_SCALE 0x1p-12f
#define GNSS_MAX_SCALE 0x1p12f

/* Returns the scale for the next samples.  'squares' is the sum of squares of 'n_samples' samples quantised with
 * 'scale'.  Each call changes the scale by a factor of two or not at all.  The scale stays between GNSS_MIN_SCALE and
 * GNSS_MAX_SCALE.  A pure function. */
float gnss_quantise_scale(float scale, uint64_t squares, uint64_t n_samples);

#endif
