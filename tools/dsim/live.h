/* live.h - signals that do not repeat: track() and gnss(), computed while they are sent.
 *
 * Flow:    dsim_parse -> dsim_signal_choose_seeds -> dsim_gnss_compute -> dsim_live_create (a table of a period of each
 *          signal that repeats) -> dsim_play, heap by heap
 * Delay:   track(signal, samples, rate) is, at timestamp t, its signal at t - (samples + rate t), whichever part of the
 *          period that is.  An F-engine takes it out with a delay of -samples / adc_sample_rate and a rate of -rate,
 *          from sync_time on.
 *          In a sum or product below track() or delay(), each signal is delayed: tables by the filter, gnss() by its phases.
 * Filter:  64 taps of dsim/sinc.h, tabulated for 512 fractions of a sample with straight
 *          lines between.  The error is less than -90 dB of the signal for any delay, from 0 Hz to 0.45 of the sample
 *          rate (0.9 of the band).  Above that the signal is too small and its phase is wrong, by an amount that repeats
 *          with every sample of delay: exact at whole samples; at half ones nothing is left at the end of the band.
 * Samples: a function of the timestamp and of nothing else; so is the dither, which does not repeat either.
 * Threads: one.  Nothing allocates after create. */
#ifndef TOOLS_DSIM_LIVE_H
#define TOOLS_DSIM_LIVE_H

#include "tools/dsim/signal.h"

#include <stddef.h>
#include <stdint.h>

struct dsim_live;

/* Tabulates what repeats in the outputs: a float for each sample of a period.  'program', whose seeds are chosen and
 * whose gnss() are computed, must outlive it.  Returns 0, or -ENOMEM or -E2BIG with one sentence in 'why'. */
int dsim_live_create(const struct dsim_program *program, const struct dsim_format *format, struct dsim_live **live,
                     char *why, size_t why_bytes);

/* values[0..n_samples) = output 'output' from 'timestamp' (>= 0) on; n_samples <= the format's packet_samples. */
void dsim_live_evaluate(struct dsim_live *live, size_t output, int64_t timestamp, size_t n_samples, double *values);

/* Writes the heap of an input at 'timestamp', packed.  Returns how many samples of it are saturated. */
uint32_t dsim_live_heap(struct dsim_live *live, size_t input, int64_t timestamp, uint8_t *payload);

/* NULL is accepted. */
void dsim_live_destroy(struct dsim_live *live);

#endif
