/* keep.h - values that are to stay in registers, for the CUDA kernels: the compiler would rather make them again. */
#ifndef KERNELS_UTIL_KEEP_H
#define KERNELS_UTIL_KEEP_H

/* 'value', as if another lane could have made it.  All lanes of the warp must come. */
static __device__ __forceinline__ uint32_t keep(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, (int)(threadIdx.x % 32));
}

/* A constant, which would otherwise become part of instructions that have room for only one. */
static __device__ __forceinline__ uint32_t keep_constant(uint32_t value)
{
    return keep(value * gridDim.z); /* which is 1, and the compiler does not know it */
}

#endif
