/* bench_feed.c - sends SPEAD heaps over loopback to a receiver under test, as fast as the receiver takes them.
 *
 * Usage: bench_feed SHAPE DESTINATIONS N_HEAPS JOIN N_SOURCES SHUFFLE IN_FLIGHT_BYTES CPU
 *   SHAPE:        KIND:PAYLOAD, as in bench_shapes.h.
 *   DESTINATIONS: a list of endpoints, as in a configuration.
 *   N_HEAPS:      heaps of each source to each destination.  Digitiser heaps go to the destinations in turn, as to
 *                 the digitiser's multicast groups, unless IN_FLIGHT_BYTES is 0.
 *   JOIN:         1: a message has as many packets as fit (UDP_SEGMENT); 0: a message has one packet.
 *   SHUFFLE:      number of packets in a group.  The packets of a group, from one source to one destination, are sent
 *                 in random order; 1: all packets are in order.
 * Sources and destinations take turns, message by message.  Stop heaps follow until the receiver has received one.
 *
 * IN_FLIGHT_BYTES > 0 limits the bytes that wait in the receiver's socket.  The kernel reports the number of these
 * bytes (sock_diag).  So no packet is lost, and only the receiver determines the speed.
 * IN_FLIGHT_BYTES 0 measures this program itself: the shortest loop that sends, without regard to losses.  The
 * payload then takes as much memory as the payload of the measured senders.
 * Prints one line of JSON: packets and bytes sent, total time, waiting time, and packets that the socket dropped. */
#include "common/base/clock.h"
#include "common/net/endpoint.h"
#include "common/net/spead.h"
#include "common/base/units.h"
#include "scripts/bench/bench_shapes.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PACKETS_MAX       128 /* largest number of packets in a system call */
#define JOINED_MAX        64  /* largest number of packets joined in a message; every Linux allows 64 */
#define DATAGRAM_MAX      65507
#define HEADER_MAX        128
#define SHUFFLE_MAX       64
#define N_STOPS           5
/* approximate upper limit of a packet's memory in a socket, divided by the packet's size */
#define SKB_TRUESIZE_RATE 2

/* The packets of one source to one destination. */
struct flow {
    struct sockaddr_in destination;
    size_t source, first_heap; /* first_heap: index of the flow's heap among the heaps of a timestamp */
    int64_t taker;             /* index of the destination among all destinations that share the timestamps */
    int64_t n_sent;            /* packets */
    uint16_t order[SHUFFLE_MAX];
};

struct feed {
    struct bench_shape shape;
    int fd, diag_fd;
    bool join;
    size_t n_sources, n_flows, next_flow;
    struct flow *flows; /* [n_flows] */
    int64_t n_packets_each, n_packets_left;
    int64_t n_takers; /* number of destinations that share the timestamps; 1: each destination gets all timestamps */
    int64_t shuffle;
    uint64_t random;
    size_t in_flight_bytes;
    int64_t n_times;  /* number of timestamps whose heaps 'payload' holds */
    uint8_t *payload; /* [n_times][n_flows][heap_bytes]; or one heap, which all flows send */
    uint64_t n_packets, n_bytes;
    int64_t wait_ns;
    uint8_t headers[PACKETS_MAX][HEADER_MAX];
    struct iovec iovecs[PACKETS_MAX][2];
    struct mmsghdr messages[PACKETS_MAX];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } controls[PACKETS_MAX];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_feed: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- What waits in the receiver's socket -------------------------------------------------------------------------- */

struct backlog {
    uint32_t n_bytes, n_dropped;
};

static struct backlog socket_backlog(struct feed *feed, const struct sockaddr_in *destination)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 request;
    } ask = {
        .header = {.nlmsg_len = sizeof(ask), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = AF_INET,
                    .sdiag_protocol = IPPROTO_UDP,
                    .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1)},
    };
    /* The kernel finds the socket that would receive a packet for this destination. */
    ask.request.id.idiag_dport = destination->sin_port;
    ask.request.id.idiag_dst[0] = destination->sin_addr.s_addr;
    ask.request.id.idiag_cookie[0] = ask.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    ask.request.idiag_states = ~0u;
    if (send(feed->diag_fd, &ask, sizeof(ask), 0) < 0)
        die("cannot ask for the receiver's backlog");
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } answer;
    ssize_t n = recv(feed->diag_fd, &answer, sizeof(answer), 0);
    if (n < 0 || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) {
        fprintf(stderr, "bench_feed: no socket receives at the destination\n");
        exit(1);
    }
    const struct inet_diag_msg *socket_state = NLMSG_DATA(&answer.header);
    struct backlog backlog = {socket_state->idiag_rqueue, 0};
    ssize_t left = (ssize_t)answer.header.nlmsg_len - (ssize_t)NLMSG_LENGTH(sizeof(*socket_state));
    for (struct rtattr *a = (struct rtattr *)(socket_state + 1); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == INET_DIAG_SKMEMINFO)
            backlog.n_dropped = ((uint32_t *)RTA_DATA(a))[SK_MEMINFO_DROPS];
    return backlog;
}

static struct backlog receiver_backlog(struct feed *feed)
{
    struct backlog sum = {0, 0};

    for (size_t f = 0; f < feed->n_flows; f += feed->n_sources) {
        struct backlog one = socket_backlog(feed, &feed->flows[f].destination);
        sum.n_bytes += one.n_bytes;
        sum.n_dropped += one.n_dropped;
    }
    return sum;
}

static void wait_for_receiver(struct feed *feed, size_t limit_bytes)
{
    int64_t since_ns = clock_monotonic_ns();

    while (receiver_backlog(feed).n_bytes > limit_bytes)
        ;
    feed->wait_ns += clock_monotonic_ns() - since_ns;
}

/* ---- Packets ------------------------------------------------------------------------------------------------------ */

/* Makes a random order for the next packets of a flow (Fisher-Yates shuffle, xorshift64). */
static void shuffle(struct feed *feed, struct flow *flow)
{
    for (int64_t i = 0; i < feed->shuffle; i++)
        flow->order[i] = (uint16_t)i;
    for (int64_t i = feed->shuffle - 1; i > 0; i--) {
        feed->random ^= feed->random << 13;
        feed->random ^= feed->random >> 7;
        feed->random ^= feed->random << 17;
        size_t j = feed->random % (uint64_t)(i + 1);
        uint16_t other = flow->order[j];
        flow->order[j] = flow->order[i];
        flow->order[i] = other;
    }
}

/* Returns the index of the packet that a flow sends next. */
static int64_t next_index(struct feed *feed, struct flow *flow)
{
    int64_t i = flow->n_sent++;

    if (feed->shuffle == 1)
        return i;
    if (i % feed->shuffle == 0)
        shuffle(feed, flow);
    return i - i % feed->shuffle + flow->order[i % feed->shuffle];
}

/* Prepares the flow's next packet as packet 'i' of the next system call.  Returns the packet's size. */
static size_t next_packet(struct feed *feed, struct flow *flow, size_t i)
{
    const struct bench_shape *shape = &feed->shape;
    int64_t per_heap = (int64_t)(shape->heap_bytes / shape->payload_bytes), index = next_index(feed, flow);
    int64_t time = index / per_heap * feed->n_takers + flow->taker;
    size_t offset = (size_t)(index % per_heap) * shape->payload_bytes;
    struct spead_item items[4];
    size_t n_items = bench_items(shape, flow->source, time * shape->heap_samples, items);
    size_t header_bytes = spead_build_header(feed->headers[i], ((uint64_t)time + 1) * feed->n_sources + flow->source,
                                             shape->heap_bytes, offset, shape->payload_bytes, items, n_items);
    size_t heap = (size_t)(time % feed->n_times) * feed->n_flows + flow->first_heap; /* 0: all flows send one heap */

    feed->iovecs[i][0] = (struct iovec){feed->headers[i], header_bytes};
    feed->iovecs[i][1] = (struct iovec){feed->payload + heap * shape->heap_bytes + offset, shape->payload_bytes};
    feed->n_packets_left--;
    return header_bytes + shape->payload_bytes;
}

static void begin_message(struct feed *feed, size_t m, struct flow *flow, size_t first)
{
    feed->messages[m].msg_hdr = (struct msghdr){
        .msg_name = &flow->destination,
        .msg_namelen = sizeof(flow->destination),
        .msg_iov = feed->iovecs[first],
    };
}

static void end_message(struct feed *feed, size_t m, size_t n_packets, size_t packet_bytes)
{
    struct msghdr *message = &feed->messages[m].msg_hdr;

    message->msg_iovlen = 2 * n_packets;
    if (n_packets == 1)
        return;
    uint16_t segment_bytes = (uint16_t)packet_bytes;
    message->msg_control = &feed->controls[m];
    message->msg_controllen = sizeof(feed->controls[m]);
    struct cmsghdr *c = CMSG_FIRSTHDR(message);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(segment_bytes));
    memcpy(CMSG_DATA(c), &segment_bytes, sizeof(segment_bytes));
}

/* Returns the next flow that still has packets.  The flows take turns. */
static struct flow *next_flow(struct feed *feed)
{
    struct flow *flow;

    do {
        flow = &feed->flows[feed->next_flow];
        feed->next_flow = (feed->next_flow + 1) % feed->n_flows;
    } while (flow->n_sent == feed->n_packets_each);
    return flow;
}

/* Sends the packets of one system call. */
static void feed_some(struct feed *feed)
{
    size_t n_packets = 0, n_messages = 0;
    size_t n_joined_max = feed->join ? DATAGRAM_MAX / (spead_built_header_bytes(4) + feed->shape.payload_bytes) : 1;

    if (n_joined_max > JOINED_MAX)
        n_joined_max = JOINED_MAX;
    while (n_packets + n_joined_max <= PACKETS_MAX && feed->n_packets_left > 0) {
        struct flow *flow = next_flow(feed);
        size_t n_joined = 0, n_bytes = 0, packet_bytes = 0;
        begin_message(feed, n_messages, flow, n_packets);
        do {
            packet_bytes = next_packet(feed, flow, n_packets++);
            n_bytes += packet_bytes;
            n_joined++;
        } while (n_joined < n_joined_max && flow->n_sent < feed->n_packets_each);
        end_message(feed, n_messages++, n_joined, packet_bytes);
        feed->n_bytes += n_bytes;
    }
    for (size_t n_sent = 0; n_sent < n_messages;) {
        int n = sendmmsg(feed->fd, feed->messages + n_sent, (unsigned)(n_messages - n_sent), 0);
        if (n < 0)
            die("sendmmsg");
        n_sent += (size_t)n;
    }
    feed->n_packets += n_packets;
}

static void feed_all(struct feed *feed)
{
    size_t limit_bytes = feed->in_flight_bytes / 2 * SKB_TRUESIZE_RATE;
    uint64_t checked_bytes = 0;

    while (feed->n_packets_left > 0) {
        feed_some(feed);
        if (feed->in_flight_bytes == 0 || feed->n_bytes - checked_bytes < feed->in_flight_bytes / 2)
            continue;
        wait_for_receiver(feed, limit_bytes);
        checked_bytes = feed->n_bytes;
    }
    if (feed->in_flight_bytes > 0)
        wait_for_receiver(feed, 0);
}

/* Creates the flows, ordered by destination and then by source.  The heaps in memory have the same order. */
static void open_flows(struct feed *feed, const char *destinations, int64_t n_heaps)
{
    bool deals = feed->shape.is_dig && feed->in_flight_bytes > 0;
    struct endpoint_list list;
    char why[256];

    if (endpoint_list_parse(destinations, &list, why, sizeof(why))) {
        fprintf(stderr, "bench_feed: %s\n", why);
        exit(1);
    }
    feed->n_flows = feed->n_sources * list.n;
    feed->flows = calloc(feed->n_flows, sizeof(*feed->flows));
    if (!feed->flows)
        die("memory");
    for (size_t f = 0; f < feed->n_flows; f++) {
        const struct endpoint *to = &list.items[f / feed->n_sources];
        feed->flows[f].destination =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(to->port), .sin_addr = to->address};
        feed->flows[f].source = f % feed->n_sources;
        feed->flows[f].taker = deals ? (int64_t)(f / feed->n_sources) : 0;
    }
    feed->n_takers = deals ? (int64_t)list.n : 1;
    endpoint_list_fini(&list);
    feed->n_packets_each = n_heaps * (int64_t)(feed->shape.heap_bytes / feed->shape.payload_bytes);
    feed->n_packets_each -= feed->n_packets_each % feed->shuffle;
    feed->n_packets_left = feed->n_packets_each * (int64_t)feed->n_flows;
}

/* Allocates the payload.  If a receiver is measured, the payload is one heap, which stays in the cache.  Otherwise
 * the payload takes as much memory as in bench_send. */
static void make_payload(struct feed *feed)
{
    const struct bench_shape *shape = &feed->shape;
    size_t n_heaps = 1;

    feed->n_times = 1;
    if (feed->in_flight_bytes == 0) {
        feed->n_times = (int64_t)(BENCH_N_BUFFERS * bench_buffer_times(shape, feed->n_flows, BENCH_BUFFER_BYTES));
        n_heaps = (size_t)feed->n_times * feed->n_flows;
        for (size_t f = 0; f < feed->n_flows; f++)
            feed->flows[f].first_heap = f;
    }
    feed->payload = malloc(n_heaps * shape->heap_bytes);
    if (!feed->payload)
        die("memory");
    memset(feed->payload, 1, n_heaps * shape->heap_bytes);
}

static void pin(int cpu)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus))
        die("pinning");
}

static void send_stops(struct feed *feed)
{
    uint8_t stop[SPEAD_STOP_PACKET_BYTES];
    const struct sockaddr_in *to = &feed->flows[0].destination;

    spead_build_stop(stop, (uint64_t)(feed->n_packets_each * feed->n_takers + 1) * feed->n_sources);
    for (int i = 0; i < N_STOPS; i++)
        sendto(feed->fd, stop, sizeof(stop), 0, (const struct sockaddr *)to, sizeof(*to));
}

int main(int argc, char **argv)
{
    static struct feed feed = {.random = 88172645463325252};

    if (argc != 9 || !bench_shape(argv[1], &feed.shape) || atoi(argv[6]) < 1 || atoi(argv[6]) > SHUFFLE_MAX) {
        fprintf(stderr, "usage: bench_feed SHAPE DESTINATIONS N_HEAPS JOIN N_SOURCES SHUFFLE IN_FLIGHT_BYTES "
                        "CPU\n" BENCH_SHAPE_USAGE "\n");
        return 2;
    }
    feed.join = atoi(argv[4]) != 0;
    feed.n_sources = (size_t)atoll(argv[5]);
    feed.shuffle = atoi(argv[6]);
    feed.in_flight_bytes = (size_t)atoll(argv[7]);
    open_flows(&feed, argv[2], atoll(argv[3]));
    make_payload(&feed);
    pin(atoi(argv[8]));
    feed.fd = socket(AF_INET, SOCK_DGRAM, 0);
    feed.diag_fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG);
    if (feed.fd < 0 || feed.diag_fd < 0)
        die("socket");

    int64_t start_ns = clock_monotonic_ns();
    feed_all(&feed);
    int64_t wall_ns = clock_monotonic_ns() - start_ns;
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    struct backlog backlog = {0, 0};
    if (feed.in_flight_bytes > 0) {
        backlog = receiver_backlog(&feed);
        send_stops(&feed);
    }
    printf("{\"packets\": %llu, \"bytes\": %llu, \"wall_ns\": %lld, \"wait_ns\": %lld, \"dropped\": %u, \"cpu_ns\": "
           "%lld}\n",
           (unsigned long long)feed.n_packets, (unsigned long long)feed.n_bytes, (long long)wall_ns,
           (long long)feed.wait_ns, backlog.n_dropped, (long long)(cpu.tv_sec * NS_PER_S + cpu.tv_nsec));
    return 0;
}
