/* fake_qp.c - queue pairs and their states.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static atomic_uint n_made;

static int check_init(const struct fake_context *context, const struct ibv_qp_init_attr *attr)
{
    const struct ibv_device_attr *limits = &context->limits.orig_attr;
    const struct ibv_qp_cap *cap = &attr->cap;

    if (attr->qp_type != IBV_QPT_RAW_PACKET)
        return EOPNOTSUPP;
    if (!attr->send_cq || !attr->recv_cq || attr->srq || cap->max_send_wr > (uint32_t)limits->max_qp_wr ||
        cap->max_recv_wr > (uint32_t)limits->max_qp_wr || cap->max_send_sge > (uint32_t)limits->max_sge ||
        cap->max_recv_sge > (uint32_t)limits->max_sge || cap->max_send_sge > FAKE_MAX_PARTS ||
        cap->max_recv_sge > FAKE_MAX_PARTS || cap->max_inline_data > (uint32_t)fake_limit("max_inline", 512))
        return EINVAL;
    return 0;
}

static void qp_free(struct fake_qp *qp)
{
    pthread_mutex_lock(&qp->lock);
    qp->is_stopping = true;
    pthread_mutex_unlock(&qp->lock);
    fake_queue_fini(&qp->recv);
    fake_queue_fini(&qp->send);
    pthread_mutex_destroy(&qp->lock);
    pthread_cond_destroy(&qp->qp.cond);
    pthread_mutex_destroy(&qp->qp.mutex);
    free(qp);
}

static struct fake_qp *qp_new(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
    const struct ibv_qp_cap *cap = &attr->cap;
    struct fake_qp *qp = calloc(1, sizeof(*qp));

    if (!qp)
        return NULL;
    qp->qp = (struct ibv_qp){.context = pd->context,
                             .qp_context = attr->qp_context,
                             .pd = pd,
                             .send_cq = attr->send_cq,
                             .recv_cq = attr->recv_cq,
                             .qp_num = 0x100 + n_made++,
                             .state = IBV_QPS_RESET,
                             .qp_type = attr->qp_type};
    qp->context = fake_context_of(pd->context);
    qp->state = IBV_QPS_RESET;
    qp->signals_all = attr->sq_sig_all;
    qp->is_patient = fake_limit("patient", 0);
    qp->poisons = fake_limit("poison", 0);
    qp->delay_ns = 1000 * fake_limit("delay_us", 0);
    pthread_mutex_init(&qp->qp.mutex, NULL);
    pthread_cond_init(&qp->qp.cond, NULL);
    pthread_mutex_init(&qp->lock, NULL);
    int error = fake_queue_init(&qp->recv, cap->max_recv_wr, cap->max_recv_sge, 0) |
                fake_queue_init(&qp->send, cap->max_send_wr, cap->max_send_sge, cap->max_inline_data);
    if (!error && qp->recv.n_slots)
        qp->recv.is_running = pthread_create(&qp->recv.thread, NULL, fake_receive_run, qp) == 0;
    if (!error && qp->send.n_slots)
        qp->send.is_running = pthread_create(&qp->send.thread, NULL, fake_send_run, qp) == 0;
    if (error || qp->recv.is_running != (qp->recv.n_slots > 0) || qp->send.is_running != (qp->send.n_slots > 0)) {
        qp_free(qp);
        return NULL;
    }
    return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct fake_context *context = fake_context_of(pd->context);
    int error = fake_enter(pd->context, "ibv_create_qp");
    struct fake_qp *qp = NULL;

    if (!error)
        error = check_init(context, attr);
    if (!error && !(qp = qp_new(pd, attr)))
        error = ENOMEM;
    fake_trace("ibv_create_qp send %u x %u inline %u recv %u x %u: %s", attr->cap.max_send_wr, attr->cap.max_send_sge,
               attr->cap.max_inline_data, attr->cap.max_recv_wr, attr->cap.max_recv_sge,
               error ? strerror(error) : "ok");
    if (error) {
        errno = error;
        return NULL;
    }
    ((struct fake_pd *)pd)->n_qps++;
    ((struct fake_cq *)attr->send_cq)->n_qps++;
    ((struct fake_cq *)attr->recv_cq)->n_qps++;
    pthread_mutex_lock(&context->lock);
    qp->next = context->qps;
    context->qps = qp;
    pthread_mutex_unlock(&context->lock);
    return &qp->qp;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct fake_qp *qp = (struct fake_qp *)ibv, **at = &qp->context->qps;

    fake_trace("ibv_destroy_qp");
    if (qp->flows) {
        fake_complain("a queue pair is destroyed with flows");
        return EBUSY;
    }
    pthread_mutex_lock(&qp->context->lock);
    while (*at != qp)
        at = &(*at)->next;
    *at = qp->next;
    pthread_mutex_unlock(&qp->context->lock);
    pthread_mutex_lock(&qp->lock);
    qp->state = IBV_QPS_RESET;
    qp->is_stopping = true;
    pthread_mutex_unlock(&qp->lock);
    fake_queue_stop(&qp->recv);
    fake_queue_stop(&qp->send); /* nothing more is pushed */
    if (qp->n_missed)
        fake_complain("%llu frames were lost because this library was too slow", (unsigned long long)qp->n_missed);
    fake_events_forget(&qp->context->events, qp);
    fake_cq_forget((struct fake_cq *)ibv->send_cq, &qp->send);
    fake_cq_forget((struct fake_cq *)ibv->recv_cq, &qp->recv);
    ((struct fake_cq *)ibv->send_cq)->n_qps--;
    ((struct fake_cq *)ibv->recv_cq)->n_qps--;
    ((struct fake_pd *)ibv->pd)->n_qps--;
    qp_free(qp);
    return 0;
}

static void wake(struct fake_qp *qp)
{
    eventfd_write(qp->recv.wake, 1);
    eventfd_write(qp->send.wake, 1);
}

void fake_qp_fail(struct fake_qp *qp, bool says_so)
{
    pthread_mutex_lock(&qp->lock);
    bool is_new = qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET;
    if (is_new)
        qp->state = IBV_QPS_ERR;
    pthread_mutex_unlock(&qp->lock);
    if (!is_new)
        return;
    fake_trace("queue pair %#x goes to the error state", qp->qp.qp_num);
    if (says_so)
        fake_context_event(qp->context, IBV_EVENT_QP_FATAL, qp);
    wake(qp);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

/* What is needed to go on to a state, beside IBV_QP_STATE, and what may be said. */
static int check_step(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    int needed = 0, allowed = IBV_QP_STATE | IBV_QP_CUR_STATE;

    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return mask & ~allowed ? EINVAL : 0;
    if ((from == IBV_QPS_RESET || from == IBV_QPS_INIT) && to == IBV_QPS_INIT) {
        needed = from == IBV_QPS_RESET ? IBV_QP_PORT : 0;
        allowed |= IBV_QP_PORT;
    } else if ((from == IBV_QPS_RTR || from == IBV_QPS_RTS) && to == IBV_QPS_RTS) {
        allowed |= IBV_QP_RATE_LIMIT;
    } else if (from != IBV_QPS_INIT || to != IBV_QPS_RTR) {
        return EINVAL;
    }
    return (mask & needed) == needed && !(mask & ~allowed) ? 0 : EINVAL;
}

static int set_rate(struct fake_qp *qp, uint32_t kbps, uint32_t burst)
{
    const struct ibv_packet_pacing_caps *caps = &qp->context->limits.packet_pacing_caps;

    if (kbps && (kbps < caps->qp_rate_limit_min || kbps > caps->qp_rate_limit_max))
        return caps->qp_rate_limit_max ? EINVAL : EOPNOTSUPP;
    qp->rate_kbps = kbps;
    qp->burst = burst;
    return 0;
}

/* Empties a queue pair that goes back to its beginning. */
static void reset(struct fake_qp *qp)
{
    struct fake_queue *queues[2] = {&qp->recv, &qp->send};

    for (int i = 0; i < 2; i++) {
        struct fake_queue *queue = queues[i];
        pthread_mutex_lock(&queue->turn);
        fake_queue_close(queue);
        fake_cq_forget((struct fake_cq *)(i ? qp->qp.send_cq : qp->qp.recv_cq), queue);
        pthread_mutex_lock(&qp->lock);
        queue->n_done = queue->n_retired = queue->n_posted;
        pthread_mutex_unlock(&qp->lock);
        pthread_mutex_unlock(&queue->turn);
    }
}

/* Opens what a state needs, before it is reached. */
static int prepare(struct fake_qp *qp, enum ibv_qp_state to)
{
    struct fake_queue *queue = to == IBV_QPS_RTR ? &qp->recv : to == IBV_QPS_RTS ? &qp->send : NULL;
    int error = 0;

    if (!queue || !queue->n_slots)
        return 0;
    pthread_mutex_lock(&queue->turn);
    if (queue->socket < 0)
        error = to == IBV_QPS_RTR ? fake_receive_open(qp) : fake_send_open(qp);
    pthread_mutex_unlock(&queue->turn);
    return error;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_enter(ibv->context, "ibv_modify_qp");

    pthread_mutex_lock(&qp->lock);
    enum ibv_qp_state from = qp->state, to = mask & IBV_QP_STATE ? attr->qp_state : from;
    pthread_mutex_unlock(&qp->lock);
    if (!error)
        error = check_step(from, to, mask);
    if (!error && (mask & IBV_QP_PORT) && attr->port_num != FAKE_PORT)
        error = EINVAL;
    if (!error)
        error = prepare(qp, to);
    fake_trace("ibv_modify_qp state %d to %d: %s", from, to, error ? strerror(error) : "ok");
    if (error)
        return error;
    pthread_mutex_lock(&qp->lock);
    if (mask & IBV_QP_RATE_LIMIT)
        error = set_rate(qp, attr->rate_limit, 0);
    if (!error)
        qp->state = ibv->state = to;
    pthread_mutex_unlock(&qp->lock);
    if (!error && to == IBV_QPS_RESET)
        reset(qp);
    wake(qp);
    return error;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_enter(ibv->context, "ibv_query_qp");

    if (error)
        return error;
    struct ibv_qp_cap cap = {.max_send_wr = qp->send.n_slots,
                             .max_recv_wr = qp->recv.n_slots,
                             .max_send_sge = qp->send.max_parts,
                             .max_recv_sge = qp->recv.max_parts,
                             .max_inline_data = qp->send.max_inline};
    pthread_mutex_lock(&qp->lock);
    *attr = (struct ibv_qp_attr){.qp_state = qp->state,
                                 .cur_qp_state = qp->state,
                                 .cap = cap,
                                 .port_num = FAKE_PORT,
                                 .rate_limit = qp->rate_kbps};
    ibv->state = qp->state;
    pthread_mutex_unlock(&qp->lock);
    *init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context,
                                      .send_cq = ibv->send_cq,
                                      .recv_cq = ibv->recv_cq,
                                      .cap = cap,
                                      .qp_type = ibv->qp_type,
                                      .sq_sig_all = qp->signals_all};
    return 0;
}

int fake_modify_qp_rate_limit(struct ibv_qp *ibv, struct ibv_qp_rate_limit_attr *attr)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_enter(ibv->context, "ibv_modify_qp_rate_limit");

    if (!error && (attr->comp_mask || (!attr->rate_limit && (attr->max_burst_sz || attr->typical_pkt_sz))))
        error = EINVAL;
    pthread_mutex_lock(&qp->lock);
    if (!error && qp->state != IBV_QPS_RTS)
        error = EINVAL;
    if (!error)
        error = set_rate(qp, attr->rate_limit, attr->max_burst_sz);
    pthread_mutex_unlock(&qp->lock);
    fake_trace("ibv_modify_qp_rate_limit %u kb/s burst %u typical %u: %s", attr->rate_limit, attr->max_burst_sz,
               attr->typical_pkt_sz, error ? strerror(error) : "ok");
    return error;
}
