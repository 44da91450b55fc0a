/* half.h - half floats (IEEE binary16) in plain C. */
#ifndef KERNELS_HALF_H
#define KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

/* Exact: 11 bits of significand at exponents of -24 to 15; infinities and what is not a number stay so. */
static inline float half_to_float(uint16_t half)
{
    uint32_t exponent = half & 0x7C00, bits = (uint32_t)(half & 0x7FFF) << 13;
    float magnitude;

    memcpy(&magnitude, &bits, sizeof(magnitude)); /* as a float, 2^112 times too small; subnormals too */
    magnitude *= 0x1p112f;
    memcpy(&bits, &magnitude, sizeof(bits));
    bits |= (exponent == 0x7C00 ? UINT32_C(0x7F800000) : 0) | (uint32_t)(half & 0x8000) << 16;
    memcpy(&magnitude, &bits, sizeof(magnitude));
    return magnitude;
}

#endif
