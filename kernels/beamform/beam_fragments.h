/* beam_fragments - coefficients of beams in the layout of tensor cores: two slices of bytes, in the order of a warp's
 * lanes.
 *   fragments   int8 [chan][group][step][high, low][lane][half][re, im][odd][2]
 *   slot_of     uint32 [beam]     the beam's slot, from beamform_slots()
 *
 * A group has BEAM_GROUP_BEAMS slots, and a step has BEAM_STEP_ANTS antennas.  A coefficient is 256 high + low, both
 * int8.  A lane's 16 bytes are the lane's part of the first operand of mma.m16n8k32.  This operand has 16 rows: the
 * real parts of 8 beams, then their imaginary parts.  Antenna a of a step has half = a / 8 and odd = a % 2.  Slot s
 * of a group and antenna a belong to lane 4 s + a % 8 / 2.  The two bytes are re, -im in a row of a real part, and
 * im, re in a row of an imaginary part.
 *
 * The bytes of antennas beyond the last antenna are 0.  The bytes of slots without a beam are undefined. */
#ifndef KERNELS_BEAMFORM_BEAM_FRAGMENTS_H
#define KERNELS_BEAMFORM_BEAM_FRAGMENTS_H

#include <stdint.h>

#define BEAM_GROUP_BEAMS 8
#define BEAM_STEP_ANTS   16
#define BEAM_SLICE_BYTES 512 /* bytes of the coefficients of a step of one group: 16 bytes for each lane */
#define BEAM_STEP_BYTES  (2 * BEAM_SLICE_BYTES)

static inline uint32_t beam_fragments_steps(uint32_t n_ants)
{
    return (n_ants + BEAM_STEP_ANTS - 1) / BEAM_STEP_ANTS;
}

/* Returns the number of bytes that the coefficients of a group in a channel need, for all steps. */
static inline uint64_t beam_fragments_group_bytes(uint32_t n_ants)
{
    return (uint64_t)beam_fragments_steps(n_ants) * BEAM_STEP_BYTES;
}

/* Returns the number of bytes that the coefficients of a channel need, for all groups. */
static inline uint64_t beam_fragments_chan_bytes(uint32_t n_slots, uint32_t n_ants)
{
    return n_slots / BEAM_GROUP_BEAMS * beam_fragments_group_bytes(n_ants);
}

/* Writes the high bytes of 'a' and 'b' to the high slice, and their low bytes to the low slice. */
static inline void beam_fragments_put_pair(int8_t *at, int32_t a, int32_t b)
{
    const uint32_t high = ((uint32_t)((a + 128) >> 8) & 0xffu) | ((uint32_t)((b + 128) >> 8) & 0xffu) << 8;
    const uint32_t low = ((uint32_t)a & 0xffu) | ((uint32_t)b & 0xffu) << 8;

    *(uint16_t *)at = (uint16_t)high;
    *(uint16_t *)(at + BEAM_SLICE_BYTES) = (uint16_t)low;
}

/* Writes the coefficient of an antenna to the fragments of a channel.  'ant' may be beyond the last antenna. */
static inline void beam_fragments_put(int8_t *of_chan, uint32_t n_ants, uint32_t slot, uint32_t ant, int32_t re,
                                      int32_t im)
{
    const uint32_t lane = slot % BEAM_GROUP_BEAMS * 4 + ant % 8 / 2;
    int8_t *at = of_chan + slot / BEAM_GROUP_BEAMS * beam_fragments_group_bytes(n_ants) +
                 (uint64_t)(ant / BEAM_STEP_ANTS) * BEAM_STEP_BYTES + lane * 16 + ant % BEAM_STEP_ANTS / 8 * 8 +
                 ant % 2 * 2;

    beam_fragments_put_pair(at, re, -im);
    beam_fragments_put_pair(at + 4, im, re);
}

#endif
