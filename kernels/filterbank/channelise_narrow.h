/* channelise_narrow - computes channels of complex samples in two CUDA kernels.  The first kernel, the front, writes
 * its results to device memory once.  The second kernel, the back, reads these results once.
 *
 * For each polarisation, z_j are the windowed sums (pfb_fir_complex.h), j = 0 .. M-1, M = n_bins.  With j = j1 M2 + j2
 * and k = k1 + M1 k2 (Cooley and Tukey, 1965):
 *   front   FIR, then for each j2 the transform over j1, times e^{-2 pi i j2 k1 / M} -> between [pol][spectrum][k1][j2]
 *   back    for each k1 the transform over j2; then steps 2 and 3 of postproc.h for the n_chan bins in the middle
 *
 * front: a block has M1 x NARROW_COLUMNS points of each spectrum of a section, in one polarisation.  A thread has one
 *        of these points, its weights and n_taps - 1 unfinished sums.  After NARROW_TOGETHER spectra the block
 *        transforms the points in shared memory.
 * back:  a block has one row k1 of NARROW_BACK_SPECTRA spectra, in both polarisations.
 *
 * Constants: N_CHAN, N_BINS, N_TAPS, SPECTRA_PER_HEAP, OUT_BITS, DITHER, and the fields of struct
 *            channelise_narrow_shape.
 * Requires:  spectra_per_heap a multiple of 16; first_spectrum even; |phase| <= pi, |fine| <= 1.
 * Exactness: float32; equal to the stages, except for the rounding of transforms and sines.
 * Bound by:  memory, per sample: 8 + 8 B in the front, 8 B and the bytes of the heaps in the back. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_NARROW_H
#define KERNELS_FILTERBANK_CHANNELISE_NARROW_H

#include "common/device/device.h"

struct channelise_narrow_front_args {
    const float *in[2];   /* complex, aligned to 8 B */
    const float *weights; /* [n_taps][M] */
    const float *outer;   /* complex [k1][j2]: e^{-2 pi i j2 k1 / M} */
    float *out;           /* complex [pol][n_buffer][k1][j2]; begins with the first spectrum to write */
    int64_t offset[2];    /* [pol]: index in in[pol] of the first sample of the first spectrum's window */
    uint32_t n_spectra;
    uint32_t n_buffer;        /* number of spectra of a polarisation in 'out' */
    uint32_t section_spectra; /* number of spectra of a block; a multiple of NARROW_TOGETHER */
};

struct channelise_narrow_back_args {
    const float *in;       /* complex [pol][n_spectra][k1][j2] */
    const float *twiddles; /* complex [a][rest]: e^{-2 pi i a rest / M2} */
    const float *rotation; /* [pol][n_spectra]: (fine delay, phase) */
    const float *gain;     /* complex [chan][pol] */
    uint8_t *out;          /* heaps as in postproc.h */
    uint32_t *saturated;   /* [batch][pol]; the kernel adds to these counts */
    uint64_t first_spectrum, seed;
    uint32_t stream_id;
    uint32_t n_spectra; /* a multiple of NARROW_BACK_SPECTRA */
};

extern const struct kernel channelise_narrow_front_kernel;
extern const struct kernel channelise_narrow_back_kernel;

#define NARROW_BACK_SPECTRA 4 /* number of spectra that a block of channelise_narrow_back stores together */

/* Tile sizes; powers of two.  M1 = radix_a * radix_b of the front, M2 = radix_a * radix_b of the back. */
struct channelise_narrow_shape {
    uint32_t front_radix_a, front_radix_b; /* 2..16; 1..16 */
    uint32_t columns;                      /* number of columns of a block of the front */
    uint32_t together;                     /* number of spectra that the front transforms at a time */
    uint32_t back_radix_a, back_radix_b;   /* 4..32 */
};

#ifndef __CUDACC__

#include "kernels/filterbank/channelise.h"

struct channelise_narrow;

/* Returns true if the kernels exist for the sizes in 'config' on a device with 'shared_bytes' of shared memory for a
 * block.  Writes the default shape.  The number of multiprocessors affects only the shape. */
bool channelise_narrow_fits(const struct channelise_config *config, size_t shared_bytes, size_t n_multiprocessors,
                            struct channelise_narrow_shape *shape);

/* Returns true if the front supports this shape.  'columns' and 'together' may be any powers of two that fit.  The
 * radices must be the radices of a default shape. */
bool channelise_narrow_valid(const struct channelise_config *config, const struct channelise_narrow_shape *shape,
                             size_t shared_bytes);

size_t channelise_narrow_scratch_bytes(const struct channelise_config *config);

/* Creates the object.  Returns 0 or negative errno.  Ownership and threads are as in channelise.h. */
int channelise_narrow_create(struct device *device, const struct channelise_config *config,
                             struct channelise_narrow **narrow);
void channelise_narrow_destroy(struct channelise_narrow *narrow);

/* Filters spectra [first, first + n) of the buffer.  Their windows begin at offset[pol] and advance by n_bins. */
void channelise_narrow_front(struct channelise_narrow *narrow, struct device_stream *stream,
                             const uint8_t *const input[N_POLS], const int64_t offset[N_POLS], size_t first, size_t n);
/* Transforms and quantises the whole buffer. */
void channelise_narrow_back(struct channelise_narrow *narrow, struct device_stream *stream,
                            const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum);

#endif
#endif
