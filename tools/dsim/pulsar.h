/* pulsar.h - pulsar(): periodic pulses of noise, dispersed on their way.
 *
 * Flow:       dsim_parse -> dsim_signal_choose_seeds -> dsim_pulsar_compute -> dsim_heaps_create or dsim_live_create
 * Pulses:     wgn(standard deviation, seed) where i w mod period < width / pulsar's period * period, else 0, for sample
 *             i, with w pulses in a period: a whole number, as the cycles of a tone.  At 0 dispersion the first pulse
 *             starts with the period.
 * Dispersion: one filter over the whole period, exp(2 pi i D (f - f_top)^2 / (f_top^2 f)) at the radio frequency f, with
 *             D = DM / 2.41e-4 MHz^2 s.  It delays f by D (1 / f^2 - 1 / f_top^2); f_top is the top of the band.  So it
 *             is exact and coherent (T. H. Hankins and B. J. Rickett, "Pulsar signal processing", 1975).
 * Limits:     the period is a power of two, and takes 24 bytes a sample while it is computed, then 8.  The delay goes
 *             round the period, as delay() does.  The noise is the same in each period.
 * S/N:        n samples of one antenna with noise of standard deviation s, folded at the pulsar's period, have the S/N
 *             (a / s)^2 sqrt(n d (1 - d) / 2) for a weak pulsar of standard deviation a and d = width / period. */
#ifndef TOOLS_DSIM_PULSAR_H
#define TOOLS_DSIM_PULSAR_H

#include "tools/dsim/signal.h"

#include <stdbool.h>

/* Whether pulsars can have this period. */
bool dsim_pulsar_takes_period(int64_t period_samples);

/* Computes a period of each pulsar() of the program, whose seeds are chosen.  Returns 0, or -EINVAL, -E2BIG or -ENOMEM
 * with one sentence in 'why'. */
int dsim_pulsar_compute(struct dsim_program *program, const struct dsim_axis *axis, char *why, size_t why_bytes);

#endif
