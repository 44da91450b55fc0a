/* fake_flow.c - flow steering: each flow becomes one part of the packet filter of its queue pair's socket.  See
 * fake_verbs.h. */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FRAME_IP  14
#define NOT_THIS  0xFF /* to be replaced by the distance to the next flow */
#define SPEC_CODE 24   /* instructions of one specification at most */

static void add(struct fake_flow *flow, uint16_t code, uint32_t k, uint8_t jump_false)
{
    flow->code[flow->n_code++] = (struct sock_filter)BPF_JUMP(code, k, 0, jump_false);
}

/* Some bits of the word (BPF_W, BPF_H, BPF_B) at an offset must be these.  'mode': BPF_ABS, or BPF_IND behind the IP
 * header's length. */
static void match(struct fake_flow *flow, uint16_t size, uint16_t mode, uint32_t at, uint32_t value, uint32_t mask)
{
    if (!mask)
        return;
    add(flow, BPF_LD | size | mode, at, 0);
    add(flow, BPF_ALU | BPF_AND | BPF_K, mask, 0);
    add(flow, BPF_JMP | BPF_JEQ | BPF_K, value & mask, NOT_THIS);
}

static void match_mac(struct fake_flow *flow, uint32_t at, const uint8_t value[6], const uint8_t mask[6])
{
    uint32_t words[2];
    uint16_t halves[2];

    memcpy(&words[0], value, 4);
    memcpy(&words[1], mask, 4);
    memcpy(&halves[0], value + 4, 2);
    memcpy(&halves[1], mask + 4, 2);
    match(flow, BPF_W, BPF_ABS, at, ntohl(words[0]), ntohl(words[1]));
    match(flow, BPF_H, BPF_ABS, at + 4, ntohs(halves[0]), ntohs(halves[1]));
}

static void match_eth(struct fake_flow *flow, const struct ibv_flow_spec_eth *spec)
{
    match_mac(flow, 0, spec->val.dst_mac, spec->mask.dst_mac);
    match_mac(flow, 6, spec->val.src_mac, spec->mask.src_mac);
    match(flow, BPF_H, BPF_ABS, 12, ntohs(spec->val.ether_type), ntohs(spec->mask.ether_type));
}

static void match_ipv4(struct fake_flow *flow, const struct ibv_flow_spec_ipv4 *spec)
{
    match(flow, BPF_H, BPF_ABS, 12, ETH_P_IP, 0xFFFF);
    match(flow, BPF_W, BPF_ABS, FRAME_IP + 12, ntohl(spec->val.src_ip), ntohl(spec->mask.src_ip));
    match(flow, BPF_W, BPF_ABS, FRAME_IP + 16, ntohl(spec->val.dst_ip), ntohl(spec->mask.dst_ip));
}

/* Only in a datagram's first fragment are there ports. */
static void match_udp(struct fake_flow *flow, const struct ibv_flow_spec_tcp_udp *spec)
{
    match(flow, BPF_H, BPF_ABS, 12, ETH_P_IP, 0xFFFF);
    match(flow, BPF_B, BPF_ABS, FRAME_IP + 9, IPPROTO_UDP, 0xFF);
    match(flow, BPF_H, BPF_ABS, FRAME_IP + 6, 0, 0x1FFF);
    flow->code[flow->n_code++] = (struct sock_filter)BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, FRAME_IP);
    match(flow, BPF_H, BPF_IND, FRAME_IP, ntohs(spec->val.src_port), ntohs(spec->mask.src_port));
    match(flow, BPF_H, BPF_IND, FRAME_IP + 2, ntohs(spec->val.dst_port), ntohs(spec->mask.dst_port));
}

/* The filter of one flow.  Returns 0 or errno. */
static int read_specs(struct fake_flow *flow, const struct ibv_flow_attr *attr)
{
    const uint8_t *at = (const uint8_t *)(attr + 1), *end = (const uint8_t *)attr + attr->size;

    for (int i = 0; i < attr->num_of_specs; i++) {
        struct ibv_flow_spec spec = {0}; /* specifications may lie anywhere */
        if (end - at < (ptrdiff_t)sizeof(spec.hdr))
            return EINVAL;
        memcpy(&spec.hdr, at, sizeof(spec.hdr));
        if (spec.hdr.size > end - at || spec.hdr.size > sizeof(spec))
            return EINVAL;
        memcpy(&spec, at, spec.hdr.size);
        at += spec.hdr.size;
        if (flow->n_code + SPEC_CODE > sizeof(flow->code) / sizeof(flow->code[0]))
            return EINVAL;
        if (spec.hdr.type == IBV_FLOW_SPEC_ETH && spec.hdr.size == sizeof(spec.eth))
            match_eth(flow, &spec.eth);
        else if (spec.hdr.type == IBV_FLOW_SPEC_IPV4 && spec.hdr.size == sizeof(spec.ipv4))
            match_ipv4(flow, &spec.ipv4);
        else if (spec.hdr.type == IBV_FLOW_SPEC_UDP && spec.hdr.size == sizeof(spec.tcp_udp))
            match_udp(flow, &spec.tcp_udp);
        else
            return EINVAL;
    }
    add(flow, BPF_RET | BPF_K, 0xFFFFFFFF, 0);
    for (size_t i = 0; i < flow->n_code; i++)
        if (flow->code[i].jf == NOT_THIS)
            flow->code[i].jf = (uint8_t)(flow->n_code - i - 1);
    return at == end ? 0 : EINVAL;
}

int fake_flows_attach(struct fake_qp *qp, int fd)
{
    struct sock_filter code[BPF_MAXINSNS];
    struct sock_fprog program = {.filter = code};

    for (const struct fake_flow *flow = qp->flows; flow; flow = flow->next) {
        if (program.len + flow->n_code >= BPF_MAXINSNS)
            return ENOMEM;
        memcpy(code + program.len, flow->code, flow->n_code * sizeof(*code));
        program.len = (uint16_t)(program.len + flow->n_code);
    }
    code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? errno : 0;
}

static int attach(struct fake_qp *qp)
{
    return qp->recv.socket < 0 ? 0 : fake_flows_attach(qp, qp->recv.socket);
}

struct ibv_flow *fake_create_flow(struct ibv_qp *ibv, struct ibv_flow_attr *attr)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int error = fake_enter(ibv->context, "ibv_create_flow");
    struct fake_flow *flow = NULL;

    if (!error && !(qp->context->limits.orig_attr.device_cap_flags & (unsigned)IBV_DEVICE_MANAGED_FLOW_STEERING))
        error = EOPNOTSUPP;
    if (!error && (attr->comp_mask || attr->type != IBV_FLOW_ATTR_NORMAL || attr->flags || attr->port != FAKE_PORT ||
                   attr->size < sizeof(*attr)))
        error = EINVAL;
    if (!error && !(flow = calloc(1, sizeof(*flow))))
        error = ENOMEM;
    if (!error)
        error = read_specs(flow, attr);
    if (!error) {
        flow->flow.context = ibv->context;
        flow->qp = qp;
        pthread_mutex_lock(&qp->recv.turn);
        pthread_mutex_lock(&qp->lock);
        flow->next = qp->flows;
        qp->flows = flow;
        error = attach(qp);
        if (error)
            qp->flows = flow->next;
        pthread_mutex_unlock(&qp->lock);
        pthread_mutex_unlock(&qp->recv.turn);
    }
    fake_trace("ibv_create_flow %d specifications: %s", attr->num_of_specs, error ? strerror(error) : "ok");
    if (!error)
        return &flow->flow;
    free(flow);
    errno = error;
    return NULL;
}

int fake_destroy_flow(struct ibv_flow *ibv)
{
    struct fake_flow *flow = (struct fake_flow *)ibv, **at = &flow->qp->flows;
    struct fake_qp *qp = flow->qp;

    fake_trace("ibv_destroy_flow");
    pthread_mutex_lock(&qp->recv.turn);
    pthread_mutex_lock(&qp->lock);
    while (*at != flow)
        at = &(*at)->next;
    *at = flow->next;
    int error = attach(qp);
    pthread_mutex_unlock(&qp->lock);
    pthread_mutex_unlock(&qp->recv.turn);
    free(flow);
    return error;
}
