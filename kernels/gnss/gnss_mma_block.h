/* gnss_mma_block.h - sizes of a block of gnss_correlate_mma, and the block's shared memory.
 *
 * This file uses the constants of gnss_correlate_mma.cu. */
#ifndef KERNELS_GNSS_GNSS_MMA_BLOCK_H
#define KERNELS_GNSS_GNSS_MMA_BLOCK_H

#include "kernels/gnss/gnss_mma.h"
#include "kernels/util/ptx.h"

#define COLUMN_TILES      ((2 * N_TAPS + 7) / 8)
#define COLUMN_BYTES      (MMA_CHUNK_SAMPLES * 2)
#define COLUMNS_BYTES     (2 * N_TAPS * COLUMN_BYTES) /* size of a piece's columns, in bytes */
#define CHUNK_WORDS       (MMA_CHUNK_SAMPLES / 2)
#define RUN_WORDS         (2 * MMA_PAIRS) /* words of a run, without the next word */
#define RING_WORDS        (RING_SAMPLES / 2)
#define ROW_WORDS         (RING_WORDS + RUN_WORDS + 1)
#define GROUP_ANTS        4 /* antennas whose words alternate */
#define GROUP_WORDS       (2 * GROUP_ANTS * ROW_WORDS) /* words of GROUP_ANTS antennas */
#define COPY_WORDS        (32 / GROUP_ANTS) /* words of an antenna that a warp copies at a time */
#define MAX_SPREAD        (RING_SAMPLES - 2 * MMA_CHUNK_SAMPLES - MMA_SLACK) /* difference of offsets */
#define N_ROWS            (16 * ROW_TILES)
#define N_ANTS            (N_ROWS / 2)
#define N_WARPS           (N_THREADS / 32)
#define PIECE_WARPS       (ROW_TILES / WARP_TILES) /* warps that multiply a piece */
#define PIECE_THREADS     (32 * (PIECE_WARPS + REPLICA_WARPS))
#define REPLICA_WARPS     MMA_REPLICA_WARPS
#define PRODUCT_WARPS     (SATELLITES * PIECE_WARPS)
#define MAKING_WARPS      (SATELLITES * REPLICA_WARPS)
#define N_GROUPS          (N_PIECES / SATELLITES)
#define WARP_ROWS         (2 * WARP_TILES) /* rows of a lane */
#define MAKERS            (MMA_CHUNK_SAMPLES / 8) /* lanes that make the replica of a piece */
#define EARLY_TAPS        (N_TAPS < 4 ? N_TAPS : 4) /* taps whose levels are loaded one step early */
#define EVERY_LANE        0xffffffffu
/* registers of a thread: in the warps that multiply, in the warps that make replicas, and elsewhere */
#define PRODUCT_REGISTERS 152
#define REPLICA_REGISTERS 104
#define USUAL_REGISTERS   128
#define MOVES_REGISTERS   (N_THREADS == 512 && PRODUCT_WARPS == 8)

extern __shared__ float4 shared_memory[];

/* Shared memory: windows [group of antennas][pol][word][GROUP_ANTS], columns [2][piece][COLUMNS_BYTES], and the head
 * (gnss_mma.h). */
static __device__ __forceinline__ uint8_t *windows(void)
{
    return (uint8_t *)shared_memory;
}

/* Returns the address of the first word of an antenna's window. */
static __device__ __forceinline__ uint32_t *window_of(uint32_t ant, uint32_t pol)
{
    return (uint32_t *)windows() + ant / GROUP_ANTS * GROUP_WORDS + pol * (GROUP_ANTS * ROW_WORDS) + ant % GROUP_ANTS;
}

static __device__ __forceinline__ uint8_t *columns_of(uint32_t buffer, uint32_t piece)
{
    return windows() + N_ROWS * ROW_WORDS * 4 + (buffer * SATELLITES + piece) * COLUMNS_BYTES;
}

static __device__ __forceinline__ struct mma_head *head(void)
{
    return (struct mma_head *)columns_of(2, 0);
}

#endif
