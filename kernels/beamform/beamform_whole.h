/* beamform_whole.h - sums over up to 96 antennas for many beams, with the warpgroup instructions of the tensor cores
 * (PTX's wgmma, compute capability 9.0).  beamform.cu and beam_detect.cu include this file.
 *
 * Shared memory has a block's voltages: both polarisations of WHOLE_SPECTRA spectra of a channel and batch.  An
 * operation has 64 rows: four groups of one polarisation, a group for each warp of a warpgroup.  The rows are fragments
 * in registers; wgmma and mma use the same fragments (beam_fragments.h).  The columns are the 32 spectra of a piece.
 * Operand B of a step is
 *     [half of K][j][column][16 bytes]       16 bytes: 8 antennas, two parts (re, im) each
 * Column c of product j is spectrum 4 c + j of the piece.  So a lane's results are 8 consecutive spectra of one beam,
 * as in beamform_tile.h.
 *
 * A turn is four groups of one polarisation.  The warpgroups process the turns alternately.  All turns of polarisation
 * 0 come first.  A warp loads the fragments of its group once for all pieces. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_WHOLE_H
#define KERNELS_BEAMFORM_BEAMFORM_WHOLE_H

#include "kernels/beamform/beamform_tile.h"

#define WARPGROUP_WARPS 4
#define N_WARPGROUPS    (N_WARPS / WARPGROUP_WARPS)
#define HALF_BYTES      (WHOLE_STEP_BYTES / 2)
#define CORE_BYTES      128 /* 8 columns of 16 bytes */

static_assert(WHOLE_PIECES == N_WARPS, "each warp must load one piece");

/* Rows of a group, for all steps: [step][high, low][register]. */
struct rows {
    uint32_t words[N_STEPS][2][4];
};

/* Number of the block's groups of polarisation 0, and of polarisation 1.  An array with a variable index would need
 * local memory, so the two numbers are separate members. */
struct turns {
    uint32_t n_groups_0, n_groups_1;
};

static __device__ __forceinline__ uint32_t n_turns(uint32_t n_groups)
{
    return (n_groups + WARPGROUP_WARPS - 1) / WARPGROUP_WARPS;
}

/* Voltages that a lane loads from the warp's piece: shape [half of a step][antenna][spectrum]. */
struct loaded {
    uint32_t words[2 * N_STEPS][2][4];
};

/* Loads the voltages of the warp's piece.  Lanes 4 q to 4 q + 3 load spectra 4 q to 4 q + 3 of the piece.  With i = 2
 * (l % 4), lane l loads antennas i and i + 1 of each half of a step.  Instead of antennas beyond the last antenna, a lane
 * loads the last antenna.  Instead of spectra beyond the batch, a lane loads the last spectra. */
static __device__ __forceinline__ void load_piece(const struct beamform_args &args, const struct place &place,
                                                  struct loaded &loaded)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t spectrum = place.first + threadIdx.x / 32 * WARP_SPECTRA + lane / 4 * 4;
    const uint64_t ant_bytes = (uint64_t)args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;
    const uint64_t run = (uint64_t)place.batch * N_ANTS * args.n_chan + place.chan;
    const uint8_t *in = (const uint8_t *)args.voltages +
                        (run * args.n_spectra + min(spectrum, args.n_spectra - 4)) * 2 * SAMPLE_BYTES;

#pragma unroll
    for (uint32_t half = 0; half < 2 * N_STEPS; half++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            load_spectra(in + min(half * 8 + lane % 4 * 2 + i, N_ANTS - 1u) * ant_bytes, loaded.words[half][i]);
}

/* Stores the columns of the warp's piece in shared memory. */
static __device__ __forceinline__ void store_columns(const struct loaded &loaded)
{
    const uint32_t lane = threadIdx.x % 32;
    uint8_t *to = &shared_of_block()->columns[0][threadIdx.x / 32][lane / 4 * 16 + lane % 4 * 4];

#pragma unroll
    for (uint32_t half = 0; half < 2 * N_STEPS; half++)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
#pragma unroll
            for (uint32_t pol = 0; pol < 2; pol++)
                *(uint32_t *)(to + pol * sizeof(shared_of_block()->columns[0]) + half * HALF_BYTES + j * CORE_BYTES) =
                    __byte_perm(loaded.words[half][0][j], loaded.words[half][1][j], pol ? 0x7632 : 0x5410);
}

/* Counts the block's groups of each polarisation.  The slots must already be in shared memory. */
static __device__ __forceinline__ struct turns count_turns(const struct beamform_args &args, const struct place &place)
{
    const uint32_t n = min(args.n_slots / GROUP_BEAMS - place.group, (uint32_t)BLOCK_GROUPS);
    struct turns turns = {0, n};

    for (uint32_t group = 0; group < n; group++)
        turns.n_groups_0 += shared_of_block()->slots[group * GROUP_BEAMS].parameters.pol == 0;
    turns.n_groups_1 = n - turns.n_groups_0;
    return turns;
}

/* Returns the i-th group of a polarisation.  Polarisations alternate until one polarisation has no group left. */
static __device__ __forceinline__ uint32_t group_of(const struct turns &turns, uint32_t pol, uint32_t i)
{
    const uint32_t n_pairs = min(turns.n_groups_0, turns.n_groups_1);

    return i < n_pairs ? 2 * i + pol : n_pairs + i;
}

static __device__ __forceinline__ void load_rows(const struct beamform_args &args, const struct place &place,
                                                 uint32_t group, struct rows &rows)
{
    const int8_t *from = args.fragments + place.chan * beam_fragments_chan_bytes(args.n_slots, N_ANTS) +
                         (place.group + group) * beam_fragments_group_bytes(N_ANTS) + threadIdx.x % 32 * 16;

#pragma unroll
    for (int i = 0; i < 2 * N_STEPS; i++) {
        const uint4 four = *(const uint4 *)(from + i * BEAM_SLICE_BYTES);
        rows.words[i / 2][i % 2][0] = four.x;
        rows.words[i / 2][i % 2][1] = four.y;
        rows.words[i / 2][i % 2][2] = four.z;
        rows.words[i / 2][i % 2][3] = four.w;
    }
}

#ifdef EMULATE_CUDA
/* Multiplies the rows 'a' by the columns at 'b' for one step, and adds the products to the sums.  Makes one matrix
 * product for each j: sums[j] is [row i, row i + 8][column % 2], as mma's operand c. */
static void multiply_columns(int (&sums)[4][4], const uint32_t (&a)[4], shared_address b, uint32_t step)
{
    const uint32_t lane = threadIdx.x % 32;

    for (uint32_t j = 0; j < 4; j++) {
        const uint8_t *column = b + step * WHOLE_STEP_BYTES + j * CORE_BYTES + lane / 4 * 16 + lane % 4 * 4;
        if (step == 0)
            for (uint32_t i = 0; i < 4; i++)
                sums[j][i] = 0;
        multiply_add(sums[j], a, *(const uint32_t *)column, *(const uint32_t *)(column + HALF_BYTES));
    }
}
#else
/* Returns the descriptor of operand B of a step: K-major, not swizzled, 8 columns of 16 bytes side by side. */
static __device__ __forceinline__ uint64_t describe(shared_address b, uint32_t step)
{
    const uint32_t low = (b >> 4 & 0x3fff) | HALF_BYTES >> 4 << 16, high = CORE_BYTES >> 4;

    return low + (step * WHOLE_STEP_BYTES >> 4) | (uint64_t)high << 32;
}

#define SUMS_4(s) "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
#define MULTIPLY(adds)                                                                                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
                 "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, " #adds ";"                                          \
                 : SUMS_4(sums[0]), SUMS_4(sums[1]), SUMS_4(sums[2]), SUMS_4(sums[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe(b, step)))

/* Multiplies the rows 'a' by the columns at 'b' for one step, for the four groups of a warpgroup.  The sums are valid
 * after end_products(). */
static __device__ __forceinline__ void multiply_columns(int (&sums)[4][4], const uint32_t (&a)[4], shared_address b,
                                                        uint32_t step)
{
    if (step == 0)
        MULTIPLY(0);
    else
        MULTIPLY(1);
}
#endif

/* Begins the sums of all antennas for the 32 spectra whose columns begin at 'b'.  The sums are valid after
 * end_products(). */
static __device__ __forceinline__ void begin_products(const struct rows &rows, shared_address b, int (&sums)[2][4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
    for (uint32_t step = 0; step < N_STEPS; step++)
#pragma unroll
        for (uint32_t part = 0; part < 2; part++)
            multiply_columns(sums[part], rows.words[step][part], b, step);
#ifndef EMULATE_CUDA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Waits for the products.  Because of the empty assembly code, the compiler cannot read the sums before this point. */
static __device__ __forceinline__ void end_products(int (&sums)[2][4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (uint32_t part = 0; part < 2; part++)
        asm volatile("" : SUMS_4(sums[part][0]), SUMS_4(sums[part][1]), SUMS_4(sums[part][2]), SUMS_4(sums[part][3]));
#endif
}

/* Loads the block's slots and voltages, and calls process(pol, group, is_there) for each group of the warp.  If
 * 'is_there' is false, the warp has no group, but takes part in the products of its warpgroup.  The compiler knows that
 * 'pol' is the same for all lanes. */
template <typename PROCESS>
static __device__ __forceinline__ void process_groups(const struct beamform_args &args, const struct place &place,
                                                      const PROCESS &process)
{
    struct loaded loaded;

    load_piece(args, place, loaded); /* the voltages arrive while the slots are loaded */
    load_slots(args, place);
    store_columns(loaded);
    fence_proxy_async();
    __syncthreads();

    const struct turns turns = count_turns(args, place);
    const uint32_t n_turns_0 = n_turns(turns.n_groups_0), n = n_turns_0 + n_turns(turns.n_groups_1);
#pragma unroll 1
    for (uint32_t turn = threadIdx.x / (32 * WARPGROUP_WARPS); turn < n; turn += N_WARPGROUPS) {
        const uint32_t pol = __any_sync(0xffffffffu, turn >= n_turns_0);
        const uint32_t i = (turn - (pol ? n_turns_0 : 0)) * WARPGROUP_WARPS + threadIdx.x / 32 % WARPGROUP_WARPS;
        const bool is_there = i < (pol ? turns.n_groups_1 : turns.n_groups_0);
        process(pol, is_there ? group_of(turns, pol, i) : 0, is_there);
    }
}

#endif
