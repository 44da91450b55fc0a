/* channelise_front_fetch.h - see channelise_front.cu, which includes it behind its sizes: samples on their way from device
 * memory to shared memory, a ring of STAGES stages of FETCH rows for each warp, and where they are then.
 *
 * Of a row and polarisation a warp has J pieces, one for each j1.  With FRONT_TENSORS (from compute capability 9.0 on) one
 * lane fetches a stage of a polarisation as a box of bytes, which costs few instructions and no work of the L1 cache;
 * otherwise each lane fetches some aligned 16 bytes of them. */
#ifndef KERNELS_CHANNELISE_FRONT_FETCH_H
#define KERNELS_CHANNELISE_FRONT_FETCH_H

#define J       (32 * PER / C)
#define N_WARPS (N_THREADS / 32)

/* Which warp of the block, so that the compiler sees that all lanes have the same. */
static __device__ __forceinline__ uint32_t uniform_warp(void)
{
    return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

#if FRONT_TENSORS

/* ---- Boxes ------------------------------------------------------------------------------------------------------- */

#define PIECE_BYTES ((C * SAMPLE_BITS + 254) / 128 * 16) /* a box begins at a multiple of 16 bytes */
#define BOX_BYTES   (FETCH * J * PIECE_BYTES)
#define PIECE_WORDS (PIECE_BYTES / 4)

/* Words from one polarisation to the other in a stage, and from row to row. */
#define POL_WORDS ((BOX_BYTES + 127) / 128 * 32)
#define ROW_WORDS (J * PIECE_WORDS)

struct __align__(128) stage
{
    uint32_t words[2][POL_WORDS];
};

struct fetcher {
    uint64_t *barriers; /* of the warp, one for each stage */
    int32_t byte[2], j1, row, end;
    uint32_t phase; /* of the barrier that is waited for next */
#ifdef EMULATE_CUDA
    int32_t rows[STAGES] = {}; /* what is on its way, in the lane that asked for it */
#endif
};

/* One lane of the warp. */
static __device__ __forceinline__ bool elect_lane(void)
{
#ifdef EMULATE_CUDA
    return threadIdx.x % 32 == 0;
#else
    uint32_t elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    return elected;
#endif
}

/* The bit of the tensor's innermost axis in which the block's first sample begins. */
static __device__ __forceinline__ uint32_t first_bit(const struct channelise_front_args &args, int pol)
{
    return args.first_bit[pol] + blockIdx.x * C * SAMPLE_BITS;
}

/* For the section that begins with spectrum 'begin' and needs n_rows rows. */
static __device__ __forceinline__ struct fetcher make_fetcher(const struct channelise_front_args &args, uint32_t begin,
                                                              uint32_t n_rows, uint64_t *barriers)
{
    struct fetcher fetcher = {barriers,
                              {(int32_t)(first_bit(args, 0) / 128 * 16), (int32_t)(first_bit(args, 1) / 128 * 16)},
                              (int32_t)(uniform_warp() * J),
                              (int32_t)begin - SPARE_ROWS,
                              (int32_t)(begin + n_rows),
                              0};

#ifndef EMULATE_CUDA
    if (threadIdx.x % 32 == 0)
        for (int i = 0; i < STAGES; i++)
            asm volatile(
                "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(barriers + i))
                : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncwarp();
    return fetcher;
}

#ifdef EMULATE_CUDA
static void fetch_box(uint32_t *to, const struct device_tensor_map *map, int32_t byte, int32_t j1, int32_t row)
{
    const struct device_tensor *tensor = (const struct device_tensor *)map;
    uint8_t *at = (uint8_t *)to;

    assert(byte % 16 == 0 && (uintptr_t)to % 128 == 0); /* an illegal instruction else */
    for (uint32_t r = 0; r < tensor->box[2]; r++)
        for (uint32_t j = 0; j < tensor->box[1]; j++)
            for (uint32_t b = 0; b < tensor->box[0]; b++) {
                int64_t i0 = (int64_t)byte + b, i1 = (int64_t)j1 + j, i2 = (int64_t)row + r;
                bool within = i0 >= 0 && i0 < (int64_t)tensor->extent[0] && i1 >= 0 &&
                              i1 < (int64_t)tensor->extent[1] && i2 >= 0 && i2 < (int64_t)tensor->extent[2];
                *at++ = within ? tensor->base[i0 + i1 * (int64_t)tensor->pitch[0] + i2 * (int64_t)tensor->pitch[1]] : 0;
            }
}
#else
static __device__ __forceinline__ void fetch_box(uint32_t *to, const struct device_tensor_map *map, int32_t byte,
                                                 int32_t j1, int32_t row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(map), "r"(byte), "r"(j1), "r"(row), "r"(barrier)
                 : "memory");
}
#endif

/* The next rows into stages[at], unless they are behind the last, and nobody waits for them.  All lanes have read what
 * was there. */
static __device__ __forceinline__ void fetch_rows(const struct channelise_front_args &args, struct fetcher &fetcher,
                                                  struct stage *stages, uint32_t at)
{
    if (fetcher.row < fetcher.end && elect_lane()) {
#ifdef EMULATE_CUDA
        fetcher.rows[at] = fetcher.row;
        memset(&stages[at], 0xA5, sizeof(stages[at])); /* of the time between, nobody knows */
#else
        uint32_t barrier = (uint32_t)__cvta_generic_to_shared(fetcher.barriers + at);
        asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(barrier),
                     "n"(2 * BOX_BYTES)
                     : "memory");
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
            fetch_box(stages[at].words[pol], &args.map[pol], fetcher.byte[pol], fetcher.j1, fetcher.row, barrier);
#endif
    }
    fetcher.row += FETCH;
}

/* Waits until stage 'at' has arrived, for the whole warp, which has read all stages before. */
static __device__ __forceinline__ void wait_for_stage(const struct channelise_front_args &args, struct fetcher &fetcher,
                                                      struct stage *stages, uint32_t at)
{
#ifdef EMULATE_CUDA
    for (int pol = 0; pol < 2 && elect_lane(); pol++)
        fetch_box(stages[at].words[pol], &args.map[pol], fetcher.byte[pol], fetcher.j1, fetcher.rows[at]);
#else
    uint32_t barrier = (uint32_t)__cvta_generic_to_shared(fetcher.barriers + at), open;

    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(open)
                     : "r"(barrier), "r"(fetcher.phase)
                     : "memory");
    } while (!open);
    fetcher.phase ^= at == STAGES - 1;
#endif
    __syncwarp();
}

static __device__ __forceinline__ uint32_t word_at(uint32_t piece, uint32_t bit)
{
    return piece * PIECE_WORDS + bit / 32;
}

/* The bit of its piece in which the thread's first sample of a polarisation begins. */
static __device__ __forceinline__ uint32_t bit_of_thread(const struct channelise_front_args &args, int pol, uint32_t)
{
    return first_bit(args, pol) % 128 + threadIdx.x * PER % C * SAMPLE_BITS;
}

#else

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

/* Of a row and polarisation there are N_CHUNKS aligned 16 bytes of each piece; the pieces' first chunks lie side by side,
 * then their second ones, so that the lanes of a warp meet different banks.  A lane fetches the same chunk of every
 * ROW_STEP-th row, or with N_STEPS > 1 several chunks of every row. */
#define N_CHUNKS   ((C * SAMPLE_BITS + 254) / 128) /* they may begin in the last bit of one */
#define ROW_CHUNKS (2 * N_CHUNKS * J)
#define LANE_ROWS  (ROW_CHUNKS > 16 ? 1 : ROW_CHUNKS > 8 ? 2 : ROW_CHUNKS > 4 ? 4 : 8)
#define ROW_STEP   (LANE_ROWS < FETCH ? LANE_ROWS : FETCH)
#define N_STEPS    ((ROW_CHUNKS + 31) / 32)

/* Words from one polarisation to the other, and from row to row. */
#define POL_WORDS  (N_CHUNKS * J * 4)
#define ROW_WORDS  (2 * POL_WORDS)

struct stage {
    uint4 chunks[FETCH][2][N_CHUNKS][J];
};

/* Asynchronously, as loads into registers could not be begun early enough. */
static __device__ __forceinline__ void fetch_chunk(uint4 *to, const uint4 *from)
{
#ifdef EMULATE_CUDA
    *to = *from;
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from));
#endif
}

/* Ends a stage's fetches. */
static __device__ __forceinline__ void end_stage(void)
{
#ifndef EMULATE_CUDA
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* The aligned 16 bytes in which sample 'first' begins, or the bit so many before or behind. */
static __device__ __forceinline__ int64_t chunk_of(int64_t first, int bits = 0)
{
    return (first * SAMPLE_BITS + bits) / 128;
}

/* What this lane fetches: 'from' in 'row', which is counted from the first of the window; to[] of the stage; and whether
 * it fetches at all. */
struct fetcher {
    const uint4 *from[N_STEPS];
    bool active[N_STEPS];
    uint32_t row, n_rows;
    uint32_t to;
};

/* The polarisation's sample in the block's first column of the window's first row. */
static __device__ __forceinline__ int64_t first_sample(const struct channelise_front_args &args, int pol,
                                                       uint32_t begin)
{
    return args.offset[pol] + (int64_t)begin * M + blockIdx.x * C;
}

static __device__ __forceinline__ struct fetcher make_fetcher(const struct channelise_front_args &args, uint32_t begin,
                                                              uint32_t n_rows, uint64_t *)
{
    struct fetcher fetcher;
    unsigned lane = threadIdx.x % 32, row = N_STEPS > 1 ? 0 : lane / ROW_CHUNKS;

#pragma unroll
    for (unsigned i = 0; i < N_STEPS; i++) {
        unsigned at = N_STEPS > 1 ? lane + 32 * i : lane % ROW_CHUNKS, chunk = at / J % N_CHUNKS;
        unsigned j1 = threadIdx.x / 32 * J + at % J, pol = at / (J * N_CHUNKS);
        int64_t piece = first_sample(args, pol == 1, begin) + (int64_t)j1 * M2;
        int64_t mine = chunk_of(piece) + chunk;
        fetcher.active[i] = at < ROW_CHUNKS && row < ROW_STEP && mine <= chunk_of(piece + C, -1);
        fetcher.from[i] =
            (const uint4 *)(pol == 1 ? args.in[1] : args.in[0]) + mine + ((int64_t)row - SPARE_ROWS) * (PITCH / 4);
    }
    fetcher.row = row - SPARE_ROWS;
    fetcher.n_rows = n_rows;
    fetcher.to = keep(lane);
    return fetcher;
}

/* The next rows into stages[at].  Only those of the window are fetched: the others add to no spectrum of the section, so
 * what is in their place may stay. */
static __device__ __forceinline__ void fetch_rows(const struct channelise_front_args &, struct fetcher &fetcher,
                                                  struct stage *stages, uint32_t at)
{
    uint4 *to = &stages[at].chunks[0][0][0][0] + fetcher.to;

#pragma unroll
    for (int i = 0; i < N_STEPS; i++) {
#pragma unroll
        for (int row = 0; row < FETCH; row += ROW_STEP)
            if (fetcher.active[i] && fetcher.row + row < fetcher.n_rows)
                fetch_chunk(to + row * ROW_CHUNKS + 32 * i, fetcher.from[i] + row * (PITCH / 4));
        fetcher.from[i] += FETCH * (PITCH / 4);
    }
    fetcher.row += FETCH;
    end_stage();
}

/* Waits until the oldest stage has arrived, for the whole warp. */
static __device__ __forceinline__ void wait_for_stage(const struct channelise_front_args &, struct fetcher &,
                                                      struct stage *, uint32_t)
{
#ifndef EMULATE_CUDA
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#endif
    __syncwarp();
}

static __device__ __forceinline__ uint32_t word_at(uint32_t piece, uint32_t bit)
{
    return (bit / 128 * J + piece) * 4 + bit / 32 % 4;
}

static __device__ __forceinline__ uint32_t bit_of_thread(const struct channelise_front_args &args, int pol,
                                                         uint32_t begin)
{
    int64_t piece = first_sample(args, pol, begin) + (int64_t)(threadIdx.x * PER / C) * M2;

    return (uint32_t)((piece + threadIdx.x * PER % C) * SAMPLE_BITS - chunk_of(piece) * 128);
}

#endif

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* Where a thread's PER samples of a polarisation are.  'how', bits 0..15: how the four bytes that have them are selected,
 * turned round, out of two words; 16..20: 'shift' of unpack().  'words': which of the warp's words of a row and
 * polarisation these are, the first in bits 0..15; the second is the same where nothing of the next is needed. */
struct place {
    uint32_t how, words;
};

static __device__ __forceinline__ struct place find_samples(const struct channelise_front_args &args, int pol,
                                                            uint32_t begin)
{
    uint32_t bit = bit_of_thread(args, pol, begin), j = threadIdx.x % 32 * PER / C;
    uint32_t shift = FITS_FLOAT ? 32 - PER * SAMPLE_BITS - bit % 8 : bit % 8;

    return {keep((0x0123 + 0x1111 * (bit / 8 % 4)) | shift << 16),
            keep(word_at(j, bit) | word_at(j, bit + PER * SAMPLE_BITS - 1) << 16)};
}

#endif
