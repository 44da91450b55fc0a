/* live.h - signals that do not repeat: track() and gnss(), computed while heaps are sent.
 *
 * Flow:    dsim_parse -> dsim_signal_choose_seeds -> dsim_gnss_compute -> dsim_live_create (a table of a period of each
 *          signal that repeats) -> dsim_play, heap by heap
 * Delay:   at timestamp t, track(signal, samples, rate) is 'signal' at t - (samples + rate t), even if this time
 *          crosses the end of a period.  An F-engine removes this delay if its delay is -samples / adc_sample_rate
 *          and its rate is -rate, from sync_time on.  In a sum or product inside track() or delay(), each signal is
 *          delayed on its own.  The filter (below) delays the signals of tables.  For gnss(), the delay changes the
 *          phases of the code and of the carrier.
 * Filter:  64 taps of dsim/sinc.h, tabulated for 512 fractions of a sample, with linear interpolation between the
 *          fractions.  The error is less than -90 dB of the signal for any delay, from 0 Hz to 0.45 of the sample rate
 *          (0.9 of the band).  At higher frequencies the signal is too small and its phase is wrong.  The error depends
 *          on the delay's fraction of a sample.  It is 0 for whole samples.  For half samples, the signal vanishes at
 *          the end of the band.
 * Samples: samples and dither are functions of the timestamp alone.  The dither never repeats.
 * Threads: one.  Nothing allocates after create. */
#ifndef TOOLS_DSIM_LIVE_H
#define TOOLS_DSIM_LIVE_H

#include "tools/dsim/signal.h"

#include <stddef.h>
#include <stdint.h>

struct dsim_live;

/* Creates a table for each repeating signal of the outputs.  A table has one float for each sample of a period.  The
 * seeds of 'program' must be chosen, and the gnss() signals of 'program' must be computed.  'program' must outlive the
 * result.  Returns 0, or -ENOMEM or -E2BIG with one sentence in 'why'. */
int dsim_live_create(const struct dsim_program *program, const struct dsim_format *format, struct dsim_live **live,
                     char *why, size_t why_bytes);

/* Computes n_samples values of output 'output'.  The first value is the value at 'timestamp' (>= 0).  n_samples is at
 * most the format's packet_samples. */
void dsim_live_evaluate(struct dsim_live *live, size_t output, int64_t timestamp, size_t n_samples, double *values);

/* Writes the heap of an input at 'timestamp', packed.  Returns the number of saturated samples. */
uint32_t dsim_live_heap(struct dsim_live *live, size_t input, int64_t timestamp, uint8_t *payload);

/* Accepts NULL. */
void dsim_live_destroy(struct dsim_live *live);

#endif
