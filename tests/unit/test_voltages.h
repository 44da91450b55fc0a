/* test_voltages.h - F-engine voltages of all formats, read by plain arithmetic. */
#ifndef TESTS_UNIT_TEST_VOLTAGES_H
#define TESTS_UNIT_TEST_VOLTAGES_H

#include "kernels/util/voltages.h"

#include <math.h>
#include <stdint.h>

static inline double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

    return bits & 0x8000 ? -magnitude : magnitude;
}

/* Returns the real part (part 0) or the imaginary part (part 1) of complex sample 'index'. */
static inline double voltage_part(const void *voltages, enum voltage_format format, size_t index, int part)
{
    const uint8_t *bytes = voltages;
    int nibble = bytes[index] >> (part ? 0 : 4) & 15; /* in every format this byte lies within 'voltages', because a
                                                       * sample has at least one byte */

    switch (format) {
    case VOLTAGES_4_BITS: return nibble >= 8 ? nibble - 16 : nibble;
    case VOLTAGES_4_BITS_OFFSET: return nibble - 8;
    case VOLTAGES_8_BITS: return ((const int8_t *)bytes)[2 * index + (size_t)part];
    default: return half_value(((const uint16_t *)voltages)[2 * index + (size_t)part]);
    }
}

/* Reads the real and imaginary part of complex sample 'index' of an F-engine's output.  A part has 8 or 4 bits. */
static inline void quantised_voltage(const uint8_t *voltages, unsigned bits, size_t index, int value[2])
{
    if (bits == 8) {
        value[0] = (int8_t)voltages[index * 2];
        value[1] = (int8_t)voltages[index * 2 + 1];
    } else {
        value[0] = (int)(voltages[index] >> 4 ^ 8) - 8;
        value[1] = (int)((voltages[index] & 15) ^ 8) - 8;
    }
}

#endif
