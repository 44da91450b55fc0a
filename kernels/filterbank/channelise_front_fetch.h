/* channelise_front_fetch.h - fetches samples from device memory into a ring in shared memory.  The ring has STAGES
 * stages of STEP_SPECTRA rows.  This file also finds a thread's samples in a stage.
 *
 * channelise_front.cu includes this file after its sizes (kernels/README.md lists them).
 *
 * A block has M1 pieces of each row of each polarisation.  Each piece belongs to one j1.  With FRONT_TENSORS (from
 * compute capability 9.0 on) one lane of the block fetches a stage as boxes of bytes.  Boxes need few instructions and
 * do not use the L1 cache.  Otherwise each warp has a ring of its own pieces, and each lane fetches aligned chunks of
 * 16 bytes of these pieces. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_FRONT_FETCH_H
#define KERNELS_FILTERBANK_CHANNELISE_FRONT_FETCH_H

#include "kernels/util/bulk_copy.h"

#define WARP_PIECES (32 * THREAD_COLUMNS / COLUMNS) /* pieces of a warp */
#define N_WARPS     (N_THREADS / 32)

#if FRONT_TENSORS

/* ---- Boxes ------------------------------------------------------------------------------------------------------- */

#define N_RINGS     1
#define PIECE_BYTES ((COLUMNS * SAMPLE_BITS + 254) / 128 * 16) /* a box begins at a multiple of 16 bytes */
#define PIECE_WORDS (PIECE_BYTES / 4)
#define STAGE_BYTES (2 * STEP_SPECTRA * M1 * PIECE_BYTES)

/* Usually a box has the pieces of a row side by side.  If a warp has four pieces of 48 bytes, this order would cause
 * bank conflicts.  In this case, a box has the same piece of two rows side by side.  The pieces of one row are then 96
 * bytes apart.  Each pair of rows has one box. */
#define ROW_PAIRS   (WARP_PIECES == 4 && PIECE_BYTES == 48)
#define BOX_ROWS    (ROW_PAIRS ? 2 : STEP_SPECTRA)
#define BOX_WORDS   (BOX_ROWS * M1 * PIECE_WORDS)
#define ROW_AT(row) ((row) / BOX_ROWS * BOX_WORDS + (row) % BOX_ROWS * (ROW_PAIRS ? 1 : M1) * PIECE_WORDS)

/* Distance between the two polarisations in a stage, in words. */
#define POL_WORDS ((STEP_SPECTRA * M1 * PIECE_WORDS + 31) / 32 * 32)

struct __align__(128) stage
{
    uint32_t words[2][POL_WORDS]; /* [pol]: PIECE_WORDS words of each [box][j1][row] or [row][j1] */
};

struct fetcher {
    struct stage *stages;
    uint64_t *landed;     /* barriers of the stages; each opens when the stage's boxes have arrived */
    uint32_t slot, round; /* next stage to use, and number of completed rounds through the ring */
};

/* Returns the bit of the tensor's innermost axis at which the block's first sample begins. */
static __device__ __forceinline__ uint32_t first_bit(const struct channelise_front_args &args, int pol)
{
    return args.first_bit[pol] + blockIdx.x * COLUMNS * SAMPLE_BITS;
}

#ifdef EMULATE_CUDA
/* State of each slot of the ring.  If 'any' is true, copies of boxes are in flight, and 'row' is the first row of the
 * boxes. */
static struct {
    bool any;
    int32_t row;
} emulated_stages[STAGES];

/* number of bytes of the boxes in flight; must equal the number of bytes that the barrier expects */
static uint32_t emulated_bytes;

static void fetch_box(uint32_t *to, const struct device_tensor_map *map, int32_t byte, int32_t second, int32_t third,
                      uint64_t *)
{
    const struct device_tensor *tensor = (const struct device_tensor *)map;
    uint8_t *at = (uint8_t *)to;

    assert(byte % 16 == 0 && (uintptr_t)to % 128 == 0); /* the GPU's tensor copies require these alignments */
    emulated_bytes += tensor->box[0] * tensor->box[1] * tensor->box[2];
    for (uint32_t c = 0; c < tensor->box[2]; c++)
        for (uint32_t b = 0; b < tensor->box[1]; b++)
            for (uint32_t a = 0; a < tensor->box[0]; a++) {
                int64_t i0 = (int64_t)byte + a, i1 = (int64_t)second + b, i2 = (int64_t)third + c;
                bool within = i0 >= 0 && i0 < (int64_t)tensor->extent[0] && i1 >= 0 &&
                              i1 < (int64_t)tensor->extent[1] && i2 >= 0 && i2 < (int64_t)tensor->extent[2];
                *at++ = within ? tensor->base[i0 + i1 * (int64_t)tensor->pitch[0] + i2 * (int64_t)tensor->pitch[1]] : 0;
            }
}
#else
static __device__ __forceinline__ void fetch_box(uint32_t *to, const struct device_tensor_map *map, int32_t byte,
                                                 int32_t second, int32_t third, uint64_t *landed)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address_of(to)),
                 "l"(map), "r"(byte), "r"(second), "r"(third), "r"(shared_address_of(landed))
                 : "memory");
}
#endif

/* Fetches the boxes of the stage that begins with 'row'. */
static __device__ __forceinline__ void fetch_boxes(const struct channelise_front_args &args, struct stage *stage,
                                                   int32_t row, uint64_t *landed)
{
#pragma unroll
    for (int i = 0; i < STEP_SPECTRA / BOX_ROWS; i++)
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            const int32_t byte = (int32_t)(first_bit(args, pol) / 128 * 16), first = row + i * BOX_ROWS;
            fetch_box(stage->words[pol] + i * BOX_WORDS, &args.map[pol], byte, ROW_PAIRS ? first : 0,
                      ROW_PAIRS ? 0 : first, landed);
        }
}

/* Fetches stage i of the section that begins with spectrum 'begin', into 'slot'.  All lanes of one warp call this
 * function, after all threads have read the stage that was in the slot. */
static __device__ __forceinline__ void fetch_stage(const struct channelise_front_args &args,
                                                   const struct fetcher &fetcher, uint32_t begin, int i, uint32_t slot)
{
    const int32_t row = (int32_t)begin - SPARE_ROWS + i * STEP_SPECTRA;

    if (!elect_lane())
        return;
#ifdef EMULATE_CUDA
    emulated_stages[slot] = {true, row};
    /* the content of the slot is undefined until the copy arrives */
    memset(&fetcher.stages[slot], 0xA5, sizeof(struct stage));
    barrier_arrive(fetcher.landed + slot);
#else
    bulk_expect(fetcher.landed + slot, STAGE_BYTES);
    fetch_boxes(args, fetcher.stages + slot, row, fetcher.landed + slot);
#endif
}

/* Starts to fetch the section's first stages: STAGES stages, or all n_stages stages if the section has fewer. */
static __device__ __forceinline__ struct fetcher begin_fetches(const struct channelise_front_args &args,
                                                               struct stage *stages, uint64_t *landed, uint32_t begin,
                                                               int n_stages, int)
{
    const struct fetcher fetcher = {stages, landed, 0, 0};

    if (uniform_warp() == 0) {
        if (elect_lane()) {
            for (int i = 0; i < STAGES; i++)
                barrier_init(landed + i, 1);
            bulk_fence_barriers();
        }
        __syncwarp();
        for (int i = 0; i < STAGES && i < n_stages; i++)
            fetch_stage(args, fetcher, begin, i, i);
    }
    return fetcher;
}

/* Fetches stage i + STAGES to the slot of stage i.  All threads must have read stage i. */
static __device__ __forceinline__ void fetch_more(const struct channelise_front_args &args,
                                                  const struct fetcher &fetcher, uint32_t begin, int i, int n_stages)
{
    if (uniform_warp() == 0 && i + STAGES < n_stages)
        fetch_stage(args, fetcher, begin, i + STAGES, fetcher.slot == 0 ? STAGES - 1 : fetcher.slot - 1);
}

/* Waits for the next stage and returns it. */
static __device__ __forceinline__ const struct stage *next_stage(const struct channelise_front_args &args,
                                                                 struct fetcher &fetcher)
{
    struct stage *stage = fetcher.stages + fetcher.slot;

    barrier_wait(fetcher.landed + fetcher.slot, fetcher.round);
#ifdef EMULATE_CUDA
    if (emulated_stages[fetcher.slot].any) {
        emulated_bytes = 0;
        fetch_boxes(args, stage, emulated_stages[fetcher.slot].row, NULL);
        assert(emulated_bytes == STAGE_BYTES);
    }
    emulated_stages[fetcher.slot].any = false;
#endif
    fetcher.round += fetcher.slot == STAGES - 1;
    fetcher.slot = fetcher.slot == STAGES - 1 ? 0 : fetcher.slot + 1;
    return stage;
}

/* Returns the index of the first of the two adjacent words with the thread's samples. */
static __device__ __forceinline__ uint32_t first_word(uint32_t bit)
{
    return min(bit / 32, PIECE_WORDS - 2);
}

static __device__ __forceinline__ uint32_t word_at(uint32_t bit)
{
    return threadIdx.x * THREAD_COLUMNS / COLUMNS * (ROW_PAIRS ? 2 : 1) * PIECE_WORDS + bit / 32;
}

/* Returns the position of the thread's first sample of a polarisation, in bits from the start of the thread's piece. */
static __device__ __forceinline__ uint32_t bit_of_thread(const struct channelise_front_args &args, int pol, uint32_t)
{
    return first_bit(args, pol) % 128 + threadIdx.x * THREAD_COLUMNS % COLUMNS * SAMPLE_BITS;
}

#else

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

/* A stage has N_CHUNKS chunks of each piece of a row, for each polarisation; a chunk is 16 aligned bytes.  The first
 * chunks of all pieces are adjacent, then the second chunks, and so on.  With this order, the lanes of a warp access
 * different banks.  A lane fetches the same chunk of every ROW_STEP-th row, or with N_STEPS > 1 several chunks of
 * every row. */
#define N_RINGS    N_WARPS
#define N_CHUNKS   ((COLUMNS * SAMPLE_BITS + 254) / 128) /* the samples may begin at the last bit of a chunk */
#define ROW_CHUNKS (2 * N_CHUNKS * WARP_PIECES)
#define LANE_ROWS  (ROW_CHUNKS > 16 ? 1 : ROW_CHUNKS > 8 ? 2 : ROW_CHUNKS > 4 ? 4 : 8)
#define ROW_STEP   (LANE_ROWS < STEP_SPECTRA ? LANE_ROWS : STEP_SPECTRA)
#define N_STEPS    ((ROW_CHUNKS + 31) / 32)

#define POL_WORDS   (N_CHUNKS * WARP_PIECES * 4) /* number of words of one polarisation in a row */
#define ROW_AT(row) ((row) * (2 * POL_WORDS))    /* first word of a row in the stage */

struct stage {
    uint4 chunks[STEP_SPECTRA][2][N_CHUNKS][WARP_PIECES]; /* [row][pol][chunk][piece] */
};

/* Returns the index of the aligned 16-byte chunk that contains a bit.  The bit is 'bits' bits after the start of sample
 * 'first'. */
static __device__ __forceinline__ int64_t chunk_of(int64_t first, int bits = 0)
{
    return (first * SAMPLE_BITS + bits) / 128;
}

/* The chunks that this lane fetches.  'from' are their addresses in row 'row', and 'to' is their position in the
 * stage.  'row' is counted from the first row of the window.  Steps whose 'active' is false fetch nothing. */
struct fetcher {
    struct stage *stages;
    const uint4 *from[N_STEPS];
    bool active[N_STEPS];
    uint32_t row, n_rows;
    uint32_t to;
    uint32_t oldest, newest; /* index of the next stage to use, and index of the next stage to fill */
};

/* Returns the index of the block's first sample of a polarisation.  The sample lies in the first row of the window. */
static __device__ __forceinline__ int64_t first_sample(const struct channelise_front_args &args, int pol,
                                                       uint32_t begin)
{
    return args.offset[pol] + (int64_t)begin * POINTS + blockIdx.x * COLUMNS;
}

/* Fetches the next rows into stages[at].  Only rows of the window are fetched.  The other rows add to no spectrum of
 * the section, so their part of the stage keeps old samples. */
static __device__ __forceinline__ void fetch_rows(struct fetcher &fetcher, uint32_t at)
{
    uint4 *to = &fetcher.stages[at].chunks[0][0][0][0] + fetcher.to;

#pragma unroll
    for (int i = 0; i < N_STEPS; i++) {
#pragma unroll
        for (int row = 0; row < STEP_SPECTRA; row += ROW_STEP)
            if (fetcher.active[i] && fetcher.row + row < fetcher.n_rows)
                copy_async(to + row * ROW_CHUNKS + 32 * i, fetcher.from[i] + row * (PITCH / 4));
        fetcher.from[i] += STEP_SPECTRA * (PITCH / 4);
    }
    fetcher.row += STEP_SPECTRA;
    copies_commit();
}

/* Fetches the first stages of the section's n_rows rows. */
static __device__ __forceinline__ struct fetcher begin_fetches(const struct channelise_front_args &args,
                                                               struct stage *stages, uint64_t *, uint32_t begin, int,
                                                               int n_rows)
{
    struct fetcher fetcher;
    unsigned lane = threadIdx.x % 32, row = N_STEPS > 1 ? 0 : lane / ROW_CHUNKS;

#pragma unroll
    for (unsigned i = 0; i < N_STEPS; i++) {
        unsigned at = N_STEPS > 1 ? lane + 32 * i : lane % ROW_CHUNKS, chunk = at / WARP_PIECES % N_CHUNKS;
        unsigned j1 = threadIdx.x / 32 * WARP_PIECES + at % WARP_PIECES, pol = at / (WARP_PIECES * N_CHUNKS);
        int64_t piece = first_sample(args, pol == 1, begin) + (int64_t)j1 * M2;
        int64_t mine = chunk_of(piece) + chunk;
        fetcher.active[i] = at < ROW_CHUNKS && row < ROW_STEP && mine <= chunk_of(piece + COLUMNS, -1);
        fetcher.from[i] =
            (const uint4 *)(pol == 1 ? args.in[1] : args.in[0]) + mine + ((int64_t)row - SPARE_ROWS) * (PITCH / 4);
    }
    fetcher.stages = stages + uniform_warp() * STAGES;
    fetcher.row = row - SPARE_ROWS;
    fetcher.n_rows = n_rows;
    fetcher.to = keep(lane);
    fetcher.oldest = 0;
    fetcher.newest = STAGES - 1;
    for (int i = 0; i < STAGES - 1; i++)
        fetch_rows(fetcher, i);
    return fetcher;
}

static __device__ __forceinline__ void fetch_more(const struct channelise_front_args &, const struct fetcher &,
                                                  uint32_t, int, int)
{
}

/* Waits for the next stage and returns it.  The whole warp has read the previous stage, so the function starts to fill
 * that stage again. */
static __device__ __forceinline__ const struct stage *next_stage(const struct channelise_front_args &,
                                                                 struct fetcher &fetcher)
{
    const struct stage *stage = fetcher.stages + fetcher.oldest;

    copies_wait<STAGES - 2>();
    __syncwarp();
    fetch_rows(fetcher, fetcher.newest);
    fetcher.newest = fetcher.oldest;
    fetcher.oldest = fetcher.oldest == STAGES - 1 ? 0 : fetcher.oldest + 1;
    return stage;
}

static __device__ __forceinline__ uint32_t first_word(uint32_t bit)
{
    return bit / 32;
}

static __device__ __forceinline__ uint32_t word_at(uint32_t bit)
{
    uint32_t piece = threadIdx.x % 32 * THREAD_COLUMNS / COLUMNS;

    return (bit / 128 * WARP_PIECES + piece) * 4 + bit / 32 % 4;
}

static __device__ __forceinline__ uint32_t bit_of_thread(const struct channelise_front_args &args, int pol,
                                                         uint32_t begin)
{
    int64_t piece = first_sample(args, pol, begin) + (int64_t)(threadIdx.x * THREAD_COLUMNS / COLUMNS) * M2;

    return (uint32_t)((piece + threadIdx.x * THREAD_COLUMNS % COLUMNS) * SAMPLE_BITS - chunk_of(piece) * 128);
}

#endif

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* Place of a thread's THREAD_COLUMNS samples of a polarisation.  The samples lie within four bytes of two words.  Bits
 * 0..15 of 'how' select these bytes, in reverse order.  Bits 16..20 of 'how' are 'shift' of unpack().  Bits 0..15 of
 * 'words' are the index of the first word in a row of the polarisation.  Bits 16..31 of 'words' are the index of the
 * second word.  With boxes the second word follows the first word.  If the samples lie in one word, the second word is
 * loaded but not used. */
struct place {
    uint32_t how, words;
};

static __device__ __forceinline__ struct place find_samples(const struct channelise_front_args &args, int pol,
                                                            uint32_t begin)
{
    const uint32_t bit = bit_of_thread(args, pol, begin), word = first_word(bit);
    const uint32_t shift = FITS_FLOAT ? 32 - THREAD_COLUMNS * SAMPLE_BITS - bit % 8 : bit % 8;

    return {keep((0x0123 + 0x1111 * (bit / 8 - 4 * word)) | shift << 16),
            keep(word_at(32 * word) | word_at(FRONT_TENSORS ? 32 * word + 32 : bit + THREAD_COLUMNS * SAMPLE_BITS - 1)
                                          << 16)};
}

/* first_of() and second_of() return the addresses of the two words with a thread's samples in row 0 of a stage. */
static __device__ __forceinline__ const uint32_t *first_of(const struct stage *stage, struct place place)
{
    return (const uint32_t *)stage + (place.words & 0xffff);
}

static __device__ __forceinline__ const uint32_t *second_of(const struct stage *stage, struct place place)
{
    return FRONT_TENSORS ? first_of(stage, place) + 1 : (const uint32_t *)stage + (place.words >> 16);
}

#endif
