/* steering.c - between commands for beams and the kernel beamform. */
#include "xbgpu/steering.h"

#include "common/base/units.h"
#include "common/device/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRID_S 0.01 /* docs/beams.md has the arithmetic */

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

size_t xbgpu_steering_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    return config->beams.n * (layout->n_ants * sizeof(struct beam_steering) + sizeof(uint32_t)) +
           xbgpu_calibration_bytes(layout);
}

size_t xbgpu_beam_models_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    return config->beams.n *
           (sizeof(struct xbgpu_beam_starts) + XBGPU_BEAM_MODELS * layout->n_ants * sizeof(struct beam_steering));
}

size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout)
{
    return layout->n_ants * N_POLS * layout->n_chan * 2 * sizeof(float);
}

int64_t xbgpu_grid_batches(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    int64_t n = config->steering.grid_batches;

    if (n == 0)
        n = (int64_t)fmin(GRID_S * rate_hz / (double)layout->batch_samples, 0x1p31);
    return n > 0 ? n : 1;
}

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/* How many models start before 'samples'. */
static size_t count_before(const struct xbgpu_beam_starts *starts, int64_t samples)
{
    size_t n = starts->n;

    while (n > 0 && starts->samples[n - 1] >= samples)
        n--;
    return n;
}

bool xbgpu_beam_starts_has_room(const struct xbgpu_beam_starts *starts, int64_t samples, int64_t past_samples)
{
    return count_before(starts, samples) < XBGPU_BEAM_MODELS || starts->samples[2] <= past_samples;
}

size_t xbgpu_beam_starts_add(struct xbgpu_beam_starts *starts, int64_t samples, bool *forgets)
{
    size_t n = count_before(starts, samples);

    *forgets = n == XBGPU_BEAM_MODELS;
    if (*forgets) {
        n--;
        memmove(starts->samples + 1, starts->samples + 2, (n - 1) * sizeof(*starts->samples));
    }
    starts->samples[n] = samples;
    starts->n = n + 1;
    return n;
}

size_t xbgpu_beam_starts_find(const struct xbgpu_beam_starts *starts, int64_t samples)
{
    size_t n = count_before(starts, samples + 1);

    return n > 0 ? n - 1 : 0;
}

static struct beam_steering *rows_of(const struct xbgpu_steering *s, const struct xbgpu_beam_models *models,
                                     size_t beam, size_t model)
{
    return models->rows + (beam * XBGPU_BEAM_MODELS + model) * s->layout->n_ants;
}

/* ---- Set --------------------------------------------------------------------------------------------------------- */

void xbgpu_steering_set(struct xbgpu_steering *s, size_t beam, int64_t start_samples,
                        const struct beam_steering *values)
{
    size_t n_ants = s->layout->n_ants;
    struct beam_steering *rows = rows_of(s, &s->wanted, beam, 0);
    bool forgets;
    size_t place = xbgpu_beam_starts_add(&s->wanted.starts[beam], start_samples, &forgets);

    if (forgets)
        memmove(rows + n_ants, rows + 2 * n_ants, (place - 1) * n_ants * sizeof(*rows));
    memcpy(rows + place * n_ants, values, n_ants * sizeof(*rows));
    for (size_t i = 0; i < place * n_ants; i++)
        rows[i].amplitude = values[i % n_ants].amplitude;
    s->is_steered[beam] = true;
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
    for (size_t beam = 0; beam < s->n; beam++) {
        if (!s->is_steered[beam])
            continue;
        s->current.starts[beam] = s->wanted.starts[beam];
        memcpy(rows_of(s, &s->current, beam, 0), rows_of(s, &s->wanted, beam, 0),
               s->wanted.starts[beam].n * s->layout->n_ants * sizeof(struct beam_steering));
        s->is_steered[beam] = false;
    }
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

int64_t xbgpu_steering_choose(struct xbgpu_steering *s, int64_t batch, int64_t end)
{
    int64_t batch_samples = s->layout->batch_samples;

    for (size_t beam = 0; beam < s->n; beam++) {
        const struct xbgpu_beam_starts *starts = &s->current.starts[beam];
        size_t model = xbgpu_beam_starts_find(starts, batch * batch_samples);
        int64_t next = model + 1 < starts->n ? -floor_div(-starts->samples[model + 1], batch_samples) : end;
        end = next < end ? next : end;
        s->is_made = s->is_made && s->chosen[beam] == model;
        s->chosen[beam] = model;
    }
    return end;
}

const struct beam_steering *xbgpu_steering_chosen(const struct xbgpu_steering *s, size_t beam)
{
    return rows_of(s, &s->current, beam, s->chosen[beam]);
}

static bool moves(const struct beam_steering *rows, size_t n_ants)
{
    uint64_t any = 0;

    for (size_t a = 0; a < n_ants; a++)
        any |= rows[a].phase_rate | rows[a].slope_rate;
    return any != 0;
}

/* Queues the chosen models, and which beams have rates. */
static void copy_steering(struct xbgpu_steering *s, struct device_stream *compute, struct beam_steering *staging)
{
    size_t n_ants = s->layout->n_ants;
    uint32_t *moving = (uint32_t *)(staging + s->n * n_ants);

    s->n_moving = 0;
    for (size_t beam = 0; beam < s->n; beam++) {
        const struct beam_steering *rows = xbgpu_steering_chosen(s, beam);
        memcpy(staging + beam * n_ants, rows, n_ants * sizeof(*rows));
        if (moves(rows, n_ants))
            moving[s->n_moving++] = (uint32_t)beam;
    }
    device_copy(compute, s->device_steering, staging, s->n * n_ants * sizeof(*staging));
    if (s->n_moving > 0)
        device_copy(compute, s->device_moving, moving, s->n_moving * sizeof(*moving));
    if (s->calibrates)
        copy_calibration(s, compute, (float *)(moving + s->n));
}

int64_t xbgpu_steering_make(struct xbgpu_steering *s, struct device_stream *compute, void *staging, int64_t batch,
                            int64_t end)
{
    const struct xbgpu_layout *l = s->layout;
    int64_t interval = floor_div(batch, s->grid_batches), next = (interval + 1) * s->grid_batches;
    bool all = !s->is_made;

    if (all)
        copy_steering(s, compute, staging);
    if (all || (s->n_moving > 0 && interval != s->made_interval)) {
        const struct beam_coefficients_args args = {
            .steering = s->device_steering,
            .beams = s->parameters,
            .calibration = s->calibrates ? s->device_calibration : NULL,
            .listed = all ? NULL : s->device_moving,
            .coefficients = s->coefficients,
            .exponents = s->exponents,
            .time = (uint64_t)(2 * interval + 1) * (uint64_t)s->grid_batches, /* in halves of a batch */
            .n_listed = s->n_moving,
            .n_beams = (uint32_t)s->n,
            .n_ants = (uint32_t)l->n_ants,
            .n_chan = (uint32_t)l->n_chan,
        };
        struct kernel_grid grid = beam_coefficients_grid(&args);
        device_launch(compute, s->kernel, &grid, &args);
    }
    s->is_made = true;
    s->made_interval = interval;
    return s->n_moving > 0 && next < end ? next : end;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_models(struct xbgpu_steering *s, struct xbgpu_beam_models *models)
{
    size_t n_rows = s->n * XBGPU_BEAM_MODELS * s->layout->n_ants;

    models->starts = calloc(s->n, sizeof(*models->starts));
    models->rows = calloc(n_rows, sizeof(*models->rows));
    if (!models->starts || !models->rows)
        return -ENOMEM;
    for (size_t beam = 0; beam < s->n; beam++)
        models->starts[beam] = (struct xbgpu_beam_starts){1, {XBGPU_BEAM_ALWAYS}};
    for (size_t i = 0; i < n_rows; i++)
        models->rows[i].amplitude = 1;
    return 0;
}

static void destroy_models(struct xbgpu_beam_models *models)
{
    free(models->starts);
    free(models->rows);
}

int xbgpu_steering_init(struct xbgpu_steering *s, const struct xbgpu_config *config, const struct xbgpu_layout *l,
                        struct device *device, const struct beam *parameters)
{
    size_t n = config->beams.n * l->n_ants;

    *s = (struct xbgpu_steering){
        .layout = l,
        .device = device,
        .n = config->beams.n,
        .parameters = parameters,
        .grid_batches = xbgpu_grid_batches(config, l),
        .chosen = calloc(config->beams.n, sizeof(*s->chosen)),
        .device_steering = device_alloc(device, n * sizeof(*s->device_steering)),
        .device_moving = device_alloc(device, config->beams.n * sizeof(*s->device_moving)),
        .coefficients = device_alloc(device, l->n_chan * n * 2 * sizeof(*s->coefficients)),
        .exponents = device_alloc(device, l->n_chan * config->beams.n * sizeof(*s->exponents)),
        .n_inputs = l->n_ants * N_POLS,
        .wanted_calibration = calloc(1, xbgpu_calibration_bytes(l)),
        .calibration = calloc(1, xbgpu_calibration_bytes(l)),
        .device_calibration = device_alloc(device, xbgpu_calibration_bytes(l)),
        .is_calibrated = calloc(l->n_ants, N_POLS),
        .is_due = calloc(l->n_ants, N_POLS),
        .is_steered = calloc(config->beams.n, sizeof(*s->is_steered)),
        .is_changed = true,
    };
    if (create_models(s, &s->wanted) || create_models(s, &s->current) || !s->chosen || !s->device_steering ||
        !s->device_moving || !s->coefficients || !s->exponents || !s->wanted_calibration || !s->calibration ||
        !s->device_calibration || !s->is_calibrated || !s->is_due || !s->is_steered)
        return -ENOMEM;
    memset(s->is_due, true, s->n_inputs);
    for (size_t i = 0; i < s->n_inputs * l->n_chan; i++)
        s->calibration[2 * i] = 1;
    return device_kernel_create(device, &beam_coefficients_kernel, NULL, 0, &s->kernel);
}

void xbgpu_steering_fini(struct xbgpu_steering *s)
{
    device_kernel_destroy(s->kernel);
    device_free(s->device, s->device_steering);
    device_free(s->device, s->device_moving);
    device_free(s->device, s->coefficients);
    device_free(s->device, s->exponents);
    device_free(s->device, s->device_calibration);
    free(s->wanted_calibration);
    free(s->calibration);
    free(s->is_calibrated);
    free(s->is_due);
    free(s->is_steered);
    free(s->chosen);
    destroy_models(&s->wanted);
    destroy_models(&s->current);
}
