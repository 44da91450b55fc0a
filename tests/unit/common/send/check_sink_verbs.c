/* check_sink_verbs.c - packets through a raw packet queue.  The test plays the NIC: it transmits and fails on demand,
 * and makes a NIC's checks.  The test also checks that no thread changes memory that the NIC has yet to read.
 * tests/system/test_verbs_send.py runs the programs on the fake of tests/fakes/verbs. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/sink.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX   256 /* the card's */
#define WIRE_MAX    8192
#define FRAME_MAX   2048
#define N_MRS       64
#define PACKET_MAX  1200
#define N_LOANS     512
#define PATIENCE_NS (10 * NS_PER_S)

static char why[512];

/* ---- The card ---------------------------------------------------------------------------------------------------- */

struct frame {
    size_t n_bytes;
    uint8_t bytes[FRAME_MAX];
};

struct request {
    uint64_t wr_id;
    bool signalled;
    struct ibv_sge parts[2];
    int n_parts;
    struct frame at_post;
};

static struct card {
    struct verbs_context verbs;
    struct ibv_device device;
    struct ibv_mr mrs[N_MRS];
    int n_objects; /* alive: of all kinds */
    struct ibv_qp qp;
    uint32_t max_send_wr;
    struct ibv_cq cq;
    struct request requests[QUEUE_MAX];
    uint64_t n_posted, n_sent;
    struct ibv_wc completions[QUEUE_MAX];
    uint64_t n_pushed, n_polled;
    uint64_t n_in_flight_max;

    size_t per_poll;    /* packets that it transmits at each look */
    size_t fail_packet; /* the next completion with an error: that packet's; 0: none */
    uint32_t rate_kbps, rate_max_kbps;
    size_t n_rates;
    size_t n_copied;    /* packets of which a part lies where the headers do */
    char fail_name[40]; /* this call fails... */
    size_t fail_at;     /* ...when it is the so-manieth, from 1; 0: each */
    size_t n_calls;     /* of it */
    char states[64];    /* of the queue pair: I, R(eceives), S(ends), 0 */
} card;

static struct frame wire[WIRE_MAX];
static size_t n_wire;

static bool fails(const char *name)
{
    if (strcmp(name, card.fail_name) != 0)
        return false;
    card.n_calls++;
    return card.fail_at == 0 || card.n_calls == card.fail_at;
}

static void fail_call(const char *name, size_t at)
{
    snprintf(card.fail_name, sizeof(card.fail_name), "%s", name);
    card.fail_at = at;
    card.n_calls = 0;
}

#define MAKE(name)                                                                                                     \
    if (fails(name)) {                                                                                                 \
        errno = ENOSPC;                                                                                                \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    card.n_objects++

static void gather(const struct request *request, struct frame *frame)
{
    frame->n_bytes = 0;
    for (int i = 0; i < request->n_parts; i++) {
        const struct ibv_sge *part = &request->parts[i];
        const struct ibv_mr *mr = &card.mrs[part->lkey % N_MRS];
        ck_assert_uint_gt(part->length, 0);
        ck_assert_uint_le(frame->n_bytes + part->length, FRAME_MAX);
        ck_assert_uint_eq(mr->lkey, part->lkey); /* it is registered still */
        ck_assert_uint_ge(part->addr, (uintptr_t)mr->addr);
        ck_assert_uint_le(part->addr + part->length, (uintptr_t)mr->addr + mr->length);
        memcpy(frame->bytes + frame->n_bytes, (const void *)(uintptr_t)part->addr, part->length);
        frame->n_bytes += part->length;
    }
}

static int card_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    ck_assert_int_eq(card.states[strlen(card.states) - 1], 'S');
    for (; wr; wr = wr->next) {
        *bad = wr;
        if (fails("ibv_post_send"))
            return ENOSPC;
        struct request *request = &card.requests[card.n_posted % QUEUE_MAX];
        ck_assert_uint_lt(card.n_posted - card.n_sent, card.max_send_wr);
        ck_assert_int_eq(wr->opcode, IBV_WR_SEND);
        ck_assert_int_le(wr->num_sge, 2);
        ck_assert_int_ne(wr->send_flags & IBV_SEND_IP_CSUM, 0);
        ck_assert_int_eq(!(wr->send_flags & IBV_SEND_SIGNALED), wr->next != NULL); /* one completion of each list */
        *request = (struct request){
            .wr_id = wr->wr_id, .signalled = wr->send_flags & IBV_SEND_SIGNALED, .n_parts = wr->num_sge};
        memcpy(request->parts, wr->sg_list, (size_t)wr->num_sge * sizeof(request->parts[0]));
        card.n_copied += wr->num_sge == 2 && request->parts[1].lkey == request->parts[0].lkey;
        gather(request, &request->at_post);
        card.n_posted++;
        if (card.n_posted - card.n_sent > card.n_in_flight_max)
            card.n_in_flight_max = card.n_posted - card.n_sent;
    }
    return 0;
}

static void push(const struct request *request, enum ibv_wc_status status)
{
    card.completions[card.n_pushed++ % QUEUE_MAX] = (struct ibv_wc){.wr_id = request->wr_id, .status = status};
}

/* Puts up to 'n' packets on the wire. */
static void transmit(size_t n)
{
    for (; n > 0 && card.n_sent < card.n_posted; n--) {
        const struct request *request = &card.requests[card.n_sent++ % QUEUE_MAX];
        ck_assert_uint_lt(n_wire, WIRE_MAX);
        gather(request, &wire[n_wire]);
        ck_assert_uint_eq(wire[n_wire].n_bytes, request->at_post.n_bytes);
        ck_assert_mem_eq(wire[n_wire].bytes, request->at_post.bytes, wire[n_wire].n_bytes);
        if (card.fail_packet && card.n_sent >= card.fail_packet) { /* and all behind it */
            for (push(request, IBV_WC_LOC_LEN_ERR); card.n_sent < card.n_posted; card.n_sent++)
                push(&card.requests[card.n_sent % QUEUE_MAX], IBV_WC_WR_FLUSH_ERR);
            card.fail_packet = 0;
            return;
        }
        n_wire++;
        if (request->signalled)
            push(request, IBV_WC_SUCCESS);
    }
}

static int card_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *completions)
{
    int got = 0;

    if (fails("ibv_poll_cq"))
        return -1;
    transmit(card.per_poll);
    for (; got < n && card.n_polled < card.n_pushed; got++)
        completions[got] = card.completions[card.n_polled++ % QUEUE_MAX];
    return got;
}

static int card_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                                struct ibv_device_attr_ex *attr, size_t n_bytes)
{
    memset(attr, 0, n_bytes);
    attr->orig_attr.max_qp_wr = QUEUE_MAX;
    attr->orig_attr.max_cqe = 1 << 20;
    attr->orig_attr.max_sge = 30;
    attr->orig_attr.device_cap_flags = IBV_DEVICE_RAW_IP_CSUM;
    attr->packet_pacing_caps.qp_rate_limit_max = card.rate_max_kbps;
    attr->packet_pacing_caps.supported_qpts = card.rate_max_kbps ? 1U << IBV_QPT_RAW_PACKET : 0;
    return fails("ibv_query_device_ex") ? ENOSPC : 0;
}

static int card_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t n_bytes)
{
    memset(attr, 0, n_bytes);
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return fails("ibv_query_port") ? ENOSPC : 0;
}

static int card_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
    ck_assert_int_eq(card.states[strlen(card.states) - 1], 'S');
    if (fails("ibv_modify_qp_rate_limit"))
        return EINVAL;
    card.rate_kbps = attr->rate_limit;
    card.n_rates++;
    return 0;
}

/* What programs call of the libraries, in their place. */
struct rdma_event_channel *rdma_create_event_channel(void)
{
    static struct rdma_event_channel channel;
    MAKE("rdma_create_event_channel");
    return &channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    card.n_objects--;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
    static struct rdma_cm_id made;

    if (fails("rdma_create_id")) {
        errno = ENOSPC;
        return -1;
    }
    made = (struct rdma_cm_id){.port_num = 1};
    *id = &made;
    card.n_objects++;
    return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    if (fails("rdma_bind_addr")) {
        errno = ENOSPC;
        return -1;
    }
    id->verbs = &card.verbs.context;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    card.n_objects--;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    static struct ibv_pd pd;
    MAKE("ibv_alloc_pd");
    return &pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    card.n_objects--;
    return 0;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *address, size_t n_bytes, int access)
{
    static uint32_t generation;
    struct ibv_mr *mr = card.mrs;

    MAKE("ibv_reg_mr");
    ck_assert_int_eq(access & IBV_ACCESS_LOCAL_WRITE, 0);
    while (mr->lkey)
        mr++;
    ck_assert(mr < card.mrs + N_MRS);
    *mr = (struct ibv_mr){.addr = address, .length = n_bytes, .lkey = ++generation * N_MRS + (uint32_t)(mr - card.mrs)};
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t n_bytes, uint64_t iova, unsigned access)
{
    return (ibv_reg_mr)(pd, address, n_bytes, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    ck_assert_uint_ne(mr->lkey, 0);
    mr->lkey = 0;
    card.n_objects--;
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n, void *arg, struct ibv_comp_channel *channel,
                             int vector)
{
    MAKE("ibv_create_cq");
    ck_assert_int_ge(n, QUEUE_MAX);
    card.cq.context = context;
    return &card.cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    card.n_objects--;
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    MAKE("ibv_create_qp");
    ck_assert_int_eq(attr->qp_type, IBV_QPT_RAW_PACKET);
    ck_assert_uint_le(attr->cap.max_send_wr, QUEUE_MAX);
    card.max_send_wr = attr->cap.max_send_wr;
    card.qp.context = &card.verbs.context;
    strcpy(card.states, "0");
    return &card.qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    char *last = card.states + strlen(card.states) - 1;
    const char *next = attr->qp_state == IBV_QPS_RESET  ? "0"
                       : attr->qp_state == IBV_QPS_INIT ? "I"
                       : attr->qp_state == IBV_QPS_RTR  ? "R"
                                                        : "S";

    if (fails("ibv_modify_qp"))
        return ENOSPC;
    ck_assert_int_eq(mask, attr->qp_state == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PORT : IBV_QP_STATE);
    if (*next == '0')
        card.n_sent = card.n_posted; /* it reads no more of that */
    else
        ck_assert_int_eq(*last, *next == 'I' ? '0' : *next == 'R' ? 'I' : 'R');
    ck_assert_uint_lt(strlen(card.states) + 1, sizeof(card.states));
    strcat(card.states, next);
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    card.n_objects--;
    return 0;
}

static void plug_in(void)
{
    card = (struct card){.per_poll = SIZE_MAX};
    card.verbs.sz = sizeof(card.verbs);
    card.verbs.query_port = card_query_port;
    card.verbs.query_device_ex = card_query_device_ex;
    card.verbs.modify_qp_rate_limit = card_modify_qp_rate_limit;
    card.verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    card.verbs.context.device = &card.device;
    card.verbs.context.ops.post_send = card_post_send;
    card.verbs.context.ops.poll_cq = card_poll_cq;
    n_wire = 0;
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

#define N_DESTINATIONS 5
#define MEMORY_BYTES   65536

struct sent {
    uint8_t bytes[PACKET_MAX];
    size_t n_bytes;
    unsigned destination;
};

static struct endpoint_list destinations;
static struct send_sink_config config;
static struct send_sink *sink;
static struct inbox *return_to;
static uint8_t memory[2][MEMORY_BYTES];
static struct sent sent[WIRE_MAX];
static size_t n_sent;
static struct buffer_ref refs[N_LOANS];
static size_t n_refs;

static void set_up(void)
{
    plug_in();
    ck_assert_int_eq(
        endpoint_list_parse("239.1.2.3:5000, 239.129.2.4+2:65535, 224.0.0.1:1", &destinations, why, sizeof(why)), 0);
    ck_assert_uint_eq(destinations.n, N_DESTINATIONS);
    config = (struct send_sink_config){.destinations = &destinations,
                                       .transport = TRANSPORT_IBVERBS,
                                       .interface = "lo",
                                       .ttl = 37,
                                       .packet_bytes = PACKET_MAX};
    ck_assert_int_eq(inbox_create(N_LOANS, &return_to), 0);
    for (size_t m = 0; m < 2; m++)
        for (size_t i = 0; i < MEMORY_BYTES; i++)
            memory[m][i] = (uint8_t)random_u64();
}

static void open_sink(void)
{
    ck_assert_msg(send_sink_open(&config, &sink, why, sizeof(why)) == 0, "%s", why);
    for (size_t m = 0; m < 2; m++)
        ck_assert_int_eq(send_sink_add_memory(sink, memory[m], MEMORY_BYTES, why, sizeof(why)), 0);
}

static void tear_down(void)
{
    send_sink_close(sink);
    ck_assert_int_eq(card.n_objects, 0);
    endpoint_list_fini(&destinations);
    inbox_destroy(return_to);
}

/* Sends a batch of random packets: of payloads from added memory, from elsewhere, or none.  The last has a loan, if
 * wanted.  Returns how many left. */
static size_t send_batch(size_t n, bool elsewhere, bool lend)
{
    struct packet_out *packets = send_sink_alloc(sink, PACKET_SINK_BATCH_MAX);
    static uint8_t other[PACKET_SINK_BATCH_MAX][PACKET_MAX];

    for (size_t i = 0; i < n; i++) {
        struct packet_out *packet = &packets[i];
        struct sent *copy = &sent[n_sent++];
        packet->header_bytes = 8 * (1 + random_below(PACKET_SINK_HEADER_MAX / 8));
        for (size_t k = 0; k < packet->header_bytes; k++)
            packet->header[k] = (uint8_t)random_u64();
        packet->payload_bytes = random_below(4) ? random_below(PACKET_MAX - packet->header_bytes + 1) : 0;
        packet->payload = memory[random_below(2)] + random_below(MEMORY_BYTES - packet->payload_bytes + 1);
        if (elsewhere && random_below(2)) {
            memcpy(other[i], packet->payload, packet->payload_bytes);
            packet->payload = other[i];
        }
        packet->destination = (unsigned)random_below(N_DESTINATIONS);
        memcpy(copy->bytes, packet->header, packet->header_bytes);
        memcpy(copy->bytes + packet->header_bytes, packet->payload, packet->payload_bytes);
        copy->n_bytes = packet->header_bytes + packet->payload_bytes;
        copy->destination = packet->destination;
    }
    if (lend) {
        struct buffer_ref *ref = &refs[n_refs++];
        buffer_ref_init(ref, return_to, (struct inbox_item){.object = ref});
        buffer_ref_set(ref, 1);
        packets[n - 1].ref = ref;
    }
    return send_sink_send(sink, packets, n);
}

static size_t n_home;

/* Exactly the first 'n' loans have come home, in order. */
static void assert_home(size_t n)
{
    struct inbox_item item;

    while (n_home < n) {
        ck_assert_msg(inbox_try_pop(return_to, &item) == 0, "%zu of %zu loans came home", n_home, n);
        ck_assert_ptr_eq(item.object, &refs[n_home++]);
    }
    ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
}

/* RFC 791, 768 and 1112, read by somebody else than who writes. */
static void assert_frame(const struct frame *frame, const struct sent *packet)
{
    static uint16_t source_port;
    const struct endpoint *to = &destinations.items[packet->destination];
    const uint8_t *f = frame->bytes, *ip = f + 14, *udp = ip + 20;
    uint32_t group = ntohl(to->address.s_addr), sum = 0;
    const uint8_t ethernet[14] = {1, 0, 0x5e, group >> 16 & 0x7f, group >> 8 & 255, group & 255, 0, 0, 0, 0, 0, 0, 8};

    ck_assert_uint_eq(frame->n_bytes, 42 + packet->n_bytes);
    ck_assert_mem_eq(f, ethernet, sizeof(ethernet)); /* lo's address is 0 */
    ck_assert_uint_eq(ip[0], 0x45);
    ck_assert_uint_eq((unsigned)ip[2] << 8 | ip[3], 28 + packet->n_bytes);
    ck_assert_uint_eq(ip[8], 37);
    ck_assert_uint_eq(ip[9], IPPROTO_UDP);
    ck_assert_mem_eq(ip + 12, "\x7f\0\0\1", 4);
    ck_assert_mem_eq(ip + 16, &to->address, 4);
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    ck_assert_uint_eq(sum, 0xffff);
    uint16_t from = (uint16_t)(udp[0] << 8 | udp[1]);
    source_port = source_port ? source_port : from;
    ck_assert_uint_ne(from, 0);
    ck_assert_uint_eq(from, source_port);
    ck_assert_uint_eq((unsigned)udp[2] << 8 | udp[3], to->port);
    ck_assert_uint_eq((unsigned)udp[4] << 8 | udp[5], 8 + packet->n_bytes);
    ck_assert_uint_eq((unsigned)udp[6] << 8 | udp[7], 0);
    ck_assert_mem_eq(f + 42, packet->bytes, packet->n_bytes);
}

static void assert_wire(size_t from, size_t first_sent, size_t n)
{
    ck_assert_uint_ge(n_wire, from + n);
    for (size_t i = 0; i < n; i++)
        assert_frame(&wire[from + i], &sent[first_sent + i]);
}

static void assert_failed(uint64_t n, int err)
{
    int last_errno;

    ck_assert_uint_eq(send_sink_n_failed(sink, &last_errno), n);
    if (n > 0)
        ck_assert_int_eq(last_errno, err);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

TEST(frames_are_right_and_in_order, .end = 6)
{
    random_state += (uint64_t)_i * 1000003;
    open_sink();
    while (n_sent < 4000) {
        size_t n = 1 + random_below(PACKET_SINK_BATCH_MAX);
        card.per_poll = 1 + random_below(100);
        ck_assert_uint_eq(send_batch(n, _i % 2, random_below(3) == 0), n);
    }
    card.per_poll = 7;
    send_sink_flush(sink);
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    ck_assert_uint_eq(n_wire, n_sent);
    assert_wire(0, 0, n_sent);
    assert_home(n_refs);
    assert_failed(0, 0);
    ck_assert_uint_le(card.n_in_flight_max, QUEUE_MAX);
    if (_i % 2 == 0)
        ck_assert_uint_gt(card.n_in_flight_max, QUEUE_MAX - PACKET_SINK_BATCH_MAX); /* several lists at once */
    ck_assert_str_eq(card.states, "0IRS");
}

TEST(references_return_with_the_last_packet_of_a_list)
{
    open_sink();
    card.per_poll = 0;
    send_batch(10, false, true);
    send_batch(1, false, true);
    send_batch(20, false, true);
    ck_assert_uint_eq(send_sink_reap(sink), 31);
    assert_home(0);
    transmit(9);
    ck_assert_uint_eq(send_sink_reap(sink), 31);
    assert_home(0);
    transmit(1);
    ck_assert_uint_eq(send_sink_reap(sink), 21);
    assert_home(1);
    transmit(20);
    ck_assert_uint_eq(send_sink_reap(sink), 20);
    assert_home(2);
    transmit(1);
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    assert_home(3);
}

/* A close waits as a flush does. */
TEST(a_close_waits)
{
    open_sink();
    card.per_poll = 1;
    send_batch(30, true, true);
    send_sink_close(sink);
    sink = NULL;
    assert_wire(0, 0, 30);
    assert_home(1);
    ck_assert_int_eq(card.n_objects, 0);
}

TEST(a_completion_with_an_error_loses_what_was_in_flight, .end = 20)
{
    random_state += (uint64_t)_i * 1000003;
    open_sink();
    card.per_poll = 0;
    size_t first_n = 1 + random_below(PACKET_SINK_BATCH_MAX), second_n = 1 + random_below(PACKET_SINK_BATCH_MAX);
    size_t n = first_n + second_n;
    card.fail_packet = 1 + random_below(n);
    size_t n_good = card.fail_packet - 1;
    send_batch(first_n, false, true);
    send_batch(second_n, true, true);
    card.per_poll = SIZE_MAX;
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    assert_home(2);
    assert_failed(n - n_good, EIO);
    ck_assert_str_eq(card.states, "0IRS0IRS");
    ck_assert_uint_eq(n_wire, n_good);
    assert_wire(0, 0, n_good);
    for (int i = 0; i < 10; i++) /* as if nothing had been */
        ck_assert_uint_eq(send_batch(PACKET_SINK_BATCH_MAX, true, true), PACKET_SINK_BATCH_MAX);
    send_sink_flush(sink);
    assert_wire(n_good, n, 10 * PACKET_SINK_BATCH_MAX);
    assert_home(12);
    assert_failed(n - n_good, EIO);
}

/* Whatever a card still has to tell of what was in a queue that was reset, it is not of what came after. */
TEST(completions_of_before_a_reset_are_void)
{
    open_sink();
    card.per_poll = 0;
    send_batch(20, false, true);
    card.fail_packet = 5;
    card.per_poll = SIZE_MAX;
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    assert_home(1);
    card.per_poll = 0;
    send_batch(10, false, true);
    push(&(struct request){.wr_id = 3}, IBV_WC_SUCCESS);
    push(&(struct request){.wr_id = 19}, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(send_sink_reap(sink), 10);
    assert_home(1);
    transmit(10);
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    assert_home(2);
    assert_failed(16, EIO);
    ck_assert_str_eq(card.states, "0IRS0IRS");
}

/* Room for any batch: in the queue, and for its copies.  Completions tell, one of each list. */
TEST(room_is_where_nothing_must_be_waited_for)
{
    open_sink();
    card.per_poll = 0;
    for (size_t i = 0; i < QUEUE_MAX / PACKET_SINK_BATCH_MAX; i++) {
        ck_assert(send_sink_has_room(sink));
        send_batch(PACKET_SINK_BATCH_MAX, false, true);
    }
    ck_assert(!send_sink_has_room(sink));
    transmit(PACKET_SINK_BATCH_MAX - 1);
    ck_assert(!send_sink_has_room(sink));
    assert_home(0);
    transmit(1);
    ck_assert(send_sink_has_room(sink));
    assert_home(1);
    card.per_poll = SIZE_MAX;
    send_sink_flush(sink);
    card.per_poll = 0;
    while (card.n_copied == 0)
        send_batch(10, true, false);
    ck_assert(!send_sink_has_room(sink));
    transmit(SIZE_MAX);
    ck_assert(send_sink_has_room(sink));
    assert_failed(0, 0);
}

static const char *const running_calls[] = {"ibv_post_send", "ibv_poll_cq"};

TEST(a_call_that_fails_loses_what_was_in_flight, .end = ARRAY_LEN(running_calls))
{
    open_sink();
    card.per_poll = 0;
    ck_assert_uint_eq(send_batch(20, true, true), 20);
    fail_call(running_calls[_i], _i ? 1 : 5);
    size_t n_left = send_batch(30, false, true);
    ck_assert_uint_eq(n_left, _i ? 30 : 0);
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    assert_home(2);
    assert_failed(50, _i ? EIO : ENOSPC);
    card.per_poll = SIZE_MAX;
    ck_assert_uint_eq(send_batch(30, true, true), 30);
    send_sink_flush(sink);
    assert_home(3);
    ck_assert_uint_eq(n_wire, 30);
    assert_wire(0, 50, 30);
    assert_failed(50, _i ? EIO : ENOSPC);
}

TEST(a_queue_in_which_nothing_moves_is_reset, .end = 2)
{
    int64_t begin_ns = clock_monotonic_ns();

    open_sink();
    card.per_poll = 0;
    size_t n_full = QUEUE_MAX / PACKET_SINK_BATCH_MAX;
    for (size_t i = 0; i < n_full; i++)
        send_batch(PACKET_SINK_BATCH_MAX, _i, true);
    if (!_i)
        assert_home(0);
    send_batch(1, _i, true); /* waits for room, or for the room for copies before */
    ck_assert_int_ge(clock_monotonic_ns() - begin_ns, NS_PER_S);
    ck_assert_int_lt(clock_monotonic_ns() - begin_ns, PATIENCE_NS);
    send_sink_flush(sink);
    assert_home(n_full + 1);
    assert_failed(n_sent, ETIMEDOUT);
    ck_assert_uint_eq(n_wire, 0);
    ck_assert_int_gt((int)strlen(card.states), 7);
}

static void count_loss(void *arg)
{
    ++*(unsigned *)arg;
}

TEST(a_card_that_is_lost_is_told_once, .end = 4)
{
    static const char *const when[] = {"0IRS", "0IRS0", "0IRS0I", "0IRS0IR"};

    unsigned n_lost = 0;

    config.on_lost = count_loss;
    config.on_lost_arg = &n_lost;
    open_sink();
    card.per_poll = 0;
    send_batch(20, false, true);
    fail_call("ibv_modify_qp", (size_t)_i + 1);
    card.fail_packet = 1;
    card.per_poll = SIZE_MAX;
    ck_assert_uint_eq(send_sink_reap(sink), 0);
    ck_assert_str_eq(card.states, when[_i]);
    ck_assert_uint_eq(n_lost, 1);
    assert_home(1);
    for (size_t i = 0; i < 20; i++) /* refused, and not in the way of an end */
        ck_assert_uint_eq(send_batch(PACKET_SINK_BATCH_MAX, true, true), 0);
    send_sink_flush(sink);
    send_sink_disable_pacing(sink);
    assert_home(21);
    assert_failed(n_sent, ENODEV);
    ck_assert_uint_eq(n_lost, 1);
}

TEST(a_loss_while_a_batch_is_made)
{
    /* Copies wait for the room that the batch before uses; there the queue fails and cannot be had again. */
    open_sink();
    card.per_poll = 0;
    while (n_sent < 2 * PACKET_SINK_BATCH_MAX)
        send_batch(PACKET_SINK_BATCH_MAX, n_sent == 0, true);
    fail_call("ibv_modify_qp", 1);
    card.fail_packet = 1;
    card.per_poll = SIZE_MAX;
    ck_assert_uint_eq(send_batch(PACKET_SINK_BATCH_MAX, true, true), 0);
    assert_home(3);
    assert_failed(n_sent, ENODEV);
}

TEST(memory_that_was_forgotten_is_copied_from)
{
    open_sink();
    send_batch(PACKET_SINK_BATCH_MAX, false, true);
    send_sink_flush(sink);
    int n_objects = card.n_objects;
    send_sink_remove_memory(sink);
    ck_assert_int_eq(card.n_objects, n_objects - 2);
    for (int i = 0; i < 5; i++)
        send_batch(PACKET_SINK_BATCH_MAX, false, true);
    send_sink_flush(sink);
    ck_assert_int_eq(send_sink_add_memory(sink, memory[1], MEMORY_BYTES, why, sizeof(why)), 0);
    send_batch(PACKET_SINK_BATCH_MAX, false, true);
    send_sink_flush(sink);
    assert_wire(0, 0, 7 * PACKET_SINK_BATCH_MAX);
    assert_home(7);
    fail_call("ibv_reg_mr", 1);
    ck_assert_int_eq(send_sink_add_memory(sink, memory[0], MEMORY_BYTES, why, sizeof(why)), -ENOSPC);
    ck_assert_str_eq(why, "send.transport: ibverbs on lo: cannot register 64 KiB of memory: No space left on device");
}

/* A packet of 1200 bytes takes 1266 on the wire: 100 MB/s are 844 Mbit/s, and 5 % more 886.2.  One of 330 takes 396:
 * 960 Mbit/s, and 1008. */
static const struct {
    double rate_bytes_per_s;
    uint32_t max_kbps, kbps;
    bool refuses;
    double mean_packet_bytes;
} rates[] = {
    {100e6, 200000000, 886200, false, 0}, {100e6, 0, 0, false, 0},       /* a card that does not pace */
    {100e6, 800000, 0, false, 0},                                        /* not as fast as that */
    {100e6, 200000000, 0, true, 0},       {1e6, 200000000, 0, false, 0}, /* so slow that a list would take long */
    {0, 200000000, 0, false, 0},          {100e6, 200000000, 1008000, false, 330},
};

TEST(the_card_paces_where_it_can, .end = ARRAY_LEN(rates))
{
    card.rate_max_kbps = rates[_i].max_kbps;
    config.rate_bytes_per_s = rates[_i].rate_bytes_per_s;
    config.mean_packet_bytes = rates[_i].mean_packet_bytes;
    if (rates[_i].refuses)
        fail_call("ibv_modify_qp_rate_limit", 1);
    open_sink();
    ck_assert_uint_eq(card.rate_kbps, rates[_i].kbps);
    card.fail_packet = 1; /* what was said before a reset is said again */
    send_batch(10, false, true);
    send_sink_flush(sink);
    ck_assert_uint_eq(card.n_rates, rates[_i].kbps ? 2 : 0);
    send_sink_disable_pacing(sink);
    send_sink_disable_pacing(sink);
    ck_assert_uint_eq(card.n_rates, rates[_i].kbps ? 3 : 0);
    ck_assert_uint_eq(card.rate_kbps, 0);
    card.fail_packet = card.n_posted + 1;
    send_batch(10, false, true);
    send_sink_flush(sink);
    ck_assert_uint_eq(card.rate_kbps, 0);
    ck_assert_str_eq(card.states, "0IRS0IRS0IRS");
    assert_home(2);
}

static const char *const setup_calls[] = {
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_bind_addr",
    "ibv_query_device_ex",
    "ibv_query_port",
    "ibv_alloc_pd",
    "ibv_reg_mr",
    "ibv_create_cq",
    "ibv_create_qp",
    "ibv_modify_qp",
};

TEST(a_start_that_fails_says_so_and_leaves_nothing, .end = ARRAY_LEN(setup_calls))
{
    for (size_t at = 1; at <= (strcmp(setup_calls[_i], "ibv_modify_qp") == 0 ? 3 : 1); at++) {
        fail_call(setup_calls[_i], at);
        int err = send_sink_open(&config, &sink, why, sizeof(why));
        ck_assert_int_lt(err, 0);
        ck_assert_msg(strncmp(why, "send.transport: ibverbs on lo: cannot ", 38) == 0, "%s", why);
        ck_assert_int_eq(card.n_objects, 0);
    }
    sink = NULL;
}

TEST(what_cannot_be_configured)
{
    config.interface = NULL;
    ck_assert_int_eq(send_sink_open(&config, &sink, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "send.interface: ibverbs needs an interface");
    config.interface = "no-such-if";
    ck_assert_int_eq(send_sink_open(&config, &sink, why, sizeof(why)), -ENODEV);
    ck_assert_msg(strncmp(why, "send.transport: ", 16) == 0 && strstr(why, "no-such-if"), "%s", why);
    config.interface = "lo";
    config.packet_bytes = 65509; /* and 28 are 65537 */
    ck_assert_int_eq(send_sink_open(&config, &sink, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "send.interface: packets of 65509 bytes, 65537 with IPv4 and UDP, exceed the MTU of "
                          "lo, which is 65536: raise the MTU (\"ip link set lo mtu 65537\") or send smaller packets");
    config.packet_bytes = 1000;
    destinations.items[3].key = "outputs[0].destinations";
    destinations.items[3].address.s_addr = htonl(0x0a010203);
    ck_assert_int_eq(send_sink_open(&config, &sink, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "outputs[0].destinations: 10.1.2.3:65535: ibverbs sends to multicast groups only");
    sink = NULL;
}

SUITE(.timeout_s = 60, .setup = set_up, .teardown = tear_down, .start = random_start);
