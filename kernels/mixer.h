/* mixer - the phase of the down-converter's oscillator, exp(2 pi i f t) with f = -centre / rate, at any time.
 *
 * Turns are 64-bit fixed point: 2^64 of them are one turn, so sums wrap as phases do.  f is the exact ratio of the two
 * decimals, t any 64-bit number of samples, and what comes out is the nearest fixed-point number to f t modulo 1: the
 * phase is continuous for ever, 0 at timestamp 0, and the same whenever a process was started.  Steps of mixer_turns(A)
 * per output, 2^-65 turns off at most, drift by 2^-35 turns in 2^30 outputs, which is what a launch can have. */
#ifndef KERNELS_MIXER_H
#define KERNELS_MIXER_H

#include "common/timebase.h"

#include <stdint.h>

struct mixer {
    unsigned __int128 numerator, denominator; /* of f modulo 1; < 2^94 */
};

/* 0 <= centre; rate > 0; at most 9 decimals. */
void mixer_init(struct mixer *mixer, struct decimal centre_hz, struct decimal rate_hz);

uint64_t mixer_turns(const struct mixer *mixer, int64_t t_samples);

#endif
