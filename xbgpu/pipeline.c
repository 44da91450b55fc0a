/* pipeline.c - the worker's loop, and the order in which the stages are made and unmade. */
#include "xbgpu/pipeline.h"

#include "common/recv/chunk.h"
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/daemon/drain.h"
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/daemon/service.h"
#include "common/recv/matcher.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "xbgpu/control.h"
#include "xbgpu/output.h"
#include "xbgpu/stream_info.h"
#include "xbgpu/fengs.h"
#include "xbgpu/labels.h"
#include "xbgpu/recv.h"
#include "xbgpu/status.h"
#include "xbgpu/input.h"
#include "xbgpu/send.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What comes to the worker's inbox; item.object in brackets. */
enum item_kind {
    ITEM_CHUNK,      /* a full chunk of a member [struct chunk] */
    ITEM_INPUT_FREE, /* a device input has no readers left [input.c's] */
    ITEM_DOWNLOADED, /* a dump is in host memory [struct xbgpu_dump] */
    ITEM_SENT,       /* a dump buffer is free again [struct xbgpu_dump] */
    ITEM_COMMAND,    /* what main wants changed [struct xbgpu_command] */
    ITEM_RECV_END,   /* a receive thread's file has ended, or its source has died */
    ITEM_DRAIN,      /* main: no more chunks will come; value = when to give up */
};

#define MAX_WRONG_DUMPS   10       /* with which the process ends */
#define RX_TIMEOUT_MIN_NS NS_PER_S /* of silence; and ten chunks at least */

struct xbgpu_pipeline {
    const struct xbgpu_config *config;
    struct xbgpu_layout layout_storage;
    const struct xbgpu_layout *layout;
    struct device *device;
    struct daemon_context c;
    struct inbox *inbox;
    struct device_stream *upload, *compute, *download;
    struct matcher *matcher;
    struct xbgpu_send *send;
    struct xbgpu_recv *recv;
    struct xbgpu_inputs *inputs;
    struct xbgpu_input_sensors input_sensors;
    struct xbgpu_labels labels;
    struct xbgpu_fengs fengs;
    struct stream_info info;
    struct xbgpu_control *control;
    void *selected;               /* device: what the outputs with gates use by turns */
    struct xbgpu_output *outputs; /* [n_outputs] */
    struct xbgpu_status *status;
    struct thread worker;
    bool started;
    struct counter late_chunks;
    /* [worker] */
    bool walking;
    struct xbgpu_output_input walk; /* what the outputs walk */
    bool draining;
    int64_t give_up_ns; /* INT64_MAX: a recording takes as long as it takes */
    size_t n_given_up;  /* chunks */
    size_t n_recv_ended;
    int n_wrong; /* dumps */
};

static bool may_wait(const struct xbgpu_pipeline *p)
{
    return p->draining || xbgpu_recv_can_wait(p->recv);
}

/* Goes on as far as possible.  Returns true when nothing is left to do. */
static bool advance(struct xbgpu_pipeline *p)
{
    for (;;) {
        if (!p->walking) {
            if (!xbgpu_inputs_next(p->inputs, p->draining, &p->walk))
                return xbgpu_inputs_have_room(p->inputs); /* else there may be more sets */
            p->walking = true;
            int64_t first_samples;
            if (xbgpu_inputs_went_back(p->inputs, &first_samples))
                xbgpu_control_time_went_back(p->control, first_samples);
            for (size_t o = 0; o < p->layout->n_outputs; o++)
                xbgpu_output_begin(&p->outputs[o], &p->walk);
        }
        bool done = true;
        for (size_t o = 0; o < p->layout->n_outputs; o++)
            done = xbgpu_output_correlate(&p->outputs[o], &p->walk, may_wait(p)) && done;
        if (!done)
            return false;
        p->walking = false;
        xbgpu_inputs_release(p->inputs);
    }
}

/* ---- The loop ------------------------------------------------------------------------------------------------------
 * */

static void begin_drain(struct xbgpu_pipeline *p)
{
    if (p->draining)
        return;
    p->draining = true;
    for (size_t m = 0; m < p->layout->n_members; m++)
        matcher_end(p->matcher, (unsigned)m);
}

/* Carries out a command. */
static void obey(struct xbgpu_pipeline *p, struct xbgpu_command *command)
{
    int64_t next_samples = xbgpu_inputs_next_samples(p->inputs);

    switch (command->what) {
    case XBGPU_COMMAND_CAPTURE:
        command->holds_samples =
            xbgpu_stream_set_capture(xbgpu_send_stream(p->send, command->index), command->on, command->from_samples);
        if (command->holds_samples > next_samples) /* a dump of before time went back is still to come */
            command->holds_samples = next_samples;
        break;
    case XBGPU_COMMAND_SHIFTS:
        xbgpu_inputs_set_delays(p->inputs, command->delays);
        command->holds_samples = next_samples;
        break;
    case XBGPU_COMMAND_GATE:
        xbgpu_inputs_set_gate(p->inputs, command->index, &command->gate, command->from_samples);
        command->holds_samples = next_samples;
        break;
    }
    xbgpu_control_obeyed(p->control, command);
}

/* A dump that is wrong.  One may be an accident; of a device that goes on like that another may be found, or the same
 * one begin again. */
static void flag_dump(struct xbgpu_pipeline *p, struct xbgpu_dump *dump)
{
    xbgpu_stream_flag(dump);
    if (gauge_get(p->c.healthy))
        service_status(p->c.service, "FAILED: sums of the device are wrong");
    gauge_set(p->c.healthy, 0);
    if (++p->n_wrong != MAX_WRONG_DUMPS)
        return;
    log_error("%d dumps were wrong since the start: the process ends", MAX_WRONG_DUMPS);
    service_stop(p->c.service, 1);
}

static void handle(struct xbgpu_pipeline *p, const struct inbox_item *item)
{
    struct chunk *chunk;

    switch ((enum item_kind)item->kind) {
    case ITEM_CHUNK:
        chunk = item->object;
        matcher_add(p->matcher, chunk->member, chunk);
        break;
    case ITEM_INPUT_FREE: xbgpu_inputs_give(p->inputs, item->object); break;
    case ITEM_DOWNLOADED:
        outbuf_downloaded(item->object);
        if (!device_ok(p->device)) { /* there may be anything in it */
            outbuf_give(item->object);
            break;
        }
        if (!xbgpu_output_check(item->object))
            flag_dump(p, item->object);
        xbgpu_status_sample(p->status, item->object);
        xbgpu_send_push(item->object);
        break;
    case ITEM_SENT: outbuf_give(item->object); break;
    case ITEM_COMMAND: obey(p, item->object); break;
    case ITEM_RECV_END:
        if (xbgpu_recv_failed(p->recv))
            service_stop(p->c.service, 1);
        if (++p->n_recv_ended == xbgpu_recv_n_threads(p->recv))
            begin_drain(p);
        break;
    case ITEM_DRAIN:
        p->give_up_ns = item->value;
        begin_drain(p);
        break;
    }
}

/* While draining: true once nothing is left to compute or to download. */
static bool drained(const struct xbgpu_pipeline *p, bool idle)
{
    return p->draining && idle && xbgpu_send_n_downloading(p->send) == 0;
}

static void *run_worker(void *arg)
{
    struct xbgpu_pipeline *p = arg;
    struct inbox_item item;
    bool idle = true;

    while (!drained(p, idle) && inbox_pop(p->inbox, &item) == 0) {
        handle(p, &item);
        if (p->draining && clock_monotonic_ns() >= p->give_up_ns)
            p->n_given_up += matcher_drop(p->matcher);
        idle = advance(p);
    }
    xbgpu_inputs_end(p->inputs);
    if (p->n_recv_ended == xbgpu_recv_n_threads(p->recv))
        service_stop(p->c.service, 0);
    return NULL;
}

/* ---- Making and unmaking ------------------------------------------------------------------------------------------
 * */

/* All that can ever wait in the inbox at once. */
static size_t inbox_slots(const struct xbgpu_pipeline *p)
{
    size_t n = p->layout->n_members * (size_t)p->config->recv.n_chunks + XBGPU_N_DEVICE_INPUTS;

    for (size_t o = 0; o < p->layout->n_outputs; o++)
        n += xbgpu_output_buffers(p->config, xbgpu_config_output(p->config, o));
    return n + xbgpu_control_n_commands(p->config) + p->layout->n_recv_threads + 1 /* drain */;
}

static int create_device_side(struct xbgpu_pipeline *p)
{
    struct matcher_config matcher = {
        .n_members = (unsigned)p->layout->n_members,
        .window_chunks = (unsigned)p->config->recv.window_chunks,
        .wait_chunks = (unsigned)p->config->recv.window_chunks,
        .jump_members = 2,
        .chunk_samples = p->layout->chunk_samples,
        .max_chunks = p->layout->n_members * (size_t)p->config->recv.n_chunks,
        .late_chunks = &p->late_chunks,
    };
    int err = inbox_create(inbox_slots(p), &p->inbox);
    if (!err)
        err = matcher_create(&matcher, &p->matcher);
    if (!err)
        err = device_stream_create(p->device, "upload", &p->upload);
    if (!err)
        err = device_stream_create(p->device, "compute", &p->compute);
    if (!err)
        err = device_stream_create(p->device, "download", &p->download);
    if (err)
        return err;
    struct xbgpu_input_config inputs = {p->config,  p->layout, p->device,       p->upload,        p->compute,
                                        p->matcher, p->inbox,  ITEM_INPUT_FREE, &p->input_sensors};
    return xbgpu_inputs_create(&inputs, &p->inputs);
}

static int create_outputs(struct xbgpu_pipeline *p)
{
    p->outputs = calloc(p->layout->n_outputs, sizeof(*p->outputs));
    size_t selected_bytes = p->layout->n_selected_batches * p->layout->n_selected_spectra * p->layout->n_ants *
                            p->layout->n_chan * N_POLS * voltage_bytes(p->layout->format);
    if (!p->outputs || (selected_bytes && !(p->selected = device_alloc(p->device, selected_bytes))))
        return -ENOMEM;
    for (size_t o = 0; o < p->layout->n_outputs; o++) {
        struct xbgpu_stream *stream = xbgpu_send_stream(p->send, o);
        int err = xbgpu_output_init(&p->outputs[o], p->config, p->layout, p->device, p->compute, p->download,
                                    p->selected, stream);
        if (err)
            return err;
        if (!stream->output->send_enabled)
            log_warning("%s: dumps are made but not sent before ?capture-start asks for it: send_enabled is false",
                        stream->output->name);
        log_info("%s: %lld batches per accumulation, %.9g s", stream->output->name,
                 (long long)p->outputs[o].window.n_length,
                 (double)(p->outputs[o].window.n_length * p->layout->batch_samples) /
                     timebase_decimal_to_double(p->config->time.adc_sample_rate_hz));
    }
    return 0;
}

static int add_sensors(struct xbgpu_pipeline *p)
{
    double chunk_ns = (double)NS_PER_S * (double)p->layout->chunk_samples /
                      timebase_decimal_to_double(p->config->time.adc_sample_rate_hz);
    int64_t timeout_ns = chunk_ns < RX_TIMEOUT_MIN_NS / 10 ? RX_TIMEOUT_MIN_NS : (int64_t)(10 * chunk_ns);
    int err = xbgpu_input_sensors_add(&p->input_sensors, p->c.sensors, timeout_ns);

    if (!err)
        err = xbgpu_fengs_watch(&p->fengs, p->c.sensors, service_loop(p->c.service), timeout_ns);
    for (size_t o = 0; !err && o < p->layout->n_outputs; o++)
        err = xbgpu_stream_add_sensors(xbgpu_send_stream(p->send, o), p->c.sensors);
    return err ? err : xbgpu_stream_info_init(&p->info, p->config, p->layout, &p->labels, p->c.sensors);
}

static int create_control(struct xbgpu_pipeline *p, char *why, size_t why_bytes)
{
    struct xbgpu_control_config control = {p->config, p->layout,    &p->labels,         service_loop(p->c.service),
                                           p->inbox,  ITEM_COMMAND, p->c.katcp_sensors, p->c.sensors};
    int err = add_sensors(p);

    return err ? err : xbgpu_control_create(&control, &p->control, why, why_bytes);
}

static int create_stages(struct xbgpu_pipeline *p, char *why, size_t why_bytes)
{
    struct xbgpu_recv_config recv = {
        .config = p->config,
        .layout = p->layout,
        .device = p->device,
        .worker = p->inbox,
        .labels = p->config->recv.antenna_names || p->config->recv.input_labels ? &p->labels : NULL,
        .full_kind = ITEM_CHUNK,
        .end_kind = ITEM_RECV_END};
    struct xbgpu_send_config send = {p->config,       p->layout, p->device,   p->inbox,
                                     ITEM_DOWNLOADED, ITEM_SENT, p->c.service};

    int err = xbgpu_labels_init(&p->labels, p->config);
    if (!err)
        err = xbgpu_fengs_init(&p->fengs, &p->labels);
    recv.feng_stats = p->fengs.stats;
    if (!err)
        err = xbgpu_recv_create(&recv, &p->recv, why, why_bytes);
    if (!err)
        err = xbgpu_send_create(&send, &p->send, why, why_bytes);
    if (err)
        return err;
    why[0] = '\0';
    err = create_outputs(p);
    if (!err)
        err = xbgpu_status_create(p->config, p->layout, &p->status);
    return err ? err : create_control(p, why, why_bytes);
}

static void describe(void *arg, const struct status_query *query, json_t *into)
{
    struct xbgpu_pipeline *p = arg;

    xbgpu_fengs_describe(&p->fengs, into);
    xbgpu_status_describe(p->status, query, into);
    xbgpu_send_describe(p->send, into);
}

int xbgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                          size_t why_bytes)
{
    struct xbgpu_pipeline *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->c = *context;
    p->config = values;
    p->device = context->device;
    p->give_up_ns = INT64_MAX;
    xbgpu_layout_init(&p->layout_storage, p->config, device_compiles(p->device),
                      endpoint_interface_mtu(p->config->recv.interface));
    p->layout = &p->layout_storage;
    int err = xbgpu_layout_check_host(p->layout, p->config, p->device, why, why_bytes);
    if (!err)
        err = create_device_side(p);
    if (err)
        goto undo;
    err = create_stages(p, why, why_bytes);
    if (err)
        goto undo;
    const struct xbgpu_layout *l = p->layout;
    log_info("%zu antenna%s, %zu channel%s, %zu output%s, %zu receive thread%s", l->n_ants, plural(l->n_ants),
             l->n_chan, plural(l->n_chan), l->n_outputs, plural(l->n_outputs), l->n_recv_threads,
             plural(l->n_recv_threads));
    memory_log(&(struct memory_use){p->layout->host_bytes, p->layout->chunks_bytes, p->layout->buffers_bytes,
                                    p->layout->device_bytes, p->layout->direct_bytes});
    if (p->config->recv.direct || p->config->recv.gpudirect)
        log_info("recv.%s: voltages go straight to the device, so no sums are audited by the host",
                 p->config->recv.direct ? "direct" : "gpudirect");
    stats_counter("xbgpu_late_chunks", "Chunks discarded because later ones had been processed.", NULL,
                  &p->late_chunks);
    stats_gauge("xbgpu_device_ok", "1 while all checksums and audited products agreed, 0 after one did not.", NULL,
                p->c.healthy);
    status_set_source(p->c.status, describe, p);
    *pipeline = p;
    return 0;
undo:
    if (err == -ENOMEM && !why[0])
        snprintf(why, why_bytes,
                 "recv.batches_per_chunk: there is not enough memory: %llu MiB on the host and %llu MiB on the device "
                 "are needed",
                 (unsigned long long)(p->layout->host_bytes >> 20),
                 (unsigned long long)(p->layout->device_bytes >> 20));
    xbgpu_pipeline_destroy(p);
    return err;
}

void xbgpu_pipeline_control(void *arg, struct katcp_device *device)
{
    struct xbgpu_pipeline *pipeline = arg;

    xbgpu_control_serve(pipeline->control, device);
}

int xbgpu_pipeline_start(void *arg)
{
    struct xbgpu_pipeline *pipeline = arg;
    int err = sender_group_start(xbgpu_send_senders(pipeline->send));
    if (err)
        return err;
    err = thread_start(&pipeline->worker, "worker", -1, run_worker, pipeline);
    if (err)
        return err;
    pipeline->started = true;
    err = xbgpu_recv_start(pipeline->recv);
    /* The device's stream has its own threads for kernels, from the first kernel on, and ends the process if not. */
    return err ? err : threads_probe(device_n_threads(pipeline->device));
}

int xbgpu_pipeline_enable(void *arg, char *why, size_t why_bytes)
{
    struct xbgpu_pipeline *pipeline = arg;

    return xbgpu_recv_enable(pipeline->recv, why, why_bytes);
}

bool xbgpu_pipeline_stop(void *arg, int64_t give_up_ns)
{
    struct xbgpu_pipeline *pipeline = arg;

    if (!pipeline->started)
        return true;
    xbgpu_recv_stop(pipeline->recv);
    sender_group_set_deadline(xbgpu_send_senders(pipeline->send), give_up_ns);
    inbox_push(pipeline->inbox, &(struct inbox_item){ITEM_DRAIN, give_up_ns, NULL});
    thread_join(&pipeline->worker);
    xbgpu_recv_log(pipeline->recv);
    uint64_t n_late = counter_get(&pipeline->late_chunks);
    if (n_late)
        log_warning("%llu chunk%s came too late for %s set: recv.window is short", (unsigned long long)n_late,
                    plural(n_late), n_late == 1 ? "its" : "their");
    xbgpu_send_stop(pipeline->send);
    device_stream_wait(pipeline->upload);
    device_stream_wait(pipeline->compute);
    pipeline->started = false;
    bool drained = drain_is_complete(pipeline->n_given_up, sender_group_n_given_up(xbgpu_send_senders(pipeline->send)));
    return drained && !xbgpu_send_failed(pipeline->send);
}

void xbgpu_pipeline_destroy(void *arg)
{
    struct xbgpu_pipeline *pipeline = arg;

    if (!pipeline)
        return;
    xbgpu_pipeline_stop(pipeline, 0); /* of a start that failed */
    stats_reset(); /* whoever asks for /metrics now, as of a start that failed, must not see what goes */
    xbgpu_control_destroy(pipeline->control);
    stream_info_fini(&pipeline->info);
    matcher_destroy(pipeline->matcher);
    device_stream_destroy(pipeline->upload);
    device_stream_destroy(pipeline->compute);
    device_stream_destroy(pipeline->download);
    for (size_t o = 0; pipeline->outputs && o < pipeline->layout->n_outputs; o++)
        xbgpu_output_fini(&pipeline->outputs[o]);
    free(pipeline->outputs);
    device_free(pipeline->device, pipeline->selected);
    xbgpu_inputs_destroy(pipeline->inputs);
    xbgpu_recv_destroy(pipeline->recv);
    xbgpu_fengs_fini(&pipeline->fengs);
    xbgpu_labels_fini(&pipeline->labels);
    xbgpu_send_destroy(pipeline->send);
    inbox_destroy(pipeline->inbox);
    xbgpu_status_destroy(pipeline->status);
    free(pipeline);
}
