/* beamform.cu - see beamform.h; the sums are those of beamform_tile.h, or for many beams of beamform_held.h.  A lane stores
 * the 8 spectra that it has of a beam by one store of 16 bytes.
 *
 * Constants: SAMPLE_BYTES, FLIP (of samples with an offset), N_WARPS, BLOCK_GROUPS, BLOCK_STEPS, N_TILES (blocks of a
 * channel and batch), N_ANTS, WIDE (sums of both slices need 64 bits). */
#define FRAGMENT_GROUPS 2 /* of a tile; or of a turn and of the next one */
#include "kernels/beamform/beamform_tile.h"

#define NO_DITHER 0x80008000u /* prepared */

#if HOLDS
#include "kernels/beamform/beamform_held.h"
#define BLOCKS_PER_SM (N_STEPS > 4 ? 3 : 4)
#else
#define BLOCKS_PER_SM (__CUDA_ARCH__ >= 1200 ? 3 : 4) /* there, 128 registers do not hold all */
#endif

/* Random bits of both parts as 2^16 (1/2 + dither) each. */
static __device__ __forceinline__ uint32_t prepare(uint32_t bits)
{
    return (bits | 0x00010001u) ^ 0x80008000u;
}

/* philox_dither() of prepared bits: they are the last ones of a number from 128 on, whose steps are 2^-16. */
static __device__ __forceinline__ float dither_of(uint32_t prepared, int part)
{
    return BEAM_PLUS(__uint_as_float(__byte_perm(prepared, 0x4300u, part ? 0x5432 : 0x5410)), -128.5f);
}

/* The dither of 8 spectra, prepared. */
static __device__ __forceinline__ void make_dither(const struct beamform_args &args, const struct beam &beam,
                                                   uint32_t chan, uint64_t four, uint32_t (&prepared)[LANE_SPECTRA])
{
#pragma unroll
    for (int s = 0; s < LANE_SPECTRA; s++)
        prepared[s] = NO_DITHER;
    if (!beam.dither)
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t bits[4];
        beamform_dither(beam.seed, args.chan_offset + chan, four + half, bits);
#pragma unroll
        for (int j = 0; j < 4; j++)
            prepared[4 * half + j] = prepare(bits[j]);
    }
}

/* The low bytes of the integers next to two numbers.  A sum with 1.5 * 2^23 has no bits behind the point, and is rounded half to
 * even. */
static __device__ __forceinline__ uint32_t round_two(const float (&parts)[2])
{
    const uint32_t re = __float_as_uint(BEAM_PLUS(parts[0], 12582912.0f));
    const uint32_t im = __float_as_uint(BEAM_PLUS(parts[1], 12582912.0f));

    return __byte_perm(re, im, 0x0040);
}

/* Quantises and stores 8 spectra of a slot's beam, from 's' of the batch on.  Returns how many samples were clipped. */
static __device__ __forceinline__ uint32_t finish(const struct beamform_args &args, const struct place &place,
                                                  const struct slot &slot, uint32_t s, const int (&sums)[2][4][4])
{
    const uint64_t four = (args.first_spectrum + (uint64_t)place.batch * args.n_spectra + s) / 4;
    uint32_t prepared[LANE_SPECTRA], words[LANE_SPECTRA / 2], n_clipped = 0;
    float parts[LANE_SPECTRA][2];
    bool clipped = false;

    make_dither(args, slot.parameters, place.chan, four, prepared);
#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const int at = 2 * part + i / 4;
            const float sum = total_of(sums[0][i % 4][at], sums[1][i % 4][at]);
            parts[i][part] = BEAM_PLUS(BEAM_TIMES(sum, slot.factor), dither_of(prepared[i], part));
            clipped |= !(fabsf(parts[i][part]) <= BEAMFORM_LIMIT);
        }
    if (clipped)
        n_clipped = clip(parts, BEAMFORM_LIMIT, 0xffu);
#pragma unroll
    for (int i = 0; i < LANE_SPECTRA / 2; i++)
        words[i] = __byte_perm(round_two(parts[2 * i]), round_two(parts[2 * i + 1]), 0x5410);
    *(uint4 *)(args.out + 2 * (slot.row * args.n_spectra + s)) = make_uint4(words[0], words[1], words[2], words[3]);
    return n_clipped;
}

/* Adds what the four lanes of a beam have clipped. */
static __device__ __forceinline__ void count_clipped(const struct beamform_args &args, const struct place &place,
                                                     uint32_t beam, uint32_t n_clipped)
{
    if (!__any_sync(0xffffffffu, n_clipped > 0))
        return;
    n_clipped += __shfl_xor_sync(0xffffffffu, n_clipped, 1);
    n_clipped += __shfl_xor_sync(0xffffffffu, n_clipped, 2);
    if (threadIdx.x % 4 == 0 && n_clipped > 0)
        atomicAdd(args.saturated + (uint64_t)place.batch * args.n_beams + beam, n_clipped);
}

/* Finishes a group of the block: 's' is the lane's first spectrum of the batch. */
static __device__ __forceinline__ void finish_group(const struct beamform_args &args, const struct place &place,
                                                    uint32_t group, uint32_t s, const int (&sums)[2][4][4])
{
    const struct slot &slot = shared_of_block()->slots[group * GROUP_BEAMS + threadIdx.x % 32 / 4];
    uint32_t n_clipped = 0;

    if (slot.beam != BEAMFORM_NO_BEAM && s < args.n_spectra)
        n_clipped = finish(args, place, slot, s, sums);
    count_clipped(args, place, slot.beam, n_clipped);
}

#if HOLDS
/* Sums all antennas for a group of the block, whose fragments are in place 'at' of shared memory. */
static __device__ __forceinline__ void sum_held(const struct held &held, uint32_t group, uint32_t at,
                                                int (&sums)[2][4][4])
{
    if (shared_of_block()->slots[group * GROUP_BEAMS].parameters.pol)
        sum_pol<1>(held, at, sums);
    else
        sum_pol<0>(held, at, sums);
}

/* All groups of the block take turns. */
static __device__ __forceinline__ void form(const struct beamform_args &args, const struct place &place)
{
    const uint32_t n_groups = min(args.n_slots / GROUP_BEAMS - place.group, (uint32_t)BLOCK_GROUPS);
    uint32_t turn = 0;

    load_slots(args, place);
    copy_groups<1>(args, place, 0, turn);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const uint32_t s = begin_of(piece) + threadIdx.x % 4 * LANE_SPECTRA;
        struct held held;
        hold(args, place, piece, held);
#pragma unroll 1
        for (uint32_t group = 0; group < n_groups; group++, turn++) {
            int sums[2][4][4];
            copies_wait_all();
            __syncthreads(); /* The copies are there, and all warps have finished the turn before. */
            copy_groups<1>(args, place, group + 1 < n_groups ? group + 1 : 0, (turn + 1) % 2);
            begin_sums(sums);
            sum_held(held, group, turn % 2, sums);
            finish_group(args, place, group, s, sums);
        }
    }
    copies_wait_all();
}
#else
static __device__ __forceinline__ void form(const struct beamform_args &args, const struct place &place)
{
    struct voltages v;
    struct cursor cursor;

    begin_piece(args, place, 0, cursor);
    load_next(args, place, cursor, v);
    load_slots(args, place);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const uint32_t s = begin_of(piece) + threadIdx.x % 4 * LANE_SPECTRA;
        int sums[BLOCK_GROUPS][2][4][4];
#pragma unroll
        for (int g = 0; g < BLOCK_GROUPS; g++)
            begin_sums(sums[g]);
        sum_antennas(args, place, piece, cursor, v, sums);
#pragma unroll
        for (int g = 0; g < BLOCK_GROUPS; g++)
            finish_group(args, place, g, s, sums[g]);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_PER_SM) beamform(const struct beamform_args args)
{
    form(args, find_place(args));
}
