/* steering.h - the worker's steering and calibration of beams: converts settings to coefficients on the device.
 *
 * Flow:      commands --set--> wanted --xbgpu_steering_begin, with an input--> staging --xbgpu_steering_make: upload,
 *            beam_coefficients--> coefficients, exponents
 * Snapshot:  all batches of a device input use the steering and the calibration that were in the 'wanted' fields when
 *            the device input began.
 * Models:    a beam has several models in order of start.  A batch uses the last model that has started by the batch's
 *            timestamp, regardless of the models used before.  So timestamps may jump ahead and back.  The device has
 *            all models.
 * Grid:      rates are evaluated at the centres of intervals of a fixed number of batches, counted from timestamp 0.  A
 *            new interval makes new coefficients only for beams with rates.
 * Staging:   pinned memory, one buffer for each of LANE_N_INPUTS inputs in rotation.  When a device input begins, the
 *            uploads that last used the same buffer have ended.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_BEAM_STEERING_H
#define XBGPU_BEAM_STEERING_H

#include "common/engine/lane.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/config/layout.h"

#include <stdbool.h>

struct memory_use;

#define XBGPU_BEAM_MODELS 8 /* maximum number of models of a beam; the first model has no load time */

/* Starts of models in samples, in order.  The first model is in effect at all times before the start of the second
 * model. */
struct xbgpu_beam_starts {
    size_t n;
    int64_t samples[XBGPU_BEAM_MODELS];
};

#define XBGPU_BEAM_ALWAYS (-1) /* start of the first model; earlier than all timestamps */

/* Returns whether there is room for a model that starts at 'samples', if models that ended before 'past_samples' can be
 * dropped. */
bool xbgpu_beam_starts_has_room(const struct xbgpu_beam_starts *starts, int64_t samples, int64_t past_samples);

/* Makes room for a model that starts at 'samples', and returns its index.  Models that start at 'samples' or later are
 * dropped.  If no entry is free after that, the oldest model with a load time is dropped, '*forgets' becomes true, and
 * all later models move down by one index. */
size_t xbgpu_beam_starts_add(struct xbgpu_beam_starts *starts, int64_t samples, bool *forgets);

/* Returns the index of the model in effect at 'samples'. */
size_t xbgpu_beam_starts_find(const struct xbgpu_beam_starts *starts, int64_t samples);

/* Tables that an upload copies to the device. */
struct xbgpu_steering_tables {
    struct beam_steering *models; /* [n][XBGPU_BEAM_MODELS][ant] */
    int64_t *starts;              /* [n][XBGPU_BEAM_MODELS] in samples; INT64_MAX in unused entries */
    uint32_t *moving;             /* [n_moving] beams with rates */
    float *calibration;           /* complex [input][chan] */
};

struct xbgpu_steering {
    const struct xbgpu_layout *layout;
    struct device *device;
    size_t n;                                   /* [const] number of beams */
    struct beam *parameters;                    /* [const] device: [n] */
    uint32_t *slots;                            /* [const] device: [n_slots] beams in the order of beamform_slots() */
    uint32_t *slot_of;                          /* [const] device: [n] slot of each beam */
    uint32_t n_slots;                           /* [const] */
    int64_t grid_batches;                       /* [const] */
    size_t n_inputs;                            /* [const] */
    struct xbgpu_beam_starts *wanted_starts;    /* [n] the fields 'wanted...' contain settings for the next device
                                                 * input */
    struct beam_steering *wanted;               /* [n][XBGPU_BEAM_MODELS][ant] */
    float *wanted_calibration;                  /* complex [input][chan] */
    uint8_t *is_steered;                        /* [n] 1 if steered after the current device input began */
    uint8_t *is_calibrated;                     /* [input] 1 if the input was calibrated after the current device
                                                 * input began */
    bool is_changed;                            /* true if is_steered or is_calibrated has a 1 */
    struct xbgpu_beam_starts *starts;           /* [n] starts of models of the current device input */
    float *amplitudes;                          /* [n][ant] for the current device input; the same for all models */
    uint8_t *has_rates;                         /* [n] bit m: model m of the current device input has rates */
    uint32_t n_moving;                          /* number of beams with a model that has rates, for the current device
                                                 * input */
    bool calibrates;                            /* true if an input was calibrated; else all gains are 1 */
    void *staging_memory[LANE_N_INPUTS];        /* [const] pinned */
    size_t turn;                                /* index of the current device input in 'staging_memory' */
    void *device_memory;                        /* [const] */
    struct xbgpu_steering_tables device_tables; /* [const] tables in device_memory */
    uint8_t *is_beam_due;                       /* [n] 1 if the device has older models than 'staging' */
    uint8_t *is_input_due;                      /* [input] 1 if the device has an older calibration than 'staging' */
    bool is_due;                                /* true if an upload is due for a beam or input */
    int16_t *coefficients;                      /* device */
    int8_t *fragments;                          /* device: laid out as in beam_fragments.h; NULL on a cpu device */
    int32_t *exponents;                         /* device */
    int64_t made_from, made_until;              /* range of batches in which the coefficients' models are in effect */
    bool moves;                                 /* true if at least one model of the coefficients has rates */
    int64_t made_interval;                      /* grid interval for which the coefficients were computed */
    struct device_kernel *kernel;
};

/* Initialises a zeroed struct with weights of 1, no delays and gains of 1, and copies 'parameters' [n_beams] to the
 * device.  Returns 0 or negative errno; the caller must call fini in either case. */
int xbgpu_steering_init(struct xbgpu_steering *steering, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout, struct device *device, const struct beam *parameters,
                        size_t n_beams);

/* Frees the steering.  The device must be idle.  A zero-initialised struct is accepted. */
void xbgpu_steering_fini(struct xbgpu_steering *steering);

/* Adds the memory of the steering of 'n_beams' beams to 'memory'. */
void xbgpu_steering_add_memory(const struct xbgpu_layout *layout, size_t n_beams, bool on_gpu,
                               struct memory_use *memory);

/* Returns the size in bytes of the gains of all inputs. */
size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout);

/* Returns the number of batches in an interval of the grid. */
int64_t xbgpu_grid_batches(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Steers a beam with the model 'values' [ant], which starts at 'start_samples'.  All models of the beam get the
 * amplitudes in 'values'. */
void xbgpu_steering_set(struct xbgpu_steering *steering, size_t beam, int64_t start_samples,
                        const struct beam_steering *values);

/* Sets the calibration gains of an antenna's input.  'gains' is complex [chan]. */
void xbgpu_steering_calibrate(struct xbgpu_steering *steering, size_t input, const float *gains);

/* Begins an input. */
void xbgpu_steering_begin(struct xbgpu_steering *steering);

/* Queues the computation of new coefficients for 'batch' if they are due.  The kernel runs after all queued work that
 * uses the old coefficients.  Returns the first batch that needs other coefficients, but at most 'end'. */
int64_t xbgpu_steering_make(struct xbgpu_steering *steering, struct device_stream *compute, int64_t batch, int64_t end);

#endif
