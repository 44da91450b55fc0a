/* gnss_acquire - searches the samples of one antenna for a satellite, and finds the satellite's code phase and Doppler.
 *
 * Flow:       int8 [pol][sample][re, im] on the device --add, block by block--> powers --finish--> peaks --download,
 *             find--> result
 * A block is 'n_periods' code periods; the periods are added coherently.  For each Doppler of a grid and each
 * polarisation:
 *     1. The satellite's carrier without Doppler is removed, and samples are added in bins.  The number of bins of a
 *        code period is a power of two, at least 4 a chip.  A bin is an interval of the code phase, which is computed
 *        without Doppler.
 *     2. The periods are rotated back by the Doppler and added: [bin].
 *     3. The circular correlation with the code, by FFT, gives all code phases: c[phase].
 *     4. |c|^2 is added to [pol][Doppler][phase].  The Doppler has shifted the code since sample 0.  The block's phases
 *        are shifted back, to the nearest bin.
 * Grid:       Dopplers are 1 / (2 T) apart; T is the time of a block.  The grid has one more Doppler beyond each end of
 *             the range, so that peaks at the ends are found.
 * Noise:      the mean of a polarisation's powers over the whole grid.  Powers are divided by the noise before
 *             polarisations are added, so the polarisations may have different levels.  A polarisation that has only
 *             zeros is ignored.
 * Detection:  in noise c is a sum of many samples.  So c is Gaussian, and the ratio of a power to its mean is
 *             exponential.  The sum z of K powers (blocks times polarisations) has P(z > t) = Q(K, t) = e^-t sum over j
 *             < K of t^j / j!.  The largest of N cells exceeds t with a probability of at most N Q(K, t).  The
 *             threshold sets this probability to 'false_alarm'.  Neighbouring cells are correlated, so there are fewer
 *             false alarms.  With a 'false_alarm' of 0.3, the measured probability was 0.25.
 * Peak:       the maximum of a parabola through three cells, in both directions.  For a peak well above the noise, the
 *             code phase is correct within 0.2 chip, and the Doppler within 1 / (4 T).
 * Loss:       the bins lose 0.4 to 0.9 dB, or 1.3 to 3.3 dB with a sub-carrier.  A signal halfway between two Dopplers
 *             of the grid loses up to 0.9 dB more.  Data and secondary codes are not removed.  If a data bit changes
 *             sign in the middle of a block of one E1B period, the block loses all of its signal.
 * Cross-talk: other codes count as noise, as do sidelobes of the satellite's own code.  A 'peak' of hundreds is
 *             therefore smaller than C/N0 predicts.  Sidelobes of C/A codes are 24 dB down.  So a satellite more than
 *             24 dB above the threshold may be found instead of other satellites.
 * Time:       at 26.75 MS/s, both polarisations, all blocks:
 *                                                        H200       one core (EPYC, AVX-512, busy)
 *                 L1CA  +-10 kHz   10 blocks of 1 ms     1.0 ms     0.08 s
 *                 L1CA  +-500 Hz   50 blocks of 20 ms    10 ms      0.7 s
 *                 L1CA  +-10 kHz   50 blocks of 20 ms    65 ms      9 s
 *                 E1B   +-10 kHz   10 blocks of 4 ms     5.5 ms     1.6 s
 *                 L5Q   +-10 kHz   10 blocks of 1 ms     4.5 ms     4 s
 * Device:     the kernels of gnss_grid.h and FFTs compute on one stream of the device.  The Dopplers are searched in
 *             passes of GNSS_ACQUIRE_PASS, so the memory for FFTs does not grow with the range.  The searches of
 *             several antennas share an acquirer, which has the stream, the kernels, the FFTs and the memory of a pass.
 * Requires:   at most 2^32 samples in a block, and 2^33 samples in all blocks.
 * Users:      fgpu/gnss/gnss_search.c.
 * Ownership:  the objects own their memory.
 * Threads:    one thread at a time for an acquirer and its searches.  gnss_acquire_find() only reads downloaded peaks.
 * Blocking:   never, except for room in the stream.   Allocation: in create only. */
#ifndef KERNELS_GNSS_GNSS_ACQUIRE_H
#define KERNELS_GNSS_GNSS_ACQUIRE_H

#include "kernels/gnss/gnss_codes.h"
#include "kernels/gnss/gnss_phase.h"

struct device;
struct device_stream;

#define GNSS_ACQUIRE_PASS 16 /* number of Dopplers that are computed at once */

struct gnss_acquire_config {
    const struct gnss_signal_facts *facts;
    const int8_t *table; /* table from gnss_code_table(); only gnss_acquire_begin() reads it */
    uint32_t n_subchips; /* number of sub-chips in the table */
    uint32_t n_periods;  /* number of code periods of a block */
    double sample_rate_hz;
    double carrier_hz; /* frequency of the satellite's carrier within the band of the samples, without Doppler */
    /* true: a positive Doppler lowers the frequency of the carrier within the band of the samples */
    bool is_inverted;
    double min_doppler_hz, max_doppler_hz;
    double false_alarm; /* probability of a false alarm in one search */
};

struct gnss_acquired {
    bool is_found;
    uint64_t code_phase; /* code phase of sample 0, 2^-48 sub-chips */
    double doppler_hz;
    double peak;      /* ratio of power to noise power, averaged over all blocks and polarisations */
    double threshold; /* threshold for 'peak' */
};

/* Sizes of the largest searches.  Initialise with zeros. */
struct gnss_acquire_limits {
    uint32_t bin_sizes; /* bit b is set: some searches have 2^b bins */
    uint64_t max_row_bins, max_cells;
    uint32_t max_dopplers;
};

struct gnss_acquirer;
struct gnss_acquire;

/* Raises the limits to those of a search.  'range_hz' is max_doppler_hz - min_doppler_hz. */
void gnss_acquire_limits_add(struct gnss_acquire_limits *limits, const struct gnss_signal_facts *facts,
                             uint32_t n_periods, double range_hz);

/* Creates an acquirer whose operations run on 'stream'.  Returns 0 or negative errno. */
int gnss_acquirer_create(struct device_stream *stream, const struct gnss_acquire_limits *limits,
                         struct gnss_acquirer **acquirer);
/* Frees an acquirer whose stream is idle or destroyed.  Accepts NULL. */
void gnss_acquirer_destroy(struct gnss_acquirer *acquirer);
/* Returns an upper bound of the acquirer's device memory. */
uint64_t gnss_acquirer_device_bytes(const struct gnss_acquire_limits *limits);

/* Creates an object for one search at a time.  The limits must not exceed those of the acquirer.  Returns 0 or
 * -ENOMEM. */
int gnss_acquire_create(struct gnss_acquirer *acquirer, const struct gnss_acquire_limits *limits,
                        struct gnss_acquire **acquire);
/* Frees a search, before or after the acquirer.  The stream must be idle or destroyed.  Accepts NULL. */
void gnss_acquire_destroy(struct gnss_acquire *acquire);
/* Returns the size of the device memory of a search. */
uint64_t gnss_acquire_device_bytes(const struct gnss_acquire_limits *limits);
/* Returns the size of the pinned memory of a search. */
uint64_t gnss_acquire_pinned_bytes(const struct gnss_acquire_limits *limits, bool on_gpu);

/* Begins a search within the limits.  All operations of an earlier search must have ended. */
void gnss_acquire_begin(struct gnss_acquire *acquire, const struct gnss_acquire_config *config);

/* Returns the number of samples that a block has for each polarisation. */
uint32_t gnss_acquire_block_samples(const struct gnss_acquire *acquire);

/* Enqueues the computation of a block.  'samples' is in device memory, and begins with sample 'first' (>= 0) of the
 * antenna's samples.  The rows of the two polarisations are 'pitch_samples' apart.  Blocks may have gaps between
 * them. */
void gnss_acquire_add(struct gnss_acquire *acquire, const int8_t *samples, uint64_t pitch_samples, int64_t first);

/* Enqueues the search of all blocks for peaks, and the download of the peaks. */
void gnss_acquire_finish(struct gnss_acquire *acquire);

/* Returns the result of all blocks.  gnss_acquire_finish() must have been called after the last block, and its operations
 * must have ended.  If no block has been added, or all samples are 0, all fields are 0. */
struct gnss_acquired gnss_acquire_find(const struct gnss_acquire *acquire);

/* Forgets all blocks. */
void gnss_acquire_restart(struct gnss_acquire *acquire);

/* Returns the threshold for the largest of 'n_cells' sums of 'n_powers' exponential powers of mean 1.  The largest sum
 * exceeds the threshold with a probability of at most 'false_alarm'.  A pure function. */
double gnss_acquire_threshold(uint64_t n_powers, uint64_t n_cells, double false_alarm);

#endif
