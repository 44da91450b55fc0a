/* steering.c - converts commands for beams to the coefficients of the kernel beamform. */
#include "xbgpu/beam/steering.h"

#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "kernels/beamform/beamform.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRID_S 0.01 /* default interval of the grid, in s; docs/beams.md explains the choice */

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

size_t xbgpu_calibration_bytes(const struct xbgpu_layout *layout)
{
    return layout->n_ants * N_POLS * layout->n_chan * 2 * sizeof(float);
}

static size_t models_bytes(const struct xbgpu_layout *layout, size_t n_beams)
{
    return n_beams * XBGPU_BEAM_MODELS * layout->n_ants * sizeof(struct beam_steering);
}

static size_t starts_bytes(size_t n_beams)
{
    return n_beams * XBGPU_BEAM_MODELS * sizeof(int64_t);
}

static size_t tables_bytes(const struct xbgpu_layout *layout, size_t n_beams)
{
    return models_bytes(layout, n_beams) + starts_bytes(n_beams) + n_beams * sizeof(uint32_t) +
           xbgpu_calibration_bytes(layout);
}

static struct xbgpu_steering_tables tables_in(void *memory, const struct xbgpu_layout *layout, size_t n_beams)
{
    char *starts = (char *)memory + models_bytes(layout, n_beams), *moving = starts + starts_bytes(n_beams);

    return (struct xbgpu_steering_tables){.models = memory,
                                          .starts = (int64_t *)starts,
                                          .moving = (uint32_t *)moving,
                                          .calibration = (float *)(moving + n_beams * sizeof(uint32_t))};
}

void xbgpu_steering_add_memory(const struct xbgpu_layout *l, size_t n_beams, bool on_gpu, struct memory_use *memory)
{
    uint64_t tables = tables_bytes(l, n_beams), wanted = models_bytes(l, n_beams);

    bytes_add(&memory->host_bytes, LANE_N_INPUTS, device_pinned_bytes(tables, on_gpu));
    bytes_add(&memory->host_bytes, 1, bytes_plus(wanted, xbgpu_calibration_bytes(l)));
    bytes_add(&memory->host_bytes, n_beams, 2 * sizeof(struct xbgpu_beam_starts) + l->n_ants * sizeof(float));
    bytes_add(&memory->device_bytes, 1, tables);
    bytes_add(&memory->device_bytes, n_beams, sizeof(struct beam));
    bytes_add(&memory->device_bytes, beamform_max_slots((uint32_t)n_beams) + n_beams, sizeof(uint32_t));
    bytes_add(&memory->device_bytes, n_beams,
              bytes_times(l->n_chan, l->n_ants * 2 * sizeof(int16_t) + sizeof(int32_t)));
    if (on_gpu)
        bytes_add(&memory->device_bytes, l->n_chan,
                  beam_fragments_chan_bytes(beamform_max_slots((uint32_t)n_beams), (uint32_t)l->n_ants));
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

/* Returns the number of models that start before 'samples'. */
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

static struct beam_steering *rows_of(const struct xbgpu_steering *s, struct beam_steering *rows, size_t beam)
{
    return rows + beam * XBGPU_BEAM_MODELS * s->layout->n_ants;
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

void xbgpu_steering_set(struct xbgpu_steering *s, size_t beam, int64_t start_samples,
                        const struct beam_steering *values)
{
    size_t n_ants = s->layout->n_ants;
    struct beam_steering *rows = rows_of(s, s->wanted, beam);
    bool forgets;
    size_t place = xbgpu_beam_starts_add(&s->wanted_starts[beam], start_samples, &forgets);

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

/* ---- Beginning an input ------------------------------------------------------------------------------------------ */

static void begin_beam(struct xbgpu_steering *s, size_t beam, const struct xbgpu_steering_tables *staging)
{
    size_t n_ants = s->layout->n_ants;
    const struct xbgpu_beam_starts *starts = &s->wanted_starts[beam];
    const struct beam_steering *rows = rows_of(s, s->wanted, beam);
    int64_t *samples = staging->starts + beam * XBGPU_BEAM_MODELS;

    memcpy(rows_of(s, staging->models, beam), rows, starts->n * n_ants * sizeof(*rows));
    for (size_t model = 0; model < XBGPU_BEAM_MODELS; model++)
        samples[model] = model < starts->n ? starts->samples[model] : INT64_MAX;
    static_assert(XBGPU_BEAM_MODELS <= 8, "has_rates, a byte, has one bit for each model");
    s->has_rates[beam] = 0;
    for (size_t i = 0; i < starts->n * n_ants; i++)
        s->has_rates[beam] |= (uint8_t)(((rows[i].phase_rate | rows[i].slope_rate) != 0) << i / n_ants);
    for (size_t ant = 0; ant < n_ants; ant++)
        s->amplitudes[beam * n_ants + ant] = rows[ant].amplitude;
    s->starts[beam] = *starts;
}

void xbgpu_steering_begin(struct xbgpu_steering *s)
{
    size_t row = s->layout->n_chan * 2;

    s->turn = (s->turn + 1) % LANE_N_INPUTS;
    if (!s->is_changed && !s->is_due)
        return;
    const struct xbgpu_steering_tables staging = tables_in(s->staging_memory[s->turn], s->layout, s->n);
    s->n_moving = 0;
    for (size_t beam = 0; beam < s->n; beam++) {
        s->is_beam_due[beam] |= s->is_steered[beam];
        s->is_steered[beam] = false;
        if (s->is_beam_due[beam])
            begin_beam(s, beam, &staging);
        if (s->has_rates[beam])
            staging.moving[s->n_moving++] = (uint32_t)beam;
    }
    for (size_t i = 0; i < s->n_inputs; i++)
        s->calibrates |= s->is_calibrated[i];
    for (size_t i = 0; i < s->n_inputs; i++) {
        s->is_input_due[i] |= s->is_calibrated[i];
        s->is_calibrated[i] = false;
        if (s->calibrates && s->is_input_due[i])
            memcpy(staging.calibration + i * row, s->wanted_calibration + i * row, row * sizeof(float));
    }
    s->is_changed = false;
    s->is_due = true;
}

/* ---- Making coefficients ----------------------------------------------------------------------------------------- */

/* Queues copies of the rows that are due.  Adjacent rows are copied together. */
static void copy_due(struct device_stream *compute, void *to, const void *from, size_t row_bytes, const uint8_t *is_due,
                     size_t n)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && is_due[end];)
            end++;
        if (end > i)
            device_copy(compute, (char *)to + i * row_bytes, (const char *)from + i * row_bytes, (end - i) * row_bytes);
    }
}

static void upload_tables(struct xbgpu_steering *s, struct device_stream *compute)
{
    const struct xbgpu_layout *l = s->layout;
    const struct xbgpu_steering_tables from = tables_in(s->staging_memory[s->turn], l, s->n), to = s->device_tables;

    copy_due(compute, to.models, from.models, models_bytes(l, 1), s->is_beam_due, s->n);
    copy_due(compute, to.starts, from.starts, starts_bytes(1), s->is_beam_due, s->n);
    memset(s->is_beam_due, false, s->n);
    if (s->n_moving > 0)
        device_copy(compute, to.moving, from.moving, s->n_moving * sizeof(*to.moving));
    if (s->calibrates) {
        copy_due(compute, to.calibration, from.calibration, l->n_chan * 2 * sizeof(float), s->is_input_due,
                 s->n_inputs);
        memset(s->is_input_due, false, s->n_inputs);
    }
    s->is_due = false;
}

/* Finds the range of batches around 'batch' in which the model in effect does not change for any beam.  Also finds
 * whether any of these models has rates. */
static void find_range(struct xbgpu_steering *s, int64_t batch)
{
    int64_t batch_samples = s->layout->batch_samples;

    s->made_from = INT64_MIN;
    s->made_until = INT64_MAX;
    s->moves = false;
    for (size_t beam = 0; beam < s->n; beam++) {
        const struct xbgpu_beam_starts *starts = &s->starts[beam];
        s->moves |= s->has_rates[beam] >> xbgpu_beam_starts_find(starts, batch * batch_samples) & 1;
        for (size_t model = 1; model < starts->n; model++) {
            int64_t from = -floor_div(-starts->samples[model], batch_samples);
            if (from <= batch && from > s->made_from)
                s->made_from = from;
            if (from > batch && from < s->made_until)
                s->made_until = from;
        }
    }
}

static void launch(struct xbgpu_steering *s, struct device_stream *compute, int64_t batch, int64_t interval, bool all)
{
    const struct xbgpu_layout *l = s->layout;
    const struct beam_coefficients_args args = {
        .steering = s->device_tables.models,
        .starts = s->device_tables.starts,
        .beams = s->parameters,
        .calibration = s->calibrates ? s->device_tables.calibration : NULL,
        .listed = all ? NULL : s->device_tables.moving,
        .coefficients = s->coefficients,
        .exponents = s->exponents,
        .fragments = s->fragments,
        .slot_of = s->slot_of,
        .time = (uint64_t)(2 * interval + 1) * (uint64_t)s->grid_batches, /* centre of the grid interval, in half
                                                                           * batches from timestamp 0 */
        .at = batch * l->batch_samples,
        .n_models = XBGPU_BEAM_MODELS,
        .n_listed = s->n_moving,
        .n_beams = (uint32_t)s->n,
        .n_slots = s->n_slots,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = (uint32_t)l->n_chan,
    };
    struct kernel_grid grid = beam_coefficients_grid(&args);

    device_launch(compute, s->kernel, &grid, &args);
}

int64_t xbgpu_steering_make(struct xbgpu_steering *s, struct device_stream *compute, int64_t batch, int64_t end)
{
    int64_t interval = floor_div(batch, s->grid_batches), next = (interval + 1) * s->grid_batches;
    bool all = s->is_due || batch < s->made_from || batch >= s->made_until;

    if (s->is_due)
        upload_tables(s, compute);
    if (all)
        find_range(s, batch);
    if (all || (s->moves && interval != s->made_interval))
        launch(s, compute, batch, interval, all);
    s->made_interval = interval;
    end = s->made_until < end ? s->made_until : end;
    return s->moves && next < end ? next : end;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

/* Copies constant data to new memory of the device. */
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
    size_t most = beamform_max_slots((uint32_t)s->n);
    uint32_t *slots = calloc(most + s->n, sizeof(*slots));

    if (!slots)
        return -ENOMEM;
    uint32_t *slot_of = slots + most;
    s->n_slots = beamform_slots(parameters, (uint32_t)s->n, slots, slot_of);
    int err = upload(s->device, slots, most * sizeof(*slots), (void **)&s->slots);
    if (!err)
        err = upload(s->device, slot_of, s->n * sizeof(*slot_of), (void **)&s->slot_of);
    free(slots);
    return err;
}

static int create_fragments(struct xbgpu_steering *s)
{
    const struct xbgpu_layout *l = s->layout;

    if (!device_compiles(s->device))
        return 0;
    s->fragments = device_alloc(s->device, l->n_chan * beam_fragments_chan_bytes(s->n_slots, (uint32_t)l->n_ants));
    return s->fragments ? 0 : -ENOMEM;
}

static int create_tables(struct xbgpu_steering *s)
{
    size_t bytes = tables_bytes(s->layout, s->n);

    for (size_t i = 0; i < LANE_N_INPUTS; i++) {
        s->staging_memory[i] = device_alloc_pinned(s->device, bytes);
        if (!s->staging_memory[i])
            return -ENOMEM;
    }
    s->device_memory = device_alloc(s->device, bytes);
    if (!s->device_memory)
        return -ENOMEM;
    s->device_tables = tables_in(s->device_memory, s->layout, s->n);
    return 0;
}

/* Sets weights of 1, no delays and gains of 1. */
static void want_defaults(struct xbgpu_steering *s)
{
    for (size_t beam = 0; beam < s->n; beam++)
        s->wanted_starts[beam] = (struct xbgpu_beam_starts){1, {XBGPU_BEAM_ALWAYS}};
    for (size_t i = 0; i < s->n * XBGPU_BEAM_MODELS * s->layout->n_ants; i++)
        s->wanted[i].amplitude = 1;
    for (size_t i = 0; i < s->n_inputs * s->layout->n_chan; i++)
        s->wanted_calibration[2 * i] = 1;
    memset(s->is_steered, true, s->n);
    memset(s->is_input_due, true, s->n_inputs);
    s->is_changed = true;
}

int xbgpu_steering_init(struct xbgpu_steering *s, const struct xbgpu_config *config, const struct xbgpu_layout *l,
                        struct device *device, const struct beam *parameters, size_t n_beams)
{
    size_t n = n_beams * l->n_ants, n_inputs = l->n_ants * N_POLS;

    *s = (struct xbgpu_steering){
        .layout = l,
        .device = device,
        .n = n_beams,
        .grid_batches = xbgpu_grid_batches(config, l),
        .n_inputs = n_inputs,
        .wanted_starts = calloc(n_beams, sizeof(*s->wanted_starts)),
        .wanted = calloc(n * XBGPU_BEAM_MODELS, sizeof(*s->wanted)),
        .wanted_calibration = calloc(1, xbgpu_calibration_bytes(l)),
        .is_steered = calloc(n_beams, sizeof(*s->is_steered)),
        .is_calibrated = calloc(n_inputs, sizeof(*s->is_calibrated)),
        .starts = calloc(n_beams, sizeof(*s->starts)),
        .amplitudes = calloc(n, sizeof(*s->amplitudes)),
        .has_rates = calloc(n_beams, sizeof(*s->has_rates)),
        .is_beam_due = calloc(n_beams, sizeof(*s->is_beam_due)),
        .is_input_due = calloc(n_inputs, sizeof(*s->is_input_due)),
        .coefficients = device_alloc(device, l->n_chan * n * 2 * sizeof(*s->coefficients)),
        .exponents = device_alloc(device, l->n_chan * n_beams * sizeof(*s->exponents)),
    };
    if (!s->wanted_starts || !s->wanted || !s->wanted_calibration || !s->is_steered || !s->is_calibrated ||
        !s->starts || !s->amplitudes || !s->has_rates || !s->is_beam_due || !s->is_input_due || !s->coefficients ||
        !s->exponents)
        return -ENOMEM;
    want_defaults(s);
    int err = create_tables(s);
    if (!err)
        err = upload(device, parameters, n_beams * sizeof(*parameters), (void **)&s->parameters);
    if (!err)
        err = create_slots(s, parameters);
    if (!err)
        err = create_fragments(s);
    return err ? err : device_kernel_create(device, &beam_coefficients_kernel, NULL, 0, &s->kernel);
}

void xbgpu_steering_fini(struct xbgpu_steering *s)
{
    device_kernel_destroy(s->kernel);
    for (size_t i = 0; i < LANE_N_INPUTS; i++)
        device_free_pinned(s->device, s->staging_memory[i]);
    device_free(s->device, s->parameters);
    device_free(s->device, s->slots);
    device_free(s->device, s->slot_of);
    device_free(s->device, s->fragments);
    device_free(s->device, s->device_memory);
    device_free(s->device, s->coefficients);
    device_free(s->device, s->exponents);
    free(s->wanted_starts);
    free(s->wanted);
    free(s->wanted_calibration);
    free(s->is_steered);
    free(s->is_calibrated);
    free(s->starts);
    free(s->amplitudes);
    free(s->has_rates);
    free(s->is_beam_due);
    free(s->is_input_due);
}
