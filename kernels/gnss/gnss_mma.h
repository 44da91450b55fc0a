/* gnss_mma.h - sizes that gnss_correlate_mma and its host code share, and the head of a block's shared memory.
 *
 * This file uses no constants that a kernel is compiled with.  CUDA kernels include this file too. */
#ifndef KERNELS_GNSS_GNSS_MMA_H
#define KERNELS_GNSS_GNSS_MMA_H

#include "kernels/gnss/gnss_correlate.h"

#define MMA_PIECES        16 /* maximum number of pieces of a block */
#define MMA_ANTS          32 /* maximum number of antennas of a block */
#define MMA_PAIRS         15 /* number of pairs of words in a lane's run (gnss_correlate_mma.cu); must be odd */
#define MMA_CHUNK_SAMPLES (4 * 4 * MMA_PAIRS)
#define MMA_MAX_CHUNKS    (65000 / MMA_CHUNK_SAMPLES) /* maximum number of chunks of a slice; the sums then fit int32 */
#define MMA_SLACK         10 /* additional samples of a window, for the alignment of both ends */
/* number of bytes of a row besides its ring */
#define MMA_RUN_BYTES (4 * (2 * MMA_PAIRS + 1))

/* number of warps that make the replica of a piece; a lane makes 8 samples */
#define MMA_REPLICA_WARPS ((MMA_CHUNK_SAMPLES + 255) / 256)

/* A piece with samples in the block's slice of time.  Phases are those at the slice's start. */
struct mma_slot {
    uint64_t code, carrier;
    uint64_t code_step, carrier_step; /* a multiple of 16 bytes from the slot's start, as are the next members */
    uint32_t table, n_subchips;
    uint32_t begin, end;           /* the piece's samples, counted from the slice's start */
    uint64_t code_jump;            /* advance of the code phase in a chunk */
    uint64_t rests[GNSS_MAX_TAPS]; /* [tap]: difference between the end of the table and the tap's code phase */
    uint32_t integration, unused[3];
    int32_t offsets[MMA_ANTS]; /* [ant] */
    uint32_t starts[MMA_ANTS]; /* [ant]: position of the slice's start in the antenna's window */
};

/* A row of the windows.  Only the words 'first' to 'last' are within the samples. */
struct mma_row {
    const int8_t *from; /* word 0 of the window */
    int32_t first, last;
};

struct mma_head {
    struct mma_row rows[2][MMA_ANTS];      /* [pol][ant] */
    int32_t carrier[GNSS_CARRIER_ENTRIES]; /* an entry is re + 2^16 im */
    struct mma_slot slots[MMA_PIECES];
};

#endif
