/* unpack.h - packed samples in plain C: two's complement, 2 to 10, 12 or 16 bits, most significant bit first. */
#ifndef KERNELS_UTIL_UNPACK_H
#define KERNELS_UTIL_UNPACK_H

#include <stddef.h>
#include <stdint.h>

/* Returns the sample that begins at bit 'bit' of 'in'.  A sample of any width lies in at most two bytes.  The second
 * byte is read only if the sample reaches it, so the byte after the last sample need not exist. */
static inline float unpack_one(const uint8_t *in, size_t bit, unsigned sample_bits)
{
    unsigned high = in[bit / 8];
    unsigned low = in[(bit + sample_bits - 1) / 8];
    uint16_t left = (uint16_t)((high << 8 | low) << (bit % 8));
    return (float)((int16_t)left >> (16 - sample_bits));
}

#endif
