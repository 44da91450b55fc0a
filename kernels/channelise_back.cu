/* channelise_back.cu - the second factor of the transform, and all that follows it.  See channelise_fused.h. */
#include "kernels/channelise_fused.h"
#include "kernels/fft_registers.h"

#define M         (2 * N_CHAN)
#define M1        FRONT_ROWS
#define M2        (M / M1)
#define RADIX_A   BACK_RADIX_A
#define RADIX_B   BACK_RADIX_B
#define RADIX_C   (M2 / RADIX_A / RADIX_B)
#define S         BACK_SPECTRA
#define PAIRS     BACK_PAIRS
#define N_THREADS BACK_THREADS
#define N_LINES   (PAIRS * 2 * S) /* transforms of a block */

/* A line while it is transformed is [a][b][c], padded so that the lanes of a warp, which are neighbours in c first and
 * then in a, or in b in the last pass, meet different banks; and [k], padded for the same reason, when it is done. */
#define PITCH_B    (RADIX_C > 1 ? RADIX_C + 1 : 1)
#define PITCH_A    (RADIX_C > 1 ? RADIX_B * PITCH_B : RADIX_B > 1 ? RADIX_B + 1 : 1)
#define DONE(k)    (RADIX_C > 1 ? (k) + (k) / 16 : (k))
#define LINE_PITCH (RADIX_B > 1 ? RADIX_A * PITCH_A : M2)

#define N_TOGETHER 4 /* spectra of a channel that are stored at once */
#define N_GROUPS   (S / N_TOGETHER)
#define LIMIT      (OUT_BITS == 8 ? 127 : 7)

#define N_CHANNELS (PAIRS * M2) /* of the block, in order of [pair][which][k2] */

/* Row k1 of line 'line' of the block: lines are [pair][2][spectrum]. */
static __device__ __forceinline__ unsigned row_of(unsigned pair, unsigned which)
{
    return which == 0 ? pair : pair == 0 ? M1 / 2 : M1 - pair;
}

/* Loads, transforms along a, and stores as [a][b][c]; a transform of one pass is done with that. */
static __device__ __forceinline__ void first_pass(float2 *lines, const float2 *in, const float2 *twiddles)
{
    const unsigned n_rest = M2 / RADIX_A;

    for (unsigned i = threadIdx.x; i < N_LINES * n_rest; i += N_THREADS) {
        unsigned rest = i % n_rest, line = i / n_rest;
        unsigned pair = blockIdx.x * PAIRS + line / (2 * S);
        unsigned row = (blockIdx.y * S + line % S) * M1 + row_of(pair, line / S % 2);
        const float2 *from = in + ((uint64_t)row * M2 + rest);
        float2 *to = lines + line * LINE_PITCH + (RADIX_C > 1 ? rest / RADIX_C * PITCH_B + rest % RADIX_C : rest);
        float2 v[RADIX_A];
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[a] = __ldcs(from + a * n_rest);
        fft_registers<RADIX_A>(v);
        to[0] = v[0];
#pragma unroll
        for (int a = 1; a < RADIX_A; a++)
            to[a * PITCH_A] = n_rest > 1 ? complex_multiply(v[a], twiddles[a * n_rest + rest]) : v[a];
    }
}

/* Along b, in place; of three passes the second. */
static __device__ __forceinline__ void middle_pass(float2 *lines, const float2 *twiddles)
{
    for (unsigned i = threadIdx.x; i < N_LINES * RADIX_A * RADIX_C; i += N_THREADS) {
        unsigned c = i % RADIX_C, a = i / RADIX_C % RADIX_A;
        float2 *at = lines + i / (RADIX_A * RADIX_C) * LINE_PITCH + a * PITCH_A + c, v[RADIX_B];
#pragma unroll
        for (int b = 0; b < RADIX_B; b++)
            v[b] = at[b * PITCH_B];
        fft_registers<RADIX_B>(v);
        at[0] = v[0];
#pragma unroll
        for (int b = 1; b < RADIX_B; b++)
            at[b * PITCH_B] = complex_multiply(v[b], twiddles[b * RADIX_C + c]);
    }
}

/* Along the last axis, from [a][b][c] to [k = a + RADIX_A b + RADIX_A RADIX_B c]; all threads read before any
 * writes. */
static __device__ __forceinline__ void last_pass(float2 *lines)
{
    const unsigned radix = RADIX_C > 1 ? RADIX_C : RADIX_B, n_rest = M2 / radix;
    const unsigned n_mine = N_LINES * n_rest / N_THREADS;
    float2 v[n_mine][radix];

#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = threadIdx.x + m * N_THREADS, rest = i % n_rest;
        const float2 *from = lines + i / n_rest * LINE_PITCH +
                             (RADIX_C > 1 ? rest / RADIX_B * PITCH_A + rest % RADIX_B * PITCH_B : rest * PITCH_A);
#pragma unroll
        for (unsigned j = 0; j < radix; j++)
            v[m][j] = from[j];
        fft_registers<radix>(v[m]);
    }
    __syncthreads();
#pragma unroll
    for (unsigned m = 0; m < n_mine; m++) {
        unsigned i = threadIdx.x + m * N_THREADS, rest = i % n_rest;
        unsigned k = RADIX_C > 1 ? rest / RADIX_B + rest % RADIX_B * RADIX_A : rest;
        float2 *to = lines + i / n_rest * LINE_PITCH + DONE(k);
#pragma unroll
        for (unsigned j = 0; j < radix; j++)
            to[DONE(j * n_rest)] = v[m][j];
    }
}

/* Philox4x32-7 (philox.h), with the keys of the rounds made beforehand. */
static __device__ __forceinline__ uint4 philox(uint4 c, const uint32_t (&keys)[7][2])
{
#pragma unroll
    for (int round = 0; round < 7; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.x, p1 = (uint64_t)0xCD9E8D57u * c.z;
        c = make_uint4((uint32_t)(p1 >> 32) ^ c.y ^ keys[round][0], (uint32_t)p1,
                       (uint32_t)(p0 >> 32) ^ c.w ^ keys[round][1], (uint32_t)p0);
    }
    return c;
}

/* Adds the dither that one half of 'bits' is. */
static __device__ __forceinline__ float add_dither(float v, uint32_t bits, int half)
{
    float s = (float)(int16_t)(half ? bits >> 16 : bits);
    return fmaf(s, 1.0f / 65536.0f, v);
}

static __device__ __forceinline__ float2 turn_of(float2 rotation, float slope)
{
    float theta = fmaf(rotation.x, slope, rotation.y);
    float2 turn;

    __sincosf(theta, &turn.y, &turn.x);
    return turn;
}

/* Both parts rounded half to even and clipped, as two 16-bit integers; 0 for what is not a number. */
static __device__ __forceinline__ uint32_t quantise(float2 v)
{
    int re = __float2int_rn(v.x), im = __float2int_rn(v.y);
    uint32_t both;

#ifdef EMULATE_CUDA
    re = min(max(re, -LIMIT), LIMIT);
    im = min(max(im, -LIMIT), LIMIT);
    both = (uint32_t)im << 16 | ((uint32_t)re & 0xffff);
#else
    asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(both) : "r"(im), "r"(re));
    both = __vmins2(__vmaxs2(both, (uint32_t)-LIMIT << 16 | (-LIMIT & 0xffff)), LIMIT << 16 | LIMIT);
#endif
    return both;
}

/* (re, im) of both polarisations: 32 bits, or 16. */
static __device__ __forceinline__ uint32_t pack(uint32_t pol0, uint32_t pol1)
{
    if (OUT_BITS == 8)
        return __byte_perm(pol0, pol1, 0x6420);
    return (pol0 << 4 & 0xf0) | (pol0 >> 16 & 15) | (pol1 << 12 & 0xf000) | (pol1 >> 8 & 0xf00);
}

static __device__ __forceinline__ bool is_clipped(float2 v)
{
    return !(fabsf(v.x) <= (float)LIMIT) | !(fabsf(v.y) <= (float)LIMIT); /* no branches */
}

/* To channel k of the heap, spectra [s, s + N_TOGETHER) of the block. */
static __device__ __forceinline__ void store_spectra(uint8_t *out, unsigned k, unsigned s,
                                                     const uint32_t (&words)[N_TOGETHER])
{
    uint32_t first = blockIdx.y * S + s, batch = first / SPECTRA_PER_HEAP;
    uint64_t at = (uint64_t)(batch * N_CHAN + k) * SPECTRA_PER_HEAP + first % SPECTRA_PER_HEAP;

    if (OUT_BITS == 8)
        *(uint4 *)(out + at * 4) = make_uint4(words[0], words[1], words[2], words[3]);
    else
        *(uint2 *)(out + at * 2) = make_uint2(words[0] | words[1] << 16, words[2] | words[3] << 16);
}

/* Which of the groups of N_TOGETHER spectra a thread has, and its place among the threads that have the same: half warps
 * side by side, so that loads meet different banks, and the halves of a warp store what lies side by side, if they can. */
static __device__ __forceinline__ unsigned group_of_thread(unsigned *place)
{
    if (N_GROUPS == 1 || N_THREADS < 16 * N_GROUPS) {
        *place = threadIdx.x % (N_THREADS / N_GROUPS);
        return threadIdx.x / (N_THREADS / N_GROUPS);
    }
    const unsigned n_halves = N_GROUPS > 1 ? N_GROUPS / 2 : 1;
    unsigned warp = threadIdx.x / 32;
    *place = threadIdx.x % 16 + 16 * (warp / n_halves);
    return threadIdx.x / 16 % 2 + 2 * (warp % n_halves);
}

/* The polarisations' channel, twice, out of the transform's points k and M - k. */
static __device__ __forceinline__ void separate(float2 z, float2 mirror, float2 *x0, float2 *x1)
{
    *x0 = make_float2(z.x + mirror.x, z.y - mirror.y);
    *x1 = make_float2(z.y + mirror.y, mirror.x - z.x);
}

static __device__ __forceinline__ float slope_of(unsigned k)
{
    return -3.14159265358979f * (float)((int)k - N_CHAN / 2) / (float)N_CHAN;
}

/* The dither's bits of channel k in two spectra, 'pair' being half of their absolute index. */
static __device__ __forceinline__ uint4 draw_dither(const struct channelise_back_args &args, unsigned k, uint64_t pair)
{
    uint4 bits = philox(make_uint4(k, (uint32_t)pair, (uint32_t)(pair >> 32), args.stream_id), args.keys);

    return make_uint4(bits.x | 0x10001, bits.y | 0x10001, bits.z | 0x10001, bits.w | 0x10001);
}

/* All of a block's spectra are of one heap. */
static __device__ __forceinline__ void count_clipped(const struct channelise_back_args &args,
                                                     const uint32_t (&n_clipped)[2])
{
    uint32_t *saturated = args.saturated + blockIdx.y * S / SPECTRA_PER_HEAP * 2;

#pragma unroll
    for (int pol = 0; pol < 2; pol++)
        if (n_clipped[pol])
            atomicAdd(saturated + pol, n_clipped[pol]);
}

/* Channel k = row(which) + M1 k2 of 'pair', spectra [s, s + N_TOGETHER) of the block. */
static __device__ __forceinline__ void quantise_channel(const struct channelise_back_args &args, const float2 *lines,
                                                        unsigned pair_here, unsigned which, unsigned k2, unsigned s,
                                                        float4 gain, const float2 (&rotations)[2][N_TOGETHER],
                                                        uint32_t (&n_clipped)[2])
{
    unsigned pair = blockIdx.x * PAIRS + pair_here;
    unsigned k = row_of(pair, which) + M1 * k2;
    bool alone = pair == 0; /* rows 0 and M1 / 2 are their own mirrors */
    unsigned mirror = alone && which == 0 ? (M2 - k2) % M2 : M2 - 1 - k2;
    const float2 *z = lines + (pair_here * 2 + which) * S * LINE_PITCH + s * LINE_PITCH + DONE(k2);
    const float2 *z_mirror =
        lines + (pair_here * 2 + (alone ? which : 1 - which)) * S * LINE_PITCH + s * LINE_PITCH + DONE(mirror);
    float slope = slope_of(k);
    uint64_t spectrum = args.first_spectrum + (uint64_t)blockIdx.y * S + s;
    float2 x[2][N_TOGETHER];
    uint32_t words[N_TOGETHER];
    bool any_clipped = false;
    uint4 bits = make_uint4(0, 0, 0, 0);

#pragma unroll
    for (int i = 0; i < N_TOGETHER; i++) {
        float2 x0, x1;
        separate(z[i * LINE_PITCH], z_mirror[i * LINE_PITCH], &x0, &x1);
        x0 = complex_multiply(x0, complex_multiply(make_float2(gain.x, gain.y), turn_of(rotations[0][i], slope)));
        x1 = complex_multiply(x1, complex_multiply(make_float2(gain.z, gain.w), turn_of(rotations[1][i], slope)));
        if (DITHER) {
            if (i % 2 == 0)
                bits = draw_dither(args, k, (spectrum + i) >> 1);
            x0 = make_float2(add_dither(x0.x, bits.x, i % 2), add_dither(x0.y, bits.y, i % 2));
            x1 = make_float2(add_dither(x1.x, bits.z, i % 2), add_dither(x1.y, bits.w, i % 2));
        }
        words[i] = pack(quantise(x0), quantise(x1));
        any_clipped |= is_clipped(x0) | is_clipped(x1);
        x[0][i] = x0;
        x[1][i] = x1;
    }
    if (any_clipped) /* rare, so counted only then */
#pragma unroll
        for (int i = 0; i < N_TOGETHER; i++) {
            n_clipped[0] += is_clipped(x[0][i]);
            n_clipped[1] += is_clipped(x[1][i]);
        }
    store_spectra(args.out, k, s, words);
}

/* Of the block's channel 'i' in order of [pair][which][k2]; zeros where there is none. */
static __device__ __forceinline__ float4 load_gain(const float *gain, unsigned i)
{
    if (i >= N_CHANNELS)
        return make_float4(0, 0, 0, 0);
    return ((const float4 *)gain)[row_of(blockIdx.x * PAIRS + i / M2, i / (M2 / 2) % 2) * (M2 / 2) + i % (M2 / 2)];
}

static __device__ __forceinline__ void quantise_block(const struct channelise_back_args &args, const float2 *lines)
{
    const unsigned n_side_by_side = N_THREADS / N_GROUPS;
    unsigned i, s = group_of_thread(&i) * N_TOGETHER;
    uint32_t n_clipped[2] = {0, 0};
    float2 rotations[2][N_TOGETHER];

#pragma unroll
    for (int pol = 0; pol < 2; pol++)
#pragma unroll
        for (int j = 0; j < N_TOGETHER; j++)
            rotations[pol][j] = ((const float2 *)args.rotation)[pol * args.n_spectra + blockIdx.y * S + s + j];
    /* Each channel's gain is loaded while the one before is worked on. */
    float4 gain = load_gain(args.gain, i);
    for (; i < N_CHANNELS; i += n_side_by_side) {
        float4 next_gain = load_gain(args.gain, i + n_side_by_side);
        quantise_channel(args, lines, i / M2, i / (M2 / 2) % 2, i % (M2 / 2), s, gain, rotations, n_clipped);
        gain = next_gain;
    }
    count_clipped(args, n_clipped);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, BACK_BLOCKS)
    channelise_back(const struct channelise_back_args args)
{
    extern __shared__ float4 shared_memory[];
    float2 *lines = (float2 *)shared_memory;
    const float2 *twiddles = (const float2 *)args.twiddles;

    first_pass(lines, (const float2 *)args.in, twiddles);
    __syncthreads();
    if (RADIX_C > 1) {
        middle_pass(lines, twiddles + M2);
        __syncthreads();
    }
    if (RADIX_B > 1) {
        last_pass(lines);
        __syncthreads();
    }
    quantise_block(args, lines);
}
