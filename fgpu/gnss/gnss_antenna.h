/* gnss_antenna.h - one antenna's part of a satellite that several antennas follow: the antenna's delay, phase and C/N0,
 * measured against the aligned sum.
 *
 * For gnss_align.c only.  gnss_align.h is the interface for other files, and describes the method.
 * Threads:   pure functions on the caller's structs.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_ANTENNA_H
#define FGPU_GNSS_GNSS_ANTENNA_H

#include "fgpu/gnss/gnss_align.h"

#include <math.h>

/* An integration that has ended, as all antennas need it. */
struct gnss_align_ended {
    uint32_t integration;
    const struct fgpu_gnss_integration *of;
    double rotor[2];         /* turns sums from the replica's phase to the model's phase */
    double replica_subchips; /* replica's code phase minus the model's code phase */
    double share[N_POLS];    /* sum over the antennas */
};

static inline void gnss_multiply(const double a[2], const double b[2], double product[2])
{
    const double re = a[0] * b[0] - a[1] * b[1], im = a[0] * b[1] + a[1] * b[0];

    product[0] = re;
    product[1] = im;
}

static inline void gnss_set_rotor(double turns, double rotor[2])
{
    rotor[0] = cos(2 * M_PI * turns);
    rotor[1] = sin(2 * M_PI * turns);
}

/* Returns the number of sub-chips of a sample. */
static inline double gnss_align_step_subchips(const struct fgpu_gnss_track *track)
{
    const struct fgpu_gnss_rates *rates = &track->rates;

    return (rates->subchip_rate_hz + track->model.doppler_hz * rates->subchips_per_turn) / rates->sample_rate_hz;
}

static inline double gnss_align_seconds(const struct fgpu_gnss_align *align, double n_samples)
{
    return n_samples / align->track.rates.sample_rate_hz;
}

/* Returns true if a polarisation has a weight in the aligned sum. */
static inline bool gnss_antenna_is_aligned(const struct fgpu_gnss_antenna *a)
{
    return a->is_used[0] || a->is_used[1];
}

/* Begins to follow an antenna.  Keeps the counters. */
void gnss_antenna_begin(struct fgpu_gnss_antenna *a);

/* These functions return the power of the signal, the power divided by the noise, and C/N0; -INFINITY if no data have
 * arrived. */
double gnss_antenna_signal(const struct fgpu_gnss_antenna *a, size_t pol);
double gnss_antenna_snr(const struct fgpu_gnss_antenna *a, size_t pol);
double gnss_antenna_cn0_db_hz(const struct fgpu_gnss_antenna *a, size_t pol);

/* Adds a piece to the antenna's part of the integration.  A piece that was made before the antenna joined may have an
 * offset far from the delay; such a piece counts as missing. */
void gnss_antenna_add_part(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                           const struct fgpu_gnss_piece_pending *piece, const struct fgpu_gnss_part *part);

/* Returns the number of the antenna's present samples in an integration. */
uint32_t gnss_antenna_n_present(const struct fgpu_gnss_antenna *a, const struct gnss_align_ended *e);

/* Updates the means of powers and the open block with an integration. */
void gnss_antenna_measure(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                          const struct gnss_align_ended *e);

/* Returns true if the open block has enough data. */
bool gnss_antenna_has_block(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a);

/* Returns the signal's delay minus the antenna's delay, as the open block measures it, relative to the model.  Call
 * this function once for each block. */
double gnss_antenna_late_subchips(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a);

/* Returns true if the antenna's delay is outside the permitted range of offsets. */
bool gnss_antenna_is_late(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a);

/* Corrects delay, offset, phases and rate with the open block.  The reference antenna's late_subchips contain the model's
 * error, and are subtracted. */
void gnss_antenna_close_block(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                              double reference_subchips);

#endif
