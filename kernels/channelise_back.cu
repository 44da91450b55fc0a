/* channelise_back.cu - the second factor of the transform, and all that follows it.  See channelise_fused.h.
 *
 * A block works on TILES tiles, one after the other: PAIRS pairs of rows of S spectra each.  What it has quantised waits
 * in shared memory for the last tile, so that a warp stores longer pieces: each is a request to the L2 cache of its
 * own. */
#include "kernels/bulk_copy.h"
#include "kernels/channelise_fused.h"
#include "kernels/fft_registers.h"
#include "kernels/keep.h"
#include "kernels/quantise.h"

#define M         (2 * N_CHAN)
#define M1        FRONT_ROWS
#define M2        (M / M1)
#define RADIX_A   BACK_RADIX_A
#define RADIX_B   BACK_RADIX_B
#define RADIX_C   (M2 / RADIX_A / RADIX_B)
#define S         BACK_SPECTRA
#define PAIRS     BACK_PAIRS
#define TILES     BACK_TILES
#define N_THREADS BACK_THREADS
#define N_LINES   (PAIRS * 2 * S) /* transforms of a tile */

/* A line while it is transformed is [a][b][c], padded so that the lanes of a warp, which are neighbours in c first and
 * then in a, or in b in the last pass, meet different banks; and [k], padded for the same reason, when it is done. */
#define PITCH_B    (RADIX_C > 1 ? RADIX_C + 1 : 1)
#define PITCH_A    (RADIX_C > 1 ? RADIX_B * PITCH_B : RADIX_B > 1 ? RADIX_B + 1 : 1)
#define DONE(k)    (RADIX_C > 1 ? (k) + (k) / 16 : (k))
#define LINE_PITCH (RADIX_B > 1 ? RADIX_A * PITCH_A : M2)

#define N_TOGETHER 4 /* spectra of a channel that are stored at once */
#define N_GROUPS   (S / N_TOGETHER)

/* Where each warp can have whole lines of its own in all passes, it has, and then its passes wait for no other. */
#define N_WARPS       (N_THREADS / 32)
#define WARP_LINES    (N_LINES / N_WARPS)
#define FILLS(radix)  (WARP_LINES * (M2 / (radix)) % 32 == 0)
#define HAS_OWN_LINES (WARP_LINES > 0 && N_LINES % N_WARPS == 0 && FILLS(RADIX_A) && FILLS(RADIX_B) && FILLS(RADIX_C))

struct tile {
    uint32_t pair, spectrum; /* the first ones, counted in the buffer */
};

/* Blocks that begin one after the other have all spectra of which a channel's values make a line of 128 bytes of the
 * output, and then the next pairs of rows: so lines are whole soon, and go to memory once. */
#define LINE_SPECTRA (128 / (OUT_BITS / 2)) /* of both polarisations */
#define NEAR_SPECTRA (SPECTRA_PER_HEAP % LINE_SPECTRA == 0 ? LINE_SPECTRA : SPECTRA_PER_HEAP % 32 == 0 ? 32 : 16)
#define N_NEAR       (NEAR_SPECTRA / (TILES * S))
#define N_PLACES     (M1 / 2 / PAIRS) /* pairs that a block may have: gridDim.x */

/* The first tile of the block. */
static __device__ __forceinline__ struct tile find_tile(void)
{
    const uint32_t i = blockIdx.y * N_PLACES + blockIdx.x;

    return {i / N_NEAR % N_PLACES * PAIRS, (i / N_NEAR / N_PLACES * N_NEAR + i % N_NEAR) * (TILES * S)};
}

/* Row k1 of either kind, 'which', of a pair. */
static __device__ __forceinline__ unsigned row_of(unsigned pair, unsigned which)
{
    return which == 0 ? pair : pair == 0 ? M1 / 2 : M1 - pair;
}

/* Where line 'line' of the tile begins; lines are [pair][2][spectrum]. */
static __device__ __forceinline__ const float2 *find_line(const float2 *in, struct tile tile, unsigned line)
{
    unsigned row = (tile.spectrum + line % S) * M1 + row_of(tile.pair + line / (2 * S), line / S % 2);

    return in + (uint64_t)row * M2;
}

/* Waits for those that a pass takes its points from. */
static __device__ __forceinline__ void sync_lines()
{
    if (HAS_OWN_LINES)
        __syncwarp();
    else
        __syncthreads();
}

/* Pieces of work of a pass, n_rest of each line: a thread has first_item(), and so many rounds, each ITEM_STEP further. */
#define ITEM_STEP        (HAS_OWN_LINES ? 32 : N_THREADS)
#define N_ROUNDS(n_rest) ((N_LINES * (n_rest) + N_THREADS - 1) / N_THREADS)

static __device__ __forceinline__ unsigned first_item(unsigned n_rest)
{
    return HAS_OWN_LINES ? threadIdx.x / 32 * (WARP_LINES * n_rest) + threadIdx.x % 32 : threadIdx.x;
}

/* Times the twiddles, two of a load; the first is 1. */
template <int N>
static __device__ __forceinline__ void turn_points(float2 (&v)[N], const float4 *twiddles, unsigned step)
{
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        float4 turns = twiddles[i / 2 * step];
        if (i > 0)
            v[i] = complex_multiply(v[i], make_float2(turns.x, turns.y));
        if (i + 1 < N)
            v[i + 1] = complex_multiply(v[i + 1], make_float2(turns.z, turns.w));
    }
}

/* The end of the first pass, along a: stores item 'i' as [a][b][c]; a transform of one pass is done with that. */
static __device__ __forceinline__ void store_first(float2 *lines, unsigned i, float2 (&v)[RADIX_A],
                                                   const float4 *twiddles)
{
    const unsigned n_rest = M2 / RADIX_A;
    unsigned rest = i % n_rest;
    float2 *to = lines + i / n_rest * LINE_PITCH + (RADIX_C > 1 ? rest / RADIX_C * PITCH_B + rest % RADIX_C : rest);

    if (n_rest > 1)
        turn_points<RADIX_A>(v, twiddles + rest, n_rest);
#pragma unroll
    for (int a = 0; a < RADIX_A; a++)
        to[a * PITCH_A] = v[a];
}

/* Along b, in place; of three passes the second. */
static __device__ __forceinline__ void middle_pass(float2 *lines, const float4 *twiddles)
{
    const unsigned n_rest = RADIX_A * RADIX_C;

    for (unsigned round = 0, i = first_item(n_rest); round < N_ROUNDS(n_rest); round++, i += ITEM_STEP) {
        if (i >= N_LINES * n_rest)
            break;
        unsigned c = i % RADIX_C, a = i / RADIX_C % RADIX_A;
        float2 *at = lines + i / n_rest * LINE_PITCH + a * PITCH_A + c, v[RADIX_B];
#pragma unroll
        for (int b = 0; b < RADIX_B; b++)
            v[b] = at[b * PITCH_B];
        fft_registers<RADIX_B>(v);
        turn_points<RADIX_B>(v, twiddles + c, RADIX_C);
#pragma unroll
        for (int b = 0; b < RADIX_B; b++)
            at[b * PITCH_B] = v[b];
    }
}

/* Along the last axis, from [a][b][c] to [k = a + RADIX_A b + RADIX_A RADIX_B c]; all who share lines read
 * before any of them writes. */
static __device__ __forceinline__ void last_pass(float2 *lines)
{
    const unsigned radix = RADIX_C > 1 ? RADIX_C : RADIX_B, n_rest = M2 / radix;
    const unsigned n_mine = N_LINES * n_rest / N_THREADS;
    float2 v[n_mine][radix];

#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = first_item(n_rest) + m * ITEM_STEP, rest = i % n_rest;
        const float2 *from = lines + i / n_rest * LINE_PITCH +
                             (RADIX_C > 1 ? rest / RADIX_B * PITCH_A + rest % RADIX_B * PITCH_B : rest * PITCH_A);
#pragma unroll
        for (unsigned j = 0; j < radix; j++)
            v[m][j] = from[j];
        fft_registers<radix>(v[m]);
    }
    sync_lines();
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = first_item(n_rest) + m * ITEM_STEP, rest = i % n_rest;
        unsigned k = RADIX_C > 1 ? rest / RADIX_B + rest % RADIX_B * RADIX_A : rest;
        float2 *to = lines + i / n_rest * LINE_PITCH + DONE(k);
#pragma unroll
        for (unsigned j = 0; j < radix; j++)
            to[DONE(j * n_rest)] = v[m][j];
    }
}

#include "kernels/channelise_back_channels.h"

/* What is between the first pass and the last barrier. */
static __device__ __forceinline__ void other_passes(float2 *lines, const float4 *twiddles)
{
    if (RADIX_B > 1)
        sync_lines();
    if (RADIX_C > 1) {
        middle_pass(lines, twiddles + M2 / 2);
        sync_lines();
    }
    if (RADIX_B > 1)
        last_pass(lines);
}

#if BACK_BULK

/* Those who share lines: a warp, or the block.  Their barrier opens when the lines of a tile have come. */
#define TEAM_WARPS (HAS_OWN_LINES ? 1 : N_WARPS)
#define TEAM_LINES (N_LINES / (N_WARPS / TEAM_WARPS))
#define N_BARRIERS (N_WARPS / TEAM_WARPS)

/* Asks for the team's lines of a tile, each where it will be transformed.  By all threads; those of the tile before have
 * been read. */
static __device__ __forceinline__ void fetch_lines(float2 *lines, const float2 *in, struct tile tile, uint64_t *landed)
{
    const uint32_t warp = uniform_warp(), team = warp / TEAM_WARPS;

    if (warp % TEAM_WARPS == 0 && elect_lane()) {
        bulk_expect(landed + team, TEAM_LINES * M2 * sizeof(float2));
#pragma unroll 1
        for (unsigned line = team * TEAM_LINES; line < (team + 1) * TEAM_LINES; line++)
            bulk_copy(lines + line * LINE_PITCH, find_line(in, tile, line), M2 * sizeof(float2), landed + team);
    }
}

static __device__ __forceinline__ void begin_fetches(uint64_t *landed)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < N_BARRIERS; i++)
            barrier_init(landed + i, 1);
        bulk_fence_barriers();
    }
    __syncthreads();
}

/* Along a, of the lines of the block's tile t, when they have come; all who share lines read before any of them writes. */
static __device__ __forceinline__ void first_pass(float2 *lines, const float2 *, struct tile, int t, uint64_t *landed,
                                                  const float4 *twiddles)
{
    const unsigned n_rest = M2 / RADIX_A;
    const unsigned n_mine = N_LINES * n_rest / N_THREADS;
    float2 v[n_mine][RADIX_A];

    bulk_wait(landed + threadIdx.x / 32 / TEAM_WARPS, t);
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = first_item(n_rest) + m * ITEM_STEP;
        const float2 *from = lines + i / n_rest * LINE_PITCH + i % n_rest;
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[m][a] = from[a * n_rest];
        fft_registers<RADIX_A>(v[m]);
    }
    sync_lines();
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++)
        store_first(lines, first_item(n_rest) + m * ITEM_STEP, v[m], twiddles);
}

#else

static __device__ __forceinline__ void begin_fetches(uint64_t *)
{
}

static __device__ __forceinline__ void fetch_lines(float2 *, const float2 *, struct tile, uint64_t *)
{
}

/* Along a, of the lines of 'tile'. */
static __device__ __forceinline__ void first_pass(float2 *lines, const float2 *in, struct tile tile, int, uint64_t *,
                                                  const float4 *twiddles)
{
    const unsigned n_rest = M2 / RADIX_A;

    for (unsigned round = 0, i = first_item(n_rest); round < N_ROUNDS(n_rest); round++, i += ITEM_STEP) {
        if (i >= N_LINES * n_rest)
            break;
        const float2 *from = find_line(in, tile, i / n_rest) + i % n_rest;
        float2 v[RADIX_A];
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[a] = __ldcs(from + a * n_rest);
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
    float2 *lines = (float2 *)shared_memory;
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
        other_passes(lines, twiddles);
        __syncthreads();
        quantise_tile(args, tile, t, lines, kept, task, n_clipped);
        if (t == TILES - 1)
            break;
        tile.spectrum += S;
        if (BACK_BULK)
            bulk_fence();
        __syncthreads();
        fetch_lines(lines, in, tile, landed);
    }
    add_clipped(args, tile.spectrum, n_clipped);
}
