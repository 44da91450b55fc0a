/* bench_feed.c - feeds a receiver under test with SPEAD over loopback, as fast as it takes them and never faster.
 *
 * Usage: bench_feed KIND DESTINATION N_HEAPS JOIN N_SOURCES IN_FLIGHT_BYTES CPU
 *   KIND  dig: digitiser heaps of 5120 bytes in one packet; feng: F-engine heaps of 64 KiB in packets of 8 KiB
 *   JOIN  1: as many packets to a message as there is room for (UDP_SEGMENT), 0: one
 * The heaps of N_SOURCES inputs or F-engines take turns.  At the end come stop heaps, until one has been received.
 *
 * IN_FLIGHT_BYTES 0: as fast as it can, whatever becomes of it; then it is the shortest loop that sends.
 * Not faster: the kernel is asked (sock_diag) what waits in the receiver's socket, and no more than IN_FLIGHT_BYTES of
 * packets are there at a time, so whoever receives, nothing is lost and the receiver alone sets the speed.
 * Prints one line of JSON: what was sent, how long it took, how much of it was waiting, what the socket dropped. */
#include "common/clock.h"
#include "common/endpoint.h"
#include "common/spead.h"
#include "common/units.h"
#include "tests/bench/bench_shapes.h"

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

#define MESSAGES_MAX      16
#define PACKETS_MAX       64 /* of a call, and of a message */
#define DATAGRAM_MAX      65507
#define HEADER_MAX        128
#define N_STOPS           5
#define SKB_TRUESIZE_RATE 2 /* what waits in a socket is counted with the kernel's book-keeping, at most about twice */

struct feed {
    const struct bench_shape *shape;
    struct sockaddr_in destination;
    int fd, diag_fd;
    bool join;
    size_t n_sources;
    int64_t n_heaps;
    size_t in_flight_bytes;
    uint8_t *payload; /* of one heap; all are alike */
    int64_t heap;     /* next to be sent, of all sources in turn */
    size_t offset;    /* in it */
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

static struct backlog receiver_backlog(struct feed *feed)
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
    /* The kernel looks for the socket that would get a packet with this destination. */
    ask.request.id.idiag_dport = feed->destination.sin_port;
    ask.request.id.idiag_dst[0] = feed->destination.sin_addr.s_addr;
    ask.request.id.idiag_cookie[0] = ask.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    ask.request.idiag_states = ~0u;
    if (send(feed->diag_fd, &ask, sizeof(ask), 0) < 0)
        die("asking for the receiver's backlog");
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } answer;
    ssize_t n = recv(feed->diag_fd, &answer, sizeof(answer), 0);
    if (n < 0 || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) {
        fprintf(stderr, "bench_feed: nobody receives there\n");
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

static void wait_for_receiver(struct feed *feed, size_t limit_bytes)
{
    int64_t since_ns = clock_monotonic_ns();

    while (receiver_backlog(feed).n_bytes > limit_bytes)
        ;
    feed->wait_ns += clock_monotonic_ns() - since_ns;
}

/* ---- Packets ------------------------------------------------------------------------------------------------------ */

/* Points at the next packet; returns its size. */
static size_t next_packet(struct feed *feed, size_t i)
{
    const struct bench_shape *shape = feed->shape;
    size_t source = (size_t)feed->heap % feed->n_sources;
    int64_t timestamp = feed->heap / (int64_t)feed->n_sources * shape->heap_samples;
    struct spead_item items[4];
    size_t n_items = bench_items(shape, source, timestamp, items);
    size_t header_bytes = spead_build_header(feed->headers[i], (uint64_t)feed->heap + feed->n_sources,
                                             shape->heap_bytes, feed->offset, shape->payload_bytes, items, n_items);

    feed->iovecs[i][0] = (struct iovec){feed->headers[i], header_bytes};
    feed->iovecs[i][1] = (struct iovec){feed->payload + feed->offset, shape->payload_bytes};
    feed->offset += shape->payload_bytes;
    if (feed->offset == shape->heap_bytes) {
        feed->offset = 0;
        feed->heap++;
    }
    return header_bytes + shape->payload_bytes;
}

static void begin_message(struct feed *feed, size_t m, size_t first)
{
    feed->messages[m].msg_hdr = (struct msghdr){
        .msg_name = &feed->destination,
        .msg_namelen = sizeof(feed->destination),
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

/* Sends a call's worth of packets. */
static void feed_some(struct feed *feed)
{
    size_t n_packets = 0, n_messages = 0;

    while (n_messages < MESSAGES_MAX && n_packets < PACKETS_MAX && feed->heap < feed->n_heaps) {
        size_t n_joined = 0, n_bytes = 0, packet_bytes = 0;
        begin_message(feed, n_messages, n_packets);
        do {
            packet_bytes = next_packet(feed, n_packets++);
            n_bytes += packet_bytes;
            n_joined++;
        } while (feed->join && feed->heap < feed->n_heaps && n_packets < PACKETS_MAX &&
                 n_bytes + packet_bytes <= DATAGRAM_MAX);
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

    while (feed->heap < feed->n_heaps) {
        feed_some(feed);
        if (feed->in_flight_bytes == 0 || feed->n_bytes - checked_bytes < feed->in_flight_bytes / 2)
            continue;
        wait_for_receiver(feed, limit_bytes);
        checked_bytes = feed->n_bytes;
    }
    if (feed->in_flight_bytes > 0)
        wait_for_receiver(feed, 0);
}

static void open_feed(struct feed *feed, const char *destination)
{
    struct endpoint_list list;
    char why[256];

    if (endpoint_list_parse(destination, &list, why, sizeof(why))) {
        fprintf(stderr, "bench_feed: %s\n", why);
        exit(1);
    }
    feed->destination = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(list.items[0].port), .sin_addr = list.items[0].address};
    endpoint_list_fini(&list);
    feed->fd = socket(AF_INET, SOCK_DGRAM, 0);
    feed->diag_fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG);
    if (feed->fd < 0 || feed->diag_fd < 0)
        die("socket");
}

int main(int argc, char **argv)
{
    static struct feed feed;

    if (argc != 8 || !(feed.shape = bench_shape(argv[1]))) {
        fprintf(stderr, "usage: bench_feed dig|feng DESTINATION N_HEAPS JOIN N_SOURCES IN_FLIGHT_BYTES CPU\n");
        return 2;
    }
    open_feed(&feed, argv[2]);
    feed.n_heaps = atoll(argv[3]);
    feed.join = atoi(argv[4]) != 0;
    feed.n_sources = (size_t)atoll(argv[5]);
    feed.in_flight_bytes = (size_t)atoll(argv[6]);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[7]), &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus))
        die("pinning");
    feed.payload = calloc(1, feed.shape->heap_bytes);
    if (!feed.payload)
        die("payload");

    int64_t start_ns = clock_monotonic_ns();
    feed_all(&feed);
    int64_t wall_ns = clock_monotonic_ns() - start_ns;
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    struct backlog backlog = receiver_backlog(&feed);
    uint8_t stop[SPEAD_STOP_PACKET_BYTES];
    spead_build_stop(stop, (uint64_t)feed.n_heaps + 1);
    for (int i = 0; i < N_STOPS; i++)
        sendto(feed.fd, stop, sizeof(stop), 0, (struct sockaddr *)&feed.destination, sizeof(feed.destination));
    printf("{\"packets\": %llu, \"bytes\": %llu, \"wall_ns\": %lld, \"wait_ns\": %lld, \"dropped\": %u, \"cpu_ns\": "
           "%lld}\n",
           (unsigned long long)feed.n_packets, (unsigned long long)feed.n_bytes, (long long)wall_ns,
           (long long)feed.wait_ns, backlog.n_dropped, (long long)(cpu.tv_sec * NS_PER_S + cpu.tv_nsec));
    return 0;
}
