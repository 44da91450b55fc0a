/* fake_queue.c - queues of work requests: posting and completion.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ETHERNET_BYTES 14
#define POISON         0xDB

int fake_queue_init(struct fake_queue *queue, uint32_t n_slots, uint32_t max_parts, uint32_t max_inline)
{
    *queue = (struct fake_queue){.n_slots = n_slots, .max_parts = max_parts, .max_inline = max_inline, .socket = -1};
    queue->requests = calloc(n_slots + 1, sizeof(queue->requests[0]));
    queue->parts = calloc((size_t)n_slots * max_parts + 1, sizeof(queue->parts[0]));
    queue->inlined = calloc((size_t)n_slots * max_inline + 1, 1);
    queue->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&queue->turn, NULL);
    return queue->requests && queue->parts && queue->inlined && queue->wake >= 0 ? 0 : ENOMEM;
}

void fake_queue_stop(struct fake_queue *queue)
{
    if (!queue->is_running)
        return;
    eventfd_write(queue->wake, 1);
    pthread_join(queue->thread, NULL);
    queue->is_running = false;
}

void fake_queue_fini(struct fake_queue *queue)
{
    fake_queue_stop(queue);
    fake_queue_close(queue);
    if (queue->wake >= 0)
        close(queue->wake);
    pthread_mutex_destroy(&queue->turn);
    free(queue->requests);
    free(queue->parts);
    free(queue->inlined);
}

void fake_queue_close(struct fake_queue *queue)
{
    if (queue->socket >= 0)
        close(queue->socket);
    queue->socket = -1;
}

struct fake_request *fake_queue_request(struct fake_queue *queue, uint64_t number)
{
    return &queue->requests[number % queue->n_slots];
}

struct ibv_sge *fake_queue_parts(struct fake_queue *queue, uint64_t number)
{
    return &queue->parts[number % queue->n_slots * queue->max_parts];
}

struct fake_completion fake_completion(struct fake_qp *qp, struct fake_queue *queue, uint64_t number,
                                       enum ibv_wc_status status)
{
    enum ibv_wc_status asked = fake_completion_status();
    struct ibv_wc wc = {
        .wr_id = fake_queue_request(queue, number)->wr_id,
        .status = status == IBV_WC_SUCCESS ? asked : status,
        .opcode = queue == &qp->recv ? IBV_WC_RECV : IBV_WC_SEND,
        .qp_num = qp->qp.qp_num,
    };

    if (fake_is_removal_due())
        fake_context_remove(qp->context);
    return (struct fake_completion){.wc = wc, .queue = queue, .number = number};
}

void fake_queue_complete(struct fake_qp *qp, struct fake_queue *queue, const struct fake_completion *completions,
                         size_t n_completions, size_t n)
{
    struct ibv_cq *cq = queue == &qp->recv ? qp->qp.recv_cq : qp->qp.send_cq;
    bool is_error = false;

    for (size_t i = 0; i < n_completions; i++)
        is_error |= completions[i].wc.status && completions[i].wc.status != IBV_WC_WR_FLUSH_ERR;
    if (is_error)
        fake_qp_fail(qp, false);
    atomic_fetch_add(&queue->n_done, n);
    fake_cq_push((struct fake_cq *)cq, completions, n_completions);
}

void fake_queue_flush(struct fake_qp *qp, struct fake_queue *queue)
{
    uint64_t first = queue->n_done, end;

    pthread_mutex_lock(&qp->lock);
    end = queue->n_posted;
    pthread_mutex_unlock(&qp->lock);
    for (; first < end; first++) {
        struct fake_completion completion = fake_completion(qp, queue, first, IBV_WC_WR_FLUSH_ERR);
        fake_queue_complete(qp, queue, &completion, 1, 1);
    }
}

/* ---- Posting ----------------------------------------------------------------------------------------------------- */

/* A slot for a request of 'n_parts', with the lock.  Returns 0 or errno. */
static int slot_for(struct fake_queue *queue, int n_parts)
{
    if (n_parts < 0 || (uint32_t)n_parts > queue->max_parts)
        return EINVAL;
    return queue->n_posted - atomic_load(&queue->n_retired) >= queue->n_slots ? ENOMEM : 0;
}

static void put(struct fake_queue *queue, uint64_t wr_id, const struct ibv_sge *parts, int n_parts)
{
    *fake_queue_request(queue, queue->n_posted) = (struct fake_request){.wr_id = wr_id, .n_parts = (uint32_t)n_parts};
    if (n_parts)
        memcpy(fake_queue_parts(queue, queue->n_posted), parts, (size_t)n_parts * sizeof(*parts));
}

/* Overwrites what a program still reads of memory that it has posted. */
static void poison(struct fake_qp *qp, const struct ibv_recv_wr *wr)
{
    struct fake_pd *pd = (struct fake_pd *)qp->qp.pd;

    pthread_rwlock_rdlock(&pd->pinned);
    for (int i = 0; i < wr->num_sge; i++) {
        uint8_t *host = fake_memory_at(pd, &wr->sg_list[i], true);
        if (host)
            memset(host, POISON, wr->sg_list[i].length);
    }
    pthread_rwlock_unlock(&pd->pinned);
}

int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_fails("ibv_post_recv");

    pthread_mutex_lock(&qp->lock);
    if (!error && qp->state == IBV_QPS_RESET)
        error = EINVAL;
    for (; wr && !error && !(error = slot_for(&qp->recv, wr->num_sge)); wr = wr->next) {
        if (qp->poisons)
            poison(qp, wr);
        put(&qp->recv, wr->wr_id, wr->sg_list, wr->num_sge);
        qp->recv.n_posted++;
    }
    bool wakes = qp->state == IBV_QPS_ERR || qp->is_patient;
    pthread_mutex_unlock(&qp->lock);
    if (wakes)
        eventfd_write(qp->recv.wake, 1);
    if (error)
        *bad = wr;
    return error;
}

/* Inline data are taken at once, from wherever they are. */
static int put_send(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
    struct fake_queue *queue = &qp->send;
    size_t n_bytes = 0;
    int error = slot_for(queue, wr->num_sge);

    if (error)
        return error;
    for (int i = 0; i < wr->num_sge; i++)
        n_bytes += wr->sg_list[i].length;
    if (wr->opcode != IBV_WR_SEND || n_bytes < ETHERNET_BYTES)
        return EINVAL;
    if ((wr->send_flags & IBV_SEND_IP_CSUM) && !(qp->context->limits.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM))
        return EINVAL;
    if ((wr->send_flags & IBV_SEND_INLINE) && n_bytes > queue->max_inline)
        return ENOMEM;
    put(queue, wr->wr_id, wr->sg_list, wr->num_sge);
    struct fake_request *request = fake_queue_request(queue, queue->n_posted);
    request->flags = wr->send_flags;
    for (int i = 0; i < wr->num_sge && (wr->send_flags & IBV_SEND_INLINE); i++) {
        memcpy(queue->inlined + queue->n_posted % queue->n_slots * queue->max_inline + request->n_inline,
               (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        request->n_inline += wr->sg_list[i].length;
    }
    queue->n_posted++;
    return 0;
}

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_fails("ibv_post_send");

    pthread_mutex_lock(&qp->lock);
    if (!error && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
        error = EINVAL;
    while (wr && !error) {
        error = put_send(qp, wr);
        if (!error)
            wr = wr->next;
    }
    pthread_mutex_unlock(&qp->lock);
    eventfd_write(qp->send.wake, 1);
    if (error)
        *bad = wr;
    return error;
}
