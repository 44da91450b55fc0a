/* packet_sink_udp.c - packets to the network, by sendmmsg: one socket, every packet with its own destination. */
#include "common/clock.h"
#include "common/log.h"
#include "common/packet_sink.h"
#include "common/units.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IOVECS_PER_PACKET 2
/* How long to leave a queue that is full below the socket, where poll() cannot wait for it: about a packet's time. */
#define FULL_QUEUE_PAUSE_NS (50 * NS_PER_US)
#define POLL_TIMEOUT_MS     100

struct udp_sink {
    struct packet_sink base;
    int fd;
    struct sockaddr_in *destinations;
    struct mmsghdr messages[PACKET_SINK_BATCH_MAX];
    struct iovec iovecs[PACKET_SINK_BATCH_MAX][IOVECS_PER_PACKET];
};

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

static void point_at_packet(struct udp_sink *sink, size_t i, const struct packet_out *packet)
{
    struct iovec *iovecs = sink->iovecs[i];
    iovecs[0] = (struct iovec){packet->header, packet->header_bytes};
    iovecs[1] = (struct iovec){(void *)packet->payload, packet->payload_bytes};
    sink->messages[i].msg_hdr = (struct msghdr){
        .msg_name = &sink->destinations[packet->destination],
        .msg_namelen = sizeof(sink->destinations[0]),
        .msg_iov = iovecs,
        .msg_iovlen = IOVECS_PER_PACKET,
    };
}

/* Sends from packet 'first' on.  Returns how many left, or -errno of the first, which did not. */
static int try_send(struct udp_sink *sink, size_t first, size_t n)
{
    int n_sent = sendmmsg(sink->fd, sink->messages + first, (unsigned)(n - first), MSG_DONTWAIT);
    return n_sent < 0 ? -errno : n_sent;
}

/* True if the packet may be tried again at once; waits for room where there was none. */
static bool worth_retrying(struct udp_sink *sink, int err, bool *refused)
{
    switch (err) {
    case -EINTR: return true;
    case -EAGAIN: {
        struct pollfd writable = {.fd = sink->fd, .events = POLLOUT};
        poll(&writable, 1, POLL_TIMEOUT_MS);
        return true;
    }
    case -ENOBUFS: clock_sleep_until(clock_monotonic_ns() + FULL_QUEUE_PAUSE_NS); return true;
    case -ECONNREFUSED: { /* an ICMP answer to an earlier packet, not this one's fault */
        bool first_time = !*refused;
        *refused = true;
        return first_time;
    }
    default: return false;
    }
}

static size_t udp_send(struct packet_sink *base, struct packet_out *packets, size_t n)
{
    struct udp_sink *sink = CONTAINER_OF(base, struct udp_sink, base);
    for (size_t i = 0; i < n; i++)
        point_at_packet(sink, i, &packets[i]);
    size_t n_gone = 0;
    size_t n_failed = 0;
    bool refused = false; /* the packet at n_gone, once */
    while (n_gone < n) {
        int n_sent = try_send(sink, n_gone, n);
        if (n_sent < 0 && worth_retrying(sink, n_sent, &refused))
            continue;
        if (n_sent < 0) {
            packet_sink_note_failed(base, -n_sent);
            n_failed++;
            n_sent = 1;
        }
        refused = false;
        for (int i = 0; i < n_sent; i++)
            packet_sink_put_loan(&packets[n_gone++]);
    }
    return n - n_failed;
}

static void udp_close(struct packet_sink *base)
{
    struct udp_sink *sink = CONTAINER_OF(base, struct udp_sink, base);
    if (sink->fd >= 0)
        close(sink->fd);
    free(sink->destinations);
    free(sink);
}

static const struct packet_sink_ops udp_ops = {.send = udp_send, .close = udp_close};

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void set_buffer(int fd, size_t buffer_bytes)
{
    if (buffer_bytes == 0)
        return;
    int asked = buffer_bytes > INT_MAX / 2 ? INT_MAX / 2 : (int)buffer_bytes;
    /* The first needs CAP_NET_ADMIN and is not bound by wmem_max. */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &asked, sizeof(asked)))
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof(asked));
    int granted = 0;
    socklen_t length = sizeof(granted);
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &granted, &length))
        return;
    granted /= 2;       /* the kernel doubles it, for its own book-keeping */
    static bool warned; /* once for all sockets; main thread */
    if (granted < asked && !warned) {
        log_warning("send.buffer: the kernel grants %d of %d bytes to each stream; "
                    "\"sysctl net.core.wmem_max=%d\" allows more",
                    granted, asked, asked);
        warned = true;
    }
}

static int set_multicast(int fd, const struct packet_sink_config *config, const struct interface *interface)
{
    const struct ip_mreqn outgoing = {.imr_address = interface->address, .imr_ifindex = interface->index};
    if (config->interface && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &outgoing, sizeof(outgoing)))
        return -errno;
    const int ttl = config->ttl;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof(ttl)))
        return -errno;
    /* Receivers on this host get a copy, too. */
    const int on = 1;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof(on)))
        return -errno;
    return 0;
}

/* "outputs[0].destinations: 239.1.0.1:7148: cannot ...: reason; cure" */
static int fail(const struct endpoint *endpoint, int err, const char *what, const char *cure, char *why,
                size_t why_bytes)
{
    char name[128];
    snprintf(why, why_bytes, "%s: cannot %s: %s%s%s", endpoint_describe(endpoint, name, sizeof(name)), what,
             strerror(err), cure[0] ? "; " : "", cure);
    return -err;
}

/* Asks the kernel for the way to each destination, by a connect of a socket that sends nothing. */
static int check_routes(const struct packet_sink_config *config, const struct interface *interface, char *why,
                        size_t why_bytes)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    const struct endpoint *first = &config->destinations->items[0];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 ? -errno : set_multicast(fd, config, interface);
    if (err)
        err = fail(first, -err, "set up a socket",
                   err == -EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "", why, why_bytes);
    for (size_t i = 0; i < config->destinations->n && !err; i++) {
        const struct endpoint *to = &config->destinations->items[i];
        const struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = htons(to->port), .sin_addr = to->address};
        connect(fd, &nowhere, sizeof(nowhere)); /* forgets the source address of the one before */
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
            continue;
        const char *cure = "";
        if (errno == ENETUNREACH || errno == EHOSTUNREACH)
            cure = endpoint_is_multicast(to) && !config->interface ? "name the send.interface to send on"
                                                                   : "there is no route to it: see \"ip route get\"";
        else if (errno == EACCES)
            cure = "it is a broadcast address: name a multicast group or a host";
        err = fail(to, errno, "send there", cure, why, why_bytes);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

static int open_socket(struct udp_sink *sink, const struct packet_sink_config *config,
                       const struct interface *interface, char *why, size_t why_bytes)
{
    sink->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = sink->fd < 0 ? -errno : set_multicast(sink->fd, config, interface);
    if (err)
        return fail(&config->destinations->items[0], -err, "set up a socket",
                    err == -EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "", why, why_bytes);
    set_buffer(sink->fd, config->buffer_bytes);
    return 0;
}

static int find_interface(const struct packet_sink_config *config, struct interface *interface, char *why,
                          size_t why_bytes)
{
    char reason[400];
    if (!config->interface)
        return 0;
    int err = interface_find(config->interface, interface, reason, sizeof(reason));
    if (err)
        snprintf(why, why_bytes, "send.interface: %s", reason);
    return err;
}

int packet_sink_udp_open(const struct packet_sink_config *config, struct packet_sink **out, char *why, size_t why_bytes)
{
    const struct endpoint_list *endpoints = config->destinations;
    struct interface interface = {0}; /* the kernel's choice */
    int err = find_interface(config, &interface, why, why_bytes);
    if (!err)
        err = check_routes(config, &interface, why, why_bytes);
    if (err)
        return err;
    struct udp_sink *sink = calloc(1, sizeof(*sink));
    struct sockaddr_in *destinations = calloc(endpoints->n, sizeof(*destinations));
    if (!sink || !destinations) {
        snprintf(why, why_bytes, "out of memory");
        free(destinations);
        free(sink);
        return -ENOMEM;
    }
    sink->base.ops = &udp_ops;
    sink->destinations = destinations;
    for (size_t i = 0; i < endpoints->n; i++)
        destinations[i] = (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = htons(endpoints->items[i].port),
            .sin_addr = endpoints->items[i].address,
        };
    err = open_socket(sink, config, &interface, why, why_bytes);
    if (err) {
        udp_close(&sink->base);
        return err;
    }
    *out = &sink->base;
    return 0;
}
