/* gnss_correlate_mma.cu - see gnss_correlate.h: the variant for arrays, a product of matrices of bytes.
 *
 * A block correlates N_PIECES pieces with 16 ROW_TILES inputs, in one slice of time.  The block processes the slice in
 * chunks of MMA_CHUNK_SAMPLES.  Shared memory has a window of each antenna, with the samples that the pieces need for
 * a chunk.  While a chunk is processed, the samples of the next chunk are copied to the windows.  Pieces whose offsets
 * differ too much are correlated one after the other, each with its own windows.  kernels/README.md has a picture.
 * A step is a chunk of SATELLITES pieces.  Each of these pieces has its own warps.  REPLICA_WARPS make the replica of a
 * chunk for all taps, two columns of bytes for each tap.  In the next step, PIECE_WARPS multiply the inputs' samples
 * with the columns.  The products of an input's sample (x, y) and the columns (a, b) and (-b, a) are the real and the
 * imaginary part of (x + iy) (a - ib).  There is memory for the columns of two steps.  A barrier of the piece's warps
 * ends each step.  A barrier of the block begins each chunk.
 *
 * Rows:    a warp has WARP_TILES tiles of 16 inputs, the rows of the product.  In each tile, a lane has a run of
 *          samples in two rows.  A run is MMA_PAIRS pairs of words and the next word; a word has two samples.  Each
 *          of the four lanes of a row has a quarter of the chunk.  A column's samples are in the same order.
 * Windows: each row is a ring of RING_SAMPLES.  The first words of the ring are repeated after the ring's end, so that
 *          a run never wraps.
 * Banks:   a word is 4 bytes.  The words of four antennas alternate, so an antenna has 8 of the 32 banks.  At a time,
 *          eight lanes read words of the same antenna: one word from each of four runs, in both polarisations.  A run
 *          is twice an odd number of words, a ring is a multiple of 8 words, and a row of the windows is an odd number
 *          of words.  So banks differ wherever the samples begin.
 * Loads:   a lane loads the levels of an octet (eight samples of a replica) one step before the lane needs them.  A
 *          lane loads each pair of words before the lane multiplies the previous pair.
 * Sums:    int32 in registers, for all groups of SATELLITES pieces in a slice.  At the slice's end, all warps add the
 *          sums to the integrations' 64-bit sums.
 *
 * Constants: N_TAPS; N_THREADS, 32 SATELLITES (PIECE_WARPS + REPLICA_WARPS); ROW_TILES, 1 to 4; WARP_TILES, a divisor
 * of ROW_TILES; SATELLITES; N_PIECES, a multiple of SATELLITES, at most MMA_PIECES; RING_SAMPLES, a multiple of 16. */
#include "kernels/gnss/gnss_mma_octet.h"
#include "kernels/gnss/gnss_mma_windows.h"
#include "kernels/gnss/gnss_replica.h"

#define gnss_correlate_mma_args gnss_correlate_args /* the emulator finds arguments by the kernel's name */

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Loads from shared memory.  The compiler keeps the order of these loads. */
static __device__ __forceinline__ uint32_t load_shared(const uint32_t *from)
{
#ifdef EMULATE_CUDA
    return *from;
#else
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(shared_address_of(from)));
    return word;
#endif
}

static __device__ __forceinline__ uint2 load_shared(const uint2 *from)
{
#ifdef EMULATE_CUDA
    return *from;
#else
    uint2 words;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(shared_address_of(from)));
    return words;
#endif
}

/* A run: the words of a row that a lane reads.  If the wanted samples begin with the second sample of a word,
 * pair_of() joins each word from two words.  'last' is the last word of the previous pair. */
struct row {
    const uint32_t *words;
    uint32_t shift, last;
};

/* Operands that a lane loads before the lane needs them: a pair of words of each row and of each column tile. */
struct operands {
    uint2 words[WARP_ROWS], columns[COLUMN_TILES];
};

static __device__ __forceinline__ void row_begin(struct row &row, const uint32_t *window, uint32_t start,
                                                 uint32_t chunk_place)
{
    uint32_t place = start / 2 + threadIdx.x % 4 * RUN_WORDS + chunk_place;

    place -= place >= RING_WORDS ? RING_WORDS : 0;
    row.words = window + place * GROUP_ANTS;
    row.shift = start % 2 * 16;
    row.last = row.words[0];
}

static __device__ __forceinline__ void load_operands(const struct row (&rows)[WARP_ROWS],
                                                     const uint2 *const (&columns)[COLUMN_TILES], int i,
                                                     struct operands &operands)
{
#pragma unroll
    for (int row = 0; row < WARP_ROWS; row++) {
        operands.words[row].x = load_shared(&rows[row].words[(2 * i + 1) * GROUP_ANTS]);
        operands.words[row].y = load_shared(&rows[row].words[(2 * i + 2) * GROUP_ANTS]);
    }
#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; tile++)
        operands.columns[tile] = load_shared(&columns[tile][i]);
}

/* Returns the row's next pair of words, at the row's alignment. */
static __device__ __forceinline__ uint2 pair_of(struct row &row, const uint2 &words)
{
    const uint2 pair = make_uint2(__funnelshift_r(row.last, words.x, row.shift),
                                  __funnelshift_r(words.x, words.y, row.shift));

    row.last = words.y;
    return pair;
}

static __device__ __forceinline__ void multiply(struct row (&rows)[WARP_ROWS], const struct operands &operands,
                                                int (&sums)[WARP_TILES][COLUMN_TILES][4])
{
    uint2 pairs[WARP_ROWS];

#pragma unroll
    for (int row = 0; row < WARP_ROWS; row++)
        pairs[row] = pair_of(rows[row], operands.words[row]);
#pragma unroll
    for (int column = 0; column < COLUMN_TILES; column++)
#pragma unroll
        for (int tile = 0; tile < WARP_TILES; tile++) {
            const uint2 top = pairs[2 * tile], bottom = pairs[2 * tile + 1];
            const uint32_t a[4] = {top.x, bottom.x, top.y, bottom.y};
            multiply_add(sums[tile][column], a, operands.columns[column].x, operands.columns[column].y);
        }
}

/* Multiplies a chunk of the warp's rows with all columns.  In the last tile, columns without a tap are copies of the
 * last column.  The sums of these copies are not used. */
static __device__ __forceinline__ void multiply_chunk(struct row (&rows)[WARP_ROWS], const uint8_t *columns,
                                                      int (&sums)[WARP_TILES][COLUMN_TILES][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint2 *from[COLUMN_TILES];
    struct operands operands[2];

#pragma unroll
    for (uint32_t tile = 0; tile < COLUMN_TILES; tile++)
        from[tile] = (const uint2 *)(columns + min(8 * tile + lane / 4, 2 * N_TAPS - 1u) * COLUMN_BYTES) +
                     lane % 4 * MMA_PAIRS;
    load_operands(rows, from, 0, operands[0]);
#pragma unroll
    for (int i = 0; i < MMA_PAIRS; i++) {
        if (i + 1 < MMA_PAIRS)
            load_operands(rows, from, i + 1, operands[(i + 1) % 2]);
        multiply(rows, operands[i % 2], sums);
    }
}

/* Returns the block's sums of a tap, int32 [row][re, im].  They take the place of the windows. */
static __device__ __forceinline__ int *block_sums(uint32_t slot, uint32_t tap)
{
    return (int *)windows() + (slot * N_TAPS + tap) * N_ROWS * 2;
}

/* Writes a tile's sums, for tap 4 column + lane % 4 and the rows of the lane. */
static __device__ __forceinline__ void write_sums(uint32_t slot, uint32_t row, const int (&sums)[COLUMN_TILES][4])
{
#pragma unroll
    for (int column = 0; column < COLUMN_TILES; column++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const uint32_t tap = 4 * column + threadIdx.x % 4;
            if (tap < N_TAPS)
                *(int2 *)(block_sums(slot, tap) + 2 * (row + i / 2 * 8)) =
                    make_int2(sums[column][i], sums[column][i + 1]);
        }
}

/* Adds the sums of 'n' slots to memory.  A warp adds the sums of a tap.  Blocks of the same pieces begin with different
 * taps, so that the blocks wait less for each other. */
static __device__ __forceinline__ void add_sums(const struct gnss_correlate_args &args, uint32_t first_slot,
                                                uint32_t n)
{
    const uint32_t n_runs = n * N_TAPS, lane = threadIdx.x % 32;
    const uint32_t n_sums = min(2 * (args.n_ants * 2 - blockIdx.z * N_ROWS), 2u * N_ROWS);

    for (uint32_t i = threadIdx.x / 32; i < n_runs; i += N_WARPS) {
        const uint32_t run = (i + blockIdx.x) % n_runs, slot = run / N_TAPS, tap = run % N_TAPS;
        const int *from = block_sums(slot, tap);
        int64_t *to = sums_of(args, head()->slots[first_slot + slot].integration, tap, blockIdx.z * N_ROWS);
#pragma unroll
        for (uint32_t k = lane; k < 2 * N_ROWS; k += 32)
            if (k < n_sums)
                add_to(to + k, from[k]);
    }
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

struct span {
    int64_t begin, end;
};

/* Returns the span of time of the lane's piece. */
static __device__ __forceinline__ struct span span_of_lane(const struct gnss_piece *pieces, uint32_t n)
{
    const struct gnss_piece &piece = pieces[min(threadIdx.x % 32, n - 1)];

    return {piece.first, piece.first + piece.n_samples};
}

/* Returns the span of time of the block's pieces, from the earliest start to the latest end. */
static __device__ __forceinline__ struct span span_of_block(struct span span)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        span.begin = min(span.begin, __shfl_xor_sync(EVERY_LANE, span.begin, lanes));
        span.end = max(span.end, __shfl_xor_sync(EVERY_LANE, span.end, lanes));
    }
    return span;
}

/* Writes the slot of a piece that has samples from 'begin' to 'end' after 'time'.  A warp writes the slot. */
static __device__ __forceinline__ void write_slot(const struct gnss_correlate_args &args,
                                                  const struct gnss_piece &piece, int64_t time, int32_t begin,
                                                  int32_t end, struct mma_slot &slot)
{
    const uint32_t lane = threadIdx.x % 32;
    const struct gnss_satellite &satellite = args.satellites[piece.satellite];
    const uint32_t ant = min(blockIdx.z * N_ANTS + min(lane, (uint32_t)N_ANTS - 1), args.n_ants - 1);
    const uint32_t n_subchips = satellite.n_subchips;
    const uint64_t length = gnss_code_length(n_subchips), step = piece.code_step;
    const int64_t later = time - piece.first;

    slot.offsets[lane] = args.offsets[(uint64_t)piece.satellite * args.n_ants + ant];
    if (lane < N_TAPS)
        slot.rests[lane] = length - satellite.taps[lane];
    if (lane == 31) {
        const uint64_t before = gnss_code_at(0, step, (uint32_t)max(-later, (int64_t)0), n_subchips);
        const uint64_t code = gnss_code_at(piece.code_phase, step, (uint32_t)max(later, (int64_t)0), n_subchips);
        slot.code = code - before + (code < before ? length : 0);
        slot.code_step = step;
        slot.code_jump = gnss_code_at(0, step, MMA_CHUNK_SAMPLES, n_subchips);
        slot.carrier = piece.carrier_phase + (uint64_t)later * piece.carrier_step;
        slot.carrier_step = piece.carrier_step;
        slot.table = satellite.table;
        slot.n_subchips = n_subchips;
        slot.begin = begin;
        slot.end = end;
        slot.integration = piece.integration;
    }
}

/* Fills the slots with the pieces that have samples in [time, time + n_samples).  Returns the number of slots. */
static __device__ __forceinline__ uint32_t fill_slots(const struct gnss_correlate_args &args,
                                                      const struct gnss_piece *pieces, uint32_t n,
                                                      const struct span &span, int64_t time, uint32_t n_samples)
{
    const uint32_t lane = threadIdx.x % 32;
    const int32_t begin = (int32_t)min(max(span.begin - time, (int64_t)0), (int64_t)n_samples);
    const int32_t end = (int32_t)min(max(span.end - time, (int64_t)0), (int64_t)n_samples);
    const uint32_t there = __ballot_sync(EVERY_LANE, lane < n && begin < end);

    __syncthreads();
    for (uint32_t i = threadIdx.x / 32; i < n; i += N_WARPS) {
        const int32_t its_begin = __shfl_sync(EVERY_LANE, begin, (int)i);
        const int32_t its_end = __shfl_sync(EVERY_LANE, end, (int)i);
        if (there >> i & 1)
            write_slot(args, pieces[i], time, its_begin, its_end,
                       head()->slots[__popc(there & ((1u << i) - 1))]);
    }
    __syncthreads();
    return (uint32_t)__popc(there);
}

/* Returns the slot that a warp uses if the block is at slot 'at', or NULL. */
static __device__ __forceinline__ const struct mma_slot *slot_at(uint32_t at, uint32_t to, uint32_t satellite)
{
    return at + satellite < to ? &head()->slots[at + satellite] : NULL;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Progress in the windows: number of words whose copies have begun, and the ring's places of the next word and of the
 * chunk. */
struct progress {
    uint32_t copied, place, chunk_place;
};

static __device__ __forceinline__ void advance(uint32_t &place, uint32_t n)
{
    place += n;
    place -= place >= RING_WORDS ? RING_WORDS : 0;
}

/* Starts copies of the words of the next chunk. */
static __device__ __forceinline__ void copy_chunk(struct progress &progress, uint32_t warp)
{
    copy_words((int32_t)progress.copied, progress.place, CHUNK_WORDS, warp, MAKING_WARPS);
    progress.copied += CHUNK_WORDS;
    advance(progress.place, CHUNK_WORDS);
}

/* Waits until the warps of a piece have finished a step. */
static __device__ __forceinline__ void piece_barrier(uint32_t satellite)
{
#ifdef EMULATE_CUDA
    emulate_barrier_wait(1 + satellite, PIECE_THREADS);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(1 + satellite), "n"(PIECE_THREADS) : "memory");
#endif
}

/* Ends the step before a step of a group.  The first step of a chunk needs the chunk's samples, and all steps of the
 * chunk before must have ended, because copies of the next chunk replace their samples. */
static __device__ __forceinline__ void step_barrier(uint32_t group, uint32_t satellite)
{
    if (group > 0) {
        piece_barrier(satellite);
    } else {
        copies_wait_all();
        __syncthreads();
    }
}

/* The steps of the slots [at, to) in the warps that make replicas.  A step is a chunk of SATELLITES slots.  Each step
 * loads the octet of the next step. */
static __device__ __forceinline__ void make_replicas(const struct gnss_correlate_args &args, uint32_t at, uint32_t to,
                                                     uint32_t n_chunks, struct progress progress)
{
    const uint32_t warp = threadIdx.x / 32 - PRODUCT_WARPS, satellite = warp / REPLICA_WARPS;
    const uint32_t thread = warp % REPLICA_WARPS * 32 + threadIdx.x % 32;
    const uint32_t n_groups = (to - at + SATELLITES - 1) / SATELLITES;
    const struct mma_slot *slots[N_GROUPS];
    struct phases phases[N_GROUPS];
    struct octet octet;
    uint32_t buffer = 0;

#pragma unroll
    for (uint32_t group = 0; group < N_GROUPS; group++) {
        slots[group] = thread < MAKERS ? slot_at(at + group * SATELLITES, to, satellite) : NULL;
        if (slots[group])
            phases[group] = phases_begin(*slots[group], 8 * thread);
        if (group == 0 && slots[0])
            load_octet(args.codes, *slots[0], 0, 8 * thread, phases[0], octet);
    }
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
#pragma unroll
        for (uint32_t group = 0; group < N_GROUPS; group++) {
            if (group >= n_groups)
                break;
            const uint32_t first = chunk * MMA_CHUNK_SAMPLES, next_first = first + MMA_CHUNK_SAMPLES;
            if (slots[group] && octet.is_there)
                write_octet(args.codes, *slots[group], octet, columns_of(buffer, satellite) + 16 * thread);
            if (group + 1 < n_groups && group + 1 < N_GROUPS) {
                const uint32_t next = (group + 1) % N_GROUPS;
                if (slots[next])
                    load_octet(args.codes, *slots[next], first, first + 8 * thread, phases[next], octet);
            } else if (chunk + 1 < n_chunks && slots[0]) {
                load_octet(args.codes, *slots[0], next_first, next_first + 8 * thread, phases[0], octet);
            }
            step_barrier(group, satellite);
            if (group == 0 && chunk + 1 < n_chunks)
                copy_chunk(progress, warp);
            buffer ^= 1;
        }
    }
    __syncthreads();
}

/* A piece in a warp that multiplies. */
struct products {
    int sums[WARP_TILES][COLUMN_TILES][4];
    uint32_t starts[WARP_ROWS / 2]; /* positions of the lane's rows in the windows at the slice's start, 16 bits each */
};

/* The steps of the slots [at, to) in the warps that multiply.  A step uses the replicas of the step before. */
static __device__ __forceinline__ void multiply_replicas(uint32_t at, uint32_t to, uint32_t n_chunks,
                                                         struct progress progress)
{
    const uint32_t lane = threadIdx.x % 32, satellite = threadIdx.x / 32 / PIECE_WARPS;
    const uint32_t first_row = threadIdx.x / 32 % PIECE_WARPS * WARP_TILES * 16 + lane / 4; /* row of the block */
    const uint32_t *window = window_of(first_row / 2, first_row % 2);
    struct products products[N_GROUPS] = {};
    uint32_t buffer = 0; /* of columns */

#pragma unroll
    for (uint32_t group = 0; group < N_GROUPS; group++) {
        const struct mma_slot *slot = slot_at(at + group * SATELLITES, to, satellite);
#pragma unroll
        for (int i = 0; i < WARP_ROWS && slot; i++)
            products[group].starts[i / 2] |= slot->starts[(first_row + 8 * i) / 2] << (i % 2 * 16);
    }
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
#pragma unroll
        for (uint32_t group = 0; group < N_GROUPS; group++) {
            if (at + group * SATELLITES >= to)
                break;
            step_barrier(group, satellite);
            const struct mma_slot *slot = slot_at(at + group * SATELLITES, to, satellite);
            if (slot && is_active(*slot, chunk * MMA_CHUNK_SAMPLES)) {
                struct row rows[WARP_ROWS];
#pragma unroll
                for (int i = 0; i < WARP_ROWS; i++)
                    row_begin(rows[i], window + i * GROUP_WORDS, products[group].starts[i / 2] >> (i % 2 * 16) & 0xffff,
                              progress.chunk_place);
                multiply_chunk(rows, columns_of(buffer, satellite), products[group].sums);
            }
            buffer ^= 1;
        }
        advance(progress.chunk_place, CHUNK_WORDS);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t group = 0; group < N_GROUPS; group++)
        if (slot_at(at + group * SATELLITES, to, satellite))
#pragma unroll
            for (int tile = 0; tile < WARP_TILES; tile++)
                write_sums(group * SATELLITES + satellite, first_row + 16 * tile, products[group].sums[tile]);
}

/* Change the number of registers of a thread, if the shape has MOVES_REGISTERS (compute capability 9.0). */
template <int N> static __device__ __forceinline__ void more_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (MOVES_REGISTERS)
        setmaxnreg_inc<N>();
#endif
}

template <int N> static __device__ __forceinline__ void fewer_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (MOVES_REGISTERS)
        setmaxnreg_dec<N>();
#endif
}

/* Correlates the slots [at, to) in 'n_chunks' chunks.  The first chunk begins at 'time'. */
static __device__ __forceinline__ uint32_t correlate_slots(const struct gnss_correlate_args &args, uint32_t at,
                                                           uint32_t n_slots, int64_t time, uint32_t n_chunks)
{
    int32_t low;
    uint32_t spread;
    const uint32_t to = choose_slots(at, n_slots, low, spread);
    struct progress progress;

#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        spread = max(spread, __shfl_xor_sync(EVERY_LANE, spread, lanes));
    place_windows(args, at, to, time, low);
    __syncthreads();
    const uint32_t n_first = (spread + MMA_SLACK) / 2 + CHUNK_WORDS;
    progress = {n_first, n_first, 0};
    if (threadIdx.x / 32 < PRODUCT_WARPS)
        copy_words(0, 0, n_first, threadIdx.x / 32, PRODUCT_WARPS);
    if (threadIdx.x / 32 < PRODUCT_WARPS) {
        more_registers<PRODUCT_REGISTERS>();
        multiply_replicas(at, to, n_chunks, progress);
        fewer_registers<USUAL_REGISTERS>();
    } else {
        fewer_registers<REPLICA_REGISTERS>();
        make_replicas(args, at, to, n_chunks, progress);
        more_registers<USUAL_REGISTERS>();
    }
    __syncthreads();
    add_sums(args, at, to - at);
    __syncthreads();
    return to;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1)
    gnss_correlate_mma(const struct gnss_correlate_args args)
{
    const struct gnss_piece *pieces = args.pieces + blockIdx.y * N_PIECES;
    const uint32_t n_pieces = min(args.n_pieces - blockIdx.y * N_PIECES, (uint32_t)N_PIECES);
    const struct span of_lane = span_of_lane(pieces, n_pieces), span = span_of_block(of_lane);
    const uint32_t all_chunks = (uint32_t)((span.end - span.begin + MMA_CHUNK_SAMPLES - 1) / MMA_CHUNK_SAMPLES);
    const uint32_t most = min((all_chunks + gridDim.x - 1) / gridDim.x, (uint32_t)MMA_MAX_CHUNKS);

    for (uint32_t i = threadIdx.x; i < GNSS_CARRIER_ENTRIES; i += N_THREADS)
        head()->carrier[i] = args.carrier[2 * i] + args.carrier[2 * i + 1] * (1 << 16);
    for (uint32_t chunk = blockIdx.x * most; chunk < all_chunks; chunk += gridDim.x * most) {
        const uint32_t n_chunks = min(most, all_chunks - chunk);
        const int64_t time = span.begin + (int64_t)chunk * MMA_CHUNK_SAMPLES;
        const uint32_t n_slots = fill_slots(args, pieces, n_pieces, of_lane, time, n_chunks * MMA_CHUNK_SAMPLES);
        for (uint32_t at = 0; at < n_slots;)
            at = correlate_slots(args, at, n_slots, time, n_chunks);
    }
}
