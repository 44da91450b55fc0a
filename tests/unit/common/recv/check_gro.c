/* check_gro.c - packets that a sink joins and the kernel delivers joined.  Each packet must arrive as if sent alone, in
 * order, wherever the messages begin and end.
 *
 * The test records each packet sent to an endpoint, and compares the received packets with the record. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/sink.h"
#include "common/recv/source.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/test_packets.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POISON        0xa5
#define DATAGRAM_MAX  65507
#define ENDPOINTS_MAX 5
#define QUEUE_MAX     20000
#define PATIENCE_NS   (20 * NS_PER_S)
#define SINGLES       200 /* more than the source takes for joined traffic with gaps */

/* In the socket buffers at a time, counting each packet's book-keeping: what the kernel grants without asking. */
#define IN_FLIGHT_BYTES 150000
#define PACKET_OVERHEAD 1500

static char why[256];

/* ---- What is sent ------------------------------------------------------------------------------------------------ */

#define N_BEGINNINGS 8191

static uint8_t noise[DATAGRAM_MAX + N_BEGINNINGS];

/* The bytes of packet 'number': of noise, from a place of its own. */
static const uint8_t *content(unsigned number)
{
    return noise + number * 257 % N_BEGINNINGS;
}

struct queue {
    size_t n_sent, n_received, n_lent;
    struct {
        unsigned number;
        size_t n_bytes;
    } sent[QUEUE_MAX];
};

/* A sink and a source at the other end. */
static struct rig {
    struct endpoint_list list;
    struct recv_source *source;
    struct send_sink *sink;
    struct queue queues[ENDPOINTS_MAX];
    unsigned n_sent;
    size_t n_received;
    size_t in_flight_bytes;
    bool last_lent;
    int64_t busy_poll_ns;
} rig;

static void open_sink(void)
{
    const struct send_sink_config config = {
        .destinations = &rig.list, .interface = "lo", .ttl = 1, .buffer_bytes = 1 << 20};

    ck_assert_msg(send_sink_open(&config, &rig.sink, why, sizeof(why)) == 0, "%s", why);
}

static void open_source(size_t buffer_bytes)
{
    const struct recv_source_config config = {.endpoints = &rig.list,
                                              .interface = "lo",
                                              .buffer_bytes = buffer_bytes * rig.list.n,
                                              .busy_poll_ns = rig.busy_poll_ns};

    ck_assert_msg(recv_source_open(&config, &rig.source, why, sizeof(why)) == 0, "%s", why);
}

static void rig_open(size_t n_endpoints, bool multicast)
{
    const int64_t busy_polls_ns[] = {0, 0, 20 * NS_PER_US, 2 * PATIENCE_NS};
    unsigned ports[ENDPOINTS_MAX];
    int fds[ENDPOINTS_MAX];

    rig.busy_poll_ns = busy_polls_ns[random_below(ARRAY_LEN(busy_polls_ns))];
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)random_u64();
    for (size_t i = 0; i < ENDPOINTS_MAX; i++) { /* all at once, so that they are different ones */
        struct sockaddr_in address;
        fds[i] = bound_socket(&address);
        ports[i] = ntohs(address.sin_port);
    }
    for (size_t i = 0; i < ENDPOINTS_MAX; i++)
        close(fds[i]);
    if (multicast)
        parse(&rig.list, "239.81.%zu.%zu+%zu:%u", 1 + random_below(250), 1 + random_below(240), n_endpoints - 1,
              ports[0]);
    else
        parse(&rig.list, "127.0.0.1:%u 127.0.0.1:%u 127.0.0.1:%u 127.0.0.1:%u 127.0.0.1:%u", ports[0], ports[1],
              ports[2], ports[3], ports[4]);
    rig.list.n = n_endpoints;
    open_source(1 << 20);
    open_sink();
}

static void rig_close(void)
{
    send_sink_close(rig.sink);
    recv_source_close(rig.source);
    endpoint_list_fini(&rig.list);
    memset(&rig, 0, sizeof(rig));
}

/* Makes packet 'out' one of 'n_bytes', split between header and payload at random. */
static void make_packet(struct packet_out *out, unsigned destination, size_t n_bytes)
{
    struct queue *queue = &rig.queues[destination];
    size_t most = n_bytes < PACKET_SINK_HEADER_MAX ? n_bytes : PACKET_SINK_HEADER_MAX;
    unsigned number = rig.n_sent++;

    out->header_bytes = random_below(most + 1);
    memcpy(out->header, content(number), out->header_bytes);
    out->payload = content(number) + out->header_bytes;
    out->payload_bytes = n_bytes - out->header_bytes;
    out->destination = destination;
    ck_assert_uint_lt(queue->n_sent, QUEUE_MAX);
    queue->sent[queue->n_sent].number = number;
    queue->sent[queue->n_sent++].n_bytes = n_bytes;
    rig.in_flight_bytes += n_bytes + PACKET_OVERHEAD;
}

/* Sends 'n' packets of 'n_bytes' to one destination, in one batch. */
static void send_equal(unsigned destination, size_t n, size_t n_bytes)
{
    struct packet_out *packets = send_sink_alloc(rig.sink, n);

    for (size_t i = 0; i < n; i++)
        make_packet(&packets[i], destination, n_bytes);
    ck_assert_uint_eq(send_sink_send(rig.sink, packets, n), n);
}

/* ---- What is received -------------------------------------------------------------------------------------------- */

#define GUARD_BYTES 16

static uint8_t parts[PACKET_BATCH_MAX][3][GUARD_BYTES + PACKET_BYTES_MAX + GUARD_BYTES];
static struct packet_slot slots[PACKET_BATCH_MAX];
static size_t part_bytes[PACKET_BATCH_MAX][3];

static uint8_t *offer_part(size_t slot, size_t part, size_t n_bytes)
{
    uint8_t *start = parts[slot][part] + GUARD_BYTES;

    part_bytes[slot][part] = n_bytes;
    memset(start - GUARD_BYTES, POISON, GUARD_BYTES);
    memset(start + n_bytes, POISON, GUARD_BYTES);
    return part > 0 && n_bytes == 0 ? NULL : start;
}

/* Slots with parts of random sizes, now and then with room for any message. */
static void offer_slots(size_t n_slots)
{
    static const size_t most[] = {2, 300, 3000, 30000, PACKET_BYTES_MAX + 1};

    for (size_t i = 0; i < n_slots; i++) {
        struct packet_slot *slot = &slots[i];

        memset(slot, POISON, sizeof(*slot));
        slot->header_bytes = random_below(most[random_below(3)]);
        slot->payload_bytes = random_below(most[random_below(ARRAY_LEN(most))]);
        slot->spill_bytes = random_below(3) ? random_below(most[random_below(4)]) : PACKET_BYTES_MAX;
        slot->header = offer_part(i, 0, slot->header_bytes);
        slot->payload = offer_part(i, 1, slot->payload_bytes);
        slot->spill = offer_part(i, 2, slot->spill_bytes);
        slot->zero_copy = false;
    }
}

static void assert_guards(size_t n_slots)
{
    static const uint8_t guard[GUARD_BYTES] = {POISON, POISON, POISON, POISON, POISON, POISON, POISON, POISON,
                                               POISON, POISON, POISON, POISON, POISON, POISON, POISON, POISON};

    for (size_t i = 0; i < n_slots; i++)
        for (size_t part = 0; part < 3; part++)
            ck_assert(memcmp(parts[i][part], guard, GUARD_BYTES) == 0 &&
                      memcmp(parts[i][part] + GUARD_BYTES + part_bytes[i][part], guard, GUARD_BYTES) == 0);
}

/* Looks whether the packet is the next one that was sent to its endpoint. */
static void take_packet(size_t i)
{
    static uint8_t bytes[PACKET_BYTES_MAX];
    const struct packet_slot *slot = &slots[i];
    struct queue *queue = &rig.queues[slot->endpoint];
    size_t n_bytes = slot->packet_bytes, room = part_bytes[i][0] + part_bytes[i][1] + part_bytes[i][2];

    ck_assert_uint_lt(slot->endpoint, rig.list.n);
    ck_assert_uint_lt(queue->n_received, queue->n_sent);
    unsigned number = queue->sent[queue->n_received].number;
    ck_assert_uint_eq(n_bytes, queue->sent[queue->n_received].n_bytes);
    if (slot->zero_copy) {
        room = PACKET_BYTES_MAX;
        ck_assert_uint_eq(slot->header_bytes, n_bytes);
        ck_assert_uint_eq(slot->payload_bytes + slot->spill_bytes, 0);
    } else {
        ck_assert_ptr_eq(slot->header, parts[i][0] + GUARD_BYTES);
    }
    ck_assert_int_eq(slot->truncated, n_bytes > room);
    recv_packet_copy(slot, 0, n_bytes < room ? n_bytes : room, bytes);
    ck_assert_msg(memcmp(bytes, content(number), n_bytes < room ? n_bytes : room) == 0, "packet %u of %zu bytes%s",
                  number, n_bytes, slot->zero_copy ? ", lent" : "");
    queue->n_received++;
    queue->n_lent += slot->zero_copy;
    rig.n_received++;
    rig.in_flight_bytes -= n_bytes + PACKET_OVERHEAD;
    rig.last_lent = slot->zero_copy;
}

/* One call of recv.  Returns how many came. */
static size_t receive(size_t n_slots, int64_t timeout_ns)
{
    bool is_zero_copy = recv_source_is_zero_copy(rig.source);

    offer_slots(n_slots);
    if (is_zero_copy) /* then nothing need be offered, and none of these pointers is used */
        memset(slots, POISON, n_slots * sizeof(slots[0]));
    int n = recv_source_recv(rig.source, slots, n_slots, timeout_ns);

    ck_assert_int_ge(n, 0);
    ck_assert_uint_le(n, n_slots);
    for (size_t i = 0; i < (size_t)n; i++) {
        ck_assert_int_eq(slots[i].zero_copy, is_zero_copy || slots[0].zero_copy);
        take_packet(i);
    }
    assert_guards(n_slots);
    return (size_t)n;
}

/* Receives until no more than 'n_bytes' are on the way. */
static void receive_until(size_t n_bytes)
{
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

    while (rig.in_flight_bytes > n_bytes) {
        receive(1 + random_below(random_below(2) ? PACKET_BATCH_MAX : 4), 10 * NS_PER_MS);
        ck_assert_msg(clock_monotonic_ns() < deadline_ns, "%zu of %u packets came, %" PRIu64 " drops", rig.n_received,
                      rig.n_sent, recv_source_kernel_drops(rig.source));
    }
}

static void assert_all_came(void)
{
    int last_errno;

    receive_until(0);
    ck_assert_uint_eq(rig.n_received, rig.n_sent);
    ck_assert_uint_eq(receive(PACKET_BATCH_MAX, 0), 0);
    ck_assert_uint_eq(recv_source_kernel_drops(rig.source), 0);
    ck_assert_uint_eq(send_sink_n_failed(rig.sink, &last_errno), 0);
}

/* ---- Anything to anywhere ---------------------------------------------------------------------------------------- */

/* A batch in which runs of equal sizes, shorter and longer ones go to all destinations mixed. */
static void send_random_batch(void)
{
    static const size_t sizes[] = {0, 1, 8, 57, 500, 1472, 5192, 8264, 21000, 32753, 32754, DATAGRAM_MAX};
    struct packet_out *packets = send_sink_alloc(rig.sink, PACKET_SINK_BATCH_MAX);
    size_t n_max = 1 + random_below(PACKET_SINK_BATCH_MAX), n = 0;
    size_t stray = random_below(2) ? 20 : 3; /* one of so many begins a new run */
    unsigned n_destinations = 1 + (unsigned)random_below(rig.list.n);
    size_t run_bytes[ENDPOINTS_MAX];

    for (size_t d = 0; d < n_destinations; d++)
        run_bytes[d] = sizes[random_below(ARRAY_LEN(sizes))];
    while (n < n_max) {
        unsigned d = (unsigned)random_below(n_destinations);
        size_t n_bytes = run_bytes[d];

        if (random_below(stray) == 0)
            n_bytes = run_bytes[d] = sizes[random_below(ARRAY_LEN(sizes))];
        else if (random_below(stray) == 0)
            n_bytes = random_below(n_bytes + 1); /* and then as before */
        if (n > 0 && rig.in_flight_bytes + n_bytes + PACKET_OVERHEAD > IN_FLIGHT_BYTES)
            break;
        make_packet(&packets[n++], d, n_bytes);
    }
    ck_assert_uint_eq(send_sink_send(rig.sink, packets, n), n);
}

TEST(any_packets_arrive_in_order, .end = 6)
{
    size_t n_lent = 0;

    random_state += (uint64_t)_i * 1000003; /* each is forked with the same state */
    rig_open(1 + random_below(ENDPOINTS_MAX), _i % 2);
    for (size_t batch = 0; batch < 150; batch++) {
        send_random_batch();
        if (random_below(3) == 0)
            receive(1 + random_below(PACKET_BATCH_MAX), 0);
        receive_until(random_below(IN_FLIGHT_BYTES / 2));
    }
    assert_all_came();
    for (size_t e = 0; e < rig.list.n; e++)
        n_lent += rig.queues[e].n_lent;
    ck_assert_uint_gt(n_lent, rig.n_sent / 20); /* or this tests nothing */
}

/* The source goes from one way of receiving to the other and back, and loses nothing at the seams. */
TEST(phases_of_joined_and_single_packets, .end = 2)
{
    rig_open(1, _i % 2);
    for (size_t phase = 0; phase < 6; phase++) {
        size_t n_bytes = 1 + random_below(1400);

        for (size_t i = 0; i < 20; i++) {
            send_equal(0, 2 + random_below(30), n_bytes);
            receive_until(random_below(IN_FLIGHT_BYTES / 2));
        }
        if (phase % 2) /* else the first single ones are in the queue behind the last joined ones */
            receive_until(0);
        ck_assert(phase % 2 == 0 || (rig.last_lent && recv_source_is_zero_copy(rig.source)));
        for (size_t i = 0; i < SINGLES; i++) {
            send_equal(0, 1, random_below(1400));
            receive_until(random_below(IN_FLIGHT_BYTES / 2));
        }
        if (phase % 2 == 0)
            receive_until(0);
        ck_assert(phase % 2 == 1 || (!rig.last_lent && !recv_source_is_zero_copy(rig.source)));
    }
    assert_all_came();
}

TEST(one_socket_joined_another_single)
{
    rig_open(3, false);
    for (size_t i = 0; i < 100; i++) {
        send_equal(0, 2 + random_below(20), 700);
        for (size_t k = random_below(6); k > 0; k--)
            send_equal(1, 1, 700);
        send_equal(2, 1 + random_below(2), 700);
        receive_until(random_below(IN_FLIGHT_BYTES / 3));
    }
    assert_all_came();
    /* Only where packets come joined are they lent. */
    ck_assert_uint_eq(rig.queues[0].n_lent, rig.queues[0].n_received);
    ck_assert_uint_eq(rig.queues[1].n_lent, 0);
    ck_assert_uint_gt(rig.queues[2].n_lent, 0);
}

TEST(joined_packets_starve_nobody)
{
    const size_t n_messages = 40, n_packets = 50, n_slots = 4; /* as many messages a turn, either way */

    rig_open(3, true);
    for (size_t i = 0; i < n_messages; i++)
        for (unsigned e = 0; e < 2; e++)
            send_equal(e, n_packets, 8);
    send_equal(2, 1, 8);
    while (rig.n_received < rig.n_sent) {
        size_t a = rig.queues[0].n_received, b = rig.queues[1].n_received;

        ck_assert_uint_gt(receive(n_slots, PATIENCE_NS), 0);
        ck_assert_uint_le(a > b ? a - b : b - a, n_slots * n_packets);
        ck_assert(rig.queues[2].n_received == 1 || a + b <= 2 * n_slots * n_packets); /* one turn of each */
    }
    assert_all_came();
}

TEST(what_does_not_come_is_not_waited_for, .end = 2)
{
    int64_t before_ns;

    rig_open(_i == 0 ? 1 : 3, false); /* the only socket waits in a way of its own */
    send_equal(0, 30, 100);
    receive_until(0);
    ck_assert(rig.last_lent);
    before_ns = clock_monotonic_ns();
    ck_assert_uint_eq(receive(5, 0), 0);
    ck_assert_uint_eq(receive(5, 2500 * NS_PER_US), 0);
    ck_assert_uint_eq(receive(5, 60 * NS_PER_MS), 0); /* each time as long as it says */
    ck_assert_int_ge(clock_monotonic_ns() - before_ns, 62500 * NS_PER_US);
    /* Part of a second is rounded up to whole microseconds. */
    send_equal(0, 1, 100);
    while (rig.n_received < rig.n_sent)
        receive(5, NS_PER_S - 1);
    /* What is lent already does not wait for more. */
    send_equal(0, 30, 100);
    while (rig.n_received < rig.n_sent) {
        size_t n_left = rig.n_sent - rig.n_received;
        ck_assert_uint_eq(receive(7, PATIENCE_NS), n_left < 7 ? n_left : 7);
    }
    ck_assert_int_lt(clock_monotonic_ns() - before_ns, PATIENCE_NS);
}

TEST(drops_of_joined_packets_are_told)
{
    const uint64_t n_messages = 60, n_packets = 40;
    uint64_t n_received = 0, n_lost, n_drops;
    int n;

    rig_open(1, false);
    recv_source_close(rig.source);
    open_source(30000);
    for (uint64_t i = 0; i < n_messages; i++)
        send_equal(0, n_packets, 1000);
    while (offer_slots(16), (n = recv_source_recv(rig.source, slots, 16, 50 * NS_PER_MS)) > 0)
        n_received += (uint64_t)n;
    /* The kernel says it with the next packet. */
    send_equal(0, 1, 1000);
    offer_slots(1);
    ck_assert_int_eq(recv_source_recv(rig.source, slots, 1, PATIENCE_NS), 1);
    n_lost = n_messages * n_packets - n_received;
    n_drops = recv_source_kernel_drops(rig.source);
    ck_assert_uint_gt(n_lost, 0); /* or this tests nothing */
    ck_assert_msg(n_drops == n_lost / n_packets || n_drops == n_lost, "%" PRIu64 " drops, %" PRIu64 " packets lost",
                  n_drops, n_lost);
}

/* ---- What a sink joins ------------------------------------------------------------------------------------------- */

/* Packets of a batch to one destination, and how many each message has of them. */
static const struct {
    size_t sizes[PACKET_SINK_BATCH_MAX];
    size_t n_sizes;
    size_t messages[PACKET_SINK_BATCH_MAX];
} joinings[] = {
    {{100, 100, 100}, 3, {3}},
    {{100, 100, 99}, 3, {3}},
    {{100, 99, 99}, 3, {2, 1}},
    {{100, 99, 100, 100}, 4, {2, 2}},
    {{99, 100, 100}, 3, {1, 2}},
    {{1, 1, 2, 1, 1}, 5, {2, 2, 1}},
    {{0, 0, 0}, 3, {1, 1, 1}}, /* an empty one is nothing in a message */
    {{100, 0, 0, 100, 100}, 5, {1, 1, 1, 2}},
    {{0, 100, 100, 0}, 4, {1, 2, 1}},
    {{32700, 32700}, 2, {2}}, /* with a few bytes more, loopback takes them apart again */
    {{32754, 32754}, 2, {1, 1}},
    {{16300, 16300, 16300, 16300, 16300}, 5, {4, 1}},
    {{DATAGRAM_MAX, 1, DATAGRAM_MAX}, 3, {1, 1, 1}},
};

TEST(what_a_sink_joins, .end = ARRAY_LEN(joinings))
{
    struct sockaddr_in address;
    const int fd = bound_socket(&address), on = 1;
    const struct timeval patience = {.tv_sec = PATIENCE_NS / NS_PER_S};
    uint8_t bytes[PACKET_BYTES_MAX];
    struct packet_out *packets;
    size_t next = 0;

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)random_u64();
    ck_assert_int_eq(setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    parse(&rig.list, "127.0.0.1:%u", ntohs(address.sin_port));
    open_sink();
    packets = send_sink_alloc(rig.sink, joinings[_i].n_sizes);
    for (size_t i = 0; i < joinings[_i].n_sizes; i++)
        make_packet(&packets[i], 0, joinings[_i].sizes[i]);
    ck_assert_uint_eq(send_sink_send(rig.sink, packets, joinings[_i].n_sizes), joinings[_i].n_sizes);
    for (size_t m = 0; next < joinings[_i].n_sizes; m++) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec iovec = {bytes, sizeof(bytes)};
        struct msghdr message = {
            .msg_iov = &iovec, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t n_bytes = recvmsg(fd, &message, 0);
        size_t at = 0;

        ck_assert_int_eq(CMSG_FIRSTHDR(&message) != NULL, joinings[_i].messages[m] > 1);
        if (CMSG_FIRSTHDR(&message)) {
            int segment_bytes;

            memcpy(&segment_bytes, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(segment_bytes));
            ck_assert_int_eq(segment_bytes, (int)joinings[_i].sizes[next]);
        }
        for (size_t i = 0; i < joinings[_i].messages[m]; i++, next++) {
            ck_assert_int_le((ssize_t)(at + joinings[_i].sizes[next]), n_bytes);
            ck_assert(memcmp(bytes + at, content((unsigned)next), joinings[_i].sizes[next]) == 0);
            at += joinings[_i].sizes[next];
        }
        ck_assert_int_eq((ssize_t)at, n_bytes);
    }
    close(fd);
}

/* Gives this process a network of its own, whose packets are no longer than 'mtu'.  Returns whether it may. */
static bool enter_narrow_network(int mtu)
{
    struct ifreq request = {.ifr_name = "lo"};

    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
        printf("check_gro: no network of its own (%s), so narrow routes are not tested\n", strerror(errno));
        return false;
    }
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    request.ifr_mtu = mtu;
    ck_assert_int_eq(ioctl(fd, SIOCSIFMTU, &request), 0);
    request.ifr_flags = IFF_UP;
    ck_assert_int_eq(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
    return true;
}

/* Packets longer than the route's MTU cannot be joined; each is taken alone, and comes in fragments. */
TEST(joined_packets_too_long_for_the_route, .end = 2)
{
    if (!enter_narrow_network(600))
        return;
    rig_open(3, false);
    for (size_t i = 0; i < 5; i++)
        send_equal(0, 10, 500);
    receive_until(0);
    ck_assert_uint_eq(rig.queues[0].n_lent, 50); /* so far, they fit */
    for (size_t round = 0; round < 20; round++) {
        struct packet_out *packets = send_sink_alloc(rig.sink, 30);

        for (size_t i = 0; i < 30; i++)
            make_packet(&packets[i], i % 3,
                        i % 3 != 1 ? 400 + i / 25 : (_i == 0 ? 1500 : 900) - i / 28); /* gathered or not */
        ck_assert_uint_eq(send_sink_send(rig.sink, packets, 30), 30);
        receive_until(0);
    }
    for (size_t i = 0; i < SINGLES; i++) { /* of which the source notices */
        send_equal(0, 2, 500);
        receive_until(0);
    }
    ck_assert(!rig.last_lent);
    ck_assert_uint_eq(rig.queues[1].n_lent, 0);
    assert_all_came();
}

/* ---- A network that takes nothing -------------------------------------------------------------------------------- */

static size_t n_refusals; /* to come */
static int refusal;

/* In the C library's place. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
    if (n_refusals > 0) {
        n_refusals--;
        errno = refusal;
        return -1;
    }
    return (int)syscall(SYS_sendmmsg, fd, messages, n, flags);
}

/* Room is waited for, but not when it is time to give up: then each packet fails at once. */
TEST(who_gives_up_does_not_wait_for_room, .end = 4)
{
    enum { N = 3 };
    struct inbox *return_to;
    struct inbox_item item;
    struct buffer_ref ref;
    int last_errno;
    bool late = _i % 2;

    refusal = _i / 2 ? ENOBUFS : EAGAIN;
    parse(&rig.list, "127.0.0.1:%u 127.0.0.1:%u 127.0.0.1:%u", free_port(), free_port(), free_port());
    open_sink();
    ck_assert_int_eq(inbox_create(1, &return_to), 0);
    buffer_ref_init(&ref, return_to, (struct inbox_item){0});
    buffer_ref_set(&ref, 1);
    struct packet_out *packets = send_sink_alloc(rig.sink, N);
    for (size_t i = 0; i < N; i++)
        make_packet(&packets[i], i, 100);
    packets[N - 1].ref = &ref;
    send_sink_set_deadline(rig.sink, clock_monotonic_ns() + (late ? 0 : 3600 * NS_PER_S));
    n_refusals = late ? SIZE_MAX : 10;
    ck_assert_uint_eq(send_sink_send(rig.sink, packets, N), late ? 0 : N);
    ck_assert_uint_eq(send_sink_n_failed(rig.sink, &last_errno), late ? N : 0);
    ck_assert_int_eq(last_errno, late ? refusal : 0);
    ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
    n_refusals = 0;
    inbox_destroy(return_to);
}

/* ---- Loans ------------------------------------------------------------------------------------------------------- */

/* A buffer that somebody overwrites as soon as it comes home. */
struct lent_buffer {
    struct buffer_ref ref;
    struct inbox *return_to, *done;
    uint8_t bytes[100];
};

static void *overwrite(void *arg)
{
    struct lent_buffer *buffer = arg;
    struct inbox_item item;

    while (inbox_pop(buffer->return_to, &item) == 0) {
        memset(buffer->bytes, POISON, sizeof(buffer->bytes));
        inbox_push(buffer->done, &item);
    }
    return NULL;
}

/* The list's last packet carries the loan but joins the first, so it leaves before the others. */
TEST(a_loan_ends_when_all_have_left)
{
    static struct lent_buffer buffer;
    const size_t n = PACKET_SINK_BATCH_MAX;
    struct thread thread;
    struct inbox_item item;
    uint8_t got[sizeof(buffer.bytes)];
    struct sockaddr_in address;
    int fds[3];
    unsigned ports[3];

    for (size_t i = 0; i < 3; i++) {
        fds[i] = bound_socket(&address);
        ports[i] = ntohs(address.sin_port);
    }
    const int checked[] = {fds[0], fds[0], fds[2]};
    parse(&rig.list, "127.0.0.1:%u 127.0.0.1:%u 127.0.0.1:%u", ports[0], ports[1], ports[2]);
    open_sink();
    ck_assert_int_eq(inbox_create(2, &buffer.return_to), 0);
    ck_assert_int_eq(inbox_create(2, &buffer.done), 0);
    buffer_ref_init(&buffer.ref, buffer.return_to, (struct inbox_item){.object = &buffer});
    ck_assert_int_eq(thread_start(&thread, "overwrite", -1, overwrite, &buffer), 0);
    for (size_t round = 0; round < 20; round++) {
        struct packet_out *packets = send_sink_alloc(rig.sink, n);

        memset(buffer.bytes, (int)round + 1, sizeof(buffer.bytes));
        buffer_ref_set(&buffer.ref, 1);
        for (size_t i = 0; i < n; i++) { /* those in between, which nobody reads, take time to send */
            packets[i].destination = i == 0 || i == n - 1 ? 0 : i == n - 2 ? 2 : 1;
            packets[i].payload = packets[i].destination == 1 ? noise : buffer.bytes;
            packets[i].payload_bytes = packets[i].destination == 1 ? DATAGRAM_MAX : sizeof(buffer.bytes);
        }
        packets[n - 1].ref = &buffer.ref;
        ck_assert_uint_eq(send_sink_send(rig.sink, packets, n), n);
        ck_assert_int_eq(inbox_pop(buffer.done, &item), 0);
        for (size_t i = 0; i < ARRAY_LEN(checked); i++) {
            ck_assert_int_eq(recv(checked[i], got, sizeof(got), 0), sizeof(got));
            for (size_t k = 0; k < sizeof(got); k++)
                ck_assert_uint_eq(got[k], round + 1);
        }
    }
    inbox_stop(buffer.return_to);
    thread_join(&thread);
    ck_assert_int_eq(inbox_try_pop(buffer.done, &item), -EAGAIN);
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
    inbox_destroy(buffer.return_to);
    inbox_destroy(buffer.done);
}

SUITE(.timeout_s = 60, .teardown = rig_close, .start = random_start);
