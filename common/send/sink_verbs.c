/* sink_verbs.c - sends packets from a raw packet queue of a NIC (verbs.h).  The NIC reads headers and payloads from
 * their places in memory.
 *
 * Queue:     a batch is a list of work requests, each with two parts: {frame header and SPEAD header in a slot |
 *            payload}.  One doorbell hands the batch to the NIC.  Only the last packet of a batch has a completion,
 *            which stands for the whole batch.  Packets are numbered from 0; packet k has slot k % n_slots and 'wr_id'
 *            k.
 * Payloads:  the NIC reads payloads directly from added memory.  Other payloads, such as descriptors, are copied to
 *            'copies', which has space for one batch.  The next batch with copies waits for this space.  Payloads in
 *            device memory must be in added memory, because the CPU cannot copy them.  The driver copies the first
 *            bytes of each frame, which are in a slot.
 * Failures:  a queue that fails, or makes no progress for a second, is reset and started again.  The reset ends the
 *            NIC's reads.  Packets in the queue count as failed, like packets that a socket refuses.  A reset is
 *            possible in any state and discards the queue's completions.  A completion from before the reset is
 *            ignored, because its packet number is too low.  If the queue cannot be restarted, the sink is lost, and
 *            on_lost() is called once.
 * Checksums: this file computes the IPv4 checksum, which costs two additions.  If the NIC can compute checksums, it
 *            computes both the IPv4 and the UDP checksum.  Otherwise packets have no UDP checksum. */
#include "common/base/clock.h"
#include "common/base/why.h"
#include "common/net/frame.h"
#include "common/base/log.h"
#include "common/send/sink.h"
#include "common/net/verbs.h"

#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_SLOTS_MAX   1024
#define N_PARTS       2
#define N_COMPLETIONS 16 /* largest number of completions that one poll returns */
#define IP_UDP_BYTES  (FRAME_HEADER_BYTES - 14)
/* Layout of a slot.  The frame header ends at the boundary of a cache line, where the SPEAD header begins. */
#define SLOT_FRAME  (64 - FRAME_HEADER_BYTES)
#define SLOT_HEADER 64
#define SLOT_BYTES  (SLOT_HEADER + PACKET_SINK_HEADER_MAX)

#define STALL_NS NS_PER_S
/* RATE_MARGIN: the NIC's rate limit divided by the sender's rate.  The ratio is above 1, so that the sender's pace
 * decides.  RATE_MIN_BYTES_S: below this rate the NIC gets no rate limit.  A batch that the NIC paced could then take
 * longer than STALL_NS. */
#define RATE_MARGIN      1.05
#define RATE_MIN_BYTES_S 10e6
/* overhead of a packet on the wire: headers, preamble, check sequence, gap */
#define WIRE_BYTES (FRAME_HEADER_BYTES + 24)

struct verbs_sink {
    struct send_sink base;
    struct verbs_port port;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    bool is_ready;           /* false if the queue is lost; nothing is then in flight */
    double rate_bytes_per_s; /* rate limit of the NIC; 0: no limit */
    double wire_per_byte;    /* ratio of the bytes on the wire to the bytes of the caller's packets */
    size_t packet_bytes;     /* largest packet */
    void (*on_lost)(void *arg);
    void *on_lost_arg;
    int port_fd; /* socket that reserves the source port, and is never read */
    char first_destination[32];

    size_t n_destinations;
    struct destination {
        uint8_t frame[FRAME_HEADER_BYTES]; /* frame header for a datagram of 'n_bytes' to this destination */
        size_t n_bytes;                    /* size of the last datagram to this destination */
    } * destinations;                      /* [n_destinations] */

    size_t n_slots;    /* largest number of packets in flight; a power of two */
    uint8_t *slots;    /* [n_slots][SLOT_BYTES], then [PACKET_SINK_BATCH_MAX][packet_bytes] for copies */
    uint8_t *copies;   /* the part of 'slots' for copies */
    uint64_t n_copied; /* number of the first packet after the last batch that used 'copies' */
    struct verbs_memory slot_memory;

    struct verbs_memory *memories; /* [n_memories] added memories */
    size_t n_memories, last_memory;

    /* n_posted: number of packets handed to the NIC; n_gone: number of these packets that have left or failed */
    uint64_t n_posted, n_gone;
    int64_t moved_ns; /* time of the last progress, or of the first packet in flight */
    struct pending {
        uint64_t packet; /* packet number of the buffer's last packet */
        struct buffer_ref *ref;
    } * pending; /* [n_slots] ring of the buffers that have packets in flight */
    uint64_t n_pending, n_put;

    struct ibv_send_wr requests[PACKET_SINK_BATCH_MAX]; /* each request is linked to the next */
    struct ibv_sge parts[PACKET_SINK_BATCH_MAX][N_PARTS];
    struct log_limit failed_limit;
};

static struct verbs_sink *sink_of(struct send_sink *base)
{
    return CONTAINER_OF(base, struct verbs_sink, base);
}

/* ---- The queue's states ------------------------------------------------------------------------------------------ */

static int modify(struct verbs_sink *sink, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = (uint8_t)sink->port.port_num};

    return ibv_modify_qp(sink->qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

/* Returns the rate limit for the NIC, in kbit/s on the wire; 0: no limit. */
static uint32_t card_rate(const struct verbs_sink *sink)
{
    double bits_s = 8 * sink->rate_bytes_per_s * sink->wire_per_byte * RATE_MARGIN;

    if (sink->rate_bytes_per_s < RATE_MIN_BYTES_S || bits_s > (double)sink->port.rate_max_bits_s)
        return 0;
    return (uint32_t)(bits_s / 1000);
}

/* Sets the NIC's rate limit.  If the NIC cannot pace packets, only the sender's schedule paces the packets. */
static void set_rate(struct verbs_sink *sink)
{
    struct ibv_qp_rate_limit_attr attr = {.rate_limit = card_rate(sink)};

    if (attr.rate_limit == 0)
        return;
    int err = ibv_modify_qp_rate_limit(sink->qp, &attr);
    if (!err)
        return;
    sink->rate_bytes_per_s = 0;
    log_info("%s does not pace packets to %s and others (%s): packets leave in bursts of up to 64 KiB",
             sink->port.interface, sink->first_destination, strerror(err));
}

/* Moves the queue from reset to ready to send.  Returns 0 or a positive errno. */
static int start_queue(struct verbs_sink *sink)
{
    int err = modify(sink, IBV_QPS_INIT);

    if (!err)
        err = modify(sink, IBV_QPS_RTR);
    if (!err)
        err = modify(sink, IBV_QPS_RTS);
    if (!err)
        set_rate(sink);
    return err;
}

/* ---- Completions ------------------------------------------------------------------------------------------------- */

/* Records that the packets before number 'end' have left or failed, and releases their references. */
static void release_completed(struct verbs_sink *sink, uint64_t end)
{
    sink->n_gone = end;
    while (sink->n_put < sink->n_pending && sink->pending[sink->n_put % sink->n_slots].packet < end)
        buffer_ref_put(sink->pending[sink->n_put++ % sink->n_slots].ref);
}

/* Resets a failed queue, and starts it again if possible.  All packets in flight count as lost.  'err' (positive) and
 * 'reason' describe the failure. */
static void fail_queue(struct verbs_sink *sink, int err, const char *reason)
{
    struct ibv_wc ignored[N_COMPLETIONS];
    uint64_t n_lost = sink->n_posted - sink->n_gone;

    int err_again = modify(sink, IBV_QPS_RESET); /* after the reset the NIC no longer reads the packets */
    if (err_again) {
        ibv_destroy_qp(sink->qp); /* if the reset failed, this call ends the NIC's reads */
        sink->qp = NULL;
    }
    while (ibv_poll_cq(sink->cq, N_COMPLETIONS, ignored) > 0)
        continue;
    for (uint64_t i = 0; i < n_lost; i++)
        send_sink_note_failed(&sink->base, err);
    release_completed(sink, sink->n_posted);
    if (!err_again)
        err_again = start_queue(sink);
    if (!err_again) {
        log_limited(&sink->failed_limit, LOG_LEVEL_WARNING,
                    "the queue of %s to %s and others failed (%s): %llu packets are lost; sending continues",
                    sink->port.interface, sink->first_destination, reason, (unsigned long long)n_lost);
        return;
    }
    log_error("the queue of %s to %s and others failed (%s) and cannot be restarted (%s): nothing more is sent",
              sink->port.interface, sink->first_destination, reason, strerror(err_again));
    sink->is_ready = false;
    if (sink->on_lost)
        sink->on_lost(sink->on_lost_arg);
}

/* Handles a completion.  If it reports a failed packet, all packets before this packet have left. */
static void take_completion(struct verbs_sink *sink, const struct ibv_wc *completion)
{
    assert(completion->wr_id < sink->n_posted);
    if (completion->wr_id < sink->n_gone) /* a completion from before a reset is ignored */
        return;
    if (completion->status == IBV_WC_SUCCESS) {
        release_completed(sink, completion->wr_id + 1);
        return;
    }
    release_completed(sink, completion->wr_id);
    fail_queue(sink, EIO, ibv_wc_status_str(completion->status));
}

static size_t verbs_reap(struct send_sink *base)
{
    struct verbs_sink *sink = sink_of(base);
    struct ibv_wc completions[N_COMPLETIONS];
    uint64_t n_gone = sink->n_gone;

    while (sink->n_gone < sink->n_posted) {
        int n = ibv_poll_cq(sink->cq, N_COMPLETIONS, completions);
        for (int i = 0; i < n; i++)
            take_completion(sink, &completions[i]);
        if (n < 0)
            fail_queue(sink, EIO, "ibv_poll_cq");
        if (n < N_COMPLETIONS)
            break;
    }
    if (sink->n_gone < sink->n_posted) {
        int64_t now_ns = clock_monotonic_ns();
        if (sink->n_gone > n_gone)
            sink->moved_ns = now_ns;
        else if (now_ns - sink->moved_ns > STALL_NS)
            fail_queue(sink, ETIMEDOUT, "the NIC has sent nothing for a second");
    }
    return sink->n_posted - sink->n_gone;
}

/* Returns true if the next batch need not wait, even if it has payloads to copy. */
static bool has_queue_space(const struct verbs_sink *sink)
{
    return sink->n_posted + PACKET_SINK_BATCH_MAX - sink->n_gone <= sink->n_slots && sink->n_copied <= sink->n_gone;
}

static bool verbs_has_room(struct send_sink *base)
{
    struct verbs_sink *sink = sink_of(base);

    if (!has_queue_space(sink))
        verbs_reap(base);
    return has_queue_space(sink);
}

/* Waits until all packets before number 'end' have left or failed. */
static void await(struct verbs_sink *sink, uint64_t end)
{
    while (sink->n_gone < end && verbs_reap(&sink->base) > 0 && sink->n_gone < end)
        clock_sleep_until(clock_monotonic_ns() + PACKET_SINK_ROOM_NS);
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

static uint8_t *slot(const struct verbs_sink *sink, uint64_t packet)
{
    return sink->slots + (packet & (sink->n_slots - 1)) * SLOT_BYTES;
}

static void verbs_place_headers(struct send_sink *base, size_t n)
{
    struct verbs_sink *sink = sink_of(base);

    if (sink->n_posted + n > sink->n_slots)
        await(sink, sink->n_posted + n - sink->n_slots);
    for (size_t i = 0; i < n; i++)
        base->packets[i].header = slot(sink, sink->n_posted + i) + SLOT_HEADER;
}

/* Returns the added memory that contains the packet's payload, or NULL. */
static const struct verbs_memory *find_memory(struct verbs_sink *sink, const struct packet_out *packet)
{
    for (size_t i = 0; i < sink->n_memories; i++) {
        /* the loop begins with the memory of the previous payload, because this memory usually contains the new payload
         * too */
        const struct verbs_memory *memory = &sink->memories[sink->last_memory];
        if (packet->payload >= memory->base &&
            packet->payload + packet->payload_bytes <= memory->base + memory->n_bytes)
            return memory;
        sink->last_memory = (sink->last_memory + 1) % sink->n_memories;
    }
    return NULL;
}

static struct ibv_sge make_part(const void *bytes, size_t n_bytes, const struct verbs_memory *memory)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = (uint32_t)n_bytes, .lkey = memory->mr->lkey};
}

static void make_payload(struct verbs_sink *sink, size_t i, const struct packet_out *packet, bool *copied)
{
    const struct verbs_memory *memory = find_memory(sink, packet);

    if (memory) {
        sink->parts[i][1] = make_part(packet->payload, packet->payload_bytes, memory);
        return;
    }
    if (!*copied)
        await(sink, sink->n_copied);
    *copied = true;
    uint8_t *copy = sink->copies + i * sink->packet_bytes;
    memcpy(copy, packet->payload, packet->payload_bytes);
    sink->parts[i][1] = make_part(copy, packet->payload_bytes, &sink->slot_memory);
}

/* Writes the frame header.  Its size field is usually right already, from the previous packet to this destination. */
static void put_frame(uint8_t *frame, struct destination *to, size_t n_bytes)
{
    if (to->n_bytes != n_bytes) {
        frame_set_bytes(to->frame, n_bytes);
        to->n_bytes = n_bytes;
    }
    memcpy(frame, to->frame, FRAME_HEADER_BYTES);
}

/* Fills in the work requests of a batch. */
static void make_requests(struct verbs_sink *sink, const struct packet_out *packets, size_t n)
{
    bool copied = false;

    for (size_t i = 0; i < n; i++) {
        const struct packet_out *packet = &packets[i];
        uint8_t *frame = slot(sink, sink->n_posted + i) + SLOT_FRAME;
        assert(packet->header == frame + FRAME_HEADER_BYTES && packet->destination < sink->n_destinations);
        assert(packet->header_bytes + packet->payload_bytes <= sink->packet_bytes);
        put_frame(frame, &sink->destinations[packet->destination], packet->header_bytes + packet->payload_bytes);
        sink->parts[i][0] = make_part(frame, FRAME_HEADER_BYTES + packet->header_bytes, &sink->slot_memory);
        if (packet->payload_bytes > 0)
            make_payload(sink, i, packet, &copied);
        sink->requests[i].num_sge = packet->payload_bytes > 0 ? N_PARTS : 1;
        sink->requests[i].wr_id = sink->n_posted + i;
    }
    if (copied)
        sink->n_copied = sink->n_posted + n;
}

/* Posts the first 'n' work requests.  Only the last request has a completion.  Returns 0 or a positive errno. */
static int post(struct verbs_sink *sink, size_t n)
{
    struct ibv_send_wr *last = &sink->requests[n - 1], *next = last->next, *bad;

    last->next = NULL;
    last->send_flags |= IBV_SEND_SIGNALED;
    int err = ibv_post_send(sink->qp, sink->requests, &bad);
    last->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
    last->next = next;
    return err;
}

static size_t refuse(struct verbs_sink *sink, const struct packet_out *packets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        send_sink_note_failed(&sink->base, ENODEV);
        send_sink_put_ref(&packets[i]);
    }
    return 0;
}

static size_t verbs_send(struct send_sink *base, struct packet_out *packets, size_t n)
{
    struct verbs_sink *sink = sink_of(base);

    if (sink->is_ready)
        make_requests(sink, packets, n); /* this call may wait, and may find that the queue is lost */
    if (!sink->is_ready)
        return refuse(sink, packets, n);
    if (sink->n_gone == sink->n_posted)
        sink->moved_ns = clock_monotonic_ns();
    for (size_t i = 0; i < n; i++)
        if (packets[i].ref)
            sink->pending[sink->n_pending++ % sink->n_slots] = (struct pending){sink->n_posted + i, packets[i].ref};
    int err = post(sink, n);
    sink->n_posted += n;
    if (!err)
        return n;
    fail_queue(sink, err, "ibv_post_send"); /* some packets may be in the queue already, but will get no completion */
    return 0;
}

static void verbs_disable_pacing(struct send_sink *base)
{
    struct verbs_sink *sink = sink_of(base);
    bool is_limited = card_rate(sink) > 0;

    sink->rate_bytes_per_s = 0;
    if (is_limited && sink->is_ready)
        ibv_modify_qp_rate_limit(sink->qp, &(struct ibv_qp_rate_limit_attr){.rate_limit = 0});
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static int verbs_add_memory(struct send_sink *base, const void *memory, size_t n_bytes, int fd, char *why,
                            size_t why_bytes)
{
    struct verbs_sink *sink = sink_of(base);

    struct verbs_memory *more = realloc(sink->memories, (sink->n_memories + 1) * sizeof(*more));
    if (!more)
        return why_out_of_memory(why, why_bytes);
    sink->memories = more;
    int err = fd < 0 ? verbs_memory_register(&sink->port, (void *)memory, n_bytes, false, &more[sink->n_memories], why,
                                             why_bytes)
                     : verbs_memory_register_exported(&sink->port, (void *)memory, n_bytes, fd, false,
                                                      &more[sink->n_memories], why, why_bytes);
    sink->n_memories += !err;
    return why_about(err, fd < 0 ? "send.transport" : "send.gpudirect", why, why_bytes);
}

static void verbs_forget_memory(struct send_sink *base)
{
    struct verbs_sink *sink = sink_of(base);

    assert(sink->n_gone == sink->n_posted);
    while (sink->n_memories > 0)
        verbs_memory_unregister(&sink->memories[--sink->n_memories]);
    sink->last_memory = 0;
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static void verbs_close(struct send_sink *base)
{
    struct verbs_sink *sink = sink_of(base);

    if (sink->qp)
        ibv_destroy_qp(sink->qp);
    if (sink->cq)
        ibv_destroy_cq(sink->cq);
    verbs_forget_memory(base);
    verbs_memory_unregister(&sink->slot_memory);
    verbs_port_close(&sink->port);
    if (sink->port_fd >= 0)
        close(sink->port_fd);
    free(sink->memories);
    free(sink->slots);
    free(sink->pending);
    free(sink->destinations);
    free(sink);
}

static const struct send_sink_ops verbs_ops = {
    .send = verbs_send,
    .close = verbs_close,
    .place_headers = verbs_place_headers,
    .reap = verbs_reap,
    .has_room = verbs_has_room,
    .add_memory = verbs_add_memory,
    .forget_memory = verbs_forget_memory,
    .disable_pacing = verbs_disable_pacing,
};

static int check_config(const struct send_sink_config *config, char *why, size_t why_bytes)
{
    assert(config->packet_bytes > 0);
    if (!config->interface)
        return why_fail(-EINVAL, why, why_bytes, "send.interface: ibverbs needs an interface");
    for (size_t i = 0; i < config->destinations->n; i++) {
        char name[128];
        if (endpoint_is_multicast(&config->destinations->items[i]))
            continue;
        return why_fail(-EINVAL, why, why_bytes, "%s: ibverbs sends to multicast groups only",
                        endpoint_describe(&config->destinations->items[i], name, sizeof(name)));
    }
    return 0;
}

static int check_mtu(const struct verbs_port *port, size_t packet_bytes, char *why, size_t why_bytes)
{
    if (packet_bytes + IP_UDP_BYTES <= port->mtu)
        return 0;
    return why_fail(-EINVAL, why, why_bytes,
                    "send.interface: packets of %zu bytes, %zu with IPv4 and UDP, exceed the MTU of %s, which is %zu: "
                    "raise the MTU (\"ip link set %s mtu %zu\") or send smaller packets",
                    packet_bytes, packet_bytes + IP_UDP_BYTES, port->interface, port->mtu, port->interface,
                    packet_bytes + IP_UDP_BYTES);
}

/* Reserves a source port that no other socket of this host uses, so that each sink is a separate flow. */
static int take_port(struct verbs_sink *sink, uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = sink->port.address};
    socklen_t length = sizeof(address);

    sink->port_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sink->port_fd < 0 || bind(sink->port_fd, (struct sockaddr *)&address, sizeof(address)) ||
        getsockname(sink->port_fd, (struct sockaddr *)&address, &length))
        return errno;
    *port = ntohs(address.sin_port);
    return 0;
}

static int make_frames(struct verbs_sink *sink, const struct send_sink_config *config)
{
    struct frame_addresses from = {.address = sink->port.address, .ttl = (uint8_t)config->ttl};
    int err = take_port(sink, &from.port);

    memcpy(from.mac, sink->port.mac, sizeof(from.mac));
    sink->n_destinations = config->destinations->n;
    sink->destinations = calloc(sink->n_destinations, sizeof(*sink->destinations));
    if (!err && !sink->destinations)
        err = ENOMEM;
    for (size_t i = 0; i < sink->n_destinations && !err; i++)
        frame_put(sink->destinations[i].frame, &from, &config->destinations->items[i], NULL, 0);
    return err;
}

/* Allocates the slots and the ring of buffers in flight, and prepares the work requests. */
static int make_ring(struct verbs_sink *sink, char *why, size_t why_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t limit =
        sink->port.max_queue < sink->port.max_completions ? sink->port.max_queue : sink->port.max_completions;

    sink->n_slots = N_SLOTS_MAX;
    while (sink->n_slots > limit)
        sink->n_slots /= 2;
    if (sink->n_slots < PACKET_SINK_BATCH_MAX || sink->port.max_parts < N_PARTS)
        return verbs_fail(&sink->port, ENOTSUP, "the queues of its NIC are too short", why, why_bytes);
    size_t n_bytes = sink->n_slots * SLOT_BYTES + PACKET_SINK_BATCH_MAX * sink->packet_bytes;
    n_bytes = (n_bytes + page - 1) / page * page;
    sink->pending = calloc(sink->n_slots, sizeof(*sink->pending));
    sink->slots = aligned_alloc(page, n_bytes);
    if (!sink->slots || !sink->pending)
        return verbs_fail(&sink->port, ENOMEM, "cannot allocate a queue", why, why_bytes);
    memset(sink->slots, 0, n_bytes);
    sink->copies = sink->slots + sink->n_slots * SLOT_BYTES;
    for (size_t i = 0; i < PACKET_SINK_BATCH_MAX; i++)
        sink->requests[i] = (struct ibv_send_wr){
            .next = i + 1 < PACKET_SINK_BATCH_MAX ? &sink->requests[i + 1] : NULL,
            .sg_list = sink->parts[i],
            .opcode = IBV_WR_SEND,
            .send_flags = sink->port.computes_ip ? IBV_SEND_IP_CSUM : 0,
        };
    return verbs_memory_register(&sink->port, sink->slots, n_bytes, false, &sink->slot_memory, why, why_bytes);
}

static int make_queue(struct verbs_sink *sink, char *why, size_t why_bytes)
{
    /* The completion queue has room for all packets in flight, because each packet of a failed queue may have a
     * completion. */
    sink->cq = ibv_create_cq(sink->port.context, (int)sink->n_slots, verbs_sends, NULL, 0);
    if (!sink->cq)
        return verbs_fail_to_lock(&sink->port, errno, sink->n_slots * VERBS_ENTRY_BYTES,
                                  "cannot create a completion queue", why, why_bytes);
    struct ibv_qp_init_attr attr = {
        .qp_context = verbs_sends,
        .send_cq = sink->cq,
        .recv_cq = sink->cq,
        .cap = {.max_send_wr = (uint32_t)sink->n_slots, .max_send_sge = N_PARTS},
        .qp_type = IBV_QPT_RAW_PACKET,
    };
    sink->qp = ibv_create_qp(sink->port.pd, &attr);
    if (!sink->qp)
        return verbs_fail_to_lock(&sink->port, errno, sink->n_slots * VERBS_ENTRY_BYTES, "cannot create a send queue",
                                  why, why_bytes);
    int err = start_queue(sink);
    if (err)
        return verbs_fail(&sink->port, err, "cannot start a send queue", why, why_bytes);
    sink->is_ready = true;
    return 0;
}

static int open_sink(struct verbs_sink *sink, const struct send_sink_config *config, char *why, size_t why_bytes)
{
    int err = verbs_port_open(config->interface, &sink->port, why, why_bytes);

    if (!err) {
        err = check_mtu(&sink->port, config->packet_bytes, why, why_bytes);
        if (err)
            return err;
        int frames_err = make_frames(sink, config);
        if (frames_err)
            err = verbs_fail(&sink->port, frames_err, "cannot reserve a source port", why, why_bytes);
    }
    if (!err)
        err = make_ring(sink, why, why_bytes);
    if (!err)
        err = make_queue(sink, why, why_bytes);
    return why_about(err, "send.transport", why, why_bytes);
}

int send_sink_verbs_open(const struct send_sink_config *config, struct send_sink **out, char *why, size_t why_bytes)
{
    int err = check_config(config, why, why_bytes);
    if (err)
        return err;
    struct verbs_sink *sink = calloc(1, sizeof(*sink));
    if (!sink)
        return why_out_of_memory(why, why_bytes);
    sink->base.ops = &verbs_ops;
    sink->port_fd = -1;
    sink->packet_bytes = config->packet_bytes;
    sink->rate_bytes_per_s = config->rate_bytes_per_s;
    sink->wire_per_byte =
        1 + WIRE_BYTES / (config->mean_packet_bytes > 0 ? config->mean_packet_bytes : (double)config->packet_bytes);
    sink->on_lost = config->on_lost;
    sink->on_lost_arg = config->on_lost_arg;
    endpoint_format(&config->destinations->items[0], sink->first_destination, sizeof(sink->first_destination));
    err = open_sink(sink, config, why, why_bytes);
    if (err)
        verbs_close(&sink->base);
    else
        *out = &sink->base;
    return err;
}
