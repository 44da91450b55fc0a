/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a and more than 80 antennas, with the tensor cores'
 * warpgroup instructions (wgmma).  This kernel computes the baselines between blocks of 64 antennas; correlate_whole.cu
 * computes the baselines within these blocks.  kernels/README.md has a picture, and lists the sizes that must agree.
 *
 * Operands: rows, operand A:     first antennas a1 of baselines, plain (re, im) and turned (im, -re)
 *           columns, operand B:  second antennas a2, plain (re, im)
 *           (in correlate.cu, rows are second antennas)
 *           plain row x column:   re e1 re e2 + im e1 im e2 = the real part of e1 conj(e2)
 *           turned row x column:  im e1 re e2 - re e1 im e2 = the imaginary part
 *
 * Work:     an item is the products of the ROW_ANTS first antennas of a block of antennas with the COL_ANTS second
 *           antennas of a later block of antennas, in one channel.  The size of an item is fixed: 64 x 64 antennas.
 *           Rows are always complete, because a later block follows.  In the array's last block only the columns are
 *           trimmed, in steps of 16 antennas (count_columns()).  An item consists of stages of STAGE_SPECTRA spectra.
 *           A block of threads stays on its multiprocessor, and processes one item after the other.  At the end fewer
 *           items remain than there are blocks of threads.  The blocks of threads share these items stage by stage,
 *           and add to memory with atomics.
 *
 * Roles:    warpgroups 0 and 1, the consumers ('groups'), have 32 row antennas each.  Consumers load the voltages of
 *           these antennas from memory straight into registers.  wgmma reads operand A from there.  The registers of a
 *           piece for the two polarisations are rows i and i + 8 of the 16 rows that a warp multiplies.  Warpgroups 2
 *           and 3, the producers, process alternate stages.  Producers load the voltages of the column antennas, and
 *           store them in shared memory in wgmma's layout of operand B: a column for each input.
 *
 * Order:    the spectra within an operation may have any order, if rows and columns have the same order.  Thread t of
 *           four has 16 consecutive bytes of an antenna.  These bytes are the thread's part of consecutive 'pieces'.
 *           A piece is half an operation.  The columns may also have any order: here the antenna modulo 8 varies
 *           fastest.  So a thread ends up with whole baselines, and the stores of a warp to shared memory have no
 *           bank conflicts.
 *
 * Loads:    all loads are for a warp's next stage.  In a loop, a warp that waits for one load waits for all its loads,
 *           because the assembler counts them together.  So a block needs more warps to load further ahead.  With two
 *           producers, each producer loads every second stage, and so has the time of two stages to load one.  While
 *           one consumer prepares its rows, the other consumer uses the tensor cores.
 *
 * Integers: turned rows have ~re = -re - 1 instead of -re, because the negative of -128 would overflow.  So the sums
 *           lack the sum of im of the column.  The producers compute this sum, and the consumers add it at the end.
 *           Samples of 4 bits are widened to 16 times their value.  So sums are 256 times too large, and are shifted
 *           back at the end.  Partial sums are int32, which hold 65 535 spectra of full scale.
 * Floats:   partial sums are float32.
 *
 * Blocks: blockIdx.x is the number of the block's share of the work.
 * Constants: BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS (create_part() in correlate_shape.c). */
#include "kernels/correlate/correlate.h"

#define correlate_wgmma_args correlate_args

#define ROW_ANTS 64
#define COL_ANTS 64 /* 128 columns: a column is an input, so 16 antennas have 32 columns */
#define N_TILES  (COL_ANTS / TILE_ANTS)
#define N_STAGES 8

#include "kernels/correlate/correlate_wgmma_formats.h"

/* These headers use the sizes above.  Each header uses the headers before it (kernels/README.md lists the names). */
#include "kernels/correlate/correlate_wgmma_slots.h"

#include "kernels/correlate/correlate_wgmma_unit.h"

/* An item joins two blocks of antennas.  Returns the numbers of the two blocks for item 'number' of a channel.  x is
 * the block of the row antennas, and y > x is the block of the column antennas.  The pairs are counted in the order
 * (0, 1), (0, 2), (1, 2), (0, 3) ... */
static __device__ __forceinline__ uint2 find_block(uint32_t number)
{
    uint2 block = {number, 1};

    while (block.x >= block.y)
        block.x -= block.y++;
    return block;
}

#include "kernels/correlate/correlate_wgmma_share.h"

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* Sums of a baseline in memory: [product][re, im]. */
struct __align__(16) baseline
{
    partial sums[8];
};

#include "kernels/correlate/correlate_wgmma_columns.h"

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* Returns a thread's row antenna within the block. */
static __device__ __forceinline__ uint32_t thread_row(void)
{
    return threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
}

/* A thread's fragments of operand A in a stage: [operation][half * 2 + polarisation].  Half an operation is 16
 * bytes. */
struct rows {
    uint32_t plain[4][4], turned[4][4];
};

/* A thread's loads for the rows of a stage.  'there' is false if the load's spectra are beyond the last spectrum of
 * the launch. */
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
                asm volatile(""); /* loads beyond the end are so rare that a branch is faster */
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

/* Finds the index of a thread's i-th baseline.  A baseline joins the thread's row antenna with one of the column
 * antennas.  The column antennas begin with 'column_ant'.  Returns true if the baseline exists. */
static __device__ __forceinline__ bool find_baseline(uint32_t row_ant, uint32_t column_ant, int i, uint32_t *baseline)
{
    uint32_t ant = column_ant + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;

    *baseline = ant * (ant + 1) / 2 + row_ant;
    return ant < N_ANTS;
}

/* A thread's sums of an item in wgmma's order, re and im: [column antenna / 8][p2][p1][column antenna % 2]. */
struct products {
    partial plain[COL_ANTS], turned[COL_ANTS];
};

/* Finds the sums of the imaginary parts of two columns: sums[p2].  The columns are the polarisations p2 of the column
 * antenna in a thread's i-th baseline.  The sums cover the stages of both producers. */
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

/* A thread adds a number to each of a baseline's eight sums in memory.  Returns this number for sum 'value' of the
 * thread's i-th baseline. */
static __device__ __forceinline__ partial find_product(const struct products *products, const int (&column_sums)[2],
                                                       int i, int value)
{
    int eight = i / 2, second = i % 2, pol1 = value / 2 % 2, pol2 = value / 4, turned = value % 2;
    int at = 4 * (2 * eight + pol2) + 2 * pol1 + second;

    return finish(turned ? products->turned[at] : products->plain[at], turned ? column_sums[pol2] : 0);
}

/* Place in memory to which a consumer adds its sums. */
struct target {
    struct baseline *sums; /* first sum of the channel */
    uint32_t row_ant, column_ant;
    uint32_t last_slot;
    bool alone; /* true if no other block adds sums of this item */
};

/* Adds a thread's sums to memory: the sums of its row antenna with N column antennas. */
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
        asm volatile("" ::: "memory"); /* limits the number of registers that are in use at a time */
    }
}

/* A consumer's state.  'at' is the stage to multiply, and 'rows' has the rows of this stage.  'ahead' is a later stage,
 * and 'loads' has the loads of that later stage. */
struct group {
    struct cursor at, ahead;
    struct rows rows;
    struct row_loads loads;
    uint32_t slot, n_slots; /* current slot, and number of slots of the block's share */
};

/* Multiplies a consumer's rows with the columns of N antennas. */
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

/* Multiplies the rows by the columns of the current stage.  Then makes the rows of the next stage.  Returns true if the
 * multiplied stage is the last stage of the item, or of the block's part of the item. */
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

/* Computes a consumer's part of an item.  If several blocks share the item, computes only the stages of this block. */
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
    /* These values are used once per item, so the compiler should not keep them in registers. */
    asm volatile("" : "+l"(target.sums), "+r"(target.row_ant), "+r"(target.column_ant));
    add_sums<N>(&target, shared, &products);
}

/* Returns the number of column antennas that a consumer multiplies for each item; the number is a multiple of 16. */
static __device__ __forceinline__ uint32_t count_columns(const struct cursor *c)
{
    uint32_t n_ants = N_ANTS - c->column_ant;

    return n_ants < COL_ANTS ? (n_ants + 15) / 16 * 16 : COL_ANTS;
}

/* Computes a consumer's share of the work. */
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
        default: consume<64>(&group, shared, sums); break; /* COL_ANTS */
        }
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

#define PRODUCER_REGISTERS 64
#define GROUP_REGISTERS    192
static_assert((N_GROUPS * GROUP_REGISTERS + N_PRODUCERS * PRODUCER_REGISTERS) * GROUP_THREADS <= 65536,
              "the warpgroups need more registers than a block has");

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[]; /* starts at a multiple of 1024 bytes, as wgmma requires */
    shared_address shared = find_shared(shared_memory);
    /* tells the compiler that all lanes have the same value */
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);

    begin_slots(shared);
    if (role >= N_GROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        produce(&args, role - N_GROUPS, shared);
    } else {
        setmaxnreg_inc<GROUP_REGISTERS>();
        consume_share(&args, shared);
    }
}
