/* beamform_tile.h - the exact sums over the antennas.  beamform.cu, beam_detect.cu, beamform_held.h and
 * beamform_whole.h include this file.
 *
 * The sums are matrix products of bytes on tensor cores (mma.m16n8k32):
 *     rows         coefficients of 8 beams of one polarisation, real parts before imaginary parts
 *     inner axis 16 antennas, two parts (re, im) each
 *     columns      8 spectra
 * A coefficient is 256 high + low.  So there are two products, one for the high bytes and one for the low bytes.
 * Their sums fit 32 bits.
 *     row of a real part:      re, -im of each antenna           row of an imaginary part: im, re
 *     column of a spectrum:    re, im of each antenna's voltage
 *
 * A warp processes 32 spectra of one channel and batch at a time, for TILE_GROUPS groups of 8 beams.  In a step of 16
 * antennas, lane l loads 4 antennas.  For each antenna, the lane loads 4 spectra, beginning with spectrum 4 (l / 4):
 * 16 bytes, or 8 bytes if voltages have 4 bits.  The spectra make 4 products: column n of product j is spectrum 4 n +
 * j.  So one byte permutation of two antennas' words makes an operand of one polarisation.  A lane's results are both
 * parts of 8 consecutive spectra of one beam.
 *
 * A block processes all spectra of a channel and batch, one piece of 32 N_WARPS spectra at a time.  The fragments of
 * BLOCK_STEPS steps of 16 antennas are in shared memory.  If all steps fit, fragments are loaded only once.  The
 * voltages of a step are loaded during the products of the previous step.  The first voltages of a piece are loaded
 * during the products of the previous piece's last step.  Voltages of 4 bits are multiplied as 16 times their value
 * (beamform_load.h).  To compensate, the scale factors of slots are divided by 16.
 *
 * A file that includes this file defines FRAGMENT_GROUPS, the number of groups whose fragments fit in shared memory. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_TILE_H
#define KERNELS_BEAMFORM_BEAMFORM_TILE_H

#include "kernels/beamform/beamform.h"
#include "kernels/beamform/beamform_load.h"
#include "kernels/util/ptx.h"

#define STEP_ANTS     BEAM_STEP_ANTS
#define LANE_ANTS     4 /* number of antennas that a lane loads in a step */
#define TILE_GROUPS   BEAMFORM_TILE_GROUPS
#define GROUP_BEAMS   BEAM_GROUP_BEAMS
#define BLOCK_SLOTS   (BLOCK_GROUPS * GROUP_BEAMS)
#define WARP_SPECTRA  32
#define LANE_SPECTRA  8 /* number of spectra of one beam in a lane's results */
#define PIECE_SPECTRA (N_WARPS * WARP_SPECTRA)
#define N_THREADS     (32 * N_WARPS)
#define N_STEPS       ((N_ANTS + STEP_ANTS - 1) / STEP_ANTS)
#define HOLDS         (!WHOLE && BLOCK_GROUPS > TILE_GROUPS) /* beamform_held.h keeps voltages in registers */

#define PART_SPECTRA     256u /* spectra of an item (beamform_whole.h) */
#define WHOLE_PIECES     (PART_SPECTRA / WARP_SPECTRA)
#define WHOLE_STEP_BYTES 1024 /* bytes of the voltages of a step, for one piece and polarisation */

#if WIDE
typedef int64_t total;
#else
typedef int total;
#endif

/* Voltages that a lane loads in a step.  For each of its antennas, the lane loads four spectra with both polarisations.
 * A word has one spectrum: re, im, re, im.  If voltages have 4 bits, a word has two spectra. */
struct voltages {
    uint32_t words[LANE_ANTS][4];
};

/* A slot has one beam of the block, and the beam's factors in the block's channel and batch. */
struct slot {
    uint32_t beam; /* index of the beam, or BEAMFORM_NO_BEAM */
    float scale;   /* factor that multiplies the sums; a power of two */
    struct beam parameters;
    uint64_t offset; /* offset of the beam's channel in 'out', in bytes */
    float renormalise;
    float inverse; /* 1 / scale */
};

#if WHOLE
/* A slot has one beam of the block. */
struct listed {
    struct beam parameters;
    uint32_t beam; /* index of the beam, or BEAMFORM_NO_BEAM */
    uint32_t unused;
};

/* An item of a block: some spectra of a batch of a channel. */
struct __align__(16) item
{
    uint32_t chan, batch;
    uint32_t first; /* index in the batch of the item's first spectrum */
    uint32_t n_pieces;
};

struct shared {
    uint8_t columns[2][2][WHOLE_PIECES][N_STEPS * WHOLE_STEP_BYTES]; /* indices [buffer][pol][piece] */
    uint4 stages[BEAMFORM_STAGES(N_STEPS)][4][8][32]; /* indices [stage][warp of the producer][antenna][lane] */
    struct listed slots[BLOCK_SLOTS];
    struct item items[2];       /* items of the buffers */
    uint64_t full[2], empty[2]; /* barriers of the buffers */
};
static_assert(sizeof(struct listed) == BEAMFORM_LISTED_BYTES, "beamform_grid() must request this size");
#else
struct shared {
    uint4 fragments[FRAGMENT_GROUPS][BLOCK_STEPS][2][32]; /* indices [group][step][high, low][lane] */
    struct slot slots[BLOCK_SLOTS];
};
static_assert(sizeof(struct slot) == BEAMFORM_SLOT_BYTES, "beamform_grid() must request this size");
#endif

static __device__ __forceinline__ struct shared *shared_of_block(void)
{
    extern __shared__ float4 shared_memory[];

    return (struct shared *)shared_memory;
}

/* The part of the work that a block does at a time.  Without beamform_whole.h: blocks that use the same voltages have
 * consecutive indices.  Blocks of one channel use the same fragments, and so also have consecutive indices. */
struct place {
    uint32_t group; /* first group of the block */
    uint32_t chan, batch;
    uint32_t first; /* index in the batch of the block's first spectrum */
    uint32_t n_pieces;
};

#if !WHOLE
static __device__ __forceinline__ struct place find_place(const struct beamform_args &args)
{
    const uint32_t run = blockIdx.x / N_TILES, chan = run / args.n_batches;
    struct place place;

    place.group = blockIdx.x % N_TILES * BLOCK_GROUPS;
    place.chan = chan;
    place.batch = args.first_batch + run - chan * args.n_batches;
    place.first = 0;
    place.n_pieces = (args.n_spectra + PIECE_SPECTRA - 1) / PIECE_SPECTRA;
    return place;
}

#endif

/* Returns the warp's first spectrum of a piece. */
static __device__ __forceinline__ uint32_t begin_of(uint32_t piece)
{
    return piece * PIECE_SPECTRA + threadIdx.x / 32 * WARP_SPECTRA;
}

/* Returns the exponent of the coefficients of a beam. */
static __device__ __forceinline__ int32_t load_exponent(const struct beamform_args &args, const struct place &place,
                                                        uint32_t beam)
{
    return args.exponents[(uint64_t)place.chan * args.n_beams + beam];
}

/* Fills in the slot's factors and its place in 'out'.  The slot has a beam. */
static __device__ __forceinline__ void fill_slot(const struct beamform_args &args, const struct place &place,
                                                 int32_t exponent, struct slot &slot)
{
    const uint32_t heap = place.batch * args.n_beams + slot.beam;

    slot.scale = beamform_scale(exponent) / (1 << VOLTAGE_SHIFT);
    slot.inverse = __uint_as_float(0x7f000000u - __float_as_uint(slot.scale)); /* the scale is a power of two */
    slot.renormalise = args.renormalise ? args.renormalise[heap] : 1.0f;
    slot.offset = heap * ((uint64_t)args.n_chan * args.n_spectra * 2) + (uint64_t)place.chan * (args.n_spectra * 2);
}

#if !WHOLE
/* Fills the slots in shared memory.  The block must pass a barrier before threads read the slots. */
static __device__ __forceinline__ void load_slots(const struct beamform_args &args, const struct place &place)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < BLOCK_SLOTS; i += N_THREADS) {
        const uint32_t at = place.group * GROUP_BEAMS + i;
        struct slot slot = {};
        slot.beam = at < args.n_slots ? args.slots[at] : BEAMFORM_NO_BEAM;
        if (slot.beam != BEAMFORM_NO_BEAM) {
            slot.parameters = args.beams[slot.beam];
            fill_slot(args, place, load_exponent(args, place, slot.beam), slot);
        }
        shared_of_block()->slots[i] = slot;
    }
}
#endif

#if !WHOLE
/* Position of the voltages that the lane loads next. */
struct cursor {
    const uint8_t *in;    /* address of the step's first antenna */
    uint32_t lane_offset; /* offset of the lane's first antenna and spectrum, in bytes */
    uint32_t piece, step;
};

static __device__ __forceinline__ uint64_t ant_bytes_of(const struct beamform_args &args)
{
    return (uint64_t)args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;
}

/* Moves the cursor to the first step of a piece. */
static __device__ __forceinline__ void begin_piece(const struct beamform_args &args, const struct place &place,
                                                   uint32_t piece, struct cursor &cursor)
{
    const uint32_t first = min(begin_of(piece) + threadIdx.x % 32 / 4 * 4, args.n_spectra - 4);
    const uint64_t run = (uint64_t)place.batch * N_ANTS * args.n_chan + place.chan;

    cursor.in = (const uint8_t *)args.voltages + run * args.n_spectra * 2 * SAMPLE_BYTES;
    cursor.lane_offset = first * 2 * SAMPLE_BYTES;
    if (N_ANTS % STEP_ANTS == 0)
        cursor.lane_offset += threadIdx.x % 4 * 2 * (uint32_t)ant_bytes_of(args);
    cursor.piece = piece;
    cursor.step = 0;
}

/* Loads the voltages of a step, and moves the cursor to the next step.  With i = 2 (l % 4), lane l loads antennas i, i
 * + 1, i + 8 and i + 9 of the step.  If an antenna is beyond the last antenna, the lane loads the last antenna
 * instead. */
static __device__ __forceinline__ void load_step(const struct beamform_args &args, struct cursor &cursor,
                                                 struct voltages &v)
{
#pragma unroll
    for (int i = 0; i < LANE_ANTS; i++) {
        uint32_t ant = i / 2 * 8 + i % 2;
        if (N_ANTS % STEP_ANTS)
            ant = min(ant + threadIdx.x % 4 * 2, N_ANTS - 1 - cursor.step * STEP_ANTS);
        const uint8_t *at = cursor.in + ant * ant_bytes_of(args) + cursor.lane_offset;
        if (SAMPLE_BYTES == 2) {
            const uint4 four = *(const uint4 *)at;
            v.words[i][0] = four.x;
            v.words[i][1] = four.y;
            v.words[i][2] = four.z;
            v.words[i][3] = four.w;
        } else {
            const uint2 four = *(const uint2 *)at;
            v.words[i][0] = four.x;
            v.words[i][1] = four.y;
        }
    }
    cursor.in += STEP_ANTS * ant_bytes_of(args);
    cursor.step++;
}

/* Loads the voltages of the next step, if there is a next step. */
static __device__ __forceinline__ void load_next(const struct beamform_args &args, const struct place &place,
                                                 struct cursor &cursor, struct voltages &v)
{
    if (cursor.piece == place.n_pieces)
        return;
    load_step(args, cursor, v);
    if (cursor.step == N_STEPS)
        begin_piece(args, place, cursor.piece + 1, cursor);
}

/* Starts to copy the fragments of steps [first, first + n) into shared memory. */
static __device__ __forceinline__ void copy_fragments(const struct beamform_args &args, const struct place &place,
                                                      uint32_t first, uint32_t n)
{
    const int8_t *of_chan = args.fragments + place.chan * beam_fragments_chan_bytes(args.n_slots, N_ANTS);
    const uint32_t last_group = args.n_slots / GROUP_BEAMS - 1;

#pragma unroll
    for (int g = 0; g < TILE_GROUPS; g++) {
        const int8_t *from = of_chan + min(place.group + g, last_group) * beam_fragments_group_bytes(N_ANTS);
        uint4 *to = &shared_of_block()->fragments[g][0][0][0];
        for (uint32_t i = threadIdx.x; i < n * 64; i += N_THREADS)
            copy_async(to + i, from + first * BEAM_STEP_BYTES + i * 16);
    }
}

/* Begins the block: starts to copy the first fragments, and loads the first voltages and the slots. */
static __device__ __forceinline__ void begin_block(const struct beamform_args &args, const struct place &place,
                                                   struct cursor &cursor, struct voltages &v)
{
    copy_fragments(args, place, 0, min((uint32_t)N_STEPS, (uint32_t)BLOCK_STEPS));
    begin_piece(args, place, 0, cursor);
    load_next(args, place, cursor, v);
    load_slots(args, place);
}

/* Selects the second operands [group][j] of a step: the voltages of the group's polarisation. */
static __device__ __forceinline__ void select(const struct voltages &v, const uint32_t (&selectors)[TILE_GROUPS],
                                              uint32_t (&operands)[TILE_GROUPS][4][2])
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t words[LANE_ANTS];
#pragma unroll
        for (int i = 0; i < LANE_ANTS; i++)
            words[i] = SAMPLE_BYTES == 2 ? v.words[i][j] : widen(v.words[i][j / 2] >> (16 * (j % 2)));
#pragma unroll
        for (int g = 0; g < TILE_GROUPS; g++) {
            operands[g][j][0] = __byte_perm(words[0], words[1], selectors[g]);
            operands[g][j][1] = __byte_perm(words[2], words[3], selectors[g]);
        }
    }
}

/* Adds a step of antennas to the sums [group][high, low][j]. */
static __device__ __forceinline__ void multiply(const struct voltages &v, const uint32_t (&selectors)[TILE_GROUPS],
                                                uint32_t step, int (&sums)[TILE_GROUPS][2][4][4])
{
    uint32_t operands[TILE_GROUPS][4][2];

    select(v, selectors, operands);
#pragma unroll
    for (int g = 0; g < TILE_GROUPS; g++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint4 f = shared_of_block()->fragments[g][step][part][threadIdx.x % 32];
            const uint32_t a[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply_add(sums[g][part][j], a, operands[g][j][0], operands[g][j][1]);
        }
}

#endif

/* Initial bits of the sums.  With up to 127 antennas, a slice's sum is below 2^22.  The sum is then the last bits of a
 * float between 2^23 and 2^24, so the kernel needs no conversion to float. */
#define FLOAT_SUMS (!WHOLE && N_ANTS * 2 * 128 * 128 < 1 << 22)
#define SUMS_BEGIN (FLOAT_SUMS ? 0x4b400000 : 0) /* 12582912.0f */

static __device__ __forceinline__ void begin_sums(int (&sums)[2][4][4])
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        sums[i / 16][i / 4 % 4][i % 4] = SUMS_BEGIN;
}

/* Returns 256 high + low, rounded once.  With FLOAT_SUMS, fmaf() returns 256 high - 12582912 without rounding. */
static __device__ __forceinline__ float total_of(int high, int low)
{
#if FLOAT_SUMS
    return BEAM_PLUS(fmaf(__uint_as_float((uint32_t)high), 256.0f, -257.0f * 12582912.0f),
                     __uint_as_float((uint32_t)low));
#else
    return (float)(((total)high << 8) + low);
#endif
}

/* Multiplies the lane's 8 spectra by the slot's factor. */
static __device__ __forceinline__ void renormalise(const struct slot &slot, float (&parts)[LANE_SPECTRA][2])
{
    if (slot.renormalise != 1.0f)
#pragma unroll
        for (int i = 0; i < 2 * LANE_SPECTRA; i++)
            parts[i / 2][i % 2] = BEAM_TIMES(parts[i / 2][i % 2], slot.renormalise);
}

/* Computes the lane's 8 spectra of a group before scaling: [spectrum][re, im]. */
static __device__ __forceinline__ void make_parts(const struct slot &slot, const int (&sums)[2][4][4],
                                                  float (&parts)[LANE_SPECTRA][2])
{
#pragma unroll
    for (int i = 0; i < 2 * LANE_SPECTRA; i++) {
        const int at = i % 2 * 2 + i / 8;
        parts[i / 2][i % 2] = total_of(sums[0][i / 2 % 4][at], sums[1][i / 2 % 4][at]);
    }
    renormalise(slot, parts);
}

/* Returns true if the magnitude of each part is within the limit.  A NaN is not within the limit. */
static __device__ __forceinline__ bool all_within(const float (&parts)[LANE_SPECTRA][2], float limit)
{
    /* four chains of comparisons, which do not depend on each other */
    bool within[4] = {true, true, true, true};

#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
#pragma unroll
        for (int part = 0; part < 2; part++)
            within[i % 4] &= fabsf(parts[i][part]) <= limit;
    return (within[0] && within[1]) && (within[2] && within[3]);
}

/* Clips the parts to [least, most].  A NaN becomes 'zero'.  Returns the number of clipped samples among the spectra
 * whose bits are set in 'counted'. */
static __device__ __forceinline__ uint32_t clip(float (&parts)[LANE_SPECTRA][2], float least, float most, float zero,
                                                uint32_t counted)
{
    uint32_t n_clipped = 0;

#pragma unroll
    for (int s = 0; s < LANE_SPECTRA; s++) {
        bool clipped = false;
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const float v = parts[s][part];
            clipped = clipped || !(v >= least && v <= most);
            parts[s][part] = v == v ? fminf(fmaxf(v, least), most) : zero;
        }
        n_clipped += clipped && (counted >> s & 1);
    }
    return n_clipped;
}

#if !WHOLE
/* Sums all antennas for the warp's 32 spectra of a piece, and for each group of the block.  Before the call, 'v' has
 * the voltages of the piece's first step.  After the call, 'v' has the voltages of the next piece's first step. */
static __device__ __forceinline__ void sum_antennas(const struct beamform_args &args, const struct place &place,
                                                    uint32_t piece, struct cursor &cursor, struct voltages &v,
                                                    int (&sums)[TILE_GROUPS][2][4][4])
{
    uint32_t selectors[TILE_GROUPS];
    struct voltages next;

    for (uint32_t first = 0; first < N_STEPS; first += BLOCK_STEPS) {
        const uint32_t n = min(N_STEPS - first, (uint32_t)BLOCK_STEPS);
        const bool is_begun = piece == 0 && first == 0; /* begin_block() has started these copies */
        if (N_STEPS > BLOCK_STEPS && !is_begun) {
            __syncthreads();
            copy_fragments(args, place, first, n);
        }
        if (N_STEPS > BLOCK_STEPS || is_begun) {
            copies_wait_all();
            __syncthreads();
        }
#pragma unroll
        for (int g = 0; g < TILE_GROUPS; g++)
            selectors[g] = shared_of_block()->slots[g * GROUP_BEAMS].parameters.pol ? 0x7632 : 0x5410;
#pragma unroll 1
        /* the loop processes two steps at a time, so that no voltages are copied between registers */
        for (uint32_t step = 0; step + 1 < n; step += 2) {
            load_next(args, place, cursor, next);
            multiply(v, selectors, step, sums);
            load_next(args, place, cursor, v);
            multiply(next, selectors, step + 1, sums);
        }
        if (n % 2) {
            load_next(args, place, cursor, next);
            multiply(v, selectors, n - 1, sums);
            v = next;
        }
    }
}
#endif

#endif
