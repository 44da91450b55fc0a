/* engine.c - the worker's loop. */
#include "common/engine/engine.h"

#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/memory.h"
#include "common/config/transport_keys.h"
#include "common/daemon/drain.h"
#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/recv/chunk.h"
#include "common/recv/keys.h"
#include "common/recv/receiver_set.h"
#include "common/send/keys.h"
#include "common/send/sender_group.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void engine_keys_check(const struct daemon_config *daemon, struct config_recv *recv, const struct config_send *send,
                       struct config *errors)
{
    device_keys_check(&daemon->device, errors);
    recv_keys_check(recv, &daemon->device, errors);
    send_keys_check(send, &daemon->device, recv->pcap_file, errors);
    katcp_keys_check(&daemon->katcp, &daemon->http.listen, errors);
    http_keys_check(&daemon->http, errors);
}

int engine_dither_seed(int64_t configured, uint64_t *seed)
{
    *seed = (uint64_t)configured;
    if (configured < 0 && getrandom(seed, sizeof(*seed), 0) != sizeof(*seed))
        return -EIO;
    *seed &= INT64_MAX >> 10; /* keeps 53 bits, because a double represents integers of 53 bits exactly */
    return 0;
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static void begin_drain(struct engine *e)
{
    if (e->draining)
        return;
    e->draining = true;
    for (size_t i = 0; i < e->n_lanes; i++)
        for (unsigned m = 0; m < e->lanes[i]->n_members; m++)
            matcher_end(e->lanes[i]->matcher, m);
}

static void add_chunk(struct engine *e, struct chunk *chunk)
{
    unsigned n_members = e->lanes[0]->n_members, member = chunk->member % n_members;
    struct lane *lane = e->lanes[chunk->member / n_members];

    if (e->ops->look)
        e->ops->look(lane, member, chunk);
    matcher_add(lane->matcher, member, chunk);
}

/* Passes a downloaded buffer to the daemon's operation 'downloaded'.  After a device failure the buffer's content is
 * undefined, so the buffer is freed. */
static void take_downloaded(struct engine *e, struct outbuf *buffer)
{
    assert(e->n_downloading > 0);
    e->n_downloading--;
    if (device_ok(e->c.device))
        e->ops->downloaded(e, buffer);
    else
        outbuf_give(buffer);
}

static void handle(struct engine *e, const struct inbox_item *item)
{
    switch ((enum engine_item)item->kind) {
    case ENGINE_CHUNK: add_chunk(e, item->object); break;
    case ENGINE_INPUT_FREE: lane_give_input(item->object); break;
    case ENGINE_DOWNLOADED: take_downloaded(e, item->object); break;
    case ENGINE_SENT: outbuf_give(item->object); break;
    case ENGINE_COMMAND: e->ops->apply(e, item->object); break;
    case ENGINE_WAKE: break;
    case ENGINE_RECV_END:
        if (receiver_set_failed(e->receivers))
            service_stop(e->c.service, 1);
        if (++e->n_recv_ended == e->receivers->n)
            begin_drain(e);
        break;
    case ENGINE_DRAIN:
        e->give_up_ns = item->value;
        begin_drain(e);
        break;
    }
}

/* Advances a lane as far as possible.  Returns true when the lane has nothing left to do. */
static bool advance(struct engine *e, struct lane *lane, bool may_wait)
{
    for (;;) {
        if (!lane->busy && !e->ops->begin(lane, e->draining))
            return lane->n_free > 0; /* if no device input is free, sets of chunks may still wait */
        lane->busy = true;
        if (!e->ops->process(lane, may_wait))
            return false;
        lane->busy = false;
        e->n_processed++;
        e->ops->release(lane);
    }
}

/* Advances all lanes.  A lane may wait until another lane has processed an input, so the function repeats after such
 * progress.  While draining, returns true once nothing is left to compute or to download. */
static bool advance_lanes(struct engine *e)
{
    bool idle, may_wait = e->draining || receiver_set_can_wait(e->receivers);
    bool late = e->draining && clock_monotonic_ns() >= e->give_up_ns;
    size_t n_before;

    for (size_t i = 0; late && i < e->n_lanes; i++)
        e->n_given_up += matcher_drop(e->lanes[i]->matcher);
    do {
        n_before = e->n_processed;
        idle = true;
        for (size_t i = 0; i < e->n_lanes; i++)
            idle = advance(e, e->lanes[i], may_wait) && idle;
    } while (!idle && e->n_processed != n_before);
    if (!e->draining || !idle)
        return false;
    for (size_t i = 0; i < e->n_lanes; i++)
        idle = e->ops->flush(e->lanes[i]) && idle;
    return idle && e->n_downloading == 0;
}

static void *run_worker(void *arg)
{
    struct engine *e = arg;
    struct inbox_item item;
    bool done = false;

    while (!done && inbox_pop(e->inbox, &item) == 0) {
        handle(e, &item);
        done = advance_lanes(e);
    }
    if (e->n_recv_ended == e->receivers->n)
        service_stop(e->c.service, 0);
    return NULL;
}

/* ---- Creation and destruction ------------------------------------------------------------------------------------ */

int engine_init(struct engine *e, const struct engine_ops *ops, const struct daemon_context *context,
                struct engine_sizes sizes)
{
    size_t n_slots = sizes.n_chunks + sizes.n_lanes * LANE_N_INPUTS + sizes.n_outbufs + sizes.n_commands +
                     sizes.n_recv_threads + sizes.n_wakes + 1 /* drain */;

    e->ops = ops;
    e->c = *context;
    e->give_up_ns = INT64_MAX;
    e->n_computing = sizes.n_lanes + sizes.n_other_streams;
    e->lanes = calloc(sizes.n_lanes, sizeof(*e->lanes));
    int err = e->lanes ? inbox_create(n_slots, &e->inbox) : -ENOMEM;
    if (!err)
        err = command_create(sizes.n_commands, sizes.command_bytes, service_loop(context->service), e->inbox,
                             ENGINE_COMMAND, &e->channel);
    if (!err)
        err = device_stream_create(context->device, "upload", &e->upload);
    return err ? err : device_stream_create(context->device, "download", &e->download);
}

int engine_check_memory(struct device *device, const struct memory_use *use, const struct config_recv *recv,
                        const struct config_send *send, const char *key, const char *advice, const char *direct_advice,
                        char *why, size_t why_bytes)
{
    int err = device_check_memory(device, use->host_bytes, use->device_bytes, key, advice, why, why_bytes);

    if (!err && recv->direct)
        err = device_check_direct(device, use->direct_bytes, "recv.direct", direct_advice, why, why_bytes);
    if (!err && recv->gpudirect)
        err = device_check_exported(device, "recv.gpudirect", why, why_bytes);
    return err ? err : config_check_cpus(&recv->affinity, &send->affinity, why, why_bytes);
}

int engine_explain(int err, const char *key, const struct memory_use *use, char *why, size_t why_bytes)
{
    if (err == -ENOMEM && !why[0])
        snprintf(why, why_bytes,
                 "%s: there is not enough memory: %llu MiB on the host and %llu MiB on the device are needed", key,
                 (unsigned long long)(use->host_bytes >> 20), (unsigned long long)(use->device_bytes >> 20));
    return err;
}

int engine_start(void *engine)
{
    struct engine *e = engine;
    int err = sender_group_start(e->senders);

    if (!err)
        err = thread_start(&e->worker, "worker", -1, run_worker, e);
    if (err)
        return err;
    e->started = true;
    err = receiver_set_start(e->receivers);
    /* Each stream that computes starts OpenMP threads at its first kernel.  If the threads could not be
     * started then, the process would end.  So this function checks now that they can be started. */
    return err ? err : threads_probe(e->n_computing * device_n_threads(e->c.device));
}

int engine_enable(void *engine, char *why, size_t why_bytes)
{
    struct engine *e = engine;

    return receiver_set_enable(e->receivers, why, why_bytes);
}

bool engine_stop(struct engine *e, int64_t give_up_ns)
{
    if (!e->started)
        return true;
    receiver_set_stop(e->receivers);
    sender_group_set_deadline(e->senders, give_up_ns);
    inbox_push(e->inbox, &(struct inbox_item){ENGINE_DRAIN, give_up_ns, NULL});
    thread_join(&e->worker);
    sender_group_stop(e->senders);
    device_stream_wait(e->upload);
    for (size_t i = 0; i < e->n_lanes; i++)
        device_stream_wait(e->lanes[i]->compute);
    device_stream_wait(e->download);
    e->started = false;
    return drain_is_complete(e->n_given_up, sender_group_n_given_up(e->senders)) &&
           !sender_group_capture_failed(e->senders);
}

void engine_fini(struct engine *e)
{
    device_stream_destroy(e->upload);
    device_stream_destroy(e->download);
    command_destroy(e->channel);
    inbox_destroy(e->inbox);
    free(e->lanes);
}
