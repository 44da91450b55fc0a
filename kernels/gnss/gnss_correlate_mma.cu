/* gnss_correlate_mma.cu - see gnss_correlate.h: the variant for arrays, a product of matrices of bytes.
 *
 * A block has a slice of a piece's samples, of all inputs.  Chunks of N_THREADS samples go like this: each thread makes the
 * replica of a sample for all taps, as two columns of bytes in shared memory; then the warps multiply the inputs' samples
 * with them.  A sample (x, y) of an input times the columns (a, b) and (-b, a) is the real and the imaginary part of
 * (x + iy) (a - ib).
 * A warp has 16 inputs, the rows of the product, and every K_GROUPS-th group of 32 samples.  A lane has 8 consecutive samples
 * of two rows, 16 bytes, which begin at a multiple of 2 bytes: words are put together of two where that is no multiple
 * of 4.  Within the 32 samples their order is that of the lanes, for samples and replicas alike.
 * Each warp adds its sums to the 64 bits of the integration.
 *
 * Constants: N_TAPS; N_THREADS, at most GNSS_BLOCK_SAMPLES; SLICE_SAMPLES, of which int32 has the sums; ROW_TILES: 16 inputs
 * each, 1 to 8, a divisor of the warps.  Two blocks on a multiprocessor leave registers for the loads of several groups. */
#include "kernels/gnss/gnss_replica.h"
#include "kernels/util/ptx.h"

#define CHUNK_SAMPLES N_THREADS
#define GROUP_SAMPLES 32
#define COLUMN_TILES  ((2 * N_TAPS + 7) / 8)
#define COLUMN_BYTES  (CHUNK_SAMPLES * 2 + 64) /* so that lanes of two columns read from different banks */
#define K_GROUPS      (N_THREADS / 32 / ROW_TILES)
#define ROW_WORDS     4 /* of a lane and row in a group */

#define gnss_correlate_mma_args gnss_correlate_args /* the emulator looks for arguments by the kernel's name */

extern __shared__ float4 shared_memory[];

/* Writes the replica of a chunk's sample 'at', both columns of each tap; zeros where there is no sample.
 * Columns of the last tile that no tap has keep what is there; their sums are dropped. */
static __device__ __forceinline__ void write_replica(const struct replica &r, const char2 *carrier, bool is_there,
                                                     uint32_t at, int8_t *columns)
{
    const char2 c = replica_carrier(r, carrier);

#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++) {
        const int level = is_there ? replica_level(r, tap) : 0;
        const signed char re = (signed char)(level * c.x), im = (signed char)(level * c.y);
        *(char2 *)(columns + (2 * tap) * COLUMN_BYTES + 2 * at) = make_char2(re, im);
        *(char2 *)(columns + (2 * tap + 1) * COLUMN_BYTES + 2 * at) = make_char2((signed char)-im, re);
    }
}

/* A row of the warp's inputs: the word that has the piece's first sample, and how many bits of it are not of that. */
struct row {
    const uint32_t *words;
    uint32_t shift;
};

static __device__ __forceinline__ struct row row_of(const struct gnss_correlate_args &args,
                                                    const struct gnss_piece &piece, uint32_t input)
{
    const uint32_t there = min(input, args.n_ants * 2 - 1); /* sums of others are dropped */
    const int64_t first = piece.first + args.offsets[piece.satellite * args.n_ants + there / 2];
    const uint64_t sample = there * args.pitch_samples + first;

    return {(const uint32_t *)args.samples + sample / 2, (uint32_t)(sample % 2 * 16)};
}

/* Eight samples of a row from sample 'at' of the piece on, which is even. */
static __device__ __forceinline__ void load_row(const struct row &row, uint32_t at, uint32_t (&words)[ROW_WORDS])
{
    const uint32_t *from = row.words + at / 2;
    uint32_t read[ROW_WORDS + 1];

#pragma unroll
    for (int i = 0; i < ROW_WORDS; i++)
        read[i] = __ldg(from + i);
    read[ROW_WORDS] = row.shift ? __ldg(from + ROW_WORDS) : 0;
#pragma unroll
    for (int i = 0; i < ROW_WORDS; i++)
        words[i] = __funnelshift_r(read[i], read[i + 1], row.shift);
}

/* Multiplies the rows' samples of a group with all columns, whose group begins at 'columns'. */
static __device__ __forceinline__ void multiply_group(const uint32_t (&rows)[2][ROW_WORDS], const int8_t *columns,
                                                      int (&sums)[COLUMN_TILES][4])
{
    const uint32_t lane = threadIdx.x % 32;

#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; tile++) {
        const uint4 b = *(const uint4 *)(columns + (8 * tile + lane / 4) * COLUMN_BYTES + 16 * (lane % 4));
        const uint32_t a[2][4] = {{rows[0][0], rows[1][0], rows[0][1], rows[1][1]},
                                  {rows[0][2], rows[1][2], rows[0][3], rows[1][3]}};
        multiply_add(sums[tile], a[0], b.x, b.y);
        multiply_add(sums[tile], a[1], b.z, b.w);
    }
}

/* Adds the warp's sums: of tap 4 tile + lane % 4, for the rows of the lane. */
static __device__ __forceinline__ void add_sums(const struct gnss_correlate_args &args, const struct gnss_piece &piece,
                                                uint32_t input, const int (&sums)[COLUMN_TILES][4])
{
#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t tap = 4 * tile + threadIdx.x % 4, row = input + i / 2 * 8;
            if (tap < N_TAPS && row < args.n_ants * 2)
                add_to(sums_of(args, piece, tap, row) + i % 2, sums[tile][i]);
        }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 2) gnss_correlate_mma(const struct gnss_correlate_args args)
{
    const struct gnss_piece piece = args.pieces[blockIdx.y];
    const uint32_t from = blockIdx.x * SLICE_SAMPLES, end = min(piece.n_samples, from + SLICE_SAMPLES);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t input = warp % ROW_TILES * 16 + lane / 4; /* of the lane's first row; the other is 8 behind it */
    char2 *carrier = (char2 *)shared_memory;
    int8_t *columns = (int8_t *)(carrier + GNSS_CARRIER_ENTRIES);
    int sums[COLUMN_TILES][4] = {};

    if (from >= piece.n_samples)
        return;
    copy_carrier(args, carrier);
    const struct row rows[2] = {row_of(args, piece, input), row_of(args, piece, input + 8)};
    struct replica r = replica_begin(args, piece, from + threadIdx.x);
    for (uint32_t chunk = from; chunk < end; chunk += CHUNK_SAMPLES, replica_next(r)) {
        __syncthreads();
        write_replica(r, carrier, chunk + threadIdx.x < end, threadIdx.x, columns);
        __syncthreads();
        for (uint32_t at = warp / ROW_TILES * GROUP_SAMPLES; at < min(CHUNK_SAMPLES, end - chunk);
             at += K_GROUPS * GROUP_SAMPLES) {
            uint32_t words[2][ROW_WORDS];
            load_row(rows[0], chunk + at + 8 * (lane % 4), words[0]);
            load_row(rows[1], chunk + at + 8 * (lane % 4), words[1]);
            multiply_group(words, columns + 2 * at, sums);
        }
    }
    add_sums(args, piece, input, sums);
}
