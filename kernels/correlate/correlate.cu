/* correlate.cu - see correlate.h for the sums, and correlate_shape.h for the tiles and blocks.  kernels/README.md has a
 * picture.
 *
 * Operands: rows, operand A:     second antennas a2 of baselines, plain (re, im)
 *           columns, operand B:  first antennas a1, plain (re, im) and turned (im, -re)
 *           (in correlate_wgmma.cu and correlate_whole.cu, rows are first antennas)
 *           Rows are second antennas because the sums of one second antenna with consecutive first antennas are
 *           consecutive in memory (correlate_baseline()).  So the four lanes of a row add to consecutive memory.
 *           row x plain column:   re e1 re e2 + im e1 im e2 = the real part of e1 conj(e2)
 *           row x turned column:  im e1 re e2 - re e1 im e2 = the imaginary part
 *
 * Flow of a block: all threads copy slices of all the block's antennas to shared memory (cp.async), STAGES - 1 slices
 * ahead.  Each warp reads the voltages of its tile from shared memory and multiplies them on the tensor cores
 * (mma.sync) into sums in registers.  At the end the block adds the sums to memory.
 *
 * The layout of the packets needs no transposition.  A step is 64 bytes of each antenna, in time order.  Let g be lane
 * / 4, and t be lane % 4.  A lane reads the 16 bytes of antenna g that begin with byte 16 t: all polarisations and
 * parts of a few spectra.  The lane makes its fragments of the instruction from these bytes: rows g (polarisation 0)
 * and g + 8 (polarisation 1) of a 16 x k matrix, or column g of four k x 8 matrices.  The k values may have any
 * order, if rows and columns have the same order.
 *
 * Integers: the negative of -128 would overflow, so integers are turned to (im, ~re); ~x = -x - 1.  The sums then lack
 * the sum of im e2.  The kernel computes the sum of im e2 for each row along with the other sums.  All sums fit into
 * int32 if the result fits.  4-bit values become bytes that are 16 times as large, so their sums are exactly 256
 * times too large.
 *
 * Memory: a block's sums of a row of 8 x 8 antennas are 256 consecutive bytes, and four lanes hold these sums.  If the
 * launch is not split over time, no other block adds to these sums.  The lanes then exchange sums so that each lane has
 * 16 consecutive bytes out of 64.  A lane loads, adds and stores these 16 bytes.  The sums in memory are fetched into
 * the L2 cache while the last slices are multiplied.  If the launch is split over time, or if the shape has
 * atomic_adds, blocks add with atomics.  The multiprocessor does not wait for atomics, because the L2 cache does the
 * additions.  The lanes then exchange sums so that eight lanes have 32 consecutive bytes, a sector.  Integers give the
 * same result in any order.  With half floats the last bits may differ from run to run if time is split.
 *
 * Constants: see create_part() in correlate_shape.c. */
#include "kernels/correlate/correlate.h"
#include "kernels/correlate/transpose_lanes.h"
#include "kernels/util/ptx.h"

#define THREADS       (32 * TILE_WARPS * TIME_WARPS)
#define CHUNK_BYTES   16
#define STEP_CHUNKS   4 /* number of chunks of an antenna in a step: one chunk for each t = lane % 4 */
#define STEP_BYTES    (STEP_CHUNKS * CHUNK_BYTES)
#define SLICE_STEPS   (STEPS * TIME_WARPS)
#define SLICE_CHUNKS  (STEP_CHUNKS * SLICE_STEPS)
#define STEP_STRIDE   (N_SLOTS * STEP_BYTES)
#define STAGE_BYTES   (SLICE_STEPS * STEP_STRIDE)
#define CHUNK_SPECTRA (CHUNK_BYTES * 2 / BITS)
#define HEAP_CHUNKS   (N_SPECTRA / CHUNK_SPECTRA)
#define CHAN_BYTES    ((uint64_t)HEAP_CHUNKS * CHUNK_BYTES)
#define LOADERS       (THREADS / SLICE_CHUNKS) /* number of antennas that the block copies at a time */
#define ZEROS         (OFFSET ? 0x88888888u : 0u)
#define ROWS          (8 * ROW_EIGHTS) /* antennas of a tile */
#define COLUMNS       (8 * COLUMN_EIGHTS)
#define PARTS         2 /* products with plain columns (re, im), and with turned columns (im, -re) */

#if BITS == 16
typedef float sum_type;
typedef float4 sums_16_bytes;
#else
typedef int32_t sum_type;
typedef int4 sums_16_bytes;
#endif

/* A lane's fragment of 8 antennas, both polarisations: r[instruction][polarisation + 2 * half of the k values]. */
#define INSTRUCTIONS (BITS == 4 ? 2 : 1) /* matrix instructions for 64 bytes of each antenna */
struct fragment {
    uint32_t r[INSTRUCTIONS][4];
};

/* A lane's sums of 8 x 8 antennas: row g, and columns 2 t and 2 t + 1.  The indices are v[p1][re, im][p2 * 2 + i].
 * p1 is the polarisation of the column, and p2 is the polarisation of the row.  i is 0 for column 2 t, and 1 for
 * column 2 t + 1. */
struct sums {
    sum_type v[2][PARTS][4];
};

struct tile {
    struct sums sums[ROW_EIGHTS][COLUMN_EIGHTS]; /* indices [group of 8 rows][group of 8 columns] */
    /* indices [group of 8 rows][pol]; the lane's part of a row's sum of im e2 */
    int32_t row_im[ROW_EIGHTS][2];
};

/* Antennas of a block and of a warp.  Each antenna of the block has a slot in shared memory.  Slot 0 has antenna
 * first_row, and the next slots have the next antennas.  If the block is a square off the diagonal, slot BLOCK_ROWS *
 * ROWS has antenna first_column, and the next slots have the next antennas. */
struct place {
    uint32_t n_slots, first_row, first_column;
    uint32_t row, column; /* first row antenna and first column antenna of the warp's tile */
    bool active;
};

/* with 4-bit voltages, a step is long enough without unrolling */
static constexpr int steps_at_once = BITS == 4 ? 1 : STEPS;

/* Slices: uint8 [STAGES][SLICE_STEPS][N_SLOTS][STEP_BYTES].  With several TIME_WARPS, join_warps()'s sums of 32 lanes
 * follow: [TILE_WARPS][words of struct tile][32]. */
extern __shared__ float4 shared_memory[];

/* ---- Fragments from the packets' bytes --------------------------------------------------------------------------- */

#if BITS == 4
/* Returns 16 times the real parts of the four bytes.  low_nibbles() returns 16 times the imaginary parts. */
static __device__ __forceinline__ uint32_t high_nibbles(uint32_t bytes)
{
    return (bytes ^ ZEROS) & 0xF0F0F0F0u;
}

static __device__ __forceinline__ uint32_t low_nibbles(uint32_t bytes)
{
    return (bytes << 4 ^ ZEROS) & 0xF0F0F0F0u;
}
#endif

static __device__ __forceinline__ struct fragment unpack(uint4 wire)
{
    struct fragment f;

#if BITS == 16 /* a word is (re, im) of one polarisation */
    f.r[0][0] = wire.x;
    f.r[0][1] = wire.y;
    f.r[0][2] = wire.z;
    f.r[0][3] = wire.w;
#elif BITS == 8 /* a word is a spectrum, (re, im, re, im); it becomes (re, im) of one polarisation of two spectra */
    f.r[0][0] = __byte_perm(wire.x, wire.y, 0x5410);
    f.r[0][1] = __byte_perm(wire.x, wire.y, 0x7632);
    f.r[0][2] = __byte_perm(wire.z, wire.w, 0x5410);
    f.r[0][3] = __byte_perm(wire.z, wire.w, 0x7632);
#else           /* a word is two spectra of two bytes each; re and im of four spectra go to separate registers */
    const uint32_t words[4] = {wire.x, wire.y, wire.z, wire.w};
#pragma unroll
    for (int i = 0; i < INSTRUCTIONS; i++) {
        uint32_t re0 = high_nibbles(words[2 * i]), re1 = high_nibbles(words[2 * i + 1]);
        uint32_t im0 = low_nibbles(words[2 * i]), im1 = low_nibbles(words[2 * i + 1]);
        f.r[i][0] = __byte_perm(re0, re1, 0x6420);
        f.r[i][1] = __byte_perm(re0, re1, 0x7531);
        f.r[i][2] = __byte_perm(im0, im1, 0x6420);
        f.r[i][3] = __byte_perm(im0, im1, 0x7531);
    }
#endif
    return f;
}

static __device__ __forceinline__ struct fragment turn(const struct fragment &plain)
{
    struct fragment f;

#pragma unroll
    for (int i = 0; i < INSTRUCTIONS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (BITS == 16)
                f.r[i][j] = __byte_perm(plain.r[i][j], 0, 0x1032) ^ 0x80000000u;
            else if (BITS == 8)
                f.r[i][j] = __byte_perm(plain.r[i][j], 0, 0x2301) ^ 0xFF00FF00u;
            else
                f.r[i][j] = j < 2 ? plain.r[i][j + 2] : ~plain.r[i][j - 2];
    return f;
}

/* 'f' is the lane's fragment of a row.  Adds the fragment's imaginary parts to 'row_im', for both polarisations. */
static __device__ __forceinline__ void add_im(const struct fragment &f, int32_t (&row_im)[2])
{
#pragma unroll
    for (int i = 0; i < INSTRUCTIONS; i++)
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
            if (BITS == 8)
                row_im[pol] =
                    __dp4a((int)f.r[i][pol], 0x01000100, __dp4a((int)f.r[i][pol + 2], 0x01000100, row_im[pol]));
            else if (BITS == 4)
                row_im[pol] = __dp4a((int)f.r[i][pol + 2], 0x01010101, row_im[pol]);
}

/* ---- Places of the work ------------------------------------------------------------------------------------------ */

#if N_RUNS
/* Finds tile number 'index' in the block's run of tiles.  Tiles are numbered strip by strip, from left to right
 * within a strip. */
static __device__ __forceinline__ struct place find_in_runs(uint32_t block, uint32_t index)
{
    uint32_t tile = block * TILE_WARPS + index, last = (block + 1) * TILE_WARPS - 1, n_before = 0;
    struct place p = {0, 0, 0, 0, 0, false};

    for (uint32_t row = 0; row < N_ANTS && n_before <= last; row += ROWS) {
        uint32_t end = min(row + ROWS, (uint32_t)N_ANTS), n_tiles = (end + COLUMNS - 1) / COLUMNS;
        if (tile >= n_before && tile - n_before < n_tiles) {
            p.row = row;
            p.column = (tile - n_before) * COLUMNS;
            p.active = true;
        }
        n_before += n_tiles;
        p.n_slots = end;
    }
    return p;
}

#define find_place          find_in_runs
#define row_slot(p, ant)    (ant)
#define column_slot(p, ant) (ant)
#define antenna_at(p, slot) (slot)
#else
static __device__ __forceinline__ struct place find_in_squares(uint32_t block, uint32_t index)
{
    const uint32_t height = BLOCK_ROWS * ROWS, width = BLOCK_COLUMNS * COLUMNS;
    struct place p = {height, 0, 0, 0, 0, false};

    for (;; p.first_row += height) {
        uint32_t n = (min(p.first_row + height, (uint32_t)N_ANTS) + width - 1) / width;
        if (block < n)
            break;
        block -= n;
    }
    p.first_column = block * width;
    p.n_slots += p.first_column < p.first_row ? width : 0;
    p.row = p.first_row + index / BLOCK_COLUMNS * ROWS;
    p.column = p.first_column + index % BLOCK_COLUMNS * COLUMNS;
    p.active = p.row < N_ANTS && p.column < min(p.row + ROWS, (uint32_t)N_ANTS);
    return p;
}

#define find_place find_in_squares
static __device__ __forceinline__ uint32_t row_slot(const struct place &p, uint32_t ant)
{
    return ant - p.first_row;
}

static __device__ __forceinline__ uint32_t column_slot(const struct place &p, uint32_t ant)
{
    return p.first_column < p.first_row ? ant - p.first_column + BLOCK_ROWS * ROWS : ant - p.first_row;
}

static __device__ __forceinline__ uint32_t antenna_at(const struct place &p, uint32_t slot)
{
    return slot < BLOCK_ROWS * ROWS ? p.first_row + slot : p.first_column + slot - BLOCK_ROWS * ROWS;
}
#endif

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

/* Begins to copy slice 'slice' of the launch's batches.  Voltages after the last batch are zeros. */
static __device__ __forceinline__ void load_slice(const struct correlate_args &args, const struct place &place,
                                                  uint32_t chan, uint32_t slice, uint8_t *stage)
{
    uint32_t thread = opaque(threadIdx.x), within = thread % SLICE_CHUNKS, loader = thread / SLICE_CHUNKS;
    uint32_t chunk = slice * SLICE_CHUNKS + within, batch = chunk / HEAP_CHUNKS;
    const uint8_t *from = (const uint8_t *)args.voltages +
                          ((uint64_t)(args.first_batch + batch) * N_ANTS * N_CHAN + chan) * CHAN_BYTES +
                          chunk % HEAP_CHUNKS * CHUNK_BYTES;
    uint8_t *to = stage + within / STEP_CHUNKS * STEP_STRIDE + within % STEP_CHUNKS * CHUNK_BYTES;

    if (loader >= LOADERS)
        return;
    if (batch < args.n_batches) {
#pragma unroll
        for (uint32_t i = 0; i < (N_SLOTS + LOADERS - 1) / LOADERS; i++) {
            uint32_t slot = loader + i * LOADERS, ant = antenna_at(place, slot);
            if (slot < place.n_slots && ant < N_ANTS)
                copy_async(to + slot * STEP_BYTES, from + ant * (N_CHAN * CHAN_BYTES));
        }
    } else {
#pragma unroll 1
        for (uint32_t slot = loader; slot < place.n_slots; slot += LOADERS)
            *(uint4 *)(to + slot * STEP_BYTES) = make_uint4(ZEROS, ZEROS, ZEROS, ZEROS);
    }
}

/* Multiplies the voltages of row antennas by the voltages of column antennas for one step.  Adds the products to the
 * tile's sums.  The lane reads one antenna out of each group of eight.  'rows' is the address of the lane's bytes in
 * the first group of row antennas.  'columns' is the address of the lane's bytes in the first group of column
 * antennas. */
static __device__ __forceinline__ void multiply_step(const uint8_t *rows, const uint8_t *columns, struct tile &tile)
{
    struct fragment plain[COLUMN_EIGHTS], turned[COLUMN_EIGHTS];

#pragma unroll
    for (int c = 0; c < COLUMN_EIGHTS; c++) {
        plain[c] = unpack(*(const uint4 *)(columns + c * 8 * STEP_BYTES));
        turned[c] = turn(plain[c]);
    }
#pragma unroll
    for (int r = 0; r < ROW_EIGHTS; r++) {
        struct fragment row = unpack(*(const uint4 *)(rows + r * 8 * STEP_BYTES));
        add_im(row, tile.row_im[r]);
#pragma unroll
        for (int i = 0; i < INSTRUCTIONS; i++)
#pragma unroll
            for (int c = 0; c < COLUMN_EIGHTS; c++)
#pragma unroll
                for (int pol = 0; pol < 2; pol++) {
                    sum_type(&sums)[PARTS][4] = tile.sums[r][c].v[pol];
                    multiply_add(sums[0], row.r[i], plain[c].r[i][pol], plain[c].r[i][pol + 2]);
                    multiply_add(sums[1], row.r[i], turned[c].r[i][pol], turned[c].r[i][pol + 2]);
                }
    }
}

/* ---- Sums to memory ---------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void clear(struct tile &tile)
{
#pragma unroll
    for (int r = 0; r < ROW_EIGHTS; r++) {
        tile.row_im[r][0] = tile.row_im[r][1] = 0;
#pragma unroll
        for (int c = 0; c < COLUMN_EIGHTS; c++)
#pragma unroll
            for (int i = 0; i < 16; i++)
                tile.sums[r][c].v[i / 8][i / 4 % 2][i % 4] = 0;
    }
}

/* Some warps have the same tile, for different spectra.  Adds their sums to the sums of the first of these warps. */
static __device__ __forceinline__ void join_warps(struct tile &tile)
{
    const uint32_t n_words = sizeof(struct tile) / 4, warp = threadIdx.x / 32;
    sum_type *exchange = (sum_type *)((uint8_t *)shared_memory + STAGES * STAGE_BYTES) +
                         warp % TILE_WARPS * n_words * 32 + threadIdx.x % 32;

    for (uint32_t from = 1; from < TIME_WARPS; from++) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ROW_EIGHTS; r++)
#pragma unroll
            for (int i = 0; i < COLUMN_EIGHTS * 16 + 2; i++) {
                sum_type *at = exchange + (r * (COLUMN_EIGHTS * 16 + 2) + i) * 32;
                int32_t *im = &tile.row_im[r][i & 1];
                sum_type *sum = &tile.sums[r][i < COLUMN_EIGHTS * 16 ? i / 16 : 0].v[i / 8 % 2][i / 4 % 2][i % 4];
                if (i >= COLUMN_EIGHTS * 16 && warp / TILE_WARPS == from)
                    *(int32_t *)at = *im;
                else if (warp / TILE_WARPS == from)
                    *at = *sum;
            }
        __syncthreads();
        if (warp / TILE_WARPS == 0)
#pragma unroll
            for (int r = 0; r < ROW_EIGHTS; r++)
#pragma unroll
                for (int i = 0; i < COLUMN_EIGHTS * 16 + 2; i++) {
                    sum_type *at = exchange + (r * (COLUMN_EIGHTS * 16 + 2) + i) * 32;
                    if (i >= COLUMN_EIGHTS * 16)
                        tile.row_im[r][i & 1] += *(const int32_t *)at;
                    else
                        tile.sums[r][i / 16].v[i / 8 % 2][i / 4 % 2][i % 4] += *at;
                }
    }
}

/* Returns the i-th of this lane's 16 sums of 8 x 8 antennas, in the order of memory.  The lane has the sums of row g
 * with columns 2 t and 2 t + 1.  For each column the lane has the real and imaginary parts of all products p1 + 2 p2.
 * 'im' has the row's sums of im e2. */
static __device__ __forceinline__ sum_type find_sum(const struct sums &sums, const uint32_t (&im)[2], int i)
{
    int j = i / 8, p2 = i / 4 % 2, p1 = i / 2 % 2, part = i % 2;
    sum_type sum = sums.v[p1][part][p2 * 2 + j];

#if BITS != 16
    if (part)
        sum = (int32_t)((uint32_t)sum + im[p2]);
    sum >>= BITS == 4 ? 8 : 0;
#endif
    return sum;
}

/* Returns the address of the sums of a row with eight columns. */
static __device__ __forceinline__ sum_type *find_row(sum_type *memory, uint32_t row, uint32_t column)
{
    return memory + correlate_baseline(column, row) * 8;
}

static __device__ __forceinline__ bool is_baseline(uint32_t row, uint32_t column)
{
    return row < N_ANTS && column <= row;
}

/* Adds sums of 8 x 8 antennas to memory.  No other block adds to these sums. */
static __device__ __forceinline__ void add_owned(const struct sums &sums, const uint32_t (&im)[2], uint32_t first_row,
                                                 uint32_t column, sum_type *memory)
{
    const uint32_t lane = opaque(threadIdx.x % 32), t = lane % 4, row = first_row + lane / 4;
    sum_type *const to = find_row(memory, row, column) + 4 * t;
    sum_type values[4][4]; /* indices [j][lane after the transposition] */
    sums_16_bytes before[4];

#pragma unroll
    for (int s = 0; s < 4; s++)
        if (is_baseline(row, column + 2 * s + t / 2))
            before[s] = __ldcg((const sums_16_bytes *)(to + 16 * s));
#pragma unroll
    for (int i = 0; i < 16; i++)
        values[i % 4][i / 4] = find_sum(sums, im, i);
#pragma unroll
    for (int j = 0; j < 4; j++)
        transpose_lanes(values[j]);
#pragma unroll
    for (int s = 0; s < 4; s++)
        if (is_baseline(row, column + 2 * s + t / 2)) {
            before[s].x += values[0][s];
            before[s].y += values[1][s];
            before[s].z += values[2][s];
            before[s].w += values[3][s];
            __stcg((sums_16_bytes *)(to + 16 * s), before[s]);
        }
}

/* Adds sums of 8 x 8 antennas to memory.  Other blocks also add to these sums.  Four lanes (t = 0 to 3) share a row.
 * After the transpositions, lane t has the row's sums 16 s + 4 m + t.  The four lanes of an even row then swap half of
 * their sums with the four lanes of the next row. */
static __device__ __forceinline__ void add_shared(const struct sums &sums, const uint32_t (&im)[2], uint32_t first_row,
                                                  uint32_t column, sum_type *memory)
{
    const uint32_t lane = opaque(threadIdx.x % 32), odd = lane / 4 % 2, even_row = first_row + lane / 8 * 2;
    const uint32_t within = 4 * odd + lane % 4; /* index in a baseline's sums */
    sum_type *const to[2] = {find_row(memory, even_row, column) + within,
                             find_row(memory, even_row + 1, column) + within};
    sum_type values[4][4]; /* indices [i][lane after the transposition] */

#pragma unroll
    for (int i = 0; i < 16; i++)
        values[i / 4][i % 4] = find_sum(sums, im, i);
#pragma unroll
    for (int m = 0; m < 4; m++)
        transpose_lanes(values[m]);
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
        for (int m = 0; m < 4; m += 2) {
            sum_type given = __shfl_xor_sync(0xffffffffu, odd ? values[m][s] : values[m + 1][s], 4);
            if (is_baseline(even_row, column + 2 * s + m / 2))
                atomicAdd(to[0] + 16 * s + 4 * m, odd ? given : values[m][s]);
            if (is_baseline(even_row + 1, column + 2 * s + m / 2))
                atomicAdd(to[1] + 16 * s + 4 * m, odd ? values[m + 1][s] : given);
        }
}

static __device__ __forceinline__ sum_type *find_memory(const struct correlate_args &args, uint32_t chan)
{
    return (sum_type *)args.sums.integer + opaque(chan) * ((uint64_t)correlate_n_baselines(N_ANTS) * 8);
}

/* Fetches into the L2 cache the sums that add_owned() will load for a tile. */
static __device__ __forceinline__ void fetch_owned(const struct correlate_args &args, const struct place &place,
                                                   uint32_t chan)
{
    const uint32_t lane = opaque(threadIdx.x % 32);
    sum_type *memory = find_memory(args, chan);

#pragma unroll 1
    for (uint32_t row = place.row + lane / 4; row < place.row + ROWS; row += 8)
#pragma unroll 1
        for (uint32_t column = place.column + lane % 4; column < place.column + COLUMNS; column += 4)
            if (is_baseline(row, column))
                prefetch(find_row(memory, row, column));
}

static __device__ __forceinline__ void add_tile(const struct correlate_args &args, const struct place &place,
                                                uint32_t chan, bool owned, struct tile &tile)
{
    const uint32_t row = place.row, column = place.column;
    sum_type *memory = find_memory(args, chan);

#pragma unroll
    for (int r = 0; r < ROW_EIGHTS; r++) {
        uint32_t im[2] = {0, 0};
#pragma unroll
        for (int pol = 0; BITS != 16 && pol < 2; pol++) {
#pragma unroll
            for (int lanes = 1; lanes <= 2; lanes *= 2)
                tile.row_im[r][pol] += __shfl_xor_sync(0xffffffffu, tile.row_im[r][pol], lanes);
            im[pol] = opaque((uint32_t)tile.row_im[r][pol]);
        }
#pragma unroll
        for (int c = 0; c < COLUMN_EIGHTS; c++)
            if (owned)
                add_owned(tile.sums[r][c], im, row + 8 * r, column + 8 * c, memory);
            else
                add_shared(tile.sums[r][c], im, row + 8 * r, column + 8 * c, memory);
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) correlate(const struct correlate_args args)
{
    const uint32_t warp = threadIdx.x / 32, time = warp / TILE_WARPS, lane = threadIdx.x % 32;
    const uint32_t chan = blockIdx.x / N_BLOCKS;
    const struct place place = find_place(blockIdx.x % N_BLOCKS, warp % TILE_WARPS);
    const uint32_t n_slices = (uint32_t)(((uint64_t)args.n_batches * HEAP_CHUNKS + SLICE_CHUNKS - 1) / SLICE_CHUNKS);
    const uint32_t first = (uint32_t)((uint64_t)n_slices * blockIdx.y / gridDim.y);
    const uint32_t end = (uint32_t)((uint64_t)n_slices * (blockIdx.y + 1) / gridDim.y);
    const uint32_t rows = (time * STEPS * N_SLOTS + row_slot(place, place.row) + lane / 4) * STEP_BYTES;
    const uint32_t columns = (time * STEPS * N_SLOTS + column_slot(place, place.column) + lane / 4) * STEP_BYTES;
    uint8_t *const stages = (uint8_t *)shared_memory, *const mine = stages + lane % 4 * CHUNK_BYTES;
    const bool owned = !ATOMIC_ADDS && gridDim.y == 1;
    uint32_t stage = 0;
    struct tile tile;

    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (first + i < end)
            load_slice(args, place, chan, first + i, stages + i * STAGE_BYTES);
        copies_commit();
    }
    clear(tile);
    for (uint32_t slice = first; slice < end; slice++) {
        copies_wait<STAGES - 2>();
        /* this slice is now complete, and all warps have finished the previous slice */
        __syncthreads();
        if (slice + STAGES - 1 < end)
            load_slice(args, place, chan, slice + STAGES - 1,
                       stages + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE_BYTES);
        else if (slice + STAGES - 1 == end && owned && place.active && time == 0)
            fetch_owned(args, place, chan);
        copies_commit();
        if (place.active)
#pragma unroll steps_at_once
            for (int step = 0; step < STEPS; step++)
                multiply_step(mine + stage * STAGE_BYTES + rows + step * STEP_STRIDE,
                              mine + stage * STAGE_BYTES + columns + step * STEP_STRIDE, tile);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    if (TIME_WARPS > 1)
        join_warps(tile);
    if (place.active && time == 0)
        add_tile(args, place, chan, owned, tile);
}
