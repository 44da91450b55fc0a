/* gnss.h - gnss(): the signal of a navigation satellite, with Doppler and data, at any carrier frequency.
 *
 * Flow:      dsim_parse -> dsim_gnss_compute -> dsim_live_create -> dsim_live_evaluate
 * Samples:   real.  Sample t is, at the time T = (t - delay) / adc_sample_rate,
 *                a level(floor(n_sub (R_c T + theta R_c / f_c))) b cos(2 pi (f T + theta)),
 *                theta = Doppler T + Doppler rate T^2 / 2, in turns
 *            f_c and R_c are the signal's own carrier frequency and chip rate, n_sub the sub-chips of a chip.  'level' is
 *            the table of gnss_codes.h, and b the chip of the secondary code times the data symbol, each +1 or -1.  So the
 *            code has the Doppler of the carrier times R_c / f_c.  L5Q has sin for cos: it is a quarter turn behind L5I.
 * Carrier:   f is the satellite's carrier frequency minus the local oscillator's.  A negative f makes the band inverted.
 *            A digitiser without oscillator has f = f_c: a carrier above half the sample rate becomes its alias.
 * Power:     a = 2 s sqrt(10^(C/N0 / 10) / (adc_sample_rate mean(level^2))).  C / N0 is that beside wgn(s), whose density
 *            is N0 = 2 s^2 / adc_sample_rate.  C is the power of this signal alone: both parts of L5 or E1 are two signals.
 * Data:      symbols of +1 or -1 from the seed, one for each 20 code periods of L1CA, 10 of L5I, 1 of E1B; no seed: all
 *            +1.  L5Q and E1C have no data.  Symbol 0, chip 0 and the secondary code begin at T = 0.
 * Phases:    every 4096 samples, at fixed places, both phases are computed from T in 64 bits; in between they are straight
 *            lines in the fixed point of gnss_phase.h.  At sample t they are off by
 *            (|t - delay| + 2 |theta| + |delay of the track| f / adc_sample_rate) / 2^64 turns or sub-chips.  The cosine takes
 *            the first 32 bits of a turn.  Between those places phases are also off by
 *            2.1e6 (Doppler rate) / adc_sample_rate^2 turns.
 * Delays:    delay() and track() move t, so they need no filter.  Code, carrier and Doppler move together.
 * Limits:    no filter shapes the chips: their edges have aliases.  Where the code would run backwards, or faster than
 *            4 sub-chips a sample, and 2^59 samples from the delay on, the signal is 0.
 * Threads:   any number evaluate at once.  A sample is a function of t alone. */
#ifndef TOOLS_DSIM_GNSS_H
#define TOOLS_DSIM_GNSS_H

#include "tools/dsim/signal.h"

/* How delay() and track() move what is below them: from t to t - delay_samples - (track's delay at t). */
struct dsim_shift {
    int64_t delay_samples;         /* magnitude at most DSIM_MAX_COST * DSIM_MAX_DELAY */
    const struct dsim_node *track; /* NULL: none */
};

/* Whether the sample rate, and the file of memory codes or NULL, suffice for all gnss() of a program.  Returns 0, or
 * -EINVAL with one sentence in 'why'. */
int dsim_gnss_check(const struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                    size_t why_bytes);

/* Makes what the evaluation of each gnss() needs; dsim_program_free() frees it.  Returns 0, or negative errno with one
 * sentence in 'why'. */
int dsim_gnss_compute(struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                      size_t why_bytes);

/* values[0..n_samples) = a gnss() from 'timestamp' (0 to 2^62) on. */
void dsim_gnss_evaluate(const struct dsim_node *node, const struct dsim_shift *shift, int64_t timestamp,
                        size_t n_samples, double *values);

#endif
