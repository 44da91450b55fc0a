/* fake_send.c - the thread of a send queue: frames from the posted memory to the interface, at the requested rate.
 *
 * The thread reads memory when the frame leaves, not when the frame is posted.  So the fake detects a program that
 * fills the memory again too early.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <linux/if_packet.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MIN_FRAME    60 /* bytes; shorter ones are filled up */
#define HEADER_BYTES 74 /* Ethernet and IPv4 at most */
#define BURST_BYTES  65536
#define SLICE_NS     100000

struct batch {
    struct mmsghdr messages[FAKE_BATCH];
    struct iovec parts[FAKE_BATCH][FAKE_MAX_PARTS + 2];
    uint8_t headers[FAKE_BATCH][HEADER_BYTES];
    size_t n_bytes[FAKE_BATCH];
};

int fake_send_open(struct fake_qp *qp)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = qp->context->device->index};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), n_bytes = 8 << 20;

    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &n_bytes, sizeof(n_bytes));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at))) {
        int error = errno;
        close(fd);
        return error;
    }
    qp->send.socket = fd;
    return 0;
}

static void put_checksum(uint8_t *ip)
{
    uint32_t sum = 0;

    ip[10] = ip[11] = 0;
    for (size_t i = 0; i < (ip[0] & 15U) * 4; i += 2)
        sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = ~((sum & 0xFFFF) + (sum >> 16));
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

/* Computes a frame's IPv4 checksum in a copy of its headers, which then stands before the rest of its parts. */
static size_t check_sum(struct iovec *parts, size_t n_parts, uint8_t header[HEADER_BYTES])
{
    size_t n = 0, first = 0;

    while (first < n_parts && n < HEADER_BYTES) {
        struct iovec *part = &parts[first];
        size_t n_taken = part->iov_len < HEADER_BYTES - n ? part->iov_len : HEADER_BYTES - n;
        memcpy(header + n, part->iov_base, n_taken);
        n += n_taken;
        part->iov_base = (uint8_t *)part->iov_base + n_taken;
        part->iov_len -= n_taken;
        if (!part->iov_len)
            first++;
    }
    if (n >= 34 && header[12] == 8 && header[13] == 0 && 14 + (header[14] & 15U) * 4 <= n)
        put_checksum(header + 14);
    memmove(parts + 1, parts + first, (n_parts - first) * sizeof(*parts));
    parts[0] = (struct iovec){header, n};
    return n_parts - first + 1;
}

/* Prepares one frame.  Returns false if a part may not be read. */
static bool prepare(struct fake_qp *qp, uint64_t number, struct batch *batch, int i)
{
    static uint8_t zeros[MIN_FRAME];
    struct fake_queue *queue = &qp->send;
    const struct fake_request *request = fake_queue_request(queue, number);
    const struct ibv_sge *sges = fake_queue_parts(queue, number);
    struct iovec *parts = batch->parts[i];
    size_t n_parts = 0, n_bytes = 0;

    if (request->flags & IBV_SEND_INLINE)
        parts[n_parts++] =
            (struct iovec){queue->inlined + number % queue->n_slots * queue->max_inline, request->n_inline};
    for (uint32_t p = 0; p < request->n_parts && !(request->flags & IBV_SEND_INLINE); p++) {
        uint8_t *host = fake_memory_at((struct fake_pd *)qp->qp.pd, &sges[p], false);
        if (!host)
            return false;
        parts[n_parts++] = (struct iovec){host, sges[p].length};
    }
    for (size_t p = 0; p < n_parts; p++)
        n_bytes += parts[p].iov_len;
    if (request->flags & IBV_SEND_IP_CSUM)
        n_parts = check_sum(parts, n_parts, batch->headers[i]);
    if (n_bytes < MIN_FRAME)
        parts[n_parts++] = (struct iovec){zeros, MIN_FRAME - n_bytes};
    batch->messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = parts, .msg_iovlen = n_parts}};
    batch->n_bytes[i] = n_bytes;
    return true;
}

/* What came of a frame that the kernel did not take. */
static enum ibv_wc_status status_of(struct fake_qp *qp, int error)
{
    if (error == EMSGSIZE)
        return IBV_WC_LOC_LEN_ERR;
    if (fake_device_link(qp->context->device) != FAKE_GONE)
        return IBV_WC_SUCCESS; /* a link that is down loses what is sent */
    fake_context_remove(qp->context);
    return IBV_WC_GENERAL_ERR;
}

/* Sends the next requests, 'n' at most, as long as all goes well.  Returns how many are done, of which the last with
 * the status. */
static int transmit(struct fake_qp *qp, struct batch *batch, int n, enum ibv_wc_status *last)
{
    struct fake_queue *queue = &qp->send;
    struct fake_pd *pd = (struct fake_pd *)qp->qp.pd;
    int n_ready = 0, n_sent = 0, error = 0;

    pthread_rwlock_rdlock(&pd->pinned);
    while (n_ready < n && prepare(qp, queue->n_done + (uint64_t)n_ready, batch, n_ready))
        n_ready++;
    while (n_sent < n_ready && !error) {
        int n_taken = sendmmsg(queue->socket, batch->messages + n_sent, (unsigned)(n_ready - n_sent), 0);
        if (n_taken > 0)
            n_sent += n_taken;
        else if (errno != EINTR && errno != ENOBUFS)
            error = errno;
    }
    pthread_rwlock_unlock(&pd->pinned);
    *last = IBV_WC_SUCCESS;
    if (error)
        *last = status_of(qp, error);
    else if (n_ready < n)
        *last = IBV_WC_LOC_PROT_ERR;
    return n_sent + (error || n_ready < n);
}

/* Sends 'n' requests at most; with the turn.  Returns the bytes that left. */
static size_t send_batch(struct fake_qp *qp, struct batch *batch, int n)
{
    struct fake_queue *queue = &qp->send;
    struct fake_completion completions[FAKE_BATCH];
    enum ibv_wc_status last;
    size_t n_completions = 0, n_bytes = 0;
    int n_sent = transmit(qp, batch, n, &last);

    for (int i = 0; i < n_sent; i++) {
        uint64_t number = queue->n_done + (uint64_t)i;
        bool is_signalled = qp->signals_all || (fake_queue_request(queue, number)->flags & IBV_SEND_SIGNALED);
        struct fake_completion completion = fake_completion(qp, queue, number, i == n_sent - 1 ? last : IBV_WC_SUCCESS);
        if (is_signalled || completion.wc.status)
            completions[n_completions++] = completion;
        if (completion.wc.status)
            n_sent = i + 1; /* what follows is flushed */
        else
            n_bytes += batch->n_bytes[i];
    }
    fake_queue_complete(qp, queue, completions, n_completions, (size_t)n_sent);
    return n_bytes;
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_until(int64_t ns)
{
    struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* How many of the next requests may leave at once, when a rate is set. */
static int fit(struct fake_queue *queue, int n, uint64_t burst)
{
    uint64_t n_bytes = 0;
    int i = 0;

    for (; i < n && n_bytes < burst; i++) {
        const struct fake_request *request = fake_queue_request(queue, queue->n_done + (uint64_t)i);
        const struct ibv_sge *parts = fake_queue_parts(queue, queue->n_done + (uint64_t)i);
        for (uint32_t p = 0; p < request->n_parts; p++)
            n_bytes += parts[p].length;
    }
    return i;
}

/* Sends what may leave now; with the turn.  Returns when to come again: 0 at once, -1 when something was posted. */
static int64_t send_some(struct fake_qp *qp, struct batch *batch, int64_t next_ns)
{
    struct fake_queue *queue = &qp->send;

    pthread_mutex_lock(&qp->lock);
    enum ibv_qp_state state = qp->state;
    uint64_t n_there = queue->n_posted - queue->n_done, kbps = qp->rate_kbps, burst = qp->burst;
    pthread_mutex_unlock(&qp->lock);
    int n = n_there < FAKE_BATCH ? (int)n_there : FAKE_BATCH;
    if (state == IBV_QPS_ERR)
        fake_queue_flush(qp, queue);
    if (state != IBV_QPS_RTS || queue->socket < 0 || !n)
        return -1;
    if (!kbps) {
        if (qp->delay_ns)
            sleep_until(now_ns() + qp->delay_ns);
        send_batch(qp, batch, n);
        return 0;
    }
    int64_t now = now_ns();
    if (now < next_ns)
        return next_ns;
    /* At most so much at once as belongs to a slice of time, or as was asked for. */
    uint64_t slice = kbps * SLICE_NS / 8000000, at_once = burst ? burst : slice < BURST_BYTES ? slice : BURST_BYTES;
    size_t n_bytes = send_batch(qp, batch, fit(queue, n, at_once));
    return (next_ns > now - SLICE_NS ? next_ns : now) + (int64_t)(n_bytes * 8000000 / kbps);
}

void *fake_send_run(void *arg)
{
    struct fake_qp *qp = arg;
    struct fake_queue *queue = &qp->send;
    static _Thread_local struct batch batch;
    int64_t paced_ns = 0; /* when the next frame may leave */

    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        pthread_mutex_lock(&qp->lock);
        bool is_stopping = qp->is_stopping;
        pthread_mutex_unlock(&qp->lock);
        if (is_stopping)
            return NULL;
        pthread_mutex_lock(&queue->turn);
        int64_t next_ns = send_some(qp, &batch, paced_ns);
        pthread_mutex_unlock(&queue->turn);
        if (next_ns > 0) {
            paced_ns = next_ns;
            sleep_until(paced_ns);
        } else if (next_ns < 0) {
            struct pollfd woken = {.fd = queue->wake, .events = POLLIN};
            eventfd_t count;
            poll(&woken, 1, -1);
            eventfd_read(queue->wake, &count);
        }
    }
}
