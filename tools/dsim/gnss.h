/* gnss.h - gnss(): the signal of a navigation satellite, with Doppler and data, at any carrier frequency.
 *
 * Flow:      dsim_parse -> dsim_gnss_compute -> dsim_live_create -> dsim_live_evaluate
 * Samples:   real.  With the time T = (t - delay) / adc_sample_rate, sample t is
 *                a level(floor(n_sub (R_c T + theta R_c / f_c))) b cos(2 pi (f T + theta)),
 *                theta = Doppler T + Doppler rate T^2 / 2, in turns
 *            f_c and R_c are the signal's own carrier frequency and chip rate.  A chip has n_sub sub-chips.  'level'
 *            is the table of gnss_codes.h.  b is the chip of the secondary code times the data symbol, each +1 or -1.
 *            The code's Doppler is the carrier's Doppler times R_c / f_c.  L5Q has sin instead of cos, because L5Q is a
 *            quarter turn behind L5I.
 * Carrier:   f is the satellite's carrier frequency minus the frequency of the local oscillator.  A negative f means an
 *            inverted band.  For a digitiser without local oscillator, f = f_c.  A carrier above half the sample rate
 *            appears at its alias.
 * Power:     a = 2 s sqrt(10^(C/N0 / 10) / (adc_sample_rate mean(level^2))).  C/N0 is relative to the noise wgn(s),
 *            whose density is N0 = 2 s^2 / adc_sample_rate.  C is the power of this signal alone.  L5I and L5Q are two
 *            signals, and so are E1B and E1C.
 * Data:      symbols are +1 or -1, drawn from the seed.  A symbol lasts 20 code periods for L1CA, 10 code periods for
 *            L5I and 1 code period for E1B.  Without a seed all symbols are +1.  L5Q and E1C have no data.  Symbol 0,
 *            chip 0 and the secondary code begin at T = 0.
 * Phases:    both phases are computed from T in 64 bits at every 4096th sample.  Between these samples the phases are
 *            linear, in the fixed-point format of gnss_phase.h.  The error at sample t is
 *            (|t - delay| + 2 |theta| + |delay of the track| f / adc_sample_rate) / 2^64 turns or sub-chips.
 *            The linear phases have a further error of 2.1e6 (Doppler rate) / adc_sample_rate^2 turns.  The cosine
 *            uses the first 32 bits of a turn.
 * Delays:    delay() and track() shift t, so they need no filter.  They shift code, carrier and Doppler together.
 * Limits:    no filter shapes the chips, so frequencies above half the sample rate are aliased into the band.  The
 *            signal is 0 if the code would run backwards or faster than 4 sub-chips per sample.  The signal is also 0
 *            at more than 2^59 samples from T = 0.
 * Threads:   any number of threads may evaluate at once.  A sample is a function of t alone. */
#ifndef TOOLS_DSIM_GNSS_H
#define TOOLS_DSIM_GNSS_H

#include "tools/dsim/signal.h"

/* The shift that enclosing delay() and track() apply to a signal.  Sample t becomes the signal's sample t -
 * delay_samples - (delay of 'track' at t). */
struct dsim_shift {
    int64_t delay_samples;         /* magnitude at most DSIM_MAX_COST * DSIM_MAX_DELAY */
    const struct dsim_node *track; /* NULL: none */
};

/* Checks that the sample rate is high enough for all gnss() of a program, and that 'code_file' is given if a signal
 * needs it.  Returns 0, or -EINVAL with one sentence in 'why'. */
int dsim_gnss_check(const struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                    size_t why_bytes);

/* Computes the code table and the rates of each gnss().  dsim_program_free() frees the result.  Returns 0, or negative
 * errno with one sentence in 'why'. */
int dsim_gnss_compute(struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                      size_t why_bytes);

/* Computes n_samples values of a gnss().  The first value is the value at 'timestamp' (0 to 2^62). */
void dsim_gnss_evaluate(const struct dsim_node *node, const struct dsim_shift *shift, int64_t timestamp,
                        size_t n_samples, double *values);

#endif
