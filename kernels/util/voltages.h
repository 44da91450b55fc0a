/* voltages.h - the formats of channelised voltages in F-engines' heaps and in memory.
 *
 * Shape: [batch][ant][chan][spectrum][pol].  An element is a complex sample, real part first. */
#ifndef KERNELS_UTIL_VOLTAGES_H
#define KERNELS_UTIL_VOLTAGES_H

#include "common/device/device.h"

enum voltage_format {
    VOLTAGES_4_BITS,        /* one byte: two's complement nibbles, the real part in the high nibble */
    VOLTAGES_4_BITS_OFFSET, /* one byte: nibbles in excess 8 (value + 8), the real part in the high nibble */
    VOLTAGES_8_BITS,        /* two bytes in two's complement */
    VOLTAGES_16_BITS,       /* two half floats (IEEE binary16), little endian */
};

/* Returns the number of bytes of a complex sample: 1, 2 or 4. */
static inline uint32_t voltage_bytes(enum voltage_format format)
{
    return format == VOLTAGES_16_BITS ? 4 : format == VOLTAGES_8_BITS ? 2 : 1;
}

/* Returns the value that each byte of a zero voltage has. */
static inline uint8_t voltage_zero(enum voltage_format format)
{
    return format == VOLTAGES_4_BITS_OFFSET ? 0x88 : 0;
}

#endif
