/* gnss_model.c - the arithmetic that gnss_track.c uses. */
#include "fgpu/gnss/gnss_model.h"

#include <math.h>

#define UNITS 0x1p64L /* units per turn or sub-chip */

static __int128 units_of(long double value)
{
    return (__int128)rintl(value * UNITS);
}

__int128 fgpu_gnss_carrier_step(const struct fgpu_gnss_rates *rates, double doppler_hz)
{
    return units_of(((long double)rates->carrier_hz + doppler_hz) / rates->sample_rate_hz);
}

__int128 fgpu_gnss_code_step(const struct fgpu_gnss_rates *rates, double doppler_hz)
{
    long double rate_hz = rates->subchip_rate_hz + (long double)doppler_hz * rates->subchips_per_turn;

    return units_of(rate_hz / rates->sample_rate_hz);
}

void fgpu_gnss_model_move(struct fgpu_gnss_model *model, const struct fgpu_gnss_rates *rates, int64_t sample)
{
    const int64_t n_samples = sample - model->sample;
    const double time_s = (double)n_samples / rates->sample_rate_hz;
    const long double bend_turns = 0.5L * model->rate_hz_s * time_s * time_s;

    model->carrier += n_samples * fgpu_gnss_carrier_step(rates, model->doppler_hz) + units_of(bend_turns);
    model->code +=
        n_samples * fgpu_gnss_code_step(rates, model->doppler_hz) + units_of(bend_turns * rates->subchips_per_turn);
    model->doppler_hz += model->rate_hz_s * time_s;
    model->sample = sample;
}

void fgpu_gnss_model_correct_carrier(struct fgpu_gnss_model *model, double error_turns, double bandwidth_hz,
                                     double time_s, bool has_rate)
{
    const double w = bandwidth_hz / 0.7845;

    model->carrier += units_of(2.4 * w * time_s * error_turns);
    model->doppler_hz += 1.1 * w * w * time_s * error_turns;
    model->rate_hz_s += has_rate ? w * w * w * time_s * error_turns : 0;
}

void fgpu_gnss_model_correct_doppler(struct fgpu_gnss_model *model, double error_hz, double bandwidth_hz, double time_s)
{
    model->doppler_hz += 4 * bandwidth_hz * time_s * error_hz;
}

void fgpu_gnss_model_correct_code(struct fgpu_gnss_model *model, double error_subchips, double bandwidth_hz,
                                  double time_s)
{
    model->code += units_of(4 * bandwidth_hz * time_s * error_subchips);
}
