/* steering.h - how the worker steers and calibrates beams: from what was set to the coefficients on the device.
 *
 * Flow:      commands --set--> wanted --xbgpu_steering_begin, with an input--> staging --xbgpu_steering_make: upload,
 *            beam_coefficients--> coefficients, exponents
 * Snapshot:  all of an input has the steering and the calibration that were wanted when the input began.
 * Models:    a beam has some, in order of start.  A batch has the last one that has started by the batch's timestamp,
 *            whatever was used before; so time may jump ahead and back.  The device has all models.
 * Grid:      rates are evaluated at the centres of intervals of a fixed number of batches, counted from timestamp 0.  A
 *            new interval makes the coefficients of beams with rates, and no others.
 * Staging:   pinned memory, of inputs by turns.  An input that begins is LANE_N_INPUTS after one whose uploads have been
 *            done.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_STEERING_H
#define XBGPU_STEERING_H

#include "common/engine/lane.h"
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

/* Tables that an upload brings to the device. */
struct xbgpu_steering_tables {
    struct beam_steering *models; /* [n][XBGPU_BEAM_MODELS][ant] */
    int64_t *starts;              /* [n][XBGPU_BEAM_MODELS] in samples; of places without a model INT64_MAX */
    uint32_t *moving;             /* [n_moving] beams with rates */
    float *calibration;           /* complex [input][chan] */
};

struct xbgpu_steering {
    const struct xbgpu_layout *layout;
    struct device *device;
    size_t n;                                   /* [const] beams */
    struct beam *parameters;                    /* [const] device: [n] */
    uint32_t *slots;                            /* [const] device: [n_slots] as beamform_slots() deals beams */
    uint32_t *slot_of;                          /* [const] device: [n], the slot of a row */
    uint32_t n_slots;                           /* [const] */
    int64_t grid_batches;                       /* [const] */
    size_t n_inputs;                            /* [const] */
    struct xbgpu_beam_starts *wanted_starts;    /* [n] as set last, as all that is wanted */
    struct beam_steering *wanted;               /* [n][XBGPU_BEAM_MODELS][ant] */
    float *wanted_calibration;                  /* complex [input][chan] */
    uint8_t *is_steered;                        /* [n] since the current input began */
    uint8_t *is_calibrated;                     /* [input] since the current input began */
    bool is_changed;                            /* any of these */
    struct xbgpu_beam_starts *starts;           /* [n] of the current input */
    float *amplitudes;                          /* [n][ant] of the current input, in all models */
    uint8_t *has_rates;                         /* [n] of the current input: bit m is set if model m has rates */
    uint32_t n_moving;                          /* of the current input: beams with rates in any model */
    bool calibrates;                            /* any input was calibrated: else all gains are 1 */
    void *staging_memory[LANE_N_INPUTS];        /* [const] pinned */
    size_t turn;                                /* of the current input, in 'staging_memory' */
    void *device_memory;                        /* [const] */
    struct xbgpu_steering_tables device_tables; /* [const] in it */
    uint8_t *is_beam_due;                       /* [n] the device has other models than 'staging' */
    uint8_t *is_input_due;                      /* [input] the device has another calibration than 'staging' */
    bool is_due;                                /* any of these */
    int16_t *coefficients;                      /* device */
    int8_t *fragments;                          /* device: beam_fragments.h; NULL: the device is the host */
    int32_t *exponents;                         /* device */
    int64_t made_from, made_until;              /* batches whose models the coefficients have */
    bool moves;                                 /* any of these models has rates */
    int64_t made_interval;                      /* of the grid */
    struct device_kernel *kernel;
};

/* Weights of 1, no delays and gains of 1, for zeros.  'parameters' [n_beams] are copied to the device.  Returns 0 or
 * negative errno; fini follows in either case. */
int xbgpu_steering_init(struct xbgpu_steering *steering, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout, struct device *device, const struct beam *parameters,
                        size_t n_beams);

/* The device must be idle.  Zeros are accepted. */
void xbgpu_steering_fini(struct xbgpu_steering *steering);

/* Adds all that the steering of 'n_beams' takes. */
void xbgpu_steering_add_memory(struct xbgpu_layout *layout, size_t n_beams, bool on_gpu);

/* Bytes of the gains of all inputs. */
size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout);

/* Batches of an interval of the grid. */
int64_t xbgpu_grid_batches(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Points a beam by a model that starts at 'start_samples': values [ant].  All models take their amplitudes. */
void xbgpu_steering_set(struct xbgpu_steering *steering, size_t beam, int64_t start_samples,
                        const struct beam_steering *values);

/* Calibrates an input: gains complex [chan]. */
void xbgpu_steering_calibrate(struct xbgpu_steering *steering, size_t input, const float *gains);

/* A new input. */
void xbgpu_steering_begin(struct xbgpu_steering *steering);

/* Queues the coefficients of batch 'batch' where they are due, after all that uses the old ones.  Returns the batch, 'end' at
 * most, from which on others are due. */
int64_t xbgpu_steering_make(struct xbgpu_steering *steering, struct device_stream *compute, int64_t batch, int64_t end);

#endif
