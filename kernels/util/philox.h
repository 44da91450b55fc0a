/* philox - counter-based random numbers: Philox4x32-7 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3" (SC'11).  The same counter and key give the same bits on every device and in any order.  So a dither
 * can be computed on any device, repeatedly and in parallel.  Seven rounds are the fewest that pass all of TestU01's
 * BigCrush (section 5 of the paper).
 *
 * CUDA kernels include this file too. */
#ifndef KERNELS_UTIL_PHILOX_H
#define KERNELS_UTIL_PHILOX_H

#include <stdint.h>

/* Computes the 64-bit product of a and b.  Without the assembly code, the compiler would add useless instructions to
 * split the product into two words. */
static inline void philox_multiply(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
#ifdef __CUDA_ARCH__
    asm("{.reg .b64 product; mul.wide.u32 product, %2, %3; mov.b64 {%1, %0}, product;}"
        : "=r"(*high), "=r"(*low)
        : "r"(a), "r"(b));
#else
    uint64_t product = (uint64_t)a * b;

    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
#endif
}

/* Computes out = Philox4x32-7(counter, key). */
static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 7; round++) {
        uint32_t high0, low0, high1, low1;
        philox_multiply(0xD2511F53u, c0, &high0, &low0);
        philox_multiply(0xCD9E8D57u, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Returns a dither in (-1/2, 1/2) from 16 of 32 random bits: the upper 16 bits if 'upper' is not 0, else the lower 16
 * bits.  The function sets the last of the 16 bits.  The 16 bits are then a signed number s.  The dither is s / 65536.
 * So the dither has 2^15 equal steps, symmetric about 0.  One unit in the last place of 127 is 2^-17.  So 127 + dither
 * is exact in float, and below 127.5.  So rounding turns a dithered integer back into this integer. */
static inline float philox_dither(uint32_t bits, int upper)
{
    int32_t s = (int32_t)((upper ? bits & 0xffff0000u : bits << 16) | 0x10000u); /* 65536 s */

    return (float)s * (1.0f / 4294967296.0f);
}

#endif
