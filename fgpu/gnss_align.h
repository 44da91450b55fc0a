/* gnss_align.h - one satellite at all antennas of a process: one pair of loops (gnss_track.h) follows the satellite, and
 * each antenna's sums measure the antenna's own delay, phase and C/N0.
 *
 * Flow:      sums of a piece at all antennas --combine--> one aligned sum --gnss_track.h--> model --> replica for all
 *            each antenna's sums of a whole integration --> the antenna's delay, phase, C/N0 --> weights of the next sum
 * Replica:   all antennas have the same replica.  At antenna a the replica meets the samples 'offset_samples' later than
 *            at the reference antenna.  The offset is a whole number of samples.
 * Reference: the antenna whose acquisition started the loops.  Until other antennas are aligned, the loops use only the
 *            reference antenna's sums.  Delay and phase of the reference antenna are 0 by definition.  If the reference
 *            antenna is lost, the loops continue with the other aligned antennas.
 * Aligned:   z_a = A_a c + n_a is antenna a's sum in one polarisation, turned back by the antenna's phase.  The noise
 *            n_a has the power N_a.  The estimate c = sum(A_a / N_a z_a) / sum(A_a^2 / N_a) has the least noise (weighted
 *            least squares).  A_a^2 and N_a come from the antenna's own C/N0 (gnss_lock.h).  They are relative to the
 *            reference antenna's signal at the time of the first alignment.  So the amplitude of c does not change when
 *            antennas come and go.  With one antenna c is that antenna's sum, bit for bit.
 * Missing:   an antenna whose piece has no samples has no weight in this piece's sum.  The number of present samples of
 *            the aligned sum is the mean over the antennas, with the weights A_a^2 / N_a.
 * Phase:     antenna a's phase relative to c is measured from z_a conj(c), in which data and secondary codes cancel, in
 *            blocks of 20 ms.  A second-order loop follows the phase of each polarisation and the rate that both
 *            polarisations have in common.  The rate is the difference of the Dopplers, at most 10 Hz on the Earth's
 *            surface for baselines of 10 km.  In stage PULL_IN, 0.5 s of data, a frequency loop finds the rate first.
 * Delay:     the antenna's code discriminator, as in gnss_track.h, with a time constant of 0.5 s.  The delay is relative
 *            to the model.  The mean delay of an aligned sum is subtracted from the discriminator of the loops.  If the
 *            delay differs from the offset by more than 0.75 samples, the offset changes for the next pieces.
 * Stages:    of an antenna: SEARCH: not followed; PULL_IN: the offset is known, and the phase is being measured; then
 *            the stage of the loops, SETTLING or TRACKING.  The reference antenna has the stage of the loops.
 * Lost:      an antenna is lost if its C/N0 is below 25 dB-Hz, or if the coherence of its phase is below 0.25.  If the
 *            loops are lost, all antennas are lost.
 * Ownership: all state is in the caller's structs.
 * Threads:   one at a time.   Blocking, clocks and allocation: none. */
#ifndef FGPU_GNSS_ALIGN_H
#define FGPU_GNSS_ALIGN_H

#include "fgpu/gnss_track.h"

/* Delay and Doppler of an antenna are never so far from the reference antenna's that a search is narrower. */
struct fgpu_gnss_antenna {
    enum fgpu_gnss_stage stage; /* SEARCH: not followed; PULL_IN; then the stage of the loops */
    double stage_s;             /* seconds of data since PULL_IN began */
    uint32_t n_starts, n_losses;
    int32_t offset_samples; /* for the next pieces */
    double delay_subchips;  /* the signal's delay relative to the model, including the offset */
    double turns[N_POLS];   /* phase relative to the aligned sum, at 'sample' */
    double rate_hz;
    int64_t sample;
    struct fgpu_gnss_lock locks[N_POLS];
    /* plus what the implementation needs: the open block, the open integration's sums, the coherence */
};

struct fgpu_gnss_align {
    struct fgpu_gnss_track track;
    size_t n_ants;
    size_t reference; /* index of the reference antenna; SIZE_MAX: lost, or no antenna is followed */
    struct fgpu_gnss_antenna *ants; /* [n_ants] */
};

/* The part of an antenna in a piece. */
struct fgpu_gnss_part {
    const int64_t *sums;    /* sum of tap t, polarisation p, part i at [t * tap_stride + 2 * p + i] */
    size_t tap_stride;
    double unit[N_POLS];    /* factor from sums to units of the baseband's samples */
    uint32_t n_missing;     /* number of samples that were zeros; all: no data */
    int32_t offset_samples; /* offset with which the sums were computed */
};

/* An antenna's part of a finished integration. */
struct fgpu_gnss_measured {
    enum fgpu_gnss_stage stage;
    bool is_code_locked, is_carrier_locked;
    uint32_t n_present;
    int32_t offset_samples; /* the replica's sample n met the antenna's sample n + offset_samples */
    uint32_t n_starts;
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2]; /* units of the baseband's samples */
    double cn0_db_hz[N_POLS];
    double doppler_hz; /* loops' Doppler + the antenna's rate */
};

/* Initialises; all antennas are in SEARCH.  'ants' has room for n_ants antennas. */
void fgpu_gnss_align_init(struct fgpu_gnss_align *align, const struct fgpu_gnss_track_config *config,
                          struct fgpu_gnss_antenna *ants, size_t n_ants);

/* Starts the loops with an acquisition at antenna 'ant', which becomes the reference antenna.  All other antennas are
 * in SEARCH afterwards. */
void fgpu_gnss_align_start(struct fgpu_gnss_align *align, size_t ant, const struct fgpu_gnss_acquisition *acquisition);

/* Adds antenna 'ant' while the loops run.  An acquisition has found the signal at this antenna.  Returns false if the
 * delay relative to the model is more than 'max_offset_samples'; the antenna then stays in SEARCH. */
bool fgpu_gnss_align_join(struct fgpu_gnss_align *align, size_t ant, const struct fgpu_gnss_acquisition *acquisition,
                          int32_t max_offset_samples);

/* The antenna's stage becomes SEARCH.  If no antenna is left, the loops end (fgpu_gnss_track_stop()). */
void fgpu_gnss_align_leave(struct fgpu_gnss_align *align, size_t ant);

/* Adds the sums of the oldest piece whose sums are outstanding; as fgpu_gnss_track_sums().  parts [n_ants].  Writes the
 * integrations that ended, and measured[i][ant] for integration i; an antenna that took no part has the stage SEARCH.
 * 'measured' has two rows of n_ants.  Returns the number of integrations that ended, 0 to 2. */
size_t fgpu_gnss_align_sums(struct fgpu_gnss_align *align, const struct fgpu_gnss_part *parts,
                            struct fgpu_gnss_integration ended[2], struct fgpu_gnss_measured *measured);

#endif
