/* channelise_front_tensor.cu - channelise_front with the filter on tensor cores.  See channelise_fused.h.
 *
 * What a column gives in 8 consecutive spectra is what its samples in 7 + N_TAPS consecutive rows give with a matrix of its
 * weights, T[j][r] = w[j - r].  A multiplication takes 16 such rows of samples: both polarisations of four quarters of
 * the block's section, each of which goes on by 16 rows at a time, for its first 8 spectra and for its second.  So a sample
 * is unpacked once, where the multiplication wants it, and kept there for the K_TILES - 1 tiles that follow.
 *
 * Samples are half floats, which is exact; a weight is the sum of two, which is as exact as a float to 2^-22 of the
 * largest.  Products are exact, sums are in float.
 *
 * A warp has 16 columns, in segments of SEGMENT that are neighbours in a row.  In its fragments (PTX ISA, matrix fragments
 * for mma.m16n8k8) lane l has, of polarisation l / 4 % 2 of quarter l / 8: of the samples, rows 2 (l % 4) + {0, 1} of
 * each 8; and of the result, spectra 2 (l % 4) + {0, 1, 8, 9}. */
#include "kernels/channelise_fused.h"
#include "kernels/fft_registers.h"

#define M         (2 * N_CHAN)
#define M1        FRONT_ROWS
#define M2        (M / M1)
#define C         FRONT_COLUMNS
#define RADIX_A   FRONT_RADIX
#define RADIX_B   (M1 / RADIX_A)
#define COLUMNS   (M1 * C)
#define N_THREADS (2 * COLUMNS)
#define QUARTERS  4
#define DEPTH     16                 /* spectra of a quarter in a tile */
#define G         (QUARTERS * DEPTH) /* spectra of a tile */

#define MINE       16                    /* columns of a warp */
#define SEGMENT    (C < MINE ? C : MINE) /* of these, neighbours in a row */
#define N_SEGMENTS (MINE / SEGMENT)
#define N_LOADS    ((SEGMENT * SAMPLE_BITS + 126) / 64) /* of 8 bytes, which have a row's segment wherever it begins */
#define N_WORDS    ((SEGMENT * SAMPLE_BITS + 31) / 32)  /* that it has when it begins with one */
#define PITCH      ((int64_t)M * SAMPLE_BITS / 8)       /* bytes from row to row */

#define K_TILES   ((DEPTH - 1 + N_TAPS + 15) / 16)
#define N_PARTS   ((N_TAPS + 6) / 8 + 1) /* of T, 8 rows each */
#define N_ENTRIES (8 * (N_PARTS - 1) + 14)

/* Where the points of a tile lie: so that what the lanes of a warp store together meets different banks. */
#define POINTS_PITCH (COLUMNS + 1)
#define POINT(s)     ((s)*POINTS_PITCH + (s) / 16 % 2 + (s) / 32 * 8)

/* ---- Half floats, in pairs --------------------------------------------------------------------------------------- */

#ifdef EMULATE_CUDA

static float float_of(uint32_t half)
{
    int exponent = (int)(half >> 10 & 31);
    float value =
        exponent == 0 ? ldexpf((float)(half & 1023), -24) : ldexpf((float)(1024 + (half & 1023)), exponent - 25);

    return half & 0x8000 ? -value : value;
}

#endif

/* Both halves minus 'offset', where they are 1024 to 2047. */
static __device__ __forceinline__ uint32_t subtract_offset(uint32_t both)
{
    const int offset = 1024 + (1 << (SAMPLE_BITS - 1));

#ifdef EMULATE_CUDA
    uint32_t out = 0;
    for (int i = 0; i < 2; i++) {
        int value = (int)float_of(both >> (16 * i) & 0xffff) - offset, exponent = 0;
        unsigned size = (unsigned)(value < 0 ? -value : value);
        if (value == 0)
            continue;
        while (size >> exponent > 1)
            exponent++;
        out |= ((value < 0 ? 0x8000u : 0u) | (unsigned)(exponent + 15) << 10 | (size << 10 >> exponent & 1023))
               << (16 * i);
    }
    return out;
#else
    const uint32_t half = 0x6400 + (1 << (SAMPLE_BITS - 1)); /* 'offset', of 1024 to 2047 */
    uint32_t out;

    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(both), "r"(half << 16 | half));
    return out;
#endif
}

/* The squares of both halves, added to 'sum'. */
static __device__ __forceinline__ float add_squares(uint32_t both, float sum)
{
    float a, b;

#ifdef EMULATE_CUDA
    a = float_of(both & 0xffff);
    b = float_of(both >> 16);
#else
    asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %2; cvt.f32.f16 %0, lower; cvt.f32.f16 %1, upper; }"
        : "=f"(a), "=f"(b)
        : "r"(both));
#endif
    return fmaf(a, a, fmaf(b, b, sum));
}

/* d = c + a b: 16 x 8 times 8 x 8. */
static __device__ __forceinline__ void multiply_add(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, float c0,
                                                    float c1, float c2, float c3)
{
#ifdef EMULATE_CUDA
    const float c[4] = {c0, c1, c2, c3};
    memcpy(d, c, sizeof(c));
    for (int from = 0; from < 4; from++) { /* k = 2 'from' + {0, 1} */
        uint32_t bs[2];
        const uint64_t both = __shfl_sync(0xffffffffu, (uint64_t)a1 << 32 | a0, (int)(threadIdx.x % 32 / 4) * 4 + from);
        const uint32_t as[2] = {(uint32_t)both, (uint32_t)(both >> 32)};
        for (int n = 0; n < 2; n++)
            bs[n] = __shfl_sync(0xffffffffu, b, (int)(threadIdx.x % 4 * 2 + n) * 4 + from);
        for (int out = 0; out < 4; out++)
            for (int k = 0; k < 2; k++)
                d[out] += float_of(as[out / 2] >> (16 * k) & 0xffff) * float_of(bs[out % 2] >> (16 * k) & 0xffff);
    }
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
#endif
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

/* Where a lane's samples of a segment are, in the first of its rows.  Packed, as registers are scarce: bits 0..15 of 'how'
 * select the bytes of the first whole word out of two, turned round; 16..18: bits beyond; 31: it begins in the second word
 * of the first load. */
struct place {
    const uint2 *from;
    uint32_t how;
};

static __device__ __forceinline__ struct place find_place(const uint8_t *in, int64_t sample)
{
    int64_t bit = sample * SAMPLE_BITS;
    unsigned within = (unsigned)(bit % 64);

    return {(const uint2 *)(in + bit / 64 * 8),
            (0x0123 + 0x1111 * (within / 8 % 4)) | within % 8 << 16 | within / 32 << 31};
}

/* Rows 2 (lane % 4) + {0, 1, 8, 9}, of which 'n_rows' are there; others are anything. */
static __device__ __forceinline__ void load_rows(const uint2 *from, int n_rows, uint2 (&loaded)[4][N_LOADS])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i % 2 + i / 2 * 8;
        if (row < n_rows)
#pragma unroll
            for (int w = 0; w < N_LOADS; w++)
                loaded[i][w] = ((const uint2 *)((const uint8_t *)from + row * PITCH))[w];
    }
}

/* A row's segment as words that begin with its first bit, the first in the highest; and one word beyond. */
static __device__ __forceinline__ void align_row(const uint2 (&loaded)[N_LOADS], const struct place &place,
                                                 uint32_t (&row)[N_WORDS + 1])
{
    uint32_t words[2 * N_LOADS + 1], turned[N_WORDS + 1], shift = place.how >> 16 & 7;
    bool odd = place.how >> 31;

#pragma unroll
    for (int w = 0; w < N_LOADS; w++) {
        words[2 * w] = odd ? loaded[w].y : loaded[w].x;
        words[2 * w + 1] = odd ? loaded[w + 1 < N_LOADS ? w + 1 : w].x : loaded[w].y;
    }
    words[2 * N_LOADS] = 0;
#pragma unroll
    for (int w = 0; w < N_WORDS + 1; w++)
        turned[w] = __byte_perm(words[w], words[w + 1 < 2 * N_LOADS ? w + 1 : w], place.how & 0xffff);
#pragma unroll
    for (int w = 0; w < N_WORDS; w++)
        row[w] = __funnelshift_l(turned[w + 1], turned[w], shift);
    row[N_WORDS] = 0;
}

/* Sample c of the segment, at the lowest of its bits 'at' and up; what else is there is not cleared. */
static __device__ __forceinline__ uint32_t sample_at(const uint32_t (&row)[N_WORDS + 1], int c, int at)
{
    const int bit = c * SAMPLE_BITS, word = bit / 32, right = 64 - SAMPLE_BITS - bit % 32 - at; /* in two words */

    if (right >= 32)
        return right == 32 ? row[word] : row[word] >> (right - 32);
    return __funnelshift_r(row[word + 1], row[word], right);
}

/* Sample c of two rows, as half floats. */
static __device__ __forceinline__ uint32_t unpack_pair(const uint32_t (&row)[N_WORDS + 1],
                                                       const uint32_t (&next)[N_WORDS + 1], int c)
{
    const uint32_t mask = (1u << SAMPLE_BITS) - 1, sign = 1u << (SAMPLE_BITS - 1);
    uint32_t both = (sample_at(row, c, 0) & 0xffff) | (sample_at(next, c, 16) & 0xffff0000);

    return subtract_offset((both & (mask << 16 | mask)) ^ (0x64006400 | sign << 16 | sign));
}

/* ---- The filter -------------------------------------------------------------------------------------------------- */

/* Of a column: pairs (w[d], w[d + 1]), d from -7 on, of the weights' upper halves and of the lower ones. */
struct column_weights {
    uint2 pairs[N_ENTRIES];
};

/* Shared memory of the block, behind its points. */
struct tables {
    struct column_weights weights[COLUMNS];
    float2 outer[M1][C];
    float2 inner[M1];
};

/* The tile's spectra of a column; samples[t] of K_TILES tiles, the oldest first. */
static __device__ __forceinline__ void filter_column(const struct column_weights *weights,
                                                     const uint32_t (&samples)[K_TILES][2], float *points)
{
    const uint2 *mine = weights->pairs + (2 * (threadIdx.x % 4) + 7 - threadIdx.x % 32 / 4);
    float sums[4];

#pragma unroll
    for (int i = 0; i < N_PARTS; i++) {
        uint2 part = mine[8 * i];
        uint32_t first = samples[i / 2][i % 2], second = samples[(i + 1) / 2][(i + 1) % 2];
        if (i == 0) /* a sum begun with constants needs no registers that are zero */
            multiply_add(sums, first, second, part.y, 0, 0, 0, 0);
        else
            multiply_add(sums, first, second, part.y, sums[0], sums[1], sums[2], sums[3]);
        multiply_add(sums, first, second, part.x, sums[0], sums[1], sums[2], sums[3]);
    }
    points += 2 * POINT(threadIdx.x % 32 / 8 * DEPTH) + 2 * (threadIdx.x % 4) * 2 * POINTS_PITCH + threadIdx.x / 4 % 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
        points[(i % 2 + i / 2 * 8) * 2 * POINTS_PITCH] = sums[i];
}

/* ---- The transform ----------------------------------------------------------------------------------------------- */

/* The first pass of the block's transforms, in place: [spectrum][ja][jb][c] to [spectrum][ka][jb][c]. */
static __device__ __forceinline__ void first_pass(float2 *points, const float2 *inner)
{
    const int step = N_THREADS / (RADIX_B * C);
    int column = threadIdx.x % (RADIX_B * C), jb = column / C;
    float2 turn[RADIX_A];

#pragma unroll
    for (int ka = 1; ka < RADIX_A; ka++)
        turn[ka] = inner[jb * RADIX_A + ka];
    for (int s = threadIdx.x / (RADIX_B * C); s < G; s += step) {
        float2 *at = points + POINT(s) + column, v[RADIX_A];
#pragma unroll
        for (int i = 0; i < RADIX_A; i++)
            v[i] = at[i * (RADIX_B * C)];
        fft_registers<RADIX_A>(v);
        at[0] = v[0];
#pragma unroll
        for (int i = 1; i < RADIX_A; i++)
            at[i * (RADIX_B * C)] = complex_multiply(v[i], turn[i]);
    }
}

/* The last pass, to device memory: [spectrum][ka][jb][c] to [spectrum][k1 = ka + RADIX_A kb][j2].  'out' is of the tile's
 * first spectrum, with 'n' spectra from there to the end; a quarter has 'quarter' of them. */
static __device__ __forceinline__ void last_pass(const float2 *points, const float2 (&outer)[M1][C], float2 *out, int n,
                                                 int quarter)
{
    const int radix = RADIX_B == 1 ? RADIX_A : RADIX_B, n_first = M1 / radix;
    const int step = N_THREADS / (n_first * C);
    int ka = threadIdx.x / C % n_first, j2 = blockIdx.x * C + threadIdx.x % C;
    const float2 *turn = &outer[ka][threadIdx.x % C]; /* taken from there each time, for want of registers */

    for (int s = threadIdx.x / (n_first * C); s < G; s += step) {
        int spectrum = s / DEPTH * quarter + s % DEPTH;
        const float2 *at = points + POINT(s) + ka * radix * C + threadIdx.x % C;
        float2 *to = out + ((int64_t)spectrum * M1 + ka) * M2 + j2, v[radix];
        if (spectrum >= n)
            continue;
#pragma unroll
        for (int i = 0; i < radix; i++)
            v[i] = at[i * C];
        fft_registers<radix>(v);
#pragma unroll
        for (int i = 0; i < radix; i++)
            to[(int64_t)i * n_first * M2] = complex_multiply(v[i], turn[i * n_first * C]);
    }
}

/* Adds what the warp's lanes found, each of the polarisation that it has. */
static __device__ __forceinline__ void add_power(uint64_t power, uint64_t *sum)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        if (lanes != 4)
            power += __shfl_xor_sync(0xffffffffu, power, lanes);
    if ((threadIdx.x & 27) == 0) /* lanes 0 and 4 */
        atomicAdd((unsigned long long *)sum + threadIdx.x / 4 % 2, power);
}

/* Of a pair of rows, 'n' of which count, what is to be squared. */
static __device__ __forceinline__ uint32_t mask_of(int n)
{
    return n >= 2 ? 0xffffffff : n == 1 ? 0x0000ffff : 0;
}

/* ---- The block --------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void load_tables(const struct channelise_front_tensor_args &args,
                                                   struct tables *tables)
{
    for (unsigned i = threadIdx.x; i < COLUMNS * N_ENTRIES; i += N_THREADS) {
        unsigned column = i % COLUMNS; /* neighbours load neighbours */
        int d = (int)(i / COLUMNS) - 7;
        const uint32_t *of = args.weights + column / C * M2 + blockIdx.x * C + column % C;
        uint32_t first = d >= 0 && d < N_TAPS ? of[(int64_t)d * M] : 0;
        uint32_t second = d + 1 >= 0 && d + 1 < N_TAPS ? of[(int64_t)(d + 1) * M] : 0;
        tables->weights[column].pairs[d + 7] =
            make_uint2(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
    for (unsigned i = threadIdx.x; i < M1 * C; i += N_THREADS)
        tables->outer[i / C][i % C] = ((const float2 *)args.outer)[i / C * M2 + blockIdx.x * C + i % C];
    for (unsigned i = threadIdx.x; i < M1; i += N_THREADS)
        tables->inner[i] = ((const float2 *)args.inner)[i];
}

extern "C" __global__ void __launch_bounds__(N_THREADS, FRONT_BLOCKS)
    channelise_front_tensor(const struct channelise_front_tensor_args args)
{
    extern __shared__ float4 shared_memory[];
    float2 *points = (float2 *)shared_memory; /* [spectrum][j1][c], as POINT() has it */
    struct tables *tables = (struct tables *)(points + POINT(G));
    const unsigned lane = threadIdx.x % 32, mine = threadIdx.x / 32 * MINE;
    const int begin = (int)(blockIdx.y * args.section_spectra), quarter = (int)args.section_spectra / QUARTERS;
    const int n = (int)args.n_spectra - begin, n_tiles = (min(n, quarter) + DEPTH - 1) / DEPTH;
    /* Of this lane's rows, how many there are from the first on. */
    int n_rows = n + N_TAPS - 1 - (int)(lane / 8) * quarter - (int)(lane % 4) * 2;
    struct place places[N_SEGMENTS];
    uint2 loaded[4][N_LOADS] = {};
    uint32_t samples[MINE][K_TILES][2] = {};
    uint64_t power = 0;

#pragma unroll
    for (int i = 0; i < N_SEGMENTS; i++) {
        unsigned column = mine + i * SEGMENT, pol = lane / 4 % 2;
        int64_t row = begin + (int64_t)(lane / 8) * quarter + lane % 4 * 2;
        places[i] = find_place(pol ? args.in[1] : args.in[0], (pol ? args.offset[1] : args.offset[0]) + row * M +
                                                                  column / C * M2 + blockIdx.x * C + column % C);
    }
    load_rows(places[0].from, n_rows, loaded);
    load_tables(args, tables);
    __syncthreads();
#pragma unroll 1
    for (int tile = 1 - K_TILES; tile < n_tiles; tile++) {
        /* Rows that count as somebody's first taps, and the sum of squares: 64 at most, of 2^18 at most, so exact. */
        const int n_counted = (tile + K_TILES - 1) * DEPTH < quarter ? n_rows - (N_TAPS - 1) : 0;
        float squares = 0;
#pragma unroll
        for (int i = 0; i < N_SEGMENTS; i++) {
            uint32_t rows[4][N_WORDS + 1];
#pragma unroll
            for (int r = 0; r < 4; r++)
                align_row(loaded[r], places[i], rows[r]);
            places[i].from = (const uint2 *)((const uint8_t *)places[i].from + DEPTH * PITCH);
            if (i + 1 < N_SEGMENTS)
                load_rows(places[i + 1].from, n_rows, loaded);
#pragma unroll
            for (int c = 0; c < SEGMENT; c++) {
                const int column = i * SEGMENT + c;
#pragma unroll
                for (int t = 0; t + 1 < K_TILES; t++)
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        samples[column][t][k] = samples[column][t + 1][k];
                samples[column][K_TILES - 1][0] = unpack_pair(rows[0], rows[1], c);
                samples[column][K_TILES - 1][1] = unpack_pair(rows[2], rows[3], c);
                if (POWER)
                    squares =
                        add_squares(samples[column][K_TILES - 1][0] & mask_of(n_counted),
                                    add_squares(samples[column][K_TILES - 1][1] & mask_of(n_counted - 8), squares));
                filter_column(&tables->weights[mine + column], samples[column], (float *)(points + mine + column));
            }
        }
        power += (uint32_t)squares;
        n_rows -= DEPTH;
        __syncthreads();
        /* They are on their way while the block transforms; not before, as there are no registers. */
        load_rows(places[0].from, n_rows, loaded);
        if (tile < 0) /* the first spectra are not complete */
            continue;
        if (RADIX_B > 1) {
            first_pass(points, tables->inner);
            __syncthreads();
        }
        last_pass(points, tables->outer, (float2 *)args.out + (int64_t)(begin + tile * DEPTH) * M, n - tile * DEPTH,
                  quarter);
        __syncthreads();
    }
    if (POWER)
        add_power(power, args.power);
}
