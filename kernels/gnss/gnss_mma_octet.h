/* gnss_mma_octet.h - the replicas of gnss_correlate_mma.  A lane makes an octet, eight consecutive samples, for all
 * taps.  The lane first loads the values of an octet (load_octet()), and writes the columns later (write_octet()).
 *
 * This file uses the constants of gnss_correlate_mma.cu. */
#ifndef KERNELS_GNSS_GNSS_MMA_OCTET_H
#define KERNELS_GNSS_GNSS_MMA_OCTET_H

#include "kernels/gnss/gnss_mma_block.h"

/* The phases of a lane's next octet: eight consecutive samples. */
struct phases {
    uint64_t code, carrier;
};

/* Values from which a lane computes an octet of the replica.  They are loaded one step before they are needed. */
struct octet {
    int carrier[8]; /* re + 2^16 im, or 0 for samples that the slot does not have */
    struct lookup {
        uint32_t words[2]; /* eight consecutive levels */
        uint32_t indices;  /* index of each sample's level in 'words', 4 bits each */
    } lookups[EARLY_TAPS];
    uint64_t code;           /* code phase of the first sample */
    bool is_there, is_split; /* is_split: the levels are not in 'words' */
};

static __device__ __forceinline__ struct phases phases_begin(const struct mma_slot &slot, uint32_t first)
{
    return {gnss_code_at(slot.code, slot.code_step, first, slot.n_subchips), slot.carrier + first * slot.carrier_step};
}

/* Returns the phase of a tap. */
static __device__ __forceinline__ uint64_t phase_of(uint64_t code, uint64_t rest, uint32_t n_subchips)
{
    return code - rest + (code < rest ? gnss_code_length(n_subchips) : 0);
}

/* Looks up the levels of a tap, one by one.  The code phase wraps at most once in an octet. */
static __device__ __forceinline__ void levels_of(const int8_t *codes, const struct mma_slot &slot, uint64_t code,
                                                 int tap, int (&levels)[8])
{
    uint64_t phase = phase_of(code, slot.rests[tap], slot.n_subchips);

#pragma unroll
    for (int i = 0; i < 8; i++, phase += slot.code_step) {
        const uint32_t at = (uint32_t)(phase >> 32) >> (GNSS_CODE_BITS - 32);
        levels[i] = __ldg(codes + (slot.table + min(at, at - slot.n_subchips)));
    }
}

/* Loads eight consecutive levels of a tap, which usually have all levels of an octet.  Returns false if they do not, or
 * if they are not all within the table. */
static __device__ __forceinline__ bool load_levels(const int8_t *codes, uint32_t table, uint32_t n_subchips,
                                                   uint64_t phase, uint64_t step, struct octet::lookup &lookup)
{
    const uint32_t from = (table + (uint32_t)(phase >> GNSS_CODE_BITS)) & ~3u, first = from - table;
    uint32_t at = 0;

    lookup.indices = 0 - 0x11111111 * first;
#pragma unroll
    for (int i = 0; i < 8; i++, phase += step) {
        at = (uint32_t)(phase >> 32) >> (GNSS_CODE_BITS - 32);
        lookup.indices += at << (4 * i);
    }
    if (at - first >= 8 || from + 8 > table + n_subchips)
        return false;
    lookup.words[0] = __ldg((const uint32_t *)(codes + from));
    lookup.words[1] = __ldg((const uint32_t *)(codes + from) + 1);
    return true;
}

/* Returns true if the slot has samples in the chunk that begins 'at' samples after the slot's time. */
static __device__ __forceinline__ bool is_active(const struct mma_slot &slot, uint32_t at)
{
    return at < slot.end && at + MMA_CHUNK_SAMPLES > slot.begin;
}

/* Loads an octet, and advances the phases by a chunk.  'at' is the octet's position in the slot's time. */
static __device__ __forceinline__ void load_octet(const int8_t *codes, const struct mma_slot &slot, uint32_t chunk_at,
                                                  uint32_t at, struct phases &phases, struct octet &octet)
{
    const ulonglong2 steps = *(const ulonglong2 *)&slot.code_step;
    const uint4 facts = *(const uint4 *)&slot.table; /* table, n_subchips, begin, end */
    const uint32_t table = facts.x, n_subchips = facts.y;

    octet.is_there = chunk_at < facts.w && chunk_at + MMA_CHUNK_SAMPLES > facts.z;
    octet.is_split = false;
    octet.code = phases.code;
    if (octet.is_there) {
#pragma unroll
        for (int tap = 0; tap < EARLY_TAPS; tap++)
            octet.is_split = !load_levels(codes, table, n_subchips, phase_of(phases.code, slot.rests[tap], n_subchips),
                                          steps.x, octet.lookups[tap]) ||
                             octet.is_split;
        uint64_t phase = phases.carrier;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++, phase += steps.y)
            octet.carrier[i] = head()->carrier[(uint32_t)(phase >> 32) >> (32 - GNSS_CARRIER_BITS)];
        if (at < facts.z || at + 8 > facts.w)
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                octet.carrier[i] = at + i - facts.z < facts.w - facts.z ? octet.carrier[i] : 0;
    }
    phases.code = gnss_code_add(phases.code, slot.code_jump, gnss_code_length(n_subchips));
    phases.carrier += MMA_CHUNK_SAMPLES * steps.y;
}

/* Writes both columns of a tap.  Adding 2^15 prevents a negative lower half from borrowing from the upper half. */
static __device__ __forceinline__ void write_columns(const int (&levels)[8], const int (&carrier)[8],
                                                     const int (&turned)[8], uint8_t *to)
{
    const int half = 1 << 15;
    uint32_t p[8], q[8];

#pragma unroll
    for (int i = 0; i < 8; i++) {
        p[i] = levels[i] * carrier[i] + half;
        q[i] = levels[i] * turned[i] + half;
    }
    *(uint4 *)to = make_uint4(__byte_perm(p[0], p[1], 0x6420), __byte_perm(p[2], p[3], 0x6420),
                              __byte_perm(p[4], p[5], 0x6420), __byte_perm(p[6], p[7], 0x6420));
    *(uint4 *)(to + COLUMN_BYTES) = make_uint4(__byte_perm(q[0], q[1], 0x6420), __byte_perm(q[2], q[3], 0x6420),
                                               __byte_perm(q[4], q[5], 0x6420), __byte_perm(q[6], q[7], 0x6420));
}

static __device__ __forceinline__ void unpack_levels(const struct octet::lookup &lookup, int (&levels)[8])
{
    const uint32_t low = __byte_perm(lookup.words[0], lookup.words[1], lookup.indices);
    const uint32_t high = __byte_perm(lookup.words[0], lookup.words[1], lookup.indices >> 16);

#pragma unroll
    for (int i = 0; i < 4; i++) {
        levels[i] = (int8_t)(low >> (8 * i));
        levels[4 + i] = (int8_t)(high >> (8 * i));
    }
}

/* Writes an octet of the replica to the columns of all taps. */
static __device__ __forceinline__ void write_octet(const int8_t *codes, const struct mma_slot &slot,
                                                   const struct octet &octet, uint8_t *to)
{
    int turned[8];

#pragma unroll
    for (int i = 0; i < 8; i++)
        turned[i] = (int)((uint32_t)octet.carrier[i] << 16) - ((octet.carrier[i] + (1 << 15)) >> 16);
    if (octet.is_split) {
#pragma unroll 1
        for (int tap = 0; tap < EARLY_TAPS; tap++) {
            int levels[8];
            levels_of(codes, slot, octet.code, tap, levels);
            write_columns(levels, octet.carrier, turned, to + 2 * tap * COLUMN_BYTES);
        }
    } else {
#pragma unroll
        for (int tap = 0; tap < EARLY_TAPS; tap++) {
            int levels[8];
            unpack_levels(octet.lookups[tap], levels);
            write_columns(levels, octet.carrier, turned, to + 2 * tap * COLUMN_BYTES);
        }
    }
#pragma unroll 1
    for (int tap = EARLY_TAPS; tap < N_TAPS; tap++) {
        int levels[8];
        levels_of(codes, slot, octet.code, tap, levels);
        write_columns(levels, octet.carrier, turned, to + 2 * tap * COLUMN_BYTES);
    }
}

#endif
