/* keep.h - values that stay in registers, for the CUDA kernels.  The compiler would otherwise compute them again. */
#ifndef KERNELS_UTIL_KEEP_H
#define KERNELS_UTIL_KEEP_H

/* Returns 'value'.  The compiler must assume that the result comes from another lane.  So the compiler keeps the result
 * in a register.  All lanes of the warp call this function. */
static __device__ __forceinline__ uint32_t keep(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, (int)(threadIdx.x % 32));
}

/* Returns a constant in a register.  Otherwise the compiler would put the constant into the instructions, and an
 * instruction has room for only one constant. */
static __device__ __forceinline__ uint32_t keep_constant(uint32_t value)
{
    return keep(value * gridDim.z); /* gridDim.z is 1, but the compiler does not know this value */
}

#endif
