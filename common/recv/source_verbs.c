/* source_verbs.c - receives frames from a raw packet queue of a NIC.  Packets stay where the NIC wrote them
 * (zero-copy).
 *
 * The NIC writes whole frames into a ring of registered memory, in the order in which their work requests were posted.
 * A completion queue reports each frame.  Reception needs no system call and no copy.  A frame is valid until the next
 * recv.  The next recv posts the frame again at the end of the queue.  Places in chunks are not posted to the NIC.  The
 * NIC's queue is deep.  After one lost packet, the NIC would write all later packets of the queue to wrong places.  The
 * receiver copies each payload once, past the cache, as with coalesced messages.
 *
 * Ordinary sockets join the groups, so that the switches forward their packets.  The sockets are never read.
 * recv_source_enable() installs flow rules that steer packets for the endpoints to the queue.  Other frames that match
 * the rules (fragments, other groups with the same Ethernet address) are ignored.  If several sources have rules for
 * the same group, each source receives all frames of the group.  So packets for other threads arrive whole, and the
 * receiver recognises and ignores them.  If the allowed senders of an endpoint are single addresses, there is a rule
 * for each address.  If the allowed senders are networks, only the receiver checks senders.
 *
 * With a device (recv.gpudirect), the NIC scatters each frame.  The head of a frame is in pinned memory, which the host
 * and the device read.  The rest is in exported memory of the device.  A kept frame (recv_source_keep) is posted again
 * after its release.  There are enough frames to keep the NIC's queue full meanwhile. */
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/net/frame.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/recv/source_verbs.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFETCH_AHEAD 4 /* number of headers to prefetch ahead of the current frame */

/* ---- Death ------------------------------------------------------------------------------------------------------- */

static int bury(struct recv_source_verbs *source, const char *why)
{
    log_error("ibverbs on %s: %s", source->port.interface, why);
    source->err = -EIO;
    return source->err;
}

/* Returns true if the event is about a queue of a sink.  The sink handles the event itself. */
static bool is_of_a_sink(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: return event->element.cq->cq_context == verbs_sends;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return event->element.qp->qp_context == verbs_sends;
    default: return false;
    }
}

/* Reads the asynchronous events of the NIC, which report failures and link changes.  All sources and sinks of a NIC
 * share its events.  A source also fails if it reads the event of another source's failure.  This is right, because
 * the daemon stops at the first failed source.  Returns 0 or negative errno. */
static int read_events(struct recv_source_verbs *source)
{
    struct ibv_async_event event;
    char why[100];

    while (ibv_get_async_event(source->port.context, &event) == 0) {
        enum ibv_event_type type = event.event_type;
        bool of_a_sink = is_of_a_sink(&event);
        ibv_ack_async_event(&event);
        if (of_a_sink)
            continue;
        switch (type) {
        case IBV_EVENT_PORT_ERR: log_warning("ibverbs on %s: the link is down", source->port.interface); break;
        case IBV_EVENT_PORT_ACTIVE: log_info("ibverbs on %s: the link is up", source->port.interface); break;
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_WQ_FATAL:
            snprintf(why, sizeof(why), "the NIC failed or was removed: %s", ibv_event_type_str(type));
            return bury(source, why);
        default: break;
        }
    }
    return 0;
}

/* Ends the source after a failed call or work request, and logs the reason.  After the removal of a NIC all calls fail,
 * and the NIC's event is the reason to log.  Returns negative errno. */
static int die(struct recv_source_verbs *source, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int die(struct recv_source_verbs *source, const char *format, ...)
{
    char why[200];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    return read_events(source) ? source->err : bury(source, why);
}

/* ---- Work requests ----------------------------------------------------------------------------------------------- */

int recv_source_verbs_post(struct recv_source_verbs *source, const uint32_t *frames, size_t n)
{
    struct ibv_recv_wr *refused;

    for (size_t i = 0; i + 1 < n; i++)
        source->requests[frames[i]].next = &source->requests[frames[i + 1]];
    source->requests[frames[n - 1]].next = NULL;
    source->n_posted += n;
    return ibv_post_recv(source->qp, &source->requests[frames[0]], &refused);
}

/* Posts frames until the queue is full.  The other frames become spare frames.  Returns 0 or negative errno. */
static int give_back(struct recv_source_verbs *source, const uint32_t *frames, size_t n)
{
    size_t room = source->max_posted - source->n_posted, n_now = n < room ? n : room;

    for (size_t i = n_now; i < n; i++)
        source->spare[source->n_spare++] = frames[i];
    int err = n_now > 0 ? recv_source_verbs_post(source, frames, n_now) : 0;
    return err ? die(source, "a work request was refused: %s", strerror(err)) : 0;
}

/* Posts the frames of the last recv again, and replaces kept frames by spare frames.  Returns 0 or negative errno. */
static int post_used(struct recv_source_verbs *source)
{
    size_t n = 0;

    for (size_t i = 0; i < source->n_used; i++)
        if (source->kept[source->used[i]])
            source->kept[source->used[i]] = KEPT_LONG;
        else
            source->used[n++] = source->used[i];
    source->n_used = 0;
    int err = give_back(source, source->used, n);
    size_t n_more = source->max_posted - source->n_posted;
    if (n_more > source->n_spare)
        n_more = source->n_spare;
    source->n_spare -= n_more;
    return err ? err : give_back(source, source->spare + source->n_spare, n_more);
}

static void verbs_keep(struct recv_source *base, uint32_t frame)
{
    CONTAINER_OF(base, struct recv_source_verbs, base)->kept[frame] = KEPT_NOW;
}

static int verbs_release(struct recv_source *base, const uint32_t *frames, size_t n)
{
    struct recv_source_verbs *source = CONTAINER_OF(base, struct recv_source_verbs, base);
    size_t enable = 0;

    /* Frames that were kept since the last recv are posted later, by post_used(). */
    for (size_t i = 0; i < n; i++) {
        if (source->kept[frames[i]] == KEPT_NOW) {
            give_back(source, frames + enable, i - enable);
            enable = i + 1;
        }
        source->kept[frames[i]] = NOT_KEPT;
    }
    give_back(source, frames + enable, n - enable);
    return source->err;
}

/* ---- Completions ------------------------------------------------------------------------------------------------- */

static void prefetch_headers(const uint8_t *frame)
{
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + 64);
}

/* Points the slot to the packet of a completed frame (zero-copy).  Returns false if the frame has no packet for an
 * endpoint. */
static bool next_packet(struct recv_source_verbs *source, const struct ibv_wc *completion, struct packet_slot *slot)
{
    uint8_t *frame = verbs_source_frame(source, completion->wr_id);
    bool ip_is_right = completion->wc_flags & IBV_WC_IP_CSUM_OK;
    struct frame_datagram datagram;

    assert(completion->byte_len <= source->max_frame_bytes);
    if (frame_parse_udp(frame, completion->byte_len, !ip_is_right, &datagram))
        return false;
    size_t n_before = (size_t)(datagram.bytes - frame);
    if (source->device && n_before > PACKET_HEAD_BYTES) /* more VLAN tags than occur in practice */
        return false;
    int endpoint = recv_endpoints_find(&source->endpoints, datagram.address, datagram.port);
    if (endpoint < 0)
        return false;
    *slot = (struct packet_slot){
        .header = frame + n_before,
        .header_bytes = datagram.n_bytes,
        .packet_bytes = datagram.n_bytes,
        .zero_copy = true,
        .frame = (uint32_t)completion->wr_id,
        .endpoint = (unsigned)endpoint,
        .sender = datagram.sender,
    };
    size_t n_head = PACKET_HEAD_BYTES - n_before;
    if (source->device && datagram.n_bytes > n_head) {
        slot->header_bytes = n_head;
        slot->rest = source->rests.device + completion->wr_id * source->rest_bytes;
    }
    return true;
}

/* Polls the completion queue, and fills slots with the packets for the endpoints.  Returns the number of packets, or
 * negative errno.  If an error occurs after some packets, the next recv returns the error. */
static int take_completions(struct recv_source_verbs *source, struct packet_slot *slots, size_t n_slots)
{
    const struct ibv_wc *completions = source->completions;
    int n_filled = 0;
    int n = ibv_poll_cq(source->cq, (int)n_slots, source->completions);

    if (n < 0)
        return die(source, "the completion queue cannot be read");
    source->n_posted -= (size_t)n;
    for (int i = 0; i < n && i < PREFETCH_AHEAD; i++)
        prefetch_headers(verbs_source_frame(source, completions[i].wr_id));
    for (int i = 0; i < n; i++) {
        if (completions[i].status != IBV_WC_SUCCESS) {
            enum ibv_wc_status status = completions[i].status;
            die(source, "receiving failed: %s%s", ibv_wc_status_str(status),
                status == IBV_WC_LOC_LEN_ERR
                    ? " (a frame is longer than the MTU was at the start: restart this program)"
                    : "");
            return n_filled ? n_filled : source->err;
        }
        if (i + PREFETCH_AHEAD < n)
            prefetch_headers(verbs_source_frame(source, completions[i + PREFETCH_AHEAD].wr_id));
        source->used[source->n_used++] = (uint32_t)completions[i].wr_id;
        n_filled += next_packet(source, &completions[i], &slots[n_filled]);
    }
    return n_filled;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

/* Reads a completion event.  The next completion raises an event only after another request. */
static int read_completion_event(struct recv_source_verbs *source)
{
    struct ibv_cq *cq;
    void *context;

    if (ibv_get_cq_event(source->channel, &cq, &context))
        return errno == EAGAIN ? 0 : die(source, "the completion channel cannot be read: %s", strerror(errno));
    ibv_ack_cq_events(cq, 1);
    source->armed = false;
    return 0;
}

/* Sleeps until an event occurs or 'timeout_ns' has passed.  Returns 0 or negative errno. */
static int sleep_for_event(struct recv_source_verbs *source, int64_t timeout_ns)
{
    enum { COMPLETION, ASYNC, N };
    struct pollfd fds[N] = {
        [COMPLETION] = {.fd = source->channel->fd, .events = POLLIN},
        [ASYNC] = {.fd = source->port.context->async_fd, .events = POLLIN},
    };
    const struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};
    int err = 0;

    if (ppoll(fds, N, &timeout, NULL) <= 0)
        return 0; /* reached after a time-out or a signal */
    if (fds[ASYNC].revents & POLLIN)
        err = read_events(source);
    if (!err && fds[COMPLETION].revents & POLLIN)
        err = read_completion_event(source);
    if (!err && (fds[COMPLETION].revents | fds[ASYNC].revents) & (POLLERR | POLLHUP | POLLNVAL))
        err = die(source, "the NIC was removed");
    return err;
}

/* Waits for a completion; called when the queue is empty.  The first call requests an event and returns at once.  The
 * caller must then poll the queue again, because completions before the request raise no event.  The next call sleeps.
 * Returns 0 or negative errno. */
static int await_completion(struct recv_source_verbs *source, int64_t timeout_ns)
{
    if (!source->channel)
        return 0;
    if (source->armed)
        return sleep_for_event(source, timeout_ns);
    int err = ibv_req_notify_cq(source->cq, 0);
    if (err)
        return die(source, "completion events cannot be requested: %s", strerror(err));
    source->armed = true;
    return 0;
}

/* Receives packets.  If frames have arrived, but none of them has a packet for an endpoint, returns 0 at once.  So a
 * flood of such frames does not delay the caller. */
static int verbs_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct recv_source_verbs *source = CONTAINER_OF(base, struct recv_source_verbs, base);

    if (source->err || post_used(source))
        return source->err;
    int n = take_completions(source, slots, n_slots);
    if (n == 0 && source->n_used == 0 && timeout_ns > 0 && source->channel) {
        recv_source_coalesce(source->may_coalesce, &source->waiting_since_ns);
        n = take_completions(source, slots, n_slots);
    }
    if (n != 0 || source->n_used > 0 || timeout_ns <= 0)
        return n;
    int64_t now_ns = clock_monotonic_ns(), deadline_ns = now_ns + timeout_ns, busy_end_ns = now_ns + source->busy_ns;
    for (; n == 0 && source->n_used == 0; now_ns = clock_monotonic_ns()) {
        if (now_ns >= deadline_ns)
            return read_events(source);
        if (now_ns >= busy_end_ns && await_completion(source, deadline_ns - now_ns))
            return source->err;
        n = take_completions(source, slots, n_slots);
    }
    return n;
}

static bool verbs_is_zero_copy(const struct recv_source *base)
{
    return true;
}

/* ---- Drops ------------------------------------------------------------------------------------------------------- */

static uint64_t read_drops(const struct recv_source_verbs *source)
{
    char text[32];

    ssize_t n = pread(source->drops_fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return strtoull(text, NULL, 10);
}

/* Returns the number of packets that the NIC's port dropped because no frame was posted, including packets for other
 * queues. */
static uint64_t verbs_kernel_drops(const struct recv_source *base)
{
    const struct recv_source_verbs *source = CONTAINER_OF(base, const struct recv_source_verbs, base);
    uint64_t n = source->drops_fd >= 0 ? read_drops(source) : 0;

    return n > source->n_drops_before ? n - source->n_drops_before : 0;
}

void recv_source_verbs_open_drops(struct recv_source_verbs *source)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/ports/%u/hw_counters/out_of_buffer", source->port.context->device->ibdev_path,
             source->port.port_num);
    source->drops_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (source->drops_fd >= 0)
        source->n_drops_before = read_drops(source);
}

/* ---- Closing ----------------------------------------------------------------------------------------------------- */

/* Destroys each object before the objects that it uses.  Accepts a source that is only partly open. */
void recv_source_verbs_close(struct recv_source *base)
{
    struct recv_source_verbs *source = CONTAINER_OF(base, struct recv_source_verbs, base);

    for (size_t i = 0; i < source->n_flows; i++)
        ibv_destroy_flow(source->flows[i]);
    for (size_t i = 0; i < source->n_sockets; i++)
        close(source->sockets[i]);
    if (source->qp)
        ibv_destroy_qp(source->qp);
    if (source->cq)
        ibv_destroy_cq(source->cq);
    if (source->send_cq)
        ibv_destroy_cq(source->send_cq);
    if (source->channel)
        ibv_destroy_comp_channel(source->channel);
    verbs_memory_unregister(&source->memory);
    verbs_memory_unregister(&source->rest_memory);
    if (source->drops_fd >= 0)
        close(source->drops_fd);
    verbs_port_close(&source->port);
    if (source->device) {
        device_free_exported(source->device, &source->rests);
        device_free_pinned(source->device, source->ring);
    } else {
        memory_unmap(source->ring, source->ring_bytes);
    }
    free(source->kept);
    free(source->spare);
    recv_endpoints_fini(&source->endpoints);
    free(source->requests);
    free(source->parts);
    free(source->flows);
    free(source->sockets);
    free(source);
}

const struct recv_source_ops verbs_source_ops = {
    .enable = recv_source_verbs_enable,
    .recv = verbs_recv,
    .is_zero_copy = verbs_is_zero_copy,
    .kernel_drops = verbs_kernel_drops,
    .keep = verbs_keep,
    .release = verbs_release,
    .close = recv_source_verbs_close,
    .can_wait = false,
};
