/* beamform_held.h - sums of up to 96 antennas for many beams.  beamform.cu and beam_detect.cu include this file.
 *
 * A warp keeps the operands of its 32 spectra in registers, for all antennas and both polarisations.  Each step of
 * antennas needs 16 registers per thread.  So a warp loads its voltages only once for all groups of the block.  A turn
 * handles one or two groups, and all warps of a block handle the same turn.  Shared memory has the fragments of this
 * turn and of the next turn.  The next turn's fragments are copied during this turn. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_HELD_H
#define KERNELS_BEAMFORM_BEAMFORM_HELD_H

#include "kernels/beamform/beamform_tile.h"

static_assert(N_STEPS == BLOCK_STEPS, "the fragments of all steps of a group must fit in shared memory");
static_assert(TILE_GROUPS == 2, "a tile must have one group of each polarisation");

/* Second operands of the matrix products of all steps: [step][pol][j]. */
struct held {
    uint32_t operands[N_STEPS][TILE_GROUPS][4][2];
};

/* Loads the warp's voltages of one piece. */
static __device__ __forceinline__ void hold(const struct beamform_args &args, const struct place &place, uint32_t piece,
                                            struct held &held)
{
    const uint32_t selectors[TILE_GROUPS] = {0x5410, 0x7632};
    struct voltages v[N_STEPS];
    struct cursor cursor;

    begin_piece(args, place, piece, cursor);
#pragma unroll
    for (int step = 0; step < N_STEPS; step++) /* all loads begin before the first value is used */
        load_step(args, cursor, v[step]);
#pragma unroll
    for (int step = 0; step < N_STEPS; step++)
        select(v[step], selectors, held.operands[step]);
}

/* Starts to copy the fragments of N groups of the block to shared memory.  'group' is the index of the first group.
 * 'to_group' is the index of the first buffer. */
template <int N>
static __device__ __forceinline__ void copy_groups(const struct beamform_args &args, const struct place &place,
                                                   uint32_t group, uint32_t to_group)
{
    const uint32_t n = N * N_STEPS * 64;
    const int8_t *from = args.fragments + place.chan * beam_fragments_chan_bytes(args.n_slots, N_ANTS) +
                         (place.group + group) * beam_fragments_group_bytes(N_ANTS) + threadIdx.x * 16;
    uint4 *to = &shared_of_block()->fragments[to_group][0][0][0] + threadIdx.x;

#pragma unroll
    for (uint32_t i = 0; i < n; i += N_THREADS)
        if (i + N_THREADS <= n || threadIdx.x < n % N_THREADS)
            copy_async(to + i, from + i * 16);
}

/* Sums all antennas for the group whose fragments are in buffer 'at' of shared memory. */
template <int POL>
static __device__ __forceinline__ void sum_pol(const struct held &held, uint32_t at, int (&sums)[2][4][4])
{
#pragma unroll
    for (int step = 0; step < N_STEPS; step++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint4 f = shared_of_block()->fragments[at][step][part][threadIdx.x % 32];
            const uint32_t a[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply_add(sums[part][j], a, held.operands[step][POL][j][0], held.operands[step][POL][j][1]);
        }
}

#endif
