/* pipeline.c - implements the engine's operations for fgpu, and determines the order of the stages. */
#include "fgpu/pipeline.h"

#include "common/device/device.h"
#include "common/engine/engine.h"
#include "fgpu/antenna.h"
#include "fgpu/choice.h"
#include "fgpu/control.h"
#include "fgpu/gnss/gnss.h"
#include "fgpu/memory.h"
#include "fgpu/recv.h"
#include "fgpu/send.h"
#include "fgpu/settings.h"
#include "fgpu/status.h"

#include <errno.h>
#include <stdlib.h>

struct fgpu_pipeline {
    struct engine engine; /* first */
    const struct fgpu_config *config;
    struct fgpu_layout layout;
    struct fgpu_choice *choices; /* shape [n_outputs] */
    struct fgpu_send *send;
    struct fgpu_gnss *gnss;
    struct fgpu_recv *recv;
    struct fgpu_settings *settings;
    struct fgpu_control *control;
    struct fgpu_status *status;
};

static void downloaded(struct engine *engine, struct outbuf *base)
{
    struct fgpu_pipeline *p = (struct fgpu_pipeline *)engine;
    struct fgpu_buffer *buffer = (struct fgpu_buffer *)base;

    if (fgpu_gnss_own(p->gnss, base)) {
        fgpu_gnss_push(base);
        return;
    }
    fgpu_antenna_measure(engine->lanes[buffer->stream->ant], buffer);
    fgpu_status_sample(p->status, engine->lanes[buffer->stream->ant], buffer);
    fgpu_send_push(buffer);
}

static const struct engine_ops ops = {
    .look = fgpu_antenna_look,
    .begin = fgpu_antenna_begin,
    .process = fgpu_antenna_process,
    .release = fgpu_antenna_release,
    .flush = fgpu_antenna_flush,
    .apply = fgpu_antenna_apply,
    .downloaded = downloaded,
};

static int create_stages(struct fgpu_pipeline *p, char *why, size_t why_bytes)
{
    struct engine *e = &p->engine;
    int err = fgpu_recv_create(p->config, &p->layout, e, &p->recv, why, why_bytes);

    if (!err)
        err = fgpu_send_create(p->config, &p->layout, e, &p->send, why, why_bytes);
    if (err)
        return err;
    why[0] = '\0';
    err = fgpu_gnss_create(p->config, &p->layout, e, &p->gnss, why, why_bytes);
    if (!err)
        err = fgpu_antennas_create(p->config, &p->layout, e, p->send, p->gnss, p->choices);
    if (!err)
        err = fgpu_status_create(p->config, &p->layout, p->send, &p->status);
    if (!err)
        err = fgpu_settings_create(p->config, e, &p->settings, why, why_bytes);
    if (err)
        return err;
    fgpu_settings_apply(p->settings);
    return fgpu_control_create(p->config, e, p->settings, p->choices, &p->control);
}

static void describe(void *arg, const struct status_query *query, json_t *into)
{
    struct fgpu_pipeline *p = arg;

    fgpu_status_describe(p->status, query, into);
    fgpu_gnss_describe(p->gnss, into);
}

static int init(struct fgpu_pipeline *p, const struct daemon_context *context, char *why, size_t why_bytes)
{
    struct fgpu_layout *l = &p->layout;
    int err = fgpu_choices_create(p->config, context->device, &p->choices, why, why_bytes);

    if (err)
        return err;
    fgpu_layout_init(l, p->config);
    const struct memory_use memory = fgpu_memory(l, p->config, device_shared_bytes(context->device), p->choices,
                                                 endpoint_interface_mtu(p->config->recv.base.interface));
    err = fgpu_memory_check(&memory, p->config, context->device, why, why_bytes);
    if (!err)
        err = engine_init(&p->engine, &ops, context, fgpu_engine_sizes(l, p->config));
    if (!err)
        err = create_stages(p, why, why_bytes);
    if (err)
        return engine_explain(err, "recv.chunk_samples", &memory, why, why_bytes);
    fgpu_layout_log(l, &memory);
    status_set_source(context->status, describe, p);
    return 0;
}

int fgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                         size_t why_bytes)
{
    struct fgpu_pipeline *p = calloc(1, sizeof(*p));

    *pipeline = p;
    if (!p)
        return -ENOMEM;
    p->config = values;
    return init(p, context, why, why_bytes);
}

void fgpu_pipeline_control(void *pipeline, struct katcp_device *device)
{
    fgpu_control_requests(((struct fgpu_pipeline *)pipeline)->control, device);
}

bool fgpu_pipeline_stop(void *pipeline, int64_t give_up_ns)
{
    struct fgpu_pipeline *p = pipeline;

    if (!p->engine.started)
        return true;
    fgpu_control_stop(p->control);
    fgpu_settings_stop(p->settings);
    bool complete = engine_stop(&p->engine, give_up_ns);
    fgpu_recv_log(p->recv);
    for (size_t a = 0; a < p->engine.n_lanes; a++)
        fgpu_antenna_log(p->engine.lanes[a]);
    fgpu_send_log(p->send);
    fgpu_gnss_log(p->gnss);
    return complete;
}

void fgpu_pipeline_destroy(void *pipeline)
{
    struct fgpu_pipeline *p = pipeline;

    fgpu_control_destroy(p->control);
    fgpu_settings_destroy(p->settings);
    fgpu_antennas_destroy(&p->engine);
    fgpu_gnss_destroy(p->gnss);
    fgpu_recv_destroy(p->recv);
    fgpu_send_destroy(p->send);
    engine_fini(&p->engine);
    fgpu_status_destroy(p->status);
    fgpu_choices_destroy(p->config, p->choices);
    free(p);
}
