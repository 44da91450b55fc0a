/* gnss_mma.h - sizes that gnss_correlate_mma and its host code share, and the head of a block's shared memory.
 *
 * This file uses no constants that a kernel is compiled with.  CUDA kernels include this file too. */
#ifndef KERNELS_GNSS_GNSS_MMA_H
#define KERNELS_GNSS_GNSS_MMA_H

#include "kernels/gnss/gnss_correlate.h"

#define MMA_PIECES        16 /* maximum number of pieces of a block */
#define MMA_ANTS          32 /* maximum number of antennas of a block */
#define MMA_PAIRS         27 /* number of pairs of words in a lane's run (gnss_correlate_mma.cu); must be odd */
#define MMA_CHUNK_SAMPLES (4 * 4 * MMA_PAIRS)

/* number of warps that make the replica of a piece for a block's tiles of 16 inputs */
#define MMA_REPLICA_WARPS(row_tiles) (((row_tiles) + 1) / 2)

/* A piece with samples in the block's slice of time. */
struct mma_slot {
    struct gnss_piece piece;
    uint32_t from, end;
    struct gnss_satellite satellite;
    int64_t begins[MMA_ANTS]; /* [ant]: index of the piece's sample 'from' in the antenna's rows */
};

/* A window of an antenna that covers all slots, in samples after the start of the first slot's window. */
struct mma_extent {
    int32_t begin, last, end;
};

struct mma_head {
    int32_t carrier[GNSS_CARRIER_ENTRIES + 1]; /* an entry is re + 2^16 im; the last entry is 0 */
    uint32_t n_slots, unused[2];
    struct mma_extent extents[MMA_ANTS]; /* [ant] */
    struct mma_slot slots[MMA_PIECES];
};

#endif
