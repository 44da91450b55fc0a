/* steering.c - between commands for beams and the kernel beamform. */
#include "xbgpu/steering.h"

#include "common/base/units.h"
#include "common/device/device.h"
#include "kernels/beamform/beamform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t xbgpu_steering_bytes(const struct xbgpu_layout *layout, size_t n_beams)
{
    return n_beams * layout->n_ants * sizeof(struct beam_steering) + xbgpu_calibration_bytes(layout);
}

size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout)
{
    return layout->n_ants * N_POLS * layout->n_chan * 2 * sizeof(float);
}

void xbgpu_steering_set(struct xbgpu_steering *s, size_t beam, const struct beam_steering *values)
{
    size_t n_ants = s->layout->n_ants;

    memcpy(s->wanted + beam * n_ants, values, n_ants * sizeof(*values));
    s->is_changed = true;
}

void xbgpu_steering_calibrate(struct xbgpu_steering *s, size_t input, const float *gains)
{
    size_t row = s->layout->n_chan * 2;

    memcpy(s->wanted_calibration + input * row, gains, row * sizeof(*gains));
    s->is_calibrated[input] = true;
    s->is_changed = true;
}

void xbgpu_steering_begin(struct xbgpu_steering *s)
{
    size_t row = s->layout->n_chan * 2;

    if (!s->is_changed)
        return;
    memcpy(s->current, s->wanted, s->n * s->layout->n_ants * sizeof(*s->wanted));
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (!s->is_calibrated[i])
            continue;
        memcpy(s->calibration + i * row, s->wanted_calibration + i * row, row * sizeof(*s->calibration));
        s->is_calibrated[i] = false;
        s->is_due[i] = true;
        s->calibrates = true;
    }
    s->is_changed = false;
    s->is_made = false;
}

/* Queues the copies of the inputs that are due, those of neighbours as one. */
static void copy_calibration(struct xbgpu_steering *s, struct device_stream *compute, float *staging)
{
    size_t row = s->layout->n_chan * 2, end;

    for (size_t i = 0; i < s->n_inputs; i = end + 1) {
        for (end = i; end < s->n_inputs && s->is_due[end]; end++)
            s->is_due[end] = false;
        if (end == i)
            continue;
        memcpy(staging + i * row, s->calibration + i * row, (end - i) * row * sizeof(*staging));
        device_copy(compute, s->device_calibration + i * row, staging + i * row, (end - i) * row * sizeof(*staging));
    }
}

void xbgpu_steering_make(struct xbgpu_steering *s, struct device_stream *compute, void *staging)
{
    const struct xbgpu_layout *l = s->layout;
    size_t bytes = s->n * l->n_ants * sizeof(*s->current);
    const struct beam_coefficients_args args = {
        .steering = s->device_steering,
        .beams = s->parameters,
        .calibration = s->calibrates ? s->device_calibration : NULL,
        .coefficients = s->coefficients,
        .exponents = s->exponents,
        .n_beams = (uint32_t)s->n,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
    };
    struct kernel_grid grid = beam_coefficients_grid(&args);

    if (s->is_made)
        return;
    memcpy(staging, s->current, bytes);
    device_copy(compute, s->device_steering, staging, bytes);
    if (s->calibrates)
        copy_calibration(s, compute, (float *)((char *)staging + bytes));
    device_launch(compute, s->kernel, &grid, &args);
    s->is_made = true;
}

/* Copies what never changes to new memory of the device. */
static int upload(struct device *device, const void *from, size_t bytes, void **to)
{
    void *pinned = device_alloc_pinned(device, bytes);
    int err = -ENOMEM;

    *to = device_alloc(device, bytes);
    if (pinned && *to) {
        memcpy(pinned, from, bytes);
        err = device_upload(device, *to, pinned, bytes);
    }
    device_free_pinned(device, pinned);
    return err;
}

static int create_slots(struct xbgpu_steering *s, const struct beam *parameters)
{
    size_t most_bytes = beamform_max_slots((uint32_t)s->n) * sizeof(*s->slots);
    uint32_t *slots = calloc(1, most_bytes);

    if (!slots)
        return -ENOMEM;
    s->n_slots = beamform_slots(parameters, (uint32_t)s->n, slots);
    int err = upload(s->device, slots, most_bytes, (void **)&s->slots);
    free(slots);
    return err;
}

int xbgpu_steering_init(struct xbgpu_steering *s, const struct xbgpu_layout *l, struct device *device,
                        const struct beam *parameters, size_t n_beams)
{
    size_t n = n_beams * l->n_ants;

    *s = (struct xbgpu_steering){
        .layout = l,
        .device = device,
        .n = n_beams,
        .wanted = calloc(n, sizeof(*s->wanted)),
        .current = calloc(n, sizeof(*s->current)),
        .device_steering = device_alloc(device, n * sizeof(*s->current)),
        .coefficients = device_alloc(device, l->n_chan * n * 2 * sizeof(*s->coefficients)),
        .exponents = device_alloc(device, l->n_chan * n_beams * sizeof(*s->exponents)),
        .n_inputs = l->n_ants * N_POLS,
        .wanted_calibration = calloc(1, xbgpu_calibration_bytes(l)),
        .calibration = calloc(1, xbgpu_calibration_bytes(l)),
        .device_calibration = device_alloc(device, xbgpu_calibration_bytes(l)),
        .is_calibrated = calloc(l->n_ants, N_POLS),
        .is_due = calloc(l->n_ants, N_POLS),
        .is_changed = true,
    };
    if (!s->wanted || !s->current || !s->device_steering || !s->coefficients || !s->exponents ||
        !s->wanted_calibration || !s->calibration || !s->device_calibration || !s->is_calibrated || !s->is_due)
        return -ENOMEM;
    memset(s->is_due, true, s->n_inputs);
    for (size_t i = 0; i < s->n_inputs * l->n_chan; i++)
        s->calibration[2 * i] = 1;
    for (size_t i = 0; i < n; i++)
        s->wanted[i].amplitude = 1;
    int err = upload(device, parameters, n_beams * sizeof(*parameters), (void **)&s->parameters);
    if (!err)
        err = create_slots(s, parameters);
    return err ? err : device_kernel_create(device, &beam_coefficients_kernel, NULL, 0, &s->kernel);
}

void xbgpu_steering_fini(struct xbgpu_steering *s)
{
    device_kernel_destroy(s->kernel);
    device_free(s->device, s->parameters);
    device_free(s->device, s->slots);
    device_free(s->device, s->device_steering);
    device_free(s->device, s->coefficients);
    device_free(s->device, s->exponents);
    device_free(s->device, s->device_calibration);
    free(s->wanted_calibration);
    free(s->calibration);
    free(s->is_calibrated);
    free(s->is_due);
    free(s->wanted);
    free(s->current);
}
