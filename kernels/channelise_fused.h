/* channelise_fused - the whole wideband F-engine in two CUDA kernels, with one pass through device memory in between.
 *
 * Both polarisations go through one complex transform: z_j = f0_j + i f1_j, f_p the windowed sums of polarisation p
 * (pfb_fir.h), j = 0 .. M-1, M = 2 n_chan.  With j = j1 M2 + j2 and k = k1 + M1 k2 (Cooley and Tukey, 1965):
 *   front   FIR, then for each j2 the transform over j1, times e^{-2 pi i j2 k1 / M} / 2 -> between [spectrum][k1][j2]
 *   back    for each k1 the transform over j2 gives Z_k; the spectra of the polarisations are
 *           (Z_k + conj Z_{M-k}) / 2 and (Z_k - conj Z_{M-k}) / 2i, k < n_chan; then steps 2 and 3 of
 *           postproc.h.  Rows k1 and M1 - k1 need each other, so a block has both.
 *
 * front: a block has FRONT_ROWS x FRONT_COLUMNS points of all spectra of a section.  A thread has FRONT_PER_THREAD
 *        adjacent columns of both polarisations, unpacks each sample once, and holds the n_taps - 1 sums that are begun
 *        (the transposed form of the filter).  After FRONT_SPECTRA spectra the block transforms what it has in shared
 *        memory.
 * back:  a block has BACK_PAIRS pairs of rows of BACK_SPECTRA spectra.
 *
 * Constants: N_CHAN, N_TAPS, SAMPLE_BITS, SPECTRA_PER_HEAP, OUT_BITS, DITHER, and the FRONT_ and BACK_ ones.
 * Exactness: float32; equal to the stages but for the rounding of transforms.
 * Bound by:  memory: sample_bits / 4 + 8 B in the front, 8 + out_bits / 4 B in the back, per sample of both
 *            polarisations; and by the issue of instructions: docs/performance.md counts them. */
#ifndef KERNELS_CHANNELISE_FUSED_H
#define KERNELS_CHANNELISE_FUSED_H

#include "common/device.h"

struct channelise_front_args {
    const uint8_t *in[2];   /* packed samples; readable to the end of the 8 bytes that have the last */
    const float *weights;   /* [n_taps][M] */
    const float *inner;     /* complex [jb][ka]: e^{-2 pi i jb ka / M1}, jb < M1 / A, ka < A; A: FRONT_RADIX */
    const float *outer;     /* complex [k1][j2]: e^{-2 pi i j2 k1 / M} / 2 */
    float *out;             /* complex [spectrum][k1][j2], of the first spectrum */
    int64_t offset[2];      /* sample of in[pol] at which the first spectrum's window begins */
    uint32_t n_spectra;
    uint32_t section_spectra; /* of a block; a multiple of FRONT_SPECTRA */
};

struct channelise_back_args {
    const float *in;       /* complex [spectrum][k1][j2] */
    const float *twiddles; /* complex: of each pass but the last, [k][rest]; see channelise_back.cu */
    const float *rotation; /* [pol][n_spectra]: (fine delay in samples, phase in radians, at most pi) */
    const float *gain;     /* complex [chan][pol] */
    uint8_t *out;          /* heaps as in postproc.h */
    uint32_t *saturated;   /* [batch][pol]; added to */
    uint64_t first_spectrum; /* even */
    uint32_t keys[7][2];     /* of the dither's generator: the seed's halves, and what its rounds add to them */
    uint32_t stream_id;
    uint32_t n_spectra; /* a multiple of BACK_SPECTRA */
};

extern const struct kernel channelise_front_kernel;
extern const struct kernel channelise_back_kernel;

#endif
