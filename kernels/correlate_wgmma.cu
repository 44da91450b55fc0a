/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a, whose matrix unit works for 128 threads at a time.
 *
 * An item of work is the products of ROW_ANTS antennas (the first of a baseline) with COL_ANTS (the second) in one
 * channel, in stages of STAGE_SPECTRA spectra.  Blocks stay, and take one item after the other; the last ones, too few
 * for all of them, are shared stage by stage, and added to memory by atomics.
 *
 * The second half of a block's warps, two producers of four which take the stages in turns, fetch the voltages of the
 * columns and lay them out in shared memory as the matrix unit wants its second operand: a column for each input.  Two
 * groups of four warps have 32 row antennas each.  They load those voltages straight into registers, which is where
 * the matrix unit takes its first operand from, twice: 'plain' (re, im) and 'turned' (im, -re), whose dot products
 * with a column are the real and the imaginary part of e1 conj(e2).  The registers of a piece for the two
 * polarisations are rows i and i + 8 of what a warp multiplies.
 *
 * Which spectra stand side by side in an operation is free, as long as rows and columns agree: thread t of four has 16
 * bytes of an antenna as they lie in memory, which are its part of 'pieces', half operations, one after another.  The
 * order of the columns is free too: the antenna modulo 8 comes first, so that a thread ends up with whole baselines,
 * and what a warp writes to shared memory does not collide.
 *
 * All loads are for a warp's next stage.  A warp that waits for one load waits for all that it has asked for, in a
 * loop at least (the assembler counts them together), so who is to be further ahead needs more warps: hence two
 * producers, each with two stages' time for one.  The groups leave the matrix unit to each other while they prepare
 * their rows.
 *
 * Integers: 'turned' has ~re = -re - 1 in place of -re, for which -128 has no room; what that lacks, the sum of im of
 *           the column, the producers add up beside and the groups add at the end.  4 bits are widened to 16 times
 *           their value: sums are 256 times too large, and shifted back at the end.  Partial sums in int32 hold 65 535
 *           spectra of full scale.
 * Floats:   partial sums in float32.
 *
 * What is left of antennas behind whole blocks of columns, where it is few, makes items of another sort, which each block
 * has a share of after those: strips, of which a group multiplies two stages at a time.  There the rows are what takes
 * time, with one stage's as with 64 columns, and there are registers to have twice as many on their way.
 *
 * Blocks: x: shares of the work.
 * Constants: of correlate_constants() BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS. */
#include "kernels/correlate.h"

#define correlate_wgmma_args correlate_args

#define ROW_ANTS      64
#define COL_ANTS      64
#define GROUP_ANTS    32 /* rows of a group of warps: 64 inputs */
#define N_GROUPS      (ROW_ANTS / GROUP_ANTS)
#define STRIP_ANTS    16 /* columns, at most, that are multiplied two stages at a time */
#define GROUP_THREADS 128
#define N_PRODUCERS   2
#define N_THREADS     ((N_GROUPS + N_PRODUCERS) * GROUP_THREADS)

#define HALVES         (BITS == 16)
#define NIBBLES        (BITS == 4)
#define SPECTRUM_BYTES (HALVES ? 8 : NIBBLES ? 2 : 4) /* of an antenna, in memory */
#define STAGE_SPECTRA  (HALVES ? 32 : 64)             /* 128 bytes of an input, four operations of 32 */
#define UNIT_SPECTRA   (N_SPECTRA % 64 == 0 && !HALVES ? 64 : N_SPECTRA % 32 == 0 ? 32 : 16) /* within one heap */
#define HEAP_UNITS     (N_SPECTRA / UNIT_SPECTRA)
#define STAGE_UNITS    (STAGE_SPECTRA / UNIT_SPECTRA)
#define CHAN_BYTES     (N_SPECTRA * SPECTRUM_BYTES) /* of an antenna */
#define HEAP_BYTES     ((uint64_t)N_CHAN * CHAN_BYTES)
#define BATCH_BYTES    (N_ANTS * HEAP_BYTES)

#define LOAD_SPECTRA (16 / SPECTRUM_BYTES) /* of a thread; four lie side by side */
#define LOAD_PIECES  (NIBBLES ? 4 : 2)     /* 4 bytes of either polarisation: half of an operation's of a thread */
#define N_LOADS      (STAGE_SPECTRA / (4 * LOAD_SPECTRA))

#define COLUMN_BYTES 128
#define STAGE_BYTES  (2 * COL_ANTS * COLUMN_BYTES)
#define N_STAGES     8

/* Shared memory: the stages, then what has been summed of columns, then barriers.  Sums of a slot have been read when
 * the slot N_STAGES later is free, before a producer comes to the one 2 * N_STAGES later. */
#define N_SUM_SLOTS    (2 * N_STAGES)
#define SUM_SLOT_BYTES (COL_ANTS * 8)
#define SUMS_AT        (N_STAGES * STAGE_BYTES)
#define BARRIERS_AT    (SUMS_AT + N_SUM_SLOTS * SUM_SLOT_BYTES)

/* Within a batch: 32 bits where they do, because registers are short. */
template <bool SMALL> struct offset_type {
    typedef uint64_t type;
};
template <> struct offset_type<true> {
    typedef uint32_t type;
};
typedef offset_type<(BATCH_BYTES >> 32) == 0>::type batch_offset;

#if HALVES
typedef float partial;
#else
typedef int partial;
#endif

/* These have what the sizes above say, in this order. */
#include "kernels/correlate_wgmma_slots.h"

#include "kernels/correlate_wgmma_unit.h"

#include "kernels/correlate_wgmma_share.h"

/* ---- Voltages in registers --------------------------------------------------------------------------------------- */

/* Of a load's 16 bytes the registers of a piece: 2 spectra (of half floats one) of either polarisation. */
static __device__ __forceinline__ void separate(uint4 load, int piece, uint32_t *pol0, uint32_t *pol1)
{
    const uint32_t words[4] = {load.x, load.y, load.z, load.w};
#if HALVES
    *pol0 = words[2 * piece];
    *pol1 = words[2 * piece + 1];
#elif NIBBLES
    uint32_t bits = words[piece] ^ (OFFSET ? 0x88888888 : 0), re = bits & 0xf0f0f0f0, im = bits << 4 & 0xf0f0f0f0;
    *pol0 = __byte_perm(re, im, 0x6240);
    *pol1 = __byte_perm(re, im, 0x7351);
#else
    *pol0 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x5410);
    *pol1 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x7632);
#endif
}

/* (re, im) to (im, -re), of integers (im, ~re). */
static __device__ __forceinline__ uint32_t turn(uint32_t plain)
{
#if HALVES
    return __byte_perm(plain, 0, 0x1032) ^ 0x80000000;
#else
    return __byte_perm(plain ^ 0x00ff00ff, 0, 0x2301);
#endif
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* A baseline's sums in memory: [product][re, im]. */
struct __align__(16) baseline
{
    partial sums[8];
};

#include "kernels/correlate_wgmma_columns.h"

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* A thread's row antenna among those of the block. */
static __device__ __forceinline__ uint32_t thread_row(void)
{
    return threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
}

#define NOTHING (NIBBLES && OFFSET ? 0x88888888 : 0) /* voltages of 0 */

/* Of a stage, for each operation pol 0, pol 1 of its first 16 bytes, and of its second. */
struct rows {
    uint32_t plain[4][4], turned[4][4];
};

/* What has been loaded for rows, and what is known of its stage. */
struct row_loads {
    uint4 loads[1][N_LOADS];
    bool there[N_LOADS];
};

static __device__ __forceinline__ struct places<N_LOADS> find_rows(const struct cursor *c) {
    return find_places<N_LOADS>(c, c->row_ant + thread_row(), 4 * LOAD_SPECTRA, threadIdx.x % 4 * LOAD_SPECTRA);
}

static __device__ __forceinline__ void
fetch_rows(const struct cursor *c, const struct places<N_LOADS> &places, struct row_loads *row_loads)
{
    load_voltages<N_LOADS, 1, 0>(places, c->row_ant + thread_row(), row_loads->loads);
#pragma unroll
    for (int i = 0; i < N_LOADS; i++)
        row_loads->there[i] =
            find_unit(c, i * 4 * LOAD_SPECTRA, 4 * LOAD_SPECTRA, threadIdx.x % 4 * LOAD_SPECTRA) < c->n_units;
}

static __device__ __forceinline__ void make_rows(const struct row_loads *row_loads, struct rows *rows)
{
#pragma unroll
    for (int i = 0; i < N_LOADS; i++) {
        uint4 load = row_loads->loads[0][i];
        if (!row_loads->there[i]) {
            if (STAGE_UNITS == 1 && !HALVES)
                asm volatile(""); /* so rarely that a jump is better */
            load = {NOTHING, NOTHING, NOTHING, NOTHING};
        }
#pragma unroll
        for (int j = 0; j < LOAD_PIECES; j++) {
            int piece = i * LOAD_PIECES + j;
            uint32_t *plain = &rows->plain[piece / 2][piece % 2 * 2];
            separate(load, j, &plain[0], &plain[1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        rows->turned[i / 4][i % 4] = turn(rows->plain[i / 4][i % 4]);
}

/* Which baseline is number i of a thread's, with a row antenna and those from 'column_ant' on; says whether there is. */
static __device__ __forceinline__ bool find_baseline(uint32_t row_ant, uint32_t column_ant, int i, uint32_t *baseline)
{
    uint32_t ant = column_ant + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;

    *baseline = ant * (ant + 1) / 2 + row_ant;
    return row_ant <= ant && ant < N_ANTS;
}

/* What a group has of an item. */
struct products {
    partial plain[N_PARTIAL], turned[N_PARTIAL];
};

/* The sum of im of the columns that baseline i of a thread has; of two stages' producers. */
static __device__ __forceinline__ void find_column_sums(shared_address shared, uint32_t last_slot, uint32_t skip, int i,
                                                        int (&sums)[2])
{
    uint32_t at = (skip + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2) * 8;

#pragma unroll
    for (int pol = 0; pol < 2; pol++)
        sums[pol] = HALVES ? 0
                           : (int)((unsigned)load_int(sum_slot(shared, last_slot) + at + pol * 4) +
                                   (unsigned)load_int(sum_slot(shared, last_slot - 1) + at + pol * 4));
}

/* What a thread adds to baseline i of its row antenna. */
static __device__ __forceinline__ partial find_product(const struct products *products, const int (&column_sums)[2],
                                                       int i, int value)
{
    int eight = i / 2, second = i % 2, pol1 = value / 2 % 2, pol2 = value / 4, turned = value % 2;
    int at = 4 * (2 * eight + pol2) + 2 * pol1 + second;
    partial found = turned ? products->turned[at] : products->plain[at];
#if HALVES
    return found;
#else
    return (int)((unsigned)found + (turned ? (unsigned)column_sums[pol2] : 0)) >> (NIBBLES ? 8 : 0);
#endif
}

/* Where a group's sums go. */
struct target {
    struct baseline *sums; /* of the channel */
    uint32_t row_ant, column_ant, skip;
    uint32_t last_slot;
    bool alone; /* no other block has sums of this item */
};

/* Adds a thread's sums to memory: of its row antenna with N antennas. */
template <unsigned N>
static __device__ __forceinline__ void add_sums(const struct target *target, shared_address shared,
                                                const struct products *products)
{
#pragma unroll
    for (int i = 0; i < (int)N / 4; i++) {
        uint32_t at;
        int column_sums[2];
        bool there = find_baseline(target->row_ant, target->column_ant + target->skip, i, &at);
        find_column_sums(shared, target->last_slot, target->skip, i, column_sums);
        if (there && target->alone) {
            struct baseline old = target->sums[at];
#pragma unroll
            for (int value = 0; value < 8; value++)
                old.sums[value] += find_product(products, column_sums, i, value);
            target->sums[at] = old;
        } else if (there) {
#pragma unroll
            for (int value = 0; value < 8; value++)
                atomicAdd(&target->sums[at].sums[value], find_product(products, column_sums, i, value));
        }
        asm volatile("" ::: "memory"); /* so few registers are needed at a time */
    }
}

/* What a group works with all the time: some stages at a time.  'at' is the first to multiply, whose rows are 'rows';
 * 'ahead' is the first that 'loads' are of, behind those.  With few columns the matrix unit has its work done long
 * before the next rows are there, but there are registers for more rows and more loads.  (Shares of items are even.) */
template <enum sort SORT> struct group {
    struct cursor at, ahead;
    struct rows rows[items<SORT>::at_once];
    struct row_loads loads[items<SORT>::at_once];
    uint32_t slot, n_slots; /* of all that the block has */
};

template <enum sort SORT>
static __device__ __forceinline__ void find_ahead(const struct group<SORT> *group,
                                                  struct places<N_LOADS> (&places)[items<SORT>::at_once])
{
#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++) {
        struct cursor at = group->ahead;
        at.stage += i;
        places[i] = find_rows(&at);
    }
}

template <enum sort SORT>
static __device__ __forceinline__ void fetch_ahead(struct group<SORT> *group,
                                                   const struct places<N_LOADS> (&places)[items<SORT>::at_once])
{
#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++) {
        struct cursor at = group->ahead;
        at.stage += i;
        fetch_rows(&at, places[i], &group->loads[i]);
    }
}

/* Of what has been loaded. */
template <enum sort SORT> static __device__ __forceinline__ void make_ahead(struct group<SORT> *group)
{
#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++)
        make_rows(&group->loads[i], &group->rows[i]);
}

/* Rows times the columns of N antennas, the first of which is number 'skip' of the block's. */
template <enum sort SORT, unsigned N>
static __device__ __forceinline__ void multiply_rows(const struct group<SORT> *group, uint32_t skip,
                                                     shared_address shared, struct products *products)
{
#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++) {
        shared_address stage = shared + (group->slot + i) % N_STAGES * STAGE_BYTES;
#pragma unroll
        for (int step = 0; step < 4; step++) {
            multiply<2 * N>(products->plain, group->rows[i].plain[step], stage, 2 * skip, step);
            multiply<2 * N>(products->turned, group->rows[i].turned[step], stage, 2 * skip, step);
        }
    }
}

/* Multiplies the stages at hand.  Says whether the item ends, or the block's share of it. */
template <enum sort SORT, unsigned N>
static __device__ __forceinline__ bool multiply_stages(struct group<SORT> *group, uint32_t number, uint32_t skip,
                                                       shared_address shared, struct products *products)
{
    struct places<N_LOADS> places[items<SORT>::at_once];

#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++)
        wait_for_stage(shared, group->slot + i, number);
    if constexpr (N > 0) {
        matrix_begin();
        multiply_rows<SORT, N>(group, skip, shared, products);
        matrix_end();
    }
    bool ended = advance<SORT, items<SORT>::at_once>(&group->at);
    advance<SORT, items<SORT>::at_once>(&group->ahead);
    find_ahead(group, places);
    if constexpr (N > 0) {
        matrix_wait();
    }
#pragma unroll
    for (uint32_t i = 0; i < items<SORT>::at_once; i++)
        if (group->slot + i + N_STAGES < group->n_slots) /* else nobody waits for it */
            release_slot(shared, group->slot + i, number);
    group->slot += items<SORT>::at_once;
    make_ahead(group);
    fetch_ahead(group, places);
    return ended;
}

/* A group's part of an item, or of the block's share of it. */
template <enum sort SORT, unsigned N>
static __device__ __forceinline__ void consume(struct group<SORT> *group, uint32_t number, uint32_t skip,
                                               shared_address shared, struct baseline *sums)
{
    const struct cursor began = group->at;
    struct target target;
    struct products products = {};

#pragma unroll 1
    while (!multiply_stages<SORT, N>(group, number, skip, shared, &products))
        continue;
    target.sums = sums + began.chan * (uint64_t)correlate_n_baselines(N_ANTS);
    target.row_ant = began.row_ant + thread_row();
    target.column_ant = began.column_ant;
    target.skip = skip;
    target.last_slot = group->slot - 1;
    target.alone = began.stage == 0 && began.n_left >= began.n_stages;
    /* Once in an item: nothing that comes of this is worth a register meanwhile. */
    asm volatile("" : "+l"(target.sums), "+r"(target.row_ant), "+r"(target.column_ant), "+r"(target.skip));
    add_sums<N>(&target, shared, &products);
    __syncwarp(); /* all lanes have read the columns' sums before one of them releases the next slot */
}

/* How many column antennas a group multiplies in an item, in steps of 16: of a block on the diagonal not those before
 * its first. */
static __device__ __forceinline__ uint32_t count_columns(const struct cursor *c, uint32_t number, uint32_t skip)
{
    uint32_t n_ants = N_ANTS - c->column_ant < COL_ANTS ? N_ANTS - c->column_ant : COL_ANTS;

    return c->row_ant + number * GROUP_ANTS < N_ANTS ? (n_ants - skip + 15) / 16 * 16 : 0;
}

/* A group's part of a share, whose first slot is 'slot'; returns that behind it. */
template <enum sort SORT>
static __device__ __forceinline__ uint32_t consume_share(const struct correlate_args *args, uint32_t number,
                                                         uint32_t slot, uint32_t n_slots, shared_address shared)
{
    struct baseline *sums = (struct baseline *)args->sums.integer;
    struct places<N_LOADS> places[items<SORT>::at_once];
    struct group<SORT> group {
    };

    if (!begin_share<SORT>(&group.at, args))
        return slot;
    group.ahead = group.at;
    group.slot = slot;
    group.n_slots = n_slots;
    find_ahead(&group, places);
    fetch_ahead(&group, places);
    make_ahead(&group);
    advance<SORT, items<SORT>::at_once>(&group.ahead);
    find_ahead(&group, places);
    fetch_ahead(&group, places);
    while (group.at.n_left > 0) {
        uint32_t skip = group.at.row_ant == group.at.column_ant ? number * GROUP_ANTS : 0;
        uint32_t n_columns = count_columns(&group.at, number, skip);
        if (n_columns == 0)
            consume<SORT, 0>(&group, number, skip, shared, sums);
        else if (SORT == STRIPS || n_columns == 16)
            consume<SORT, 16>(&group, number, skip, shared, sums);
        else if constexpr (SORT == BLOCKS)
            switch (n_columns) {
            case 32: consume<SORT, 32>(&group, number, skip, shared, sums); break;
            case 48: consume<SORT, 48>(&group, number, 0, shared, sums); break;
            default: consume<SORT, 64>(&group, number, 0, shared, sums); break;
            }
    }
    return group.slot;
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[]; /* begins at a multiple of 1024 bytes, as operations need it */
    shared_address shared = find_shared(shared_memory);
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); /* the compiler sees that warps agree */
    uint32_t slot = 0;

    begin_slots(shared);
    if (role >= N_GROUPS) {
        give_registers();
        slot = produce<BLOCKS>(&args, role - N_GROUPS, slot, shared);
        if constexpr (n_strips > 0)
            produce<STRIPS>(&args, role - N_GROUPS, slot, shared);
    } else {
        uint32_t n_stages = count_stages(&args), n_slots = count_share<BLOCKS>(n_stages);
        if constexpr (n_strips > 0)
            n_slots += count_share<STRIPS>(n_stages);
        take_registers();
        slot = consume_share<BLOCKS>(&args, role, slot, n_slots, shared);
        if constexpr (n_strips > 0)
            consume_share<STRIPS>(&args, role, slot, n_slots, shared);
    }
}
