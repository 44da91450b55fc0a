/* gnss_track.h - the loops that follow one signal of one satellite: code, carrier, Doppler, C/N0, symbols and lock.
 *
 * Flow:      acquisition --start--> model --pieces--> gnss_correlate --sums, some chunks later--> model
 * Model:     gnss_model.h is the loops' estimate of code and carrier.  A discriminator yields the signal's phase
 *            minus the replica's phase, and the replica's phase is known exactly.  So each integration measures the
 *            signal's own phase.  The loop corrects the model at the middle of the integration.  A replica is the model
 *            extrapolated to a later time.
 * Delay:     a correction is relative to the model at the time of the integration, not to the latest replica.  So
 *            the delay of the sums is outside the loop, and the loop's poles do not depend on the delay.  The delay
 *            only makes replicas less exact.  The carrier's error is (Doppler's error) x delay + (rate's error) x
 *            delay^2 / 2.  The Doppler's error must stay small compared with a turn per code period.  The code's
 *            error must stay small compared with the distance between taps.  A Kalman filter does the same (Psiaki
 *            and Jung, Extended Kalman filter methods for tracking weak GPS signals, ION GPS 2002).
 * Pieces:    an integration is one code period with its own exact phases.  The integration starts at the period's first
 *            sample.  If a chunk ends within the integration, the integration's remaining samples are a piece of the
 *            next chunk (gnss_piece_skip()).  The sums of both pieces are added here.
 * Loops:     stage       frequency  phase  code    until
 *            PULL_IN     4 Hz       -      2 Hz    0.5 s of data
 *            SETTLING    -          25 Hz  1 Hz    1 s of data; second order
 *            TRACKING    -          5 Hz   0.5 Hz
 *            Frequency: atan(cross / dot) of consecutive sums.  Phase: Costas, atan(Q / I), but atan2(Q, I) for pilots
 *            whose secondary code is known.  Code: (E^2 - L^2) / (E^2 + L^2), divided by the slope of the replica's
 *            autocorrelation.  Kaplan and Hegarty, Understanding GPS/GNSS, 3rd ed., 8.7 to 8.9.
 * Pull-in:   the loops pull in if the acquisition's errors are small enough.  The Doppler's error may be at most 1/8
 *            turn per code period (125 Hz; for E1: 31 Hz).  The code's error may be at most a quarter of a chip (for
 *            E1: 0.15 chip).  In simulations 1 of 5000 starts failed at 35 dB-Hz, and 1 of 6 starts failed at 32 dB-Hz.
 * Pols:      the code and frequency loops use the sum of both polarisations' powers and products, so the phase between
 *            the polarisations does not matter.  The phase loop uses only the polarisation that is stronger at the end
 *            of PULL_IN, and never changes to the other polarisation.  The instrument's phase between polarisations
 *            is unknown, so such a change would cause a phase step.
 * Data:      before the start of symbols is known (gnss_symbol.h), no loop depends on the signs of data and secondary
 *            code.  When the start is known, a pilot's phase loses its ambiguity of half a turn.
 * Gaps:      missing samples are zeros.  A sum is scaled by its fraction of present samples, which reduces its gains
 *            in the loops by the same factor.  If less than half of a sum's samples are present, the loops ignore the
 *            sum and the model continues without a correction.
 * Lock:      gnss_lock.h.  The code is locked above 25 dB-Hz, the carrier above an indicator of 0.25.  In stage
 *            TRACKING both must be locked.  In earlier stages only the code must be locked.  If the lock is lost, the
 *            stage becomes SEARCH, and the owner begins again with an acquisition.  A Doppler beyond 50 kHz has the
 *            same effect.  Only an error, or a gap of hours, can cause a Doppler of this size.
 * Phase:     the carrier's phase at a sample is the phase of the signal in the phase loop's polarisation.  Whole
 *            turns count from the acquisition.  L5Q is a quarter turn behind L5I, and the phase of L5Q includes this
 *            quarter turn.
 * Limits:    the band must not be inverted.  Codes must not run backwards.
 * Antennas:  the sums are the sums of one antenna, or the aligned sums of several antennas (gnss_align.h).
 * Ownership: all state is in the caller's struct.
 * Threads:   one at a time.   Blocking, clocks and allocation: none. */
#ifndef FGPU_GNSS_GNSS_TRACK_H
#define FGPU_GNSS_GNSS_TRACK_H

#include "common/base/units.h"
#include "fgpu/gnss/gnss_lock.h"
#include "fgpu/gnss/gnss_model.h"
#include "fgpu/gnss/gnss_symbol.h"
#include "kernels/gnss/gnss_correlate.h"

#include <stdbool.h>

/* The taps: the early tap is a quarter of a chip ahead of the prompt tap, and the late tap is a quarter of a chip
 * behind the prompt tap.  For BOC and CBOC the distances are 2.5 / 12 of a chip.  At this distance the
 * autocorrelations of both E1 signals are steep.  At some smaller distances they are not. */
enum fgpu_gnss_tap { FGPU_GNSS_EARLY, FGPU_GNSS_PROMPT, FGPU_GNSS_LATE };
#define FGPU_GNSS_N_TAPS 3

/* A satellite's Doppler is at most 5 kHz.  The limit also allows for errors of the oscillator. */
#define FGPU_GNSS_MAX_DOPPLER_HZ 5e4

/* Maximum number of pieces whose sums have not arrived.  While this number of sums is outstanding, fgpu makes
 * no pieces, and the samples count as a gap. */
#define FGPU_GNSS_MAX_PENDING 256

enum fgpu_gnss_stage { FGPU_GNSS_SEARCH, FGPU_GNSS_PULL_IN, FGPU_GNSS_SETTLING, FGPU_GNSS_TRACKING };

struct fgpu_gnss_track_config {
    enum gnss_signal signal;
    enum gnss_subcarrier subcarrier; /* subcarrier of the replica's table */
    double sample_rate_hz;           /* rate of the baseband's samples */
    /* frequency of the signal's carrier in the baseband without Doppler; its magnitude is below sample_rate_hz */
    double carrier_hz;
};

/* Code phase and Doppler of the signal, as found by an acquisition. */
struct fgpu_gnss_acquisition {
    int64_t sample;
    double code_subchips; /* code phase at 'sample', from 0 to below the table's length */
    double doppler_hz;
};

struct fgpu_gnss_piece_pending {
    uint32_t start;       /* the track's n_starts */
    uint32_t integration; /* index of the integration, counted from the start of tracking */
    bool is_last;         /* the piece is the last of its integration */
    uint32_t n_samples;
    uint32_t n_integration; /* number of samples in the whole integration */
    int64_t period;         /* code periods since the acquisition */
    int64_t middle;         /* the integration's middle sample, to which the phases below apply */
    __int128 carrier, code; /* replica's phases, in units of the model */
};

/* An integration, and the sums of its pieces that have arrived so far. */
struct fgpu_gnss_sum {
    bool is_open;
    struct fgpu_gnss_piece_pending of; /* latest piece */
    uint32_t n_samples;                /* samples in 'parts' */
    double parts[FGPU_GNSS_N_TAPS][N_POLS][2];
    double delay; /* sum of the pieces' delay_subchips, each multiplied by the piece's number of present samples */
};

/* The loops' estimates for a sample. */
struct fgpu_gnss_state {
    enum fgpu_gnss_stage stage;
    bool is_code_locked, is_carrier_locked;
    bool has_half_turn;     /* the carrier's phase may be off by half a turn */
    int64_t code_period;    /* code periods since the acquisition */
    uint64_t code_phase;    /* in 2^-48 sub-chips (gnss_phase.h) */
    int64_t carrier_turns;  /* whole turns since the acquisition */
    uint64_t carrier_phase; /* 2^-64 turns */
    double doppler_hz, doppler_rate_hz_s;
    double cn0_db_hz[N_POLS];
    int symbol_period; /* index of the code period in its symbol or secondary code; -1: not known */
};

/* An integration whose sums have arrived.  The phases are the replica's phases at the integration's middle sample. */
struct fgpu_gnss_integration {
    enum fgpu_gnss_stage stage;
    int64_t sample; /* middle sample */
    int64_t code_period;
    double code_subchips;          /* code phase within the period */
    int64_t carrier_turns;         /* whole turns */
    uint64_t carrier_phase;        /* 2^-64 turns */
    uint32_t n_samples, n_present; /* number of samples; number of these samples that arrived */
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2];
    struct fgpu_gnss_state after; /* estimates after the loops have used the sums, for 'sample' */
};

struct fgpu_gnss_track {
    struct fgpu_gnss_track_config config;
    struct fgpu_gnss_rates rates;
    uint32_t n_subchips;    /* number of sub-chips in the table */
    uint32_t chip_subchips; /* number of sub-chips in a chip */
    double tap_subchips;    /* distance from the prompt tap to the early tap */
    double code_gain;       /* code error, in sub-chips, for a discriminator value of 1 */
    double period_s;        /* nominal period of the code */

    enum fgpu_gnss_stage stage;
    double stage_s; /* seconds of data since this stage began */
    uint32_t n_starts, n_losses;
    /* model at the middle of the latest integration, even if the sums of this integration were not used */
    struct fgpu_gnss_model model;
    struct fgpu_gnss_lock locks[N_POLS];
    struct fgpu_gnss_symbol symbol;
    int pol;      /* polarisation of the phase loop */
    bool is_pure; /* true if the phase loop has no ambiguity of half a turn */
    /* sum of the prompt sums, each multiplied by its chip of the secondary code; used until 'is_pure' is true */
    double polarity;
    int n_polarity;
    int64_t last_period;    /* code period of the sums in 'last'; -1: none */
    double last[N_POLS][2]; /* prompt sums of 'last_period', relative to the model */

    int64_t next_sample;     /* first sample after all pieces made so far */
    uint32_t n_integrations; /* number of integrations since the latest start */
    uint32_t open_samples;   /* number of samples that an integration still lacks at a chunk's end; 0: none */
    struct gnss_piece open;  /* piece that has the 'open_samples' samples */
    struct fgpu_gnss_piece_pending open_pending;

    uint32_t n_pushed, n_popped; /* number of pieces made, and number of pieces whose sums have been added */
    struct fgpu_gnss_piece_pending pending[FGPU_GNSS_MAX_PENDING];
    struct fgpu_gnss_sum sum;
};

/* Initialises a tracker in stage SEARCH. */
void fgpu_gnss_track_init(struct fgpu_gnss_track *track, const struct fgpu_gnss_track_config *config);

/* Writes n_subchips and the taps [FGPU_GNSS_N_TAPS] of the satellite's entry for gnss_correlate. */
void fgpu_gnss_track_taps(const struct fgpu_gnss_track *track, struct gnss_satellite *satellite);

/* Begins to follow the signal that an acquisition has found.  The caller must still pass the outstanding sums of
 * earlier pieces; these sums are ignored. */
void fgpu_gnss_track_start(struct fgpu_gnss_track *track, const struct fgpu_gnss_acquisition *acquisition);

/* Makes the pieces of the samples [begin, end).  'begin' is at or after the last call's 'end'; the samples between them
 * are a gap.  A piece's 'first' is relative to 'begin'.  The 'integration' of a piece is the piece's index, so each
 * piece has its own sums.  The 'satellite' of a piece is 0.  Returns the number of pieces, at most 'max_pieces'.
 * This number is never above 2 + (end - begin) / (samples of a period).  Makes no pieces in SEARCH. */
size_t fgpu_gnss_track_pieces(struct fgpu_gnss_track *track, int64_t begin, int64_t end, struct gnss_piece *pieces,
                              size_t max_pieces);

/* Ends tracking: the stage becomes SEARCH.  The caller must still pass the outstanding sums of earlier pieces; these
 * sums are ignored. */
void fgpu_gnss_track_stop(struct fgpu_gnss_track *track);

/* Returns the oldest piece whose sums are outstanding.  Returns NULL if the loops will ignore the sums of this piece:
 * in SEARCH, or if the piece belongs to an earlier start. */
const struct fgpu_gnss_piece_pending *fgpu_gnss_track_oldest(const struct fgpu_gnss_track *track);

/* Ends the open integration if a gap has cut it short: the oldest outstanding piece then belongs to a later integration.
 * Returns the number of integrations written, 0 or 1.  fgpu_gnss_track_sums() begins with the same step. */
size_t fgpu_gnss_track_cut(struct fgpu_gnss_track *track, struct fgpu_gnss_integration *ended);

/* Adds the sums of the oldest piece whose sums are outstanding.  Call this function once for each piece, in order.
 * The sums are in units of the baseband's samples.  'n_present' is the number of samples that arrived; 0: the piece was
 * not computed.  'delay_subchips' is the known delay of the signal in the sums: the code loop adds this delay to its
 * error.  The delay is 0 for the sums of one antenna.  Writes the integrations that ended to 'ended' and returns their
 * number, 0 to 2. */
size_t fgpu_gnss_track_sums(struct fgpu_gnss_track *track, const double (*sums)[N_POLS][2], uint32_t n_present,
                            double delay_subchips, struct fgpu_gnss_integration ended[2]);

/* Returns the loops' estimates, extrapolated to a sample. */
struct fgpu_gnss_state fgpu_gnss_track_at(const struct fgpu_gnss_track *track, int64_t sample);

#endif
