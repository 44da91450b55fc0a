/* gate.h - decides which spectra a gate takes.  The decision is a pure function of a spectrum's timestamp and channel.
 *
 * Time:      a gate decides about a spectrum by the time dt = t - d - epoch.  The timestamp t is the first ADC sample
 *            of the spectrum's filter window.  d is the dispersion delay of the channel.  The centre of the filter
 *            window is several spectra later than t.  xbgpu does not know the filter, so the operator must set an
 *            epoch that includes this difference.
 * phase:     turns = phase + f dt + f' dt^2 / 2, in units of 2^-128 of a turn, modulo a turn.  The product of such
 *            a number and an integer overflows at a whole turn, so the product is exact.  Only the three
 *            constants are rounded, each to the nearest 2^-128.  So the error is at most 2^-129 (1 + dt + dt^2) turns.
 *            At 1712 MS/s the error is 4e-6 turns after a year, and 4e-4 turns after ten years.  Nearly all of the
 *            error comes from f'; without f' the error never exceeds 2^-66 turns.  The configuration has f' with 18
 *            decimals; the rounding to 18 decimals alone causes an error of 2.5e-4 turns after a year.  The first 64
 *            bits of the phase determine the bin: in bin b of n, b / n <= turns < (b + 1) / n.
 * switch:    a spectrum is taken if (dt - on_from) modulo the period is below the length of the taken part, in samples.
 *            This arithmetic is exact at all times.
 * Delays:    a wave of frequency f arrives later than a wave of frequency f_ref, by DM / 2.41e-4 * (1 / f^2 - 1 /
 *            f_ref^2) seconds, with f in MHz and DM in pc/cm^3.  The delay is rounded to the nearest sample.  The
 *            constant 2.41e-4 is the rounded value of Manchester and Taylor, Pulsars, 1977.  Pulsar software still uses
 *            this value, and published DMs depend on it.
 * Changes:   a new gate replaces the old gate at a timestamp, between two spectra (struct xbgpu_gate_change).  Only
 *            the timestamp of a spectrum determines which of these gates decides about the spectrum.
 * Threads:   any; no gate changes after xbgpu_gate_init(). */
#ifndef XBGPU_CONFIG_GATE_H
#define XBGPU_CONFIG_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATE_MAX_BINS 1024

struct xbgpu_config;
struct xbgpu_config_gate;

struct xbgpu_gate {
    bool is_switch;
    int64_t epoch_samples;
    unsigned __int128 phase, slope, curve; /* coefficients of dt^0, dt^1 and dt^2, in 2^-128 of a turn */
    uint32_t n_bins;
    uint8_t taken[GATE_MAX_BINS];        /* [n_bins] 0 or 1 */
    uint16_t stretch_end[GATE_MAX_BINS]; /* [n_bins] index of the next bin whose 'taken' differs, or n_bins */
    uint64_t period_samples, on_samples; /* only for kind switch; a taken part begins at 'epoch_samples' */
    size_t n_rows;                       /* 1: all channels share the decisions; else the number of channels */
    int64_t *delays_samples;             /* [n_rows] */
};

/* One of several successive versions of a gate.  All versions have the same number of rows. */
struct xbgpu_gate_change {
    struct xbgpu_gate *gate;
    int64_t from_samples; /* timestamp of the first spectrum for which the gate decides */
};

/* Computes the gate of a configuration.  Returns 0 or -ENOMEM. */
int xbgpu_gate_init(struct xbgpu_gate *gate, const struct xbgpu_config_gate *config, const struct xbgpu_config *all);
void xbgpu_gate_fini(struct xbgpu_gate *gate);

/* Allocates a gate, and computes it as xbgpu_gate_init() does.  xbgpu_gate_destroy() accepts NULL. */
int xbgpu_gate_create(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, struct xbgpu_gate **gate);
void xbgpu_gate_destroy(struct xbgpu_gate *gate);

/* Returns whether the gate may take different spectra from different channels. */
bool xbgpu_gate_is_dispersed(const struct xbgpu_config_gate *config);

/* Returns the number of rows of decisions.  If all channels share the decisions, the number is 1.  Otherwise each of
 * the engine's channels has a row. */
size_t xbgpu_gate_n_rows(const struct xbgpu_config_gate *config, const struct xbgpu_config *all);

/* Returns the radio frequency of the centre of the engine's channel 'chan'. */
double xbgpu_gate_channel_hz(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, size_t chan);

/* Returns the dispersion delay of a channel in samples, not rounded. */
double xbgpu_gate_dispersion_samples(const struct xbgpu_config_gate *config, const struct xbgpu_config *all,
                                     size_t chan);

/* Returns whether the gate takes the spectrum with this timestamp. */
bool xbgpu_gate_takes(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples);

/* Counts consecutive spectra that certainly have the same decision.  The first spectrum is at 'timestamp_samples', and
 * the spectra are 'step_samples' apart.  Returns the count, from 1 to 'n_max'.  'n_max' is at most the number of
 * spectra in a heap. */
size_t xbgpu_gate_run(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples, int64_t step_samples,
                      size_t n_max);

/* Lists the spectra that successive gates take from 'n_batches' batches of 'n_spectra' spectra.  'changes' has these
 * gates in order of time, at least one.  The first batch begins at 'timestamp_samples'.  The first gate also decides
 * for all spectra before its 'from_samples'.  Writes spectra[row][row_pitch]: numbers of the taken spectra, counted
 * from the first spectrum.  Writes ends[row][n_batches + 1], the number of listed spectra before each batch.  Returns
 * the length of the longest row. */
size_t xbgpu_gate_list(const struct xbgpu_gate_change *changes, size_t n_changes, int64_t timestamp_samples,
                       int64_t step_samples, size_t n_spectra, size_t n_batches, size_t row_pitch, uint32_t *spectra,
                       uint32_t *ends);

#endif
