/* pfb_fir - converts packed ADC samples to windowed sums, the first half of a polyphase filter bank.
 *   in       uint8 [...]                      packed two's complement, 'sample_bits' each, most significant bit first
 *   weights  float [n_taps][2 * n_chan]
 *   out      float [spectrum][2 * n_chan]     one polarisation; order within a spectrum: see below
 *   power    uint64                           optional; the kernel adds the sum of x[j]^2 over n_spectra * 2 n_chan
 *                                             samples, beginning at 'offset'.  These are the samples of the first tap.
 *                                             If runs are contiguous, each sample counts once
 *
 * out[s][p] = sum over i < n_taps of weights[i][p] * x[offset + (s + i) * 2 n_chan + p]
 *
 * x[j] is sample j of 'in'.  A spectrum's complex pairs are z_i = (out[2i], out[2i+1]), i < n_chan.  The pairs are
 * stored unzipped by 'unzip' = n: z_{q n + r} lies at complex index r * (n_chan / n) + q.  So each r is the contiguous
 * input of an FFT of n_chan / n points.
 *
 * Requires: n_chan a power of two >= 2 * unzip; unzip 1, 2 or 4; sample_bits 2..10, 12 or 16; n_taps 1..32.
 *           CUDA: n_chan >= 64; 'in' aligned to 4 bytes, and readable to the end of the last sample's 4-byte word.
 * Exactness: float32 accumulation in order of taps; the C version rounds products of weights and samples, CUDA does not
 *            (FMA).  'power' is exact.
 * Bound by: memory; sample_bits / 8 B in + 4 B out per sample. */
#ifndef KERNELS_FILTERBANK_PFB_FIR_H
#define KERNELS_FILTERBANK_PFB_FIR_H

#include "common/device/device.h"

struct pfb_fir_args {
    const uint8_t *in;    /* packed samples */
    const float *weights; /* [n_taps][2 n_chan] */
    float *out;           /* complex [spectrum][r][n_chan / unzip]; begins with the first spectrum to write */
    uint64_t *power;      /* [1]; NULL: not computed */
    int64_t offset;       /* index in 'in' of the first sample of the first spectrum's window; >= 0 */
    uint32_t n_spectra;
    uint32_t n_chan;
    uint32_t n_taps;
    uint32_t sample_bits;
    uint32_t unzip;
};

extern const struct kernel pfb_fir_kernel;

/* pfb_fir_constants() writes the CUDA variant's constants for the sizes in 'args'.  pfb_fir_grid() returns the grid
 * of a launch of at least one spectrum.  A block has a section of 'section_spectra' spectra.  If 'section_spectra' is
 * 0, there are enough sections to keep a large GPU busy. */
#define PFB_FIR_N_CONSTANTS 5
void pfb_fir_constants(const struct pfb_fir_args *args, struct kernel_constant *constants);
struct kernel_grid pfb_fir_grid(const struct pfb_fir_args *args, uint32_t section_spectra);

/* pfb_fir_threads() returns the number of threads per block, and pfb_fir_sections() the grid of a launch, for the
 * real and for the complex filter.  Each thread has one of 'n_columns' columns.  A column of the real filter is a
 * pair of samples. */
uint32_t pfb_fir_threads(uint32_t n_columns);
struct kernel_grid pfb_fir_sections(uint32_t n_columns, uint32_t n_spectra, uint32_t section_spectra);

#endif
