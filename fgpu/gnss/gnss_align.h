/* gnss_align.h - one satellite at all antennas of a process: one pair of loops (gnss_track.h) follows the satellite,
 * and each antenna's sums measure the antenna's own delay, phase and C/N0.
 *
 * Flow:      sums of a piece at all antennas --combine--> one aligned sum --gnss_track.h--> model --> replica for all
 *            each antenna's sums of an integration --> the antenna's delay, phase, C/N0 --> weights of the next sum
 * Replica:   all antennas have the same replica.  At antenna a the replica meets the samples 'offset_samples' later
 *            than at the reference antenna.  The offset is a whole number of samples.
 * Reference: the antenna whose acquisition started the loops.  Until other antennas are aligned, the loops use only the
 *            reference antenna's sums.  Then the loops follow all aligned antennas.  Delay and phase of the reference
 *            antenna are 0 by definition.  So after each block, the corrections of its phase and rate go to the model
 *            and are subtracted from all antennas.  The model and the aligned sum change together, and the loops see no
 *            change.  If the reference antenna is lost or leaves, the strongest aligned antenna in the phase loop's
 *            polarisation becomes the reference antenna.  Its delay and phase then keep their values.
 * Aligned:   z_a = A_a c + n_a is antenna a's sum in one polarisation, turned back by the antenna's phase.  The noise
 *            n_a has the power N_a.  The estimate c = sum(A_a / N_a z_a) / sum(A_a^2 / N_a) has the least noise
 *            (weighted least squares).  A_a^2 is relative to the reference antenna's signal at the time of the first
 *            alignment in the polarisation.  So the amplitude of c does not change when antennas come and go.  Until the
 *            first alignment, c is the reference antenna's sum, bit for bit.
 * Power:     A_a^2 is |mean of z_a^2|, where z_a is relative to the model's phase: the loops hold the phase, the square
 *            removes data and secondary codes, and the noise's mean square is 0.  N_a is the mean of |z_a|^2 minus
 *            A_a^2.  The time constant is 0.5 s.  Moments (gnss_lock.h) would have a larger error for weak
 *            signals.  A_a^2 also falls if the antenna's phase is wrong.  If a polarisation's sums become exactly 0,
 *            A_a^2 falls and N_a does not.
 * Missing:   an antenna whose piece has no samples has no weight in this piece's sum.  A piece also counts as missing
 *            if its offset differs from the delay by more than a sample and a tap's distance.  If the offset changes
 *            between two pieces of an integration, the antenna's part of the integration counts as missing.  If several
 *            antennas are aligned, a piece whose prompt sums are exactly 0 also counts as missing.  The number
 *            of present samples of the aligned sum is the mean over the antennas, with the weights A_a^2 / N_a.
 * Phase:     antenna a's phase relative to c is measured from z_a conj(c), in which data and secondary codes cancel, in
 *            blocks of 20 ms.  Here c is without the antenna's own part, so that an antenna does not measure itself.  A
 *            second-order loop follows the phase of each polarisation and the rate that both polarisations have in
 *            common.  The rate is the difference of the Dopplers, at most 10 Hz on the Earth's surface for baselines of
 *            10 km.  In stage PULL_IN, the first 0.5 s of data measure the rate: the phase of the sum of R_k
 *            conj(R_k-1) for the blocks' products R_k.  The range is 25 Hz.  The loop's bandwidth is then 2 Hz, and 1
 *            Hz for aligned antennas.  The loops are independent of the carrier loop, because corrections of aligned
 *            antennas have the factor 1 - (the antenna's share of c).  Their mean with the shares as weights is 0, so
 *            corrections do not turn c.
 * Delay:     from the projections of the early and late sums on c, relative to the reference antenna's measurement in
 *            the same block.  So errors of the model cancel.  The time constant is 2 s.  The rate aids the delay, so a
 *            drift does not make the delay late.  The mean delay of an aligned sum is added to the code error of the
 *            loops.  If the delay differs from the offset by more than 0.6 samples, the offset changes for the next
 *            pieces.
 * Stages:    of an antenna: SEARCH: not followed; PULL_IN: the offset is known, and the phase is being measured; then
 *            TRACKING.  The reference antenna has the stage of the loops.
 * Alignment: an antenna is aligned after 1 s of data, if the loops are in TRACKING and one polarisation has a coherence
 *            above 0.5 and a C/N0 above 27 dB-Hz.  Coherence is the mean cosine of the blocks' phase errors.  Only such
 *            polarisations have weights.  An antenna that is not aligned after 2.5 s of data, or after 5 s of integrations,
 *            is lost.  While an aligned antenna's coherence is below 0.25, its phase and delay keep their values.
 * Lost:      an aligned antenna is lost if C/N0 is below 25 dB-Hz in all polarisations with weights.  An antenna is
 *            also lost if its samples are missing for 2 s, or if its delay leaves the permitted range.  An aligned
 *            antenna is also lost if its coherence is below 0.25 for 2 s, unless a weaker aligned antenna is also
 *            incoherent.  If the loops are lost, all antennas are lost.  The last aligned antenna is lost only with the
 *            loops.
 * End:       the loops end if no aligned antenna is left with a weight in the phase loop's polarisation.  The loops also
 *            end if no aligned antenna has data for 2 s while other antennas have samples.  The other antennas can then
 *            start the loops.  If all antennas have no samples, the loops wait.
 * Limits:    an antenna is aligned only if it receives the signal in a polarisation in which the reference antenna also
 *            receives the signal, with at least 25 dB-Hz.  A polarisation that no aligned antenna uses has no weight,
 *            until the reference antenna receives 27 dB-Hz in this polarisation.  Rounding of delays to whole samples
 *            loses signal: for L5 at 26.75 MHz 0.7 dB on average.  Delays are exact if the taps and the signal lie on
 *            straight parts of the autocorrelation: for BPSK within a quarter of a chip, for CBOC within half a
 *            sub-chip.
 * Ownership: all state is in the caller's structs.
 * Threads:   one at a time.   Blocking, clocks and allocation: none. */
#ifndef FGPU_GNSS_GNSS_ALIGN_H
#define FGPU_GNSS_GNSS_ALIGN_H

#include "fgpu/gnss/gnss_track.h"

/* An antenna's part of the open integration. */
struct fgpu_gnss_own {
    uint32_t integration; /* index of the integration; the other members are valid only for this integration */
    bool is_valid;        /* false: the offset changed within the integration */
    int32_t offset_samples;
    uint32_t n_present;
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2]; /* units of the baseband's samples */
    double rotor[N_POLS][2];                  /* turns the sums back by the antenna's phase */
    double amplitude[N_POLS];                 /* A_a */
    double weight[N_POLS];                    /* A_a / N_a */
    double in_sum[N_POLS][2];                 /* the antenna's part of the aligned sum's prompt tap */
    double share[N_POLS]; /* sum over the pieces: number of present samples times the share of the sum's amplitude */
    uint32_t n_piece;     /* number of present samples in the current piece */
    double piece[FGPU_GNSS_N_TAPS][N_POLS][2]; /* sums of the current piece */
};

/* An antenna: its state, and its measurements relative to the loops. */
struct fgpu_gnss_antenna {
    enum fgpu_gnss_stage stage; /* SEARCH: not followed; PULL_IN; TRACKING.  Reference: the stage of the loops */
    double stage_s;             /* seconds of data in the blocks since the antenna joined */
    uint32_t n_starts, n_losses;
    int32_t offset_samples, max_offset_samples; /* for the next pieces; permitted magnitude */
    /* at the middle of the latest integration */
    double delay_subchips; /* the signal's delay relative to the model, including the offset */
    double turns[N_POLS];  /* phase relative to the aligned sum, without the offset's phase */
    double rate_hz;        /* Doppler relative to the model */
    bool is_used[N_POLS];  /* the polarisation has a weight in the aligned sum */
    double missing_s;      /* seconds of data of the aligned sum since the antenna's latest data */
    double followed_s;     /* seconds of integrations since the antenna joined */

    /* Means, and the seconds of data that they cover, at most their time constants. */
    double power_s, square[N_POLS][2], power[N_POLS]; /* mean of z^2, complex, and of |z|^2 */
    double data_s;                                    /* mean number of seconds of data in an integration */
    double coherence_s, coherence[N_POLS];
    double incoherent_s; /* seconds of data since an aligned antenna's coherence fell below the limit */
    double span_s, span; /* early plus late product, per second of data */
    double delay_s;

    /* open block */
    double open_s;             /* seconds of data */
    double open_share[N_POLS]; /* integral of the antenna's share of the aligned sum's amplitude over these seconds */
    double replica_subchips;   /* integral of the replica's delay at the antenna relative to the model */
    double products[FGPU_GNSS_N_TAPS][N_POLS][2]; /* sums of z_a conj(c) */

    int64_t last_block;     /* block of 'last'; -1: none */
    double last[N_POLS][2]; /* R_k */
    double turn[2];         /* sum of R_k conj(R_k-1) over blocks and polarisations */
    struct fgpu_gnss_own own;
};

struct fgpu_gnss_align {
    struct fgpu_gnss_track track;
    size_t n_ants;
    size_t reference;          /* index of the reference antenna; SIZE_MAX: no antenna is followed */
    size_t n_aligned;          /* number of antennas with weights in the aligned sum, including the reference antenna */
    double unit_power[N_POLS]; /* A_a^2 = 1; 0: only the reference antenna may have a weight in the polarisation */
    double starved_s;          /* seconds of samples at other antennas since an aligned antenna's latest data */
    int64_t sample;            /* middle of the latest integration: time of the antennas' phases and delays */
    double reference_turns[N_POLS]; /* phase of the reference antenna: 0, or its phase when it became the reference */
    int64_t block_periods;          /* number of code periods in a block */
    int64_t block;                  /* open block: code period divided by block_periods; -1: none */
    struct fgpu_gnss_antenna *ants; /* [n_ants] */
};

/* The part of an antenna in a piece.  If the antenna is in SEARCH, only 'n_missing' is used. */
struct fgpu_gnss_part {
    const int64_t *sums; /* sum of tap t, polarisation p, part i at [t * tap_stride + 2 * p + i] */
    size_t tap_stride;
    double unit[N_POLS];    /* factor from sums to units of the baseband's samples */
    uint32_t n_missing;     /* number of samples that were zeros; all: no data, and 'sums' may be NULL */
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

/* Adds antenna 'ant', which is in SEARCH.  An acquisition has found the signal at this antenna.  Returns false if the
 * loops do not run, or if the delay relative to the model is more than 'max_offset_samples'.  The antenna then stays in
 * SEARCH. */
bool fgpu_gnss_align_join(struct fgpu_gnss_align *align, size_t ant, const struct fgpu_gnss_acquisition *acquisition,
                          int32_t max_offset_samples);

/* The antenna's stage becomes SEARCH.  If no aligned antenna is left in the phase loop's polarisation, the loops end
 * (fgpu_gnss_track_stop()), and all antennas are in SEARCH. */
void fgpu_gnss_align_leave(struct fgpu_gnss_align *align, size_t ant);

/* Makes pieces for all antennas; as fgpu_gnss_track_pieces(). */
size_t fgpu_gnss_align_pieces(struct fgpu_gnss_align *align, int64_t begin, int64_t end, struct gnss_piece *pieces,
                              size_t max_pieces);

/* Adds the sums of the oldest piece whose sums are outstanding; as fgpu_gnss_track_sums().  parts [n_ants].  Writes the
 * integrations that ended, and measured[i * n_ants + ant] for integration i; an antenna that was not followed has the
 * stage SEARCH.  'measured' has two rows of n_ants.  Returns the number of integrations that ended, 0 to 2. */
size_t fgpu_gnss_align_sums(struct fgpu_gnss_align *align, const struct fgpu_gnss_part *parts,
                            struct fgpu_gnss_integration ended[2], struct fgpu_gnss_measured *measured);

/* Returns the loops' estimates, extrapolated to a sample, with the antenna's own stage, locks, C/N0 and Doppler.  The
 * phases are the phases of the model.  While only the reference antenna is aligned, its state is the loops' state. */
struct fgpu_gnss_state fgpu_gnss_align_at(const struct fgpu_gnss_align *align, size_t ant, int64_t sample);

#endif
