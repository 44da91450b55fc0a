/* sink_udp.c - sends packets from one socket, with sendmmsg.
 *
 * Packets of a batch for the same destination are joined to messages (UDP_SEGMENT).  A message costs the kernel as much
 * as one packet.  On the wire the packets are separate.  The packets for each destination leave in order.  If the
 * kernel or the NIC refuses joined packets, each packet is sent alone.
 *
 * The kernel gathers headers and payloads from their places in memory.  Small packets are copied to one buffer first.
 * For small packets, a copy costs less time than many parts. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/send/sink.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "common/base/why.h"

#include <errno.h>
#include <limits.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PARTS_PER_PACKET 2
#define DATAGRAM_MAX     65507 /* largest size of a packet and of a message */
#define NO_MESSAGE       UINT_MAX
/* largest size, header included, of a packet that is copied first (docs/decisions/send-gather-small.md) */
#define GATHERED_MAX 1280
/* Pause after the kernel reported that a queue below the socket was full.  poll() cannot wait for this queue.  The
 * pause is about as long as the transmission of a packet. */
#define FULL_QUEUE_PAUSE_NS (50 * NS_PER_US)
#define POLL_TIMEOUT_MS     100

/* A message: packets for one destination.  All packets have the same size, except that the last packet may be
 * shorter. */
struct udp_message {
    unsigned destination;
    size_t segment_bytes; /* size of the first packet */
    size_t n_bytes;
    size_t n_packets;
    bool closed;   /* true if the last packet is shorter than the others, so that no packet may follow */
    bool gathered; /* true: one iovec has all packets of the message; false: each packet has two iovecs */
};

struct udp_sink {
    struct send_sink base;
    int fd;
    bool joins;
    struct sockaddr_in *destinations;
    unsigned *open_message; /* [n_destinations] index of the message for the next packet, or NO_MESSAGE */
    struct udp_message plan[PACKET_SINK_BATCH_MAX];
    struct mmsghdr messages[PACKET_SINK_BATCH_MAX];
    struct iovec iovecs[PACKET_SINK_BATCH_MAX][PARTS_PER_PACKET]; /* parts of all messages, in order */
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } controls[PACKET_SINK_BATCH_MAX];
    uint8_t gathered[PACKET_SINK_BATCH_MAX * GATHERED_MAX]; /* copied packets of all messages, in order */
};

/* ---- Joining packets to messages --------------------------------------------------------------------------------- */

/* Returns true if the message has room for a packet.  An empty packet does not fit, because the kernel would not send
 * it. */
static bool fits(const struct udp_message *message, size_t n_bytes)
{
    return !message->closed && n_bytes > 0 && n_bytes <= message->segment_bytes &&
           message->n_bytes + n_bytes <= DATAGRAM_MAX;
}

/* Distributes the packets among messages: packet i belongs to message message_of[i].  Returns the number of
 * messages. */
static size_t plan_messages(struct udp_sink *sink, const struct packet_out *packets, size_t n, unsigned *message_of)
{
    unsigned n_messages = 0;

    for (size_t i = 0; i < n; i++)
        sink->open_message[packets[i].destination] = NO_MESSAGE;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = packets[i].header_bytes + packets[i].payload_bytes;
        unsigned *open = &sink->open_message[packets[i].destination];
        if (!sink->joins || *open == NO_MESSAGE || !fits(&sink->plan[*open], n_bytes)) {
            *open = n_messages++;
            sink->plan[*open] = (struct udp_message){.destination = packets[i].destination, .segment_bytes = n_bytes};
        }
        struct udp_message *message = &sink->plan[*open];
        message->closed = n_bytes < message->segment_bytes;
        message->n_bytes += n_bytes;
        message->n_packets++;
        message_of[i] = *open;
    }
    return n_messages;
}

static void set_segment_bytes(struct udp_sink *sink, size_t m)
{
    struct msghdr *header = &sink->messages[m].msg_hdr;
    uint16_t segment_bytes = (uint16_t)sink->plan[m].segment_bytes;

    header->msg_control = &sink->controls[m];
    header->msg_controllen = sizeof(sink->controls[m]);
    struct cmsghdr *c = CMSG_FIRSTHDR(header);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(segment_bytes));
    memcpy(CMSG_DATA(c), &segment_bytes, sizeof(segment_bytes));
}

/* Appends a packet to its message. */
static void append_packet(struct msghdr *header, bool gathered, const struct packet_out *packet)
{
    if (!gathered) {
        header->msg_iov[header->msg_iovlen++] = (struct iovec){packet->header, packet->header_bytes};
        header->msg_iov[header->msg_iovlen++] = (struct iovec){(void *)packet->payload, packet->payload_bytes};
        return;
    }
    uint8_t *end = (uint8_t *)header->msg_iov->iov_base + header->msg_iov->iov_len;
    memcpy(end, packet->header, packet->header_bytes);
    if (packet->payload_bytes > 0)
        memcpy(end + packet->header_bytes, packet->payload, packet->payload_bytes);
    header->msg_iov->iov_len += packet->header_bytes + packet->payload_bytes;
}

/* Makes the messages of a batch.  Returns the number of messages. */
static size_t make_messages(struct udp_sink *sink, const struct packet_out *packets, size_t n)
{
    unsigned message_of[PACKET_SINK_BATCH_MAX];
    size_t n_messages = plan_messages(sink, packets, n, message_of);
    size_t first = 0;
    uint8_t *room = sink->gathered;

    for (size_t m = 0; m < n_messages; m++) {
        struct udp_message *message = &sink->plan[m];
        sink->messages[m].msg_hdr = (struct msghdr){
            .msg_name = &sink->destinations[message->destination],
            .msg_namelen = sizeof(sink->destinations[0]),
            .msg_iov = sink->iovecs[first],
        };
        first += message->n_packets;
        if (message->n_packets > 1)
            set_segment_bytes(sink, m);
        message->gathered = message->n_packets > 1 && message->segment_bytes <= GATHERED_MAX;
        if (message->gathered) {
            *sink->messages[m].msg_hdr.msg_iov = (struct iovec){room, 0};
            sink->messages[m].msg_hdr.msg_iovlen = 1;
            room += message->n_bytes;
        }
    }
    for (size_t i = 0; i < n; i++)
        append_packet(&sink->messages[message_of[i]].msg_hdr, sink->plan[message_of[i]].gathered, &packets[i]);
    return n_messages;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* Returns true if the message should be sent again immediately after the error 'err'.  If there was no room, waits
 * for room first. */
static bool worth_retrying(struct udp_sink *sink, int err, bool *refused)
{
    if ((err == EAGAIN || err == ENOBUFS) && send_sink_deadline_passed(&sink->base))
        return false;
    switch (err) {
    case EINTR: return true;
    case EAGAIN: {
        struct pollfd writable = {.fd = sink->fd, .events = POLLOUT};
        thread_beat(); /* tells the watchdog that the thread is alive, even if the network is blocked */
        poll(&writable, 1, POLL_TIMEOUT_MS);
        return true;
    }
    case ENOBUFS: clock_sleep_until(clock_monotonic_ns() + FULL_QUEUE_PAUSE_NS); return true;
    case ECONNREFUSED: { /* an ICMP error may belong to an earlier packet, so try once more */
        bool first_time = !*refused;
        *refused = true;
        return first_time;
    }
    default: return false;
    }
}

/* Sends messages until a message fails permanently.  Returns the number of messages sent.  '*err' becomes the error of
 * the failed message. */
static size_t send_messages(struct udp_sink *sink, struct mmsghdr *messages, size_t n, int *err)
{
    size_t n_gone = 0;
    bool refused = false; /* true if the kernel has refused message n_gone once */

    while (n_gone < n) {
        int n_sent = sendmmsg(sink->fd, messages + n_gone, (unsigned)(n - n_gone), MSG_DONTWAIT);
        if (n_sent > 0) {
            n_gone += (size_t)n_sent;
            refused = false;
        } else if (n_sent < 0 && !worth_retrying(sink, errno, &refused)) {
            *err = errno;
            break;
        }
    }
    return n_gone;
}

/* Returns true if 'err' means that joined packets exceed the route's MTU or the NIC's limits. */
static bool refuses_joined(int err)
{
    return err == EINVAL || err == EMSGSIZE || err == EIO || err == EOPNOTSUPP;
}

/* Sends the packets of a message one by one.  Returns the number of packets that failed. */
static size_t send_apart(struct udp_sink *sink, size_t m)
{
    const struct udp_message *message = &sink->plan[m];
    struct mmsghdr single = sink->messages[m];
    struct iovec whole = *single.msg_hdr.msg_iov, packet = {.iov_base = whole.iov_base};
    size_t n_failed = 0;

    single.msg_hdr.msg_control = NULL;
    single.msg_hdr.msg_controllen = 0;
    single.msg_hdr.msg_iovlen = message->gathered ? 1 : PARTS_PER_PACKET;
    if (message->gathered)
        single.msg_hdr.msg_iov = &packet;
    for (size_t i = 0; i < message->n_packets; i++) {
        int err;
        packet.iov_len = whole.iov_len < message->segment_bytes ? whole.iov_len : message->segment_bytes;
        if (send_messages(sink, &single, 1, &err) == 0) {
            send_sink_note_failed(&sink->base, err);
            n_failed++;
        }
        if (!message->gathered)
            single.msg_hdr.msg_iov += PARTS_PER_PACKET;
        packet.iov_base = (uint8_t *)packet.iov_base + packet.iov_len;
        whole.iov_len -= packet.iov_len;
    }
    return n_failed;
}

/* Sends all messages.  Returns the number of packets that failed. */
static size_t send_all(struct udp_sink *sink, size_t n_messages)
{
    size_t n_failed = 0;

    for (size_t m = 0; m < n_messages; m++) {
        int err = 0;
        m += send_messages(sink, sink->messages + m, n_messages - m, &err);
        if (m == n_messages)
            break;
        if (sink->plan[m].n_packets > 1 && refuses_joined(err)) {
            log_info("packets are sent one by one: the kernel refuses joined packets (%s)", strerror(err));
            sink->joins = false;
            for (; m < n_messages; m++)
                n_failed += send_apart(sink, m);
            break;
        }
        for (size_t i = 0; i < sink->plan[m].n_packets; i++)
            send_sink_note_failed(&sink->base, err);
        n_failed += sink->plan[m].n_packets;
    }
    return n_failed;
}

static size_t udp_send(struct send_sink *base, struct packet_out *packets, size_t n)
{
    struct udp_sink *sink = CONTAINER_OF(base, struct udp_sink, base);
    size_t n_failed = send_all(sink, make_messages(sink, packets, n));

    /* References are released after all packets have left.  Joining packets to messages changes their order.  So a
     * buffer's last packet, which carries the buffer's reference, may leave before the buffer's other packets. */
    for (size_t i = 0; i < n; i++)
        send_sink_put_ref(&packets[i]);
    return n - n_failed;
}

static void udp_close(struct send_sink *base)
{
    struct udp_sink *sink = CONTAINER_OF(base, struct udp_sink, base);
    if (sink->fd >= 0)
        close(sink->fd);
    free(sink->open_message);
    free(sink->destinations);
    free(sink);
}

static const struct send_sink_ops udp_ops = {.send = udp_send, .close = udp_close};

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void set_buffer(int fd, size_t buffer_bytes)
{
    if (buffer_bytes == 0)
        return;
    int asked = buffer_bytes > INT_MAX / 2 ? INT_MAX / 2 : (int)buffer_bytes;
    /* SO_SNDBUFFORCE is not limited by wmem_max, but needs CAP_NET_ADMIN. */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &asked, sizeof(asked)))
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof(asked));
    int granted = 0;
    socklen_t length = sizeof(granted);
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &granted, &length))
        return;
    granted /= 2;       /* the kernel reports twice the size, for its own bookkeeping */
    static bool warned; /* [main] limits the warning to one for all sockets */
    if (granted < asked && !warned) {
        log_warning("send.buffer: the kernel grants each stream only %d of %d bytes; "
                    "\"sysctl net.core.wmem_max=%d\" allows more",
                    granted, asked, asked);
        warned = true;
    }
}

static int set_multicast(int fd, const struct send_sink_config *config, const struct interface *interface)
{
    const struct ip_mreqn outgoing = {.imr_address = interface->address, .imr_ifindex = interface->index};
    if (config->interface && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &outgoing, sizeof(outgoing)))
        return -errno;
    const int ttl = config->ttl;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof(ttl)))
        return -errno;
    /* Receivers on this host also receive a copy. */
    const int on = 1;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof(on)))
        return -errno;
    return 0;
}

/* Checks that the kernel has a route to each destination, by connecting a socket without sending. */
static int check_routes(const struct send_sink_config *config, const struct interface *interface, char *why,
                        size_t why_bytes)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    const struct endpoint *first = &config->destinations->items[0];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 ? -errno : set_multicast(fd, config, interface);
    if (err)
        err = endpoint_fail(first, -err, "set up a socket",
                            err == -EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "", why,
                            why_bytes);
    for (size_t i = 0; i < config->destinations->n && !err; i++) {
        const struct endpoint *to = &config->destinations->items[i];
        const struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = htons(to->port), .sin_addr = to->address};
        connect(fd, &nowhere, sizeof(nowhere)); /* removes the source address that the previous connection set */
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
            continue;
        const char *cure = "";
        if (errno == ENETUNREACH || errno == EHOSTUNREACH)
            cure = endpoint_is_multicast(to) && !config->interface ? "name the send.interface to send on"
                                                                   : "there is no route to it: see \"ip route get\"";
        else if (errno == EACCES)
            cure = "it is a broadcast address: name a multicast group or a host";
        err = endpoint_fail(to, errno, "send there", cure, why, why_bytes);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

static int open_socket(struct udp_sink *sink, const struct send_sink_config *config, const struct interface *interface,
                       char *why, size_t why_bytes)
{
    sink->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = sink->fd < 0 ? -errno : set_multicast(sink->fd, config, interface);
    if (err)
        return endpoint_fail(&config->destinations->items[0], -err, "set up a socket",
                             err == -EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "", why,
                             why_bytes);
    set_buffer(sink->fd, config->buffer_bytes);
    return 0;
}

static int find_interface(const struct send_sink_config *config, struct interface *interface, char *why,
                          size_t why_bytes)
{
    if (!config->interface)
        return 0;
    int err = endpoint_find_interface(config->interface, interface, why, why_bytes);
    return why_about(err, "send.interface", why, why_bytes);
}

int send_sink_udp_open(const struct send_sink_config *config, struct send_sink **out, char *why, size_t why_bytes)
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
    unsigned *open_message = calloc(endpoints->n, sizeof(*open_message));
    if (!sink || !destinations || !open_message) {
        free(open_message);
        free(destinations);
        free(sink);
        return why_out_of_memory(why, why_bytes);
    }
    sink->base.ops = &udp_ops;
    sink->joins = true;
    sink->destinations = destinations;
    sink->open_message = open_message;
    for (size_t i = 0; i < endpoints->n; i++)
        destinations[i] = (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = htons(endpoints->items[i].port),
            .sin_addr = endpoints->items[i].address,
        };
    err = open_socket(sink, config, &interface, why, why_bytes);
    if (err)
        udp_close(&sink->base);
    else
        *out = &sink->base;
    return err;
}
