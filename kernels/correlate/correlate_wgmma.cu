/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a, whose matrix unit works for 128 threads at a time, and more
 * than 80 antennas; the baselines between their blocks of 64, as correlate_whole.cu has those within them.
 *
 * An item of work is the products of the ROW_ANTS antennas of a block (the first of a baseline) with the COL_ANTS of a
 * later one (the second) in one channel, in stages of STAGE_SPECTRA spectra.  Blocks stay, and take one item after the
 * other; the last ones, too few for all of them, are shared stage by stage, and added to memory by atomics.
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
 * All loads are for a warp's next stage.  In a loop, a warp that waits for one load waits for all its loads, because
 * the assembler counts them together.  So loads that are further ahead need more warps: hence two producers, each with
 * two stages' time for one stage.  While a group prepares its rows, the other group has the matrix unit.
 *
 * Integers: 'turned' has ~re = -re - 1 in place of -re, because the negative of -128 would overflow.  So the sums lack
 *           the sum of im of the column.  The producers add up this sum, and the groups add it at the end.  4 bits are
 *           widened to 16 times their value: sums are 256 times too large, and shifted back at the end.  Partial sums
 *           in int32 hold 65 535 spectra of full scale.
 * Floats:   partial sums in float32.
 *
 * Blocks: x: shares of the work.
 * Constants: of create_part() in correlate_shape.c BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS. */
#include "kernels/correlate/correlate.h"

#define correlate_wgmma_args correlate_args

#define ROW_ANTS 64
#define COL_ANTS 64
#define N_TILES  (COL_ANTS / TILE_ANTS)
#define N_STAGES 8

#include "kernels/correlate/correlate_wgmma_formats.h"

/* These have what the sizes above say, in this order. */
#include "kernels/correlate/correlate_wgmma_slots.h"

#include "kernels/correlate/correlate_wgmma_unit.h"

/* The antennas' blocks of rows, x, and of columns, y. */
static __device__ __forceinline__ uint2 find_block(uint32_t number)
{
    uint2 block = {number, 1};

    while (block.x >= block.y)
        block.x -= block.y++;
    return block;
}

#include "kernels/correlate/correlate_wgmma_share.h"

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* A baseline's sums in memory: [product][re, im]. */
struct __align__(16) baseline
{
    partial sums[8];
};

#include "kernels/correlate/correlate_wgmma_columns.h"

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* A thread's row antenna among those of the block. */
static __device__ __forceinline__ uint32_t thread_row(void)
{
    return threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
}

/* A thread's rows in a stage: [operation][half * 2 + polarisation], where a half of an operation is 16 bytes. */
struct rows {
    uint32_t plain[4][4], turned[4][4];
};

/* A thread's loads for the rows of a stage.  'there' is false for spectra beyond the end of the launch. */
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
            load = {ZERO_VOLTAGES, ZERO_VOLTAGES, ZERO_VOLTAGES, ZERO_VOLTAGES};
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
    return ant < N_ANTS;
}

/* A thread's sums of an item, as the matrix unit leaves them. */
struct products {
    partial plain[COL_ANTS], turned[COL_ANTS];
};

/* The sum of im of the columns that baseline i of a thread has; of two stages' producers. */
static __device__ __forceinline__ void find_column_sums(shared_address shared, uint32_t last_slot, int i,
                                                        int (&sums)[2])
{
    uint32_t at = (i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2) * 8;

#pragma unroll
    for (int pol = 0; pol < 2; pol++)
        sums[pol] = HALVES ? 0
                           : (int)((unsigned)load_int(sum_slot(shared, last_slot) + at + pol * 4) +
                                   (unsigned)load_int(sum_slot(shared, last_slot - 1) + at + pol * 4));
}

/* The amount that a thread adds to sum 'value' of its i-th baseline. */
static __device__ __forceinline__ partial find_product(const struct products *products, const int (&column_sums)[2],
                                                       int i, int value)
{
    int eight = i / 2, second = i % 2, pol1 = value / 2 % 2, pol2 = value / 4, turned = value % 2;
    int at = 4 * (2 * eight + pol2) + 2 * pol1 + second;

    return finish(turned ? products->turned[at] : products->plain[at], turned ? column_sums[pol2] : 0);
}

/* Where a group's sums go. */
struct target {
    struct baseline *sums; /* of the channel */
    uint32_t row_ant, column_ant;
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
        bool there = find_baseline(target->row_ant, target->column_ant, i, &at);
        find_column_sums(shared, target->last_slot, i, column_sums);
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

/* A group's state.  'at' is the stage to multiply, and 'rows' are the rows of this stage.  'ahead' is a later stage,
 * and 'loads' are the loads of that later stage. */
struct group {
    struct cursor at, ahead;
    struct rows rows;
    struct row_loads loads;
    uint32_t slot, n_slots; /* of all that the block has */
};

/* Rows times the columns of N antennas. */
template <unsigned N>
static __device__ __forceinline__ void multiply_rows(const struct group *group, shared_address shared,
                                                     struct products *products)
{
    shared_address columns = shared + group->slot % N_STAGES * STAGE_BYTES;

#pragma unroll
    for (int step = 0; step < 4; step++) {
        multiply<2 * N>(products->plain, group->rows.plain[step], columns, 0, step);
        multiply<2 * N>(products->turned, group->rows.turned[step], columns, 0, step);
    }
}

/* Multiplies the stage at hand.  Says whether the item ends, or the block's share of it. */
template <unsigned N>
static __device__ __forceinline__ bool multiply_stage(struct group *group, shared_address shared,
                                                      struct products *products)
{
    wait_for_stage(shared, group->slot);
    matrix_begin();
    multiply_rows<N>(group, shared, products);
    matrix_end();
    bool ended = advance(&group->at);
    advance(&group->ahead);
    struct places<N_LOADS> places = find_rows(&group->ahead);
    matrix_wait();
    release_slot(shared, group->slot, group->n_slots);
    group->slot++;
    make_rows(&group->loads, &group->rows);
    fetch_rows(&group->ahead, places, &group->loads);
    return ended;
}

/* A group's part of an item, or of the block's share of it. */
template <unsigned N>
static __device__ __forceinline__ void consume(struct group *group, shared_address shared, struct baseline *sums)
{
    const struct cursor began = group->at;
    struct target target;
    struct products products = {};

#pragma unroll 1
    while (!multiply_stage<N>(group, shared, &products))
        continue;
    target.sums = sums + began.chan * (uint64_t)correlate_n_baselines(N_ANTS);
    target.row_ant = began.row_ant + thread_row();
    target.column_ant = began.column_ant;
    target.last_slot = group->slot - 1;
    target.alone = began.stage == 0 && began.n_left >= began.n_stages;
    /* Once in an item: nothing that comes of this is worth a register meanwhile. */
    asm volatile("" : "+l"(target.sums), "+r"(target.row_ant), "+r"(target.column_ant));
    add_sums<N>(&target, shared, &products);
}

/* How many column antennas a group multiplies in an item, in steps of 16. */
static __device__ __forceinline__ uint32_t count_columns(const struct cursor *c)
{
    uint32_t n_ants = N_ANTS - c->column_ant;

    return n_ants < COL_ANTS ? (n_ants + 15) / 16 * 16 : COL_ANTS;
}

/* A group's share of the work. */
static __device__ __forceinline__ void consume_share(const struct correlate_args *args, shared_address shared)
{
    struct baseline *sums = (struct baseline *)args->sums.integer;
    struct group group {
    };

    if (!begin_share(&group.at, args))
        return;
    group.n_slots = group.at.n_left;
    group.ahead = group.at;
    fetch_rows(&group.ahead, find_rows(&group.ahead), &group.loads);
    make_rows(&group.loads, &group.rows);
    advance(&group.ahead);
    fetch_rows(&group.ahead, find_rows(&group.ahead), &group.loads);
    while (group.at.n_left > 0) {
        switch (count_columns(&group.at)) {
        case 16: consume<16>(&group, shared, sums); break;
        case 32: consume<32>(&group, shared, sums); break;
        case 48: consume<48>(&group, shared, sums); break;
        default: consume<64>(&group, shared, sums); break;
        }
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

#define PRODUCER_REGISTERS 64
#define GROUP_REGISTERS    192
static_assert((N_GROUPS * GROUP_REGISTERS + N_PRODUCERS * PRODUCER_REGISTERS) * GROUP_THREADS <= 65536,
              "more registers than a block has");

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[]; /* begins at a multiple of 1024 bytes, as operations need it */
    shared_address shared = find_shared(shared_memory);
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); /* the compiler sees that warps agree */

    begin_slots(shared);
    if (role >= N_GROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        produce(&args, role - N_GROUPS, shared);
    } else {
        setmaxnreg_inc<GROUP_REGISTERS>();
        consume_share(&args, shared);
    }
}
