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
#include "fgpu/command.h"
#include "fgpu/control.h"
#include "fgpu/recv.h"
#include "fgpu/send.h"
#include "fgpu/settings.h"
#include "fgpu/status.h"
#include "fgpu/tune.h"

#include <errno.h>
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
    ITEM_COMMAND,    /* what main wants changed [struct fgpu_command] */
    ITEM_DRAIN,      /* main: no more chunks will come; value = when to give up */
};

/* Commands that may wait for the worker, beside one for each output of each antenna. */
#define N_SPARE_COMMANDS 16

struct fgpu_pipeline {
    const struct fgpu_config *config;
    struct fgpu_layout layout_storage;
    const struct fgpu_layout *layout;
    struct device *device;
    struct daemon_context c;
    struct inbox *inbox;
    struct fgpu_command *commands; /* [n_commands] */
    size_t n_commands;
    struct command_channel *channel;
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
    /* [worker] */
    bool draining;
    int64_t give_up_ns; /* INT64_MAX: a recording takes as long as it takes */
    size_t n_given_up;  /* chunks */
    size_t n_recv_ended;
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
static int64_t steady_of(const struct fgpu_pipeline *p)
{
    int64_t steady_samples = 0;

    for (size_t a = 0; a < p->layout->n_ants; a++) {
        int64_t samples = fgpu_antenna_steady_samples(p->antennas[a]);
        steady_samples = samples > steady_samples ? samples : steady_samples;
    }
    return steady_samples;
}

/* As fgpu_antenna_advance(). */
static bool advance(struct fgpu_pipeline *p, struct fgpu_antenna *antenna, bool wait)
{
    bool done = fgpu_antenna_advance(antenna, wait);

    if (fgpu_antenna_went_back(antenna))
        command_steady(p->channel, steady_of(p));
    return done;
}

/* Returns the antenna that can go on, if any. */
static struct fgpu_antenna *apply(struct fgpu_pipeline *p, struct fgpu_command *command)
{
    struct fgpu_antenna *antenna = p->antennas[command->ant];
    struct fgpu_output *walk = fgpu_antenna_walk(antenna, command->output);
    bool goes_on = !command->gains;

    if (command->gains)
        fgpu_output_set_gains(walk, command->gains);
    else
        fgpu_output_set_delays(walk, &command->delays);
    command_answer(p->channel, &command->base, steady_of(p));
    return goes_on ? antenna : NULL;
}

static struct fgpu_antenna *take_back(struct fgpu_pipeline *p, struct fgpu_buffer *buffer)
{
    outbuf_give(&buffer->base);
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
        buffer = item->object;
        outbuf_downloaded(&buffer->base);
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
    case ITEM_COMMAND: return apply(p, item->object);
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
    bool done = true, late = clock_monotonic_ns() >= p->give_up_ns;

    for (size_t a = 0; late && a < p->layout->n_ants; a++)
        p->n_given_up += fgpu_antenna_drop(p->antennas[a]);
    for (size_t a = 0; a < p->layout->n_ants; a++)
        done = advance(p, p->antennas[a], true) && done;
    if (!done)
        return false;
    for (size_t a = 0; a < p->layout->n_ants; a++)
        fgpu_antenna_flush(p->antennas[a]);
    return fgpu_send_n_downloading(p->send) == 0;
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
    p->commands = calloc(p->n_commands, sizeof(*p->commands));
    int err = p->commands ? 0 : -ENOMEM;

    if (!err)
        err = command_create(p->n_commands, service_loop(p->c.service), p->inbox, ITEM_COMMAND, &p->channel);
    for (size_t i = 0; !err && i < p->n_commands; i++)
        command_add(p->channel, &p->commands[i].base);
    return err;
}

static int create_antennas(struct fgpu_pipeline *p)
{
    p->antennas = calloc(p->layout->n_ants, sizeof(struct fgpu_antenna *));
    if (!p->antennas)
        return -ENOMEM;
    for (size_t a = 0; a < p->layout->n_ants; a++) {
        struct fgpu_antenna_config config = {.config = p->config,
                                             .layout = p->layout,
                                             .device = p->device,
                                             .upload = p->upload,
                                             .download = p->download,
                                             .send = p->send,
                                             .ant = a,
                                             .worker = p->inbox,
                                             .input_free_kind = ITEM_INPUT_FREE,
                                             .dither_seeds = p->dither_seeds,
                                             .choices = p->choices,
                                             .filters = p->filters,
                                             .sensors = p->c.sensors,
                                             .channel = p->channel};
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
    fgpu_settings_apply(p->settings);
    const struct fgpu_control_config control = {p->config, p->channel, p->settings, p->dither_seeds, &p->c};
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
    p->n_commands = p->layout->n_ants * p->layout->n_outputs + N_SPARE_COMMANDS;
    if (!err)
        err = inbox_create(inbox_slots(p), &p->inbox);
    if (!err)
        err = create_commands(p);
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

struct fgpu_output *fgpu_pipeline_walk(const void *arg, size_t ant, size_t output)
{
    const struct fgpu_pipeline *pipeline = arg;

    return fgpu_antenna_walk(pipeline->antennas[ant], output);
}

void fgpu_pipeline_control(void *arg, struct katcp_device *device)
{
    const struct fgpu_pipeline *pipeline = arg;

    fgpu_control_requests(pipeline->control, device);
}

int fgpu_pipeline_start(void *arg)
{
    struct fgpu_pipeline *pipeline = arg;
    int err = sender_group_start(fgpu_send_senders(pipeline->send));
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
    sender_group_set_deadline(fgpu_send_senders(pipeline->send), give_up_ns);
    inbox_push(pipeline->inbox, &(struct inbox_item){ITEM_DRAIN, give_up_ns, NULL});
    thread_join(&pipeline->worker);
    fgpu_recv_log(pipeline->recv);
    for (size_t a = 0; a < pipeline->layout->n_ants; a++)
        fgpu_antenna_log(pipeline->antennas[a]);
    fgpu_send_stop(pipeline->send);
    device_stream_wait(pipeline->upload);
    device_stream_wait(pipeline->download);
    pipeline->started = false;
    bool drained =
        drain_is_complete(pipeline->n_given_up, sender_group_n_given_up(fgpu_send_senders(pipeline->send)));
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
    command_destroy(pipeline->channel);
    fgpu_recv_destroy(pipeline->recv);
    fgpu_send_destroy(pipeline->send);
    inbox_destroy(pipeline->inbox);
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
