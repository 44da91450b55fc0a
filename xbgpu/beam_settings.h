/* beam_settings.h - weights, delays and gain of one beam as they were set last: their arguments, their sensors, and the
 * steering that the device makes coefficients of.
 *
 * The phase of antenna a in channel k of the stream is, in turns,
 *     phase / 2 pi - delay (k - n_chan / 2) rate / samples_between_spectra
 * so a delay is relative to the centre of the whole stream.  Phases are computed in double precision and kept to
 * 2^-63 turns.
 * Threads: main.   Blocking: never. */
#ifndef XBGPU_BEAM_SETTINGS_H
#define XBGPU_BEAM_SETTINGS_H

#include "common/telemetry/sensor.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/layout.h"

#define XBGPU_BEAM_MAX 1e6 /* the largest magnitude of a weight and of a gain; their product is at most 2^40 */

struct katcp_call;

struct xbgpu_beam_settings {
    const struct xbgpu_config *config;
    const char *name;
    size_t n_ants;
    struct sensors *sensors;
    double *weights;    /* [ant] */
    double *delays_s;   /* [ant] */
    double *phases_rad; /* [ant] */
    double gain;        /* the quantiser's */
    struct sensor weight, delay, quantiser_gain, dither_seed;
};

/* Weights of 1, no delays, gain 1; and the sensors.  Returns 0 or negative errno. */
int xbgpu_beam_settings_init(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config, size_t beam,
                             uint64_t seed, struct sensors *sensors);

/* Zeros are accepted. */
void xbgpu_beam_settings_fini(struct xbgpu_beam_settings *settings);

/* Take the arguments of a request from argument 1 on, all or none.  They return false having failed the call. */
bool xbgpu_beam_settings_take_weights(struct xbgpu_beam_settings *settings, struct katcp_call *call);
bool xbgpu_beam_settings_take_delays(struct xbgpu_beam_settings *settings, struct katcp_call *call);
bool xbgpu_beam_settings_take_gain(struct xbgpu_beam_settings *settings, struct katcp_call *call);

/* Writes [ant]. */
void xbgpu_beam_settings_steer(const struct xbgpu_beam_settings *settings, struct beam_steering *steering);

/* Sets the sensors: what is set holds from 'samples' on, at 'unix_ns'. */
void xbgpu_beam_settings_show(struct xbgpu_beam_settings *settings, int64_t samples, int64_t unix_ns);

#endif
