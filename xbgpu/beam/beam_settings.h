/* beam_settings.h - the present weights, delays and gain of one beam.  Requests set them, and sensors show them.
 * They are converted to steering, from which the device computes coefficients.
 *
 * A voltage beam has one value for each antenna.  A detected beam has one value for each input.  Requests for a
 * detected beam may give one value for each antenna instead, which applies to both inputs.  An incoherent beam has
 * weights of powers, which are not negative, and no delays.  An input's amplitude is its weight times the square of the
 * gain (incoherent.h).
 *
 * The phase of antenna a in channel k of the stream is, in turns,
 *     phase / 2 pi - delay (k - n_chan / 2) rate / samples_between_spectra
 * So the phase of a delay is 0 at the centre of the whole stream.  Phases are computed in double precision and stored
 * in units of 2^-63 turns.  A model with a load time has the given delays and phases at that time, and rates.  A model
 * without a load time takes effect as soon as possible.  The saved text has rows for each beam that was set:
 *
 *     capture BEAM on|off FROM
 *     gain    BEAM GAIN
 *     antenna BEAM ANTENNA WEIGHT DELAY PHASE      (one for each antenna, by name; s and rad)
 *     input   BEAM INPUT WEIGHT DELAY PHASE        (detected beams: one for each input, by label)
 *     model   BEAM NAME START DELAY RATE PHASE PHASE_RATE
 *                                                  (models with a load time, in UNIX s: one for each antenna, or
 *                                                  for each input of a detected beam)
 *
 * A 'capture' row applies to a whole stream.  So a stream of detected beams has only one 'capture' row.
 *
 * Threads:   main.   Blocking: never, except while reading the text. */
#ifndef XBGPU_BEAM_BEAM_SETTINGS_H
#define XBGPU_BEAM_BEAM_SETTINGS_H

#include "common/base/counter.h"
#include "common/engine/delay_request.h"
#include "common/telemetry/sensor.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/beam/steering.h"

#include <stdio.h>

#define XBGPU_BEAM_MAX 1e6 /* largest magnitude of a weight, and of a gain; a weight times a gain is at most 2^40 */

struct katcp_call;
struct labels;

/* Numbers for one antenna in a model, indexed by enum delay_number. */
#define XBGPU_BEAM_NUMBERS (DELAY_PHASE_RATE + 1)

struct xbgpu_beam_settings {
    const struct xbgpu_config *config;
    struct timebase timebase;
    char *name;
    const char *stream; /* name of the stream whose capture setting is saved with this beam; NULL: none */
    size_t n_ants;
    size_t n; /* number of values: n_ants; for a detected beam, the number of inputs [ant][pol] */
    struct sensors *sensors;
    double *weights; /* [n] */
    struct xbgpu_beam_starts starts;
    double (*models)[XBGPU_BEAM_NUMBERS]; /* [XBGPU_BEAM_MODELS][n]: s, s/s, rad, rad/s */
    double gain;                          /* gain before quantisation */
    bool has_seed;                        /* true if the beam is dithered, so that 'seed' has a value */
    bool is_incoherent;                   /* if true, amplitudes are at most 'max_amplitude' */
    double max_amplitude;
    bool is_set; /* true if a request has set weights, delays or gain */
    bool capture_is_set, captures;
    int64_t capture_from_samples;
    struct sensor weight, delay, quantiser_gain, dither_seed;
    struct gauge zero_weights; /* fraction of zero weights, in millionths */
};

/* Each of the two functions sets weights of 1, no delays and a gain of 1, and adds the sensors.  Both return 0 or
 * negative errno. */
int xbgpu_beam_settings_init(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config, size_t beam,
                             uint64_t seed, struct sensors *sensors);
int xbgpu_beam_settings_init_detected(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config,
                                      const struct xbgpu_config_detected *stream, size_t beam, struct sensors *sensors);

/* Frees the settings.  Zero-initialised settings are accepted. */
void xbgpu_beam_settings_fini(struct xbgpu_beam_settings *settings);

/* Each function sets values from a request's arguments, from argument 1 to the last.  If any argument is wrong, the
 * function fails the call, changes nothing, and returns false.  To make room, delay models that ended before
 * 'past_samples' may be dropped. */
bool xbgpu_beam_settings_take_weights(struct xbgpu_beam_settings *settings, struct katcp_call *call);
bool xbgpu_beam_settings_take_delays(struct xbgpu_beam_settings *settings, struct katcp_call *call,
                                     int64_t past_samples);
bool xbgpu_beam_settings_take_gain(struct xbgpu_beam_settings *settings, struct katcp_call *call);

/* Writes the steering of a model: [ant], or [pol][ant] for a detected beam. */
void xbgpu_beam_settings_steer(const struct xbgpu_beam_settings *settings, size_t model,
                               struct beam_steering *steering);

/* Sets the sensors.  The settings are in effect from timestamp 'samples' on, which is the time 'unix_ns'.  If the
 * newest model has a later load time, the settings are in effect from the load time on. */
void xbgpu_beam_settings_show(struct xbgpu_beam_settings *settings, int64_t samples, int64_t unix_ns);

/* Settings of all beams of an engine. */
struct xbgpu_beams_settings {
    struct xbgpu_beam_settings *items; /* [n] */
    size_t n;
    const struct labels *labels;
};

/* The first function returns the beam with this name.  The second function returns the beam whose saved settings
 * include the capture setting of the stream with this name.  Both return NULL if there is no such beam. */
struct xbgpu_beam_settings *xbgpu_beams_settings_find(const struct xbgpu_beams_settings *all, const char *name);
struct xbgpu_beam_settings *xbgpu_beams_settings_find_stream(const struct xbgpu_beams_settings *all, const char *name);

/* Writes the settings that requests have set.  Returns false if no request has set any.  'all' is a struct
 * xbgpu_beams_settings (state_file.h). */
bool xbgpu_beams_settings_write(FILE *text, void *all);

/* Reads the saved settings.  For each row with an unknown beam or antenna, writes a line to the log, ignores the row,
 * and sets '*whole' to false.  Returns 0, or negative errno with one sentence in 'why' if the file cannot be read. */
int xbgpu_beams_settings_read(struct xbgpu_beams_settings *all, const char *path, bool *whole, char *why,
                              size_t why_bytes);

#endif
