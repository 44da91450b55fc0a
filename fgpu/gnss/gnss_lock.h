/* gnss_lock.h - C/N0 of one polarisation and the lock of code and carrier, from prompt sums.
 *
 * C/N0:      computed from the second and fourth moments of |P| ("M2M4": Pauluzzi and Beaulieu, A comparison of SNR
 *            estimation techniques for the AWGN channel, IEEE Trans. Commun. 48(10), 2000).  A signal of constant power
 *            S in complex Gaussian noise of power N has M2 = S + N and M4 = S^2 + 4 S N + 2 N^2.  So
 *            S = sqrt(2 M2^2 - M4).  The moments do not depend on data, secondary codes or the carrier's
 *            phase.  So C/N0 is valid before data, codes and phase are known.
 * Carrier:   the indicator is the mean of I^2 - Q^2 divided by the mean of I^2 + Q^2.  The indicator is about
 *            cos(2 phase error) S / (S + N) (Van Dierendonck, GPS Receivers, in Parkinson and Spilker, Global
 *            Positioning System, vol. 1, 8).  The indicator is 0 without a signal.  A sum of exactly 0 has neither
 *            signal nor noise.  The mean of I^2 + Q^2 then keeps its value, so that the indicator falls.
 * Means:     exponential means, with time constants of 0.5 s of data for C/N0 and 0.3 s for the carrier.  Before a time
 *            constant has passed, all sums so far have the same weight.
 * Gaps:      a sum over part of an integration is scaled, so that its noise is the noise of a whole integration.
 *            The signal's power in the sum is then proportional to the duration of the data in the sum.  C/N0 uses the
 *            mean duration.  If the durations of the sums differ, the differences look like noise.  If 3 of 10
 *            samples are missing, in runs of 80 us, the computed C/N0 is 0.5 dB too low.
 * Threads:   pure functions on the caller's struct.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_LOCK_H
#define FGPU_GNSS_GNSS_LOCK_H

struct fgpu_gnss_lock {
    double seconds;         /* seconds of data that m2 and m4 cover, at most the time constant */
    double m2, m4;          /* second and fourth moment of |P| */
    double data_s;          /* mean number of seconds of data in a sum */
    double carrier_seconds; /* seconds of data in 'difference' and 'sum', at most their time constant */
    double difference, sum; /* means of I^2 - Q^2 and I^2 + Q^2 */
};

void fgpu_gnss_lock_init(struct fgpu_gnss_lock *lock);

/* Adds the power of a prompt sum to the moments.  The sum covers 'data_s' seconds of data. */
void fgpu_gnss_lock_add_power(struct fgpu_gnss_lock *lock, double re, double im, double data_s);

/* Adds a prompt sum to the carrier's indicator.  're' is the component in phase with the carrier. */
void fgpu_gnss_lock_add_phase(struct fgpu_gnss_lock *lock, double re, double im, double data_s);

/* Returns C/N0 in dB-Hz; -INFINITY if the moments show no signal. */
double fgpu_gnss_lock_cn0_db_hz(const struct fgpu_gnss_lock *lock);

/* Returns the carrier's indicator, -1 to 1. */
double fgpu_gnss_lock_carrier(const struct fgpu_gnss_lock *lock);

#endif
