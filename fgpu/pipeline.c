/* pipeline.c - the worker's loop, and the order in which the stages are made and unmade. */
#include "fgpu/pipeline.h"

#include "common/recv/chunk.h"
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/daemon/drain.h"
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/daemon/service.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "fgpu/antenna.h"
#include "fgpu/baseband.h"
#include "fgpu/control.h"
#include "fgpu/recv.h"
#include "fgpu/send.h"
#include "fgpu/settings.h"
#include "fgpu/status.h"
#include "fgpu/tune.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What comes to the worker's inbox; item.object in brackets. */
enum item_kind {
    ITEM_CHUNK,      /* a full chunk of an input [struct chunk] */
    ITEM_INPUT_FREE, /* a device input has no readers left [struct fgpu_device_input] */
    ITEM_DOWNLOADED, /* an output buffer is finished, and in host memory what is wanted there [struct fgpu_buffer] */
    ITEM_SENT,       /* an output buffer is free again [struct fgpu_buffer] */
    ITEM_RECV_END,   /* a receive thread's file has ended, or its source has died */
    ITEM_DELAYS,     /* new delay models [struct command] */
    ITEM_GAINS,      /* new gains [struct fgpu_gains] */
    ITEM_DRAIN,      /* main: no more chunks will come; value = when to give up */
};

/* Commands that may wait for the worker, beside one for each output of each antenna. */
#define N_SPARE_COMMANDS 16

/* A snapshot on its way to the worker, which gives the slot back to 'free_commands'. */
struct command {
    size_t ant, output;
    struct fgpu_delays delays;
};

struct fgpu_pipeline {
    const struct fgpu_config *config;
    struct fgpu_layout layout_storage;
    const struct fgpu_layout *layout;
    struct device *device;
    struct daemon_context c;
    struct inbox *inbox;
    struct command *commands; /* [n_commands] */
    size_t n_commands;
    struct inbox *free_commands;
    struct device_stream *upload, *download;
    struct fgpu_send *send;
    struct fgpu_recv *recv;
    struct fgpu_antenna **antennas; /* [n_ants] */
    struct fgpu_settings *settings;
    struct fgpu_control *control;
    uint64_t *dither_seeds;      /* [n_outputs] */
    struct fgpu_choice *choices; /* [n_outputs] */
    float **filters;             /* [n_outputs] of narrow bands; else NULL */
    struct fgpu_status *status;
    struct thread worker;
    bool started;
    uint64_t n_posted;              /* [main] commands */
    _Atomic uint64_t n_obeyed;      /* of them; the worker's */
    _Atomic int64_t steady_samples; /* all of those show from this timestamp on; the worker's */
    /* [worker] */
    bool draining;
    int64_t give_up_ns; /* INT64_MAX: a recording takes as long as it takes */
    size_t n_given_up;  /* chunks */
    size_t n_recv_ended;
    size_t n_downloaded;
};

static bool may_wait(const struct fgpu_pipeline *p)
{
    return p->draining || fgpu_recv_can_wait(p->recv);
}

static void begin_drain(struct fgpu_pipeline *p)
{
    if (p->draining)
        return;
    p->draining = true;
    for (size_t a = 0; a < p->layout->n_ants; a++)
        fgpu_antenna_end(p->antennas[a]);
}

/* From which timestamp on all that was set shows, on every antenna. */
static void note_steady(struct fgpu_pipeline *p)
{
    int64_t steady_samples = 0;

    for (size_t a = 0; a < p->layout->n_ants; a++) {
        int64_t samples = fgpu_antenna_steady_samples(p->antennas[a]);
        steady_samples = samples > steady_samples ? samples : steady_samples;
    }
    atomic_store_explicit(&p->steady_samples, steady_samples, memory_order_relaxed);
}

/* A command has been carried out. */
static void obeyed(struct fgpu_pipeline *p)
{
    note_steady(p);
    atomic_fetch_add_explicit(&p->n_obeyed, 1, memory_order_release); /* with fgpu_pipeline_n_obeyed() */
}

/* As fgpu_antenna_advance(). */
static bool advance(struct fgpu_pipeline *p, struct fgpu_antenna *antenna, bool wait)
{
    bool done = fgpu_antenna_advance(antenna, wait);

    if (fgpu_antenna_went_back(antenna)) {
        note_steady(p);
        fgpu_control_time_went_back(p->control);
    }
    return done;
}

static struct fgpu_antenna *set_delays(struct fgpu_pipeline *p, struct command *command)
{
    struct fgpu_antenna *antenna = p->antennas[command->ant];

    fgpu_antenna_set_delays(antenna, command->output, &command->delays);
    obeyed(p);
    inbox_push(p->free_commands, &(struct inbox_item){0, 0, command});
    return antenna;
}

static void set_gains(struct fgpu_pipeline *p, struct fgpu_gains *gains)
{
    fgpu_antenna_set_gains(p->antennas[gains->ant], gains);
    obeyed(p);
}

static struct fgpu_antenna *take_back(struct fgpu_pipeline *p, struct fgpu_buffer *buffer)
{
    fgpu_stream_give(buffer);
    return p->antennas[buffer->stream->ant];
}

/* Takes in one item.  Returns the antenna that can go on, or NULL for all or none. */
static struct fgpu_antenna *handle(struct fgpu_pipeline *p, const struct inbox_item *item)
{
    struct fgpu_buffer *buffer;
    struct chunk *chunk;

    switch ((enum item_kind)item->kind) {
    case ITEM_CHUNK:
        chunk = item->object;
        fgpu_antenna_add_chunk(p->antennas[chunk->member / N_POLS], chunk->member % N_POLS, chunk);
        return p->antennas[chunk->member / N_POLS];
    case ITEM_INPUT_FREE: return fgpu_antenna_give_input(item->object);
    case ITEM_DOWNLOADED:
        p->n_downloaded++;
        buffer = item->object;
        if (!device_ok(p->device))
            return take_back(p, buffer); /* there may be anything in it */
        fgpu_antenna_measure(p->antennas[buffer->stream->ant], buffer);
        fgpu_status_sample(p->status, p->antennas[buffer->stream->ant], buffer);
        fgpu_send_push(buffer);
        return NULL;
    case ITEM_SENT: return take_back(p, item->object);
    case ITEM_RECV_END:
        if (fgpu_recv_failed(p->recv))
            service_stop(p->c.service, 1);
        if (++p->n_recv_ended == fgpu_recv_n_threads(p->recv))
            begin_drain(p);
        return NULL;
    case ITEM_DELAYS: return set_delays(p, item->object);
    case ITEM_GAINS: set_gains(p, item->object); return NULL;
    case ITEM_DRAIN:
        p->give_up_ns = item->value;
        begin_drain(p);
        return NULL;
    }
    return NULL;
}

/* While draining: true once nothing is left to compute or to download. */
static bool drained(struct fgpu_pipeline *p)
{
    size_t n_finished = 0;
    bool done = true, late = clock_monotonic_ns() >= p->give_up_ns;

    for (size_t a = 0; late && a < p->layout->n_ants; a++)
        p->n_given_up += fgpu_antenna_drop(p->antennas[a]);
    for (size_t a = 0; a < p->layout->n_ants; a++)
        done = advance(p, p->antennas[a], true) && done;
    if (!done)
        return false;
    for (size_t a = 0; a < p->layout->n_ants; a++) {
        fgpu_antenna_flush(p->antennas[a]);
        n_finished += fgpu_antenna_n_finished(p->antennas[a]);
    }
    return p->n_downloaded == n_finished;
}

static void *run_worker(void *arg)
{
    struct fgpu_pipeline *p = arg;
    struct inbox_item item;

    while (!(p->draining && drained(p)) && inbox_pop(p->inbox, &item) == 0) {
        struct fgpu_antenna *antenna = handle(p, &item);
        if (antenna)
            advance(p, antenna, may_wait(p));
    }
    if (p->n_recv_ended == fgpu_recv_n_threads(p->recv))
        service_stop(p->c.service, 0);
    return NULL;
}

/* ---- Making and unmaking ------------------------------------------------------------------------------------------
 * */

/* All that can ever wait in the inbox at once. */
static size_t inbox_slots(const struct fgpu_pipeline *p)
{
    size_t n = p->layout->n_inputs * (size_t)p->config->recv.n_chunks;

    n += p->layout->n_ants * FGPU_N_DEVICE_INPUTS;
    for (size_t o = 0; o < p->layout->n_outputs; o++)
        n += p->layout->n_ants * fgpu_output_buffers(p->config, fgpu_config_output(p->config, o));
    n += p->layout->n_ants * p->layout->n_outputs * FGPU_N_GAINS;
    return n + p->n_commands + p->layout->n_recv_threads + 1 /* drain */;
}

static int choose_dither_seeds(struct fgpu_pipeline *p)
{
    p->dither_seeds = calloc(p->layout->n_outputs, sizeof(*p->dither_seeds));
    if (!p->dither_seeds)
        return -ENOMEM;
    for (size_t o = 0; o < p->layout->n_outputs; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(p->config, o);
        p->dither_seeds[o] = (uint64_t)output->dither_seed;
        if (output->dither != FGPU_DITHER_UNIFORM)
            continue;
        if (output->dither_seed < 0 && getrandom(&p->dither_seeds[o], sizeof(uint64_t), 0) != sizeof(uint64_t))
            return -EIO;
        p->dither_seeds[o] &= INT64_MAX >> 10; /* so that it can be given back as dither_seed */
        log_info("%s: dither seed %llu", output->name, (unsigned long long)p->dither_seeds[o]);
    }
    return 0;
}

/* Filters of narrow bands, which all antennas share. */
static int design_filters(struct fgpu_pipeline *p, char *why, size_t why_bytes)
{
    p->filters = calloc(p->layout->n_outputs, sizeof(*p->filters));
    int err = p->filters ? 0 : -ENOMEM;

    for (size_t o = 0; !err && o < p->layout->n_outputs; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(p->config, o);
        if (output->kind != FGPU_NARROWBAND)
            continue;
        err = fgpu_baseband_design(p->config, output, &p->filters[o]);
        if (err != -EDOM)
            continue;
        err = -EINVAL; /* a restart will not help */
        snprintf(why, why_bytes,
                 "outputs[%zu].ddc_taps: there is no filter of %lld taps for output %s in double precision; with "
                 "fewer taps or another pass_bandwidth there may be",
                 o, (long long)fgpu_ddc_taps(output), output->name);
    }
    return err;
}

static int create_commands(struct fgpu_pipeline *p)
{
    p->n_commands = p->layout->n_ants * p->layout->n_outputs + N_SPARE_COMMANDS;
    p->commands = calloc(p->n_commands, sizeof(*p->commands));
    int err = p->commands ? inbox_create(p->n_commands, &p->free_commands) : -ENOMEM;
    for (size_t i = 0; !err && i < p->n_commands; i++)
        inbox_push(p->free_commands, &(struct inbox_item){0, 0, &p->commands[i]});
    return err;
}

static int create_antennas(struct fgpu_pipeline *p)
{
    p->antennas = calloc(p->layout->n_ants, sizeof(struct fgpu_antenna *));
    if (!p->antennas)
        return -ENOMEM;
    for (size_t a = 0; a < p->layout->n_ants; a++) {
        struct fgpu_antenna_config config = {p->config,  p->layout,  p->device,   p->upload,       p->download,
                                             p->send,    a,          p->inbox,    ITEM_INPUT_FREE, p->dither_seeds,
                                             p->choices, p->filters, p->c.sensors};
        int err = fgpu_antenna_create(&config, &p->antennas[a]);
        if (err)
            return err;
    }
    return 0;
}

static int create_stages(struct fgpu_pipeline *p, char *why, size_t why_bytes)
{
    struct fgpu_recv_config recv = {p->config, p->layout, p->device, p->inbox, ITEM_CHUNK, ITEM_RECV_END};
    struct fgpu_send_config send = {p->config,       p->layout, p->device,    p->inbox,
                                    ITEM_DOWNLOADED, ITEM_SENT, p->c.sensors, p->c.service};

    int err = fgpu_recv_create(&recv, &p->recv, why, why_bytes);
    if (!err)
        err = fgpu_send_create(&send, &p->send, why, why_bytes);
    if (err)
        return err;
    why[0] = '\0';
    err = create_antennas(p);
    if (!err)
        err = fgpu_status_create(p->config, p->layout, p->send, &p->status);
    if (!err)
        err =
            fgpu_settings_create(p->config, service_loop(p->c.service), p->c.sensors, p, &p->settings, why, why_bytes);
    if (err)
        return err;
    bool all = fgpu_settings_post(p->settings);
    assert(all); /* there is a slot for each */
    const struct fgpu_control_config control = {p->config, p, p->settings, p->dither_seeds, &p->c};
    return fgpu_control_create(&control, &p->control);
}

int fgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                         size_t why_bytes)
{
    struct fgpu_pipeline *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->c = *context;
    p->config = values;
    p->device = context->device;
    p->give_up_ns = INT64_MAX;
    p->layout = &p->layout_storage;
    p->choices = calloc(p->config->outputs.n, sizeof(*p->choices));
    if (!p->choices) {
        free(p);
        return -ENOMEM;
    }
    fgpu_tune_load(p->config, p->device, p->choices);
    fgpu_layout_init(&p->layout_storage, p->config, device_shared_bytes(p->device), p->choices,
                     endpoint_interface_mtu(p->config->recv.interface));
    int err = fgpu_layout_check_host(p->layout, p->config, p->device, why, why_bytes);
    if (!err)
        err = create_commands(p);
    if (!err)
        err = inbox_create(inbox_slots(p), &p->inbox);
    if (!err)
        err = device_stream_create(p->device, "upload", &p->upload);
    if (!err)
        err = device_stream_create(p->device, "download", &p->download);
    if (!err)
        err = choose_dither_seeds(p);
    if (!err)
        err = design_filters(p, why, why_bytes);
    if (err)
        goto undo;
    err = create_stages(p, why, why_bytes);
    if (err)
        goto undo;
    const struct fgpu_layout *l = p->layout;
    log_info("%zu antenna%s, %zu output%s each, %zu receive thread%s", l->n_ants, plural(l->n_ants), l->n_outputs,
             plural(l->n_outputs), l->n_recv_threads, plural(l->n_recv_threads));
    memory_log(&(struct memory_use){p->layout->host_bytes, p->layout->chunks_bytes, p->layout->buffers_bytes,
                                    p->layout->device_bytes, p->layout->direct_bytes});
    status_set_source(p->c.status, fgpu_status_describe, p->status);
    *pipeline = p;
    return 0;
undo:
    if (err == -ENOMEM && !why[0])
        snprintf(why, why_bytes,
                 "recv.chunk_samples: there is not enough memory: %llu MiB on the host and %llu MiB on the device are "
                 "needed",
                 (unsigned long long)(p->layout->host_bytes >> 20),
                 (unsigned long long)(p->layout->device_bytes >> 20));
    fgpu_pipeline_destroy(p);
    return err;
}

int fgpu_pipeline_set_delays(void *arg, size_t ant, size_t output, const struct fgpu_delays *delays)
{
    struct fgpu_pipeline *pipeline = arg;
    struct inbox_item item;

    if (inbox_try_pop(pipeline->free_commands, &item))
        return -EAGAIN;
    struct command *command = item.object;
    *command = (struct command){ant, output, *delays};
    inbox_push(pipeline->inbox, &(struct inbox_item){ITEM_DELAYS, 0, command});
    pipeline->n_posted++;
    return 0;
}

int fgpu_pipeline_set_gains(void *arg, size_t ant, size_t output, const float *values)
{
    struct fgpu_pipeline *pipeline = arg;
    struct fgpu_gains *gains = fgpu_antenna_take_gains(pipeline->antennas[ant], output);

    if (!gains)
        return -EAGAIN;
    memcpy(gains->values, values, fgpu_gain_bytes(fgpu_config_output(pipeline->config, output)));
    inbox_push(pipeline->inbox, &(struct inbox_item){ITEM_GAINS, 0, gains});
    pipeline->n_posted++;
    return 0;
}

uint64_t fgpu_pipeline_n_posted(const void *arg)
{
    return ((const struct fgpu_pipeline *)arg)->n_posted;
}

uint64_t fgpu_pipeline_n_obeyed(const void *arg, int64_t *steady_samples)
{
    const struct fgpu_pipeline *pipeline = arg;
    uint64_t n = atomic_load_explicit(&pipeline->n_obeyed, memory_order_acquire); /* with obeyed() */

    *steady_samples = atomic_load_explicit(&pipeline->steady_samples, memory_order_relaxed);
    return n;
}

int64_t fgpu_pipeline_confirmed_samples(const void *arg, size_t ant, size_t output)
{
    const struct fgpu_pipeline *pipeline = arg;

    return fgpu_antenna_confirmed_samples(pipeline->antennas[ant], output);
}

void fgpu_pipeline_control(void *arg, struct katcp_device *device)
{
    const struct fgpu_pipeline *pipeline = arg;

    fgpu_control_requests(pipeline->control, device);
}

int fgpu_pipeline_start(void *arg)
{
    struct fgpu_pipeline *pipeline = arg;
    int err = fgpu_send_start(pipeline->send);
    if (err)
        return err;
    err = thread_start(&pipeline->worker, "worker", -1, run_worker, pipeline);
    if (err)
        return err;
    pipeline->started = true;
    err = fgpu_recv_start(pipeline->recv);
    /* Each antenna's stream has its own threads for kernels, from the first kernel on, and ends the process if not. */
    return err ? err : threads_probe(pipeline->layout->n_ants * device_n_threads(pipeline->device));
}

int fgpu_pipeline_enable(void *arg, char *why, size_t why_bytes)
{
    struct fgpu_pipeline *pipeline = arg;

    return fgpu_recv_enable(pipeline->recv, why, why_bytes);
}

bool fgpu_pipeline_stop(void *arg, int64_t give_up_ns)
{
    struct fgpu_pipeline *pipeline = arg;

    if (!pipeline->started)
        return true;
    fgpu_control_stop(pipeline->control);
    fgpu_settings_stop(pipeline->settings);
    fgpu_recv_stop(pipeline->recv);
    fgpu_send_set_deadline(pipeline->send, give_up_ns);
    inbox_push(pipeline->inbox, &(struct inbox_item){ITEM_DRAIN, give_up_ns, NULL});
    thread_join(&pipeline->worker);
    fgpu_recv_log(pipeline->recv);
    for (size_t a = 0; a < pipeline->layout->n_ants; a++)
        fgpu_antenna_log(pipeline->antennas[a]);
    fgpu_send_stop(pipeline->send);
    device_stream_wait(pipeline->upload);
    device_stream_wait(pipeline->download);
    pipeline->started = false;
    bool drained = drain_is_complete(pipeline->n_given_up, fgpu_send_n_given_up(pipeline->send));
    return drained && !fgpu_send_failed(pipeline->send);
}

void fgpu_pipeline_destroy(void *arg)
{
    struct fgpu_pipeline *pipeline = arg;

    if (!pipeline)
        return;
    fgpu_pipeline_stop(pipeline, 0); /* of a start that failed */
    stats_reset(); /* whoever asks for /metrics now, as of a start that failed, must not see what goes */
    fgpu_control_destroy(pipeline->control);
    fgpu_settings_destroy(pipeline->settings);
    for (size_t a = 0; pipeline->antennas && a < pipeline->layout->n_ants; a++)
        fgpu_antenna_destroy(pipeline->antennas[a]);
    device_stream_destroy(pipeline->upload);
    device_stream_destroy(pipeline->download);
    fgpu_recv_destroy(pipeline->recv);
    fgpu_send_destroy(pipeline->send);
    inbox_destroy(pipeline->inbox);
    inbox_destroy(pipeline->free_commands);
    fgpu_status_destroy(pipeline->status);
    free(pipeline->commands);
    for (size_t o = 0; pipeline->filters && o < pipeline->layout->n_outputs; o++)
        free(pipeline->filters[o]);
    free(pipeline->filters);
    free(pipeline->choices);
    free(pipeline->dither_seeds);
    free(pipeline->antennas);
    free(pipeline);
}
