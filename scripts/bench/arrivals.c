/* arrivals.c - records when each packet arrives, by the kernel's clock, for scripts/bench/pacing.
 *
 * Usage: arrivals --endpoints LIST --out FILE [--interface NAME] [--buffer BYTES] [--packets N]
 *   LIST:      multicast groups or addresses, as in a configuration.
 *   --buffer:  bytes of each endpoint's socket buffer.
 *   --packets: largest number of packets to record.
 * Each endpoint has a socket.  The kernel does not merge the packets of a socket (no UDP_GRO).  So the kernel gives
 * each packet a time (SO_TIMESTAMPNS): the arrival of the packet, or of the message that contained the packet.  A late
 * read does not change this time.  The program reads only the first HEADER_BYTES of a packet, which identify the
 * packet.
 *
 * The program prints READY, and records until a signal comes or --packets packets have arrived.  Then the program
 * writes a struct arrival for each packet to FILE, and prints one line of JSON: the number of packets that arrived,
 * and the number of packets that the kernel dropped because a socket buffer was full. */
#include "common/net/endpoint.h"
#include "common/base/log.h"
#include "common/net/spead.h"
#include "common/base/units.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ENDPOINTS_MAX 64
#define BATCH         64
#define HEADER_BYTES  256
#define POLL_MS       100

/* scripts/bench/pacing reads an array of these structs. */
struct arrival {
    int64_t unix_ns;
    uint64_t timestamp; /* 0x1600, 48 bits */
    uint32_t heap_offset;
    uint32_t n_bytes; /* UDP payload */
    uint32_t endpoint;
    uint32_t is_data; /* 0: a descriptor or a stop */
};

struct receiver {
    struct endpoint_list endpoints;
    struct pollfd sockets[ENDPOINTS_MAX];
    uint32_t n_dropped[ENDPOINTS_MAX];
    struct mmsghdr messages[BATCH];
    struct iovec iovecs[BATCH];
    uint8_t headers[BATCH][HEADER_BYTES];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct timespec)) + CMSG_SPACE(sizeof(uint32_t))];
    } controls[BATCH];
    struct arrival *arrivals;
    size_t n, max;
};

static volatile sig_atomic_t stop;

static void ask_to_stop(int signal_number)
{
    stop = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "arrivals: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

static void note(struct receiver *r, size_t endpoint, size_t i)
{
    static const uint16_t wanted[] = {SPEAD_TIMESTAMP};
    struct msghdr *header = &r->messages[i].msg_hdr;
    size_t n_bytes = r->messages[i].msg_len, n_seen = n_bytes < HEADER_BYTES ? n_bytes : HEADER_BYTES;
    struct arrival *a = &r->arrivals[r->n++];
    struct spead_packet packet;

    *a = (struct arrival){.n_bytes = (uint32_t)n_bytes, .endpoint = (uint32_t)endpoint};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof(t));
            a->unix_ns = t.tv_sec * NS_PER_S + t.tv_nsec;
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            memcpy(&r->n_dropped[endpoint], CMSG_DATA(c), sizeof(uint32_t));
        }
    }
    if (spead_parse(r->headers[i], n_seen, n_bytes, wanted, 1, &packet) || !(packet.immediate & 1))
        return;
    a->timestamp = packet.wanted[0];
    a->heap_offset = (uint32_t)packet.payload_offset;
    a->is_data = 1;
}

static void receive(struct receiver *r, size_t endpoint)
{
    for (size_t i = 0; i < BATCH; i++) {
        r->messages[i].msg_hdr.msg_control = &r->controls[i];
        r->messages[i].msg_hdr.msg_controllen = sizeof(r->controls[i]);
    }
    unsigned room = r->max - r->n < BATCH ? (unsigned)(r->max - r->n) : BATCH;
    int n = recvmmsg(r->sockets[endpoint].fd, r->messages, room, MSG_DONTWAIT | MSG_TRUNC, NULL);
    for (int i = 0; i < n; i++)
        note(r, endpoint, (size_t)i);
}

static void run(struct receiver *r)
{
    while (!stop && r->n < r->max) {
        if (poll(r->sockets, r->endpoints.n, POLL_MS) < 0 && errno != EINTR)
            fail("poll");
        for (size_t e = 0; e < r->endpoints.n && r->n < r->max; e++)
            if (r->sockets[e].revents & POLLIN)
                receive(r, e);
    }
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static void set(int fd, int level, int name, int value, const char *what)
{
    if (setsockopt(fd, level, name, &value, sizeof(value)))
        fail(what);
}

static int open_socket(const struct endpoint *endpoint, const char *interface_name, int buffer_bytes)
{
    struct interface interface = {0};
    char why[256];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fail("socket");
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
    set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1, "SO_RXQ_OVFL");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)))
        set(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes, "SO_RCVBUF");
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(endpoint->port), .sin_addr = endpoint->address};
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)))
        fail("bind");
    if (interface_name && endpoint_find_interface(interface_name, &interface, why, sizeof(why)))
        fail(why);
    const struct ip_mreqn group = {
        .imr_multiaddr = endpoint->address, .imr_address = interface.address, .imr_ifindex = interface.index};
    if (endpoint_is_multicast(endpoint) && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)))
        fail("IP_ADD_MEMBERSHIP");
    return fd;
}

static void write_all(const struct receiver *r, const char *path)
{
    FILE *file = fopen(path, "w");
    uint64_t n_dropped = 0;

    if (!file || fwrite(r->arrivals, sizeof(struct arrival), r->n, file) != r->n || fclose(file))
        fail(path);
    for (size_t e = 0; e < r->endpoints.n; e++)
        n_dropped += r->n_dropped[e];
    printf("{\"packets\": %zu, \"dropped\": %llu}\n", r->n, (unsigned long long)n_dropped);
}

int main(int argc, char **argv)
{
    static struct receiver r;
    const char *interface = NULL, *out = NULL;
    long buffer_bytes = 64L << 20;
    char why[256];
    struct sigaction action = {.sa_handler = ask_to_stop};

    log_init("arrivals", LOG_LEVEL_WARNING);
    r.max = 1 << 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--endpoints") == 0 && endpoint_list_parse(value, &r.endpoints, why, sizeof(why)))
            fail(why);
        else if (strcmp(name, "--interface") == 0)
            interface = value;
        else if (strcmp(name, "--out") == 0)
            out = value;
        else if (strcmp(name, "--buffer") == 0)
            buffer_bytes = strtol(value, NULL, 0);
        else if (strcmp(name, "--packets") == 0)
            r.max = strtoull(value, NULL, 0);
    }
    r.arrivals = calloc(r.max, sizeof(*r.arrivals));
    if (!out || r.endpoints.n == 0 || r.endpoints.n > ENDPOINTS_MAX || !r.arrivals) {
        fprintf(stderr, "scripts/bench/arrivals.c explains the options at its start\n");
        return 2;
    }
    memset(r.arrivals, 1, r.max * sizeof(*r.arrivals)); /* makes the kernel map the pages before packets arrive */
    for (size_t i = 0; i < BATCH; i++) {
        r.iovecs[i] = (struct iovec){r.headers[i], HEADER_BYTES};
        r.messages[i].msg_hdr.msg_iov = &r.iovecs[i];
        r.messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (size_t e = 0; e < r.endpoints.n; e++)
        r.sockets[e] = (struct pollfd){open_socket(&r.endpoints.items[e], interface, (int)buffer_bytes), POLLIN, 0};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    puts("READY");
    fflush(stdout);
    run(&r);
    write_all(&r, out);
    return 0;
}
