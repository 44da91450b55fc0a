/* check_source_verbs.c - packets that a NIC's queue lends, over the software libibverbs of tests/fakes/verbs.
 *
 * Each test has a network namespace with its own wire.  If namespaces are not permitted, the tests are skipped.
 * tests/system/test_verbs_recv.py tests whole daemons. */
#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/recv/source.h"
#include "common/base/units.h"
#include "tests/unit/test_packets.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MTU         9000
#define PAYLOAD_MAX (MTU - 28)
#define RING_LEAST  256 /* frames, whatever is asked for */
#define PATIENCE_NS (10 * NS_PER_S)

static char why[512];

/* ---- The wire ---------------------------------------------------------------------------------------------------- */

static const char *const wire = "ip link set lo up && ip link add veth0 mtu 9000 type veth peer name veth1 mtu 9000 && "
                                "ip address add 10.60.0.1/24 dev veth0 && ip link set veth0 up && ip link set veth1 up";
static const char *sender_address = "10.60.0.2"; /* in its packets */
static int sender;
static struct endpoint_list endpoints;
static struct recv_source *source;

/* A socket that puts frames onto the other end, and the endpoints of the text. */
static void set_up(const char *text)
{
    struct sockaddr_ll end = {.sll_family = AF_PACKET};

    ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
    ck_assert_int_eq(system(wire), 0);
    end.sll_ifindex = (int)if_nametoindex("veth1");
    sender = socket(AF_PACKET, SOCK_RAW, 0);
    ck_assert_int_eq(bind(sender, (struct sockaddr *)&end, sizeof(end)), 0);
    ck_assert_msg(endpoint_list_parse(text, &endpoints, why, sizeof(why)) == 0, "%s", why);
}

static int prepare_source(const char *interface, int comp_vector)
{
    const struct recv_source_config config = {
        .endpoints = &endpoints, .interface = interface, .transport = TRANSPORT_IBVERBS, .comp_vector = comp_vector};

    memset(why, 0, sizeof(why));
    return recv_source_open(&config, &source, why, sizeof(why));
}

static int open_source(const char *interface, int comp_vector)
{
    int err = prepare_source(interface, comp_vector);
    if (err)
        return err;
    err = recv_source_enable(source, why, sizeof(why));
    if (err)
        recv_source_close(source);
    return err;
}

static void tear_down(void)
{
    recv_source_close(source);
    endpoint_list_fini(&endpoints);
    close(sender);
}

/* Sends packet number 'packet' to an endpoint's address and another port than its own if 'port' is not 0. */
static void send_packet(const struct endpoint *to, uint16_t port, unsigned packet, size_t n_bytes)
{
    static uint8_t frame[FRAME_HEADER_BYTES + PAYLOAD_MAX];
    const struct frame_addresses from = {.mac = {2, 0, 0, 0, 0, 9}, .address = inet_addr(sender_address), .ttl = 1};
    struct endpoint other = *to;
    uint8_t mac[6] = {0};

    if (port)
        other.port = port;
    frame_put(frame, &from, &other, endpoint_is_multicast(to) ? NULL : mac, n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        frame[FRAME_HEADER_BYTES + i] = pattern(packet, i);
    ck_assert_int_eq(send(sender, frame, FRAME_HEADER_BYTES + n_bytes, 0), (ssize_t)(FRAME_HEADER_BYTES + n_bytes));
}

static void assert_packet(const struct packet_slot *slot, unsigned packet, size_t n_bytes, unsigned endpoint)
{
    ck_assert(slot->zero_copy && !slot->truncated);
    ck_assert_uint_eq(slot->packet_bytes, n_bytes);
    ck_assert_uint_eq(slot->header_bytes, n_bytes);
    ck_assert_uint_eq(slot->payload_bytes + slot->spill_bytes, 0);
    ck_assert_uint_eq(slot->endpoint, endpoint);
    for (size_t i = 0; i < n_bytes; i++)
        if (slot->header[i] != pattern(packet, i))
            ck_abort_msg("byte %zu of packet %u is %u", i, packet, slot->header[i]);
}

/* ---- What comes -------------------------------------------------------------------------------------------------- */

/* In order, whole, of any size, several times round the ring; and what was lent keeps until the next call. */
TEST(packets_are_lent, .first = -1, .end = 1)
{
    static size_t sizes[10 * RING_LEAST];
    static unsigned to[10 * RING_LEAST];
    struct packet_slot slots[PACKET_BATCH_MAX];
    unsigned n_sent = 0, n_taken = 0;
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

    set_up("239.1.2.3+30:7000,239.1.2.3:7001,239.1.2.200:7000");
    ck_assert_msg(open_source("veth0", _i) == 0, "%s", why);
    ck_assert(recv_source_is_zero_copy(source) && !recv_source_can_wait(source));
    while (n_taken < ARRAY_LEN(sizes)) {
        unsigned n_more = 1 + (unsigned)random_below(RING_LEAST - 2 * PACKET_BATCH_MAX);
        for (; n_more > 0 && n_sent < ARRAY_LEN(sizes); n_more--, n_sent++) {
            sizes[n_sent] = random_below(4) ? random_below(300) : random_below(PAYLOAD_MAX + 1);
            to[n_sent] = (unsigned)random_below(endpoints.n);
            if (random_below(8) == 0)
                send_packet(&endpoints.items[to[n_sent]], 6999, 0, 100);
            send_packet(&endpoints.items[to[n_sent]], 0, n_sent, sizes[n_sent]);
        }
        while (n_taken < n_sent) {
            int n = recv_source_recv(source, slots, 1 + random_below(PACKET_BATCH_MAX), 100 * NS_PER_MS);
            ck_assert_int_ge(n, 0);
            ck_assert(clock_monotonic_ns() < deadline_ns);
            for (int i = 0; i < n; i++, n_taken++)
                assert_packet(&slots[i], n_taken, sizes[n_taken], to[n_taken]);
        }
    }
}

/* Packets that find no frame are lost and counted, and do not touch those that are lent. */
TEST(a_full_ring)
{
    const unsigned n_first = 10, n_more = 300;
    struct packet_slot slots[PACKET_BATCH_MAX];
    char directory[] = "/tmp/check-verbs-XXXXXX";
    unsigned n_taken = 0, n_lent = 0; /* in the last call */
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

    set_up("239.1.2.3:7000");
    setenv("CBF_FAKE_VERBS_DIR", mkdtemp(directory), 1);
    ck_assert_msg(open_source("veth0", 0) == 0, "%s", why);
    for (unsigned i = 0; i < n_first; i++)
        send_packet(&endpoints.items[0], 0, i, 1000);
    for (; n_taken < n_first; n_taken += n_lent) {
        int n = recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS);
        ck_assert_int_gt(n, 0);
        n_lent = (unsigned)n;
    }
    ck_assert_uint_eq(recv_source_kernel_drops(source), 0);
    for (unsigned i = 0; i < n_more; i++)
        send_packet(&endpoints.items[0], 0, n_first + i, 1000);
    while (recv_source_kernel_drops(source) < n_more - (RING_LEAST - n_lent))
        ck_assert(clock_monotonic_ns() < deadline_ns);
    for (unsigned i = 0; i < n_lent; i++)
        assert_packet(&slots[i], n_first - n_lent + i, 1000, 0);
    while (n_taken < n_first + RING_LEAST - n_lent) {
        int n = recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS);
        ck_assert_int_gt(n, 0);
        for (int i = 0; i < n; i++, n_taken++)
            assert_packet(&slots[i], n_taken, 1000, 0);
    }
    ck_assert_uint_eq(recv_source_kernel_drops(source), n_more - (RING_LEAST - n_lent));
}

/* Rules for single addresses keep others away; where networks may send, or the card takes no such rule, all come and
 * say who sent them. */
static const struct {
    const char *from, *fail;
    bool stranger_comes;
} sender_cases[] = {
    {NULL, NULL, true},
    {"10.60.0.2", NULL, false},
    {"10.60.0.9, 10.60.0.2", NULL, false},
    {"10.60.0.2/31", NULL, true},
    {"10.60.0.9, 10.60.0.2", "ibv_create_flow:EOPNOTSUPP@2", true},
};

TEST(others_are_kept_away, .end = ARRAY_LEN(sender_cases))
{
    struct packet_slot slots[PACKET_BATCH_MAX];
    struct access from;

    set_up("239.1.2.3:7000");
    ck_assert_int_eq(access_parse(sender_cases[_i].from, &from, why, sizeof(why)), 0);
    endpoints.items[0].from = &from;
    if (sender_cases[_i].fail)
        setenv("CBF_FAKE_VERBS_FAIL", sender_cases[_i].fail, 1);
    ck_assert_msg(open_source("veth0", 0) == 0, "%s", why);
    sender_address = "10.60.0.3";
    send_packet(&endpoints.items[0], 0, 1, 300);
    sender_address = "10.60.0.2";
    send_packet(&endpoints.items[0], 0, 2, 301);
    for (unsigned packet = sender_cases[_i].stranger_comes ? 1 : 2; packet <= 2; packet++) {
        int n = recv_source_recv(source, slots, 1, PATIENCE_NS);
        ck_assert_int_eq(n, 1);
        assert_packet(&slots[0], packet, 299 + packet, 0);
        ck_assert_uint_eq(slots[0].sender, inet_addr(packet == 1 ? "10.60.0.3" : "10.60.0.2"));
    }
}

/* While a program gets ready, the ring does not fill with what is old then, nor overflow. */
TEST(nothing_comes_before_the_beginning, .first = -1, .end = 1)
{
    struct packet_slot slots[PACKET_BATCH_MAX];
    char directory[] = "/tmp/check-verbs-XXXXXX";

    set_up("239.1.2.3:7000,239.1.2.4:7000");
    setenv("CBF_FAKE_VERBS_DIR", mkdtemp(directory), 1);
    ck_assert_msg(prepare_source("veth0", _i) == 0, "%s", why);
    for (unsigned i = 0; i < 2 * RING_LEAST; i++)
        send_packet(&endpoints.items[i % 2], 0, i, 1000);
    ck_assert_msg(recv_source_enable(source, why, sizeof(why)) == 0, "%s", why);
    for (unsigned i = 0; i < 2; i++) {
        send_packet(&endpoints.items[i], 0, 7 + i, 500);
        ck_assert_int_eq(recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS), 1);
        assert_packet(&slots[0], 7 + i, 500, i);
    }
    ck_assert_uint_eq(recv_source_kernel_drops(source), 0);
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

TEST(a_wait_ends_in_time, .first = -1, .end = 1)
{
    struct packet_slot slot;

    set_up("239.1.2.3:7000");
    ck_assert_msg(open_source("veth0", _i) == 0, "%s", why);
    for (int64_t timeout_ns = 0; timeout_ns <= 40 * NS_PER_MS; timeout_ns += 20 * NS_PER_MS) {
        int64_t begin_ns = clock_monotonic_ns();
        ck_assert_int_eq(recv_source_recv(source, &slot, 1, timeout_ns), 0);
        ck_assert_int_ge(clock_monotonic_ns() - begin_ns, timeout_ns);
    }
}

/* What libibverbs does, but that a packet always comes between the last look and the wish for events. */
static struct ibv_context_ops real;
static struct ibv_wc kept;
static unsigned n_kept, n_sent;

static int poll_kept(struct ibv_cq *cq, int n, struct ibv_wc *completions)
{
    if (n_kept == 0)
        return real.poll_cq(cq, n, completions);
    completions[0] = kept;
    n_kept = 0;
    return 1;
}

static int notify_late(struct ibv_cq *cq, int solicited_only)
{
    send_packet(&endpoints.items[0], 0, n_sent++, 40);
    while (real.poll_cq(cq, 1, &kept) == 0)
        sched_yield();
    n_kept = 1;
    return real.req_notify_cq(cq, solicited_only);
}

/* Who sleeps as soon as events were asked for does not hear of it. */
TEST(no_packet_is_slept_over)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("10.60.0.1")};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct packet_slot slots[PACKET_BATCH_MAX];
    struct rdma_cm_id *id;

    set_up("239.1.2.3:7000");
    ck_assert_msg(open_source("veth0", 0) == 0, "%s", why);
    /* All who have opened a card share what is known of it. */
    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
    ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    struct ibv_context_ops *ops = &id->verbs->ops;
    real = *ops;
    ops->poll_cq = poll_kept;
    ops->req_notify_cq = notify_late;
    int64_t begin_ns = clock_monotonic_ns();
    ck_assert_int_eq(recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS), 1);
    ck_assert_int_lt(clock_monotonic_ns() - begin_ns, PATIENCE_NS / 2);
    assert_packet(&slots[0], 0, 40, 0);
    ck_assert_uint_eq(n_sent, 1);
    /* Asked for once, they still come, though nothing had to be waited for. */
    ck_assert_int_eq(recv_source_recv(source, slots, PACKET_BATCH_MAX, 20 * NS_PER_MS), 0);
    send_packet(&endpoints.items[0], 0, 7, 50);
    ck_assert_int_eq(recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS), 1);
    assert_packet(&slots[0], 7, 50, 0);
    *ops = real;
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

/* ---- What fails -------------------------------------------------------------------------------------------------- */

/* What came before an error is lent first; then the source is dead for ever. */
TEST(the_dead_stay_dead, .first = -1, .end = 1)
{
    struct packet_slot slots[PACKET_BATCH_MAX];
    unsigned n_taken = 0;
    int n;

    set_up("239.1.2.3:7000");
    setenv("CBF_FAKE_VERBS_FAIL", "completion:IBV_WC_GENERAL_ERR@31", 1);
    ck_assert_msg(open_source("veth0", _i) == 0, "%s", why);
    for (unsigned i = 0; i < 40; i++)
        send_packet(&endpoints.items[0], 0, i, 100);
    while ((n = recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS)) > 0)
        for (int i = 0; i < n; i++, n_taken++)
            assert_packet(&slots[i], n_taken, 100, 0);
    ck_assert_uint_eq(n_taken, 30);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(recv_source_recv(source, slots, PACKET_BATCH_MAX, PATIENCE_NS), -EIO);
}

TEST(a_start_that_fails, .end = 9)
{
    static const struct {
        const char *interface, *endpoints, *fail;
        int err;
        const char *says[2];
    } cases[] = {
        {"lo", "239.1.2.3", "", -ENODEV, {"recv.interface: ibverbs on lo: ", "transport: udp"}},
        {"veth1", "239.1.2.3", "", -ENODEV, {"recv.interface: ", "no IPv4 address"}},
        {"veth0", "10.9.9.9", "", -EADDRNOTAVAIL, {"10.9.9.9:7148: ", "nor an address of this host"}},
        {"veth0", "239.1.2.3", "ibv_create_qp:EPERM", -EPERM, {"recv.transport: ibverbs on veth0: ", "CAP_NET_RAW"}},
        {"veth0", "239.1.2.3", "ibv_create_qp:EINVAL", -EINVAL, {"of 256 frames", "(recv.buffer)"}},
        {"veth0", "239.1.2.3", "ibv_create_flow:EBUSY", -EBUSY, {"239.1.2.3:7148: ", "another program"}},
        {"veth0", "239.1.2.3", "ibv_create_flow:EOPNOTSUPP", -ENOTSUP, {"239.1.2.3:7148: ", "transport: udp"}},
        {"veth0", "239.1.2.3", "ibv_create_flow:EPERM", -EPERM, {"recv.transport: ", "CAP_NET_RAW"}},
        {"veth0", "239.1.2.3", "ibv_reg_mr:EIO", -EIO, {"recv.buffer: ibverbs on veth0: ", "2256 KiB"}},
    };

    set_up(cases[_i].endpoints);
    setenv("CBF_FAKE_VERBS_FAIL", cases[_i].fail, 1);
    ck_assert_int_eq(open_source(cases[_i].interface, 0), cases[_i].err);
    for (size_t k = 0; k < ARRAY_LEN(cases[_i].says); k++)
        ck_assert_msg(strstr(why, cases[_i].says[k]), "%s", why);
    source = NULL;
}

/* A ring of 2256 KiB; a queue of 256 entries, of 64 bytes at least.  'says' is of the limit. */
static const struct {
    const char *fail;
    rlim_t limit_bytes;
    int err;
    const char *says;
} limits[] = {
    {"ibv_reg_mr:ENOMEM", 64 << 10, -E2BIG, "recv.buffer: ibverbs on veth0: cannot register 2256 KiB of memory"},
    {"ibv_reg_mr:ENOMEM", 2255 << 10, -E2BIG, "the limit on locked memory is 2255 KiB; raise it"},
    {"ibv_reg_mr:ENOMEM", 2256 << 10, -ENOMEM, NULL},
    {"ibv_reg_mr:EIO", 64 << 10, -EIO, NULL},
    {"ibv_create_cq:ENOMEM", 12 << 10, -E2BIG, "recv.transport: ibverbs on veth0: cannot create a completion queue"},
    {"ibv_create_qp:ENOMEM", 12 << 10, -E2BIG, "the limit on locked memory is 12 KiB; raise it"},
    {"ibv_create_qp:ENOMEM", 16 << 10, -ENOMEM, NULL},
    {"ibv_alloc_pd:ENOMEM", 4 << 10, -ENOMEM, NULL}, /* which locks nothing */
};

/* Only where the limit is what is in the way, it is named, and no restart cures that. */
TEST(the_limit_is_named_where_it_is_hit, .end = ARRAY_LEN(limits))
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    struct rlimit limit = {.rlim_cur = limits[_i].limit_bytes, .rlim_max = limits[_i].limit_bytes};

    set_up("239.1.2.3");
    setenv("CBF_FAKE_VERBS_FAIL", limits[_i].fail, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
    ck_assert_int_eq(open_source("veth0", 0), limits[_i].err);
    ck_assert_msg(limits[_i].says ? strstr(why, limits[_i].says) != NULL : !strstr(why, "limit on locked memory"), "%s",
                  why);
    source = NULL;
}

/* Where memory may not be locked, a restart cures nothing, and the limit is named. */
TEST(locked_memory_is_limited)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    struct rlimit limit = {.rlim_cur = 64 << 10, .rlim_max = 64 << 10};

    set_up("239.1.2.3");
    setenv("CBF_FAKE_VERBS_FAIL", "ibv_reg_mr:ENOMEM", 1);
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
    if (data[0].effective >> CAP_IPC_LOCK & 1)
        ck_assert_int_eq(open_source("veth0", 0), -ENOMEM);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
    ck_assert_int_eq(open_source("veth0", 0), -E2BIG);
    ck_assert_msg(strstr(why, "recv.buffer: ibverbs on veth0: ") && strstr(why, "limit on locked memory is 64 KiB"),
                  "%s", why);
    source = NULL;
}

static bool may_make_wires(void)
{
    int status = 1;
    pid_t child = fork();

    if (child == 0)
        _exit(unshare(CLONE_NEWNET) || system(wire));
    waitpid(child, &status, 0);
    return status == 0;
}

SUITE(.skip = may_make_wires() ? NULL : "network namespaces are not permitted here", .timeout_s = 60,
      .teardown = tear_down, .start = random_start);
