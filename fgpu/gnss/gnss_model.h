/* gnss_model.h - code and carrier of a satellite's signal as functions of the sample, and their corrections by the
 * loops.
 *
 * A model has the phases of code and carrier at 'sample', the Doppler at this sample, and the Doppler's constant rate:
 *     carrier(t) = carrier + (carrier_hz + doppler) t + rate t^2 / 2      turns, t in seconds
 *     code(t)    = code + (subchip_rate_hz + doppler subchips_per_turn) t + rate subchips_per_turn t^2 / 2
 * The carrier aids the code: both have the same Doppler.
 *
 * Exactness: phases are 128-bit integers in units of 2^-64 turns and sub-chips.  Phases never wrap.  Steps are rounded
 *            to this unit, so the error after 1e8 samples is at most 6e-12 turns and 2e-11 sub-chips.
 * Loops:     corrections are those of Kaplan and Hegarty, Understanding GPS/GNSS, 3rd ed., 8.8: the first-order loop, K
 *            = 4 B, and the third-order loop, w = B / 0.7845, a = 1.1, b = 2.4.  Each correction applies the model's
 *            error at the model's own sample, as in a Kalman filter with constant gains.
 * Threads:   pure functions on the caller's structs.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_MODEL_H
#define FGPU_GNSS_GNSS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* A signal in a baseband. */
struct fgpu_gnss_rates {
    double sample_rate_hz;
    /* frequency of the signal's carrier minus the baseband's centre frequency; |carrier_hz| < sample_rate_hz */
    double carrier_hz;
    double subchip_rate_hz;
    double subchips_per_turn; /* sub-chips per turn of the carrier */
};

struct fgpu_gnss_model {
    int64_t sample;
    __int128 carrier; /* 2^-64 turns */
    __int128 code;    /* 2^-64 sub-chips */
    double doppler_hz;
    double rate_hz_s;
};

/* These functions return the phase advance from one sample to the next, in units of 2^-64 turns or sub-chips. */
__int128 fgpu_gnss_carrier_step(const struct fgpu_gnss_rates *rates, double doppler_hz);
__int128 fgpu_gnss_code_step(const struct fgpu_gnss_rates *rates, double doppler_hz);

/* Moves a model to another sample. */
void fgpu_gnss_model_move(struct fgpu_gnss_model *model, const struct fgpu_gnss_rates *rates, int64_t sample);

/* These functions correct the model.  The error is the signal's phase or frequency minus the model's, measured over
 * 'time_s'.  A loop is stable if bandwidth_hz * time_s <= 0.1.  Stability does not depend on when a correction
 * reaches the replica, because errors are relative to the model, not to the replica.  If 'has_rate' is false, the
 * carrier's loop is of second order and does not change the rate.  Its damping is 1.14, and its bandwidth is 0.91 *
 * bandwidth_hz. */
void fgpu_gnss_model_correct_carrier(struct fgpu_gnss_model *model, double error_turns, double bandwidth_hz,
                                     double time_s, bool has_rate);
void fgpu_gnss_model_correct_doppler(struct fgpu_gnss_model *model, double error_hz, double bandwidth_hz,
                                     double time_s);
void fgpu_gnss_model_correct_code(struct fgpu_gnss_model *model, double error_subchips, double bandwidth_hz,
                                  double time_s);

#endif
