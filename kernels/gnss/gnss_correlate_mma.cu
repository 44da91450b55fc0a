/* gnss_correlate_mma.cu - see gnss_correlate.h: the variant for arrays, a product of matrices of bytes.
 *
 * A block correlates N_PIECES pieces with 16 ROW_TILES inputs, in one slice of time.  The block copies the inputs'
 * samples to shared memory once: a window of each antenna with all samples of the pieces.  Pieces whose starts are too
 * far apart are correlated one after the other, each with its own windows.  kernels/README.md has a picture.
 * The block correlates SATELLITES pieces at a time, in chunks of MMA_CHUNK_SAMPLES.  Each piece has its own warps.
 * REPLICA_WARPS make the replica of a chunk for all taps, two columns of bytes for each tap.  In the next step,
 * PIECE_WARPS multiply the inputs' samples with the columns.  The products of an input's sample (x, y) and the columns
 * (a, b) and (-b, a) are the real and the imaginary part of (x + iy) (a - ib).  There is memory for the columns of two
 * chunks, and a barrier of the block ends each step.
 *
 * Rows:    a warp has WARP_TILES tiles of 16 inputs, the rows of the product.  In each tile, a lane has a run of
 *          samples in two rows.  A run is MMA_PAIRS pairs of words and the next word; a word has two samples.  Each
 *          of the four lanes of a row has a quarter of the chunk.  A column's samples are in the same order.
 * Banks:   a word is 4 bytes.  The words of four antennas alternate, so an antenna has 8 of the 32 banks.  At a time,
 *          eight lanes read words of the same antenna: one word from each of four runs, in both polarisations.  A run
 *          is twice an odd number of words, and a row of the windows is an odd number of words.  So banks differ
 *          wherever the samples begin.
 * Sums:    int32 for a slice; each warp adds its sums to the integration's 64-bit sums.
 *
 * Constants: N_TAPS; N_THREADS, 32 SATELLITES (PIECE_WARPS + REPLICA_WARPS); SLICE_SAMPLES, a multiple of MMA_CHUNK_SAMPLES
 * whose sums fit int32; ROW_TILES, 1 to 4; WARP_TILES, a divisor of ROW_TILES; SATELLITES; N_PIECES, at most
 * MMA_PIECES; WINDOW_SAMPLES, twice an odd number. */
#include "kernels/gnss/gnss_mma.h"
#include "kernels/gnss/gnss_replica.h"
#include "kernels/util/ptx.h"

#define COLUMN_TILES  ((2 * N_TAPS + 7) / 8)
#define COLUMN_BYTES  (MMA_CHUNK_SAMPLES * 2)
#define COLUMNS_BYTES (8 * COLUMN_TILES * COLUMN_BYTES) /* size of a piece's columns, in bytes */
#define WINDOW_BYTES  (WINDOW_SAMPLES * 2)
#define GROUP_ANTS    4 /* antennas whose words alternate */
#define STEP          32 /* samples of two rows that a warp copies at a time */
#define N_ROWS        (16 * ROW_TILES)
#define N_ANTS        (N_ROWS / 2)
#define N_WARPS       (N_THREADS / 32)
#define PIECE_WARPS   (ROW_TILES / WARP_TILES) /* warps that multiply a piece */
#define REPLICA_WARPS MMA_REPLICA_WARPS(ROW_TILES)
#define PRODUCT_WARPS (SATELLITES * PIECE_WARPS)
#define WARP_ROWS     (2 * WARP_TILES) /* rows of a lane */
#define QUADS         (MMA_CHUNK_SAMPLES / 4)
/* number of rounds in which a thread makes its part of a chunk's replica */
#define ROUNDS        (QUADS <= 32 * REPLICA_WARPS ? 1 : QUADS <= 64 * REPLICA_WARPS ? 2 : 4)
#define MAKERS        (QUADS / ROUNDS)
#define EVERY_LANE    0xffffffffu

#define gnss_correlate_mma_args gnss_correlate_args /* the emulator finds arguments by the kernel's name */

extern __shared__ float4 shared_memory[];

/* Shared memory: windows [group of antennas][pol][word][GROUP_ANTS], columns [2][piece][COLUMNS_BYTES], and the head
 * (gnss_mma.h). */
static __device__ __forceinline__ uint8_t *windows(void)
{
    return (uint8_t *)shared_memory;
}

/* Returns the address of the first word of an antenna's window. */
static __device__ __forceinline__ uint32_t *window_of(uint32_t ant, uint32_t pol)
{
    return (uint32_t *)windows() + (ant / GROUP_ANTS * 2 + pol) * (GROUP_ANTS * WINDOW_SAMPLES / 2) + ant % GROUP_ANTS;
}

static __device__ __forceinline__ uint8_t *columns_of(uint32_t buffer, uint32_t piece)
{
    return windows() + N_ROWS * WINDOW_BYTES + (buffer * SATELLITES + piece) * COLUMNS_BYTES;
}

static __device__ __forceinline__ struct mma_head *head(void)
{
    return (struct mma_head *)columns_of(2, 0);
}

/* ---- Replicas ---------------------------------------------------------------------------------------------------- */

/* A thread's replica: the phases of its next four samples.  Adding a step gives the phase of the next sample.  Adding a
 * jump gives the phase of the thread's next four samples. */
struct quads {
    uint64_t code, code_step, code_jump, carrier, carrier_step, carrier_jump;
    uint64_t length, rests[N_TAPS]; /* [tap]: difference between the end of the table and the tap's code phase */
    uint32_t n_subchips;
    const int8_t *table;
};

static __device__ __forceinline__ struct quads quads_begin(const struct mma_slot &slot, const int8_t *codes,
                                                           uint32_t first)
{
    const uint32_t n_subchips = slot.satellite.n_subchips;
    struct quads q;

    q.code_step = slot.piece.code_step;
    q.code = gnss_code_at(slot.piece.code_phase, q.code_step, first, n_subchips);
    q.code_jump = gnss_code_at(0, q.code_step, 4 * MAKERS, n_subchips);
    q.carrier_step = slot.piece.carrier_step;
    q.carrier = slot.piece.carrier_phase + first * q.carrier_step;
    q.carrier_jump = 4 * MAKERS * q.carrier_step;
    q.length = gnss_code_length(n_subchips);
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++)
        q.rests[tap] = q.length - slot.satellite.taps[tap];
    q.n_subchips = n_subchips;
    q.table = codes + slot.satellite.table;
    return q;
}

/* Looks up the levels of a tap.  The code phase wraps at most once in four samples. */
static __device__ __forceinline__ void levels_of(const struct quads &q, int tap, int (&levels)[4])
{
    const uint64_t phase = q.code - q.rests[tap] + (q.code < q.rests[tap] ? q.length : 0);

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t at = (uint32_t)((phase + i * q.code_step) >> 32) >> (GNSS_CODE_BITS - 32);
        levels[i] = __ldg(q.table + min(at, at - q.n_subchips));
    }
}

/* Writes both columns of a tap.  Adding 2^15 prevents a negative lower half from borrowing from the upper half. */
static __device__ __forceinline__ void write_columns(const int (&levels)[4], const int (&carrier)[4],
                                                     const int (&turned)[4], uint8_t *to)
{
    const int half = 1 << 15;
    uint32_t p[4], q[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        p[i] = levels[i] * carrier[i] + half;
        q[i] = levels[i] * turned[i] + half;
    }
    *(uint2 *)to = make_uint2(__byte_perm(p[0], p[1], 0x6420), __byte_perm(p[2], p[3], 0x6420));
    *(uint2 *)(to + COLUMN_BYTES) = make_uint2(__byte_perm(q[0], q[1], 0x6420), __byte_perm(q[2], q[3], 0x6420));
}

/* Writes four samples of the replica to the columns.  Writes zeros for sample 'n_there' and later samples. */
static __device__ __forceinline__ void write_quad(const struct quads &q, uint32_t n_there, uint8_t *to)
{
    int carrier[4], turned[4], levels[N_TAPS][4];

#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++)
        levels_of(q, tap, levels[tap]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t phase = q.carrier + i * q.carrier_step;
        carrier[i] =
            head()->carrier[i < n_there ? (uint32_t)(phase >> (64 - GNSS_CARRIER_BITS)) : GNSS_CARRIER_ENTRIES];
        turned[i] = (int)((uint32_t)carrier[i] << 16) - ((carrier[i] + (1 << 15)) >> 16);
    }
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++)
        write_columns(levels[tap], carrier, turned, to + 2 * tap * COLUMN_BYTES);
}

/* Makes the replica of a chunk.  The slot has 'n_samples' samples after the chunk's start.  Zeros follow these
 * samples.  In the last tile, columns without a tap keep old bytes.  The sums of these columns are not used. */
static __device__ __forceinline__ void make_chunk(struct quads &q, uint32_t thread, uint32_t n_samples,
                                                  uint8_t *columns)
{
    if (thread >= MAKERS)
        return;
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t at = 4 * (thread + round * MAKERS);
        write_quad(q, n_samples - min(at, n_samples), columns + 2 * at);
        q.code = gnss_code_add(q.code, q.code_jump, q.length);
        q.carrier += q.carrier_jump;
    }
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* A run: the words of a row that a lane reads.  If the wanted samples begin with the second sample of a word,
 * row_next() joins each word from two words.  'last' is the last word that the lane has read. */
struct row {
    const uint32_t *words;
    uint32_t shift, last;
};

static __device__ __forceinline__ void row_begin(struct row &row, uint32_t in_block, uint32_t sample)
{
    row.words = window_of(in_block / 2, in_block % 2) + (sample / 2 + threadIdx.x % 4 * 2 * MMA_PAIRS) * GROUP_ANTS;
    row.shift = sample % 2 * 16;
    row.last = row.words[0];
}

/* Returns the run's i-th pair of words. */
static __device__ __forceinline__ uint2 row_next(struct row &row, int i)
{
    const uint32_t middle = row.words[(2 * i + 1) * GROUP_ANTS], end = row.words[(2 * i + 2) * GROUP_ANTS];
    const uint2 pair = make_uint2(__funnelshift_r(row.last, middle, row.shift),
                                  __funnelshift_r(middle, end, row.shift));

    row.last = end;
    return pair;
}

/* Multiplies a chunk of the warp's rows with all columns. */
static __device__ __forceinline__ void multiply_chunk(struct row (&rows)[WARP_ROWS], const uint8_t *columns,
                                                      int (&sums)[WARP_TILES][COLUMN_TILES][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint2 *from = (const uint2 *)(columns + lane / 4 * COLUMN_BYTES) + lane % 4 * MMA_PAIRS;

#pragma unroll
    for (int i = 0; i < MMA_PAIRS; i++) {
        uint2 pairs[WARP_ROWS];
#pragma unroll
        for (int row = 0; row < WARP_ROWS; row++)
            pairs[row] = row_next(rows[row], i);
#pragma unroll
        for (int column = 0; column < COLUMN_TILES; column++) {
            const uint2 b = from[8 * column * (COLUMN_BYTES / 8) + i];
#pragma unroll
            for (int tile = 0; tile < WARP_TILES; tile++) {
                const uint2 top = pairs[2 * tile], bottom = pairs[2 * tile + 1];
                const uint32_t a[4] = {top.x, bottom.x, top.y, bottom.y};
                multiply_add(sums[tile][column], a, b.x, b.y);
            }
        }
    }
}

/* Adds a tile's sums to memory, for tap 4 column + lane % 4 and the rows of the lane. */
static __device__ __forceinline__ void add_sums(const struct gnss_correlate_args &args, const struct gnss_piece &piece,
                                                uint32_t input, int (&sums)[COLUMN_TILES][4])
{
#pragma unroll
    for (int column = 0; column < COLUMN_TILES; column++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t tap = 4 * column + threadIdx.x % 4, row = input + i / 2 * 8;
            if (tap < N_TAPS && row < args.n_ants * 2)
                add_to(sums_of(args, piece, tap, row) + i % 2, sums[column][i]);
        }
}

/* ---- Windows ----------------------------------------------------------------------------------------------------- */

/* A window of the lane's antenna.  The members are indices of samples in the antenna's rows, and multiples of 8. */
struct window {
    int64_t begin, last, end; /* 'last' is the position at which the last piece starts */
};

static __device__ __forceinline__ uint32_t chunks_of(const struct mma_slot &slot)
{
    return (slot.end - slot.from + MMA_CHUNK_SAMPLES - 1) / MMA_CHUNK_SAMPLES;
}

/* Returns the window of the lane's antenna that a slot needs. */
static __device__ __forceinline__ struct window window_of_slot(const struct mma_slot &slot)
{
    const int64_t begin = slot.begins[min(threadIdx.x % 32, (uint32_t)N_ANTS - 1)] & ~(int64_t)7;

    return {begin, begin, begin + chunks_of(slot) * MMA_CHUNK_SAMPLES + 8};
}

/* Returns the window that covers both windows. */
static __device__ __forceinline__ struct window wider(const struct window &a, const struct window &b)
{
    return {min(a.begin, b.begin), max(a.last, b.last), max(a.end, b.end)};
}

static __device__ __forceinline__ bool fits(const struct window &window)
{
    return !__any_sync(EVERY_LANE, window.end - window.begin > WINDOW_SAMPLES);
}

/* Widens an antenna's extent, so that the extent covers a window.  'first' is the window of the first slot. */
static __device__ __forceinline__ void widen(struct mma_extent &extent, const struct window &first,
                                             const struct window &window)
{
    const int64_t limit = 1 << 30; /* an extent of this size fits no window */

    atomicMin(&extent.begin, (int32_t)max(window.begin - first.begin, -limit));
    atomicMax(&extent.last, (int32_t)min(window.last - first.begin, limit));
    atomicMax(&extent.end, (int32_t)min(window.end - first.begin, limit));
}

/* Chooses a window of each antenna.  The windows cover slot 'at', and as many of the next slots as fit into
 * WINDOW_SAMPLES.  Returns the first slot that the windows do not cover.  All warps compute the same result. */
static __device__ __forceinline__ uint32_t choose_windows(uint32_t at, struct window &window)
{
    const uint32_t n_slots = head()->n_slots;
    uint32_t to = at + 1;

    window = window_of_slot(head()->slots[at]);
    if (at == 0) { /* usually the windows cover all slots */
        const struct mma_extent &extent = head()->extents[threadIdx.x % 32];
        const struct window all = {window.begin + extent.begin, window.begin + extent.last, window.begin + extent.end};
        if (fits(all)) {
            window = all;
            return n_slots;
        }
    }
    for (; to < n_slots; to++) {
        const struct window with = wider(window, window_of_slot(head()->slots[to]));
        if (!fits(with))
            break;
        window = with;
    }
    return to;
}

/* Copies the windows of all rows: the samples for the first chunks of all pieces, or all other samples if 'is_rest' is
 * true.  A warp copies 16 words of two antennas at a time. */
static __device__ __forceinline__ void copy_windows(const struct gnss_correlate_args &args, uint32_t first_input,
                                                    const struct window &window, bool is_rest)
{
    const uint32_t lane = threadIdx.x % 32, n_inputs = args.n_ants * 2;
    const int8_t *last = args.samples + 2 * (n_inputs * args.pitch_samples - 2);

    for (uint32_t i = threadIdx.x / 32; i < N_ROWS / 2; i += N_WARPS) {
        const uint32_t ant = i / 4 * GROUP_ANTS + i % 2 * 2 + lane / 16, pol = i / 2 % 2;
        const int64_t begin = __shfl_sync(EVERY_LANE, window.begin, (int)ant);
        const uint32_t all = (uint32_t)(__shfl_sync(EVERY_LANE, window.end, (int)ant) - begin);
        const uint32_t early = (uint32_t)(__shfl_sync(EVERY_LANE, window.last, (int)ant) - begin) + MMA_CHUNK_SAMPLES + 8;
        const int64_t first = min(first_input + 2 * ant + pol, n_inputs - 1) * args.pitch_samples + begin;
        const uint32_t end = is_rest ? all : min(all, early);
        const uint32_t there = (uint32_t)min(n_inputs * args.pitch_samples - first, (int64_t)end);
        uint32_t at = (is_rest ? early : 0) + 2 * (lane % 16);
        const int8_t *from = args.samples + 2 * (first + at);
        shared_address to = shared_address_of(window_of(ant, pol)) + at * 2 * GROUP_ANTS;
        for (; at < there; at += STEP, from += 2 * STEP, to += 2 * STEP * GROUP_ANTS)
            copy_async_4(to, from);
        for (; at < end; at += STEP, to += 2 * STEP * GROUP_ANTS)
            copy_async_4(to, last);
    }
    copies_commit();
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

struct span {
    int64_t begin, end;
};

/* Returns the span of time of the block's pieces, from the earliest start to the latest end. */
static __device__ __forceinline__ struct span span_of(const struct gnss_piece *pieces, uint32_t n)
{
    const struct gnss_piece &piece = pieces[min(threadIdx.x % 32, n - 1)];
    struct span span = {piece.first, piece.first + piece.n_samples};

#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        span.begin = min(span.begin, __shfl_xor_sync(EVERY_LANE, span.begin, lanes));
        span.end = max(span.end, __shfl_xor_sync(EVERY_LANE, span.end, lanes));
    }
    return span;
}

/* Fills the slots with the pieces that have samples in [time, time + SLICE_SAMPLES). */
static __device__ __forceinline__ void fill_slots(const struct gnss_correlate_args &args,
                                                  const struct gnss_piece *pieces, uint32_t n, int64_t time)
{
    const uint32_t lane = threadIdx.x % 32, first_ant = blockIdx.z * N_ANTS;
    const struct gnss_piece &piece = pieces[min(lane, n - 1)];
    const int64_t from = max(time - piece.first, (int64_t)0);
    const int64_t end = min((int64_t)piece.n_samples, time + SLICE_SAMPLES - piece.first);
    const uint32_t there = __ballot_sync(EVERY_LANE, lane < n && from < end), before = there & ((1u << lane) - 1);

    __syncthreads();
    if (threadIdx.x < 32 && there >> lane & 1) {
        struct mma_slot &slot = head()->slots[__popc(before)];
        slot.piece = piece;
        slot.from = (uint32_t)from;
        slot.end = (uint32_t)end;
    }
    if (threadIdx.x == 0)
        head()->n_slots = __popc(there);
    if (threadIdx.x < MMA_ANTS)
        head()->extents[threadIdx.x] = {0, 0, 0};
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < (uint32_t)__popc(there) * MMA_ANTS; i += N_THREADS) {
        struct mma_slot &slot = head()->slots[i / MMA_ANTS];
        const uint32_t ant = min(first_ant + min(lane, (uint32_t)N_ANTS - 1), args.n_ants - 1);
        slot.begins[lane] =
            slot.piece.first + slot.from + args.offsets[(uint64_t)slot.piece.satellite * args.n_ants + ant];
        const uint32_t *from_words = (const uint32_t *)&args.satellites[slot.piece.satellite];
        uint32_t *to_words = (uint32_t *)&slot.satellite;
        for (uint32_t word = lane; word < sizeof(slot.satellite) / 4; word += 32)
            to_words[word] = from_words[word];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < (uint32_t)__popc(there) * MMA_ANTS; i += N_THREADS)
        widen(head()->extents[lane], window_of_slot(head()->slots[0]), window_of_slot(head()->slots[i / MMA_ANTS]));
    __syncthreads();
}

/* Returns the slot that a warp uses if the block is at slot 'at', or NULL. */
static __device__ __forceinline__ const struct mma_slot *slot_at(uint32_t at, uint32_t to, uint32_t satellite)
{
    return at + satellite < to ? &head()->slots[at + satellite] : NULL;
}

/* The steps of the slots [at, to) in the warps that make replicas.  A step is a chunk of SATELLITES slots.  When the
 * function begins, copies of the windows may still run.  The first step needs only the first group of copies. */
static __device__ __forceinline__ void make_replicas(const struct gnss_correlate_args &args, uint32_t at, uint32_t to)
{
    const uint32_t warp = threadIdx.x / 32 - PRODUCT_WARPS, satellite = warp / REPLICA_WARPS;
    const uint32_t thread = warp % REPLICA_WARPS * 32 + threadIdx.x % 32;
    uint32_t step = 0;

    for (; at < to; at += SATELLITES) {
        const struct mma_slot *slot = slot_at(at, to, satellite);
        const uint32_t n_samples = slot ? slot->end - slot->from : 0;
        struct quads quads;

        if (slot)
            quads = quads_begin(*slot, args.codes, slot->from + 4 * thread);
#pragma unroll 1
        for (uint32_t first = 0; first < SLICE_SAMPLES; first += MMA_CHUNK_SAMPLES, step++) {
            if (first < n_samples)
                make_chunk(quads, thread, n_samples - first, columns_of(step % 2, satellite));
            if (step == 0)
                copies_wait<1>();
            else
                copies_wait<0>();
            __syncthreads();
        }
    }
    copies_wait<0>();
    __syncthreads();
}

/* The steps of the slots [at, to) in the warps that multiply.  A step uses the replicas of the step before. */
static __device__ __forceinline__ void multiply_replicas(const struct gnss_correlate_args &args, uint32_t at,
                                                         uint32_t to, const struct window &window)
{
    const uint32_t lane = threadIdx.x % 32, satellite = threadIdx.x / 32 / PIECE_WARPS;
    const uint32_t first_row = threadIdx.x / 32 % PIECE_WARPS * WARP_TILES * 16 + lane / 4; /* row of the block */
    uint32_t step = 0;

    copies_wait<1>();
    __syncthreads();
    for (; at < to; at += SATELLITES) {
        const struct mma_slot *slot = slot_at(at, to, satellite);
        const uint32_t n_samples = slot ? slot->end - slot->from : 0;
        int sums[WARP_TILES][COLUMN_TILES][4] = {};
        uint32_t samples[WARP_ROWS]; /* positions in the windows at which the lane's rows start */

#pragma unroll
        for (int i = 0; i < WARP_ROWS; i++) {
            const uint32_t ant = (first_row + 8 * i) / 2;
            const int64_t begin = __shfl_sync(EVERY_LANE, window.begin, (int)ant);
            samples[i] = slot ? (uint32_t)(slot->begins[ant] - begin) : 0;
        }
#pragma unroll 1
        for (uint32_t first = 0; first < SLICE_SAMPLES; first += MMA_CHUNK_SAMPLES, step++) {
            if (first < n_samples) {
                struct row rows[WARP_ROWS];
#pragma unroll
                for (int i = 0; i < WARP_ROWS; i++)
                    row_begin(rows[i], first_row + 8 * i, samples[i] + first);
                multiply_chunk(rows, columns_of(step % 2, satellite), sums);
            }
            copies_wait<0>();
            __syncthreads();
        }
        if (slot)
#pragma unroll
            for (int tile = 0; tile < WARP_TILES; tile++)
                add_sums(args, slot->piece, blockIdx.z * N_ROWS + first_row + 16 * tile, sums[tile]);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) gnss_correlate_mma(const struct gnss_correlate_args args)
{
    const struct gnss_piece *pieces = args.pieces + blockIdx.y * N_PIECES;
    const uint32_t n_pieces = min(args.n_pieces - blockIdx.y * N_PIECES, (uint32_t)N_PIECES);
    const struct span span = span_of(pieces, n_pieces);

    for (uint32_t i = threadIdx.x; i <= GNSS_CARRIER_ENTRIES; i += N_THREADS)
        head()->carrier[i] = i < GNSS_CARRIER_ENTRIES ? args.carrier[2 * i] + args.carrier[2 * i + 1] * (1 << 16) : 0;
    for (int64_t time = span.begin + blockIdx.x * SLICE_SAMPLES; time < span.end; time += gridDim.x * SLICE_SAMPLES) {
        fill_slots(args, pieces, n_pieces, time);
        for (uint32_t at = 0, to; at < head()->n_slots; at = to) {
            struct window window;
            to = choose_windows(at, window);
            __syncthreads();
            copy_windows(args, blockIdx.z * N_ROWS, window, false);
            copy_windows(args, blockIdx.z * N_ROWS, window, true);
            if (threadIdx.x / 32 < PRODUCT_WARPS)
                multiply_replicas(args, at, to, window);
            else
                make_replicas(args, at, to);
        }
    }
}
