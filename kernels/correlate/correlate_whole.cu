/* correlate_whole.cu - see correlate.h: the variant for sm_90a and 17 to 80 antennas, with the tensor cores' warpgroup
 * instructions (wgmma).  The kernel computes all baselines of these antennas.  For more antennas the kernel computes
 * the baselines within each block of 64 antennas, and correlate_wgmma.cu computes the other baselines.
 * kernels/README.md has a picture.
 *
 * Operands: rows, operand A:     first antennas a1 of baselines, plain (re, im) and turned (im, -re)
 *           columns, operand B:  second antennas a2, plain (re, im)
 *           (in correlate.cu, rows are second antennas)
 *           plain row x column:   re e1 re e2 + im e1 im e2 = the real part of e1 conj(e2)
 *           turned row x column:  im e1 re e2 - re e1 im e2 = the imaginary part
 *
 * Work:     an item is the triangle of all products of a block of antennas in one channel.  An item consists of
 *           stages of STAGE_SPECTRA spectra.  A block of threads stays on its multiprocessor, and processes one item
 *           after the other.  At the end fewer items remain than there are blocks of threads.  The blocks share these
 *           items stage by stage (correlate_wgmma_share.h).
 *
 * Roles:    warpgroups 2 and 3, the producers, process alternate stages.  Producers load the voltages of the block's
 *           antennas once, and store them in shared memory in wgmma's layout of operand B.  Each input has a column of
 *           128 bytes.  Eight columns belong to four antennas: [pol][antenna % 4].  Spectra may have any order, if
 *           all inputs have the same order.  The 16 bytes of an input that a thread has loaded stay together.
 *           Warpgroups 0 and 1, the consumers ('groups'), multiply.  A tile has 16 row antennas.  A tile's columns
 *           are the antenna of its first row and all later antennas.  So products above the diagonal are computed
 *           only within tiles of 16 x 16.  Each consumer has some of the tiles, with about half of the products.  A
 *           warp multiplies eight of the tile's inputs, both as plain rows and as turned rows.
 *
 * Rows:     a warp reads plain rows from among the columns into registers (ldmatrix) and turns them there.  wgmma reads
 *           both kinds of rows from registers.  Shared memory is about as busy as the tensor cores.  So turned rows are
 *           neither stored in shared memory nor read from it.
 * Sums:     two lanes exchange parts.  Then a lane has the real or the imaginary part of one product of polarisations.
 *           The lanes of a warp have 128 consecutive bytes of memory.
 *
 * Integers and floats: as in correlate_wgmma.cu.
 *
 * Blocks: blockIdx.x is the number of the block's share of the work.
 * Constants: BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS (create_part() in correlate_shape.c). */
#include "kernels/correlate/correlate.h"

#define correlate_whole_args correlate_args

#define N_TILES    (N_ANTS > 80 ? 4 : (N_ANTS + TILE_ANTS - 1) / TILE_ANTS) /* tiles of a block */
/* number of tiles of the last block of antennas */
#define LAST_TILES ((N_ANTS - 1) % ROW_ANTS / TILE_ANTS + 1)
#define ROW_ANTS   (N_TILES * TILE_ANTS)
#define COL_ANTS   ROW_ANTS
#define N_STAGES   (N_TILES < 3 ? 16 : (48 + N_TILES - 1) / N_TILES) /* number of stages that fit in 200 KiB */

#include "kernels/correlate/correlate_wgmma_formats.h"

/* These headers use the sizes above.  Each header uses the headers before it (kernels/README.md lists the names). */
#include "kernels/correlate/correlate_wgmma_slots.h"

#include "kernels/correlate/correlate_wgmma_unit.h"

/* An item has one block of antennas.  Returns this block's number for item 'number' of a channel.  x (rows) and y
 * (columns) are the same block. */
static __device__ __forceinline__ uint2 find_block(uint32_t number)
{
    return {number, number};
}

#include "kernels/correlate/correlate_wgmma_share.h"

/* Returns the number of tiles of an item. */
static __device__ __forceinline__ uint32_t count_tiles(const struct cursor *c)
{
    return LAST_TILES < N_TILES && c->row_ant == (N_BLOCKS - 1) * ROW_ANTS ? LAST_TILES : N_TILES;
}

/* ---- The producers ----------------------------------------------------------------------------------------------- */

/* A producer's loads.  In every tile of 16 antennas a thread loads 16 bytes of one antenna, once or twice per stage.
 * Eight lanes load 128 consecutive bytes of memory. */

struct columns {
    uint4 loads[N_TILES][N_TASKS]; /* indices [tile][load] */
    uint32_t n_tiles;
    bool there[N_TASKS];  /* index [load] */
    int sums[N_TILES][2]; /* indices [tile][pol]: sums of im over the stages of an item so far */
};

/* Returns a thread's antenna of a tile. */
static __device__ __forceinline__ uint32_t lane_ant(void)
{
    return threadIdx.x % GROUP_THREADS / 8;
}

static __device__ __forceinline__ void fetch_columns(const struct cursor *c, struct columns *columns)
{
    uint32_t ant = c->row_ant + lane_ant(), lane = threadIdx.x % 8 * LOAD_SPECTRA;

    columns->n_tiles = count_tiles(c);
    load_voltages<N_TASKS, N_TILES, TILE_ANTS>(find_places<N_TASKS>(c, ant, 8 * LOAD_SPECTRA, lane), ant,
                                               columns->loads);
#pragma unroll
    for (int task = 0; task < N_TASKS; task++)
        columns->there[task] = find_unit(c, task * 8 * LOAD_SPECTRA, 8 * LOAD_SPECTRA, lane) < c->n_units;
}

/* Stores a thread's voltages of a tile.  'to' is the address of the thread's chunk for polarisation 0 in the tile. */
static __device__ __forceinline__ void put_tile(shared_address to, const uint4 (&loads)[N_TASKS], int (&sums)[2])
{
    uint32_t words[2][4];

#pragma unroll
    for (int task = 0; task < N_TASKS; task++)
#pragma unroll
        for (int piece = 0; piece < LOAD_PIECES; piece++) {
            int i = task * LOAD_PIECES + piece;
            separate(loads[task], piece, &words[0][i], &words[1][i]);
        }
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        store_words(to + pol * (4 * COLUMN_BYTES + (threadIdx.x % 8 & 4 ? -64 : 64)), words[pol]);
#if !HALVES
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[pol] = __dp4a((int)words[pol][i], 0x01000100, sums[pol]);
#endif
    }
}

/* Returns the offset of a thread's chunk in a stage, for polarisation 0 and the first tile. */
static __device__ __forceinline__ uint32_t find_place(void)
{
    uint32_t row = lane_ant() % 4, chunk = threadIdx.x % 8 ^ row;

    return lane_ant() / 4 * SWIZZLE_ATOM_BYTES + row * COLUMN_BYTES + chunk * 16;
}

static __device__ __forceinline__ void put_columns(struct columns *columns, shared_address to)
{
#pragma unroll
    for (int task = 0; task < N_TASKS; task++)
        /* loads beyond the end are so rare that a branch is faster than select instructions */
        if (!columns->there[task]) {
            asm volatile("");
#pragma unroll
            for (uint32_t tile = 0; tile < N_TILES; tile++)
                columns->loads[tile][task] = {ZERO_VOLTAGES, ZERO_VOLTAGES, ZERO_VOLTAGES, ZERO_VOLTAGES};
        }
#pragma unroll
    for (uint32_t tile = 0; tile < N_TILES; tile++)
        if (tile < columns->n_tiles)
            put_tile(to + tile * TILE_BYTES, columns->loads[tile], columns->sums[tile]);
}

/* The caller has stored a producer's last stage of an item.  Stores the sums of the columns, [pol][antenna], in the
 * slot of this stage.  Zeroes the sums. */
static __device__ __forceinline__ void put_column_sums(struct columns *columns, shared_address to)
{
#pragma unroll
    for (uint32_t tile = 0; tile < N_TILES; tile++)
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            int sum = columns->sums[tile][pol];
            for (int lanes = 1; lanes < 8; lanes *= 2)
                sum += __shfl_xor_sync(~0u, sum, lanes);
            if (threadIdx.x % 8 == 0)
                store_word(to + (pol * COL_ANTS + tile * TILE_ANTS + lane_ant()) * 4, (uint32_t)sum);
            columns->sums[tile][pol] = 0;
        }
}

#define BASELINE_SUMS 8 /* [product][re, im] */
#define CHAN_SUMS     (correlate_n_baselines(N_ANTS) * BASELINE_SUMS)

/* Returns the index of an item's first sum.  This sum belongs to the baseline of the item's first antenna with itself.
 * find_baseline() returns the offset of baseline (a1, a2) from the first sum.  a1 and a2 count from the item's first
 * antenna. */
static __device__ __forceinline__ uint64_t find_corner(const struct cursor *c)
{
    return c->chan * (uint64_t)CHAN_SUMS + c->row_ant * (uint64_t)(c->row_ant + 3) / 2 * BASELINE_SUMS;
}

static __device__ __forceinline__ uint32_t find_baseline(uint32_t row_ant, uint32_t a1, uint32_t a2)
{
    return (a2 * (a2 + 1) / 2 + a2 * row_ant + a1) * BASELINE_SUMS;
}

/* Fetches an item's sums into the L2 cache before the consumers add to them. */
static __device__ __forceinline__ void prefetch_sums(const struct cursor *c, const partial *sums)
{
    const uint32_t line = 128 / (BASELINE_SUMS * sizeof(*sums)), n_lines = ROW_ANTS / line;

    sums += find_corner(c);
#pragma unroll 1
    for (uint32_t i = threadIdx.x % GROUP_THREADS; i < COL_ANTS * n_lines; i += GROUP_THREADS) {
        uint32_t a2 = i / n_lines, a1 = i % n_lines * line;
        if (a1 <= a2 && c->row_ant + a2 < N_ANTS)
            prefetch(sums + find_baseline(c->row_ant, a1, a2));
    }
}

/* Number of stages that are left when the kernel fetches the sums.  With fewer stages the sums would arrive late.  With
 * more stages the sums would leave the L2 cache again. */
#define PREFETCHED_STAGES 8

/* Loads a producer's stages of the block's share: every second stage, beginning with stage 'number'. */
static __device__ __forceinline__ void produce(const struct correlate_args *args, uint32_t number,
                                               shared_address shared)
{
    const partial *sums = (const partial *)args->sums.integer;
    uint32_t place = find_place();
    struct columns columns = {};
    struct cursor at;

    if (!begin_share(&at, args))
        return;
    uint32_t n_slots = at.n_left, prefetched = at.n_stages > PREFETCHED_STAGES ? at.n_stages - PREFETCHED_STAGES : 0;
    for (uint32_t i = 0; i < number; i++)
        advance(&at);
    fetch_columns(&at, &columns);
#pragma unroll 1
    for (uint32_t slot = number; slot < n_slots; slot += N_PRODUCERS) {
        wait_for_slot(shared, slot);
        put_columns(&columns, shared + slot % N_STAGES * STAGE_BYTES + place);
        if (!HALVES && is_last(&at))
            put_column_sums(&columns, sum_slot(shared, slot));
        if (at.stage == prefetched)
            prefetch_sums(&at, sums);
        advance_producer(&at);
        fetch_columns(&at, &columns); /* start the loads before the fence, because the fence waits for stores */
        fence_proxy_async();
        hand_over_slot(shared, slot);
    }
}

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* Returns the consumer of tile 'tile' of n_tiles.  The tiles are assigned from the longest to the shortest.  Each tile
 * goes to the consumer that has fewer products so far. */
static __device__ constexpr unsigned find_group(unsigned tile, unsigned n_tiles)
{
    unsigned n[N_GROUPS] = {}, group = 0;

    for (unsigned i = 0; i <= tile; i++) {
        group = n[1] < n[0];
        n[group] += n_tiles - i;
    }
    return group;
}

/* Returns the index of the first sum of tile 'tile' among a consumer's sums.  With tile = n_tiles, returns the number
 * of the consumer's sums. */
static __device__ constexpr unsigned find_sums(unsigned group, unsigned tile, unsigned n_tiles)
{
    unsigned n = 0;

    for (unsigned i = 0; i < tile; i++)
        if (find_group(i, n_tiles) == group)
            n += 16 * (n_tiles - i);
    return n;
}

/* Returns the number of a consumer's tiles out of n_tiles. */
static __device__ constexpr unsigned count_group_tiles(unsigned group, unsigned n_tiles)
{
    unsigned n = 0;

    for (unsigned i = 0; i < n_tiles; i++)
        n += find_group(i, n_tiles) == group;
    return n;
}

/* Returns the number of sets of rows that a consumer has in registers.  A set is the rows of one tile for half a
 * stage (two steps).  The tensor cores work on all sets except the set that is being loaded.  The number of sets that
 * a consumer uses for a stage is a multiple of the number of sets in registers.  Otherwise the assembler would need
 * more registers. */
static __device__ constexpr unsigned count_ahead(unsigned group, unsigned n_tiles)
{
    unsigned n = count_group_tiles(group, n_tiles);

    return n == 3 ? 3 : 2 * n;
}

/* Each lane loads 16 bytes of a row for its warp.  Returns the offset of these bytes in a tile, for the first half of a
 * stage. */
static __device__ __forceinline__ uint32_t find_row(void)
{
    uint32_t warp = threadIdx.x % GROUP_THREADS / 32, row = threadIdx.x % 8, chunk = threadIdx.x % 32 / 8 ^ row;

    return warp * SWIZZLE_ATOM_BYTES + row * COLUMN_BYTES + chunk * 16;
}

/* Multiplies the rows of 16 antennas with the columns of N antennas for half a stage.  The columns' antennas are the
 * rows' antennas and later ones.  Rows and columns begin at byte 'at' of the stage.  'sums' is [column / 8][row i, row
 * i + 8][column % 2]. */
template <unsigned N>
static __device__ __forceinline__ void multiply_half(partial *sums, shared_address stage, unsigned at, uint32_t row,
                                                     unsigned half)
{
    uint32_t plain[4], rows[2][4];

    load_matrices(plain, stage + at + (row ^ half * 64));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        rows[i / 2][i % 2 * 2] = plain[i];
        rows[i / 2][i % 2 * 2 + 1] = turn(plain[i]);
    }
    matrix_begin();
#pragma unroll
    for (unsigned i = 0; i < 2; i++)
        multiply<2 * N>(sums, rows[i], stage, at, 2 * half + i);
    matrix_end();
}

/* Multiplies the rows by the columns of half a stage, for the consumer's tiles from TILE to N - 1.  A tile's columns
 * begin with the tile's own antennas. */
template <unsigned GROUP, unsigned N, unsigned TILE = 0>
static __device__ __forceinline__ void multiply_tiles(shared_address stage, uint32_t row, unsigned half, partial *sums)
{
    if constexpr (TILE < N) {
        if constexpr (find_group(TILE, N) == GROUP) {
            matrix_wait<count_ahead(GROUP, N) - 1>();
            multiply_half<TILE_ANTS *(N - TILE)>(sums + find_sums(GROUP, TILE, N), stage, TILE * TILE_BYTES, row, half);
        }
        multiply_tiles<GROUP, N, TILE + 1>(stage, row, half, sums);
    }
}

/* A thread's part of some sums.  The sums are the products of one row with four column antennas.  Four threads share
 * these sums.  After wgmma the thread has the sums of two of these antennas, in polarisation 'column_pol'.  After
 * exchange() the thread has one part, real or imaginary, of the sums of all four antennas.  The thread adds this part
 * to memory. */
struct quarter {
    uint32_t lane, row_ant, column_pol, part;
};

static __device__ __forceinline__ struct quarter find_quarter(void)
{
    /* opaque(), so that the compiler does not keep the value in a register; it is used once per item */
    uint32_t thread = opaque(threadIdx.x % GROUP_THREADS);
    uint32_t lane = thread % 32;

    return {lane, thread / 32 * 4 + lane / 4 % 4, lane % 4 / 2, lane % 2};
}

/* Returns the sums of the imaginary parts of a thread's two columns, over both producers.  The columns belong to two
 * of four consecutive antennas.  'first_ant' is the first of the four antennas.  The products of turned rows lack these
 * sums, because turned rows have ~re instead of -re. */
static __device__ __forceinline__ int2 find_lacking(const struct quarter *quarter, uint32_t first_ant,
                                                    shared_address slot, shared_address slot_before)
{
#if HALVES
    return {0, 0};
#else
    uint32_t at = (quarter->column_pol * COL_ANTS + first_ant + quarter->part * 2) * 4;
    int2 one = load_ints(slot + at), other = load_ints(slot_before + at);

    return {(int)((unsigned)one.x + (unsigned)other.x), (int)((unsigned)one.y + (unsigned)other.y)};
#endif
}

/* Exchanges sums between two threads.  Before the exchange each thread has the sums [row i, row i + 8][column % 2].
 * After the exchange each thread has one part, real or imaginary, of the products with each of four antennas.  The
 * first thread gets the real parts, the second thread the imaginary parts.  So the sums that a warp adds with one
 * instruction are consecutive in memory. */
static __device__ __forceinline__ void exchange(const partial *sums, int2 lacking, uint32_t part, partial (&parts)[4])
{
    partial re[2] = {finish(sums[0], 0), finish(sums[1], 0)};
    partial im[2] = {finish(sums[2], lacking.x), finish(sums[3], lacking.y)};

#pragma unroll
    for (int i = 0; i < 2; i++) {
        partial other = __shfl_xor_sync(~0u, part ? re[i] : im[i], 1);
        parts[i] = part ? other : re[i];
        parts[2 + i] = part ? im[i] : other;
    }
}

#define EIGHTS_AT_ONCE 4 /* number of groups of 8 columns that a thread adds at a time; a group is four antennas */

/* Place in memory to which a consumer adds the sums of an item. */
struct target {
    partial *corner; /* first sum of the block's first baseline */
    uint32_t row_ant;
    shared_address column_sums, more; /* sums of the columns, in the last two slots */
};

/* Adds the sums of tile TILE of N to memory with atomics.  The kernel uses atomics even if no other block has sums of
 * this item, because then no thread waits for the old sums. */
template <unsigned N, unsigned TILE>
static __device__ __forceinline__ void add_tile(const struct target *target, const partial *sums)
{
    const struct quarter quarter = find_quarter();
    uint32_t a1 = TILE * TILE_ANTS + quarter.row_ant;
    partial *row = target->corner + quarter.lane / 16 * 2 + quarter.column_pol * 4 + quarter.part;

#pragma unroll
    for (uint32_t first = 0; first < 4 * (N - TILE); first += EIGHTS_AT_ONCE) {
        int2 lacking[EIGHTS_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < EIGHTS_AT_ONCE; i++)
            lacking[i] = find_lacking(&quarter, TILE * TILE_ANTS + (first + i) * 4, target->column_sums, target->more);
#pragma unroll
        for (uint32_t i = 0; i < EIGHTS_AT_ONCE; i++) {
            partial parts[4];
            exchange(&sums[4 * (first + i)], lacking[i], quarter.part, parts);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t a2 = TILE * TILE_ANTS + (first + i) * 4 + j;
                if (target->row_ant + a2 < N_ANTS && (first + i >= TILE_ANTS / 4 || a1 <= a2))
                    atomicAdd(row + find_baseline(target->row_ant, a1, a2), parts[j]);
            }
        }
        asm volatile("" ::: "memory"); /* limits the number of registers that are in use at a time */
    }
}

/* Adds the sums of a consumer's tiles to memory, beginning with tile TILE of N. */
template <unsigned GROUP, unsigned N, unsigned TILE = 0>
static __device__ __forceinline__ void add_tiles(const struct target *target, const partial *sums)
{
    if constexpr (TILE < N) {
        if constexpr (find_group(TILE, N) == GROUP)
            add_tile<N, TILE>(target, sums + find_sums(GROUP, TILE, N));
        add_tiles<GROUP, N, TILE + 1>(target, sums);
    }
}

/* Computes a consumer's part of an item of N tiles.  If several blocks share the item, computes only the stages of
 * this block.  'slot' is the item's first slot.  Returns the slot after the last one. */
template <unsigned GROUP, unsigned N>
static __device__ __forceinline__ uint32_t consume(struct cursor *at, uint32_t slot, uint32_t n_slots,
                                                   shared_address shared, partial *sums)
{
    const unsigned n_products = find_sums(GROUP, N, N);
    partial products[n_products > 0 ? n_products : 1] = {};
    uint32_t n = at->n_left < at->n_stages - at->stage ? at->n_left : at->n_stages - at->stage;
    uint32_t first = slot, end = slot + n, row = find_row();

#pragma unroll 1
    for (; slot < end; slot++) {
        wait_for_stage(shared, slot);
#pragma unroll
        for (unsigned half = 0; half < 2; half++)
            multiply_tiles<GROUP, N>(shared + slot % N_STAGES * STAGE_BYTES, row, half, products);
        if (slot > first) /* the tensor cores have finished the previous stage */
            release_slot(shared, slot - 1, n_slots);
    }
    matrix_wait();
    release_slot(shared, end - 1, n_slots);
    struct target target = {sums + find_corner(at), at->row_ant, sum_slot(shared, end - 1), sum_slot(shared, end - 2)};
    add_tiles<GROUP, N>(&target, products);
    return end;
}

/* Computes a consumer's share of the work. */
template <unsigned GROUP>
static __device__ __forceinline__ void consume_share(const struct correlate_args *args, shared_address shared)
{
    partial *sums = (partial *)args->sums.integer;
    struct cursor at;

    if (!begin_share(&at, args))
        return;
    uint32_t slot = 0, n_slots = at.n_left;
    while (at.n_left > 0) {
        if (count_tiles(&at) == N_TILES)
            slot = consume<GROUP, N_TILES>(&at, slot, n_slots, shared, sums);
        else
            slot = consume<GROUP, LAST_TILES>(&at, slot, n_slots, shared, sums);
        next_item(&at);
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

#define PRODUCER_REGISTERS 72
#define GROUP_REGISTERS    184
static_assert((N_GROUPS * GROUP_REGISTERS + N_PRODUCERS * PRODUCER_REGISTERS) * GROUP_THREADS <= 65536,
              "the warpgroups need more registers than a block has");

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_whole(const struct correlate_whole_args args)
{
    extern __shared__ float4 shared_memory[]; /* starts at a multiple of 1024 bytes, as wgmma requires */
    shared_address shared = find_shared(shared_memory);
    /* shows the compiler that all lanes have one value */
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0);

    begin_slots(shared);
    if (role >= N_GROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        produce(&args, role - N_GROUPS, shared);
    } else {
        setmaxnreg_inc<GROUP_REGISTERS>();
        if (role == 0)
            consume_share<0>(&args, shared);
        else
            consume_share<1>(&args, shared);
    }
}
