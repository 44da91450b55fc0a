/* steering.h - how the worker steers and calibrates beams: from what was set to the coefficients on the device.
 *
 * Flow:      commands --set--> wanted --xbgpu_steering_begin, with an input--> current
 *            --xbgpu_steering_make: a copy in the output buffer, upload, beam_coefficients--> coefficients, exponents
 * Snapshot:  all of an input has the steering and the calibration that were wanted when the input began.
 * Staging:   pinned memory of an output buffer, which nobody writes until its uploads have been done.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_STEERING_H
#define XBGPU_STEERING_H

#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/layout.h"

#include <stdbool.h>

struct xbgpu_steering {
    const struct xbgpu_layout *layout;
    struct device *device;
    size_t n;                      /* [const] beams */
    struct beam *parameters;       /* [const] device: [n] */
    uint32_t *slots;               /* [const] device: [n_slots] as beamform_slots() deals beams */
    uint32_t n_slots;              /* [const] */
    struct beam_steering *wanted;  /* [n][ant] as set last */
    struct beam_steering *current; /* [n][ant] of the current input */
    struct beam_steering *device_steering;
    int16_t *coefficients; /* device */
    int32_t *exponents;    /* device */
    size_t n_inputs;
    float *wanted_calibration; /* complex [input][chan] as set last */
    float *calibration;        /* complex [input][chan] of the current input */
    float *device_calibration;
    uint8_t *is_calibrated; /* [input] 'wanted_calibration' was set since the current input began */
    uint8_t *is_due;        /* [input] the device has another calibration */
    bool calibrates;        /* any input was calibrated: else all gains are 1 */
    bool is_changed;        /* anything wanted was set since the current input began */
    bool is_made;           /* the coefficients are those of 'current' */
    struct device_kernel *kernel;
};

/* Weights of 1, no delays and gains of 1, for zeros.  'parameters' [n_beams] are copied to the device.  Returns 0 or
 * negative errno; fini follows in either case. */
int xbgpu_steering_init(struct xbgpu_steering *steering, const struct xbgpu_layout *layout, struct device *device,
                        const struct beam *parameters, size_t n_beams);

/* The device must be idle.  Zeros are accepted. */
void xbgpu_steering_fini(struct xbgpu_steering *steering);

/* Bytes of a buffer's staging. */
size_t xbgpu_steering_bytes(const struct xbgpu_layout *layout, size_t n_beams);

/* Bytes of the gains of all inputs. */
size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout);

/* Points a beam: values [ant]. */
void xbgpu_steering_set(struct xbgpu_steering *steering, size_t beam, const struct beam_steering *values);

/* Calibrates an input: gains complex [chan]. */
void xbgpu_steering_calibrate(struct xbgpu_steering *steering, size_t input, const float *gains);

/* A new input. */
void xbgpu_steering_begin(struct xbgpu_steering *steering);

/* Queues new coefficients where they are due, after all that uses the old ones. */
void xbgpu_steering_make(struct xbgpu_steering *steering, struct device_stream *compute, void *staging);

#endif
