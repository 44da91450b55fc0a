/* correlate_wgmma_columns.h - the producers of correlate_wgmma.cu, which copy columns from memory to shared memory.
 *
 * Include this file after the other correlate_wgmma headers and struct baseline. */
#ifndef KERNELS_CORRELATE_CORRELATE_WGMMA_COLUMNS_H
#define KERNELS_CORRELATE_CORRELATE_WGMMA_COLUMNS_H

/* A warp processes antennas in groups of 4.  Each of the four warps has one group of every 16 antennas, so the warps
 * have equally many groups.  Eight lanes load 128 bytes of an antenna at a time.  Each lane loads 16 bytes.  In an
 * operation, four threads have the bytes of a row.  Lanes t and t + 4 load the columns' bytes that match the row's
 * bytes of thread t.  The antennas of a group are chosen so that a warp's stores have no bank conflicts.  Columns:
 * [antenna / 8][pol][antenna % 8].  The 16-byte chunks of a column are swizzled by the column's number modulo 8. */
#define EIGHT_COLUMNS 16 /* number of columns (inputs) of eight antennas */

static __device__ __forceinline__ uint32_t producing_warp(void)
{
    return threadIdx.x % GROUP_THREADS / 32;
}

/* Returns the antenna of a thread, modulo 8.  The result is the same for all groups. */
static __device__ __forceinline__ uint32_t lane_ant(void)
{
    uint32_t ant = threadIdx.x % 32 / 8, odd = producing_warp() % 2;

    return NIBBLES ? ant + odd * 4 : ant % 2 + ant / 2 * 4 + odd * 2;
}

/* Returns the number of groups that a warp loads for the item's columns. */
static __device__ __forceinline__ uint32_t count_groups(const struct cursor *c)
{
    uint32_t n_ants = N_ANTS - c->column_ant;

    return n_ants < COL_ANTS ? (n_ants + 15) / 16 : N_TILES;
}

/* A thread stores words of several groups in a stage.  Returns the offset of the first word of the thread's first
 * group, for polarisation 0. */
static __device__ __forceinline__ uint32_t find_place(void)
{
    uint32_t column = producing_warp() / 2 * EIGHT_COLUMNS + lane_ant();
    uint32_t chunk = (threadIdx.x % 8 / 4 * LOAD_PIECES) ^ lane_ant();

    return column * COLUMN_BYTES + chunk * 16 + threadIdx.x % 4 * 4;
}

/* Stores the voltages of one load of a group in shared memory.  Adds the imaginary parts of the antenna's two columns
 * to 'sums' [pol]. */
static __device__ __forceinline__ void put_task(shared_address stage, uint32_t place, uint32_t group, int task,
                                                uint4 load, int (&sums)[2])
{
#pragma unroll
    for (int piece = 0; piece < LOAD_PIECES; piece++) {
        uint32_t words[2], chunk = task * 2 * LOAD_PIECES + piece;
        shared_address to = stage + group * 2 * EIGHT_COLUMNS * COLUMN_BYTES + (place ^ chunk * 16);
        separate(load, piece, &words[0], &words[1]);
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            store_word(to + pol * 8 * COLUMN_BYTES, words[pol]);
#if !HALVES
            sums[pol] = __dp4a((int)words[pol], 0x01000100, sums[pol]);
#endif
        }
    }
}

/* Fetches an item's sums into the L2 cache before the consumers add to them.  The sums of a column antenna with all row
 * antennas are consecutive. */
static __device__ __forceinline__ void prefetch_sums(uint32_t chan, uint32_t row_ant, uint32_t column_ant,
                                                     const struct baseline *sums)
{
    /* opaque() prevents the compiler from keeping the value in a register; the value is used once per item */
    uint32_t thread = opaque(threadIdx.x % GROUP_THREADS);
    /* index of the first of the 4 baselines that 128 bytes hold */
    uint32_t line = thread % 16 * 4;

    sums += chan * (uint64_t)correlate_n_baselines(N_ANTS) + row_ant + line;
#pragma unroll 1
    for (uint32_t i = thread / 16; i < COL_ANTS; i += GROUP_THREADS / 16) {
        uint32_t ant = column_ant + i;
        if (ant < N_ANTS)
            prefetch(&sums[ant * (ant + 1) / 2]);
    }
}

/* A producer's outstanding loads of a stage, and the sums of the imaginary parts of each column.  The sums cover the
 * stages of the item that the producer has stored so far. */
struct columns {
    uint4 loads[N_TILES][N_TASKS]; /* indices [group of 4 antennas][load] */
    uint32_t n_groups;
    int sums[N_TILES][2]; /* indices [group][pol] */
};

static __device__ __forceinline__ void fetch_columns(const struct cursor *c, struct columns *columns)
{
    uint32_t ant = c->column_ant + producing_warp() / 2 * 8 + lane_ant();

    columns->n_groups = count_groups(c);
    load_voltages<N_TASKS, N_TILES, 16>(find_places<N_TASKS>(c, ant, 8 * LOAD_SPECTRA, threadIdx.x % 8 * LOAD_SPECTRA),
                                        ant, columns->loads);
}

static __device__ __forceinline__ void put_columns(struct columns *columns, shared_address stage, uint32_t place)
{
#pragma unroll
    for (uint32_t group = 0; group < N_TILES; group++) {
        if (group < columns->n_groups) {
#pragma unroll
            for (int task = 0; task < N_TASKS; task++)
                put_task(stage, place, group, task, columns->loads[group][task], columns->sums[group]);
        }
    }
}

/* The caller has stored a producer's last stage of an item.  Stores the sums of the columns, [antenna][pol], in the
 * slot of this stage.  Zeroes the sums. */
static __device__ __forceinline__ void put_column_sums(struct columns *columns, shared_address to)
{
#pragma unroll
    for (uint32_t group = 0; group < N_TILES; group++)
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            int sum = columns->sums[group][pol];
            for (int lanes = 1; lanes < 8; lanes *= 2)
                sum += __shfl_xor_sync(~0u, sum, lanes);
            if (threadIdx.x % 8 == 0)
                store_word(to + (group * 16 + producing_warp() / 2 * 8 + lane_ant()) * 8 + pol * 4, (uint32_t)sum);
            columns->sums[group][pol] = 0;
        }
}

/* Moves the cursor as advance() does.  When all stages of an item have been requested, also fetches the item's sums. */
static __device__ __forceinline__ void advance_prefetching(struct cursor *c, const struct baseline *sums)
{
    uint32_t chan = c->chan, row_ant = c->row_ant, column_ant = c->column_ant;

    if (c->n_left > 0 && advance(c))
        prefetch_sums(chan, row_ant, column_ant, sums);
}

/* Loads a producer's stages.  The producer has every second stage of the block's share, beginning with stage
 * 'number'. */
static __device__ __forceinline__ void produce(const struct correlate_args *args, uint32_t number,
                                               shared_address shared)
{
    const struct baseline *sums = (const struct baseline *)args->sums.integer;
    uint32_t place = find_place();
    struct columns columns = {};
    struct cursor at;

    if (!begin_share(&at, args))
        return;
    uint32_t n_slots = at.n_left;
    for (uint32_t i = 0; i < number; i++)
        advance(&at);
    fetch_columns(&at, &columns);
#pragma unroll 1
    for (uint32_t slot = number; slot < n_slots; slot += N_PRODUCERS) {
        wait_for_slot(shared, slot);
        put_columns(&columns, shared + slot % N_STAGES * STAGE_BYTES, place);
        if (!HALVES && is_last(&at))
            put_column_sums(&columns, sum_slot(shared, slot));
        fence_proxy_async();
        hand_over_slot(shared, slot);
        for (uint32_t i = 0; i < N_PRODUCERS; i++) {
            if (number == 0)
                advance_prefetching(&at, sums);
            else
                advance(&at);
        }
        fetch_columns(&at, &columns);
    }
}

#endif
