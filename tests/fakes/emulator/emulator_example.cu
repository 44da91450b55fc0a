/* emulator_example.cu - see emulator_example.h. */
#include "kernels/util/barrier.h"
#include "tests/fakes/emulator/emulator_example.h"

extern __shared__ float4 shared_memory[];

/* One word per thread: a tree whose every level needs the one before. */
__device__ static uint32_t sum_tree(uint32_t value)
{
    uint32_t *words = (uint32_t *)shared_memory;

    words[threadIdx.x] = value;
    for (uint32_t n = THREADS / 2; n > 0; n /= 2) {
        if (MISTAKE == MISTAKE_WARP_AHEAD)
            __syncwarp();
        else if (MISTAKE != MISTAKE_NO_BARRIER)
            __syncthreads();
        if (threadIdx.x < n)
            words[threadIdx.x] += words[threadIdx.x + n];
    }
    __syncthreads();
    return words[0];
}

/* Sums of warps by shuffles, and of those by the first warp, half of its lanes. */
__device__ static uint32_t sum_shuffles(uint32_t value)
{
    uint32_t *words = (uint32_t *)shared_memory;
    const uint32_t n_warps = THREADS / 32;

    for (int lanes = 16; lanes > 0; lanes /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lanes);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        words[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 16) {
        value = threadIdx.x < n_warps ? words[threadIdx.x] : 0;
        for (int lanes = 8; lanes > 0; lanes /= 2)
            value += __shfl_down_sync(0xffffu, value, lanes, 16);
        if (threadIdx.x == 0)
            words[32] = value;
    }
    __syncthreads();
    return words[32];
}

/* Bit by bit: how many lanes have it. */
__device__ static uint32_t sum_ballots(uint32_t value)
{
    uint32_t sum = 0;

    for (int bit = 0; bit < 32; bit++)
        sum += (uint32_t)__popc(__ballot_sync(0xffffffffu, (int)(value >> bit & 1))) << bit;
    return sum;
}

/* The first half of the threads hand their values over to the second half, a byte at a time in the same place; those take
 * them, and add up. */
__device__ static uint32_t sum_handed_over(uint32_t value)
{
    const uint32_t half = THREADS / 2;
    uint32_t *words = (uint32_t *)shared_memory, *sum = words + half;
    uint64_t *full = (uint64_t *)shared_memory + THREADS - 2, *empty = full + 1; /* where nobody has written */

    if (threadIdx.x == 0) {
        if (MISTAKE != MISTAKE_BARRIER_UNMADE)
            barrier_init(full, half + (MISTAKE == MISTAKE_BARRIER_TOO_FEW));
        barrier_init(empty, half);
        *sum = 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++)
        if (threadIdx.x < half) {
            if (i > 0)
                barrier_wait(empty, i - 1);
            words[threadIdx.x] = value & 0xffu << 8 * i;
            barrier_arrive(full);
        } else {
            barrier_wait(full, MISTAKE == MISTAKE_BARRIER_AHEAD ? i + 2 : i);
            value += words[THREADS - 1 - threadIdx.x];
            barrier_arrive(empty);
        }
    if (MISTAKE == MISTAKE_BARRIER_BEHIND)
        barrier_wait(full, 1);
    if (threadIdx.x >= half)
        atomicAdd(sum, value);
    __syncthreads();
    return *sum;
}

__device__ static void make_mistake(const struct emulator_example_args &args)
{
    uint32_t local[4] = {1, 2, 3, args.n};
    volatile uint32_t *words = (volatile uint32_t *)shared_memory;

    if (MISTAKE == MISTAKE_SHARED_OVERRUN && threadIdx.x == 5)
        words[2 * THREADS] = 1;
    if (MISTAKE == MISTAKE_MISALIGNED && threadIdx.x == 5)
        words[0] = *(const volatile uint32_t *)((const uint8_t *)args.in + 2);
    if (MISTAKE == MISTAKE_INDEX && threadIdx.x == 5)
        words[0] = local[4 + args.n % 8];
    if (MISTAKE == MISTAKE_LONE_LANE && threadIdx.x == 5)
        __syncwarp();
    if (MISTAKE == MISTAKE_GLOBAL_OVERRUN && threadIdx.x == 5)
        args.out[gridDim.x * EXAMPLE_N_SUMS] = 1;
}

extern "C" __global__ void __launch_bounds__(THREADS) emulator_example(const struct emulator_example_args args)
{
    uint32_t *words = (uint32_t *)shared_memory;
    uint32_t value = 0, sum;

    if (MISTAKE == MISTAKE_EARLY_EXIT && threadIdx.x == 5)
        return;
    if (MISTAKE == MISTAKE_SHARED_UNWRITTEN) {
        if (threadIdx.x == 0)
            args.out[blockIdx.x * EXAMPLE_N_SUMS] = __float_as_uint(((float *)shared_memory)[7]);
        return;
    }
    make_mistake(args);
    for (uint32_t i = threadIdx.x; i < args.n; i += THREADS)
        value += __ldg(&args.in[blockIdx.x * args.n + i]);
    sum = sum_tree(value);
    if (threadIdx.x == 0)
        args.out[blockIdx.x * EXAMPLE_N_SUMS] = sum;
    sum = sum_shuffles(value);
    if (threadIdx.x == THREADS - 1)
        args.out[blockIdx.x * EXAMPLE_N_SUMS + 1] = sum;
    __syncthreads();
    words[0] = words[1] = 0;
    __syncthreads();
    atomicAdd(&words[0], value);
    sum = sum_ballots(value);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&words[1], sum);
    __syncthreads();
    if (threadIdx.x < 2)
        args.out[blockIdx.x * EXAMPLE_N_SUMS + 2 + threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    sum = sum_handed_over(value);
    if (threadIdx.x == THREADS / 2)
        args.out[blockIdx.x * EXAMPLE_N_SUMS + 4] = sum;
}
