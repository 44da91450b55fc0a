/* fake_receive.c - the thread of a receive queue: frames from the interface into the memory that was posted.
 *
 * The kernel copies each frame to the memory of its work request.  If no work request is posted, frames are dropped and
 * counted, as a NIC does.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BYTES  (64 << 20)
#define LOOK_AGAIN_MS 20

int fake_receive_open(struct fake_qp *qp)
{
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = qp->context->device->index};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, n_bytes = SOCKET_BYTES, error;

    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &n_bytes, sizeof(n_bytes));
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
    pthread_mutex_lock(&qp->lock);
    error = fake_flows_attach(qp, fd);
    pthread_mutex_unlock(&qp->lock);
    if (!error && bind(fd, (struct sockaddr *)&at, sizeof(at)))
        error = errno;
    if (error)
        close(fd);
    else
        qp->recv.socket = fd;
    return error;
}

/* True if a frame has an IPv4 header whose sum is right, as far as it lies in the first part. */
static bool is_ip_right(const struct iovec *part, size_t n_bytes)
{
    const uint8_t *frame = part->iov_base;
    size_t n = n_bytes < part->iov_len ? n_bytes : part->iov_len;
    uint32_t sum = 0;

    if (n < 34 || frame[12] != 8 || frame[13] || frame[14] >> 4 != 4)
        return false;
    size_t n_header = (frame[14] & 15U) * 4;
    if (n_header < 20 || 14 + n_header > n)
        return false;
    for (size_t i = 0; i < n_header; i += 2)
        sum += (uint32_t)(frame[14 + i] << 8 | frame[15 + i]);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return (sum & 0xFFFF) + (sum >> 16) == 0xFFFF;
}

/* A system call's worth of messages. */
struct batch {
    struct mmsghdr messages[FAKE_BATCH];
    struct iovec parts[FAKE_BATCH][FAKE_MAX_PARTS];
};

/* Takes frames off the socket that nobody gets.  Returns how many. */
static int discard(struct fake_queue *queue, int n)
{
    struct mmsghdr messages[FAKE_BATCH] = {0}; /* of no parts */
    int n_taken = recvmmsg(queue->socket, messages, (unsigned)n, MSG_TRUNC | MSG_DONTWAIT, NULL);

    return n_taken > 0 ? n_taken : 0;
}

/* Prepares the requests from the next one on that are as they must be.  Returns how many. */
static int prepare(struct fake_qp *qp, struct batch *batch, int n)
{
    struct fake_queue *queue = &qp->recv;

    for (int i = 0; i < n; i++) {
        const struct fake_request *request = fake_queue_request(queue, queue->n_done + (uint64_t)i);
        const struct ibv_sge *parts = fake_queue_parts(queue, queue->n_done + (uint64_t)i);
        for (uint32_t p = 0; p < request->n_parts; p++) {
            uint8_t *host = fake_memory_at((struct fake_pd *)qp->qp.pd, &parts[p], true);
            if (!host)
                return i;
            batch->parts[i][p] = (struct iovec){host, parts[p].length};
        }
        batch->messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = batch->parts[i], .msg_iovlen = request->n_parts}};
    }
    return n;
}

/* Takes frames into the next requests, 'n' at most; tells of each whether its IPv4 header is right.  Returns how many,
 * or -1 if a frame came and there is no place to put it. */
static int take(struct fake_qp *qp, struct batch *batch, int n, bool right[FAKE_BATCH])
{
    struct fake_queue *queue = &qp->recv;
    struct fake_pd *pd = (struct fake_pd *)qp->qp.pd;
    int n_taken;

    pthread_rwlock_rdlock(&pd->pinned);
    n = prepare(qp, batch, n);
    if (n)
        n_taken = recvmmsg(queue->socket, batch->messages, (unsigned)n, MSG_TRUNC | MSG_DONTWAIT, NULL);
    else
        n_taken = -discard(queue, 1);
    for (int i = 0; i < n_taken; i++) {
        const struct msghdr *header = &batch->messages[i].msg_hdr;
        right[i] = header->msg_iovlen && is_ip_right(header->msg_iov, batch->messages[i].msg_len);
    }
    pthread_rwlock_unlock(&pd->pinned);
    return n && n_taken < 0 ? 0 : n_taken;
}

/* Moves what has come; with the turn. */
static void receive(struct fake_qp *qp, struct batch *batch)
{
    struct fake_queue *queue = &qp->recv;
    struct fake_completion completions[FAKE_BATCH];
    bool right[FAKE_BATCH], tells = qp->context->limits.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM;

    pthread_mutex_lock(&qp->lock);
    bool receives = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS;
    uint64_t n_there = queue->n_posted - queue->n_done;
    pthread_mutex_unlock(&qp->lock);
    if (!receives)
        return;
    if (!n_there) {
        fake_count(qp->context->device, "out_of_buffer", (uint64_t)discard(queue, FAKE_BATCH));
        return;
    }
    int n = take(qp, batch, n_there < FAKE_BATCH ? (int)n_there : FAKE_BATCH, right);
    if (n < 0) {
        completions[0] = fake_completion(qp, queue, queue->n_done, IBV_WC_LOC_PROT_ERR);
        fake_queue_complete(qp, queue, completions, 1, 1);
        return;
    }
    for (int i = 0; i < n; i++) {
        bool fits = !(batch->messages[i].msg_hdr.msg_flags & MSG_TRUNC);
        completions[i] =
            fake_completion(qp, queue, queue->n_done + (uint64_t)i, fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR);
        completions[i].wc.byte_len = batch->messages[i].msg_len;
        completions[i].wc.wc_flags = fits && right[i] && tells ? IBV_WC_IP_CSUM_OK : 0;
        if (completions[i].wc.status)
            n = i + 1; /* what follows a failed request does not happen */
    }
    if (n)
        fake_queue_complete(qp, queue, completions, (size_t)n, (size_t)n);
}

/* Looks what has become of the interface, which the socket tells once, when it goes down.  Returns whether to look
 * again. */
static bool look_at_link(struct fake_qp *qp, bool was_up)
{
    enum fake_link link = fake_device_link(qp->context->device);
    socklen_t n = sizeof(int);
    int error;

    getsockopt(qp->recv.socket, SOL_SOCKET, SO_ERROR, &error, &n); /* or poll() goes on about it */
    if (link == FAKE_GONE)
        fake_context_remove(qp->context);
    else if (was_up != (link == FAKE_UP))
        fake_context_event(qp->context, was_up ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL);
    return link == FAKE_DOWN;
}

static void count_missed(struct fake_qp *qp)
{
    struct tpacket_stats stats = {0};
    socklen_t n = sizeof(stats);

    if (qp->recv.socket >= 0 && getsockopt(qp->recv.socket, SOL_PACKET, PACKET_STATISTICS, &stats, &n) == 0)
        qp->n_missed += stats.tp_drops;
}

/* True if frames are to be taken now; a patient device leaves them alone until there is a request for them. */
static bool is_receiving(struct fake_qp *qp)
{
    struct fake_queue *queue = &qp->recv;

    pthread_mutex_lock(&qp->lock);
    enum ibv_qp_state state = qp->state;
    bool has_request = queue->n_posted > queue->n_done;
    pthread_mutex_unlock(&qp->lock);
    if (state == IBV_QPS_ERR)
        fake_queue_flush(qp, queue);
    return queue->socket >= 0 && (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && (has_request || !qp->is_patient);
}

static bool is_stopping(struct fake_qp *qp)
{
    pthread_mutex_lock(&qp->lock);
    bool is = qp->is_stopping;
    pthread_mutex_unlock(&qp->lock);
    return is;
}

void *fake_receive_run(void *arg)
{
    struct fake_qp *qp = arg;
    struct fake_queue *queue = &qp->recv;
    static _Thread_local struct batch batch;
    bool is_down = false;

    while (!is_stopping(qp)) {
        pthread_mutex_lock(&queue->turn);
        struct pollfd fds[2] = {{.fd = queue->wake, .events = POLLIN},
                                {.fd = is_receiving(qp) ? queue->socket : -1, .events = POLLIN}};
        pthread_mutex_unlock(&queue->turn);
        int n = poll(fds, 2, is_down ? LOOK_AGAIN_MS : -1);
        if (n < 0)
            continue;
        eventfd_t woken;
        if (fds[0].revents)
            eventfd_read(queue->wake, &woken);
        pthread_mutex_lock(&queue->turn);
        if ((fds[1].revents & POLLIN) && queue->socket >= 0)
            receive(qp, &batch);
        if (queue->socket >= 0 && (is_down || (fds[1].revents & POLLERR)))
            is_down = look_at_link(qp, !is_down);
        pthread_mutex_unlock(&queue->turn);
    }
    count_missed(qp);
    return NULL;
}
