/* beamform_held.h - see beamform.cu, which includes it: sums for many beams, of up to 96 antennas.
 *
 * A warp holds the operands of its 32 spectra, all antennas and both polarisations, in registers: 16 for each step of
 * antennas.  So it loads voltages once for all groups of the block.  The groups take turns, and the warps of a block take the
 * same group.  The fragments of two groups lie in shared memory: those of a turn, and those of the next one, which are copied
 * meanwhile. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_HELD_H
#define KERNELS_BEAMFORM_BEAMFORM_HELD_H

#include "kernels/beamform/beamform_tile.h"

static_assert(N_STEPS == BLOCK_STEPS, "all steps of a group are in shared memory");
static_assert(TILE_GROUPS == 2, "one group of each polarisation, and of each turn");

/* The second operands of all steps: [step][pol][j]. */
struct held {
    uint32_t operands[N_STEPS][TILE_GROUPS][4][2];
};

/* Loads the warp's voltages of a piece. */
static __device__ __forceinline__ void hold(const struct beamform_args &args, const struct place &place, uint32_t piece,
                                            struct held &held)
{
    const uint32_t selectors[TILE_GROUPS] = {0x5410, 0x7632};
    struct voltages v[N_STEPS];
    struct cursor cursor;

    begin_piece(args, place, piece, cursor);
#pragma unroll
    for (int step = 0; step < N_STEPS; step++) /* before any is used */
        load_step(args, cursor, v[step]);
#pragma unroll
    for (int step = 0; step < N_STEPS; step++)
        select(v[step], selectors, held.operands[step]);
}

/* Starts to copy the fragments of a group of the block for a turn. */
static __device__ __forceinline__ void copy_group(const struct beamform_args &args, const struct place &place,
                                                  uint32_t group, uint32_t turn)
{
    const int8_t *from = args.fragments + place.chan * beam_fragments_chan_bytes(args.n_slots, N_ANTS) +
                         (place.group + group) * beam_fragments_group_bytes(N_ANTS) + threadIdx.x * 16;
    uint4 *to = &shared_of_block()->fragments[turn % 2][0][0][0] + threadIdx.x;

#pragma unroll
    for (uint32_t i = 0; i < N_STEPS * 64; i += N_THREADS)
        if (i + N_THREADS <= N_STEPS * 64 || threadIdx.x < N_STEPS * 64 % N_THREADS)
            copy_async(to + i, from + i * 16);
}

template <int POL>
static __device__ __forceinline__ void sum_pol(const struct held &held, uint32_t turn, int (&sums)[2][4][4])
{
#pragma unroll
    for (int step = 0; step < N_STEPS; step++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint4 f = shared_of_block()->fragments[turn % 2][step][part][threadIdx.x % 32];
            const uint32_t a[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply_add(sums[part][j], a, held.operands[step][POL][j][0], held.operands[step][POL][j][1]);
        }
}

/* Sums all antennas for a group of the block, whose fragments are those of 'turn'. */
static __device__ __forceinline__ void sum_held(const struct held &held, uint32_t group, uint32_t turn,
                                                int (&sums)[2][4][4])
{
    if (shared_of_block()->slots[group * GROUP_BEAMS].parameters.pol)
        sum_pol<1>(held, turn, sums);
    else
        sum_pol<0>(held, turn, sums);
}

#endif
