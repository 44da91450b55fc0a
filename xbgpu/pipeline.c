/* pipeline.c - implements the engine's operations for xbgpu, and determines the order of the stages. */
#include "xbgpu/pipeline.h"

#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "xbgpu/beam/beam_health.h"
#include "xbgpu/beam/beams.h"
#include "xbgpu/beam/detected.h"
#include "xbgpu/control.h"
#include "xbgpu/fengs.h"
#include "xbgpu/input.h"
#include "common/engine/labels.h"
#include "xbgpu/memory.h"
#include "xbgpu/output.h"
#include "xbgpu/recv.h"
#include "xbgpu/send.h"
#include "xbgpu/status.h"

#include <errno.h>
#include <stdlib.h>

struct xbgpu_pipeline {
    struct engine engine; /* first */
    const struct xbgpu_config *config;
    struct xbgpu_layout layout;
    struct labels labels;
    struct xbgpu_fengs fengs;
    struct xbgpu_recv *recv;
    struct xbgpu_send *send;
    struct xbgpu_beams *beams;
    struct xbgpu_detected *detected;
    struct xbgpu_inputs *inputs;
    struct xbgpu_control *control;
    struct xbgpu_status *status;
};

static void downloaded(struct engine *engine, struct outbuf *base)
{
    struct xbgpu_pipeline *p = (struct xbgpu_pipeline *)engine;
    struct xbgpu_dump *dump = (struct xbgpu_dump *)base;

    if (xbgpu_beams_own(p->beams, base)) {
        if (!xbgpu_beams_check(base))
            xbgpu_send_fail(p->send);
        xbgpu_beams_push(base);
        return;
    }
    if (xbgpu_detected_own(p->detected, base)) {
        if (!xbgpu_detected_check(base))
            xbgpu_send_fail(p->send);
        xbgpu_detected_push(base);
        return;
    }
    if (!xbgpu_output_check(dump))
        xbgpu_send_flag(p->send, dump);
    xbgpu_status_sample(p->status, dump);
    xbgpu_send_push(dump);
}

static const struct engine_ops ops = {
    .begin = xbgpu_inputs_begin,
    .process = xbgpu_inputs_process,
    .release = xbgpu_inputs_release,
    .flush = xbgpu_inputs_flush,
    .apply = xbgpu_inputs_apply,
    .downloaded = downloaded,
};

static int create_stages(struct xbgpu_pipeline *p, char *why, size_t why_bytes)
{
    struct engine *e = &p->engine;
    const struct xbgpu_layout *l = &p->layout;
    int err = labels_init(&p->labels, l->n_ants, p->config->recv.antenna_names, p->config->recv.input_labels);

    if (!err)
        err = xbgpu_fengs_init(&p->fengs, &p->labels, e->c.sensors, service_loop(e->c.service),
                               xbgpu_rx_timeout_ns(p->config, l));
    if (!err)
        err = xbgpu_recv_create(p->config, l, e, &p->fengs, &p->recv, why, why_bytes);
    if (!err)
        err = xbgpu_send_create(p->config, l, e, &p->send, why, why_bytes);
    if (err)
        return err;
    why[0] = '\0';
    err = xbgpu_beams_create(p->config, l, e, &p->beams, why, why_bytes);
    if (!err)
        err = xbgpu_detected_create(p->config, l, e, &p->detected, why, why_bytes);
    if (!err)
        err = xbgpu_inputs_create(p->config, l, e, p->send, p->beams, p->detected, &p->inputs);
    if (!err)
        err = xbgpu_status_create(p->config, l, &p->status);
    return err ? err
               : xbgpu_control_create(p->config, l, &p->labels, e, p->beams, p->detected, &p->control, why, why_bytes);
}

static void describe(void *arg, const struct status_query *query, json_t *into)
{
    struct xbgpu_pipeline *p = arg;

    xbgpu_fengs_describe(&p->fengs, into);
    xbgpu_status_describe(p->status, query, into);
    xbgpu_beam_health_describe(xbgpu_beams_health(p->beams), query, into);
    xbgpu_detected_describe(p->detected, into);
    xbgpu_send_describe(p->send, into);
}

int xbgpu_pipeline_create(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                          size_t why_bytes)
{
    const struct xbgpu_config *config = values;
    struct xbgpu_pipeline *p = *pipeline = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    struct xbgpu_layout *l = &p->layout;
    p->config = config;
    xbgpu_layout_init(l, config);
    const struct memory_use memory =
        xbgpu_memory(l, config, device_compiles(context->device), endpoint_interface_mtu(config->recv.base.interface));
    int err = xbgpu_memory_check(&memory, config, context->device, why, why_bytes);
    if (!err)
        err = engine_init(&p->engine, &ops, context, xbgpu_engine_sizes(l, config));
    if (!err)
        err = create_stages(p, why, why_bytes);
    if (err)
        return engine_explain(err, "recv.batches_per_chunk", &memory, why, why_bytes);
    xbgpu_layout_log(l, &memory);
    status_set_source(context->status, describe, p);
    return 0;
}

void xbgpu_pipeline_control(void *pipeline, struct katcp_device *device)
{
    xbgpu_control_serve(((struct xbgpu_pipeline *)pipeline)->control, device);
}

bool xbgpu_pipeline_stop(void *pipeline, int64_t give_up_ns)
{
    struct xbgpu_pipeline *p = pipeline;

    if (!p->engine.started)
        return true;
    bool complete = engine_stop(&p->engine, give_up_ns);
    xbgpu_recv_log(p->recv);
    xbgpu_inputs_log(p->inputs);
    xbgpu_beams_log(p->beams);
    xbgpu_detected_log(p->detected);
    xbgpu_send_log(p->send);
    return complete;
}

void xbgpu_pipeline_destroy(void *pipeline)
{
    struct xbgpu_pipeline *p = pipeline;

    xbgpu_control_destroy(p->control);
    xbgpu_inputs_destroy(p->inputs);
    xbgpu_beams_destroy(p->beams);
    xbgpu_detected_destroy(p->detected);
    xbgpu_recv_destroy(p->recv);
    xbgpu_fengs_fini(&p->fengs);
    labels_fini(&p->labels);
    xbgpu_send_destroy(p->send);
    engine_fini(&p->engine);
    xbgpu_status_destroy(p->status);
    free(p);
}
