/* beamform.cu - see beamform.h.  beamform_tile.h computes the sums for few beams.  beamform_held.h or beamform_whole.h
 * computes the sums for many beams.  A lane writes its 8 spectra of a beam with one store of 16 bytes.
 *
 * Constants: SAMPLE_BYTES, FLIP (the byte of zeros), N_WARPS, BLOCK_GROUPS, BLOCK_STEPS, N_TILES (blocks of a channel
 * and batch), N_ANTS, WIDE (sums of both slices need 64 bits), WHOLE (beamform_whole.h computes the sums). */
/* groups in shared memory: the groups of a tile; with HOLDS, this turn's group and the next turn's group */
#define FRAGMENT_GROUPS 2
#include "kernels/beamform/beamform_tile.h"

#if WHOLE
#include "kernels/beamform/beamform_whole.h"
#define BLOCKS_PER_SM 1
#elif HOLDS
#include "kernels/beamform/beamform_held.h"
#define BLOCKS_PER_SM (N_STEPS > 4 ? 3 : 4)
#else
/* 128 registers per thread would be too few */
#define BLOCKS_PER_SM (__CUDA_ARCH__ >= 1200 || (WIDE && __CUDA_ARCH__ < 860) ? 3 : 4)
#endif

/* a real or imaginary part within this limit is not clipped, whatever the dither */
#define QUICK_LIMIT (BEAMFORM_LIMIT - 0.5f)

/* Returns 128.5 + dither for a real or imaginary part.  The result is a float between 128 and 129.  The last 16 bits of
 * the float are one half of 'word'. */
static __device__ __forceinline__ float dither_of(uint32_t word, int part)
{
    return __uint_as_float(__byte_perm(word, 0x4300u, part ? 0x5432 : 0x5410));
}

/* Scales, dithers, clips and rounds 8 spectra.  Each result is the low byte of a real or imaginary part in 'parts'.
 * Returns the number of clipped samples. */
static __device__ __forceinline__ uint32_t round_dithered(const struct slot &slot, float (&parts)[LANE_SPECTRA][2],
                                                          const uint32_t (&dither)[4])
{
    const bool within = all_within(parts, QUICK_LIMIT * slot.inverse);
    uint32_t n_clipped = 0;

#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++) {
        const uint32_t word = beamform_dither_word(dither, i) | 0x00010001u;
#pragma unroll
        for (int part = 0; part < 2; part++)
            parts[i][part] = fmaf(parts[i][part], slot.scale, dither_of(word, part));
    }
    if (!within)
        n_clipped = clip(parts, BEAMFORM_LEAST, BEAMFORM_MOST, BEAMFORM_ZERO, 0xffu);
#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
#pragma unroll
        for (int part = 0; part < 2; part++)
            parts[i][part] = __fadd_rd(parts[i][part], 12582912.0f - 128.0f);
    return n_clipped;
}

/* Scales, clips and rounds 8 spectra without a dither.  Adding 1.5 * 2^23 rounds half to even.  Returns the number of
 * clipped samples. */
static __device__ __forceinline__ uint32_t round_even(const struct slot &slot, float (&parts)[LANE_SPECTRA][2])
{
    const float limit = BEAMFORM_LIMIT * slot.inverse;
    uint32_t n_clipped = 0;

    if (!all_within(parts, limit))
        n_clipped = clip(parts, -limit, limit, 0.0f, 0xffu);
#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
#pragma unroll
        for (int part = 0; part < 2; part++)
            parts[i][part] = fmaf(parts[i][part], slot.scale, 12582912.0f);
    return n_clipped;
}

/* Packs the low bytes of four numbers into a word. */
static __device__ __forceinline__ uint32_t pack(const float (&a)[2], const float (&b)[2])
{
    return __byte_perm(__byte_perm(__float_as_uint(a[0]), __float_as_uint(a[1]), 0x0040),
                       __byte_perm(__float_as_uint(b[0]), __float_as_uint(b[1]), 0x0040), 0x5410);
}

/* The lane's 8 spectra of a piece. */
struct lane {
    uint64_t eight; /* argument 'eight' of beamform_dither() */
    uint32_t first;
    bool is_inside; /* the spectra are inside the batch */
};

static __device__ __forceinline__ struct lane find_lane(const struct beamform_args &args, const struct place &place,
                                                        uint32_t piece)
{
    struct lane lane;

    lane.first = (WHOLE ? place.first + piece * WARP_SPECTRA : begin_of(piece)) + threadIdx.x % 4 * LANE_SPECTRA;
    lane.is_inside = lane.first < args.n_spectra;
    const uint64_t eight = (args.first_spectrum + (uint64_t)place.batch * args.n_spectra + lane.first) / LANE_SPECTRA;
    /* computed once for all groups */
    lane.eight = (uint64_t)opaque((uint32_t)(eight >> 32)) << 32 | opaque((uint32_t)eight);
    return lane;
}

/* Quantises and stores the lane's spectra of a slot's beam.  'dither' comes from beamform_dither(), and is not read if the
 * beam has no dither.  Returns the number of clipped samples. */
static __device__ __forceinline__ uint32_t finish(const struct beamform_args &args, const struct slot &slot,
                                                  const struct lane &lane, float (&parts)[LANE_SPECTRA][2],
                                                  const uint32_t (&dither)[4])
{
    uint4 *to = (uint4 *)(args.out + slot.offset + 2 * lane.first);
    uint32_t n_clipped;

    if (slot.parameters.dither)
        n_clipped = round_dithered(slot, parts, dither);
    else
        n_clipped = round_even(slot, parts);
    *to = make_uint4(pack(parts[0], parts[1]), pack(parts[2], parts[3]), pack(parts[4], parts[5]),
                     pack(parts[6], parts[7]));
    return n_clipped;
}

/* Adds up the numbers of clipped samples in the four lanes of a beam, and adds the sum to 'saturated'. */
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

#if WHOLE
/* Forms the beams of a unit.  All warps of a warpgroup must take part in wgmma.  So if the warp has no group, it
 * multiplies but stores nothing. */
static __device__ __forceinline__ void form_unit(const struct beamform_args &args, const struct place &place,
                                                 const struct unit &unit, const struct rows &rows)
{
    const struct slot slot = make_slot(args, place, unit);
    const bool has_beam = unit.is_there && slot.beam != BEAMFORM_NO_BEAM;
    struct lane lane = find_lane(args, place, unit.begin);
    uint32_t n_clipped = 0;

#pragma unroll 1
    for (uint32_t piece = unit.begin; piece < unit.end; piece++) {
        uint32_t dither[4];
        float parts[LANE_SPECTRA][2];
#if N_STEPS > 5 /* too few registers are left for the sums of both slices */
        int sums[4][4];
        begin_slice(rows, columns_of(unit, piece), 0, sums);
        beamform_dither(slot.parameters.seed, args.chan_offset + place.chan, lane.eight, dither);
        begin_low(rows, columns_of(unit, piece), sums);
        wait_products(sums);
        convert_sums(slot, sums, parts);
#else
        int sums[2][4][4];
        begin_products(rows, columns_of(unit, piece), sums);
        beamform_dither(slot.parameters.seed, args.chan_offset + place.chan, lane.eight, dither); /* during the products */
        end_products(sums);
        make_parts(slot, sums, parts);
#endif
        if (has_beam && lane.first < args.n_spectra)
            n_clipped += finish(args, slot, lane, parts, dither);
        lane.first += WARP_SPECTRA;
        lane.eight += WARP_SPECTRA / LANE_SPECTRA;
    }
    count_clipped(args, place, slot.beam, n_clipped);
}

static __device__ __forceinline__ void form(const struct beamform_args &args)
{
    process_items(
        args, [](const struct place &, uint32_t) {},
        [&](const struct place &place, uint32_t, const struct unit &unit, const struct rows &rows) {
            form_unit(args, place, unit, rows);
        });
}
#else
/* Finishes the lane's spectra of a group, if the lane's slot has a beam.  Returns the number of samples that the lane
 * has clipped. */
static __device__ __forceinline__ uint32_t finish_group(const struct beamform_args &args, const struct place &place,
                                                        const struct slot &slot, const struct lane &lane,
                                                        const int (&sums)[2][4][4])
{
    float parts[LANE_SPECTRA][2];
    uint32_t dither[4];

    if (slot.beam == BEAMFORM_NO_BEAM || !lane.is_inside)
        return 0;
    make_parts(slot, sums, parts);
    if (slot.parameters.dither)
        beamform_dither(slot.parameters.seed, args.chan_offset + place.chan, lane.eight, dither);
    return finish(args, slot, lane, parts, dither);
}

/* A group has GROUP_BEAMS slots.  Four lanes of a warp share a slot.  Returns the slot of this lane in a group of the
 * block. */
static __device__ __forceinline__ const struct slot &slot_of(uint32_t group)
{
    return shared_of_block()->slots[group * GROUP_BEAMS + threadIdx.x % 32 / 4];
}

#if HOLDS
/* Sums all antennas for a group of the block.  The group's fragments are in buffer 'at' of shared memory. */
static __device__ __forceinline__ void sum_held(const struct held &held, uint32_t group, uint32_t at,
                                                int (&sums)[2][4][4])
{
    if (shared_of_block()->slots[group * GROUP_BEAMS].parameters.pol)
        sum_pol<1>(held, at, sums);
    else
        sum_pol<0>(held, at, sums);
}

/* Forms the beams of the block's groups, one group per turn. */
static __device__ __forceinline__ void form(const struct beamform_args &args)
{
    const struct place place = find_place(args);
    const uint32_t n_groups = min(args.n_slots / GROUP_BEAMS - place.group, (uint32_t)BLOCK_GROUPS);
    uint32_t turn = 0;

    load_slots(args, place);
    copy_groups<1>(args, place, 0, turn);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const struct lane lane = find_lane(args, place, piece);
        struct held held;
        hold(args, place, piece, held);
#pragma unroll 1
        for (uint32_t group = 0; group < n_groups; group++, turn++) {
            int sums[2][4][4];
            copies_wait_all();
            __syncthreads(); /* The copies have arrived, and all warps have finished the previous turn. */
            copy_groups<1>(args, place, group + 1 < n_groups ? group + 1 : 0, (turn + 1) % 2);
            begin_sums(sums);
            sum_held(held, group, turn % 2, sums);
            const uint32_t n_clipped = finish_group(args, place, slot_of(group), lane, sums);
            count_clipped(args, place, slot_of(group).beam, n_clipped);
        }
    }
    copies_wait_all();
}
#else
static __device__ __forceinline__ void form(const struct beamform_args &args)
{
    const struct place place = find_place(args);
    struct voltages v;
    struct cursor cursor;

    begin_block(args, place, cursor, v);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const struct lane lane = find_lane(args, place, piece);
        int sums[BLOCK_GROUPS][2][4][4];
#pragma unroll
        for (int g = 0; g < BLOCK_GROUPS; g++)
            begin_sums(sums[g]);
        sum_antennas(args, place, piece, cursor, v, sums);
#pragma unroll
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const uint32_t n_clipped = finish_group(args, place, slot_of(g), lane, sums[g]);
            count_clipped(args, place, slot_of(g).beam, n_clipped);
        }
    }
}
#endif
#endif

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_PER_SM) beamform(const struct beamform_args args)
{
    form(args);
}
