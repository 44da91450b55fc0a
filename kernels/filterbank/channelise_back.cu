/* channelise_back.cu - the second factor of the transform, and the steps after it.  See channelise_fused.h.
 *
 * A block works on TILES tiles, one after the other.  A tile is PAIRS pairs of rows of TILE_SPECTRA spectra.  Quantised
 * values stay in shared memory until the last tile, so that a warp stores longer pieces.  Each piece is a separate
 * request to the L2 cache. */
#include "kernels/util/bulk_copy.h"
#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/fft_registers.h"
#include "kernels/util/keep.h"
#include "kernels/filterbank/quantise.h"

#define POINTS       (2 * N_CHAN)
#define M1           FRONT_ROWS
#define M2           (POINTS / M1)
#define RADIX_A      BACK_RADIX
#define RADIX_B      (M2 / RADIX_A)
#define TILE_SPECTRA BACK_SPECTRA
#define PAIRS        BACK_PAIRS
#define TILES        BACK_TILES
#define N_THREADS    BACK_THREADS
#define N_LINES      (PAIRS * 2 * TILE_SPECTRA) /* transforms of a tile */

/* Between the two passes the layout of a line is [a][b].  The padding makes the lanes of a warp access different
 * banks in both passes.  After the last pass the layout is [k]. */
#define PITCH_A    (RADIX_B > 1 ? RADIX_B + 1 : 1)
#define LINE_PITCH (RADIX_A * PITCH_A)

#define N_TOGETHER 4 /* number of spectra of a channel that a thread stores together */
#define N_GROUPS   (TILE_SPECTRA / N_TOGETHER)

/* A warp processes whole lines, the same lines in both passes.  So a warp never waits for another warp. */
#define WARP_LINES (N_LINES / (N_THREADS / 32))
static_assert(WARP_LINES * RADIX_A % 32 == 0 && WARP_LINES * RADIX_B % 32 == 0, "transforms must use all lanes");

struct tile {
    uint32_t pair, spectrum; /* first pair of rows, and index of the first spectrum in the buffer */
};

/* Order of the blocks.  The spectra of a 128-byte line of a channel of the output belong to consecutive blocks.  The
 * next blocks process the same spectra of the next pairs of rows.  So the lines in the L2 cache are complete soon, and
 * each line is written to memory once. */
/* number of spectra in a 128-byte line; each spectrum has both polarisations */
#define LINE_SPECTRA (128 / (OUT_BITS / 2))
#define NEAR_SPECTRA (SPECTRA_PER_HEAP % LINE_SPECTRA == 0 ? LINE_SPECTRA : SPECTRA_PER_HEAP % 32 == 0 ? 32 : 16)
#define N_NEAR       (NEAR_SPECTRA / (TILES * TILE_SPECTRA))
/* value of gridDim.x; each block has PAIRS of the M1 / 2 pairs of rows */
#define N_PLACES     (M1 / 2 / PAIRS)

/* Returns the first tile of the block. */
static __device__ __forceinline__ struct tile find_tile(void)
{
    const uint32_t i = blockIdx.y * N_PLACES + blockIdx.x;

    return {i / N_NEAR % N_PLACES * PAIRS, (i / N_NEAR / N_PLACES * N_NEAR + i % N_NEAR) * (TILES * TILE_SPECTRA)};
}

/* Returns the row k1 of a pair; 'which' is 0 or 1. */
static __device__ __forceinline__ unsigned row_of(unsigned pair, unsigned which)
{
    return which == 0 ? pair : pair == 0 ? M1 / 2 : M1 - pair;
}

/* Returns the start of line 'line' of the tile.  Lines are [pair][2][spectrum]. */
static __device__ __forceinline__ const float2 *find_line(const float2 *in, struct tile tile, unsigned line)
{
    unsigned row = (tile.spectrum + line % TILE_SPECTRA) * M1 +
                   row_of(tile.pair + line / (2 * TILE_SPECTRA), line / TILE_SPECTRA % 2);

    return in + (uint64_t)row * M2;
}

/* Returns the item of the lane's m-th transform in a pass with n_rest transforms for each line.  The item is n_rest
 * times the line, plus the transform's number in the line. */
static __device__ __forceinline__ unsigned nth_item(unsigned m, unsigned n_rest)
{
    return threadIdx.x / 32 * (WARP_LINES * n_rest) + m * 32 + threadIdx.x % 32;
}

/* Multiplies the points by the twiddle factors.  One load fetches two factors.  The factor of point 0 is 1. */
static __device__ __forceinline__ void turn_points(float2 (&v)[RADIX_A], const float4 *twiddles)
{
#pragma unroll
    for (int a = 0; a < RADIX_A; a += 2) {
        float4 turns = twiddles[a / 2 * RADIX_B];
        if (a > 0)
            v[a] = complex_multiply(v[a], make_float2(turns.x, turns.y));
        v[a + 1] = complex_multiply(v[a + 1], make_float2(turns.z, turns.w));
    }
}

/* Ends the first pass, along axis 'a': multiplies item 'i' by the twiddle factors, and stores the item as [a][b].  If
 * there is only one pass, the transform is then complete. */
static __device__ __forceinline__ void store_first(float2 *lines, unsigned i, float2 (&v)[RADIX_A],
                                                   const float4 *twiddles)
{
    unsigned b = i % RADIX_B;
    float2 *to = lines + i / RADIX_B * LINE_PITCH + b;

    if (RADIX_B > 1)
        turn_points(v, twiddles + b);
#pragma unroll
    for (int a = 0; a < RADIX_A; a++)
        to[a * PITCH_A] = v[a];
}

/* Does the last pass, along axis 'b'.  The layout of a line changes from [a][b] to [k = a + RADIX_A k_b].  All lanes
 * read before any lane writes. */
static __device__ __forceinline__ void last_pass(float2 *lines)
{
    const unsigned n_mine = WARP_LINES * RADIX_A / 32;
    float2 v[n_mine][RADIX_B];

#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = nth_item(m, RADIX_A);
        const float2 *from = lines + i / RADIX_A * LINE_PITCH + i % RADIX_A * PITCH_A;
#pragma unroll
        for (unsigned b = 0; b < RADIX_B; b++)
            v[m][b] = from[b];
        fft_registers<RADIX_B>(v[m]);
    }
    __syncwarp();
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = nth_item(m, RADIX_A);
        float2 *to = lines + i / RADIX_A * LINE_PITCH + i % RADIX_A;
#pragma unroll
        for (unsigned b = 0; b < RADIX_B; b++)
            to[b * RADIX_A] = v[m][b];
    }
}

#include "kernels/filterbank/channelise_back_channels.h"

#if BACK_BULK

/* Starts to fetch the warp's lines of a tile.  Each line is copied to the shared memory where it is then transformed.
 * The caller has made sure that all lines of the previous tile have been read. */
static __device__ __forceinline__ void fetch_lines(float2 *lines, const float2 *in, struct tile tile, uint64_t *landed)
{
    const uint32_t warp = uniform_warp();

    if (elect_lane()) {
        bulk_expect(landed + warp, WARP_LINES * M2 * sizeof(float2));
#pragma unroll 1
        for (unsigned line = warp * WARP_LINES; line < (warp + 1) * WARP_LINES; line++)
            bulk_copy(lines + line * LINE_PITCH, find_line(in, tile, line), M2 * sizeof(float2), landed + warp);
    }
}

/* Initialises a barrier for each warp.  The barrier opens when the warp's lines of a tile have arrived. */
static __device__ __forceinline__ void begin_fetches(uint64_t *landed)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < N_THREADS / 32; i++)
            barrier_init(landed + i, 1);
        bulk_fence_barriers();
    }
    __syncthreads();
}

/* Waits until the warp's lines of the block's tile number 't' have arrived.  Then does the first pass over these
 * lines, along axis 'a'.  All lanes read before any lane writes. */
static __device__ __forceinline__ void first_pass(float2 *lines, const float2 *, struct tile, int t, uint64_t *landed,
                                                  const float4 *twiddles)
{
    const unsigned n_mine = WARP_LINES * RADIX_B / 32;
    float2 v[n_mine][RADIX_A];

    bulk_wait(landed + threadIdx.x / 32, t);
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = nth_item(m, RADIX_B);
        const float2 *from = lines + i / RADIX_B * LINE_PITCH + i % RADIX_B;
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[m][a] = from[a * RADIX_B];
        fft_registers<RADIX_A>(v[m]);
    }
    __syncwarp();
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++)
        store_first(lines, nth_item(m, RADIX_B), v[m], twiddles);
}

#else

static __device__ __forceinline__ void begin_fetches(uint64_t *)
{
}

static __device__ __forceinline__ void fetch_lines(float2 *, const float2 *, struct tile, uint64_t *)
{
}

/* Does the first pass over the warp's lines of 'tile', along axis 'a'. */
static __device__ __forceinline__ void first_pass(float2 *lines, const float2 *in, struct tile tile, int, uint64_t *,
                                                  const float4 *twiddles)
{
    for (unsigned m = 0; m < WARP_LINES * RADIX_B / 32; m++) {
        unsigned i = nth_item(m, RADIX_B);
        const float2 *from = find_line(in, tile, i / RADIX_B) + i % RADIX_B;
        float2 v[RADIX_A];
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[a] = __ldcs(from + a * RADIX_B);
        fft_registers<RADIX_A>(v);
        store_first(lines, i, v, twiddles);
    }
}

#endif

extern "C" __global__ void __launch_bounds__(N_THREADS, BACK_BLOCKS)
    channelise_back(const struct channelise_back_args args)
{
    extern __shared__ float4 shared_memory[];
    struct tile tile = find_tile();
    const float2 *in = (const float2 *)args.in;
    float2 *lines = (float2 *)shared_memory; /* [pair][row][spectrum][LINE_PITCH] */
    struct chunk *kept = (struct chunk *)(lines + N_LINES * LINE_PITCH);
    uint64_t *landed = (uint64_t *)(kept + N_KEPT);
    const float4 *twiddles = (const float4 *)args.twiddles;
    struct task task = begin_task();
    uint32_t n_clipped[2] = {0, 0};

    begin_fetches(landed);
    fetch_lines(lines, in, tile, landed);
#pragma unroll 1
    for (int t = 0;; t++) {
        first_pass(lines, in, tile, t, landed, twiddles);
        load_rotations(task, (const float2 *)args.rotation + tile.spectrum, args.n_spectra);
        if (RADIX_B > 1) {
            __syncwarp();
            last_pass(lines);
        }
        __syncthreads();
        quantise_tile(args, tile, t, lines, kept, task, n_clipped);
        if (t == TILES - 1)
            break;
        tile.spectrum += TILE_SPECTRA;
        if (BACK_BULK)
            fence_proxy_async();
        __syncthreads();
        fetch_lines(lines, in, tile, landed);
    }
    add_clipped(args, tile.spectrum, n_clipped);
}
