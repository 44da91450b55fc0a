/* correlate_wgmma_share.h - one block's share of the work of correlate_wgmma.cu or correlate_whole.cu: stages of items,
 * and the addresses of their voltages.
 *
 * Include this file after correlate_wgmma_formats.h, ROW_ANTS, COL_ANTS and find_block().  The including file defines
 * uint2 find_block(uint32_t number).  'number' is the number of an item within its channel, below N_BLOCKS.
 * find_block() returns (x, y).  x is the number of a block of row antennas, and y is the number of a block of column
 * antennas.  The item's first row antenna is x * ROW_ANTS, and the item's first column antenna is y * COL_ANTS. */
#ifndef KERNELS_CORRELATE_CORRELATE_WGMMA_SHARE_H
#define KERNELS_CORRELATE_CORRELATE_WGMMA_SHARE_H

#define N_ITEMS (N_CHAN * N_BLOCKS) /* N_BLOCKS is the number of items per channel */

/* A position in a block's share of the work.  The share begins with whole items, one in each round.  Every block has
 * the same number of whole items.  In a round, neighbouring blocks use the same voltages at the same time.  The share
 * ends with a part of the remaining items.  Stages come in pairs, one stage for each producer. */
struct cursor {
    const uint8_t *voltages;    /* address of antenna 0, channel 0, in the launch's first batch */
    uint32_t n_units, n_stages; /* number of units of an item, and number of stages of an item */
    uint32_t round, n_rounds;
    uint32_t last_item, last_stage; /* first item and first stage of the block's part of the remaining items */
    uint32_t n_left;                /* number of stages that remain in the block's share, including the current stage */
    uint32_t item, stage;
    uint32_t chan, row_ant, column_ant; /* channel and first antennas of the item */
};

static __device__ __forceinline__ void find_item(struct cursor *c, uint32_t item)
{
    uint2 block = find_block(item % N_BLOCKS);

    c->item = item;
    c->chan = item / N_BLOCKS;
    c->row_ant = block.x * ROW_ANTS;
    c->column_ant = block.y * COL_ANTS;
}

/* Begins a round.  The assignment of items to blocks rotates from round to round, so that each block gets items of all
 * kinds. */
static __device__ __forceinline__ void begin_round(struct cursor *c)
{
    if (c->round < c->n_rounds) {
        c->stage = 0;
        find_item(c, c->round * gridDim.x + (blockIdx.x + c->round) % gridDim.x);
    } else {
        c->stage = c->last_stage;
        find_item(c, c->last_item);
    }
}

static __device__ __forceinline__ uint32_t count_stages(const struct correlate_args *args)
{
    return (args->n_batches * HEAP_UNITS + 2 * STAGE_UNITS - 1) / (2 * STAGE_UNITS) * 2;
}

/* The blocks share the items that remain after all rounds, in pairs of stages.  Returns the index of the first pair of
 * block 'block'.  Index 0 is the first pair of the remaining items. */
static __device__ __forceinline__ uint64_t find_pair(uint32_t n_stages, uint32_t block)
{
    return (uint64_t)(N_ITEMS % gridDim.x) * (n_stages / 2) * block / gridDim.x;
}

/* Returns the number of stages in the block's share. */
static __device__ __forceinline__ uint32_t count_share(uint32_t n_stages)
{
    return N_ITEMS / gridDim.x * n_stages +
           2 * (uint32_t)(find_pair(n_stages, blockIdx.x + 1) - find_pair(n_stages, blockIdx.x));
}

/* Moves the cursor to the first stage of the block's share.  Returns true if the share has at least one stage. */
static __device__ __forceinline__ bool begin_share(struct cursor *c, const struct correlate_args *args)
{
    c->voltages = (const uint8_t *)args->voltages + args->first_batch * BATCH_BYTES;
    c->n_units = args->n_batches * HEAP_UNITS;
    c->n_stages = count_stages(args);
    c->round = 0;
    c->n_rounds = N_ITEMS / gridDim.x;
    uint64_t first = find_pair(c->n_stages, blockIdx.x) * 2;
    c->last_item = c->n_rounds * gridDim.x + (uint32_t)(first / c->n_stages);
    c->last_stage = (uint32_t)(first % c->n_stages);
    c->n_left = count_share(c->n_stages);
    if (c->n_left)
        begin_round(c);
    return c->n_left > 0;
}

/* Moves to the next item.  If several blocks share the next item, moves to the block's part of it.  'n_left' does not
 * change. */
static __device__ __forceinline__ void begin_next(struct cursor *c)
{
    if (c->round < c->n_rounds) {
        c->round++;
        begin_round(c);
    } else {
        c->stage = 0;
        find_item(c, c->item + 1);
    }
}

/* Moves to the next stage, if there is one.  Returns true if the block's part of the item ends before the next
 * stage. */
static __device__ __forceinline__ bool advance(struct cursor *c)
{
    if (c->n_left <= 1) {
        c->n_left = 0;
        return true;
    }
    c->n_left--;
    if (++c->stage < c->n_stages)
        return false;
    begin_next(c);
    return true;
}

/* Moves to a producer's next stage, if there is one.  For each item, both producers have the same number of
 * stages. */
static __device__ __forceinline__ void advance_producer(struct cursor *c)
{
    if (c->n_left <= N_PRODUCERS) {
        c->n_left = 0;
        return;
    }
    c->n_left -= N_PRODUCERS;
    c->stage += N_PRODUCERS;
    if (c->stage < c->n_stages)
        return;
    uint32_t number = c->stage - c->n_stages;
    begin_next(c);
    c->stage += number;
}

/* Skips the remaining stages of the current item.  Moves to the block's next item, if there is one. */
static __device__ __forceinline__ void next_item(struct cursor *c)
{
    uint32_t n = c->n_stages - c->stage;

    c->n_left -= n < c->n_left ? n : c->n_left;
    if (c->n_left > 0)
        begin_next(c);
}

/* Returns true if this is the producer's last stage of the item, or of the block's part of the item. */
static __device__ __forceinline__ bool is_last(const struct cursor *c)
{
    return c->n_left <= N_PRODUCERS || c->stage + N_PRODUCERS >= c->n_stages;
}

/* The thread's spectrum of the stage is 'first' + 'lane'.  Returns the unit that contains this spectrum.  'first' is
 * the same for all threads, and is known at compile time.  'lane' is less than 'span'. */
static __device__ __forceinline__ uint32_t find_unit(const struct cursor *c, uint32_t first, uint32_t span,
                                                     uint32_t lane)
{
    /* if all threads have the same unit, the kernel needs fewer registers */
    bool common = first % UNIT_SPECTRA + span <= UNIT_SPECTRA;

    return c->stage * STAGE_UNITS + (common ? first : first + lane) / UNIT_SPECTRA;
}

/* Returns the address of an antenna's spectra of a unit, for one thread.  'lane' is the offset of the thread's first
 * spectrum.  If the unit is beyond the end, returns an address in the last unit.  The voltages at this address add no
 * products, because the kernel replaces the rows or the columns by ZERO_VOLTAGES. */
static __device__ __forceinline__ const uint8_t *find_voltages(const struct cursor *c, uint32_t ant, uint32_t unit,
                                                               uint32_t lane)
{
    uint32_t at = unit < c->n_units ? unit : c->n_units - 1;
    const uint8_t *voltages = c->voltages + (at / HEAP_UNITS * BATCH_BYTES + c->chan * (uint64_t)CHAN_BYTES +
                                             at % HEAP_UNITS * UNIT_SPECTRA * SPECTRUM_BYTES);

    voltages += (batch_offset)ant * (batch_offset)HEAP_BYTES + lane * SPECTRUM_BYTES;
    asm volatile("" : "+l"(voltages)); /* the compiler adds all constant offsets to this pointer */
    return voltages;
}

/* Addresses of a thread's N loads for one antenna.  A load has 16 bytes.  In each load, all threads of the antenna
 * together load 'span' consecutive spectra. */
template <int N> struct places {
    const uint8_t *at[N];
};

template <int N>
static __device__ __forceinline__ struct places<N> find_places(const struct cursor *c, uint32_t ant, uint32_t span,
                                                               uint32_t lane) {
    struct places<N> places;
    const uint8_t *from = NULL;

#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t first = i * span, within = first % UNIT_SPECTRA;
        if (within + span > UNIT_SPECTRA) { /* not all threads have the same unit */
            uint32_t own = first + lane;
            from = find_voltages(c, ant, find_unit(c, first, span, lane), own % UNIT_SPECTRA);
            within = 0;
        } else if (within == 0) {
            from = find_voltages(c, ant, find_unit(c, first, span, lane), lane);
        }
        places.at[i] = from + within * SPECTRUM_BYTES;
    }
    return places;
}

/* Loads the voltages at 'places' for N_ROWS antennas: every ROW_DISTANCE-th antenna, beginning with 'ant'.  Antennas
 * beyond N_ANTS are not loaded, because their products are not stored.  If N_ANTS is a multiple of ROW_ANTS, no
 * antenna of an item is beyond N_ANTS, and the comparison is omitted.  For column antennas this requires that
 * ROW_ANTS is a multiple of COL_ANTS.  In both kernels COL_ANTS equals ROW_ANTS. */
template <int N, int N_ROWS, int ROW_DISTANCE>
static __device__ __forceinline__ void load_voltages(const struct places<N> &places, uint32_t ant,
                                                     uint4 (&loads)[N_ROWS][N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int row = 0; row < N_ROWS; row++)
            if (N_ANTS % ROW_ANTS == 0 || ant + row * ROW_DISTANCE < N_ANTS)
                loads[row][i] = __ldg((const uint4 *)(places.at[i] + row * ROW_DISTANCE * HEAP_BYTES));
}

#endif
