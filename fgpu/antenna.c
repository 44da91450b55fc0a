/* antenna.c - the middle stage: converts pairs of chunks to batches of spectra. */
#include "fgpu/antenna.h"

#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/recv/matcher.h"
#include "fgpu/input/presence.h"
#include "common/engine/engine.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "fgpu/delay_text.h"
#include "fgpu/input/device_input.h"
#include "fgpu/gnss/gnss.h"
#include "fgpu/input/level.h"
#include "fgpu/input/monitor.h"
#include "fgpu/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fgpu_antenna {
    struct lane lane; /* first */
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    const char *name; /* the antenna's name in the configuration */
    struct fgpu_device_input inputs[LANE_N_INPUTS];
    /* device input that was processed last; its last samples become the next history */
    struct fgpu_device_input *previous;
    struct fgpu_device_input *current; /* device input that the outputs are reading */
    int64_t newest_samples;            /* timestamp of the newest pair */
    bool restarts;                     /* true if the first chunk of a new stream came after the newest pair */
    bool went_back;                    /* true if the data's time went back after the last call of command_steady() */
    struct fgpu_output **outputs;      /* [n_outputs] */
    struct fgpu_gnss *gnss;            /* [const] shared by all antennas */
    size_t ant;                        /* [const] */
    struct fgpu_monitor monitors[N_POLS];
    struct fgpu_level level;
    struct gauge power_udb[N_POLS]; /* dBFS in millionths */
    struct gauge power_valid;
    struct counter unmatched_chunks;
};

/* ---- From pairs of chunks to device inputs --------------------------------------------------------------------- */

static struct fgpu_antenna *antenna_of(const struct lane *lane)
{
    return (struct fgpu_antenna *)lane;
}

void fgpu_antenna_look(struct lane *lane, unsigned pol, const struct chunk *chunk)
{
    fgpu_monitor_chunk(&antenna_of(lane)->monitors[pol], chunk);
}

/* Releases the previous device input.  Work that is queued after this call must not read the input. */
static void release_previous(struct fgpu_antenna *a)
{
    if (a->previous)
        lane_return_input(&a->previous->base);
    a->previous = NULL;
}

/* Sets the presence flags of a device input, [history | chunk], and their prefix sums. */
static void set_presence(struct fgpu_antenna *a, struct fgpu_device_input *in, unsigned pol, const struct chunk *chunk)
{
    size_t n_history = a->layout->history_heaps, n_chunk = a->layout->heaps_per_chunk;

    if (in->has_history)
        memcpy(in->present[pol], a->previous->present[pol] + n_chunk, n_history);
    else
        memset(in->present[pol], 0, n_history);
    memcpy(in->present[pol] + n_history, chunk->present, n_chunk);
    fgpu_presence_sums(in->present[pol], n_history + n_chunk, in->sums[pol]);
}

/* Returns the number of absent heaps at the start of a chunk. */
static size_t n_leading_absent(const struct chunk *chunk)
{
    size_t n = 0;

    while (n < chunk->n_heaps && !chunk->present[n])
        n++;
    return n;
}

/* Queues the upload of a pair of chunks, and the copy of the history in front of each chunk. */
static void start_input(struct fgpu_antenna *a, struct fgpu_device_input *in, struct chunk *const *pair,
                        int64_t timestamp_samples)
{
    const struct fgpu_layout *l = a->layout;
    struct device_stream *upload = a->lane.engine->upload;

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
        chunk_gather(chunk, upload, a->lane.gather);
        device_copy(upload, in->samples[pol] + l->history_bytes, chunk->source, l->chunk_bytes);
        device_then(upload, buffer_ref_put, &chunk->ref);
    }
    lane_uploaded(&in->base);
    for (unsigned pol = 0; pol < N_POLS && in->has_history; pol++)
        device_copy(a->lane.compute, in->samples[pol], a->previous->samples[pol] + l->chunk_bytes, l->history_bytes);
    release_previous(a);
}

/* Resets the state after the digitisers' time has been set again.  The new data do not continue the old data, so the
 * gap between old and new data does not count as missing data. */
static void reset_history(struct fgpu_antenna *a)
{
    release_previous(a);
    a->went_back = true;
    for (size_t o = 0; o < a->layout->n_outputs; o++)
        fgpu_output_restart(a->outputs[o]);
    fgpu_gnss_restart(a->gnss, a->ant);
}

bool fgpu_antenna_begin(struct lane *lane, bool ended)
{
    struct fgpu_antenna *a = antenna_of(lane);
    struct chunk *pair[N_POLS];
    int64_t timestamp_samples;

    (void)ended; /* unused, because this engine has no work that waits for a later pair */
    while (lane->n_free && matcher_next(lane->matcher, pair, &timestamp_samples)) {
        for (unsigned pol = 0; pol < N_POLS; pol++)
            a->restarts = a->restarts || (pair[pol] && pair[pol]->restarts);
        if (pair[0] && pair[1]) {
            if (timestamp_samples <= a->newest_samples || a->restarts)
                reset_history(a);
            a->newest_samples = timestamp_samples;
            a->restarts = false;
            a->current = (struct fgpu_device_input *)lane_take_input(lane);
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

/* Returns the timestamp from which all outputs of all antennas use all settings. */
static int64_t steady_of(const struct engine *engine)
{
    int64_t steady_samples = 0;

    for (size_t i = 0; i < engine->n_lanes; i++) {
        const struct fgpu_antenna *a = antenna_of(engine->lanes[i]);
        for (size_t o = 0; o < a->layout->n_outputs; o++) {
            int64_t samples = fgpu_output_steady_samples(a->outputs[o]);
            steady_samples = samples > steady_samples ? samples : steady_samples;
        }
    }
    return steady_samples;
}

/* Returns the timestamp of the earliest device input or pair of chunks that an antenna has not finished.  Returns
 * INT64_MAX if there is none.  The timestamp is the timestamp of a device input, history included. */
static int64_t pending_samples(const struct lane *lane)
{
    const struct fgpu_antenna *a = antenna_of(lane);
    int64_t timestamp_samples;

    if (a->current)
        return a->current->timestamp_samples;
    return matcher_peek(lane->matcher, &timestamp_samples) ? timestamp_samples - a->layout->history_samples : INT64_MAX;
}

/* Returns true if another antenna has not finished earlier data.  In a replay, such data go first.  Otherwise they could
 * be late. */
static bool is_ahead(const struct lane *lane)
{
    const struct engine *engine = lane->engine;

    for (size_t i = 0; i < engine->n_lanes; i++)
        if (engine->lanes[i] != lane &&
            pending_samples(engine->lanes[i]) < antenna_of(lane)->current->timestamp_samples)
            return true;
    return false;
}

bool fgpu_antenna_process(struct lane *lane, bool may_wait)
{
    struct fgpu_antenna *a = antenna_of(lane);
    bool done = true;

    for (size_t o = 0; o < a->layout->n_outputs; o++)
        done = fgpu_output_advance(a->outputs[o], a->current, may_wait) && done;
    const bool waits = fgpu_gnss_is_replay(a->gnss) && is_ahead(lane);
    done = !waits && fgpu_gnss_process(a->gnss, a->ant, lane->compute, a->current, may_wait) && done;
    if (a->went_back)
        command_steady(lane->engine->channel, steady_of(lane->engine));
    a->went_back = false;
    return done;
}

void fgpu_antenna_release(struct lane *lane)
{
    struct fgpu_antenna *a = antenna_of(lane);

    a->previous = a->current;
    a->current = NULL;
}

bool fgpu_antenna_flush(struct lane *lane)
{
    struct fgpu_antenna *a = antenna_of(lane);

    for (size_t o = 0; o < a->layout->n_outputs; o++)
        fgpu_output_flush(a->outputs[o]);
    return fgpu_gnss_flush(a->gnss, a->ant);
}

void fgpu_antenna_apply(struct engine *engine, struct command *base)
{
    struct fgpu_command *command = (struct fgpu_command *)base;

    if (command->gnss.action != FGPU_GNSS_NO_ACTION) {
        fgpu_gnss_apply(antenna_of(engine->lanes[0])->gnss, &command->gnss);
        command_answer(engine->channel, base, steady_of(engine));
        return;
    }
    struct fgpu_output *output = fgpu_antenna_output(engine->lanes[command->ant], command->output);

    if (command->gains)
        fgpu_output_set_gains(output, command->gains);
    else
        fgpu_output_set_delays(output, &command->delays);
    command_answer(engine->channel, base, steady_of(engine));
}

struct fgpu_output *fgpu_antenna_output(const struct lane *lane, size_t output)
{
    return antenna_of(lane)->outputs[output];
}

void fgpu_antenna_measure(struct lane *lane, const struct fgpu_buffer *buffer)
{
    struct fgpu_antenna *a = antenna_of(lane);

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

void fgpu_antenna_log(const struct lane *lane)
{
    const struct fgpu_antenna *antenna = antenna_of(lane);
    uint64_t n_unmatched = counter_get(&antenna->unmatched_chunks);

    log_info("%s: %llu chunk%s discarded (other polarisation missing), %llu discarded (too late)", antenna->name,
             (unsigned long long)n_unmatched, plural(n_unmatched),
             (unsigned long long)counter_get(&antenna->lane.late_chunks));
    if (antenna->level.n_closed)
        log_info("%s: input power of polarisations 0 and 1: %.6f and %.6f dBFS in the last of %lld measured seconds%s",
                 antenna->name, antenna->level.dbfs[0], antenna->level.dbfs[1], (long long)antenna->level.n_closed,
                 antenna->level.valid ? "" : " (samples are missing)");
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_input(struct fgpu_antenna *a, struct fgpu_device_input *in)
{
    size_t n_heaps = a->layout->history_heaps + a->layout->heaps_per_chunk;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        in->samples[pol] = device_alloc(a->lane.engine->c.device, fgpu_device_input_bytes(a->layout));
        in->present[pol] = calloc(n_heaps, 1);
        in->sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        if (!in->samples[pol] || !in->present[pol] || !in->sums[pol])
            return -ENOMEM;
    }
    return lane_add_input(&a->lane, &in->base);
}

/* Initialises the measurement of the input power.  Its windows last about a second, and consist of whole batches of the
 * output that measures the inputs. */
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
    stats_counter("fgpu_unmatched_chunks", "Chunks discarded because the other polarisation's chunk was missing.",
                  labels, &a->unmatched_chunks);
    stats_counter("fgpu_late_chunks",
                  "Chunks discarded because the worker got them after it had processed later chunks.", labels,
                  &a->lane.late_chunks);
    stats_gauge("fgpu_input_power_valid",
                "1 if no sample was missing while the mean in fgpu_input_power_dbfs was measured, else 0.", labels,
                &a->power_valid);
    for (int pol = 0; pol < N_POLS; pol++) {
        char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_gauge_scaled(
            "fgpu_input_power_dbfs",
            "Mean power of the samples over about a second, in dBFS; 0 dBFS is the power of a full-scale sine.",
            with_pol, &a->power_udb[pol], 1e-6);
        fgpu_monitor_init(&a->monitors[pol], a->config, with_pol);
    }
}

/* Adds the sensors of an antenna: delay models of each output and polarisation, and the input monitors. */
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
            .description = "Delay model in effect: (ADC timestamp since which the model is in effect, delay in s, "
                           "delay rate in s/s, phase in rad, phase rate in rad/s); a quadratic model also has the "
                           "accelerations of the delay, in s/s^2, and of the phase, in rad/s^2",
            .units = "",
            .type = SENSOR_STRING,
            .format = fgpu_delay_text_format,
        };
        snprintf(name, sizeof(name), "%s.input%zu.delay", fgpu_config_output(a->config, o)->name, ant * N_POLS + pol);
        struct sensor_reading first = fgpu_delay_text_reading(&none, &timebase, 0);
        first.unix_ns = clock_unix_ns();
        err = sensors_add(sensors, fgpu_output_delay_sensor(a->outputs[o], pol), &about, first);
    }
    for (unsigned pol = 0; pol < N_POLS && !err; pol++)
        err = fgpu_monitor_add_sensors(&a->monitors[pol], sensors, ant * N_POLS + pol);
    return err;
}

static int create_outputs(struct fgpu_antenna *a, size_t ant, struct fgpu_send *send, const struct fgpu_choice *choices)
{
    const struct engine *engine = a->lane.engine;
    int err = 0;

    a->outputs = calloc(a->layout->n_outputs, sizeof(struct fgpu_output *));
    if (!a->outputs)
        return -ENOMEM;
    for (size_t o = 0; !err && o < a->layout->n_outputs; o++)
        err = fgpu_output_create(&(struct fgpu_output_config){.config = a->config,
                                                              .layout = a->layout,
                                                              .device = engine->c.device,
                                                              .compute = a->lane.compute,
                                                              .download = engine->download,
                                                              .stream = fgpu_send_stream(send, ant, o),
                                                              .output = o,
                                                              .choice = &choices[o],
                                                              .channel = engine->channel},
                                 &a->outputs[o]);
    return err;
}

static int create_antenna(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                          size_t ant, struct fgpu_send *send, struct fgpu_gnss *gnss, const struct fgpu_choice *choices)
{
    struct fgpu_antenna *a = calloc(1, sizeof(*a));
    char name[32];

    if (!a)
        return -ENOMEM;
    a->config = config;
    a->layout = layout;
    a->gnss = gnss;
    a->ant = ant;
    a->name = fgpu_config_antenna(config, ant)->name;
    a->newest_samples = INT64_MIN;
    const struct matcher_config matcher = {
        .n_members = N_POLS,
        .window_chunks = (unsigned)config->recv.base.window_chunks,
        .wait_chunks = fgpu_layout_wait_chunks(&config->recv),
        .jump_members = N_POLS,
        .chunk_samples = config->recv.chunk_samples,
        .max_chunks = N_POLS * (size_t)config->recv.base.n_chunks,
    };
    snprintf(name, sizeof(name), "compute%zu", ant);
    int err = lane_init(&a->lane, engine, &matcher, name, config->recv.base.gpudirect);
    for (size_t i = 0; !err && i < LANE_N_INPUTS; i++)
        err = create_input(a, &a->inputs[i]);
    if (!err)
        err = create_outputs(a, ant, send, choices);
    if (err)
        return err;
    init_level(a);
    register_metrics(a);
    return add_sensors(a, ant, engine->c.sensors);
}

static void destroy_antenna(struct fgpu_antenna *a)
{
    lane_fini(&a->lane);
    for (size_t o = 0; a->outputs && o < a->layout->n_outputs; o++)
        fgpu_output_destroy(a->outputs[o]);
    free(a->outputs);
    for (size_t i = 0; i < LANE_N_INPUTS; i++) {
        struct fgpu_device_input *in = &a->inputs[i];
        lane_fini_input(&in->base);
        for (unsigned pol = 0; pol < N_POLS; pol++) {
            device_free(a->lane.engine->c.device, in->samples[pol]);
            free(in->present[pol]);
            free(in->sums[pol]);
        }
    }
    free(a);
}

int fgpu_antennas_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                         struct fgpu_send *send, struct fgpu_gnss *gnss, const struct fgpu_choice *choices)
{
    int err = 0;

    for (size_t a = 0; !err && a < layout->n_ants; a++)
        err = create_antenna(config, layout, engine, a, send, gnss, choices);
    if (err) {
        stats_reset(); /* must be called first; otherwise /metrics could read freed counters */
        fgpu_antennas_destroy(engine);
    }
    return err;
}

void fgpu_antennas_destroy(struct engine *engine)
{
    while (engine->n_lanes > 0)
        destroy_antenna(antenna_of(engine->lanes[--engine->n_lanes]));
}
