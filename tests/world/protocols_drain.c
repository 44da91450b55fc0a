/* protocols_drain.c - stop and drain: of a sender alone, and of a whole engine.
 *
 * The engine is the daemons' worker with a receiver, the cpu device and a sender.  Its lane copies the one number of
 * each chunk to the device, there to an output buffer, and back to the host.  The source and the sink are memory. */
#include "tests/world/protocols.h"

#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/recv/receiver_internal.h"
#include "common/recv/receiver_set.h"
#include "common/send/sender_group.h"
#include "tests/world/explore.h"

#include <errno.h>
#include <ev.h>
#include <stdlib.h>
#include <string.h>

#define GIVE_UP_NS (EXPLORE_START_NS + 1000) /* deadline of drains that may be too slow */
#define LATE_NS    (EXPLORE_START_NS + NS_PER_S / 4)
#define MAX_SENT   8

/* Kinds of runs that have occurred. */
static struct {
    bool refuses_packets, drops_chunks, drops_heaps, is_whole;
} seen;

/* ---- A sink that remembers the numbers sent -------------------------------------------------------------------- */

static int64_t sent[MAX_SENT];
static size_t n_sent, n_stop_heaps;

static size_t sink_send(struct send_sink *sink, struct packet_out *packets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        explore_check(n_stop_heaps == 0, "a packet follows the stop heap");
        explore_check(n_sent < MAX_SENT, "more packets are sent than exist");
        if (!packets[i].payload)
            n_stop_heaps++;
        else
            memcpy(&sent[n_sent++], packets[i].payload, sizeof(sent[0]));
        send_sink_put_ref(&packets[i]);
    }
    return n;
}

static void sink_close(struct send_sink *sink)
{
    free(sink);
}

int send_sink_udp_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes)
{
    static const struct send_sink_ops sink_ops = {.send = sink_send, .close = sink_close};

    *sink = calloc(1, sizeof(**sink));
    (*sink)->ops = &sink_ops;
    n_sent = n_stop_heaps = 0;
    return 0;
}

/* An output buffer with one heap of one packet, which has one number. */
struct heap_of_one {
    int64_t number;
    struct send_heap heap;
    struct send_group group;
    struct send_job job;
};

static void init_heap(struct heap_of_one *h, struct buffer_ref *ref)
{
    h->heap = (struct send_heap){.payload = (const uint8_t *)&h->number, .payload_bytes = sizeof(h->number)};
    h->group = (struct send_group){.heaps = &h->heap, .n_heaps = 1, .send = true};
    h->job = (struct send_job){ref, &h->group, 1};
}

static struct endpoint destination;
static const struct endpoint_list destinations = {1, &destination};
static struct send_stream_stats stream_stats;

static struct send_stream_config stream_config(size_t max_jobs)
{
    return (struct send_stream_config){
        .name = "stream",
        .sink.destinations = &destinations,
        .packet_payload_bytes = sizeof(int64_t),
        .heap_cnt_step = 1,
        .max_jobs = max_jobs,
        .stats = &stream_stats,
    };
}

/* ---- A sender: each job is sent or counted, and returns once --------------------------------------------------- */

#define N_JOBS 2

struct job {
    struct buffer_ref ref;
    struct heap_of_one heap;
    bool is_back;
};

static struct send_stream *stream;
static struct job jobs[N_JOBS];

static void *push_jobs(void *arg)
{
    for (size_t k = 0; k < N_JOBS; k++) {
        buffer_ref_set(&jobs[k].ref, 1);
        sender_push(stream, &jobs[k].heap.job);
    }
    return NULL;
}

static struct sender *create_sender(struct inbox *returned)
{
    const struct send_stream_config config = stream_config(N_JOBS);
    struct sender *sender;
    char why[64];

    sender_create("sender", -1, 1, N_JOBS, &sender);
    sender_add_stream(sender, &config, &stream, why, sizeof(why));
    for (size_t k = 0; k < N_JOBS; k++) {
        jobs[k] = (struct job){0};
        buffer_ref_init(&jobs[k].ref, returned, (struct inbox_item){.object = &jobs[k]});
        init_heap(&jobs[k].heap, &jobs[k].ref);
        jobs[k].heap.number = (int64_t)k;
    }
    return sender;
}

static void check_jobs(struct inbox *returned, size_t n_given_up)
{
    struct inbox_item item;

    for (size_t k = 0; k < N_JOBS; k++) {
        explore_check(inbox_try_pop(returned, &item) == 0, "a job has not returned");
        explore_check(!((struct job *)item.object)->is_back, "a job has returned twice");
        ((struct job *)item.object)->is_back = true;
    }
    explore_check(n_sent + n_given_up == N_JOBS, "%zu of %d heaps are sent, and %zu counted", n_sent, N_JOBS,
                  n_given_up);
    for (size_t i = 1; i < n_sent; i++)
        explore_check(sent[i] > sent[i - 1], "the heaps are out of order");
    explore_check(n_stop_heaps == 1, "%zu stop heaps are sent", n_stop_heaps);
}

static void stop_sender(int64_t give_up_ns)
{
    struct thread worker, watch;
    struct inbox *returned;

    inbox_create(N_JOBS, &returned);
    struct sender *sender = create_sender(returned);
    sender_start(sender);
    thread_start(&worker, "worker", -1, push_jobs, NULL);
    if (give_up_ns != LATE_NS)
        thread_start(&watch, "watch", -1, protocols_watch_clock, &give_up_ns);
    sender_set_deadline(sender, give_up_ns);
    thread_join(&worker);
    sender_stop(sender);
    size_t n_given_up = sender_n_given_up(sender);
    explore_check(explore_now_ns() >= give_up_ns || n_given_up == 0, "a heap is given up before the deadline");
    seen.drops_heaps |= n_given_up > 0;
    check_jobs(returned, n_given_up);
    if (give_up_ns != LATE_NS)
        thread_join(&watch);
    sender_destroy(sender);
    inbox_destroy(returned);
}

static void sender_drains(void)
{
    stop_sender(LATE_NS);
}

static void sender_gives_up(void)
{
    stop_sender(GIVE_UP_NS);
}

void protocol_sender(void)
{
    explore(&(struct explore_scenario){"sender, drain", sender_drains, EXPLORE_ALL, 0});
    explore(&(struct explore_scenario){"sender, deadline", sender_gives_up, EXPLORE_ALL, 0});
    protocols_expect(seen.drops_heaps, "no sender gives up heaps");
    seen.drops_heaps = false;
}

/* ---- The service of the engine --------------------------------------------------------------------------------- */

struct service {
    struct ev_loop *loop;
    ev_async stop;
};

static void on_stop(struct ev_loop *loop, ev_async *watcher, int events)
{
    ev_break(loop, EVBREAK_ALL);
}

struct ev_loop *service_loop(struct service *service)
{
    return service->loop;
}

void service_stop(struct service *service, int exit_code)
{
    explore_check(exit_code == 0, "the engine fails");
    ev_async_send(service->loop, &service->stop);
}

void service_fail(void *service)
{
    service_stop(service, 1);
}

/* ---- A source that is a file or a pipe ------------------------------------------------------------------------- */

#define N_PACKETS 3

struct memory_source {
    struct recv_source base;
    size_t n_read;
    bool has_end;                    /* true: a file, which ends after the last packet */
    const struct receiver *receiver; /* a pipe has no more packets until the receiver stops */
};

static bool is_stopped(const void *object)
{
    return ((const struct receiver *)object)->stop;
}

static int source_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct memory_source *source = (struct memory_source *)base;
    uint8_t bytes[256];

    if (source->n_read == N_PACKETS) {
        if (source->has_end)
            return -ENODATA;
        explore_block("wait for packets", is_stopped, source->receiver);
        explore_touch(&source->receiver->stop, false);
        return 0;
    }
    int64_t number = (int64_t)source->n_read++;
    const struct spead_item item = {SPEAD_TIMESTAMP, true, (uint64_t)number};
    size_t n_bytes = spead_build_header(bytes, (uint64_t)number, sizeof(number), 0, sizeof(number), &item, 1);
    memcpy(bytes + n_bytes, &number, sizeof(number));
    slots[0].packet_bytes = n_bytes + sizeof(number);
    slots[0].truncated = false;
    recv_packet_fill(&slots[0], bytes, slots[0].packet_bytes);
    return 1;
}

static uint64_t source_kernel_drops(const struct recv_source *source)
{
    return 0;
}

static void source_close(struct recv_source *source)
{
}

static const struct recv_source_ops source_ops = {
    .recv = source_recv, .kernel_drops = source_kernel_drops, .close = source_close, .can_wait = true};

static enum reject identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                            struct receiver_identity *identity)
{
    *identity = (struct receiver_identity){.wire_timestamp = packet->wanted[0]};
    return REJECT_NONE;
}

/* ---- The engine ------------------------------------------------------------------------------------------------ */

#define N_INPUTS  1 /* of the lane: sets of chunks wait for a free input */
#define N_CHUNKS  2 /* the receiver waits for a chunk to return */
#define N_OUTBUFS 1

struct input {
    struct device_input base;
    int64_t number;
};

struct output {
    struct outbuf base;
    int64_t number; /* on the device */
    struct heap_of_one heap;
};

/* An engine and all that it uses. */
static struct {
    struct engine engine; /* first: the operations convert its address */
    struct lane lane;
    struct input inputs[N_INPUTS], *input;
    struct output outputs[N_OUTBUFS];
    struct outbuf_pool pool;
    struct service service;
    struct memory_source source;
    struct receiver_set receivers;
    struct inbox *free_chunks;
    struct chunk_pool *chunks;
    struct assembler_stats stats;
    struct send_stream *stream;
    size_t n_applied, n_answered;
} e;

static bool begin(struct lane *lane, bool ended)
{
    struct chunk *chunk;
    int64_t samples;

    if (lane->n_free == 0 || !matcher_next(lane->matcher, &chunk, &samples))
        return false;
    e.input = (struct input *)lane_take_input(lane);
    device_copy(e.engine.upload, &e.input->number, chunk->source, sizeof(e.input->number));
    device_then(e.engine.upload, buffer_ref_put, &chunk->ref);
    lane_uploaded(&e.input->base);
    return true;
}

static bool process(struct lane *lane, bool may_wait)
{
    struct output *output = (struct output *)outbuf_take(&e.pool);

    explore_check(may_wait, "the worker would drop data of a file");
    if (!output)
        return false;
    device_copy(lane->compute, &output->number, &e.input->number, sizeof(output->number));
    outbuf_finish(&output->base, lane->compute, e.engine.download);
    device_copy(e.engine.download, &output->heap.number, &output->number, sizeof(output->number));
    outbuf_download(&output->base, e.engine.download);
    return true;
}

static void release(struct lane *lane)
{
    lane_return_input(&e.input->base);
}

static bool flush(struct lane *lane)
{
    return true;
}

static void apply(struct engine *engine, struct command *command)
{
    e.n_applied++;
    command_answer(engine->channel, command, 0);
}

static void downloaded(struct engine *engine, struct outbuf *buffer)
{
    struct output *output = (struct output *)buffer;

    buffer_ref_set(&buffer->ref, 1);
    sender_push(e.stream, &output->heap.job);
}

static const struct engine_ops ops = {
    .begin = begin, .process = process, .release = release, .flush = flush, .apply = apply, .downloaded = downloaded};

static void on_answer(void *arg, struct command *command)
{
    e.n_answered++;
}

static void on_woken(void *arg)
{
}

static void create_receiver(void)
{
    static const uint16_t wanted_ids[] = {SPEAD_TIMESTAMP};
    const struct chunk_shape shape = {.n_chunks = N_CHUNKS, .n_heaps = 1, .heap_bytes = sizeof(int64_t)};
    char why[64];

    inbox_create(N_CHUNKS, &e.free_chunks);
    chunk_pool_create(e.engine.c.device, &shape, 0, e.free_chunks, 0, &e.chunks, why, sizeof(why));
    const struct assembler_config member = {
        .layout = {.heap_samples = 1, .heap_bytes = sizeof(int64_t), .n_heaps_per_source = 1, .n_sources = 1},
        .name = "member",
        .window_chunks = 1,
        .jump_heaps = 8,
        .jump_sources = 1,
        .timebase = {.adc_sample_rate_hz = {1000000000, 0}, .from_packets = true},
        .free_chunks = e.free_chunks,
        .worker = e.engine.inbox,
        .full_kind = ENGINE_CHUNK,
        .stats = &e.stats,
    };
    const struct receiver_config config = {
        .thread_name = "recv",
        .cpu = -1,
        .wanted_ids = wanted_ids,
        .n_wanted = 1,
        .identify = identify,
        .assemblers = &member,
        .n_assemblers = 1,
        .worker = e.engine.inbox,
        .end_kind = ENGINE_RECV_END,
    };
    receiver_set_init(&e.receivers, 1);
    e.source.base.ops = &source_ops;
    receiver_create_from(&config, &e.source.base, &e.receivers.receivers[0]);
    e.receivers.n = 1;
    e.source.receiver = e.receivers.receivers[0];
    e.engine.receivers = &e.receivers;
}

static void create_lane(void)
{
    const struct matcher_config matcher = {.n_members = 1,
                                           .window_chunks = 1,
                                           .wait_chunks = 1,
                                           .jump_members = 1,
                                           .chunk_samples = 1,
                                           .max_chunks = N_CHUNKS};

    lane_init(&e.lane, &e.engine, &matcher, "compute", false);
    for (size_t i = 0; i < N_INPUTS; i++)
        lane_add_input(&e.lane, &e.inputs[i].base);
}

static void create_outputs(void)
{
    const struct config_send config = {.n_threads = 1};
    const struct send_stream_config stream_of_one = stream_config(N_OUTBUFS);
    char why[64];

    for (size_t i = 0; i < N_OUTBUFS; i++) {
        outbuf_init(&e.outputs[i].base, &e.pool, &e.engine);
        init_heap(&e.outputs[i].heap, &e.outputs[i].base.ref);
    }
    sender_group_create(&config, 1, N_OUTBUFS, &e.engine.senders);
    sender_group_add_stream(e.engine.senders, &stream_of_one, &e.stream, why, sizeof(why));
}

static void create_engine(bool has_end)
{
    const struct device_config device_config = {.kind = DEVICE_CPU, .n_threads = 1};
    const struct engine_sizes sizes = {.n_lanes = 1,
                                       .n_chunks = N_CHUNKS,
                                       .n_outbufs = N_OUTBUFS,
                                       .n_commands = 1,
                                       .command_bytes = sizeof(struct command),
                                       .n_recv_threads = 1};
    struct daemon_context context = {.service = &e.service};

    memset(&e, 0, sizeof(e));
    e.service.loop = ev_loop_new(0);
    ev_async_init(&e.service.stop, on_stop);
    ev_async_start(e.service.loop, &e.service.stop);
    e.source.has_end = has_end;
    device_cpu_open(&device_config, &context.device);
    engine_init(&e.engine, &ops, &context, sizes);
    command_start(e.engine.channel, on_answer, on_woken, NULL);
    create_receiver();
    create_lane();
    create_outputs();
}

static void destroy_engine(void)
{
    for (size_t i = 0; i < N_INPUTS; i++)
        lane_fini_input(&e.inputs[i].base);
    lane_fini(&e.lane);
    for (size_t i = 0; i < N_OUTBUFS; i++)
        outbuf_fini(&e.outputs[i].base);
    sender_group_destroy(e.engine.senders);
    receiver_set_fini(&e.receivers);
    chunk_pool_destroy(e.chunks);
    inbox_destroy(e.free_chunks);
    engine_fini(&e.engine);
    device_close(e.engine.c.device);
    ev_loop_destroy(e.service.loop);
}

static void note_kind(size_t n_refused)
{
    seen.refuses_packets |= n_refused > 0;
    seen.drops_chunks |= e.engine.n_given_up > 0;
    seen.drops_heaps |= sender_group_n_given_up(e.engine.senders) > 0;
    seen.is_whole |= n_sent == N_PACKETS;
}

/* Each object is where it was before the start, or in the worker's inbox. */
static void check_returns(void)
{
    size_t n_left[ENGINE_WAKE + 1] = {0};
    struct inbox_item item;

    while (inbox_try_pop(e.engine.inbox, &item) == 0)
        n_left[item.kind]++;
    explore_check(inbox_length(e.free_chunks) == N_CHUNKS, "a chunk is lost");
    explore_check(e.lane.n_free + n_left[ENGINE_INPUT_FREE] == N_INPUTS, "a device input is lost");
    explore_check(e.pool.n_free + n_left[ENGINE_SENT] == N_OUTBUFS, "an output buffer is lost");
    explore_check(e.n_applied + n_left[ENGINE_COMMAND] == 1, "a command is lost");
    explore_check(e.n_answered == e.n_applied, "%zu commands are applied, and %zu answered", e.n_applied, e.n_answered);
}

static void check_engine(bool may_give_up, bool is_complete)
{
    size_t n_given_up = e.engine.n_given_up + (size_t)sender_group_n_given_up(e.engine.senders);
    size_t n_refused = (size_t)counter_get(&e.stats.rejects[REJECT_NO_CHUNK]);

    note_kind(n_refused);

    explore_check(is_complete == (n_given_up == 0), "the engine reports the loss wrongly");
    explore_check(may_give_up || n_given_up == 0, "data are given up before the deadline");
    explore_check(n_sent + n_given_up + n_refused == e.source.n_read,
                  "of %zu packets, %zu are sent, %zu given up and %zu refused", e.source.n_read, n_sent, n_given_up,
                  n_refused);
    for (size_t i = 1; i < n_sent; i++)
        explore_check(sent[i] > sent[i - 1], "the heaps are out of order");
    explore_check(n_stop_heaps == 1, "%zu stop heaps are sent", n_stop_heaps);
    check_returns();
}

static bool has_read(const void *n)
{
    return e.source.n_read >= *(const unsigned *)n;
}

static bool has_sent(const void *n)
{
    return n_sent >= *(const unsigned *)n;
}

/* Waits until the receiver has read 0 to N_PACKETS packets, or until the sender has sent heaps.  The last packet's
 * chunk stays open until the receiver stops. */
static void await_data(void)
{
    unsigned n = explore_choose(2 * N_PACKETS);
    unsigned n_heaps = n > N_PACKETS ? n - N_PACKETS : 0;

    if (n_heaps > 0)
        explore_block("wait for heaps", has_sent, &n_heaps);
    else
        explore_block("wait for packets to be read", has_read, &n);
}

/* Posts a command, and stops the engine in the middle of the data or after the end of the file. */
static void stop_engine(bool has_end, int64_t give_up_ns)
{
    struct thread watch;

    create_engine(has_end);
    engine_start(&e.engine);
    if (give_up_ns != LATE_NS)
        thread_start(&watch, "watch", -1, protocols_watch_clock, &give_up_ns);
    bool awaits_end = has_end && explore_choose(2);
    if (!awaits_end)
        await_data();
    command_post(e.engine.channel, command_take(e.engine.channel));
    if (awaits_end)
        ev_run(e.service.loop, 0);
    bool is_complete = engine_stop(&e.engine, give_up_ns);
    ev_run(e.service.loop, EVRUN_NOWAIT);
    explore_check(has_end || e.n_applied == 1, "a command is not applied");
    check_engine(explore_now_ns() >= give_up_ns, is_complete);
    if (give_up_ns != LATE_NS)
        thread_join(&watch);
    destroy_engine();
}

static void engine_stops(void)
{
    stop_engine(false, LATE_NS);
}

static void engine_ends(void)
{
    stop_engine(true, LATE_NS);
}

static void engine_gives_up(void)
{
    stop_engine(false, GIVE_UP_NS);
}

void protocol_engine(bool quick)
{
    unsigned n_delays = quick ? 1 : 2;

    explore(&(struct explore_scenario){"engine, stop", engine_stops, n_delays, 0});
    explore(&(struct explore_scenario){"engine, end of a file", engine_ends, n_delays, 0});
    explore(&(struct explore_scenario){"engine, deadline", engine_gives_up, n_delays, 0});
    protocols_expect((seen.is_whole && seen.refuses_packets && seen.drops_chunks && seen.drops_heaps),
                     "a kind of end of the engine does not occur");
}
