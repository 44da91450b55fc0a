/* gnss_acquire - searches the samples of one antenna for a satellite: its code phase and Doppler.
 *
 * Flow:       int8 [pol][sample][re, im], as gnss_quantise makes them --add, block by block--> powers --find--> result
 * A block is 'n_periods' code periods, added coherently.  For each Doppler of a grid and each polarisation:
 *     1. The satellite's carrier without Doppler is wiped off, and samples are added in bins.  A code period has a
 *        power of two of bins, at least 4 a chip.  Code phases of bins are those without Doppler.
 *     2. The periods are added, turned back by the Doppler: [bin].
 *     3. The circular correlation with the code, by FFT, gives all code phases: c[phase].
 *     4. |c|^2 is added to [pol][Doppler][phase].  The Doppler has moved the code since sample 0; the phases of the
 *        block are moved back, to the nearest bin.
 * Grid:       Dopplers are 1 / (2 T) apart, T the time of a block.  The range has one more at both ends, for
 *             peaks there.
 * Noise:      the mean of a polarisation's powers over the whole grid.  Powers are divided by it before polarisations
 *             are added, so polarisations may differ in level.  A polarisation of zeros does not count.
 * Detection:  in noise c is a sum of many samples, so it is Gaussian, and a power over its mean is exponential.  The
 *             sum z of K powers (blocks times polarisations) has P(z > t) = Q(K, t) = e^-t sum over j < K of t^j / j!.
 *             The largest of N cells exceeds t with a probability of at most N Q(K, t), which is set to 'false_alarm'.
 *             Neighbours are alike, so false alarms are fewer: 0.25 were counted where 'false_alarm' was 0.3.
 * Peak:       the top of a parabola through three cells, in both directions.  Well above the noise the code phase is
 *             within 0.2 chip, and the Doppler within 1 / (4 T).
 * Loss:       0.4 to 0.9 dB for the bins, with a sub-carrier 1.3 to 3.3 dB; up to 0.9 dB between two Dopplers.
 *             Data and secondary codes are not removed.  A block of one period of E1B loses all of its signal if the
 *             data turn in its middle.
 * Cross-talk: other codes count as noise, and so do sidelobes of the satellite's own code.  A 'peak' of hundreds is
 *             therefore less than C/N0 says.  Sidelobes of C/A codes are 24 dB down: a satellite further than that
 *             above the threshold may be found in the place of others.
 * Time:       of one core (Xeon, AVX-512, busy), at 26.75 MS/s, both polarisations:
 *                 L1CA  +-10 kHz   10 blocks of 1 ms   0.08 s        E1B  +-10 kHz  10 blocks of 4 ms  1.5 s
 *                 L1CA  +-500 Hz   50 blocks of 20 ms  0.6 s         L5Q  +-10 kHz  10 blocks of 1 ms  1.7 s
 *                 L1CA  +-10 kHz   50 blocks of 20 ms  10 s
 * Requires:   a block of 2^32 samples at most, and 2^33 samples of all blocks.
 * Users:      fgpu/gnss_search.c.
 * Ownership:  the object owns its memory.   Threads: one at a time, outside the data path.
 * Blocking:   none, but add takes its time.   Allocation: in create only. */
#ifndef KERNELS_GNSS_GNSS_ACQUIRE_H
#define KERNELS_GNSS_GNSS_ACQUIRE_H

#include "kernels/gnss/gnss_codes.h"
#include "kernels/gnss/gnss_phase.h"

struct gnss_acquire_config {
    const struct gnss_signal_facts *facts;
    const int8_t *table; /* as gnss_code_table() makes it; read by create only */
    uint32_t n_subchips; /* of the table */
    uint32_t n_periods;  /* code periods of a block */
    double sample_rate_hz;
    double carrier_hz; /* of the satellite in the samples, without Doppler */
    bool is_inverted;  /* band: a positive Doppler lowers the carrier in the samples */
    double min_doppler_hz, max_doppler_hz;
    double false_alarm; /* probability, of a search */
};

struct gnss_acquired {
    bool is_found;
    uint64_t code_phase; /* of sample 0, 2^-48 sub-chips */
    double doppler_hz;
    double peak;      /* power over the noise's: the mean of all blocks and polarisations */
    double threshold; /* of 'peak' */
};

struct gnss_acquire;

/* Returns 0 or -ENOMEM. */
int gnss_acquire_create(const struct gnss_acquire_config *config, struct gnss_acquire **acquire);

/* NULL is accepted. */
void gnss_acquire_destroy(struct gnss_acquire *acquire);

/* Number of samples of a block, for each polarisation. */
uint32_t gnss_acquire_block_samples(const struct gnss_acquire *acquire);

/* Adds a block.  'samples' begin with sample 'first' (>= 0) of the row, and rows are 'pitch_samples' apart.  Blocks may
 * have gaps between them. */
void gnss_acquire_add(struct gnss_acquire *acquire, const int8_t *samples, uint64_t pitch_samples, int64_t first);

/* The result of all blocks so far.  Without any input all fields are 0. */
struct gnss_acquired gnss_acquire_find(const struct gnss_acquire *acquire);

/* Forgets all blocks. */
void gnss_acquire_restart(struct gnss_acquire *acquire);

/* The value that the largest of 'n_cells' sums of 'n_powers' exponential powers of mean 1 exceeds with the probability
 * 'false_alarm' at most.  Pure. */
double gnss_acquire_threshold(uint64_t n_powers, uint64_t n_cells, double false_alarm);

#endif
