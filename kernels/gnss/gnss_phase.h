/* gnss_phase.h - fixed-point phases of replicas.
 *
 * A code phase is in units of 2^-48 sub-chips and below the length of its table.  So 16 bits count up to 65 535
 * sub-chips, and 48 bits count fractions.  The step from one sample to the next sample is below 2^50, less than 4
 * sub-chips.  A phase advances by adding and wrapping, without division and without branches.  Only gnss_code_at()
 * divides, at the start of a run of samples.  A carrier phase is in units of 2^-64 turns, so that the phase wraps by
 * itself.
 *
 * CUDA kernels include this file too. */
#ifndef KERNELS_GNSS_GNSS_PHASE_H
#define KERNELS_GNSS_GNSS_PHASE_H

#include <stdint.h>

#define GNSS_CODE_BITS 48                  /* number of bits of the fraction of a code phase */
#define GNSS_STEP_BITS 50                  /* number of bits of a code step */
#define GNSS_MAX_RUN   (UINT32_C(1) << 30) /* gnss_code_at() skips fewer samples than this limit */

/* Returns a table's length as a code phase. */
static inline uint64_t gnss_code_length(uint32_t n_subchips)
{
    return (uint64_t)n_subchips << GNSS_CODE_BITS;
}

/* Returns a + b modulo 'length'.  a and b are below 'length'; a + b may exceed 64 bits. */
static inline uint64_t gnss_code_add(uint64_t a, uint64_t b, uint64_t length)
{
    const uint64_t rest = length - b;

    return a - rest + (a < rest ? length : 0);
}

/* Returns the phase 'n' samples after 'phase'.  n < GNSS_MAX_RUN. */
static inline uint64_t gnss_code_at(uint64_t phase, uint64_t step, uint32_t n, uint32_t n_subchips)
{
    /* n * step = high * 2^32 + the lower 32 bits of 'low' */
    const uint64_t low = n * (step & 0xffffffff), high = n * (step >> 32) + (low >> 32);
    const uint64_t subchips = (uint32_t)(high >> 16) % n_subchips;
    const uint64_t moved = subchips << GNSS_CODE_BITS | (high & 0xffff) << 32 | (low & 0xffffffff);

    return gnss_code_add(phase, moved, gnss_code_length(n_subchips));
}

/* Returns the phase of a number of sub-chips, modulo the table's length and rounded to the nearest unit.  The number
 * may be negative. */
uint64_t gnss_code_phase(double subchips, uint32_t n_subchips);

/* Returns the code step for 'subchips' sub-chips per sample.  0 <= subchips < 4. */
uint64_t gnss_code_step(double subchips);

/* Returns the phase or step of a number of turns, modulo one turn.  The number may be negative. */
uint64_t gnss_carrier_turns(double turns);

#endif
