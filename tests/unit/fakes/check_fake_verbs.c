/* check_fake_verbs.c - the software libibverbs of tests/fakes/verbs.  Frames arrive at the right queues and nowhere
 * else.  The fake refuses all requests that a NIC refuses.  Each test has a network namespace with its own wire.  If
 * namespaces are not permitted, the tests are skipped.  tests/system/test_fake_verbs.py runs spead2 on the same
 * library. */
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define MTU         9000
#define FRAME_BYTES (MTU + 14)
#define N_BYTES     (8 << 20)
#define PORT        7148
#define TIMEOUT_MS  10000
#define HEADER      42

static const char *const wire = "ip link set lo up && ip link add veth0 mtu 9000 type veth peer name veth1 mtu 9000 && "
                                "ip address add 10.60.0.1/24 dev veth0 && ip address add 10.60.0.2/24 dev veth1 && "
                                "ip link set veth0 up && ip link set veth1 up";

/* ---- One end of the wire ----------------------------------------------------------------------------------------- */

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint8_t *memory; /* [N_BYTES] */
    struct ibv_mr *mr;
};

static struct end ends[2];
static struct ibv_flow *flow; /* to the first */

static void set_up_world(void)
{
    ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
    ck_assert_int_eq(system(wire), 0);
}

static void open_end(struct end *end, int i)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0A3C0001 + (uint32_t)i)};

    end->channel = rdma_create_event_channel();
    ck_assert_int_eq(rdma_create_id(end->channel, &end->id, NULL, RDMA_PS_UDP), 0);
    ck_assert_int_eq(rdma_bind_addr(end->id, (struct sockaddr *)&address), 0);
    end->pd = ibv_alloc_pd(end->id->verbs);
    end->completions = ibv_create_comp_channel(end->id->verbs);
    end->memory = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end->mr = ibv_reg_mr(end->pd, end->memory, N_BYTES, IBV_ACCESS_LOCAL_WRITE);
    ck_assert(end->pd && end->completions && end->mr);
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)), 0);
}

static struct ibv_qp *make_qp(struct end *end, struct ibv_cq *cq, uint32_t n_send, uint32_t n_recv)
{
    struct ibv_qp_init_attr attr = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {.max_send_wr = n_send,
                                            .max_recv_wr = n_recv,
                                            .max_send_sge = 3,
                                            .max_recv_sge = 2,
                                            .max_inline_data = n_send ? 64 : 0},
                                    .qp_type = IBV_QPT_RAW_PACKET};
    struct ibv_qp *qp = ibv_create_qp(end->pd, &attr);

    ck_assert(qp);
    to_state(qp, IBV_QPS_INIT);
    return qp;
}

/* Completion queue and queue pair of both ends, of which 0 receives and 1 sends. */
static void open_wire(int n_entries, uint32_t n_slots)
{
    for (int i = 0; i < 2; i++) {
        struct end *end = &ends[i];
        open_end(end, i);
        end->cq = ibv_create_cq(end->id->verbs, n_entries, end, end->completions, 0);
        ck_assert(end->cq);
        end->qp = make_qp(end, end->cq, i ? n_slots : 0, i ? 0 : n_slots);
        to_state(end->qp, IBV_QPS_RTR);
        if (i)
            to_state(end->qp, IBV_QPS_RTS);
    }
}

static void close_end(struct end *end)
{
    ck_assert_int_eq(end->qp ? ibv_destroy_qp(end->qp) : 0, 0);
    ck_assert_int_eq(end->cq ? ibv_destroy_cq(end->cq) : 0, 0);
    ck_assert_int_eq(ibv_destroy_comp_channel(end->completions), 0);
    ck_assert_int_eq(ibv_dereg_mr(end->mr), 0);
    ck_assert_int_eq(ibv_dealloc_pd(end->pd), 0);
    ck_assert_int_eq(munmap(end->memory, N_BYTES), 0);
    rdma_destroy_id(end->id);
    rdma_destroy_event_channel(end->channel);
    *end = (struct end){0};
}

static void close_wire(void)
{
    if (flow)
        ibv_destroy_flow(flow);
    flow = NULL;
    for (int i = 0; i < 2; i++)
        if (ends[i].id)
            close_end(&ends[i]);
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static struct ibv_flow *steer(struct ibv_qp *qp, const char *group, uint16_t port)
{
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4 ip;
        struct ibv_flow_spec_tcp_udp udp;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 3, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)},
        .ip = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(rule.ip)},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof(rule.udp)},
    };

    rule.ip.val.dst_ip = inet_addr(group);
    rule.ip.mask.dst_ip = 0xFFFFFFFF;
    rule.udp.val.dst_port = htons(port);
    rule.udp.mask.dst_port = 0xFFFF;
    return ibv_create_flow(qp, &rule.attr);
}

static void put_headers(uint8_t *frame, const char *group, uint16_t port, size_t n_bytes)
{
    uint32_t address = inet_addr(group);
    uint16_t lengths[2] = {htons((uint16_t)(n_bytes - 14)), htons((uint16_t)(n_bytes - 34))}, to = htons(port);
    uint32_t sum = 0;

    memset(frame, 0, HEADER);
    memcpy(frame, (const uint8_t[]){1, 0, 0x5E}, 3);
    memcpy(frame + 3, (const uint8_t *)&address + 1, 3);
    frame[3] &= 0x7F;
    memcpy(frame + 12, (const uint8_t[]){8, 0, 0x45}, 3);
    memcpy(frame + 16, &lengths[0], 2);
    frame[22] = 4;
    frame[23] = 17;
    memcpy(frame + 26, (const uint8_t[]){10, 60, 0, 2}, 4);
    memcpy(frame + 30, &address, 4);
    memcpy(frame + 36, &to, 2);
    memcpy(frame + 38, &lengths[1], 2);
    for (int i = 14; i < 34; i += 2)
        sum += (uint32_t)(frame[i] << 8 | frame[i + 1]);
    sum = (sum & 0xFFFF) + (sum >> 16);
    frame[24] = (uint8_t)(~sum >> 8);
    frame[25] = (uint8_t)~sum;
}

static struct ibv_sge part(const struct end *end, size_t at, size_t n_bytes)
{
    return (struct ibv_sge){.addr = (uintptr_t)end->memory + at, .length = (uint32_t)n_bytes, .lkey = end->mr->lkey};
}

static int post_recv(struct ibv_qp *qp, uint64_t id, struct ibv_sge *parts, int n_parts)
{
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = parts, .num_sge = n_parts}, *bad = NULL;
    int error = ibv_post_recv(qp, &wr, &bad);

    ck_assert_ptr_eq(bad, error ? &wr : NULL);
    return error;
}

static int post_send(struct ibv_qp *qp, uint64_t id, struct ibv_sge *parts, int n_parts, unsigned flags)
{
    struct ibv_send_wr wr = {
        .wr_id = id, .sg_list = parts, .num_sge = n_parts, .opcode = IBV_WR_SEND, .send_flags = flags};
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(qp, &wr, &bad);

    ck_assert_ptr_eq(bad, error ? &wr : NULL);
    return error;
}

/* Sends one frame of the second end's memory, of another part than the few before it; asks for its completion. */
static int send_frame(const char *group, uint16_t port, size_t n_bytes)
{
    static size_t n_sent;
    size_t at = n_sent++ % 16 * FRAME_BYTES;
    struct ibv_sge whole = part(&ends[1], at, n_bytes);

    put_headers(ends[1].memory + at, group, port, n_bytes);
    return post_send(ends[1].qp, 77, &whole, 1, IBV_SEND_SIGNALED);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Waits for the next completion of a queue. */
static struct ibv_wc wait_wc(struct ibv_cq *cq)
{
    int64_t until = now_ns() + TIMEOUT_MS * INT64_C(1000000);
    struct ibv_wc wc;
    int n;

    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
        ck_assert_msg(now_ns() < until, "no completion");
    ck_assert_int_eq(n, 1);
    return wc;
}

static void expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_wc(cq);

    ck_assert_msg(wc.wr_id == id && wc.status == status, "request %d ended with %s", (int)wc.wr_id,
                  ibv_wc_status_str(wc.status));
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* ---- What arrives ------------------------------------------------------------------------------------------------ */

#define N_FRAMES 200
#define GROUP    "239.1.2.3"

/* Each frame is gathered from up to three parts, or lies in the call, and is scattered to two of random sizes. */
TEST(frames_arrive_as_they_were_sent_in_their_order, .end = 3)
{
    size_t n_bytes[N_FRAMES], n_first[N_FRAMES];
    static uint8_t sent[N_FRAMES][FRAME_BYTES], inlined[64];

    open_wire(2 * N_FRAMES, N_FRAMES);
    flow = steer(ends[0].qp, GROUP, PORT);
    random_bytes(ends[1].memory, N_FRAMES * FRAME_BYTES);
    for (size_t i = 0; i < N_FRAMES; i++) {
        n_first[i] = 1 + random_below(FRAME_BYTES - 1);
        struct ibv_sge parts[2] = {part(&ends[0], i * FRAME_BYTES, n_first[i]),
                                   part(&ends[0], (N_FRAMES + i) * FRAME_BYTES, FRAME_BYTES - n_first[i])};
        ck_assert_int_eq(post_recv(ends[0].qp, i, parts, 2), 0);
    }
    for (size_t i = 0; i < N_FRAMES; i++) {
        uint8_t *frame = ends[1].memory + i * FRAME_BYTES;
        bool is_inline = random_below(4) == 0, asks = random_below(2);
        n_bytes[i] = is_inline ? 60 + random_below(5) : 60 + random_below(FRAME_BYTES - 59);
        put_headers(frame, GROUP, PORT, n_bytes[i]);
        memcpy(sent[i], frame, n_bytes[i]);
        if (asks)
            memset(frame + 24, 0xAA, 2); /* the sum, which the card is to compute */
        size_t a = random_below(n_bytes[i] + 1), b = a + random_below(n_bytes[i] + 1 - a);
        struct ibv_sge parts[3] = {part(&ends[1], i * FRAME_BYTES, a), part(&ends[1], i * FRAME_BYTES + a, b - a),
                                   part(&ends[1], i * FRAME_BYTES + b, n_bytes[i] - b)};
        if (is_inline) {
            memcpy(inlined, frame, n_bytes[i]);
            parts[0] = (struct ibv_sge){.addr = (uintptr_t)inlined, .length = (uint32_t)n_bytes[i]};
        }
        ck_assert_int_eq(post_send(ends[1].qp, i, parts, is_inline ? 1 : 3,
                                   (is_inline ? IBV_SEND_INLINE : 0) | (asks ? IBV_SEND_IP_CSUM : 0) |
                                       (i == N_FRAMES - 1 ? IBV_SEND_SIGNALED : 0)),
                         0);
        memset(inlined, 0, sizeof(inlined));
    }
    expect(ends[1].cq, N_FRAMES - 1, IBV_WC_SUCCESS);
    for (size_t i = 0; i < N_FRAMES; i++) {
        struct ibv_wc wc = wait_wc(ends[0].cq);
        ck_assert_uint_eq(wc.wr_id, i);
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
        ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
        ck_assert_uint_eq(wc.byte_len, n_bytes[i]);
        ck_assert_uint_eq(wc.qp_num, ends[0].qp->qp_num);
        ck_assert_uint_eq(wc.wc_flags, n_first[i] < 34 ? 0 : IBV_WC_IP_CSUM_OK);
        uint8_t frame[FRAME_BYTES];
        memcpy(frame, ends[0].memory + i * FRAME_BYTES, n_first[i]);
        memcpy(frame + n_first[i], ends[0].memory + (N_FRAMES + i) * FRAME_BYTES, FRAME_BYTES - n_first[i]);
        ck_assert_msg(memcmp(frame, sent[i], n_bytes[i]) == 0, "frame %zu", i);
    }
    ck_assert_int_eq(ibv_destroy_flow(flow), 0);
    flow = NULL;
}

TEST(a_wrong_sum_is_told_and_a_short_frame_filled)
{
    open_wire(8, 8);
    flow = steer(ends[0].qp, GROUP, PORT);
    struct ibv_sge room = part(&ends[0], 0, 100), frame = part(&ends[1], 0, 45);
    ck_assert_int_eq(post_recv(ends[0].qp, 1, &room, 1), 0);
    put_headers(ends[1].memory, GROUP, PORT, 45);
    ends[1].memory[25]++;
    memset(ends[0].memory, 0xEE, 100);
    ck_assert_int_eq(post_send(ends[1].qp, 2, &frame, 1, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = wait_wc(ends[0].cq);
    ck_assert_int_eq(wc.wc_flags, 0);
    ck_assert_uint_eq(wc.byte_len, 60);
    ck_assert_int_eq(ends[0].memory[59], 0);
    ck_assert_int_eq(ends[0].memory[60], 0xEE);
}

TEST(a_frame_goes_to_the_queue_of_its_flow_only)
{
    static const struct {
        const char *group;
        uint16_t port;
        int queue; /* -1: nobody's */
    } frames[] = {{"239.1.2.3", PORT, 0},     {"239.1.2.4", PORT, 1},     {"239.1.2.3", PORT + 1, -1},
                  {"239.129.2.3", PORT, -1},  {"239.1.2.5", PORT + 2, 1}, {"239.1.2.3", PORT, 0},
                  {"239.1.2.4", PORT + 2, -1}};
    size_t n_frames = sizeof(frames) / sizeof(frames[0]);

    open_wire(64, 64);
    struct ibv_cq *cqs[2] = {ends[0].cq, ibv_create_cq(ends[0].id->verbs, 64, NULL, NULL, 0)};
    struct ibv_qp *qps[2] = {ends[0].qp, make_qp(&ends[0], cqs[1], 0, 64)};
    struct ibv_flow *flows[3] = {steer(qps[0], "239.1.2.3", PORT), steer(qps[1], "239.1.2.4", PORT),
                                 steer(qps[1], "239.1.2.5", PORT + 2)};
    to_state(qps[1], IBV_QPS_RTR);
    for (size_t i = 0; i < 2 * n_frames; i++) {
        struct ibv_sge room = part(&ends[0], i * FRAME_BYTES, FRAME_BYTES);
        ck_assert_int_eq(post_recv(qps[i % 2], i, &room, 1), 0);
    }
    for (size_t i = 0; i < n_frames; i++) {
        ck_assert_int_eq(send_frame(frames[i].group, frames[i].port, 100 + i), 0);
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    }
    for (size_t i = 0; i < n_frames; i++)
        if (frames[i].queue >= 0)
            ck_assert_uint_eq(wait_wc(cqs[frames[i].queue]).byte_len, 100 + i);
    /* A flow that is gone gets nothing more. */
    ck_assert_int_eq(ibv_destroy_flow(flows[1]), 0);
    ck_assert_int_eq(send_frame("239.1.2.4", PORT, 200), 0);
    ck_assert_int_eq(send_frame("239.1.2.5", PORT + 2, 201), 0);
    ck_assert_uint_eq(wait_wc(cqs[1]).byte_len, 201);
    struct ibv_wc wc;
    ck_assert_int_eq(ibv_poll_cq(cqs[0], 1, &wc), 0);
    ck_assert_int_eq(ibv_destroy_flow(flows[0]) | ibv_destroy_flow(flows[2]), 0);
    ck_assert_int_eq(ibv_destroy_qp(qps[1]) | ibv_destroy_cq(cqs[1]), 0);
}

static uint64_t counter(const struct end *end)
{
    char path[512];
    unsigned long long n = 0;

    snprintf(path, sizeof(path), "%s/ports/1/hw_counters/out_of_buffer", end->id->verbs->device->ibdev_path);
    FILE *file = fopen(path, "r");
    ck_assert(file && fscanf(file, "%llu", &n) == 1);
    fclose(file);
    return n;
}

/* Frames of which there were more than requests are gone, and counted. */
TEST(frames_without_a_request_are_dropped_and_counted, .teardown = test_no_setup)
{
    char directory[] = "/tmp/fake-verbs-XXXXXX", command[64];

    ck_assert(mkdtemp(directory));
    setenv("CBF_FAKE_VERBS_DIR", directory, 1);
    open_wire(64, 64);
    flow = steer(ends[0].qp, GROUP, PORT);
    for (size_t i = 0; i < 13; i++) {
        struct ibv_sge room = part(&ends[0], i * FRAME_BYTES, FRAME_BYTES);
        if (i < 3)
            ck_assert_int_eq(post_recv(ends[0].qp, i, &room, 1), 0);
        ck_assert_int_eq(send_frame(GROUP, PORT, 100 + i), 0);
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    }
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(wait_wc(ends[0].cq).byte_len, 100 + i);
    for (int64_t until = now_ns() + TIMEOUT_MS * INT64_C(1000000); counter(&ends[0]) < 10;)
        ck_assert(now_ns() < until);
    struct ibv_sge room = part(&ends[0], 0, FRAME_BYTES);
    ck_assert_int_eq(post_recv(ends[0].qp, 50, &room, 1), 0);
    ck_assert_int_eq(send_frame(GROUP, PORT, 999), 0);
    ck_assert_uint_eq(wait_wc(ends[0].cq).byte_len, 999);
    ck_assert_uint_eq(counter(&ends[0]), 10);
    close_wire();
    snprintf(command, sizeof(command), "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}

TEST(a_patient_device_keeps_frames_until_there_are_requests)
{
    setenv("CBF_FAKE_VERBS_LIMITS", "patient=1", 1);
    open_wire(64, 64);
    flow = steer(ends[0].qp, GROUP, PORT);
    for (size_t i = 0; i < 10; i++) {
        ck_assert_int_eq(send_frame(GROUP, PORT, 100 + i), 0);
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    }
    struct ibv_wc wc;
    ck_assert_int_eq(ibv_poll_cq(ends[0].cq, 1, &wc), 0);
    for (size_t i = 0; i < 10; i++) {
        struct ibv_sge room = part(&ends[0], 0, FRAME_BYTES);
        ck_assert_int_eq(post_recv(ends[0].qp, i, &room, 1), 0);
        ck_assert_uint_eq(wait_wc(ends[0].cq).byte_len, 100 + i);
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

enum wrong { WRONG_KEY, BEFORE, BEYOND, NO_WRITE, OTHER_PD, DEREGISTERED, N_WRONG };

/* A part of a request that may not be used, for a reason; what was made for it goes to 'mr' and 'pd'. */
static struct ibv_sge wrong_part(struct end *end, enum wrong wrong, struct ibv_mr **mr, struct ibv_pd **pd)
{
    struct ibv_sge sge = part(end, 4096, FRAME_BYTES);

    *pd = wrong == OTHER_PD ? ibv_alloc_pd(end->id->verbs) : NULL;
    *mr = ibv_reg_mr(*pd ? *pd : end->pd, end->memory + 4096, FRAME_BYTES,
                     wrong == NO_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE);
    ck_assert(*mr);
    sge.lkey = (*mr)->lkey;
    switch (wrong) {
    case WRONG_KEY: sge.lkey ^= 0x5000; break;
    case BEFORE: sge.addr--; break;
    case BEYOND: sge.length++; break;
    case DEREGISTERED:
        ibv_dereg_mr(*mr);
        *mr = NULL;
        break;
    default: break;
    }
    return sge;
}

static void give_back(struct ibv_mr *mr, struct ibv_pd *pd)
{
    ck_assert_int_eq(mr ? ibv_dereg_mr(mr) : 0, 0);
    ck_assert_int_eq(pd ? ibv_dealloc_pd(pd) : 0, 0);
}

TEST(memory_that_may_not_be_written_is_not, .end = N_WRONG)
{
    struct ibv_mr *mr;
    struct ibv_pd *pd;

    open_wire(8, 8);
    flow = steer(ends[0].qp, GROUP, PORT);
    struct ibv_sge good = part(&ends[0], 0, FRAME_BYTES), bad = wrong_part(&ends[0], (enum wrong)_i, &mr, &pd);
    ck_assert_int_eq(post_recv(ends[0].qp, 1, &good, 1), 0);
    ck_assert_int_eq(post_recv(ends[0].qp, 2, &bad, 1), 0);
    ck_assert_int_eq(post_recv(ends[0].qp, 3, &good, 1), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(send_frame(GROUP, PORT, 100), 0);
    expect(ends[0].cq, 1, IBV_WC_SUCCESS);
    expect(ends[0].cq, 2, IBV_WC_LOC_PROT_ERR);
    expect(ends[0].cq, 3, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(state_of(ends[0].qp), IBV_QPS_ERR);
    ck_assert_int_eq(ends[0].memory[4096], 0);
    /* What is posted now is flushed too; from the beginning all is well again. */
    ck_assert_int_eq(post_recv(ends[0].qp, 4, &good, 1), 0);
    expect(ends[0].cq, 4, IBV_WC_WR_FLUSH_ERR);
    to_state(ends[0].qp, IBV_QPS_RESET);
    to_state(ends[0].qp, IBV_QPS_INIT);
    ck_assert_int_eq(post_recv(ends[0].qp, 5, &good, 1), 0);
    to_state(ends[0].qp, IBV_QPS_RTR);
    ck_assert_int_eq(send_frame(GROUP, PORT, 100), 0);
    expect(ends[0].cq, 5, IBV_WC_SUCCESS);
    give_back(mr, pd);
}

TEST(memory_that_may_not_be_read_is_not_sent, .end = N_WRONG)
{
    struct ibv_mr *mr;
    struct ibv_pd *pd;

    open_wire(8, 8);
    struct ibv_sge good = part(&ends[1], 0, 100), bad = wrong_part(&ends[1], (enum wrong)_i, &mr, &pd);
    bool is_right = _i == NO_WRITE;
    ck_assert_int_eq(post_send(ends[1].qp, 1, &good, 1, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(post_send(ends[1].qp, 2, &bad, 1, 0), 0); /* an error needs no asking for */
    ck_assert_int_eq(post_send(ends[1].qp, 3, &good, 1, IBV_SEND_SIGNALED), 0);
    expect(ends[1].cq, 1, IBV_WC_SUCCESS);
    if (!is_right)
        expect(ends[1].cq, 2, IBV_WC_LOC_PROT_ERR);
    expect(ends[1].cq, 3, is_right ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(state_of(ends[1].qp), is_right ? IBV_QPS_RTS : IBV_QPS_ERR);
    give_back(mr, pd);
}

TEST(a_frame_that_does_not_fit_is_an_error)
{
    open_wire(8, 8);
    flow = steer(ends[0].qp, GROUP, PORT);
    struct ibv_sge room[2] = {part(&ends[0], 0, 50), part(&ends[0], 100, 50)};
    ck_assert_int_eq(post_recv(ends[0].qp, 1, room, 2), 0);
    ck_assert_int_eq(post_recv(ends[0].qp, 2, room, 2), 0);
    ck_assert_int_eq(send_frame(GROUP, PORT, 100), 0);
    ck_assert_int_eq(send_frame(GROUP, PORT, 101), 0);
    expect(ends[0].cq, 1, IBV_WC_SUCCESS);
    expect(ends[0].cq, 2, IBV_WC_LOC_LEN_ERR);
    for (int i = 0; i < 2; i++)
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    ck_assert_int_eq(send_frame(GROUP, PORT, FRAME_BYTES), 0);
    expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    struct ibv_sge long_one = part(&ends[1], 0, FRAME_BYTES + 5); /* four bytes would be a tag */
    ck_assert_int_eq(post_send(ends[1].qp, 9, &long_one, 1, 0), 0);
    expect(ends[1].cq, 9, IBV_WC_LOC_LEN_ERR);
}

/* A slot is free when the completion of its request, or of a later one, was polled. */
TEST(queues_hold_what_was_asked_for)
{
    open_wire(64, 5);
    struct ibv_sge room = part(&ends[0], 0, FRAME_BYTES), frame = part(&ends[1], 0, 60);
    struct ibv_sge many[4] = {frame, frame, frame, frame};
    for (uint64_t i = 0; i < 5; i++)
        ck_assert_int_eq(post_recv(ends[0].qp, i, &room, 1), 0);
    ck_assert_int_eq(post_recv(ends[0].qp, 5, &room, 1), ENOMEM);
    ck_assert_int_eq(post_send(ends[1].qp, 0, many, 4, 0), EINVAL);
    for (uint64_t i = 0; i < 5; i++)
        ck_assert_int_eq(post_send(ends[1].qp, i, &frame, 1, i == 2 ? IBV_SEND_SIGNALED : 0), 0);
    ck_assert_int_eq(post_send(ends[1].qp, 5, &frame, 1, 0), ENOMEM);
    expect(ends[1].cq, 2, IBV_WC_SUCCESS);
    /* Of a list, all before the one that does not fit are posted. */
    struct ibv_send_wr wrs[4], *bad = NULL;
    for (int i = 0; i < 4; i++)
        wrs[i] = (struct ibv_send_wr){.wr_id = 10 + (uint64_t)i,
                                      .next = i < 3 ? &wrs[i + 1] : NULL,
                                      .sg_list = &frame,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_SEND,
                                      .send_flags = IBV_SEND_SIGNALED};
    ck_assert_int_eq(ibv_post_send(ends[1].qp, wrs, &bad), ENOMEM);
    ck_assert_ptr_eq(bad, &wrs[3]);
    for (uint64_t i = 10; i < 13; i++)
        expect(ends[1].cq, i, IBV_WC_SUCCESS);
}

TEST(states_come_in_their_order)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .port_num = 1};

    open_end(&ends[0], 0);
    ends[0].cq = ibv_create_cq(ends[0].id->verbs, 8, NULL, NULL, 0);
    ends[0].qp = make_qp(&ends[0], ends[0].cq, 4, 4);
    struct ibv_sge frame = part(&ends[0], 0, 60);
    ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &attr, IBV_QP_STATE), EINVAL);
    ck_assert_int_eq(post_send(ends[0].qp, 1, &frame, 1, 0), EINVAL);
    ck_assert_int_eq(post_recv(ends[0].qp, 1, &frame, 1), 0);
    to_state(ends[0].qp, IBV_QPS_RTR);
    ck_assert_int_eq(post_send(ends[0].qp, 1, &frame, 1, 0), EINVAL);
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000};
    ck_assert_int_eq(ibv_modify_qp_rate_limit(ends[0].qp, &rate), EINVAL);
    to_state(ends[0].qp, IBV_QPS_RTS);
    ck_assert_int_eq(ibv_modify_qp_rate_limit(ends[0].qp, &rate), 0);
    ck_assert_int_eq(post_send(ends[0].qp, 2, &frame, 1, IBV_SEND_SIGNALED), 0);
    expect(ends[0].cq, 2, IBV_WC_SUCCESS);
    to_state(ends[0].qp, IBV_QPS_ERR);
    expect(ends[0].cq, 1, IBV_WC_WR_FLUSH_ERR);
    to_state(ends[0].qp, IBV_QPS_RESET);
    ck_assert_int_eq(post_recv(ends[0].qp, 1, &frame, 1), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &attr, IBV_QP_STATE), EINVAL); /* no port */
    attr.qp_state = IBV_QPS_RESET;
    ck_assert_int_eq(ibv_modify_qp(ends[0].qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
}

TEST(what_is_in_use_cannot_be_destroyed)
{
    open_wire(8, 8);
    flow = steer(ends[0].qp, GROUP, PORT);
    ck_assert_int_eq(ibv_destroy_qp(ends[0].qp), EBUSY);
    ck_assert_int_eq(ibv_destroy_cq(ends[0].cq), EBUSY);
    ck_assert_int_eq(ibv_destroy_comp_channel(ends[0].completions), EBUSY);
    ck_assert_int_eq(ibv_dealloc_pd(ends[0].pd), EBUSY);
    ibv_destroy_flow(flow);
    flow = NULL;
    void *nowhere = (void *)16; /* no memory there */
    ck_assert_ptr_null(ibv_reg_mr(ends[0].pd, nowhere, 100, IBV_ACCESS_LOCAL_WRITE));
    ck_assert_int_eq(errno, EFAULT);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, timeout_ms) == 1;
}

TEST(a_channel_tells_of_completions_after_it_was_asked)
{
    struct ibv_cq *cq;
    void *context;

    open_wire(64, 64);
    fcntl(ends[1].completions->fd, F_SETFL, O_NONBLOCK);
    ck_assert_int_eq(ibv_get_cq_event(ends[1].completions, &cq, &context), -1);
    ck_assert_int_eq(errno, EAGAIN);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    for (int i = 0; i < 3; i++)
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 0), 0);
    ck_assert(!is_readable(ends[1].completions->fd, 0));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    ck_assert(is_readable(ends[1].completions->fd, TIMEOUT_MS));
    ck_assert_int_eq(ibv_get_cq_event(ends[1].completions, &cq, &context), 0);
    ck_assert_ptr_eq(cq, ends[1].cq);
    ck_assert_ptr_eq(context, &ends[1]);
    for (int i = 0; i < 3; i++)
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    ck_assert(!is_readable(ends[1].completions->fd, 0)); /* one question, one answer */
    /* What is not read is forgotten with the queue. */
    ck_assert_int_eq(ibv_req_notify_cq(ends[1].cq, 0), 0);
    ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    ck_assert(is_readable(ends[1].completions->fd, TIMEOUT_MS));
    ibv_ack_cq_events(ends[1].cq, 1);
    ck_assert_int_eq(ibv_destroy_qp(ends[1].qp) | ibv_destroy_cq(ends[1].cq), 0);
    ck_assert(!is_readable(ends[1].completions->fd, 0));
    ends[1].qp = NULL;
    ends[1].cq = NULL;
}

static void expect_event(struct end *end, enum ibv_event_type type)
{
    struct ibv_async_event event;

    ck_assert(is_readable(end->id->verbs->async_fd, TIMEOUT_MS));
    ck_assert_int_eq(ibv_get_async_event(end->id->verbs, &event), 0);
    ck_assert_str_eq(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
    ibv_ack_async_event(&event);
}

TEST(a_completion_queue_that_is_full_fails)
{
    open_wire(3, 64);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    expect_event(&ends[1], IBV_EVENT_CQ_ERR);
    expect_event(&ends[1], IBV_EVENT_QP_FATAL);
    for (int i = 0; i < 3; i++)
        expect(ends[1].cq, 77, IBV_WC_SUCCESS);
    ck_assert_int_eq(state_of(ends[1].qp), IBV_QPS_ERR);
}

/* The kernel drops frames of an interface between its first flag and the end of its activation. */
static void wait_link_up(struct end *end)
{
    int64_t until = now_ns() + TIMEOUT_MS * INT64_C(1000000);
    struct ibv_port_attr port;

    do {
        ck_assert_int_eq(ibv_query_port(end->id->verbs, 1, &port), 0);
        ck_assert_msg(now_ns() < until, "the port stays down");
    } while (port.state != IBV_PORT_ACTIVE);
    /* The activation holds the lock of all links; this change waits for the lock. */
    ck_assert_int_eq(system("ip link set veth1 up"), 0);
}

TEST(an_interface_that_goes_takes_its_device_with_it)
{
    open_wire(64, 64);
    flow = steer(ends[0].qp, GROUP, PORT);
    struct ibv_sge room = part(&ends[0], 0, FRAME_BYTES);
    ck_assert_int_eq(post_recv(ends[0].qp, 1, &room, 1), 0);
    ck_assert_int_eq(system("ip link set veth0 down"), 0);
    expect_event(&ends[0], IBV_EVENT_PORT_ERR);
    struct ibv_port_attr port;
    ck_assert_int_eq(ibv_query_port(ends[0].id->verbs, 1, &port), 0);
    ck_assert_int_eq(port.state, IBV_PORT_DOWN);
    ck_assert_int_eq(system("ip link set veth0 up"), 0);
    expect_event(&ends[0], IBV_EVENT_PORT_ACTIVE);
    wait_link_up(&ends[1]);
    ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    expect(ends[0].cq, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(post_recv(ends[0].qp, 2, &room, 1), 0);
    ck_assert_int_eq(system("ip link del veth0"), 0);
    struct ibv_async_event event;
    do { /* it may be seen to be down before */
        ck_assert(is_readable(ends[0].id->verbs->async_fd, TIMEOUT_MS));
        ck_assert_int_eq(ibv_get_async_event(ends[0].id->verbs, &event), 0);
    } while (event.event_type == IBV_EVENT_PORT_ERR);
    ck_assert_int_eq(event.event_type, IBV_EVENT_DEVICE_FATAL);
    expect(ends[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
    ck_assert_ptr_null(ibv_alloc_pd(ends[0].id->verbs));
    ck_assert_int_eq(errno, EIO);
}

TEST(failures_come_when_asked_for)
{
    setenv("CBF_FAKE_VERBS_FAIL", "ibv_alloc_pd:ENOMEM@6,completion:IBV_WC_RETRY_EXC_ERR@3", 1);
    open_wire(64, 64);
    struct ibv_pd *pd = ibv_alloc_pd(ends[0].id->verbs); /* two of each end's before */
    ck_assert_ptr_nonnull(pd);
    ibv_dealloc_pd(pd);
    ck_assert_ptr_null(ibv_alloc_pd(ends[0].id->verbs));
    ck_assert_int_eq(errno, ENOMEM);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(send_frame(GROUP, PORT, 60), 0);
    for (int i = 0; i < 4; i++)
        expect(ends[1].cq, 77, i < 2 ? IBV_WC_SUCCESS : i == 2 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
}

/* ---- Memory of a file descriptor, rates -------------------------------------------------------------------------- */

TEST(memory_of_a_file_descriptor_is_written_and_sent)
{
    enum { AT = 8192 + 100, BYTES = 20000, IOVA = (1 << 30) + 100 };
    int fd = memfd_create("device memory", 0);

    ck_assert_int_eq(ftruncate(fd, AT + BYTES), 0);
    open_wire(64, 64);
    flow = steer(ends[0].qp, GROUP, PORT);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(ends[0].pd, AT, BYTES, IOVA, fd, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_ptr_nonnull(mr);
    struct ibv_sge room[2] = {part(&ends[0], 0, HEADER), {.addr = IOVA + 7, .length = 5000, .lkey = mr->lkey}};
    ck_assert_int_eq(post_recv(ends[0].qp, 1, room, 2), 0);
    random_bytes(ends[1].memory, 3000);
    ck_assert_int_eq(send_frame(GROUP, PORT, 3000), 0);
    expect(ends[0].cq, 1, IBV_WC_SUCCESS);
    uint8_t got[3000 - HEADER];
    ck_assert_int_eq(pread(fd, got, sizeof(got), AT + 7), sizeof(got));
    ck_assert_mem_eq(got, ends[1].memory + HEADER, sizeof(got));
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    close(fd);
}

TEST(a_rate_is_kept)
{
    enum { N = 500, BYTES = 5000, KBPS = 100000 }; /* 200 ms */
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = KBPS};
    struct ibv_sge frame;

    open_wire(64, N);
    frame = part(&ends[1], 0, BYTES);
    ck_assert_int_eq(ibv_modify_qp_rate_limit(ends[1].qp, &rate), 0);
    int64_t start = now_ns();
    for (uint64_t i = 0; i < N; i++)
        ck_assert_int_eq(post_send(ends[1].qp, i, &frame, 1, i == N - 1 ? IBV_SEND_SIGNALED : 0), 0);
    expect(ends[1].cq, N - 1, IBV_WC_SUCCESS);
    double seconds = (double)(now_ns() - start) * 1e-9, wanted = N * BYTES * 8 / (KBPS * 1e3);
    ck_assert_msg(seconds > 0.95 * wanted, "%g s instead of %g s", seconds, wanted);
}

static bool is_permitted(void)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0)
        _exit(unshare(CLONE_NEWNET) || system("ip link add veth0 type veth peer name veth1"));
    waitpid(child, &status, 0);
    return status == 0;
}

SUITE(.skip = is_permitted() ? NULL : "network namespaces are not permitted here", .timeout_s = 60,
      .setup = set_up_world, .teardown = close_wire, .start = random_start);
