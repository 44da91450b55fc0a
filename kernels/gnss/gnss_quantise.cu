/* gnss_quantise.cu - see gnss_quantise.h.
 *
 * A thread quantises every n-th sample of a polarisation; n is the number of threads for each polarisation.  blockIdx.y
 * is the polarisation.  A warp sums the levels of its threads, and the first thread adds this sum to memory.
 *
 * Constants: N_THREADS. */
#include "kernels/gnss/gnss_quantise.h"

#define LIMIT      ((float)GNSS_QUANTISE_LIMIT)
#define EVERY_LANE 0xffffffffu

/* Quantises one component. */
static __device__ __forceinline__ int quantise(float v)
{
    return __float2int_rn(v == v ? fminf(fmaxf(v, -LIMIT), LIMIT) : 0.0f);
}

static __device__ __forceinline__ bool is_clipped(float v)
{
    return !(fabsf(v) <= LIMIT);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_quantise(const struct gnss_quantise_args args)
{
    const uint32_t pol = blockIdx.y;
    const float2 *in = (const float2 *)(pol ? args.in[1] : args.in[0]);
    const float scale = pol ? args.scale[1] : args.scale[0];
    char2 *out = (char2 *)args.out + pol * args.pitch_samples;
    unsigned long long squares = 0, n_clipped = 0;

    for (uint64_t i = blockIdx.x * N_THREADS + threadIdx.x; i < args.n_samples; i += gridDim.x * N_THREADS) {
        const float2 x = __ldg(in + i);
        const float re = x.x * scale, im = x.y * (scale * args.im_sign);
        const int a = quantise(re), b = quantise(im);
        n_clipped += is_clipped(re) || is_clipped(im);
        squares += a * a + b * b;
        out[i] = make_char2((signed char)a, (signed char)b);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        squares += __shfl_xor_sync(EVERY_LANE, squares, lanes);
        n_clipped += __shfl_xor_sync(EVERY_LANE, n_clipped, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd((unsigned long long *)&args.levels[pol].squares, squares);
        atomicAdd((unsigned long long *)&args.levels[pol].n_clipped, n_clipped);
    }
}
