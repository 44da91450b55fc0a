/* half.h - half floats (IEEE binary16) in plain C. */
#ifndef KERNELS_UTIL_HALF_H
#define KERNELS_UTIL_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Converts without rounding.  Infinities and NaNs stay the same. */
static inline float half_to_float(uint16_t half)
{
    uint32_t exponent = half & 0x7C00, bits = (uint32_t)(half & 0x7FFF) << 13;
    float magnitude;

    /* the bits, read as a float, give a value that is 2^112 times too small, also for subnormal numbers */
    memcpy(&magnitude, &bits, sizeof(magnitude));
    magnitude *= 0x1p112f;
    memcpy(&bits, &magnitude, sizeof(bits));
    bits |= (exponent == 0x7C00 ? UINT32_C(0x7F800000) : 0) | (uint32_t)(half & 0x8000) << 16;
    memcpy(&magnitude, &bits, sizeof(magnitude));
    return magnitude;
}

/* Returns the nearest half float.  |x| < 65520. */
static inline uint16_t half_of_double(double x)
{
    int exponent;

    frexp(x, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* half floats below 2^-14 are 2^-24 apart */
    double units = rint(ldexp(fabs(x), 11 - exponent));
    /* A unit is the value of the last bit of the mantissa.  A normal number is 2^10 to 2^11 units.  The leading bit,
     * 2^10, adds one to the exponent field.  If the number was rounded up to 2^11 units, the bit 2^11 adds two. */
    return (uint16_t)((signbit(x) ? 0x8000 : 0) + ((exponent + 13) << 10) + (int)units);
}

#endif
