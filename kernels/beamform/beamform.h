/* beamform - voltages to tied-array beams: for each beam the weighted sum over the antennas of one polarisation.
 *   voltages      [batch][ant][chan][spectrum][pol][re, im]   4 or 8 bits (voltages.h); absent heaps are zeros
 *   coefficients  int16 [chan][beam][ant][re, im]             beam_coefficients.h: the twin only
 *   fragments     the same coefficients                       beam_fragments.h: CUDA only
 *   exponents     int32 [chan][beam]
 *   beams         [beam]
 *   slots         uint32 [n_slots]                            beamform_slots(): CUDA only
 *   renormalise   float [batch][beam]                         NULL: 1
 *   out           int8 [batch][beam][chan][spectrum][re, im]  a heap for each batch and beam
 *   saturated     uint32 [batch][beam]                        added to
 *
 * For each part: v = (sum over antennas of coefficient * voltage) * 2^-exponent * renormalise, then
 *   1. v += dither: uniform in (-1/2, 1/2), a function of the beam's seed, the channel in the band and the number of the
 *      spectrum (philox.h); a whole number stays itself;
 *   2. v is clipped to +-127, and rounded: half to even, or half up behind a dither; 0 if it is not a number.
 * A complex sample of which any part was clipped, by however little, counts in 'saturated'.
 *
 * Exactness: CUDA and the twin agree in every bit.  The sum is exact, of up to 4096 antennas; it is rounded to single
 *            precision once, scaled exactly, and rounded again by 'renormalise' and by the sum with 128.5 + dither.
 * Requires:  'renormalise' of magnitudes from 2^-20 to 2^20; n_spectra a multiple of 8; 1 to 4096 antennas; voltages and out
 *            aligned to 16 bytes.
 * Bound by:  CUDA: memory, for up to 16 beams: voltages are read once for each 16 beams of both polarisations.  Up to 96
 *            antennas, they are read once for 256 beams: the instructions that make the dither and round.  The twin: 8 integer
 *            multiply-adds for each voltage and beam. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_H
#define KERNELS_BEAMFORM_BEAMFORM_H

#include "common/device/device.h"
#include "kernels/beamform/beam_coefficients.h"
#include "kernels/util/philox.h"
#include "kernels/util/voltages.h"

#define BEAMFORM_LIMIT    127.0f
#define BEAMFORM_MAX_ANTS 4096

/* A dithered part is v + 128.5 + dither.  These are its limits, and the number for a part that is not a number.  The integer
 * below it, less 128, is the output. */
#define BEAMFORM_LEAST 1.5f
#define BEAMFORM_MOST  255.5f
#define BEAMFORM_ZERO  128.0f

#define BEAMFORM_NO_BEAM 0xffffffffu /* a slot without a beam */

struct beamform_args {
    const void *voltages;
    const int16_t *coefficients;
    const int8_t *fragments;
    const int32_t *exponents;
    const struct beam *beams;
    const uint32_t *slots;
    const float *renormalise;
    int8_t *out;
    uint32_t *saturated;
    uint64_t first_spectrum; /* number of spectrum 0 of batch 0 of 'voltages'; a multiple of 4 */
    enum voltage_format format;
    uint32_t n_beams;
    uint32_t n_slots;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra;   /* of a heap */
    uint32_t chan_offset; /* in the band, of channel 0 */
    uint32_t first_batch;
    uint32_t n_batches;
    uint32_t wgmma; /* 1: the device has compute capability 9.0; CUDA only */
};

/* 2^-exponent, or 2^64, by which every sum but 0 is far above the limit. */
static inline float beamform_scale(int32_t exponent)
{
    return beam_power_of_two(exponent > -64 ? -exponent : 64);
}

/* The dither's bits of spectra 4 i to 4 i + 3 of a channel of the band.  A half h of bits[s] is the dither of a part:
 * (h | 1) / 65536 - 1/2.  The lower half is that of the real part. */
static inline void beamform_dither(uint64_t seed, uint32_t chan, uint64_t four, uint32_t bits[4])
{
    const uint32_t counter[4] = {chan, (uint32_t)four, (uint32_t)(four >> 32), 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32(counter, key, bits);
}

extern const struct kernel beamform_kernel;

/* Deals beams to groups of BEAM_GROUP_BEAMS slots, each of one polarisation; the first slot of a group has a beam.  Groups
 * of both polarisations take turns as long as there are both.  Writes at most beamform_max_slots() slots, and the slot of
 * each beam.  Returns how many slots there are. */
uint32_t beamform_slots(const struct beam *beams, uint32_t n_beams, uint32_t *slots, uint32_t *slot_of);
static inline uint32_t beamform_max_slots(uint32_t n_beams)
{
    return n_beams + 2 * (BEAM_GROUP_BEAMS - 1);
}

/* Constants that the CUDA variant is compiled with, and the grid of a launch. */
#define BEAMFORM_N_CONSTANTS 9
#define BEAMFORM_SLOT_BYTES  40 /* in shared memory */
#define BEAMFORM_TILE_GROUPS 2  /* of a block that does not hold its voltages (beamform_held.h) */
bool beamform_holds(const struct beamform_args *args);
void beamform_constants(const struct beamform_args *args, struct kernel_constant *constants);
struct kernel_grid beamform_grid(const struct beamform_args *args);

#endif
