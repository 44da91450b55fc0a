/* ddc.cu - see ddc.h.
 *
 * The filter is a product of matrices, for the tensor cores (mma.m16n8k16).  Eight consecutive outputs are a row.  A
 * row uses n_taps + 7 A samples.  The samples of the next row start 8 A samples later.  All rows have the same
 * weights.  So the filter is a product of two matrices:
 *     rows x samples (overlapping windows of the input)  times  samples x 16 (re and im of 8 outputs: the weights,
 *     shifted by A from output to output)
 * With 16 * A taps, 7 of 23 weights are zeros.  A sample in registers is multiplied by its weights for all eight
 * outputs.  Samples of up to 12 bits are exact in half precision; a sample of 16 bits is the sum of two half floats.  A
 * weight is the sum of two half floats too, and both are multiplied.  So the tensor cores compute 92 products per
 * sample for any A.
 *
 * The windows of consecutive rows overlap.  Shared memory has the samples as rows of 8 A samples, unpacked once.  A row
 * of the matrix is one of these rows and the rows after it; 'shift' is the index of such a row, counted from the first
 * row.
 * If rows are long, the block processes one chunk of the columns of all rows at a time.  kernels/README.md has a
 * picture.
 *
 * Accuracy: the tensor cores truncate their sums.  The tensor cores sum over one chunk; the sums of chunks are added in
 * float32.
 *
 * A block has 16 N_TILES N_WARPS rows, and a warp 16 N_TILES of these rows and all columns.  blockIdx.y is the
 * polarisation.
 * Constants: SUBSAMPLING, N_TAPS, SAMPLE_BITS, N_WARPS, N_TILES, COLUMNS, IN_PLACE. */
#include "kernels/ddc/ddc.h"
#include "kernels/util/ptx.h"

#define N_THREADS   (32 * N_WARPS)
#define ROWS        (16 * N_TILES * N_WARPS)
#define ROW_SAMPLES (DDC_ROW_OUTPUTS * SUBSAMPLING) /* distance between the starts of consecutive rows, in samples */
#define WINDOW      (N_TAPS + (DDC_ROW_OUTPUTS - 1) * SUBSAMPLING)
#define N_SHIFTS    ((WINDOW + ROW_SAMPLES - 1) / ROW_SAMPLES)
#define N_CHUNKS    ((ROW_SAMPLES + COLUMNS - 1) / COLUMNS)
#define N_STEPS     (COLUMNS / 16)
#define LOAD_ROWS   (ROWS + N_SHIFTS - 1)
/* distance between rows, in half floats; with this distance, 16 bytes of each of 8 rows lie in different banks */
#define PITCH       (COLUMNS + 8)
#define N_PLANES    (SAMPLE_BITS > 12 ? 2 : 1)
#define PLANE       (LOAD_ROWS * PITCH)
#define N_SUMS      (N_TILES * 8)

/* Number of warps whose registers fit in a multiprocessor, for 64, 80 or 128 registers per thread. */
#define WARPS_WANTED  (N_CHUNKS > 1 ? 16 : COLUMNS > 32 ? 24 : 32)
#define BLOCKS_WANTED (WARPS_WANTED < N_WARPS ? 1 : WARPS_WANTED / N_WARPS)

/* A thread unpacks GROUP_SAMPLES samples at a time.  All groups begin at the same bit of a byte.  kernels/README.md
 * has a picture of rows, groups, segments and quads. */
#define GROUP_SAMPLES (ROW_SAMPLES % 16 == 0 ? 16 : 8)
#define N_GROUPS      (COLUMNS / GROUP_SAMPLES)                 /* groups of a row */
/* number of words of a group that begins at the start of a word */
#define STREAM_WORDS  ((GROUP_SAMPLES * SAMPLE_BITS + 31) / 32)
/* number of words that contain a group; the group may begin at any bit of the first word */
#define N_WORDS       ((GROUP_SAMPLES * SAMPLE_BITS + 31 + 31) / 32)

/* Packed samples of a chunk in shared memory: one segment, or one segment for each row if rows have several chunks. */
#define N_SEGMENTS      (N_CHUNKS > 1 ? LOAD_ROWS : 1)
#define SEGMENT_SAMPLES (N_CHUNKS > 1 ? COLUMNS : (LOAD_ROWS - 1) * ROW_SAMPLES + COLUMNS) /* samples */
#define SEGMENT_QUADS   DDC_SEGMENT_QUADS(SEGMENT_SAMPLES *SAMPLE_BITS)
#define N_QUADS         (N_SEGMENTS * SEGMENT_QUADS)

/* Shared memory: float2 [2 * N_TILES] rotations, then uint4 [N_QUADS] packed samples.  Half floats
 * [N_PLANES][LOAD_ROWS][PITCH] follow the packed samples.  If IN_PLACE is set, the half floats replace the packed
 * samples. */
extern __shared__ float4 shared_memory[];

/* ---- Pairs of half floats ---------------------------------------------------------------------------------------- */

#ifdef EMULATE_CUDA
static inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out = 0;

    for (int i = 0; i < 2; i++) {
        _Float16 half = (_Float16)fmaf(emulate_half(a, i), emulate_half(b, i), emulate_half(c, i));
        uint16_t bits;
        memcpy(&bits, &half, sizeof(bits));
        out |= (uint32_t)bits << (16 * i);
    }
    return out;
}

static inline uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c)
{
    return (a & b) ^ c;
}
#else
static __device__ __forceinline__ uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;

    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

/* Computes (a & b) ^ c, in one instruction if there are registers for the constants. */
static __device__ __forceinline__ uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;

    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

#endif

/* ---- Samples to shared memory ------------------------------------------------------------------------------------ */

/* Input of a block.  The first quad (16 aligned bytes) has the block's first sample. */
struct source {
    const uint4 *quads;
    uint32_t first_bit; /* position of the block's first sample in the first quad, in bits; < 128 */
    uint32_t last_quad; /* last quad that has a sample of the block */
};

static __device__ __forceinline__ struct source make_source(const struct ddc_args &args)
{
    uint64_t first = (uint64_t)args.offset + (uint64_t)blockIdx.x * ROWS * ROW_SAMPLES;
    uint64_t end = (uint64_t)args.offset + (uint64_t)(args.n_out - 1) * SUBSAMPLING + N_TAPS;
    uint64_t last_quad = (end * SAMPLE_BITS - 1) / 128 - first * SAMPLE_BITS / 128;
    struct source source;

    source.quads = (const uint4 *)(blockIdx.y ? args.in[1] : args.in[0]) + first * SAMPLE_BITS / 128;
    source.first_bit = (uint32_t)(first * SAMPLE_BITS % 128);
    source.last_quad = (uint32_t)(last_quad < 0xffffffff ? last_quad : 0xffffffff);
    return source;
}

static __device__ __forceinline__ uint32_t bit_of(const struct source &source, uint32_t row, uint32_t column)
{
    return source.first_bit + (row * ROW_SAMPLES + column) * SAMPLE_BITS;
}

/* Begins to copy the packed samples of columns [column, column + COLUMNS) of all rows.  Instead of samples beyond the
 * last sample, the function copies the last 16 bytes again.  These values are multiplied by zeros, or belong to
 * outputs that are not stored. */
static __device__ __forceinline__ void fetch_columns(const struct source &source, uint32_t column, uint4 *quads)
{
    if (N_SEGMENTS == 1 && source.last_quad >= N_QUADS) {
#pragma unroll
        for (uint32_t i = 0; i < N_QUADS; i += N_THREADS)
            if (i + N_THREADS <= N_QUADS || i + threadIdx.x < N_QUADS)
                copy_async(quads + i + threadIdx.x, source.quads + i + threadIdx.x);
        return;
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < N_QUADS; i += N_THREADS) {
        uint32_t quad = bit_of(source, i / SEGMENT_QUADS, column) / 128 + i % SEGMENT_QUADS;
        copy_async(quads + i, source.quads + min(quad, source.last_quad));
    }
}

/* Loads the words that contain a group. */
static __device__ __forceinline__ void load_group(const uint32_t *from, uint32_t (&words)[N_WORDS])
{
#pragma unroll
    for (int i = 0; i < N_WORDS; i++)
        words[i] = from[i];
}

/* Returns a field of 'bits' bits that begins at 'position' of the stream, moved to bit 'at'.  The other bits are
 * undefined. */
static __device__ __forceinline__ uint32_t field(const uint32_t (&stream)[STREAM_WORDS + 1], int position, int bits,
                                                 int at)
{
    int word = position / 32, offset = position % 32, shift = 32 - offset - bits - at;

    if (shift >= 0)
        return stream[word] >> shift;
    if (offset + bits <= 32)
        return stream[word] << -shift;
    return __funnelshift_r(stream[word + 1], stream[word], (uint32_t)(32 + shift));
}

/* Extracts a field of each of two samples.  A field has 'bits' <= 10 bits, and becomes the mantissa of a half float.
 * Returns the two half floats.  The value of a half float is 1024 plus the field.  'flip' inverts a field's sign bit.
 * The inversion adds 2^(bits - 1) to the field. */
static __device__ __forceinline__ uint32_t two_fields(const uint32_t (&stream)[STREAM_WORDS + 1], int position,
                                                      int bits, uint32_t flip)
{
    uint32_t mask = (1u << bits) - 1;
    uint32_t both =
        __byte_perm(field(stream, position, bits, 0), field(stream, position + SAMPLE_BITS, bits, 16), 0x7610);

    return and_xor(both, mask * 0x10001u, (0x6400u ^ flip) * 0x10001u);
}

/* Pairs of equal half floats: 1, 64, 256 and -(1024 + n).  If the sign bit is inverted, n is 2^(bits - 1).  Otherwise n
 * is 0. */
#define HALF_1   0x3c003c00u
#define HALF_64  0x54005400u
#define HALF_256 0x5c005c00u
#define MINUS(n) ((0xe400u + (n)) * 0x10001u) /* n < 1024 */

/* Unpacks samples 2 i and 2 i + 1 of a group.  A 12-bit sample is 64 times its upper 6 bits, plus its lower 6 bits.
 * 16-bit samples have two planes, for the upper and the lower 8 bits; 'plane' selects one of them. */
static __device__ __forceinline__ uint32_t unpack_pair(const uint32_t (&stream)[STREAM_WORDS + 1], int i, int plane)
{
    const int position = 2 * i * SAMPLE_BITS;

    if (SAMPLE_BITS <= 10) {
        const uint32_t sign = 1u << (SAMPLE_BITS - 1);
        return half2_fma(two_fields(stream, position, SAMPLE_BITS, sign), HALF_1, MINUS(sign));
    }
    if (SAMPLE_BITS == 12) {
        uint32_t high = half2_fma(two_fields(stream, position, 6, 32), HALF_1, MINUS(32));
        uint32_t low = half2_fma(two_fields(stream, position + 6, 6, 0), HALF_1, MINUS(0));
        return half2_fma(high, HALF_64, low);
    }
    if (plane == 0)
        return half2_fma(half2_fma(two_fields(stream, position, 8, 128), HALF_1, MINUS(128)), HALF_256, 0);
    return half2_fma(two_fields(stream, position + 8, 8, 0), HALF_1, MINUS(0));
}

/* Joins a group's bits to a stream that begins at bit 'first' of the group's words.  The most significant bit of a
 * word comes first. */
template <bool IS_BYTE>
static __device__ __forceinline__ void make_stream(const uint32_t (&words)[N_WORDS], uint32_t first,
                                                   uint32_t (&stream)[STREAM_WORDS + 1])
{
#pragma unroll
    for (int i = 0; i < STREAM_WORDS; i++) {
        uint32_t next = i + 1 < N_WORDS ? words[i + 1] : 0;
        if (IS_BYTE)
            stream[i] = __byte_perm(words[i], next, 0x0123 + first / 8 * 0x1111);
        else
            stream[i] = __funnelshift_l(__byte_perm(next, 0, 0x0123), __byte_perm(words[i], 0, 0x0123), first);
    }
    stream[STREAM_WORDS] = 0;
}

/* Unpacks a group.  The group begins at bit 'first' of its words.  IS_BYTE is true if 'first' is the first bit of a
 * byte. */
template <bool IS_BYTE>
static __device__ __forceinline__ void store_group(const uint32_t (&words)[N_WORDS], uint32_t first, uint16_t *to)
{
    uint32_t stream[STREAM_WORDS + 1];

    make_stream<IS_BYTE>(words, first, stream);
#pragma unroll
    for (int plane = 0; plane < N_PLANES; plane++)
#pragma unroll
        for (int j = 0; j < GROUP_SAMPLES; j += 8) {
            uint4 eight;
            eight.x = unpack_pair(stream, j / 2, plane);
            eight.y = unpack_pair(stream, j / 2 + 1, plane);
            eight.z = unpack_pair(stream, j / 2 + 2, plane);
            eight.w = unpack_pair(stream, j / 2 + 3, plane);
            *(uint4 *)(to + plane * PLANE + j) = eight;
        }
}

/* Unpacks the columns that fetch_columns() has copied.  Eight lanes store to eight rows, which lie in different banks.
 * Columns beyond a row's end get samples of the next row, whose weights are 0. */
template <bool IS_BYTE>
static __device__ __forceinline__ void unpack_columns(const struct source &source, uint32_t column, const uint4 *quads,
                                                      uint16_t *rows)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < (LOAD_ROWS + 7) / 8 * 8 * N_GROUPS; i += N_THREADS) {
        uint32_t row = i / (8 * N_GROUPS) * 8 + i % 8, at = i / 8 % N_GROUPS * GROUP_SAMPLES, words[N_WORDS];
        uint32_t segment = N_SEGMENTS > 1 ? row : 0, sample = (row - segment) * ROW_SAMPLES + at;
        uint32_t bit = bit_of(source, segment, column) % 128 + sample * SAMPLE_BITS;
        if (row >= LOAD_ROWS)
            continue;
        load_group((const uint32_t *)(quads + segment * SEGMENT_QUADS) + bit / 32, words);
        store_group<IS_BYTE>(words, bit % 32, rows + row * PITCH + at);
    }
}

/* Unpacks columns as unpack_columns() does, but writes the samples to the memory of the packed samples.  All threads
 * load their packed samples into registers before any thread stores samples. */
template <bool IS_BYTE>
static __device__ __forceinline__ void unpack_in_place(const struct source &source, uint4 *quads)
{
    const uint32_t step = N_THREADS / N_GROUPS, n_rounds = (LOAD_ROWS + step - 1) / step; /* rows of a round */
    uint32_t row = threadIdx.x / (8 * N_GROUPS) * 8 + threadIdx.x % 8, at = threadIdx.x / 8 % N_GROUPS * GROUP_SAMPLES;
    uint32_t bit = source.first_bit + (row * ROW_SAMPLES + at) * SAMPLE_BITS, words[n_rounds][N_WORDS];
    const uint32_t *from = (const uint32_t *)quads + bit / 32;
    uint16_t *to = (uint16_t *)quads + row * PITCH + at;

#pragma unroll
    for (uint32_t i = 0; i < n_rounds; i++)
        if ((i + 1) * step <= LOAD_ROWS || row + i * step < LOAD_ROWS)
            load_group(from + i * (step * ROW_SAMPLES * SAMPLE_BITS / 32), words[i]);
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < n_rounds; i++)
        if ((i + 1) * step <= LOAD_ROWS || row + i * step < LOAD_ROWS)
            store_group<IS_BYTE>(words[i], bit % 32, to + i * (step * PITCH));
}

template <bool IS_BYTE>
static __device__ __forceinline__ void unpack(const struct source &source, uint32_t column, uint4 *quads,
                                              uint16_t *rows)
{
    if (IN_PLACE)
        unpack_in_place<IS_BYTE>(source, quads);
    else
        unpack_columns<IS_BYTE>(source, column, quads, rows);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* A lane's sums in mma's order: [tile][output of a pair][row i, row i + 8; re, im].  Row i is lane / 4, and the pair of
 * outputs is lane % 4. */
typedef float block_sums[N_TILES][2][4];

/* Multiplies the columns in shared memory by their weights, and adds the products to 'sums'.  'row' is a row of the
 * warp's first tile.  This lane passes the row's address to ldmatrix.  'weights' is [shift][step][high, low][lane]. */
static __device__ __forceinline__ void multiply_columns(const uint16_t *row, const uint4 *weights, block_sums &sums)
{
#pragma unroll 1
    for (int shift = 0; shift < N_SHIFTS; shift++, row += PITCH, weights += N_STEPS * 64)
#pragma unroll
        for (int step = 0; step < N_STEPS; step++) {
            uint4 high = __ldg(weights + step * 64), low = __ldg(weights + step * 64 + 32);
#pragma unroll
            for (int plane = 0; plane < N_PLANES; plane++) {
                uint32_t a[N_TILES][4];
#pragma unroll
                for (int tile = 0; tile < N_TILES; tile++)
                    load_matrices(a[tile], shared_address_of(row + plane * PLANE + 16 * tile * PITCH + 16 * step));
#pragma unroll
                for (int tile = 0; tile < N_TILES; tile++) {
                    multiply_add(sums[tile][0], a[tile], low.x, low.y);
                    multiply_add(sums[tile][1], a[tile], low.z, low.w);
                }
#pragma unroll
                for (int tile = 0; tile < N_TILES; tile++) {
                    multiply_add(sums[tile][0], a[tile], high.x, high.y);
                    multiply_add(sums[tile][1], a[tile], high.z, high.w);
                }
            }
        }
}

static __device__ __forceinline__ float2 rotation(uint64_t turns)
{
    float2 out;

    sincospif((float)(int32_t)(uint32_t)(turns >> 32) * 0x1p-31f, &out.y, &out.x);
    return out;
}

static __device__ __forceinline__ float2 multiply(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* Stores a row's pair of outputs to 'to'.  'n' is the number of outputs that remain to be stored, including this
 * pair.  IS_WHOLE is true if at least two outputs always remain. */
template <bool IS_WHOLE>
static __device__ __forceinline__ void store_pair(float *to, int n, float2 first, float2 second)
{
    if (IS_WHOLE || n > 1)
        __stcs((float4 *)to, make_float4(first.x, first.y, second.x, second.y));
    else if (n > 0)
        __stcs((float2 *)to, first);
}

/* Stores the warp's outputs. rotations[i] is the phase rotation over 8 i rows, multiplied by 'scale'. */
template <bool IS_WHOLE>
static __device__ __forceinline__ void store(const struct ddc_args &args, const float2 *rotations,
                                             const block_sums &sums)
{
    uint32_t warp_row = blockIdx.x * ROWS + threadIdx.x / 32 * (16 * N_TILES);
    uint32_t m = (warp_row + threadIdx.x % 32 / 4) * DDC_ROW_OUTPUTS, pair = threadIdx.x % 4 * 2;
    float *out = (blockIdx.y ? args.out[1] : args.out[0]) + 2 * (uint64_t)(m + pair);
    float2 start = rotation(args.phase + m * args.phase_step);

#pragma unroll
    for (int i = 0; i < 2 * N_TILES; i++) {
        const int row = 8 * DDC_ROW_OUTPUTS * i;
        float2 by = multiply(start, rotations[i]);
        const float *first = &sums[i / 2][0][i % 2 * 2], *second = &sums[i / 2][1][i % 2 * 2];
        store_pair<IS_WHOLE>(out + 2 * row, (int)(args.n_out - m - pair) - row,
                             multiply(by, make_float2(first[0], first[1])),
                             multiply(by, make_float2(second[0], second[1])));
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_WANTED) ddc(const struct ddc_args args)
{
    float2 *rotations = (float2 *)shared_memory;
    uint4 *quads = (uint4 *)(rotations + 2 * N_TILES);
    uint16_t *rows = (uint16_t *)(IN_PLACE ? quads : quads + N_QUADS);
    uint32_t lane = threadIdx.x % 32;
    const uint16_t *row = rows + (threadIdx.x / 32 * (16 * N_TILES) + lane % 16) * PITCH + lane / 16 * 8;
    struct source source = make_source(args);
    block_sums total = {};

    fetch_columns(source, 0, quads);
    if (threadIdx.x < 2 * N_TILES) {
        float2 by = rotation(threadIdx.x * (8 * DDC_ROW_OUTPUTS * args.phase_step));
        rotations[threadIdx.x] = make_float2(by.x * args.scale, by.y * args.scale);
    }
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < N_CHUNKS; chunk++) {
        const uint4 *weights = (const uint4 *)args.weights + (size_t)chunk * (N_SHIFTS * N_STEPS * 64) + lane;
        block_sums piece = {};

        copies_wait_all();
        __syncthreads();
        if (source.first_bit % 8 == 0)
            unpack<true>(source, chunk * COLUMNS, quads, rows);
        else
            unpack<false>(source, chunk * COLUMNS, quads, rows);
        __syncthreads();
        if (chunk + 1 < N_CHUNKS)
            fetch_columns(source, (chunk + 1) * COLUMNS, quads);
        multiply_columns(row, weights, piece);
#pragma unroll
        for (int i = 0; i < N_SUMS; i++)
            (&total[0][0][0])[i] = (&piece[0][0][0])[i] + (N_CHUNKS > 1 ? (&total[0][0][0])[i] : -0.0f);
    }
    if ((blockIdx.x + 1) * (ROWS * DDC_ROW_OUTPUTS) <= args.n_out)
        store<true>(args, rotations, total);
    else
        store<false>(args, rotations, total);
}
