/* gnss_correlate_mma.cu - see gnss_correlate.h: the variant for arrays, a product of matrices of bytes.
 *
 * A block correlates N_PIECES pieces with 16 ROW_TILES inputs, in one slice of time.  The block copies the inputs'
 * samples to shared memory once: a window of each antenna with all samples of the pieces.  Pieces whose starts are too
 * far apart are correlated one after the other, each with its own windows.  kernels/README.md has a picture.
 * SATELLITES pieces are correlated at a time, each by its own warps, in chunks of MMA_CHUNK_SAMPLES.  The warps of a
 * piece make the replica of a chunk for all taps, two columns of bytes for each tap.  Then the warps multiply the
 * inputs' samples with the columns.  The products of an input's sample (x, y) and the columns (a, b) and (-b, a) are
 * the real and the imaginary part of (x + iy) (a - ib).  There is memory for two chunks, so one barrier of the block
 * for each chunk is enough.
 *
 * Rows:    a warp has WARP_TILES tiles of 16 inputs, the rows of the product.  A lane has a run of samples of two rows
 *          of each tile: MMA_RUN words of 16 bytes and the next word.  The four lanes of a row have one quarter of the
 *          chunk each.  A column's samples are in the same order.
 * Banks:   eight lanes read 128 bytes at a time: a word of four runs, for both polarisations of an antenna.  MMA_RUN is
 *          odd, and a row of the windows is an odd multiple of 64 bytes.  So banks differ wherever the samples begin.
 * Sums:    int32 for a slice; each warp adds its sums to the integration's 64-bit sums.
 *
 * Constants: N_TAPS; N_THREADS, 32 SATELLITES ROW_TILES / WARP_TILES; SLICE_SAMPLES, a multiple of MMA_CHUNK_SAMPLES
 * whose sums fit int32; ROW_TILES, 1 to 4; WARP_TILES, a divisor of ROW_TILES; SATELLITES; N_PIECES, at most
 * MMA_PIECES; WINDOW_SAMPLES, a multiple of 64 plus 32. */
#include "kernels/gnss/gnss_mma.h"
#include "kernels/gnss/gnss_replica.h"
#include "kernels/util/ptx.h"

#define COLUMN_TILES  ((2 * N_TAPS + 7) / 8)
#define COLUMN_BYTES  (MMA_CHUNK_SAMPLES * 2)
#define COLUMNS_BYTES (8 * COLUMN_TILES * COLUMN_BYTES) /* size of a piece's columns, in bytes */
#define WINDOW_BYTES  (WINDOW_SAMPLES * 2)
#define N_ROWS        (16 * ROW_TILES)
#define N_ANTS        (N_ROWS / 2)
#define N_WARPS       (N_THREADS / 32)
#define PIECE_WARPS   (ROW_TILES / WARP_TILES)
#define WARP_ROWS     (2 * WARP_TILES) /* rows of a lane */
#define QUADS         (MMA_CHUNK_SAMPLES / 4)
/* rounds of a thread per chunk */
#define ROUNDS        (QUADS <= 32 * PIECE_WARPS ? 1 : QUADS <= 64 * PIECE_WARPS ? 2 : 4)
#define MAKERS        (QUADS / ROUNDS)
#define EVERY_LANE    0xffffffffu

#define gnss_correlate_mma_args gnss_correlate_args /* the emulator finds arguments by the kernel's name */

extern __shared__ float4 shared_memory[];

/* Shared memory: windows [input][WINDOW_BYTES], columns [2][piece][COLUMNS_BYTES], and the head (gnss_mma.h). */
static __device__ __forceinline__ uint8_t *windows(void)
{
    return (uint8_t *)shared_memory;
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

/* Writes four samples of the replica to the columns.  Writes zeros from sample 'n_there' on. */
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

/* Makes the replica of a chunk.  From the chunk's start on, the slot has 'n_samples' more samples.  Zeros follow
 * these samples.  Columns without a tap in the last tile keep old bytes, and their sums are not used. */
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

/* A row of a lane: its run of words of 16 bytes.  The run begins 0 to 7 samples before the wanted samples.  Three steps
 * shift the words by 4, 2 and 1 samples, each step if needed.  Each step needs later words from the previous step.  The
 * struct keeps these words for the next eight samples.  The first step multiplies with 0 and 1 in units that are
 * otherwise idle, because the units that select words are busy. */
struct row {
    const uint4 *words;
    uint32_t by_4, not_by_4, shift;
    bool by_2;
    /* the last word as it was read, after the first step, and after the second step */
    uint32_t read[2], moved_4, moved_2;
};

static __device__ __forceinline__ uint32_t move_4(const struct row &row, uint32_t word, uint32_t next_but_one)
{
    return word * row.not_by_4 + next_but_one * row.by_4;
}

static __device__ __forceinline__ void row_begin(struct row &row, uint32_t in_block, uint32_t sample)
{
    row.words = (const uint4 *)(windows() + in_block * WINDOW_BYTES) + sample / 8 + threadIdx.x % 4 * MMA_RUN;
    row.by_4 = opaque(sample / 4 % 2);
    row.not_by_4 = opaque(row.by_4 ^ 1);
    row.by_2 = sample & 2;
    row.shift = sample % 2 * 16;
    const uint4 first = row.words[0];
    row.read[0] = first.z;
    row.read[1] = first.w;
    row.moved_4 = move_4(row, first.y, first.w);
    row.moved_2 = row.by_2 ? row.moved_4 : move_4(row, first.x, first.z);
}

/* Writes the run's i-th group of eight samples to 'words'. */
static __device__ __forceinline__ void row_next(struct row &row, int i, uint32_t (&words)[4])
{
    const uint4 next = row.words[i + 1];
    uint32_t w[8] = {row.moved_2, row.moved_4, row.read[0], row.read[1], next.x, next.y, next.z, next.w};

#pragma unroll
    for (int k = 2; k < 6; k++)
        w[k] = move_4(row, w[k], w[k + 2]);
#pragma unroll
    for (int k = 1; k < 5; k++)
        w[k] = row.by_2 ? w[k + 1] : w[k];
#pragma unroll
    for (int k = 0; k < 4; k++)
        words[k] = __funnelshift_r(w[k], w[k + 1], row.shift);
    row.moved_2 = w[4];
    row.moved_4 = w[5];
    row.read[0] = w[6];
    row.read[1] = w[7];
}

/* Multiplies a chunk of the warp's rows with all columns. */
static __device__ __forceinline__ void multiply_chunk(struct row (&rows)[WARP_ROWS], const uint8_t *columns,
                                                      int (&sums)[WARP_TILES][COLUMN_TILES][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint4 *from = (const uint4 *)(columns + lane / 4 * COLUMN_BYTES) + lane % 4 * MMA_RUN;

#pragma unroll
    for (int i = 0; i < MMA_RUN; i++) {
        uint32_t w[WARP_ROWS][4];
#pragma unroll
        for (int row = 0; row < WARP_ROWS; row++)
            row_next(rows[row], i, w[row]);
#pragma unroll
        for (int column = 0; column < COLUMN_TILES; column++) {
            const uint4 b = from[8 * column * (COLUMN_BYTES / 16) + i];
#pragma unroll
            for (int tile = 0; tile < WARP_TILES; tile++) {
                const uint32_t(&top)[4] = w[2 * tile], (&bottom)[4] = w[2 * tile + 1];
                const uint32_t a[2][4] = {{top[0], bottom[0], top[1], bottom[1]},
                                          {top[2], bottom[2], top[3], bottom[3]}};
                multiply_add(sums[tile][column], a[0], b.x, b.y);
                multiply_add(sums[tile][column], a[1], b.z, b.w);
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

/* A window of the lane's antenna, as sample indices in its rows: multiples of 8. */
struct window {
    int64_t begin, last, end; /* 'last' is the position at which the last piece starts */
};

static __device__ __forceinline__ uint32_t chunks_of(const struct mma_slot &slot)
{
    return (slot.end - slot.from + MMA_CHUNK_SAMPLES - 1) / MMA_CHUNK_SAMPLES;
}

/* Chooses a window of each antenna.  The windows cover consecutive slots from 'at' on, as many slots as WINDOW_SAMPLES
 * allows.  Returns the slot after these slots.  All warps compute the same result. */
static __device__ __forceinline__ uint32_t choose_windows(uint32_t at, struct window &window)
{
    const uint32_t ant = min(threadIdx.x % 32, (uint32_t)N_ANTS - 1), n_slots = head()->n_slots;
    uint32_t to = at;

    for (; to < n_slots; to++) {
        const struct mma_slot &slot = head()->slots[to];
        const int64_t begin = slot.begins[ant] & ~(int64_t)7;
        const int64_t end = begin + chunks_of(slot) * MMA_CHUNK_SAMPLES + 8;
        struct window wider = {begin, begin, end};
        if (to > at)
            wider = {min(window.begin, begin), max(window.last, begin), max(window.end, end)};
        if (__any_sync(EVERY_LANE, wider.end - wider.begin > WINDOW_SAMPLES))
            break;
        window = wider;
    }
    return to;
}

/* Copies the windows of all rows: the samples for the first chunks of all pieces, or all other samples if 'is_rest' is
 * true. */
static __device__ __forceinline__ void copy_windows(const struct gnss_correlate_args &args, uint32_t first_input,
                                                    const struct window &window, bool is_rest)
{
    const uint32_t lane = threadIdx.x % 32, n_inputs = args.n_ants * 2;
    const int64_t last = n_inputs * args.pitch_samples - 8; /* last position at which a copy may start */

    for (uint32_t row = threadIdx.x / 32; row < N_ROWS; row += N_WARPS) {
        const int64_t begin = __shfl_sync(EVERY_LANE, window.begin, (int)(row / 2));
        const int64_t all = __shfl_sync(EVERY_LANE, window.end, (int)(row / 2)) - begin;
        const int64_t early = __shfl_sync(EVERY_LANE, window.last, (int)(row / 2)) - begin + MMA_CHUNK_SAMPLES + 8;
        const int64_t first = min(first_input + row, n_inputs - 1) * args.pitch_samples + begin;
        const int64_t end = is_rest ? all : min(all, early);
        for (int64_t i = (is_rest ? early : 0) + 8 * lane; i < end; i += 8 * 32)
            copy_async(windows() + row * WINDOW_BYTES + 2 * i, args.samples + 2 * min(first + i, last));
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
}

/* Adds the block's samples of a slot.  'slot' is NULL in warps without a slot.  Copies of the windows are in flight. */
static __device__ __forceinline__ void correlate_slot(const struct gnss_correlate_args &args,
                                                      const struct mma_slot *slot, const struct window &window,
                                                      uint32_t &buffer)
{
    const uint32_t lane = threadIdx.x % 32, piece_warp = threadIdx.x / 32 % PIECE_WARPS;
    const uint32_t thread = piece_warp * 32 + lane, satellite = threadIdx.x / 32 / PIECE_WARPS;
    const uint32_t n_samples = slot ? slot->end - slot->from : 0;
    int sums[WARP_TILES][COLUMN_TILES][4] = {};
    uint32_t in_block[WARP_ROWS],
        samples[WARP_ROWS]; /* the lane's rows, and the positions in the window at which they start */
    struct quads quads;

#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
        in_block[i] = (piece_warp * WARP_TILES + i / 2) * 16 + i % 2 * 8 + lane / 4;
        const int64_t begin = __shfl_sync(EVERY_LANE, window.begin, (int)(in_block[i] / 2));
        samples[i] = slot ? (uint32_t)(slot->begins[in_block[i] / 2] - begin) : 0;
    }
    if (slot)
        quads = quads_begin(*slot, args.codes, slot->from + 4 * thread);
    for (uint32_t at = 0; at < SLICE_SAMPLES; at += MMA_CHUNK_SAMPLES, buffer ^= 1) {
        uint8_t *columns = columns_of(buffer, satellite);
        if (at < n_samples)
            make_chunk(quads, thread, n_samples - at, columns);
        if (at == 0)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncthreads();
        if (at < n_samples) {
            struct row rows[WARP_ROWS];
#pragma unroll
            for (int i = 0; i < WARP_ROWS; i++)
                row_begin(rows[i], in_block[i], samples[i] + at);
            multiply_chunk(rows, columns, sums);
        }
    }
    if (slot)
#pragma unroll
        for (int tile = 0; tile < WARP_TILES; tile++)
            add_sums(args, slot->piece, blockIdx.z * N_ROWS + in_block[2 * tile], sums[tile]);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) gnss_correlate_mma(const struct gnss_correlate_args args)
{
    const struct gnss_piece *pieces = args.pieces + blockIdx.y * N_PIECES;
    const uint32_t n_pieces = min(args.n_pieces - blockIdx.y * N_PIECES, (uint32_t)N_PIECES);
    const struct span span = span_of(pieces, n_pieces);
    uint32_t buffer = 0;

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
            for (; at < to; at += SATELLITES) {
                const uint32_t mine = at + threadIdx.x / 32 / PIECE_WARPS;
                correlate_slot(args, mine < to ? &head()->slots[mine] : NULL, window, buffer);
            }
        }
    }
}
