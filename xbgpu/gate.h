/* gate.h - which spectra a gate takes: a pure function of a spectrum's timestamp and channel.
 *
 * Time:    a spectrum is judged at its timestamp t, the first ADC sample of its filter window, less the delay d of its
 *          channel: dt = t - d - epoch.  (What a filter bank saw has its centre some spectra later, which an earlier
 *          epoch makes good; xbgpu does not know the filter.)
 * phase:   turns = phase + f dt + f' dt^2 / 2, in units of 2^-128 of a turn, modulo a turn.  Products of such numbers with
 *          integers wrap as turns do, so they lose nothing; only the three constants are rounded, each to the nearest
 *          2^-128.  So the error is at most 2^-129 (1 + dt + dt^2) turns: at 1712 MS/s, after a year 4e-6, after
 *          ten years 4e-4, of which f' has nearly all: without it, never more than 2^-66.  (An f' with 18
 *          decimals, as the configuration takes it, is itself good to 2.5e-4 turns after a year.)  The first 64 bits say
 *          which bin it is: bin b of n has b / n <= turns < (b + 1) / n.
 * switch:  (dt - on_from) modulo the period, in samples, is below the length of what is taken.  Exact for ever.
 * Delays:  a wave of frequency f comes later by DM / 2.41e-4 (1 / f^2 - 1 / f_ref^2) seconds, f in MHz, DM in pc/cm^3
 *          (Manchester and Taylor, Pulsars, 1977; pulsar software has kept the rounded constant, and DMs go with it),
 *          rounded to the nearest sample.
 * Changes: from a timestamp on another gate takes the place of one (struct xbgpu_gate_change), to the spectrum.  Every
 *          spectrum chooses by its own timestamp among all that are known, whatever was listed before.
 * Threads: any; nothing of a gate changes after xbgpu_gate_init(). */
#ifndef XBGPU_GATE_H
#define XBGPU_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATE_MAX_BINS 1024

struct xbgpu_config;
struct xbgpu_config_gate;

struct xbgpu_gate {
    bool is_switch;
    int64_t epoch_samples;
    unsigned __int128 phase, slope, curve; /* of dt^0, dt^1 and dt^2, in 2^-128 of a turn */
    uint32_t n_bins;
    uint8_t taken[GATE_MAX_BINS];        /* [n_bins] 0 or 1 */
    uint16_t stretch_end[GATE_MAX_BINS]; /* [n_bins] the first bin after it that differs, or n_bins */
    uint64_t period_samples, on_samples; /* of a switch, whose epoch is where what is taken begins */
    size_t n_rows;                       /* 1: all channels are alike; else the number of channels */
    int64_t *delays_samples;             /* [n_rows] */
};

/* One of the gates that take each other's place; all have the same number of rows. */
struct xbgpu_gate_change {
    struct xbgpu_gate *gate;
    int64_t from_samples; /* of spectra with this timestamp or a later one it decides, until the next one's */
};

/* Returns 0 or -ENOMEM. */
int xbgpu_gate_init(struct xbgpu_gate *gate, const struct xbgpu_config_gate *config, const struct xbgpu_config *all);
void xbgpu_gate_fini(struct xbgpu_gate *gate);

/* The same on the heap; destroy accepts NULL. */
int xbgpu_gate_create(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, struct xbgpu_gate **gate);
void xbgpu_gate_destroy(struct xbgpu_gate *gate);

/* Whether what it takes differs from channel to channel. */
bool xbgpu_gate_is_dispersed(const struct xbgpu_config_gate *config);

/* How many rows of decisions such a gate has: 1, or the engine's channels where they differ. */
size_t xbgpu_gate_n_rows(const struct xbgpu_config_gate *config, const struct xbgpu_config *all);

/* Radio frequency of the centre of the engine's channel 'chan'. */
double xbgpu_gate_channel_hz(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, size_t chan);

/* By how much dispersion delays it, in samples, not rounded. */
double xbgpu_gate_dispersion_samples(const struct xbgpu_config_gate *config, const struct xbgpu_config *all,
                                     size_t chan);

/* Whether the spectrum with this timestamp is taken. */
bool xbgpu_gate_takes(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples);

/* How many spectra, 'step_samples' apart from this one on, have certainly the same answer: 1 to 'n_max', which is at most
 * a heap. */
size_t xbgpu_gate_run(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples, int64_t step_samples,
                      size_t n_max);

/* The spectra that 'n_changes' (>= 1) gates, in order of time, take of 'n_batches' batches of 'n_spectra', the first of
 * which has this timestamp.  The first gate decides of all before the second one's time, too.  Writes
 * spectra[row][row_pitch], counted from the first, and ends[row][n_batches + 1], how many of them are in batches before
 * each.  Returns the number of the row that has most. */
size_t xbgpu_gate_list(const struct xbgpu_gate_change *changes, size_t n_changes, int64_t timestamp_samples,
                       int64_t step_samples, size_t n_spectra, size_t n_batches, size_t row_pitch, uint32_t *spectra,
                       uint32_t *ends);

#endif
