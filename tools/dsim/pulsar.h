/* pulsar.h - pulsar(): periodic, dispersed pulses of noise.
 *
 * Flow:       dsim_parse -> dsim_signal_choose_seeds -> dsim_pulsar_compute -> dsim_heaps_create or dsim_live_create
 * Pulses:     a period has w pulses, where w is a whole number, like the number of cycles of a tone.  Sample i is in
 *             a pulse if i w mod period < width / pulsar's period * period.  Samples in a pulse are wgn(standard
 *             deviation, seed), and all other samples are 0.  Without dispersion, the first pulse starts at the
 *             beginning of the period.
 * Dispersion: one filter over the whole period, exp(2 pi i D (f - f_top)^2 / (f_top^2 f)) at the radio frequency f.
 *             D is DM / 2.41e-4 MHz^2 s, and f_top is the top of the band.  The filter delays f by D (1 / f^2 - 1 /
 *             f_top^2).  The dispersion is therefore exact and coherent (T. H. Hankins and B. J. Rickett, "Pulsar
 *             signal processing", 1975).
 * Limits:     the period must be a power of two.  A sample takes 24 bytes during the computation and 8 bytes
 *             afterwards.  The delay wraps around the period, as in delay().  Each period of the samples has the same
 *             noise.
 * S/N:        n samples of one antenna with noise of standard deviation s are folded at the pulsar's period.  A weak
 *             pulsar of standard deviation a and d = width / period then has the S/N
 *             (a / s)^2 sqrt(n d (1 - d) / 2). */
#ifndef TOOLS_DSIM_PULSAR_H
#define TOOLS_DSIM_PULSAR_H

#include "tools/dsim/signal.h"

#include <stdbool.h>

/* Returns true if pulsar() can be computed for this period. */
bool dsim_pulsar_takes_period(int64_t period_samples);

/* Computes a period of each pulsar() of the program, whose seeds must be chosen.  Returns 0, or -EINVAL, -E2BIG or
 * -ENOMEM with one sentence in 'why'. */
int dsim_pulsar_compute(struct dsim_program *program, const struct dsim_axis *axis, char *why, size_t why_bytes);

#endif
