/* quantise.h - the last steps in processing a value, for the CUDA kernels: rotation, dither, rounding, packing.
 *
 * postproc.h has the mathematics, steps 2 and 3.  This file uses the constant OUT_BITS. */
#ifndef KERNELS_FILTERBANK_QUANTISE_H
#define KERNELS_FILTERBANK_QUANTISE_H

#include "kernels/util/philox.h"

#define QUANTISE_LIMIT (OUT_BITS == 8 ? 127.0f : 7.0f)

/* Returns the phase rotation e^{j theta}.  The gain is not included. */
static __device__ __forceinline__ float2 turn_of(float2 rotation, float slope)
{
    float2 turn;

    __sincosf(fmaf(rotation.x, slope, rotation.y), &turn.y, &turn.x);
    return turn;
}

/* Makes the random bits for the dither of channel k in spectra 2 * pair and 2 * pair + 1.  Each half of a word is s +
 * 2^15; philox_dither() defines s.  Adding 2^15 inverts the sign bit of s. */
static __device__ __forceinline__ void draw_dither(uint64_t seed, uint32_t stream_id, uint32_t k, uint64_t pair,
                                                   uint32_t (&bits)[4])
{
    const uint32_t counter[4] = {k, (uint32_t)pair, (uint32_t)(pair >> 32), stream_id};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32(counter, key, bits);
#pragma unroll
    for (int word = 0; word < 4; word++)
        bits[word] = (bits[word] | 0x00010001u) ^ 0x80008000u;
}

/* Returns a dither, s / 65536.  'bits' is a word from draw_dither().  Each half of the word is a number s + 2^15.  The
 * function puts the chosen half into the last bits of a float.  The float is then 2^23 + s + 2^15.  philox_dither()
 * computes the same dither from the random bits. */
static __device__ __forceinline__ float dither(uint32_t bits, int upper)
{
    uint32_t sum = __byte_perm(bits, 0x4B00, upper ? 0x5432 : 0x5410);

    return fmaf(__uint_as_float(sum), 1.0f / 65536.0f, -128.5f);
}

/* Clips v, and rounds v half to even.  Returns the integer in the low bits.  If v is NaN, the integer is 0.  The
 * function adds 1.5 * 2^23, and this addition rounds v.  If v is clipped or NaN, the function sets 'clipped'. */
static __device__ __forceinline__ uint32_t quantise(float v, bool &clipped)
{
    clipped = clipped || !(fabsf(v) <= QUANTISE_LIMIT);
    v = v == v ? v : 0.0f;
    return __float_as_uint(fminf(fmaxf(v, -QUANTISE_LIMIT), QUANTISE_LIMIT) + 12582912.0f);
}

/* Returns (re, im) of both polarisations as in a heap: 32 bits, or 16 bits if OUT_BITS is 4. */
static __device__ __forceinline__ uint32_t pack(uint32_t re0, uint32_t im0, uint32_t re1, uint32_t im1)
{
    if (OUT_BITS == 8)
        return __byte_perm(__byte_perm(re0, im0, 0x0040), __byte_perm(re1, im1, 0x0040), 0x5410);
    return (re0 << 4 & 0xf0) | (im0 & 0xf) | (re1 << 12 & 0xf000) | (im1 << 8 & 0xf00);
}

/* Adds the warp's numbers of clipped values to 'saturated'.  These numbers are nearly always 0. */
static __device__ __forceinline__ void count_clipped(uint32_t n_clipped, uint32_t *saturated)
{
    if (!__any_sync(0xffffffffu, n_clipped != 0))
        return;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        n_clipped += __shfl_xor_sync(0xffffffffu, n_clipped, lanes);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(saturated, n_clipped & 0xffff);
        atomicAdd(saturated + 1, n_clipped >> 16);
    }
}

#endif
