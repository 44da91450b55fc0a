/* beamform_whole.h - sums over up to 96 antennas for many beams, with the warpgroup instructions of the tensor cores
 * (PTX's wgmma, compute capability 9.0).  beamform.cu and beam_detect.cu include this file.
 *
 * The launch has about one block for each multiprocessor.  The blocks of a tile (a set of groups) share all items.  An
 * item has PART_SPECTRA spectra of a batch of a channel.  Shared memory has two buffers.  A buffer has the voltages of
 * an item, in both polarisations.  One warpgroup, the producer, stores the voltages of the next item in one buffer,
 * while four warpgroups, the consumers, process the other buffer.  Barriers (barrier.h) say that a buffer is full or
 * empty.
 *
 * An operation has 64 rows: four groups of one polarisation, a group for each warp of a warpgroup.  The rows are
 * fragments in registers; wgmma and mma use the same fragments (beam_fragments.h).  The columns are the 32 spectra of a
 * piece.  Operand B of a step is
 *     [half of K][j][column][16 bytes]       16 bytes: 8 antennas, two parts (re, im) each
 * Column c of product j is spectrum 4 c + j of the piece.  So a lane's results are 8 consecutive spectra of one beam,
 * as in beamform_tile.h.
 *
 * A turn is four groups of one polarisation.  All turns of polarisation 0 come first.  A unit has all pieces of a turn,
 * or a half or a quarter of the pieces, so that the consumers have the same number of units if possible.  A warp loads
 * the fragments of its group once for a unit.  If a consumer has only one unit of each item, a warp loads the fragments
 * once for all items of a channel. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_WHOLE_H
#define KERNELS_BEAMFORM_BEAMFORM_WHOLE_H

#include "kernels/beamform/beamform_tile.h"
#include "kernels/util/barrier.h"

#define WARPGROUP_WARPS   4
#define WARPGROUP_THREADS (32 * WARPGROUP_WARPS)
#define N_CONSUMERS       4 /* warpgroups; the last warpgroup of the block is the producer */
#define HALF_BYTES        (WHOLE_STEP_BYTES / 2)
#define HALF_ANTS         (STEP_ANTS / 2)
#define CORE_BYTES        128 /* 8 columns of 16 bytes */
#define LOAD_SPECTRA      128 /* spectra of a load of the producer */
#define N_STAGES          BEAMFORM_STAGES(N_STEPS)
/* With few groups, a block processes consecutive items, so that it seldom changes the channel.  With many groups, all
 * blocks together process consecutive items, so that the fragments of their few channels fit the L2 cache. */
#define IS_CONTIGUOUS (BLOCK_GROUPS <= 2 * WARPGROUP_WARPS)
/* A block begins with 96 registers for each of its threads. */
#define CONSUMER_REGISTERS 104
#define PRODUCER_REGISTERS 64
static_assert((N_CONSUMERS * CONSUMER_REGISTERS + PRODUCER_REGISTERS) <= (N_CONSUMERS + 1) * 96,
              "the warpgroups need more registers than a block has");
static_assert(N_WARPS == (N_CONSUMERS + 1) * WARPGROUP_WARPS, "a block has consumers and one producer");

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

/* ---- Items ------------------------------------------------------------------------------------------------------- */

/* The items of a block, one after the other. */
struct walk {
    uint32_t chan, batch, part;                /* the item; batch 0 is args.first_batch */
    uint32_t step_chan, step_batch, step_part; /* distance to the block's next item */
    uint32_t n_parts;
    uint32_t n_left; /* items that are left, with this item */
};

static __device__ __forceinline__ struct walk begin_walk(const struct beamform_args &args)
{
    const uint32_t n_parts = (args.n_spectra + PART_SPECTRA - 1) / PART_SPECTRA, n_rows = n_parts * args.n_batches;
    const uint32_t n_blocks = gridDim.x / N_TILES, block = blockIdx.x / N_TILES, n = n_rows * args.n_chan;
    const uint32_t share = n / n_blocks, rest = n % n_blocks;
    const uint32_t first = IS_CONTIGUOUS ? block * share + min(block, rest) : block;
    const uint32_t step = IS_CONTIGUOUS ? 1 : n_blocks;
    struct walk walk;

    walk.n_parts = n_parts;
    walk.n_left = share + (block < rest);
    walk.chan = first / n_rows;
    walk.batch = first % n_rows / n_parts;
    walk.part = first % n_parts;
    walk.step_chan = step / n_rows;
    walk.step_batch = step % n_rows / n_parts;
    walk.step_part = step % n_parts;
    return walk;
}

/* Moves to the block's next item. */
static __device__ __forceinline__ void advance(const struct beamform_args &args, struct walk &walk)
{
    walk.part += walk.step_part;
    const uint32_t carry = walk.part >= walk.n_parts;
    walk.part -= carry ? walk.n_parts : 0;
    walk.batch += walk.step_batch + carry;
    const uint32_t carry_batch = walk.batch >= args.n_batches;
    walk.batch -= carry_batch ? args.n_batches : 0;
    walk.chan += walk.step_chan + carry_batch;
    walk.n_left--;
}

static __device__ __forceinline__ struct item item_of(const struct beamform_args &args, const struct walk &walk)
{
    struct item item;

    item.chan = walk.chan;
    item.batch = args.first_batch + walk.batch;
    item.first = walk.part * PART_SPECTRA;
    item.n_pieces = (min(args.n_spectra - item.first, PART_SPECTRA) + WARP_SPECTRA - 1) / WARP_SPECTRA;
    return item;
}

static __device__ __forceinline__ struct place place_of(const struct item &item)
{
    return {blockIdx.x % N_TILES * BLOCK_GROUPS, item.chan, item.batch, item.first, item.n_pieces};
}

/* ---- The producer ------------------------------------------------------------------------------------------------ */

/* Loads of a warp of the producer.  A load has 128 spectra of the 8 antennas of half a step.  Each warp processes one
 * half of each step, for one half of the item's spectra.  A lane loads 4 spectra.  Loads are copied to a stage in
 * shared memory.  Each lane reads only data that the lane itself has copied. */
struct loads {
    struct walk walk;  /* the item of the next load */
    const uint8_t *at; /* address of the next load's first antenna */
    uint32_t n_steps;  /* number of the item's steps that are left */
};

/* Returns the index in the item of the first spectrum of the warp's loads. */
static __device__ __forceinline__ uint32_t first_of_warp(void)
{
    return threadIdx.x / 64 % 2 * LOAD_SPECTRA;
}

/* Returns the number of steps that the warp loads in an item whose first spectrum is 'first'. */
static __device__ __forceinline__ uint32_t steps_of(const struct beamform_args &args, uint32_t first)
{
    return first + first_of_warp() < args.n_spectra ? N_STEPS : 0;
}

/* Returns the index of the first antenna of the warp's half of a step.  Instead of antennas beyond the last antenna,
 * the warp loads the last antenna. */
static __device__ __forceinline__ uint32_t first_ant(uint32_t step)
{
    return min(step * STEP_ANTS + threadIdx.x / 32 % 2 * HALF_ANTS, N_ANTS - 1u);
}

/* Finds the first load of the item.  Instead of spectra beyond the batch, a lane loads the last spectra. */
static __device__ __forceinline__ void find_loads(const struct beamform_args &args, struct loads &loads)
{
    const uint32_t spectrum = loads.walk.part * PART_SPECTRA + first_of_warp() + threadIdx.x % 32 * 4;
    const uint64_t run = ((uint64_t)(args.first_batch + loads.walk.batch) * N_ANTS + first_ant(0)) * args.n_chan;

    loads.at = (const uint8_t *)args.voltages +
               ((run + loads.walk.chan) * args.n_spectra + min(spectrum, args.n_spectra - 4)) * 2 * SAMPLE_BYTES;
    loads.n_steps = steps_of(args, loads.walk.part * PART_SPECTRA);
}

/* Begins the next load, if there is one.  'stage' is the lane's part of a stage. */
static __device__ __forceinline__ void begin_load(const struct beamform_args &args, uint4 (*stage)[32],
                                                  struct loads &loads)
{
    const uint32_t ant_bytes = args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;

    while (loads.n_steps == 0 && loads.walk.n_left > 0) {
        advance(args, loads.walk);
        if (loads.walk.n_left > 0)
            find_loads(args, loads);
    }
    if (loads.walk.n_left > 0) {
#pragma unroll
        for (uint32_t i = 0; i < HALF_ANTS; i++) {
            const uint32_t ants = N_ANTS % STEP_ANTS ? min(i, N_ANTS - 1 - first_ant(N_STEPS - loads.n_steps)) : i;
            const uint8_t *at = loads.at + (uint64_t)ants * ant_bytes;
            if (SAMPLE_BYTES == 2)
                copy_async(&stage[i][0], at);
            else
                copy_async_8(&stage[i][0], at);
        }
        if (N_ANTS % STEP_ANTS)
            loads.at +=
                (uint64_t)(first_ant(N_STEPS + 1 - loads.n_steps) - first_ant(N_STEPS - loads.n_steps)) * ant_bytes;
        else
            loads.at += (uint64_t)STEP_ANTS * ant_bytes;
        loads.n_steps--;
    }
    copies_commit();
}

/* Stores a load's columns.  'to' is the address of the columns of polarisation 0.  The lane processes two of its
 * spectra at a time, because more spectra would need too many registers. */
static __device__ __forceinline__ void store_load(const uint4 (*stage)[32], uint8_t *to)
{
#pragma unroll
    for (uint32_t pair = 0; pair < 2; pair++) {
        uint32_t words[HALF_ANTS][2];

#pragma unroll
        for (uint32_t i = 0; i < HALF_ANTS; i++)
            load_pair((const uint8_t *)&stage[i][0] + pair * 4 * SAMPLE_BYTES, words[i]);
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
#pragma unroll
            for (uint32_t pol = 0; pol < 2; pol++) {
                const uint32_t selector = pol ? 0x7632 : 0x5410;
                *(uint4 *)(to + pol * sizeof(shared_of_block()->columns[0][0]) + (2 * pair + j) * CORE_BYTES) =
                    make_uint4(__byte_perm(words[0][j], words[1][j], selector),
                               __byte_perm(words[2][j], words[3][j], selector),
                               __byte_perm(words[4][j], words[5][j], selector),
                               __byte_perm(words[6][j], words[7][j], selector));
            }
    }
}

/* Stores the block's items and their voltages in the buffers.  'walk' is at the first item.  Calls prepare(place,
 * buffer) for each item. */
template <typename PREPARE>
static __device__ __forceinline__ void produce(const struct beamform_args &args, struct walk walk,
                                               const PREPARE &prepare)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPGROUP_WARPS;
    const uint32_t piece = first_of_warp() / WARP_SPECTRA + lane / 8;
    struct shared *shared = shared_of_block();
    uint4(*const stages)[32] = (uint4(*)[32]) & shared->stages[0][warp][0][lane];
    const uint32_t n_items = walk.n_left;
    uint32_t stage = 0;
    struct loads loads;

    loads.walk = walk;
    find_loads(args, loads);
#pragma unroll
    for (uint32_t i = 0; i < N_STAGES; i++)
        begin_load(args, stages + i * (WARPGROUP_WARPS * HALF_ANTS), loads);
#pragma unroll 1
    for (uint32_t k = 0; k < n_items; k++) {
        const struct item item = item_of(args, walk);
        const uint32_t buffer = k % 2, n_steps = steps_of(args, item.first);
        uint8_t *to = &shared->columns[buffer][0][piece][warp % 2 * HALF_BYTES + lane % 8 * 16];
        if (k >= 2)
            barrier_wait_long(&shared->empty[buffer], k / 2 - 1);
        if (threadIdx.x % WARPGROUP_THREADS == 0)
            shared->items[buffer] = item;
#pragma unroll 1
        for (uint32_t step = 0; step < n_steps; step++) {
            uint4(*const from)[32] = stages + stage * (WARPGROUP_WARPS * HALF_ANTS);
            copies_wait<N_STAGES - 1>();
            store_load(from, to);
            begin_load(args, from, loads);
            to += WHOLE_STEP_BYTES;
            stage = (stage + 1) % N_STAGES;
        }
        prepare(place_of(item), buffer);
        fence_proxy_async();
        barrier_arrive(&shared->full[buffer]);
        advance(args, walk);
    }
}

/* ---- The consumers ----------------------------------------------------------------------------------------------- */

/* Counts the block's groups of each polarisation.  The slots must already be in shared memory. */
static __device__ __forceinline__ struct turns count_turns(const struct beamform_args &args, uint32_t first_group)
{
    const uint32_t n = min(args.n_slots / GROUP_BEAMS - first_group, (uint32_t)BLOCK_GROUPS);
    struct turns turns = {0, n};

    for (uint32_t group = 0; group < n; group += 32) {
        const uint32_t at = group + threadIdx.x % 32;
        turns.n_groups_0 += (uint32_t)__popc(__ballot_sync(
            0xffffffffu, at < n && shared_of_block()->slots[min(at, n - 1) * GROUP_BEAMS].parameters.pol == 0));
    }
    turns.n_groups_1 = n - turns.n_groups_0;
    return turns;
}

/* Returns the i-th group of a polarisation.  Polarisations alternate until one polarisation has no group left. */
static __device__ __forceinline__ uint32_t group_of(const struct turns &turns, uint32_t pol, uint32_t i)
{
    const uint32_t n_pairs = min(turns.n_groups_0, turns.n_groups_1);

    return i < n_pairs ? 2 * i + pol : n_pairs + i;
}

/* Loads the rows of a group of the block. */
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
 * product for each j: sums[j] is [row i, row i + 8][column % 2], as mma's operand c.  'adds' is false for the first
 * products of the sums. */
static void multiply_columns(int (&sums)[4][4], const uint32_t (&a)[4], shared_address b, uint32_t step, bool adds)
{
    const uint32_t lane = threadIdx.x % 32;

    for (uint32_t j = 0; j < 4; j++) {
        const uint8_t *column = b + step * WHOLE_STEP_BYTES + j * CORE_BYTES + lane / 4 * 16 + lane % 4 * 4;
        if (!adds)
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
    asm volatile(                                                                                                      \
        "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "         \
        "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, " #adds ";"                                                   \
        : SUMS_4(sums[0]), SUMS_4(sums[1]), SUMS_4(sums[2]), SUMS_4(sums[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe(b, step)))

/* Multiplies the rows 'a' by the columns at 'b' for one step, for the four groups of a warpgroup.  The sums are valid
 * after wait_products(). */
static __device__ __forceinline__ void multiply_columns(int (&sums)[4][4], const uint32_t (&a)[4], shared_address b,
                                                        uint32_t step, bool adds)
{
    if (adds)
        MULTIPLY(1);
    else
        MULTIPLY(0);
}
#endif

/* Begins the products of a slice (0: high, 1: low) for the 32 spectra whose columns begin at 'b'.  The products of the
 * low slice are added to the sums. */
static __device__ __forceinline__ void begin_slice(const struct rows &rows, shared_address b, uint32_t slice,
                                                   int (&sums)[4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
    for (uint32_t step = 0; step < N_STEPS; step++)
        multiply_columns(sums, rows.words[step][slice], b, step, slice || step);
#ifndef EMULATE_CUDA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Begins the products of both slices: sums [high, low].  The sums are valid after end_products(). */
static __device__ __forceinline__ void begin_products(const struct rows &rows, shared_address b, int (&sums)[2][4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
    for (uint32_t step = 0; step < N_STEPS; step++)
#pragma unroll
        for (uint32_t slice = 0; slice < 2; slice++)
            multiply_columns(sums[slice], rows.words[step][slice], b, step, step);
#ifndef EMULATE_CUDA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Waits for the products of both slices. */
static __device__ __forceinline__ void end_products(int (&sums)[2][4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (uint32_t slice = 0; slice < 2; slice++)
        asm volatile(""
                     : SUMS_4(sums[slice][0]), SUMS_4(sums[slice][1]), SUMS_4(sums[slice][2]), SUMS_4(sums[slice][3]));
#endif
}

/* Waits for the products.  Because of the empty assembly code, the compiler cannot read the sums before this point. */
static __device__ __forceinline__ void wait_products(int (&sums)[4][4])
{
#ifndef EMULATE_CUDA
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    asm volatile("" : SUMS_4(sums[0]), SUMS_4(sums[1]), SUMS_4(sums[2]), SUMS_4(sums[3]));
#endif
}

/* Waits for the products of the high slice, and begins the products of the low slice. */
static __device__ __forceinline__ void begin_low(const struct rows &rows, shared_address b, int (&sums)[4][4])
{
    wait_products(sums);
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        sums[i / 4][i % 4] <<= 8;
    begin_slice(rows, b, 1, sums);
}

/* Converts the sums to the lane's 8 spectra of a group before scaling: [spectrum][re, im]. */
static __device__ __forceinline__ void convert_sums(const struct slot &slot, const int (&sums)[4][4],
                                                    float (&parts)[LANE_SPECTRA][2])
{
#pragma unroll
    for (int i = 0; i < 2 * LANE_SPECTRA; i++)
        parts[i / 2][i % 2] = (float)sums[i / 2 % 4][i % 2 * 2 + i / 8];
    renormalise(slot, parts);
}

/* A consumer's work for an item: some pieces of a group. */
struct unit {
    shared_address columns; /* of the polarisation's piece 0 */
    uint32_t pol;           /* The compiler knows that all lanes have the same polarisation. */
    uint32_t group;
    bool is_there;       /* false: the warp has no group, but takes part in the products of its warpgroup */
    uint32_t begin, end; /* pieces */
    int32_t exponent;    /* exponent of the coefficients of the lane's slot */
};

/* Returns 'x', and tells the compiler that all lanes have the same value. */
static __device__ __forceinline__ uint32_t uniform(uint32_t x)
{
    return __shfl_sync(0xffffffffu, x, 0);
}

/* Returns the address of a piece's columns. */
static __device__ __forceinline__ shared_address columns_of(const struct unit &unit, uint32_t piece)
{
    return unit.columns + piece * (N_STEPS * WHOLE_STEP_BYTES);
}

/* Returns the entry of the lane's slot of a group of the block. */
static __device__ __forceinline__ const struct listed &listed_of(uint32_t group)
{
    return shared_of_block()->slots[group * GROUP_BEAMS + threadIdx.x % 32 / 4];
}

/* Returns the lane's slot of a unit. */
static __device__ __forceinline__ struct slot make_slot(const struct beamform_args &args, const struct place &place,
                                                        const struct unit &unit)
{
    struct slot slot = {};

    slot.beam = listed_of(unit.group).beam;
    slot.parameters = listed_of(unit.group).parameters;
    if (slot.beam != BEAMFORM_NO_BEAM)
        fill_slot(args, place, unit.exponent, slot);
    return slot;
}

/* Calls process(place, buffer, unit, rows) for each unit of the warp. */
template <typename PROCESS>
static __device__ __forceinline__ void consume(const struct beamform_args &args, uint32_t n_items, uint32_t consumer,
                                               const PROCESS &process)
{
    const shared_address columns = opaque_address(shared_address_of(shared_of_block()->columns[0][0][0]));
    const uint32_t first_group = blockIdx.x % N_TILES * BLOCK_GROUPS;
    const struct turns turns = count_turns(args, first_group);
    const uint32_t n_turns_0 = n_turns(turns.n_groups_0), n = n_turns_0 + n_turns(turns.n_groups_1);
    const uint32_t log_splits = n % 4 == 0 ? 0 : n % 2 == 0 ? 1 : 2, n_units = n << log_splits;
    uint32_t rows_chan = ~0u;
    int32_t exponent = 0;
    struct rows rows;

#pragma unroll 1
    for (uint32_t k = 0; k < n_items; k++) {
        const uint32_t buffer = k % 2;
        barrier_wait_long(&shared_of_block()->full[buffer], k / 2);
        const struct place place = place_of(shared_of_block()->items[buffer]);
#pragma unroll 1
        for (uint32_t u = consumer; u < n_units; u += N_CONSUMERS) {
            const uint32_t turn = u >> log_splits, n_pieces = WHOLE_PIECES >> log_splits;
            const uint32_t warp = threadIdx.x / 32 % WARPGROUP_WARPS;
            struct unit unit;
            unit.pol = __any_sync(0xffffffffu, turn >= n_turns_0);
            const uint32_t i = (turn - (unit.pol ? n_turns_0 : 0)) * WARPGROUP_WARPS + warp;
            unit.is_there = i < (unit.pol ? turns.n_groups_1 : turns.n_groups_0);
            unit.group = unit.is_there ? group_of(turns, unit.pol, i) : 0;
            unit.begin = uniform((u - (turn << log_splits)) * n_pieces);
            unit.end = uniform(min(unit.begin + n_pieces, place.n_pieces));
            unit.columns = columns + (2 * buffer + unit.pol) * (WHOLE_PIECES * N_STEPS * WHOLE_STEP_BYTES);
            if (unit.begin >= unit.end)
                continue;
            if (n_units > N_CONSUMERS || place.chan != rows_chan) {
                const uint32_t beam = listed_of(unit.group).beam;
                exponent = beam == BEAMFORM_NO_BEAM ? 0 : load_exponent(args, place, beam);
                load_rows(args, place, unit.group, rows);
                rows_chan = place.chan;
            }
            unit.exponent = exponent;
            process(place, buffer, unit, rows);
        }
        barrier_arrive(&shared_of_block()->empty[buffer]);
    }
}

/* ---- The block --------------------------------------------------------------------------------------------------- */

/* Lists the block's slots, and initialises the barriers. */
static __device__ __forceinline__ void begin_block(const struct beamform_args &args)
{
    struct shared *shared = shared_of_block();

    for (uint32_t i = threadIdx.x; i < BLOCK_SLOTS; i += N_THREADS) {
        const uint32_t at = blockIdx.x % N_TILES * BLOCK_SLOTS + i;
        struct listed listed = {};
        listed.beam = at < args.n_slots ? args.slots[at] : BEAMFORM_NO_BEAM;
        if (listed.beam != BEAMFORM_NO_BEAM)
            listed.parameters = args.beams[listed.beam];
        shared->slots[i] = listed;
    }
    if (threadIdx.x == 0)
        for (uint32_t buffer = 0; buffer < 2; buffer++) {
            barrier_init(&shared->full[buffer], WARPGROUP_THREADS);
            barrier_init(&shared->empty[buffer], N_CONSUMERS * WARPGROUP_THREADS);
        }
    __syncthreads();
}

/* Does the block's work.  The producer calls prepare(place, buffer) for each item.  Consumers call process(). */
template <typename PREPARE, typename PROCESS>
static __device__ __forceinline__ void process_items(const struct beamform_args &args, const PREPARE &prepare,
                                                     const PROCESS &process)
{
    /* tells the compiler that all lanes have the same value */
    const uint32_t role = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP_THREADS, 0);

    begin_block(args);
    if (role == N_CONSUMERS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        produce(args, begin_walk(args), prepare);
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume(args, begin_walk(args).n_left, role, process);
    }
}

#endif
