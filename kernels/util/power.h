/* power - the sum of the squares of packed ADC samples.  pfb_fir.h computes the same sum during its filter.
 *   in      uint8 [pol][...]   packed two's complement, 'sample_bits' each, most significant bit first
 *   power   uint64 [pol]       the kernel adds the sum of squares of n_samples samples of in[pol], beginning at
 *                              offset[pol]
 *
 * Requires: sample_bits 2..10, 12 or 16; offsets >= 0.  CUDA: 'in' aligned to 4 bytes, and readable to the end of the
 *           last sample's 4-byte word.
 * Exactness: exact.   Bound by: memory; sample_bits / 8 B per sample. */
#ifndef KERNELS_UTIL_POWER_H
#define KERNELS_UTIL_POWER_H

#include "common/device/device.h"

struct power_args {
    const uint8_t *in[2]; /* [pol]: packed samples */
    uint64_t *power;      /* [pol] */
    int64_t offset[2];    /* [pol]: index of the first sample */
    uint64_t n_samples;
    uint32_t sample_bits;
};

extern const struct kernel power_kernel;

/* power_constants() writes the constants of the CUDA variant.  power_grid() returns the grid of a launch of at least
 * one sample. */
#define POWER_N_CONSTANTS 2
void power_constants(const struct power_args *args, struct kernel_constant *constants);
struct kernel_grid power_grid(const struct power_args *args);

#endif
