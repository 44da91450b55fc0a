/* pfb_fir_complex - converts complex samples to windowed sums, the first half of a polyphase filter bank of a narrow
 * band.
 *   in       complex float [...]
 *   weights  float [n_taps][n_bins]
 *   out      complex float [spectrum][n_bins]     one polarisation
 *
 * out[s][p] = sum over i < n_taps of weights[i][p] * in[offset + (s + i) n_bins + p]
 *
 * Requires: n_bins a power of two >= 2; n_taps 1..32; offset >= 0.  CUDA: n_bins >= 64; all buffers aligned to 8 bytes.
 * Exactness: float32 accumulation in order of taps; the C version rounds products of weights and samples, CUDA does not
 *            (FMA).
 * Bound by: memory; 8 B in + 8 B out per sample. */
#ifndef KERNELS_FILTERBANK_PFB_FIR_COMPLEX_H
#define KERNELS_FILTERBANK_PFB_FIR_COMPLEX_H

#include "common/device/device.h"

struct pfb_fir_complex_args {
    const float *in;      /* complex samples */
    const float *weights; /* [n_taps][n_bins] */
    float *out;           /* complex [spectrum][n_bins]; begins with the first spectrum to write */
    int64_t offset;       /* index in 'in' of the first sample of the first spectrum's window */
    uint32_t n_spectra;
    uint32_t n_bins;
    uint32_t n_taps;
};

extern const struct kernel pfb_fir_complex_kernel;

/* pfb_fir_complex_constants() writes the CUDA variant's constants for the sizes in 'args'.  pfb_fir_complex_grid()
 * returns the grid of a launch of at least one spectrum.  A block has a section of 'section_spectra' spectra.  If
 * 'section_spectra' is 0, there are enough sections to keep a large GPU busy. */
#define PFB_FIR_COMPLEX_N_CONSTANTS 3
void pfb_fir_complex_constants(const struct pfb_fir_complex_args *args, struct kernel_constant *constants);
struct kernel_grid pfb_fir_complex_grid(const struct pfb_fir_complex_args *args, uint32_t section_spectra);

#endif
