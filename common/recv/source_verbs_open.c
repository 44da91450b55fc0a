/* source_verbs_open.c - opens a source step by step, with an error message for each resource of the NIC and the
 * host. */
#include "common/base/why.h"
#include "common/net/frame.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/recv/source_verbs.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- The queue --------------------------------------------------------------------------------------------------- */

/* Arguments for opening a source, and the buffer for the error message. */
struct opening {
    const struct recv_source_config *config;
    struct recv_source_verbs *source;
    char *why;
    size_t why_bytes;
};

/* Writes "recv.transport: ibverbs on eth0: what: reason; cure" to opening->why.  Returns negative errno. */
static int fail(const struct opening *opening, int err, const char *what)
{
    err = verbs_fail(&opening->source->port, err, what, opening->why, opening->why_bytes);
    return why_about(err, "recv.transport", opening->why, opening->why_bytes);
}

static int fail_queue(const struct opening *opening, int err, const char *what)
{
    size_t n_bytes = opening->source->max_posted * VERBS_ENTRY_BYTES;

    err = verbs_fail_to_lock(&opening->source->port, err, n_bytes, what, opening->why, opening->why_bytes);
    return why_about(err, "recv.transport", opening->why, opening->why_bytes);
}

static int open_port(struct opening *opening)
{
    assert(opening->config->interface);
    int err = verbs_port_open(opening->config->interface, &opening->source->port, opening->why, opening->why_bytes);
    return why_about(err, "recv.interface", opening->why, opening->why_bytes);
}

/* Computes the sizes of the ring.  The ring is smaller than requested if the NIC's queue is too short. */
static void count_frames(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;
    const struct verbs_port *port = &source->port;
    size_t n_max = least(port->max_queue, port->max_completions);
    struct packet_ring ring;

    assert(!opening->config->device == !opening->config->n_kept);
    recv_packet_ring_init(&ring, port->mtu, opening->config->buffer_bytes, opening->config->n_kept);
    source->max_frame_bytes = ring.max_frame_bytes;
    source->frame_bytes = ring.frame_bytes;
    source->rest_bytes = ring.rest_bytes;
    source->max_posted = ring.n_posted;
    if (source->max_posted > n_max) {
        log_info("recv.buffer: the NIC's queue has room for only %zu of the %zu frames that fit in %zu MiB", n_max,
                 source->max_posted, opening->config->buffer_bytes >> 20);
        source->max_posted = n_max;
    }
    source->n_frames = source->max_posted + opening->config->n_kept;
    source->ring_bytes = source->n_frames * source->frame_bytes;
}

static int make_memory(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;

    if (source->device) {
        int err = device_alloc_exported(source->device, source->n_frames * source->rest_bytes, &source->rests,
                                        opening->why, opening->why_bytes);
        if (err)
            return why_about(err, "recv.gpudirect", opening->why, opening->why_bytes);
        source->ring = device_alloc_pinned(source->device, source->ring_bytes);
    } else {
        source->ring = memory_map(source->ring_bytes, memory_node_of_interface(source->port.interface));
    }
    source->requests = calloc(source->n_frames, sizeof(*source->requests));
    source->parts = calloc(2 * source->n_frames, sizeof(*source->parts));
    source->kept = calloc(source->n_frames, sizeof(*source->kept));
    source->spare = calloc(source->n_frames, sizeof(*source->spare));
    if (!source->ring || !source->requests || !source->parts || !source->kept || !source->spare)
        return fail(opening, ENOMEM, "there is no memory for the ring of frames (recv.buffer)");
    return 0;
}

static int make_ring(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;
    const char *key = "recv.buffer";

    source->device = opening->config->device;
    count_frames(opening);
    source->busy_ns = opening->config->busy_poll_ns;
    source->may_coalesce =
        source->max_posted * source->max_frame_bytes >= RECV_SOURCE_COALESCE_BUFFER_MIN && source->busy_ns == 0;
    int err = make_memory(opening);
    if (err)
        return err;
    err = verbs_memory_register(&source->port, source->ring, source->ring_bytes, true, &source->memory, opening->why,
                                opening->why_bytes);
    if (!err && source->device) {
        key = "recv.gpudirect";
        err = verbs_memory_register_exported(&source->port, source->rests.device, source->rests.bytes, source->rests.fd,
                                             true, &source->rest_memory, opening->why, opening->why_bytes);
    }
    return why_about(err, key, opening->why, opening->why_bytes);
}

static int set_non_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? errno : 0;
}

static int make_completions(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;
    struct ibv_context *context = source->port.context;
    int vector = opening->config->comp_vector, err;

    err = set_non_blocking(context->async_fd);
    if (err)
        return fail(opening, err, "cannot watch the events of its NIC");
    if (vector >= 0) {
        source->channel = ibv_create_comp_channel(context);
        if (!source->channel)
            return fail(opening, errno, "cannot create a completion channel");
        err = set_non_blocking(source->channel->fd);
        if (err)
            return fail(opening, err, "cannot wait for completions");
        if (context->num_comp_vectors > 0)
            vector %= context->num_comp_vectors;
    }
    source->cq = ibv_create_cq(context, (int)source->max_posted, NULL, source->channel, vector < 0 ? 0 : vector);
    source->send_cq = source->cq ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
    if (!source->send_cq)
        return fail_queue(opening, errno, "cannot create a completion queue");
    return 0;
}

static int make_queue(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;
    struct ibv_qp_init_attr init = {
        .send_cq = source->send_cq,
        .recv_cq = source->cq,
        .cap = {.max_send_wr = 1,
                .max_recv_wr = (uint32_t)source->max_posted,
                .max_send_sge = 1,
                .max_recv_sge = source->device ? 2 : 1},
        .qp_type = IBV_QPT_RAW_PACKET,
    };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)source->port.port_num};
    char what[100];

    source->qp = ibv_create_qp(source->port.pd, &init);
    if (!source->qp) {
        int err = errno;
        snprintf(what, sizeof(what), "cannot create a raw packet queue of %zu frames (recv.buffer)",
                 source->max_posted);
        return fail_queue(opening, err, what);
    }
    int err = ibv_modify_qp(source->qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
    return err ? fail(opening, err, "cannot initialise the queue") : 0;
}

static void make_requests(struct recv_source_verbs *source)
{
    for (size_t i = 0; i < source->n_frames; i++) {
        struct ibv_sge *parts = &source->parts[2 * i];
        parts[0] = (struct ibv_sge){
            .addr = (uintptr_t)verbs_source_frame(source, i),
            .length = source->device ? PACKET_HEAD_BYTES : (uint32_t)source->max_frame_bytes,
            .lkey = source->memory.mr->lkey,
        };
        if (source->device)
            parts[1] = (struct ibv_sge){
                .addr = (uintptr_t)source->rests.device + i * source->rest_bytes,
                .length = (uint32_t)(source->max_frame_bytes - PACKET_HEAD_BYTES),
                .lkey = source->rest_memory.mr->lkey,
            };
        source->requests[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = parts, .num_sge = source->device ? 2 : 1};
        source->spare[i] = (uint32_t)i;
    }
}

/* Posts frames as far as the NIC's queue has room, and starts the queue. */
static int start_queue(struct opening *opening)
{
    struct recv_source_verbs *source = opening->source;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};

    make_requests(source);
    source->n_spare = source->n_frames - source->max_posted;
    int err = recv_source_verbs_post(source, source->spare + source->n_spare, source->max_posted);
    if (err)
        return fail(opening, err, "the queue does not accept the frames");
    err = ibv_modify_qp(source->qp, &attr, IBV_QP_STATE);
    return err ? fail(opening, err, "cannot start the queue") : 0;
}

/* ---- Groups and flow rules --------------------------------------------------------------------------------------- */

/* Writes "antennas[0].pol0: 239.1.0.1:7148: cannot ...: reason; cure" to opening->why.  Returns negative errno. */
static int fail_at(const struct opening *opening, const struct endpoint *endpoint, int err, const char *what,
                   const char *cure)
{
    return endpoint_fail(endpoint, err, what, cure, opening->why, opening->why_bytes);
}

static int open_socket(const struct opening *opening, const struct endpoint *endpoint)
{
    struct recv_source_verbs *source = opening->source;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return fail_at(opening, endpoint, errno, "open a socket", "");
    source->sockets[source->n_sockets++] = fd;
    return 0;
}

/* Joins the endpoint's group with the last socket.  The kernel limits the memberships of a socket, so a new socket is
 * used when the last socket has no membership left.  The sockets are bound to no port, so they receive no packets. */
static int join_group(const struct opening *opening, const struct endpoint *endpoint)
{
    struct recv_source_verbs *source = opening->source;
    const struct interface interface = {{source->port.address}, source->port.interface_index};
    int err = ENOBUFS;

    for (int i = 0; i < 2 && err == ENOBUFS; i++) {
        if (source->n_sockets == 0 || i > 0) {
            int failed = open_socket(opening, endpoint);
            if (failed)
                return failed;
        }
        err = recv_source_join(source->sockets[source->n_sockets - 1], endpoint, &interface);
        if (!err || err == EADDRINUSE) /* EADDRINUSE means that the group was already joined, for another port */
            return 0;
    }
    return fail_at(opening, endpoint, err, "join the multicast group", "");
}

/* Binds the port of a unicast endpoint.  Otherwise the kernel would tell senders that the port is closed. */
static int hold_port(const struct opening *opening, const struct endpoint *endpoint)
{
    struct recv_source_verbs *source = opening->source;
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(endpoint->port),
        .sin_addr = endpoint->address,
    };
    const char *hint = "";

    int err = open_socket(opening, endpoint);
    if (err)
        return err;
    if (bind(source->sockets[source->n_sockets - 1], (const struct sockaddr *)&address, sizeof(address)) == 0)
        return 0;
    if (errno == EADDRINUSE)
        hint = "another program receives there: stop it, or choose another port";
    else if (errno == EADDRNOTAVAIL)
        hint = "it is neither a multicast group nor an address of this host";
    return fail_at(opening, endpoint, errno, "receive there", hint);
}

/* Installs a flow rule that steers packets for the endpoint to the source's queue.  If 'sender' is not NULL, the rule
 * matches only packets of this sender.  Returns 0 or a positive errno. */
static int add_rule(struct recv_source_verbs *source, const struct endpoint *endpoint, const uint32_t *sender)
{
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth ethernet;
        struct ibv_flow_spec_ipv4 ip;
        struct ibv_flow_spec_tcp_udp udp;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL,
                 .size = sizeof(rule),
                 .num_of_specs = 3,
                 .port = (uint8_t)source->port.port_num},
        .ethernet = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.ethernet)},
        .ip = {.type = IBV_FLOW_SPEC_IPV4,
               .size = sizeof(rule.ip),
               .val = {.src_ip = sender ? htonl(*sender) : 0, .dst_ip = endpoint->address.s_addr},
               .mask = {.src_ip = sender ? UINT32_MAX : 0, .dst_ip = UINT32_MAX}},
        .udp = {.type = IBV_FLOW_SPEC_UDP,
                .size = sizeof(rule.udp),
                .val.dst_port = htons(endpoint->port),
                .mask.dst_port = UINT16_MAX},
    };
    /* The driver expects the rule's specifications directly behind its attributes, without padding. */
    static_assert(sizeof(rule) == sizeof(rule.attr) + sizeof(rule.ethernet) + sizeof(rule.ip) + sizeof(rule.udp),
                  "padding");

    if (endpoint_is_multicast(endpoint))
        frame_group_mac(endpoint->address, rule.ethernet.val.dst_mac);
    else
        memcpy(rule.ethernet.val.dst_mac, source->port.mac, sizeof(source->port.mac));
    memset(rule.ethernet.mask.dst_mac, 0xff, sizeof(rule.ethernet.mask.dst_mac));
    errno = 0;
    source->flows[source->n_flows] = ibv_create_flow(source->qp, &rule.attr);
    if (!source->flows[source->n_flows])
        return errno ? errno : EIO;
    source->n_flows++;
    return 0;
}

/* Installs a rule for each allowed sender of the endpoint, if the senders are single addresses.  Returns false if a
 * sender is a network, or if the NIC refuses a rule.  The receiver checks senders in any case. */
static bool steer_senders(struct recv_source_verbs *source, const struct endpoint *endpoint)
{
    size_t n_flows = source->n_flows, n_senders = recv_source_n_senders(endpoint);
    int err = 0;

    for (size_t i = 0; i < n_senders && !err; i++)
        err = add_rule(source, endpoint, &endpoint->from->networks[i].address);
    if (n_senders > 0 && !err)
        return true;
    while (source->n_flows > n_flows)
        ibv_destroy_flow(source->flows[--source->n_flows]);
    return false;
}

/* Installs the rules that steer packets for the endpoint to the source's queue. */
static int steer(const struct opening *opening, const struct endpoint *endpoint)
{
    struct recv_source_verbs *source = opening->source;

    if (steer_senders(source, endpoint))
        return 0;
    int err = add_rule(source, endpoint, NULL);
    if (!err)
        return 0;
    if (err == EBUSY || err == EEXIST)
        return fail_at(opening, endpoint, EBUSY, "have the NIC steer it here",
                       "another program receives it by ibverbs, and this NIC allows only one receiver");
    if (err == EOPNOTSUPP || err == ENOSYS)
        return fail_at(opening, endpoint, ENOTSUP, "have the NIC steer it here",
                       "this NIC or its driver does not support steering; use recv.transport: udp");
    return fail(opening, err, "cannot have the NIC steer packets here");
}

static int open_endpoints(struct opening *opening)
{
    const struct endpoint_list *endpoints = opening->config->endpoints;
    struct recv_source_verbs *source = opening->source;
    int err = recv_endpoints_init(endpoints, &source->endpoints);
    size_t n_flows = 0;

    source->config_endpoints = endpoints;
    for (size_t i = 0; i < endpoints->n; i++) {
        size_t n_senders = recv_source_n_senders(&endpoints->items[i]);
        n_flows += n_senders > 0 ? n_senders : 1;
    }
    source->flows = calloc(n_flows, sizeof(struct ibv_flow *));
    source->sockets = calloc(endpoints->n, sizeof(*source->sockets));
    if (err || !source->flows || !source->sockets)
        return fail(opening, ENOMEM, "there is no memory for the endpoints");
    for (size_t i = 0; i < endpoints->n && !err; i++) {
        const struct endpoint *endpoint = &endpoints->items[i];
        if (!endpoint_is_multicast(endpoint))
            err = hold_port(opening, endpoint);
    }
    return err;
}

/* Joins each group after installing its flow rules.  Without the rules, packets would go to the kernel, which drops
 * them. */
int recv_source_verbs_enable(struct recv_source *base, char *why, size_t why_bytes)
{
    struct recv_source_verbs *source = CONTAINER_OF(base, struct recv_source_verbs, base);
    const struct opening opening = {.source = source, .why = why, .why_bytes = why_bytes};
    int err = 0;

    assert(source->n_flows == 0);
    for (size_t i = 0; i < source->config_endpoints->n && !err; i++) {
        const struct endpoint *endpoint = &source->config_endpoints->items[i];
        err = steer(&opening, endpoint);
        if (!err && endpoint_is_multicast(endpoint))
            err = join_group(&opening, endpoint);
    }
    return err;
}

/* ---- The whole source -------------------------------------------------------------------------------------------- */

int recv_source_verbs_open(const struct recv_source_config *config, struct recv_source **out, char *why,
                           size_t why_bytes)
{
    static int (*const steps[])(struct opening *) = {open_port,  make_ring,   make_completions,
                                                     make_queue, start_queue, open_endpoints};
    struct recv_source_verbs *source = calloc(1, sizeof(*source));
    struct opening opening = {.config = config, .source = source, .why = why, .why_bytes = why_bytes};
    int err = 0;

    if (!source)
        return why_out_of_memory(why, why_bytes);
    source->base.ops = &verbs_source_ops;
    source->drops_fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(steps) && !err; i++)
        err = steps[i](&opening);
    if (err) {
        recv_source_verbs_close(&source->base);
        return err;
    }
    recv_source_verbs_open_drops(source);
    log_info("ibverbs on %s (%s): a ring of %zu frames of %zu bytes, %zu endpoints%s", source->port.interface,
             ibv_get_device_name(source->port.context->device), source->n_frames, source->max_frame_bytes,
             config->endpoints->n, source->channel ? "" : ", without sleep");
    *out = &source->base;
    return 0;
}
