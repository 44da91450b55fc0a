/* keep.h - values that stay in registers, for the CUDA kernels.  The compiler would otherwise compute them again. */
#ifndef KERNELS_UTIL_KEEP_H
#define KERNELS_UTIL_KEEP_H

/* Returns 'value'.  The compiler cannot know that no other lane supplies 'value', and so keeps the result.  All lanes
 * of the warp call this function. */
static __device__ __forceinline__ uint32_t keep(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, (int)(threadIdx.x % 32));
}

/* Returns a constant in a register.  The compiler would otherwise put the constant into instructions that have room for
 * only one constant. */
static __device__ __forceinline__ uint32_t keep_constant(uint32_t value)
{
    return keep(value * gridDim.z); /* gridDim.z is 1, but the compiler does not know this value */
}

#endif
