/* gnss_lock.h - C/N0 of one polarisation and whether code and carrier are locked, from prompt sums.
 *
 * C/N0:      from the second and fourth moments of |P| ("M2M4": Pauluzzi and Beaulieu, A comparison of SNR estimation
 *            techniques for the AWGN channel, IEEE Trans. Commun. 48(10), 2000).  A signal of constant power S in
 *            complex Gaussian noise of power N has M2 = S + N and M4 = S^2 + 4 S N + 2 N^2, so S = sqrt(2 M2^2 - M4).
 *            Data, secondary codes and the carrier's phase do not matter, so it holds before any of them is known.
 * Carrier:   the mean of I^2 - Q^2 over that of I^2 + Q^2, about cos(2 phase error) S / (S + N) (Van Dierendonck, GPS
 *            Receivers, in Parkinson and Spilker, Global Positioning System, vol. 1, 8).  It is 0 without a signal.
 * Means:     exponential, over 0.5 s of data and over 0.3 s; at first those of all sums so far.
 * Gaps:      a sum over part of an integration is scaled so that its noise is that of a whole one.  So its signal's
 *            power is in proportion to its time of data, the mean of which C/N0 takes.  Unequal times of data look like
 *            noise: 3 of 10 samples missing, in runs of 80 us, lower C/N0 by 0.5 dB.
 * Threads:   pure functions on the caller's struct.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_LOCK_H
#define FGPU_GNSS_LOCK_H

struct fgpu_gnss_lock {
    double seconds;         /* in the moments, at most their time constant */
    double m2, m4;          /* of |P| */
    double data_s;          /* mean time of data in a sum */
    double carrier_seconds; /* in the two below */
    double difference, sum; /* of I^2 and Q^2 */
};

void fgpu_gnss_lock_init(struct fgpu_gnss_lock *lock);

/* Adds a prompt sum over 'data_s' of data. */
void fgpu_gnss_lock_add_power(struct fgpu_gnss_lock *lock, double re, double im, double data_s);

/* Adds it to the carrier's indicator; 're' is along the carrier's phase. */
void fgpu_gnss_lock_add_phase(struct fgpu_gnss_lock *lock, double re, double im, double data_s);

/* C/N0 in dB-Hz; -INFINITY where the moments show no signal. */
double fgpu_gnss_lock_cn0_db_hz(const struct fgpu_gnss_lock *lock);

/* The carrier's indicator, -1 to 1. */
double fgpu_gnss_lock_carrier(const struct fgpu_gnss_lock *lock);

#endif
