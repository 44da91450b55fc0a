/* beamform_load.h - reads voltages for beamform_tile.h and beam_incoherent.cu.
 *
 * Each 4-bit voltage is widened to a byte whose value is 16 times the voltage.
 *
 * Constants: SAMPLE_BYTES, bytes of a complex sample; FLIP, the byte that encodes zeros. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_LOAD_H
#define KERNELS_BEAMFORM_BEAMFORM_LOAD_H

#include <stdint.h>

#define VOLTAGE_SHIFT (SAMPLE_BYTES == 1 ? 4 : 0)

/* Widens the 4-bit samples of both polarisations to bytes.  Each byte is 16 times the 4-bit value. */
static __device__ __forceinline__ uint32_t widen(uint32_t pair)
{
    const uint32_t x = (pair ^ (FLIP * 0x0101u)) & 0xffffu;

    return __byte_perm(x & 0xf0f0u, x << 4 & 0xf0f0u, 0x5140);
}

/* Loads four consecutive spectra.  A word is one spectrum, [re, im] of polarisation 0 and then of polarisation 1. */
static __device__ __forceinline__ void load_spectra(const uint8_t *at, uint32_t (&words)[4])
{
    if (SAMPLE_BYTES == 2) {
        const uint4 four = *(const uint4 *)at;
        words[0] = four.x;
        words[1] = four.y;
        words[2] = four.z;
        words[3] = four.w;
    } else {
        const uint2 four = *(const uint2 *)at;
        words[0] = widen(four.x);
        words[1] = widen(four.x >> 16);
        words[2] = widen(four.y);
        words[3] = widen(four.y >> 16);
    }
}

/* Loads two consecutive spectra.  The words are as those of load_spectra(). */
static __device__ __forceinline__ void load_pair(const uint8_t *at, uint32_t (&words)[2])
{
    if (SAMPLE_BYTES == 2) {
        const uint2 two = *(const uint2 *)at;
        words[0] = two.x;
        words[1] = two.y;
    } else {
        const uint32_t two = *(const uint32_t *)at;
        words[0] = widen(two);
        words[1] = widen(two >> 16);
    }
}

#endif
