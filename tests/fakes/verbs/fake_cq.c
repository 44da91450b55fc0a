/* fake_cq.c - completion queues and channels.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ACKNOWLEDGE_S 5 /* the real library waits for ever */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    int error = fake_enter(context, "ibv_create_comp_channel");
    struct fake_channel *channel = error ? NULL : calloc(1, sizeof(*channel));

    if (!error)
        error = channel ? fake_events_init(&channel->events) : ENOMEM;
    if (error) {
        free(channel);
        errno = error;
        return NULL;
    }
    channel->channel.context = context;
    channel->channel.fd = channel->events.fd;
    fake_context_of(context)->n_channels++;
    fake_trace("ibv_create_comp_channel");
    return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    struct fake_channel *channel = (struct fake_channel *)ibv;

    fake_trace("ibv_destroy_comp_channel");
    if (channel->n_cqs) {
        fake_complain("a channel is destroyed with %d completion queues", channel->n_cqs);
        return EBUSY;
    }
    fake_context_of(ibv->context)->n_channels--;
    fake_events_fini(&channel->events);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n, void *cq_context, struct ibv_comp_channel *channel,
                             int vector)
{
    int error = fake_enter(context, "ibv_create_cq");
    struct fake_cq *cq = error ? NULL : calloc(1, sizeof(*cq));

    if (!error && (n < 1 || n > fake_context_of(context)->limits.orig_attr.max_cqe || vector < 0 ||
                   vector >= context->num_comp_vectors))
        error = EINVAL;
    if (!error && (!cq || !(cq->ring = calloc((size_t)n, sizeof(cq->ring[0])))))
        error = ENOMEM;
    fake_trace("ibv_create_cq %d entries, %s, vector %d: %s", n, channel ? "channel" : "no channel", vector,
               error ? strerror(error) : "ok");
    if (error) {
        free(cq);
        errno = error;
        return NULL;
    }
    cq->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = n};
    pthread_mutex_init(&cq->cq.mutex, NULL);
    pthread_cond_init(&cq->cq.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    fake_context_of(context)->n_cqs++;
    if (channel)
        ((struct fake_channel *)channel)->n_cqs++;
    return &cq->cq;
}

/* All events that the program has taken must have been acknowledged. */
static void wait_acknowledged(struct fake_cq *cq)
{
    struct timespec until;
    int error = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACKNOWLEDGE_S;
    pthread_mutex_lock(&cq->cq.mutex);
    while (cq->cq.comp_events_completed != cq->n_events && !error)
        error = pthread_cond_timedwait(&cq->cq.cond, &cq->cq.mutex, &until);
    if (error)
        fake_complain("a completion queue is destroyed with %u events taken and %u acknowledged", cq->n_events,
                      cq->cq.comp_events_completed);
    pthread_mutex_unlock(&cq->cq.mutex);
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;

    fake_trace("ibv_destroy_cq %d entries", ibv->cqe);
    if (cq->n_qps) {
        fake_complain("a completion queue is destroyed with %d queue pairs", cq->n_qps);
        return EBUSY;
    }
    fake_events_forget(&fake_context_of(ibv->context)->events, cq);
    if (ibv->channel) {
        fake_events_forget(&((struct fake_channel *)ibv->channel)->events, cq);
        ((struct fake_channel *)ibv->channel)->n_cqs--;
    }
    wait_acknowledged(cq);
    fake_context_of(ibv->context)->n_cqs--;
    pthread_mutex_destroy(&cq->lock);
    pthread_cond_destroy(&cq->cq.cond);
    pthread_mutex_destroy(&cq->cq.mutex);
    free(cq->ring);
    free(cq);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct ibv_async_event event;
    int error = fake_fails("ibv_get_cq_event");

    if (!error)
        error = fake_events_take(&((struct fake_channel *)channel)->events, &event);
    if (error) {
        errno = error;
        return -1;
    }
    *cq = event.element.cq;
    *cq_context = event.element.cq->cq_context;
    pthread_mutex_lock(&event.element.cq->mutex);
    ((struct fake_cq *)event.element.cq)->n_events++;
    pthread_mutex_unlock(&event.element.cq->mutex);
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

int fake_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;
    int error = fake_enter(ibv->context, "ibv_req_notify_cq");

    if (error)
        return error;
    if (!ibv->channel)
        return EINVAL;
    pthread_mutex_lock(&cq->lock);
    cq->is_solicited = solicited_only && (cq->is_solicited || !cq->is_armed);
    cq->is_armed = true;
    pthread_mutex_unlock(&cq->lock);
    return 0;
}

int fake_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;
    int error = fake_fails("ibv_poll_cq"), n_polled = 0;

    if (error)
        return -error;
    pthread_mutex_lock(&cq->lock);
    for (; n_polled < n && cq->n_popped < cq->n_pushed; n_polled++) {
        const struct fake_completion *completion = &cq->ring[cq->n_popped++ % (uint64_t)ibv->cqe];
        wc[n_polled] = completion->wc;
        atomic_store(&completion->queue->n_retired, completion->number + 1);
    }
    pthread_mutex_unlock(&cq->lock);
    return n_polled;
}

/* What a card does that has no room for a completion: the queue and all that use it are of no more use. */
static void overrun(struct fake_cq *cq)
{
    struct fake_context *context = fake_context_of(cq->cq.context);

    fake_context_event(context, IBV_EVENT_CQ_ERR, cq);
    pthread_mutex_lock(&context->lock);
    for (struct fake_qp *qp = context->qps; qp; qp = qp->next)
        if (qp->qp.send_cq == &cq->cq || qp->qp.recv_cq == &cq->cq)
            fake_qp_fail(qp, true);
    pthread_mutex_unlock(&context->lock);
}

void fake_cq_push(struct fake_cq *cq, const struct fake_completion *completions, size_t n)
{
    bool notifies = false, is_over = false;

    pthread_mutex_lock(&cq->lock);
    for (size_t i = 0; i < n && !cq->is_overrun; i++) {
        if (cq->n_pushed - cq->n_popped == (uint64_t)cq->cq.cqe) {
            cq->is_overrun = is_over = true;
            break;
        }
        cq->ring[cq->n_pushed++ % (uint64_t)cq->cq.cqe] = completions[i];
        notifies |= cq->is_armed && (!cq->is_solicited || completions[i].wc.status);
    }
    if (notifies)
        cq->is_armed = cq->is_solicited = false;
    if (notifies)
        fake_events_put(&((struct fake_channel *)cq->cq.channel)->events,
                        &(struct ibv_async_event){.element.cq = &cq->cq});
    pthread_mutex_unlock(&cq->lock);
    if (is_over)
        overrun(cq);
}

void fake_cq_forget(struct fake_cq *cq, const struct fake_queue *queue)
{
    uint64_t n_kept = 0, n = (uint64_t)cq->cq.cqe;

    pthread_mutex_lock(&cq->lock);
    for (uint64_t i = cq->n_popped; i < cq->n_pushed; i++)
        if (cq->ring[i % n].queue != queue)
            cq->ring[(cq->n_popped + n_kept++) % n] = cq->ring[i % n];
    cq->n_pushed = cq->n_popped + n_kept;
    pthread_mutex_unlock(&cq->lock);
}
