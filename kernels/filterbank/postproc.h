/* postproc - converts spectra to quantised heaps: finishes the transform, applies delay and gain, dithers, quantises,
 * and transposes (corner turn).
 *   fft        float2 [pol][spectrum][r < unzip][n_chan / unzip]   FFTs of the unzipped complex pairs (pfb_fir.h)
 *              or, with n_bins, float2 [pol][spectrum][n_bins]: whole transforms of complex samples
 *   rotation   float2 [pol][spectrum]     (fine delay in samples, phase in radians)
 *   gain       float2 [chan][pol]         complex
 *   out        heaps [batch][chan][spectrum % spectra_per_heap][pol]: (int8 re, int8 im), or with out_bits 4 one byte
 *              (re << 4) | (im & 15)
 *   saturated  uint32 [batch][pol]        the kernel adds the numbers of clipped complex values
 *
 * 1. The unzipped transforms are combined (one Cooley-Tukey step) to Z, n_chan points.  Then with
 *    U = (Z_k + conj Z_-k) / 2, V = (Z_k - conj Z_-k) / 2j:  X_k = U_k + e^{-pi j k / n_chan} V_k, k = 0 .. n_chan - 1:
 *    the real transform of 2 n_chan points, e^{-2 pi j ...}, unnormalised, without the Nyquist frequency.
 *    With n_bins, a narrow band: X_k = bin (k - n_chan / 2) modulo n_bins, so that channel n_chan / 2 is frequency 0.
 *    The other bins are not used.
 * 2. Y_k = X_k * e^{j theta} * gain_k, theta = phase - pi * fine * (k - n_chan / 2) / n_chan.
 * 3. Per component: v += dither (if on); clamped = clamp(v, -Q, Q), Q = 127 or 7; the value is saturated if
 *    clamped != v in either component; q = round half to even.  A complex value is counted only once.  NaN quantises to
 *    0 and counts as saturated.
 *    Dither: words 0..3 of philox4x32(counter = {k, pair lo, pair hi, stream_id}, key = seed lo, hi) are for (pol 0 re,
 *    pol 0 im, pol 1 re, pol 1 im) of two spectra: pair = (first_spectrum + s) >> 1, 64 bits.  The lower half of a word
 *    (philox_dither) belongs to the even spectrum, the upper half to the odd spectrum.
 *
 * Requires: n_chan a power of two >= 8; unzip 1, 2 or 4; n_bins 0, or a power of two >= n_chan and unzip 1;
 *           spectra_per_heap a multiple of 16, n_spectra a multiple of spectra_per_heap; first_spectrum even.  CUDA:
 *           n_chan >= 64; fft, gain and out aligned to 16 bytes.
 * Exactness: float32.  With CUDA the errors of sines and cosines are at most 2^-20, and multiply-adds are fused.  In
 *            the C version the errors of sines and cosines are at most 1 ulp.
 * Bound by: memory; 8 B in + out_bits / 4 B out per (pol, chan, spectrum). */
#ifndef KERNELS_FILTERBANK_POSTPROC_H
#define KERNELS_FILTERBANK_POSTPROC_H

#include "common/device/device.h"

struct postproc_args {
    const float *fft;        /* complex [pol][spectrum][r][n_chan / unzip], or [pol][spectrum][n_bins] */
    const float *rotation;   /* [pol][spectrum][delay, phase] */
    const float *gain;       /* complex [chan][pol] */
    uint8_t *out;            /* [batch][chan][spectrum][pol] */
    uint32_t *saturated;     /* [batch][pol] */
    uint64_t first_spectrum; /* absolute index of spectrum 0: output timestamp / spacing; even */
    uint64_t seed;
    uint32_t stream_id; /* number that identifies the antenna and the output, so that the dithers of streams differ */
    uint32_t n_spectra;
    uint32_t spectra_per_heap;
    uint32_t n_chan;
    uint32_t n_bins; /* 0: real samples, unzipped */
    uint32_t unzip;
    uint32_t out_bits; /* 8 or 4 */
    uint32_t dither;   /* 0 or 1 */
};

extern const struct kernel postproc_kernel;

/* postproc_constants() writes the CUDA variant's constants for the sizes in 'args'.  postproc_grid() returns the grid
 * of a launch. */
#define POSTPROC_N_CONSTANTS 9
void postproc_constants(const struct postproc_args *args, struct kernel_constant *constants);
struct kernel_grid postproc_grid(const struct postproc_args *args);

#endif
