/* power.cu - see power.h.
 *
 * A thread adds every (gridDim.x * N_THREADS)-th group of 32 samples.  A group is SAMPLE_BITS whole words.  blockIdx.y
 * is the polarisation.
 *
 * Constants: SAMPLE_BITS, N_THREADS. */
#include "kernels/util/power.h"

#define GROUP_SAMPLES 32

/* Returns sample i of a group.  The bytes of 'words' are in the machine's order. */
static __device__ __forceinline__ int sample_of(const uint32_t (&words)[SAMPLE_BITS], int i)
{
    int bit = i * SAMPLE_BITS, word = bit / 32, at = bit % 32;
    uint32_t first = __byte_perm(words[word], 0, 0x0123) << at;

    if (at + SAMPLE_BITS > 32)
        first |= __byte_perm(words[word + 1 < SAMPLE_BITS ? word + 1 : word], 0, 0x0123) >> (32 - at);
    return (int)first >> (32 - SAMPLE_BITS);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) power(const struct power_args args)
{
    const uint32_t *in = (const uint32_t *)(blockIdx.y ? args.in[1] : args.in[0]);
    int64_t begin = blockIdx.y ? args.offset[1] : args.offset[0], end = begin + (int64_t)args.n_samples;
    int64_t last_word = (end * SAMPLE_BITS - 1) / 32, stride = (int64_t)gridDim.x * N_THREADS;
    unsigned long long sum = 0;

    for (int64_t group = begin / GROUP_SAMPLES + blockIdx.x * N_THREADS + threadIdx.x; group * GROUP_SAMPLES < end;
         group += stride) {
        uint32_t words[SAMPLE_BITS];
#pragma unroll
        for (int w = 0; w < SAMPLE_BITS; w++)
            words[w] = group * SAMPLE_BITS + w <= last_word ? __ldg(in + group * SAMPLE_BITS + w) : 0;
#pragma unroll
        for (int i = 0; i < GROUP_SAMPLES; i++) {
            int64_t at = group * GROUP_SAMPLES + i;
            int x = sample_of(words, i);
            if (at >= begin && at < end)
                sum += (uint32_t)(x * x);
        }
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)args.power + blockIdx.y, sum);
}
