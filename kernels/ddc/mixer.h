/* mixer - the phase of the down-converter's oscillator, exp(2 pi i f t) with f = -centre / rate, at any time.
 *
 * Centre and rate are IEEE doubles, and f is their exact ratio.  The reference implementation does the same, so both
 * keep the same phase; exact decimals would drift away from it by up to some degrees a day.
 * Turns are 64-bit fixed point: 2^64 of them are one turn, so sums wrap as phases do.  t is any 64-bit number of samples.
 * The result is the nearest fixed-point number to f t modulo 1: the phase is continuous for ever, 0 at timestamp 0, and
 * the same whenever a process was started.  Steps of mixer_turns(A) per output, 2^-65 turns off at most, drift by 2^-35
 * turns in 2^30 outputs, the most that a launch can have. */
#ifndef KERNELS_DDC_MIXER_H
#define KERNELS_DDC_MIXER_H

#include <stdint.h>

struct mixer {
    unsigned __int128 numerator, denominator; /* of f modulo 1; < 2^127 */
};

/* The limits keep the denominator below 2^127: 1 <= rate < 2^37, and centre is 0 or 2^-37 <= centre < 2^37. */
void mixer_init(struct mixer *mixer, double centre_hz, double rate_hz);

uint64_t mixer_turns(const struct mixer *mixer, int64_t t_samples);

#endif
