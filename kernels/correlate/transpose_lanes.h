/* transpose_lanes.h - numbers exchanged between four lanes, so that what one lane has of several places in memory becomes
 * what four lanes have of one: 32 bytes of 8 each. */
#ifndef KERNELS_CORRELATE_TRANSPOSE_LANES_H
#define KERNELS_CORRELATE_TRANSPOSE_LANES_H

/* In lane t of four (threadIdx.x % 4), value i becomes what was value t of lane i.  All lanes of the warp must come. */
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
