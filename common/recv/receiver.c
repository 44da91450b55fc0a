/* receiver.c - creates a receiver and runs its thread, which receives batches of packets.  receiver_packets.c handles
 * the packets of a batch. */
#include "common/recv/receiver_internal.h"

#include "common/base/clock.h"
#include "common/base/copy.h"
#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/recv/keys.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECV_TIMEOUT_NS (100 * NS_PER_MS) /* longest wait for packets, which limits the delay of a stop */
#define TICK_MIN_NS     (1 * NS_PER_MS)   /* shortest interval between calls of assembler_pass_time() */

/* Number of calls of assembler_pass_time() in the duration of a chunk.  If a member falls silent, assembler_pass_time()
 * hands on the member's open chunks.  These chunks must leave before the other members have advanced by one chunk.
 * Otherwise the matcher makes sets without these chunks. */
#define TICKS_PER_CHUNK 4

/* total size of a slot's buffers: header, own, spill */
#define SLOT_BYTES    (HEADER_BYTES + 2 * (size_t)PACKET_BYTES_MAX)
#define BUFFERS_BYTES (PACKET_BATCH_MAX * SLOT_BYTES) /* of all slots */

#define RING_REQUEST_BYTES 69 /* bytes that an ibverbs source needs per frame, in addition to the frame */

/* Smallest number of offered slots.  Usually the number of offered slots is twice the number of packets in the last
 * batch.  More slots would waste time, because each offered slot requires a prediction. */
#define OFFERED_MIN 8

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static void pass_time(struct receiver *r, int64_t now_ns)
{
    if (now_ns - r->ticked_ns < r->tick_ns)
        return;
    r->ticked_ns = now_ns;
    for (size_t i = 0; i < r->config.n_assemblers; i++)
        assembler_pass_time(r->assemblers[i], now_ns);
}

/* Waits for a batch of packets and handles it.  Returns 0, or the error of recv_source_recv(). */
static int handle_batch(struct receiver *r)
{
    bool is_zero_copy = recv_source_is_zero_copy(r->source);

    if (!is_zero_copy)
        receiver_offer_slots(r);
    int n_packets = recv_source_recv(r->source, r->slots, is_zero_copy ? PACKET_BATCH_MAX : r->n_offered, r->tick_ns);
    if (n_packets < 0)
        return n_packets;
    int64_t now_ns = clock_monotonic_ns();
    if (n_packets == 0) {
        pass_time(r, now_ns);
        return 0;
    }
    r->named = 0;
    bool zero_copy = r->slots[0].zero_copy;
    if (zero_copy)
        receiver_handle_zero_copy(r, (size_t)n_packets, now_ns);
    else
        receiver_handle_landed(r, (size_t)n_packets, now_ns);
    /* This counter is increased last, so that a reader who sees its new value also sees the packets in all other
     * counters. */
    counter_add(&r->stats.packets, (size_t)n_packets);
    pass_time(r, now_ns);
    if (zero_copy)
        return 0;
    r->n_offered = 2 * (size_t)n_packets;
    if (r->n_offered < OFFERED_MIN)
        r->n_offered = OFFERED_MIN;
    if (r->n_offered > PACKET_BATCH_MAX)
        r->n_offered = PACKET_BATCH_MAX;
    return 0;
}

static struct assembler *oldest_assembler(const struct receiver *r)
{
    struct assembler *oldest = r->assemblers[0];

    for (size_t i = 1; i < r->config.n_assemblers; i++)
        if (assembler_oldest_samples(r->assemblers[i]) < assembler_oldest_samples(oldest))
            oldest = r->assemblers[i];
    return oldest;
}

int64_t receiver_oldest_samples(const struct receiver *receiver)
{
    return assembler_oldest_samples(oldest_assembler(receiver));
}

void receiver_flush_oldest(struct receiver *receiver)
{
    assembler_flush_oldest(oldest_assembler(receiver));
}

/* Hands on the open chunks of all members in order of time.  If all chunks of one member were handed on first, this
 * member would seem far ahead.  The matcher would then not wait for the other members' last chunks. */
static void flush(struct receiver *r)
{
    while (receiver_oldest_samples(r) != INT64_MAX)
        receiver_flush_oldest(r);
}

static void *run(void *arg)
{
    struct receiver *r = arg;
    int err = 0;

    while (!err && !atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        thread_beat();
        err = handle_batch(r);
    }
    copy_finish();
    if (!err)
        return NULL; /* the thread was halted: the caller of receiver_halt() flushes the open chunks */
    flush(r);
    if (err != -ENODATA) {
        r->error = err;
        log_error("%s: receiving ended: %s", r->config.thread_name, strerror(-err));
    }
    inbox_push(r->config.worker, &(struct inbox_item){.kind = r->config.end_kind});
    return NULL;
}

int receiver_start(struct receiver *receiver)
{
    assert(!receiver->running);
    int err = thread_start(&receiver->thread, receiver->config.thread_name, receiver->config.cpu, run, receiver);
    if (err)
        return err;
    receiver->running = true;
    return 0;
}

int receiver_enable(struct receiver *receiver, char *why, size_t why_bytes)
{
    return recv_source_enable(receiver->source, why, why_bytes);
}

void receiver_halt(struct receiver *receiver)
{
    atomic_store_explicit(&receiver->stop, true, memory_order_relaxed);
    for (size_t i = 0; i < receiver->config.n_assemblers; i++)
        inbox_stop(receiver->members[i].free_chunks);
    if (receiver->running)
        thread_join(&receiver->thread);
    receiver->running = false;
}

void receiver_stop(struct receiver *receiver)
{
    receiver_halt(receiver);
    flush(receiver);
}

const struct receiver_stats *receiver_get_stats(const struct receiver *receiver)
{
    return &receiver->stats;
}

int64_t receiver_kernel_drops(const void *arg)
{
    const struct receiver *receiver = arg;

    return (int64_t)recv_source_kernel_drops(receiver->source);
}

bool receiver_can_wait(const struct receiver *receiver)
{
    return recv_source_can_wait(receiver->source);
}

int receiver_get_error(const struct receiver *receiver)
{
    return receiver->error;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

void receiver_add_memory(const struct config_recv *keys, size_t mtu, size_t n_kept, struct memory_use *use)
{
    struct packet_ring ring;

    bytes_add(&use->host_bytes, 1, memory_mapped_bytes(BUFFERS_BYTES));
    if (keys->pcap_file || keys->transport != TRANSPORT_IBVERBS) {
        bytes_add(&use->host_bytes, 1, memory_mapped_bytes(PACKET_SOURCE_BYTES));
        return;
    }
    recv_packet_ring_init(&ring, mtu, (size_t)keys->buffer_bytes, n_kept);
    uint64_t frames = bytes_times(ring.n_frames, ring.frame_bytes);
    uint64_t rest = n_kept > 0 ? device_exported_bytes(bytes_times(ring.n_frames, ring.rest_bytes)) : 0;
    bytes_add(&use->host_bytes, 1, n_kept > 0 ? device_pinned_bytes(frames, true) : memory_mapped_bytes(frames));
    bytes_add(&use->host_bytes, ring.n_frames, RING_REQUEST_BYTES);
    bytes_add(&use->locked_bytes, 1, frames);
    bytes_add(&use->frames_bytes, 1, rest);
    bytes_add(&use->device_bytes, 1, rest);
}

/* Assigns the parts of r->buffers to the slots. */
static void point_placements(struct receiver *r)
{
    for (size_t i = 0; i < PACKET_BATCH_MAX; i++) {
        struct placement *placement = &r->placements[i];

        placement->header = r->buffers + i * SLOT_BYTES;
        placement->own = placement->header + HEADER_BYTES;
        placement->spill = placement->own + PACKET_BYTES_MAX;
    }
    r->header_bytes = HEADER_BYTES;
    r->n_offered = PACKET_BATCH_MAX;
}

/* memory_map() populates all pages.  Otherwise rare packets, which do not fit their place, would touch the pages over
 * hours, as if memory leaked. */
static int create_buffers(struct receiver *r)
{
    r->buffers = memory_map(BUFFERS_BYTES, memory_node_of_interface(r->config.source.interface));
    if (!r->buffers)
        return -ENOMEM;
    point_placements(r);
    return 0;
}

static int create_assemblers(struct receiver *r)
{
    const struct receiver_config *config = &r->config;
    int err;

    r->members = calloc(config->n_assemblers, sizeof(*r->members));
    r->assemblers = calloc(config->n_assemblers, sizeof(struct assembler *));
    if (!r->members || !r->assemblers)
        return -ENOMEM;
    r->tick_ns = RECV_TIMEOUT_NS;
    for (size_t i = 0; i < config->n_assemblers; i++) {
        r->members[i] = config->assemblers[i];
        r->members[i].may_wait = recv_source_can_wait(r->source);
        if (config->source.device) {
            r->members[i].recycle = receiver_release_frames;
            r->members[i].recycle_context = r;
        }
        int64_t tick_ns = timebase_duration_ns(&r->members[i].timebase, assemble_chunk_samples(&r->members[i].layout)) /
                          TICKS_PER_CHUNK;
        if (tick_ns < r->tick_ns)
            r->tick_ns = tick_ns > TICK_MIN_NS ? tick_ns : TICK_MIN_NS;
        err = assembler_create(&r->members[i], &r->assemblers[i]);
        if (err)
            return err;
    }
    return 0;
}

int receiver_create_from(const struct receiver_config *config, struct recv_source *source, struct receiver **receiver)
{
    struct receiver *r = calloc(1, sizeof(*r));

    assert(config->n_assemblers > 0 && config->n_wanted <= SPEAD_MAX_WANTED);
    if (!r) {
        recv_source_close(source);
        return -ENOMEM;
    }
    r->config = *config;
    snprintf(r->name, sizeof(r->name), "%s", config->thread_name);
    r->config.thread_name = r->name;
    r->source = source;
    int err = create_assemblers(r);
    if (!err)
        err = predictor_init(&r->predictor, r->members, r->config.n_assemblers);
    if (!err)
        err = create_buffers(r);
    if (err)
        receiver_destroy(r);
    else
        *receiver = r;
    return err;
}

int receiver_create(const struct receiver_config *config, struct receiver **receiver, char *why, size_t why_bytes)
{
    struct recv_source *source;
    int err = recv_source_open(&config->source, &source, why, why_bytes);
    if (err)
        return err;
    err = receiver_create_from(config, source, receiver);
    if (err)
        snprintf(why, why_bytes, "there is no memory for the receiver %s", config->thread_name);
    return err;
}

void receiver_destroy(struct receiver *receiver)
{
    if (!receiver)
        return;
    if (receiver->running)
        receiver_stop(receiver);
    memory_unmap(receiver->buffers, BUFFERS_BYTES);
    predictor_fini(&receiver->predictor);
    for (size_t i = 0; receiver->assemblers && i < receiver->config.n_assemblers; i++)
        assembler_destroy(receiver->assemblers[i]);
    free(receiver->assemblers);
    free(receiver->members);
    recv_source_close(receiver->source);
    free(receiver);
}
