/* gnss_track.h - the loops that follow one signal of one satellite: code, carrier, Doppler, C/N0, symbols and lock.
 *
 * Flow:      acquisition --start--> model --pieces--> gnss_correlate --sums, some chunks later--> model
 * Model:     gnss_model.h is the loops' estimate of code and carrier.  A discriminator gives the signal's phase minus
 *            the replica's, and the replica's phase is known exactly.  So each integration measures the signal's own
 *            phase.  The loop corrects the model at the middle of the integration.  A replica is the model, moved
 *            ahead.
 * Delay:     a correction is relative to the model at the time of the integration, not to the latest replica.  So the
 *            delay of the sums is outside the loop, and the loop has the same poles with any delay.  The delay only
 *            makes replicas less exact: (Doppler's error) x delay + (rate's error) x delay^2 / 2 in the carrier.  A
 *            replica's limits are the Doppler's error against a code period, and the code's error against the taps.  (A
 *            Kalman filter does the same: Psiaki and Jung, Extended Kalman filter methods for tracking weak GPS
 *            signals, ION GPS 2002.)
 * Pieces:    an integration is one code period, from the sample on that begins it, with its own exact phases.  Where a
 *            chunk ends in it, it goes on in the next one as another piece, by gnss_piece_skip(); its sums are added
 *            here.
 * Loops:     stage       frequency  phase  code    until
 *            PULL_IN     4 Hz       -      2 Hz    0.5 s of data
 *            SETTLING    -          25 Hz  1 Hz    1 s of data; second order
 *            TRACKING    -          5 Hz   0.5 Hz
 *            Frequency: atan(cross / dot) of consecutive sums.  Phase: Costas, atan(Q / I); atan2 of pilots whose
 *            secondary code is known.  Code: (E^2 - L^2) / (E^2 + L^2), over the slope that the replica's
 *            autocorrelation has.  Kaplan and Hegarty, Understanding GPS/GNSS, 3rd ed., 8.7 to 8.9.
 * Pull-in:   an acquisition within 1/8 turn a code period of the Doppler (125 Hz, E1: 31 Hz) and within a quarter of a
 *            chip (E1: 0.15 chip) of the code.  In simulations at 35 dB-Hz 1 of 5000 starts failed, at 32 dB-Hz 1 of 6.
 * Pols:      code and frequency take the sum of both polarisations' powers and products: neither needs a phase between
 *            them.  The phase loop takes the stronger one after PULL_IN and keeps it: the instrument's phase between
 *            polarisations is not known, and a change of polarisation would be a step of phase.
 * Data:      signs of data and secondary code do not matter to any loop before the symbol's place is known
 *            (gnss_symbol.h).  A pilot then loses its half turn of ambiguity.
 * Gaps:      missing samples are zeros.  A sum is scaled by the fraction that is there: its gains in the loops are
 *            smaller by it.  With less than half of its samples a sum is not used, and the phases go on.
 * Lock:      gnss_lock.h.  The code is locked above 25 dB-Hz, the carrier above an indicator of 0.25.  In TRACKING both
 *            must be locked, before only the code; else the stage becomes SEARCH.  The owner acquires and starts again.
 *            So does a Doppler beyond 50 kHz, which only an error or a gap of hours can reach.
 * Phase:     the carrier's phase at a sample is the signal's own there, of the loop's polarisation.  Whole turns count
 *            from the acquisition.  L5Q, a quarter turn behind L5I, keeps this quarter turn.
 * Limits:    the band is not inverted.  Codes do not run backwards.  One antenna's sums close the loops.
 * Ownership: the caller's struct; nothing else is kept.
 * Threads:   one at a time.   Blocking, clocks and allocation: none. */
#ifndef FGPU_GNSS_TRACK_H
#define FGPU_GNSS_TRACK_H

#include "common/base/units.h"
#include "fgpu/gnss_lock.h"
#include "fgpu/gnss_model.h"
#include "fgpu/gnss_symbol.h"
#include "kernels/gnss/gnss_correlate.h"

#include <stdbool.h>

/* The taps: the prompt one, and one ahead and one behind by a quarter of a chip.  Those of BOC and CBOC are 2.5 / 12 of
 * a chip away: there both of E1's autocorrelations are steep, which nearer to the prompt they are not everywhere. */
enum fgpu_gnss_tap { FGPU_GNSS_EARLY, FGPU_GNSS_PROMPT, FGPU_GNSS_LATE };
#define FGPU_GNSS_N_TAPS 3

/* Pieces whose sums have not come, at most.  Beyond them none are made, and their samples are a gap. */
#define FGPU_GNSS_MAX_PENDING 256

enum fgpu_gnss_stage { FGPU_GNSS_SEARCH, FGPU_GNSS_PULL_IN, FGPU_GNSS_SETTLING, FGPU_GNSS_TRACKING };

struct fgpu_gnss_track_config {
    enum gnss_signal signal;
    enum gnss_subcarrier subcarrier; /* of the replica's table */
    double sample_rate_hz;           /* of the baseband */
    double carrier_hz; /* the signal's carrier without Doppler in the baseband; |carrier_hz| < sample_rate_hz */
};

/* Where an acquisition saw the signal. */
struct fgpu_gnss_acquisition {
    int64_t sample;
    double code_subchips; /* the code phase of that sample, from 0 to below the table's length */
    double doppler_hz;
};

struct fgpu_gnss_piece_pending {
    uint32_t start;       /* the track's n_starts */
    uint32_t integration; /* since the start */
    bool is_last;         /* of its integration */
    uint32_t n_samples;
    uint32_t n_integration; /* samples of the whole integration */
    int64_t period;         /* code periods since the acquisition's */
    int64_t middle;         /* the integration's middle sample, which has the phases below */
    __int128 carrier, code; /* of the replica, as the model has them */
};

/* An integration as far as its sums have come. */
struct fgpu_gnss_sum {
    bool is_open;
    struct fgpu_gnss_piece_pending of; /* its latest piece */
    uint32_t n_samples;                /* that are in it */
    double parts[FGPU_GNSS_N_TAPS][N_POLS][2];
};

/* An integration whose sums have come; its phases are the replica's at the middle sample. */
struct fgpu_gnss_integration {
    enum fgpu_gnss_stage stage;
    int64_t sample; /* the middle one */
    int64_t code_period;
    double code_subchips;          /* within the period */
    int64_t carrier_turns;         /* whole ones */
    uint64_t carrier_phase;        /* 2^-64 turns */
    uint32_t n_samples, n_present; /* all, and those that were there */
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2];
};

struct fgpu_gnss_track {
    struct fgpu_gnss_track_config config;
    struct fgpu_gnss_rates rates;
    uint32_t n_subchips;    /* of the table */
    uint32_t chip_subchips; /* of a chip */
    double tap_subchips;    /* from the prompt tap to the early one */
    double code_gain;       /* sub-chips for a discriminator of 1 */
    double period_s;        /* nominal, of the code */

    enum fgpu_gnss_stage stage;
    double stage_s; /* of data in this stage */
    uint32_t n_starts, n_losses;
    struct fgpu_gnss_model model; /* at the middle of the latest integration that was used or coasted over */
    struct fgpu_gnss_lock locks[N_POLS];
    struct fgpu_gnss_symbol symbol;
    int pol;         /* of the phase loop */
    bool is_pure;    /* phase loop without ambiguity of half a turn */
    double polarity; /* sum of prompt sums times the secondary code's chips, until 'is_pure' */
    int n_polarity;
    int64_t last_period;    /* of 'last'; -1: none */
    double last[N_POLS][2]; /* prompt sums relative to the model */

    int64_t next_sample;     /* first sample after the pieces so far */
    uint32_t n_integrations; /* of this start */
    uint32_t open_samples;   /* left of the integration that a chunk has cut; 0: none */
    struct gnss_piece open;  /* its rest */
    struct fgpu_gnss_piece_pending open_pending;

    uint32_t n_pushed, n_popped; /* pieces and their sums */
    struct fgpu_gnss_piece_pending pending[FGPU_GNSS_MAX_PENDING];
    struct fgpu_gnss_sum sum;
};

/* Estimates for a sample. */
struct fgpu_gnss_state {
    enum fgpu_gnss_stage stage;
    bool is_code_locked, is_carrier_locked;
    bool has_half_turn;     /* the carrier's phase may be off by half a turn */
    int64_t code_period;    /* since the acquisition's */
    uint64_t code_phase;    /* 2^-48 sub-chips, gnss_phase.h */
    int64_t carrier_turns;  /* whole ones, since the acquisition */
    uint64_t carrier_phase; /* 2^-64 turns */
    double doppler_hz, doppler_rate_hz_s;
    double cn0_db_hz[N_POLS];
    int symbol_period; /* place of the code period in its symbol or secondary code; -1: not known */
};

/* Begins in SEARCH. */
void fgpu_gnss_track_init(struct fgpu_gnss_track *track, const struct fgpu_gnss_track_config *config);

/* Writes n_subchips and the taps [FGPU_GNSS_N_TAPS] of the satellite's entry for gnss_correlate. */
void fgpu_gnss_track_taps(const struct fgpu_gnss_track *track, struct gnss_satellite *satellite);

/* Begins to follow what an acquisition saw.  Sums of earlier pieces are still taken, and not used. */
void fgpu_gnss_track_start(struct fgpu_gnss_track *track, const struct fgpu_gnss_acquisition *acquisition);

/* Makes the pieces of the samples [begin, end) that follow those of the last call; later samples make a gap.  'first'
 * counts from 'begin', 'integration' from 0: each piece has sums of its own.  'satellite' is 0.  Returns how many there
 * are; at most 'max_pieces', so that 2 + (end - begin) / (samples of a period) is enough.  None in SEARCH. */
size_t fgpu_gnss_track_pieces(struct fgpu_gnss_track *track, int64_t begin, int64_t end, struct gnss_piece *pieces,
                              size_t max_pieces);

/* Ends it: the stage becomes SEARCH.  Sums of its pieces are still taken, and not used. */
void fgpu_gnss_track_stop(struct fgpu_gnss_track *track);

/* Takes the sums of the oldest piece without: one call for each piece, in their order.  A sum times 'unit' is what is
 * used of a polarisation.  'n_missing' of the samples were zeros; all of them, if the piece was not computed.
 * Returns how many integrations ended, 0 to 2, in 'ended'. */
size_t fgpu_gnss_track_sums(struct fgpu_gnss_track *track, const int64_t (*sums)[N_POLS][2], const double unit[N_POLS],
                            uint32_t n_missing, struct fgpu_gnss_integration ended[2]);

/* The state, moved to a sample. */
struct fgpu_gnss_state fgpu_gnss_track_at(const struct fgpu_gnss_track *track, int64_t sample);

#endif
