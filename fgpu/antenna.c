/* antenna.c - the middle stage: pairs of chunks become batches of spectra. */
#include "fgpu/antenna.h"

#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/recv/matcher.h"
#include "common/base/presence.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "fgpu/delay_text.h"
#include "fgpu/level.h"
#include "fgpu/monitor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fgpu_antenna {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    const char *name; /* the configuration's */
    struct device *device;
    struct device_stream *upload, *compute, *download;
    struct device_kernel *gather; /* with gpudirect; else NULL */
    struct matcher *matcher;
    struct fgpu_device_input inputs[FGPU_N_DEVICE_INPUTS];
    struct fgpu_device_input *free_inputs[FGPU_N_DEVICE_INPUTS];
    size_t n_free_inputs;
    struct fgpu_device_input *previous; /* whose tail is the next one's history */
    struct fgpu_device_input *current;  /* being walked */
    int64_t newest_samples;             /* timestamp of the newest pair */
    bool restarts;                      /* a chunk since that pair began a stream */
    bool went_back;                     /* since fgpu_antenna_went_back() */
    struct fgpu_output **walks;         /* [n_outputs] */
    struct fgpu_monitor monitors[N_POLS];
    struct fgpu_level level;
    struct gauge power_udb[N_POLS]; /* dBFS in millionths */
    struct gauge power_valid;
    struct counter unmatched_chunks;
    struct counter late_chunks;
};

/* ---- Pairs of chunks to device inputs -------------------------------------------------------------------------- */

void fgpu_antenna_add_chunk(struct fgpu_antenna *antenna, unsigned pol, struct chunk *chunk)
{
    fgpu_monitor_chunk(&antenna->monitors[pol], chunk);
    matcher_add(antenna->matcher, pol, chunk);
}

struct fgpu_antenna *fgpu_antenna_give_input(struct fgpu_device_input *input)
{
    struct fgpu_antenna *antenna = input->antenna;

    antenna->free_inputs[antenna->n_free_inputs++] = input;
    return antenna;
}

void fgpu_antenna_end(struct fgpu_antenna *antenna)
{
    for (unsigned pol = 0; pol < N_POLS; pol++)
        matcher_end(antenna->matcher, pol);
}

/* The device input before is not needed any more once all that has been queued has run. */
static void release_previous(struct fgpu_antenna *a)
{
    if (!a->previous)
        return;
    buffer_ref_set(&a->previous->ref, 1);
    device_then(a->compute, buffer_ref_put, &a->previous->ref);
    a->previous = NULL;
}

/* Presence of [history | chunk]. */
static void set_presence(struct fgpu_antenna *a, struct fgpu_device_input *in, unsigned pol, const struct chunk *chunk)
{
    size_t n_history = a->layout->history_heaps, n_chunk = a->layout->heaps_per_chunk;

    if (in->has_history)
        memcpy(in->present[pol], a->previous->present[pol] + n_chunk, n_history);
    else
        memset(in->present[pol], 0, n_history);
    memcpy(in->present[pol] + n_history, chunk->present, n_chunk);
    presence_sums(in->present[pol], n_history + n_chunk, in->sums[pol]);
}

/* Heaps of a chunk before the first that arrived. */
static size_t n_leading_absent(const struct chunk *chunk)
{
    size_t n = 0;

    while (n < chunk->n_heaps && !chunk->present[n])
        n++;
    return n;
}

/* Queues the upload of a pair, and the copy of its history behind it. */
static void start_input(struct fgpu_antenna *a, struct fgpu_device_input *in, struct chunk *const *pair,
                        int64_t timestamp_samples)
{
    const struct fgpu_layout *l = a->layout;

    in->timestamp_samples = timestamp_samples - l->history_samples;
    in->has_history =
        a->previous && a->previous->timestamp_samples + a->config->recv.chunk_samples == in->timestamp_samples;
    in->last_arrival_ns = 0;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct chunk *chunk = pair[pol];
        set_presence(a, in, pol, chunk);
        if (chunk->last_arrival_ns > in->last_arrival_ns)
            in->last_arrival_ns = chunk->last_arrival_ns;
        int64_t packet_samples = a->config->recv.packet_samples;
        in->first_samples[pol] = timestamp_samples + (int64_t)n_leading_absent(chunk) * packet_samples;
        in->end_samples[pol] = timestamp_samples + (int64_t)chunk->n_times * packet_samples;
        chunk_gather(chunk, a->upload, a->gather);
        device_copy(a->upload, in->samples[pol] + l->history_bytes, chunk->source, l->chunk_bytes);
        device_then(a->upload, buffer_ref_put, &chunk->ref);
    }
    device_event_record(in->uploaded, a->upload);
    device_stream_wait_event(a->compute, in->uploaded);
    for (unsigned pol = 0; pol < N_POLS && in->has_history; pol++)
        device_copy(a->compute, in->samples[pol], a->previous->samples[pol] + l->chunk_bytes, l->history_bytes);
    release_previous(a);
}

/* The digitisers' time was set: the new data do not follow the old ones, and nothing between them is missing. */
static void reset_history(struct fgpu_antenna *a)
{
    release_previous(a);
    a->went_back = true;
    for (size_t o = 0; o < a->layout->n_outputs; o++)
        fgpu_output_restart(a->walks[o]);
}

/* Makes the next pair the current device input.  Returns false if there is none, or nowhere to put it. */
static bool next_input(struct fgpu_antenna *a)
{
    struct chunk *pair[N_POLS];
    int64_t timestamp_samples;

    while (a->n_free_inputs && matcher_next(a->matcher, pair, &timestamp_samples)) {
        for (unsigned pol = 0; pol < N_POLS; pol++)
            a->restarts = a->restarts || (pair[pol] && pair[pol]->restarts);
        if (pair[0] && pair[1]) {
            if (timestamp_samples <= a->newest_samples || a->restarts)
                reset_history(a);
            a->newest_samples = timestamp_samples;
            a->restarts = false;
            a->current = a->free_inputs[--a->n_free_inputs];
            start_input(a, a->current, pair, timestamp_samples);
            return true;
        }
        for (unsigned pol = 0; pol < N_POLS; pol++)
            if (pair[pol]) {
                counter_add(&a->unmatched_chunks, 1);
                buffer_ref_put(&pair[pol]->ref);
            }
    }
    return false;
}

/* ---- Device inputs to outputs ------------------------------------------------------------------------------------ */

bool fgpu_antenna_advance(struct fgpu_antenna *antenna, bool may_wait)
{
    for (;;) {
        if (!antenna->current && !next_input(antenna))
            return antenna->n_free_inputs > 0; /* else there may be more sets */
        bool done = true;
        for (size_t o = 0; o < antenna->layout->n_outputs; o++)
            done = fgpu_output_advance(antenna->walks[o], antenna->current, may_wait) && done;
        if (!done)
            return false;
        antenna->previous = antenna->current;
        antenna->current = NULL;
    }
}

bool fgpu_antenna_went_back(struct fgpu_antenna *antenna)
{
    bool went_back = antenna->went_back;

    antenna->went_back = false;
    return went_back;
}

size_t fgpu_antenna_drop(struct fgpu_antenna *antenna)
{
    return matcher_drop(antenna->matcher);
}

void fgpu_antenna_flush(struct fgpu_antenna *antenna)
{
    for (size_t o = 0; o < antenna->layout->n_outputs; o++)
        fgpu_output_flush(antenna->walks[o]);
}

struct fgpu_output *fgpu_antenna_walk(const struct fgpu_antenna *antenna, size_t output)
{
    return antenna->walks[output];
}

int64_t fgpu_antenna_steady_samples(const struct fgpu_antenna *antenna)
{
    int64_t steady_samples = 0;

    for (size_t o = 0; o < antenna->layout->n_outputs; o++) {
        int64_t samples = fgpu_output_steady_samples(antenna->walks[o]);
        steady_samples = samples > steady_samples ? samples : steady_samples;
    }
    return steady_samples;
}

void fgpu_antenna_measure(struct fgpu_antenna *a, const struct fgpu_buffer *buffer)
{
    if (!buffer->power)
        return;
    const struct fgpu_config_output *output = buffer->stream->output;
    int64_t n_samples = (int64_t)buffer->n_filled * fgpu_batch_samples(output) / output->spectra_per_heap;
    if (!fgpu_level_add(&a->level, buffer->timestamp_samples, n_samples, buffer->power, buffer->whole))
        return;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        gauge_set(&a->power_udb[pol], (int64_t)rint(1e6 * a->level.dbfs[pol]));
        fgpu_monitor_power(&a->monitors[pol], a->level.dbfs[pol], a->level.valid, a->level.end_samples);
    }
    gauge_set(&a->power_valid, a->level.valid);
}

void fgpu_antenna_log(const struct fgpu_antenna *antenna)
{
    uint64_t n_unmatched = counter_get(&antenna->unmatched_chunks);

    log_info("%s: %llu chunk%s discarded as the other polarisation's were missing, %llu as they came too late for it",
             antenna->name, (unsigned long long)n_unmatched, plural(n_unmatched),
             (unsigned long long)counter_get(&antenna->late_chunks));
    if (antenna->level.n_closed)
        log_info("%s: input power %.6f and %.6f dBFS in the last of %lld whole seconds%s", antenna->name,
                 antenna->level.dbfs[0], antenna->level.dbfs[1], (long long)antenna->level.n_closed,
                 antenna->level.valid ? "" : ", of which samples are missing");
}

/* ---- Making and unmaking ------------------------------------------------------------------------------------------
 * */

static int create_input(struct fgpu_antenna *a, const struct fgpu_antenna_config *c, struct fgpu_device_input *in)
{
    size_t n_heaps = a->layout->history_heaps + a->layout->heaps_per_chunk;

    in->antenna = a;
    buffer_ref_init(&in->ref, c->worker, (struct inbox_item){c->input_free_kind, 0, in});
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        in->samples[pol] = device_alloc(a->device, fgpu_device_input_bytes(a->layout));
        in->present[pol] = calloc(n_heaps, 1);
        in->sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        if (!in->samples[pol] || !in->present[pol] || !in->sums[pol])
            return -ENOMEM;
    }
    return device_event_create(a->device, &in->uploaded);
}

/* Whole batches of the output that measures, about a second. */
static void init_level(struct fgpu_antenna *a)
{
    int64_t batch_samples = fgpu_batch_samples(fgpu_config_output(a->config, fgpu_power_output(a->config)));
    double n_batches = rint(timebase_decimal_to_double(a->config->time.adc_sample_rate_hz) / (double)batch_samples);

    fgpu_level_init(&a->level, batch_samples * (n_batches > 1 ? (int64_t)n_batches : 1),
                    (int)a->config->recv.sample_bits);
}

static void register_metrics(struct fgpu_antenna *a)
{
    char labels[256] = "", with_pol[280];

    stats_label(labels, sizeof(labels), "antenna", a->name);
    stats_counter("fgpu_unmatched_chunks", "Chunks discarded because the other polarisation's was missing.", labels,
                  &a->unmatched_chunks);
    stats_counter("fgpu_late_chunks", "Chunks discarded because later ones had been processed.", labels,
                  &a->late_chunks);
    stats_gauge("fgpu_input_power_valid", "1 if no sample was missing in the time of fgpu_input_power_dbfs, else 0.",
                labels, &a->power_valid);
    for (int pol = 0; pol < N_POLS; pol++) {
        char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_gauge_scaled("fgpu_input_power_dbfs",
                           "Mean power of the samples over about a second, in dBFS; 0 is a sine that fills the range.",
                           with_pol, &a->power_udb[pol], 1e-6);
        fgpu_monitor_init(&a->monitors[pol], a->config, with_pol);
    }
}

/* Of the inputs, and of the delay models that the outputs have of them. */
static int add_sensors(struct fgpu_antenna *a, size_t ant, struct sensors *sensors)
{
    const struct timebase timebase = fgpu_timebase(a->config);
    const struct fgpu_delay_model none = {.start_samples = -1};
    char name[128];
    int err = 0;

    for (size_t i = 0; i < a->layout->n_outputs * N_POLS && !err; i++) {
        size_t o = i / N_POLS;
        unsigned pol = i % N_POLS;
        struct sensor_desc about = {
            .name = name,
            .description =
                "Delay model in effect: (ADC timestamp from which it holds, delay in s, its rate in s/s, phase in "
                "rad, its rate in rad/s); of a quadratic one also the accelerations, in s/s^2 and rad/s^2",
            .units = "",
            .type = SENSOR_STRING,
            .format = fgpu_delay_text_format,
        };
        snprintf(name, sizeof(name), "%s.input%zu.delay", fgpu_config_output(a->config, o)->name, ant * N_POLS + pol);
        struct sensor_reading first = fgpu_delay_text_reading(&none, &timebase, 0);
        first.unix_ns = clock_unix_ns();
        err = sensors_add(sensors, fgpu_output_delay_sensor(a->walks[o], pol), &about, first);
    }
    for (unsigned pol = 0; pol < N_POLS && !err; pol++)
        err = fgpu_monitor_add_sensors(&a->monitors[pol], sensors, ant * N_POLS + pol);
    return err;
}

int fgpu_antenna_create(const struct fgpu_antenna_config *config, struct fgpu_antenna **antenna)
{
    struct fgpu_antenna *a = calloc(1, sizeof(*a));
    char name[32];

    if (!a)
        return -ENOMEM;
    a->config = config->config;
    a->layout = config->layout;
    a->name = fgpu_config_antenna(a->config, config->ant)->name;
    a->device = config->device;
    a->upload = config->upload;
    a->download = config->download;
    a->newest_samples = INT64_MIN;
    struct matcher_config matcher = {
        .n_members = N_POLS,
        .window_chunks = (unsigned)a->config->recv.window_chunks,
        .wait_chunks = fgpu_layout_wait_chunks(&a->config->recv),
        .jump_members = N_POLS,
        .chunk_samples = a->config->recv.chunk_samples,
        .max_chunks = N_POLS * (size_t)a->config->recv.n_chunks,
        .late_chunks = &a->late_chunks,
    };
    snprintf(name, sizeof(name), "compute%zu", config->ant);
    int err = matcher_create(&matcher, &a->matcher);
    if (!err)
        err = device_stream_create(a->device, name, &a->compute);
    if (!err && a->config->recv.gpudirect)
        err = chunk_create_gather(a->device, &a->gather);
    for (size_t i = 0; !err && i < FGPU_N_DEVICE_INPUTS; i++) {
        err = create_input(a, config, &a->inputs[i]);
        a->free_inputs[a->n_free_inputs++] = &a->inputs[i];
    }
    a->walks = err ? NULL : calloc(a->layout->n_outputs, sizeof(struct fgpu_output *));
    if (!err && !a->walks)
        err = -ENOMEM;
    for (size_t o = 0; !err && o < a->layout->n_outputs; o++)
        err = fgpu_output_create(&(struct fgpu_output_config){a->config, a->layout, a->device, a->compute, a->download,
                                                              fgpu_send_stream(config->send, config->ant, o), o,
                                                              config->dither_seeds[o], &config->choices[o],
                                                              config->filters[o], config->channel},
                                 &a->walks[o]);
    if (!err) {
        init_level(a);
        register_metrics(a);
        err = add_sensors(a, config->ant, config->sensors);
    }
    if (err) {
        stats_reset(); /* whoever asks for /metrics now would read what is freed */
        fgpu_antenna_destroy(a);
        return err;
    }
    *antenna = a;
    return 0;
}

void fgpu_antenna_destroy(struct fgpu_antenna *antenna)
{
    if (!antenna)
        return;
    matcher_destroy(antenna->matcher);
    device_stream_destroy(antenna->compute);
    for (size_t o = 0; antenna->walks && o < antenna->layout->n_outputs; o++)
        fgpu_output_destroy(antenna->walks[o]);
    free(antenna->walks);
    device_kernel_destroy(antenna->gather);
    for (size_t i = 0; i < FGPU_N_DEVICE_INPUTS; i++) {
        struct fgpu_device_input *in = &antenna->inputs[i];
        device_event_destroy(in->uploaded);
        for (unsigned pol = 0; pol < N_POLS; pol++) {
            device_free(antenna->device, in->samples[pol]);
            free(in->present[pol]);
            free(in->sums[pol]);
        }
    }
    free(antenna);
}
