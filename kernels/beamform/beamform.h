/* beamform - forms tied-array beams from voltages.  A beam is the weighted sum of one polarisation over the antennas.
 *   voltages      [batch][ant][chan][spectrum][pol][re, im]   4 or 8 bits (voltages.h); absent heaps contain zeros
 *   coefficients  int16 [chan][beam][ant][re, im]             only for the C version (beam_coefficients.h)
 *   fragments     the same coefficients                       only for CUDA (beam_fragments.h)
 *   exponents     int32 [chan][beam]
 *   beams         [beam]
 *   slots         uint32 [n_slots]                            only for CUDA (beamform_slots())
 *   renormalise   float [batch][beam]                         NULL: all factors are 1
 *   out           int8 [batch][beam][chan][spectrum][re, im]  a heap for each batch and beam
 *   saturated     uint32 [batch][beam]                        the kernel adds to these counts
 *
 * Each part is v = (sum over antennas of coefficient * voltage) * 2^-exponent * renormalise.  Then
 *   1. v += dither: uniform in (-1/2, 1/2), a function of the beam's seed, the channel in the band and the spectrum's
 *      number (philox.h); if v is a whole number, step 2 restores it;
 *   2. v is clipped to +-127 and rounded: half to even without a dither, half up with a dither; a NaN becomes 0.
 * A complex sample counts in 'saturated' if any part was clipped, even by a small amount.
 *
 * Exactness: CUDA and the C version agree in every bit.  The sum over up to 4096 antennas is exact.  The sum is rounded
 *            to single precision once and scaled exactly.  Two later operations also round: the product with
 *            'renormalise', and the sum with 128.5 + dither.
 * Requires:  magnitudes of 'renormalise' from 2^-20 to 2^20; n_spectra and first_spectrum multiples of 8 (of 4 in
 *            the C version); 1 to 4096 antennas; voltages and out aligned to 16 bytes.  With wgmma, the voltages of an
 *            antenna in a batch have less than 4 GiB.
 * Bound by:  CUDA, up to 16 beams: memory; the voltages of both polarisations are read once for each 16 beams.  CUDA,
 *            more beams and up to 96 antennas: the instructions for dither and rounding; voltages are read once for 256
 *            beams, or once for up to 1024 beams with wgmma.  The C version: 8 integer multiply-adds for each voltage
 *            and beam. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_H
#define KERNELS_BEAMFORM_BEAMFORM_H

#include "common/device/device.h"
#include "kernels/beamform/beam_coefficients.h"
#include "kernels/util/philox.h"
#include "kernels/util/voltages.h"

#define BEAMFORM_LIMIT    127.0f
#define BEAMFORM_MAX_ANTS 4096

/* A dithered part is v + 128.5 + dither.  BEAMFORM_LEAST and BEAMFORM_MOST are the limits of a dithered part, and
 * BEAMFORM_ZERO replaces a NaN.  The output is the dithered part, rounded down, minus 128. */
#define BEAMFORM_LEAST 1.5f
#define BEAMFORM_MOST  255.5f
#define BEAMFORM_ZERO  128.0f

#define BEAMFORM_DITHER_FACTOR 0x9E3779B1u /* odd number near 2^32 / golden ratio */

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
    uint64_t first_spectrum; /* sequence number of spectrum 0 of batch 0 of 'voltages'; a multiple of 8 */
    enum voltage_format format;
    uint32_t n_beams;
    uint32_t n_slots;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra;   /* spectra of a heap */
    uint32_t chan_offset; /* index in the band of the kernel's channel 0 */
    uint32_t first_batch;
    uint32_t n_batches;
    uint32_t wgmma; /* beamform_wgmma(); CUDA only */
};

/* Returns 2^-exponent, or 2^64 for exponents below -64.  With 2^64, any non-zero sum is far above the limit and is
 * clipped. */
static inline float beamform_scale(int32_t exponent)
{
    return beam_power_of_two(exponent > -64 ? -exponent : 64);
}

/* Makes the random words for the dither of eight spectra.  The first spectrum has the number 8 * 'eight'.  'chan' is
 * the channel's index in the band. */
static inline void beamform_dither(uint64_t seed, uint32_t chan, uint64_t eight, uint32_t words[4])
{
    const uint32_t counter[4] = {chan, (uint32_t)eight, (uint32_t)(eight >> 32), 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32(counter, key, words);
}

/* Returns the random word for spectrum 8 * eight + s.  Each half h of the word gives the dither of one part: (h | 1) /
 * 65536 - 1/2.  The lower half is for the real part.  The first four spectra use w[0] to w[3].  For each of the other
 * spectra, the word is c * w[i] + w[(i + 1) % 4], with i = s - 4 and an odd c.  So any two of the eight words are
 * independent and uniform.  Independence in pairs is enough for the mean values and powers of the rounding errors. */
static inline uint32_t beamform_dither_word(const uint32_t words[4], uint32_t s)
{
    return s < 4 ? words[s] : BEAMFORM_DITHER_FACTOR * words[s - 4] + words[(s - 3) % 4];
}

extern const struct kernel beamform_kernel;

/* Returns the device's number of multiprocessors, or 0 if the device does not have the instruction wgmma. */
struct device;
uint32_t beamform_wgmma(const struct device *device);

/* Assigns beams to groups of BEAM_GROUP_BEAMS slots.  All beams of a group have the same polarisation, and the first
 * slot of a group always has a beam.  The polarisations of the groups alternate until one polarisation has no beam
 * left.  Writes at most beamform_max_slots() slots, and the slot of each beam.  Returns the number of slots. */
uint32_t beamform_slots(const struct beam *beams, uint32_t n_beams, uint32_t *slots, uint32_t *slot_of);
static inline uint32_t beamform_max_slots(uint32_t n_beams)
{
    return n_beams + 2 * (BEAM_GROUP_BEAMS - 1);
}

/* beamform_constants() writes the constants with which the CUDA variant is compiled.  beamform_grid() returns the grid
 * of a launch. */
#define BEAMFORM_N_CONSTANTS 9
#define BEAMFORM_SLOT_BYTES  40 /* size of a slot in shared memory, in bytes */
/* beamform_whole.h: size of a slot; number and size of the stages for loads */
#define BEAMFORM_LISTED_BYTES    24
#define BEAMFORM_STAGES(n_steps) ((n_steps) > 5 ? 1 : 2)
#define BEAMFORM_STAGE_BYTES     16384
/* number of groups of a block if neither beamform_held.h nor beamform_whole.h is used */
#define BEAMFORM_TILE_GROUPS 2
bool beamform_is_whole(const struct beamform_args *args); /* returns true if beamform_whole.h computes the sums */
/* if beamform_is_whole() is false: returns true for beamform_held.h, and false for beamform_tile.h alone */
bool beamform_holds(const struct beamform_args *args);
void beamform_constants(const struct beamform_args *args, struct kernel_constant *constants);
struct kernel_grid beamform_grid(const struct beamform_args *args);

#endif
