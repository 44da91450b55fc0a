/* lane.c - keeps the free device inputs of a lane, and orders the uploads and the kernels of each input. */
#include "common/engine/lane.h"

#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/recv/chunk.h"

#include <assert.h>

int lane_init(struct lane *lane, struct engine *engine, const struct matcher_config *matcher, const char *name,
              bool gathers)
{
    struct matcher_config config = *matcher;

    lane->engine = engine;
    lane->n_members = matcher->n_members;
    config.late_chunks = &lane->late_chunks;
    engine->lanes[engine->n_lanes++] = lane;
    int err = matcher_create(&config, &lane->matcher);
    if (!err)
        err = device_stream_create(engine->c.device, name, &lane->compute);
    return !err && gathers ? chunk_create_gather(engine->c.device, &lane->gather) : err;
}

int lane_add_input(struct lane *lane, struct device_input *input)
{
    input->lane = lane;
    buffer_ref_init(&input->ref, lane->engine->inbox, (struct inbox_item){ENGINE_INPUT_FREE, 0, input});
    lane_give_input(input);
    return device_event_create(lane->engine->c.device, &input->uploaded);
}

struct device_input *lane_take_input(struct lane *lane)
{
    return lane->n_free > 0 ? lane->free[--lane->n_free] : NULL;
}

void lane_give_input(struct device_input *input)
{
    struct lane *lane = input->lane;

    assert(lane->n_free < LANE_N_INPUTS);
    lane->free[lane->n_free++] = input;
}

void lane_uploaded(struct device_input *input)
{
    device_event_record(input->uploaded, input->lane->engine->upload);
    device_stream_wait_event(input->lane->compute, input->uploaded);
}

void lane_return_input(struct device_input *input)
{
    buffer_ref_set(&input->ref, 1);
    device_then(input->lane->compute, buffer_ref_put, &input->ref);
}

void lane_fini(struct lane *lane)
{
    matcher_destroy(lane->matcher);
    device_stream_destroy(lane->compute);
    device_kernel_destroy(lane->gather);
}

void lane_fini_input(struct device_input *input)
{
    device_event_destroy(input->uploaded);
}
