/* channelise_fused - the whole wideband F-engine in two CUDA kernels.  Between the kernels the data are written to
 * device memory once and read once.
 *
 * One complex transform transforms both polarisations: z_j = f0_j + i f1_j, with f_p the windowed sums of polarisation
 * p (pfb_fir.h), j = 0 .. M-1, M = 2 n_chan.  With j = j1 M2 + j2 and k = k1 + M1 k2 (Cooley and Tukey, 1965):
 *   front   FIR, then for each j2 the transform over j1, times e^{-2 pi i j2 k1 / M} / 2 -> between [spectrum][k1][j2]
 *   back    for each k1 the transform over j2 gives Z_k; the spectra of the polarisations are
 *           (Z_k + conj Z_{M-k}) / 2 and (Z_k - conj Z_{M-k}) / 2i, k < n_chan; then steps 2 and 3 of postproc.h.  Rows
 *           k1 and M1 - k1 depend on each other, so a block has both rows.
 *
 * front: a block has FRONT_ROWS x FRONT_COLUMNS points of all spectra of a section.  A thread has FRONT_PER_THREAD
 *        adjacent columns of both polarisations.  A thread unpacks each sample once, and holds n_taps - 1 unfinished
 *        sums (the transposed form of the filter).  The block transforms FRONT_SPECTRA spectra at a time in shared
 *        memory, while it filters the next spectra.
 * back:  a block transforms BACK_TILES tiles one after the other.  A tile is BACK_PAIRS pairs of rows of BACK_SPECTRA
 *        spectra.
 *
 * Constants: N_CHAN, N_TAPS, SAMPLE_BITS, SPECTRA_PER_HEAP, OUT_BITS, DITHER, POWER, and the fields of struct
 *            channelise_shape.
 * Requires:  spectra_per_heap a multiple of 16; first_spectrum even; |phase| <= pi.
 * Exactness: float32; equal to the stages, except for the rounding of transforms and sines.
 * Bound by:  memory: sample_bits / 4 + 8 B in the front, 8 + out_bits / 4 B in the back, per sample of both
 *            polarisations; also the issue of instructions: docs/decisions/f-two-kernels.md counts them. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_FUSED_H
#define KERNELS_FILTERBANK_CHANNELISE_FUSED_H

#include "common/device/device.h"
#include "common/device/tensor_map.h"

struct channelise_front_args {
    const uint8_t *in[2]; /* [pol]: packed samples, aligned to 16 B, with CHANNELISE_SPARE_BYTES */
    const float *weights; /* [n_taps][M] */
    const float *inner;   /* complex [jb][ka]: e^{-2 pi i jb ka / M1}, jb < M1 / front_radix, ka < front_radix */
    const float *outer;   /* complex [k1][j2]: e^{-2 pi i j2 k1 / M} / 2 */
    float *out;           /* complex [spectrum][k1][j2]; begins with the first spectrum to write */
    uint64_t *power;      /* [pol]; if POWER, the kernel adds the squares of the first tap's samples */
    int64_t offset[2];    /* [pol]: index in in[pol] of the first sample of the first spectrum's window */
    /* [pol]: the bytes of in[pol] as a tensor; only used if front_tensors is 1.  The tensor's axes are bytes, j1, and
     * rows of M samples.  If a box holds pairs of rows, the last two axes are swapped.  The first spectrum's window
     * begins at bit first_bit of the tensor's first 16 bytes. */
    struct device_tensor_map map[2];
    uint32_t first_bit[2];
    uint32_t n_spectra;
    uint32_t section_spectra; /* number of spectra of a block; a multiple of front_spectra */
};

struct channelise_gains_args {
    const float *in; /* complex [chan][pol] */
    float *out;      /* complex [k1][k2][pol], chan = k1 + M1 k2; the lanes of channelise_back read in this order */
};

struct channelise_back_args {
    const float *in;       /* complex [spectrum][k1][j2] */
    const float *twiddles; /* complex [a / 2][b][a % 2]: e^{-2 pi i a b / M2}, a < back_radix, b < M2 / back_radix */
    const float *rotation; /* [pol][n_spectra]: (fine delay in samples, phase in radians) */
    const float *gain;     /* complex [k1][k2][pol] */
    uint8_t *out;          /* heaps as in postproc.h */
    uint32_t *saturated;   /* [batch][pol]; the kernel adds to these counts */
    uint64_t first_spectrum;
    uint32_t keys[7][2]; /* [round][half of the seed]: keys of the random generator that makes the dither */
    uint32_t stream_id;
    uint32_t n_spectra; /* a multiple of back_tiles * back_spectra */
};

extern const struct kernel channelise_front_kernel;
extern const struct kernel channelise_back_kernel;
extern const struct kernel channelise_gains_kernel;

/* Tile sizes.  All sizes are powers of two, except front_stages, front_blocks, back_blocks, front_tensors, back_bulk
 * and front_section.  front_rows and the radices decide the order of the transform.  The other sizes affect only the
 * speed. */
struct channelise_shape {
    uint32_t front_rows;       /* M1 */
    uint32_t front_columns;    /* columns of a block */
    uint32_t front_spectra;    /* number of spectra whose rows a block fetches, filters and transforms together */
    uint32_t front_per_thread; /* number of columns of a thread: 1 or 2 */
    uint32_t front_radix;      /* radix of the first of two passes; M1 if there is one pass */
    uint32_t front_stages;     /* number of stages of a ring in shared memory; a stage has front_spectra rows */
    uint32_t front_blocks;     /* blocks per multiprocessor */
    uint32_t front_tensors;    /* 1: samples are fetched as boxes of a tensor; 0: each lane fetches some samples */
    /* number of spectra that a block filters one after the other; 0: the default for the launch */
    uint32_t front_section;
    uint32_t back_radix;   /* radix of the first of two passes; M2 if there is one pass */
    uint32_t back_spectra; /* number of spectra of a tile: 4, 8 or 16 */
    uint32_t back_pairs;   /* number of pairs of rows of a tile */
    /* number of tiles of a block, all with the same rows: 1 or 2; must be 1 if back_spectra is 16 */
    uint32_t back_tiles;
    uint32_t back_bulk; /* 1: points are fetched by bulk copies; 0: each lane loads some points */
    uint32_t back_threads, back_blocks;
};

#ifndef __CUDACC__

#include "kernels/filterbank/channelise.h"

struct channelise_fused;

/* Returns the default shape for the sizes in 'config'.  A block has 'shared_bytes' of shared memory on the device. */
struct channelise_shape channelise_fused_shape(const struct channelise_config *config, size_t shared_bytes);
/* Returns the default shape with front_rows = 'rows' (a power of two, 8 .. min(256, n_chan / 8)).  The shape may be
 * invalid. */
struct channelise_shape channelise_shape_of_rows(const struct channelise_config *config, uint32_t rows,
                                                 size_t shared_bytes);
/* Returns true if the kernels support this shape.  'shape' may have any values. */
bool channelise_shape_valid(const struct channelise_config *config, const struct channelise_shape *shape,
                            size_t shared_bytes);

#define CHANNELISE_FRONT_N_CONSTANTS 12
#define CHANNELISE_BACK_N_CONSTANTS  12
void channelise_front_constants(const struct channelise_config *config, const struct channelise_shape *shape,
                                struct kernel_constant constants[CHANNELISE_FRONT_N_CONSTANTS]);
void channelise_back_constants(const struct channelise_config *config, const struct channelise_shape *shape,
                               struct kernel_constant constants[CHANNELISE_BACK_N_CONSTANTS]);

size_t channelise_fused_scratch_bytes(const struct channelise_config *config);

/* Creates the object.  Returns 0 or negative errno.  Ownership and threads are as in channelise.h. */
int channelise_fused_create(struct device *device, const struct channelise_config *config,
                            struct channelise_fused **fused);
void channelise_fused_destroy(struct channelise_fused *fused);

/* Filters spectra [first, first + n) of the buffer.  Their windows begin at offset[pol] and advance by the spacing.
 * 'power' is as in struct channelise_buffer. */
void channelise_fused_front(struct channelise_fused *fused, struct device_stream *stream,
                            const uint8_t *const input[N_POLS], const int64_t offset[N_POLS], size_t first, size_t n,
                            uint64_t *power);
/* Transforms and quantises the whole buffer. */
void channelise_fused_back(struct channelise_fused *fused, struct device_stream *stream,
                           const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum);

#endif
#endif
