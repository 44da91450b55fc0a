/* channelise_narrow_back.cu - the second factor of a narrow band's transform, and the steps after it.  See
 * channelise_narrow.h.
 *
 * A line is the row k1 of a spectrum of a polarisation.  lines[pol][spectrum] are in shared memory.  Before the last
 * pass, the layout of a line is [ka][jb].  After the last pass, its layout is [ka][kb] in the same memory, with k2 =
 * ka + RADIX_A kb. */
#include "kernels/filterbank/channelise_narrow.h"
#include "kernels/filterbank/fft_registers.h"
#include "kernels/filterbank/quantise.h"

#define M1            (N_BINS / M2)
#define M2            (RADIX_A * RADIX_B)
#define BLOCK_SPECTRA NARROW_BACK_SPECTRA
#define PITCH         (RADIX_B + 1) /* odd number, so that the lanes of a warp access different banks */
#define LINE_PITCH    (RADIX_A * PITCH)
#define N_KEPT        (N_CHAN / M1) /* channels of a row */

/* Number of blocks that a multiprocessor runs at a time.  With several blocks, some blocks load while other blocks
 * compute.  GPUs with enough shared memory run three blocks, with 80 registers per thread and 66 KiB per block.  If
 * half of the threads are idle in the first pass, 80 registers are too few. */
#define BLOCKS_WANTED (__CUDA_ARCH__ >= 900 && RADIX_A == RADIX_B ? 3 : 2)

extern __shared__ float4 shared_memory[]; /* lines: float2 [pol][BLOCK_SPECTRA][LINE_PITCH] */

/* Loads the lines, and transforms the lines along axis 'a'. */
static __device__ __forceinline__ void first_pass(float2 *lines, const struct channelise_narrow_back_args &args)
{
#pragma unroll 1
    for (int first = 0; first < 2 * BLOCK_SPECTRA * RADIX_B; first += N_THREADS) {
        uint32_t i = first + threadIdx.x;
        if (2 * BLOCK_SPECTRA * RADIX_B % N_THREADS > 0 && i >= 2 * BLOCK_SPECTRA * RADIX_B)
            break;
        uint32_t rest = i % RADIX_B, line = i / RADIX_B;
        int64_t row =
            ((int64_t)(line / BLOCK_SPECTRA) * args.n_spectra + blockIdx.y * BLOCK_SPECTRA + line % BLOCK_SPECTRA) *
                M1 +
            blockIdx.x;
        const float2 *from = (const float2 *)args.in + row * M2 + rest;
        const float2 *twiddles = (const float2 *)args.twiddles + rest;
        float2 *to = lines + line * LINE_PITCH + rest, v[RADIX_A];
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[a] = __ldcs(from + a * RADIX_B);
        fft_registers<RADIX_A>(v);
        to[0] = v[0];
#pragma unroll /* 'a' descends: with an ascending 'a', the compiler would spill registers */
        for (int a = RADIX_A - 1; a > 0; a--)
            to[a * PITCH] = complex_multiply(v[a], twiddles[a * RADIX_B]);
    }
}

/* Returns true if point b of the last pass belongs to a channel.  The channels of a row are its first bins and its last
 * bins. */
static __device__ __forceinline__ constexpr bool is_kept(int b)
{
    return b * 2 * N_BINS < RADIX_B * N_CHAN || (RADIX_B - 1 - b) * 2 * N_BINS < RADIX_B * N_CHAN;
}

/* Transforms the lines along axis 'b', in place. */
static __device__ __forceinline__ void last_pass(float2 *lines)
{
#pragma unroll 1
    for (int first = 0; first < 2 * BLOCK_SPECTRA * RADIX_A; first += N_THREADS) {
        uint32_t i = first + threadIdx.x;
        if (2 * BLOCK_SPECTRA * RADIX_A % N_THREADS > 0 && i >= 2 * BLOCK_SPECTRA * RADIX_A)
            break;
        float2 *at = lines + i / RADIX_A * LINE_PITCH + i % RADIX_A * PITCH, v[RADIX_B];
#pragma unroll
        for (int b = 0; b < RADIX_B; b++)
            v[b] = at[b];
        fft_registers<RADIX_B>(v);
#pragma unroll
        for (int b = 0; b < RADIX_B; b++)
            if (is_kept(b))
                at[b] = v[b];
    }
}

/* Quantises channel k from the points line[pol][spectrum] into words[spectrum].  Counts clipped values in n_clipped:
 * polarisation 0 in the lower half, polarisation 1 in the upper half. */
static __device__ __forceinline__ void quantise_channel(const struct channelise_narrow_back_args &args,
                                                        const float2 *lines, uint32_t k,
                                                        const float2 (&rotation)[2][BLOCK_SPECTRA],
                                                        uint32_t (&words)[BLOCK_SPECTRA], uint32_t &n_clipped)
{
    float4 gain = __ldg((const float4 *)args.gain + k);
    float slope = -3.14159265358979f / N_CHAN * (float)((int)k - N_CHAN / 2);
    uint32_t bits[4];

#pragma unroll
    for (int s = 0; s < BLOCK_SPECTRA; s++) {
        float2 v0 = complex_multiply(lines[s * LINE_PITCH],
                                     complex_multiply(make_float2(gain.x, gain.y), turn_of(rotation[0][s], slope)));
        float2 v1 = complex_multiply(lines[(BLOCK_SPECTRA + s) * LINE_PITCH],
                                     complex_multiply(make_float2(gain.z, gain.w), turn_of(rotation[1][s], slope)));
        bool clipped0 = false, clipped1 = false;
        if (DITHER) {
            if (s % 2 == 0)
                draw_dither(args.seed, args.stream_id, k, (args.first_spectrum + blockIdx.y * BLOCK_SPECTRA + s) / 2,
                            bits);
            v0 = make_float2(v0.x + dither(bits[0], s % 2), v0.y + dither(bits[1], s % 2));
            v1 = make_float2(v1.x + dither(bits[2], s % 2), v1.y + dither(bits[3], s % 2));
        }
        uint32_t re0 = quantise(v0.x, clipped0), im0 = quantise(v0.y, clipped0);
        uint32_t re1 = quantise(v1.x, clipped1), im1 = quantise(v1.y, clipped1);
        words[s] = pack(re0, im0, re1, im1);
        n_clipped += (clipped0 ? 1 : 0) + (clipped1 ? 1 << 16 : 0);
    }
}

/* Stores the block's spectra to channel k of the heap. */
static __device__ __forceinline__ void store_spectra(uint8_t *out, uint32_t k, const uint32_t (&words)[BLOCK_SPECTRA])
{
    uint32_t first = blockIdx.y * BLOCK_SPECTRA, batch = first / SPECTRA_PER_HEAP;
    int64_t at = ((int64_t)batch * N_CHAN + k) * SPECTRA_PER_HEAP + first % SPECTRA_PER_HEAP;

    if (OUT_BITS == 8)
        *(uint4 *)(out + at * 4) = make_uint4(words[0], words[1], words[2], words[3]);
    else
        *(uint2 *)(out + at * 2) = make_uint2(words[0] | words[1] << 16, words[2] | words[3] << 16);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_WANTED)
    channelise_narrow_back(const struct channelise_narrow_back_args args)
{
    float2 *lines = (float2 *)shared_memory;
    float2 rotation[2][BLOCK_SPECTRA];
    uint32_t n_clipped = 0;

    first_pass(lines, args);
    __syncthreads();
    last_pass(lines);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * BLOCK_SPECTRA; i++)
        rotation[i / BLOCK_SPECTRA][i % BLOCK_SPECTRA] =
            ((const float2 *)
                 args.rotation)[i / BLOCK_SPECTRA * args.n_spectra + blockIdx.y * BLOCK_SPECTRA + i % BLOCK_SPECTRA];
    /* The row's bins are k1 + M1 k2.  Only the first and the last of these bins are channels. */
    for (uint32_t q = threadIdx.x; q < N_KEPT; q += N_THREADS) {
        uint32_t k2 = q < N_KEPT / 2 ? q : q + M2 - N_KEPT, bin = blockIdx.x + M1 * k2;
        uint32_t k = (bin + N_CHAN / 2) & (N_BINS - 1), words[BLOCK_SPECTRA];
        quantise_channel(args, lines + k2 % RADIX_A * PITCH + k2 / RADIX_A, k, rotation, words, n_clipped);
        store_spectra(args.out, k, words);
    }
    count_clipped(n_clipped, args.saturated + blockIdx.y * BLOCK_SPECTRA / SPECTRA_PER_HEAP * 2);
}
