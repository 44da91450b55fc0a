/* mixer - the phase of the down-converter's oscillator, exp(2 pi i f t) with f = -centre / rate, at any time.
 *
 * Centre and rate are IEEE doubles, and f is their exact ratio.  The reference implementation uses the same ratio, so
 * both keep the same phase.  With the ratio of the exact decimal values, the phase would drift from the reference's
 * phase by up to several degrees a day.  Phases are 64-bit fixed-point numbers in units of 2^-64 turns, so sums wrap as
 * phases do.  t is any 64-bit number of samples.  The result is the nearest fixed-point number to f t modulo 1.  The
 * phase is 0 at timestamp 0, and continuous at all times.  The phase does not depend on the start time of a process.  A
 * step of mixer_turns(A) per output has an error of at most 2^-65 turns.  So the phase drifts by at most 2^-35 turns in
 * 2^30 outputs, the maximum of a launch. */
#ifndef KERNELS_DDC_MIXER_H
#define KERNELS_DDC_MIXER_H

#include <stdint.h>

struct mixer {
    /* f modulo 1 as a fraction; numerator and denominator are below 2^127 */
    unsigned __int128 numerator, denominator;
};

/* Initialises the mixer.  1 <= rate < 2^37, and centre is 0 or 2^-37 <= centre < 2^37.  These limits keep the
 * denominator below 2^127. */
void mixer_init(struct mixer *mixer, double centre_hz, double rate_hz);

uint64_t mixer_turns(const struct mixer *mixer, int64_t t_samples);

#endif
