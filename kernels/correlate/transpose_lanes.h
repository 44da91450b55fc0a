/* transpose_lanes.h - exchanges numbers between four lanes.  Before the exchange, one lane has 8 bytes of each of
 * several places in memory.  After the exchange, four lanes together have 32 bytes of one place. */
#ifndef KERNELS_CORRELATE_TRANSPOSE_LANES_H
#define KERNELS_CORRELATE_TRANSPOSE_LANES_H

/* Exchanges values of four lanes: value i of lane t (threadIdx.x % 4) becomes the former value t of lane i.  All lanes
 * of the warp call this function. */
template <typename T> static __device__ __forceinline__ void transpose_lanes(T (&values)[4])
{
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
        bool odd = threadIdx.x & bit;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & bit)) {
                T given = __shfl_xor_sync(0xffffffffu, odd ? values[i] : values[i + bit], bit);
                values[i] = odd ? given : values[i];
                values[i + bit] = odd ? values[i + bit] : given;
            }
    }
}

#endif
