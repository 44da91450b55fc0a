/* steering.h - how the worker steers and calibrates beams: from what was set to the coefficients on the device.
 *
 * Flow:      commands --set--> wanted --xbgpu_steering_begin, with an input--> current
 *            --xbgpu_steering_choose: models of some batches--> xbgpu_steering_make: a copy in the output buffer, upload,
 *            beam_coefficients--> coefficients, exponents
 * Snapshot:  all of an input has the steering and the calibration that were wanted when the input began.
 * Models:    a beam has some, in order of start.  A batch has the last one that has started by the batch's timestamp,
 *            whatever was chosen before; so time may jump ahead and back.
 * Grid:      rates are evaluated at the centres of intervals of a fixed number of batches, counted from timestamp 0.  A
 *            new interval makes the coefficients of beams with rates, and no others.
 * Staging:   pinned memory of an output buffer, which nobody writes until its uploads have been done.  So batches whose
 *            models differ have different output buffers.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_STEERING_H
#define XBGPU_STEERING_H

#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/layout.h"

#include <stdbool.h>

#define XBGPU_BEAM_MODELS 8 /* of a beam: one that has always held, and those with a load time */

/* When models start, in samples and in order; the first one has always held. */
struct xbgpu_beam_starts {
    size_t n;
    int64_t samples[XBGPU_BEAM_MODELS];
};

#define XBGPU_BEAM_ALWAYS (-1) /* the start of the first model */

/* Whether a model that starts at 'samples' finds room, where models that ended before 'past_samples' can be forgotten. */
bool xbgpu_beam_starts_has_room(const struct xbgpu_beam_starts *starts, int64_t samples, int64_t past_samples);

/* Makes room for a model that starts at 'samples': those that start then or later go.  Else, if all places are taken, the
 * oldest one with a load time goes: '*forgets', and those behind it move up.  Returns the model's place. */
size_t xbgpu_beam_starts_add(struct xbgpu_beam_starts *starts, int64_t samples, bool *forgets);

/* The place of the model that holds at 'samples'. */
size_t xbgpu_beam_starts_find(const struct xbgpu_beam_starts *starts, int64_t samples);

/* All beams' models. */
struct xbgpu_beam_models {
    struct xbgpu_beam_starts *starts; /* [n] */
    struct beam_steering *rows;       /* [n][XBGPU_BEAM_MODELS][ant] */
};

struct xbgpu_steering {
    const struct xbgpu_layout *layout;
    struct device *device;
    size_t n;                         /* [const] beams */
    const struct beam *parameters;    /* [const] device: [n] */
    int64_t grid_batches;             /* [const] */
    struct xbgpu_beam_models wanted;  /* as set last */
    struct xbgpu_beam_models current; /* of the current input */
    size_t *chosen;                   /* [n] model of 'current' */
    struct beam_steering *device_steering;
    uint32_t *device_moving; /* [n_moving] beams with rates */
    uint32_t n_moving;       /* on the device */
    int16_t *coefficients;   /* device */
    int32_t *exponents;      /* device */
    size_t n_inputs;
    float *wanted_calibration; /* complex [input][chan] as set last */
    float *calibration;        /* complex [input][chan] of the current input */
    float *device_calibration;
    uint8_t *is_calibrated; /* [input] 'wanted_calibration' was set since the current input began */
    uint8_t *is_due;        /* [input] the device has another calibration */
    uint8_t *is_steered;    /* [n] 'wanted' was set since the current input began */
    bool calibrates;        /* any input was calibrated: else all gains are 1 */
    bool is_changed;        /* anything wanted was set since the current input began */
    bool is_made;           /* the coefficients are those of 'chosen' */
    int64_t made_interval;  /* of the grid */
    struct device_kernel *kernel;
};

/* Weights of 1, no delays and gains of 1, for zeros.  'parameters' are the device's.  Returns 0 or negative errno; fini
 * follows in either case. */
int xbgpu_steering_init(struct xbgpu_steering *steering, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout, struct device *device, const struct beam *parameters);

/* The device must be idle.  Zeros are accepted. */
void xbgpu_steering_fini(struct xbgpu_steering *steering);

/* Bytes of a buffer's staging. */
size_t xbgpu_steering_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Bytes of all beams' models. */
size_t xbgpu_beam_models_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Bytes of the gains of all inputs. */
size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout);

/* Batches of an interval of the grid. */
int64_t xbgpu_grid_batches(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Points a beam by a model that starts at 'start_samples': values [ant], of which all models take the amplitudes. */
void xbgpu_steering_set(struct xbgpu_steering *steering, size_t beam, int64_t start_samples,
                        const struct beam_steering *values);

/* Calibrates an input: gains complex [chan]. */
void xbgpu_steering_calibrate(struct xbgpu_steering *steering, size_t input, const float *gains);

/* A new input. */
void xbgpu_steering_begin(struct xbgpu_steering *steering);

/* Chooses the models of batch 'batch'.  Returns the batch, 'end' at most, from which on another one holds. */
int64_t xbgpu_steering_choose(struct xbgpu_steering *steering, int64_t batch, int64_t end);

/* The chosen model of a beam: [ant]. */
const struct beam_steering *xbgpu_steering_chosen(const struct xbgpu_steering *steering, size_t beam);

/* Queues the coefficients of batch 'batch' where they are due, after all that uses the old ones.  Returns the batch, 'end' at
 * most, from which on others are due; until it, 'staging' serves all calls. */
int64_t xbgpu_steering_make(struct xbgpu_steering *steering, struct device_stream *compute, void *staging,
                            int64_t batch, int64_t end);

#endif
