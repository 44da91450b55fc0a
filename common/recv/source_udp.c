/* source_udp.c - receives packets from sockets into slots.
 *
 * Each endpoint has its own socket, for two reasons.  The kernel limits a socket to 20 memberships.  A socket that is
 * bound to its group receives no other packets.  epoll reports the ready sockets.  Each ready socket gets one turn, and
 * then the thread queries epoll again.  A socket leaves the list of ready sockets when the socket is empty.  So a busy
 * group cannot starve the other groups.  When the thread catches up after a delay, the groups of one stream advance
 * together, so that no packets become too old.  Nothing is allocated after open.
 *
 * The kernel may coalesce packets into a message (UDP_GRO).  A message costs as much as one packet.  Coalesced messages
 * are received into a few buffers that stay in the cache.  The packets of coalesced messages are zero-copy.  It would
 * cost more to let the kernel scatter the packets to their places, because the kernel writes through the cache
 * (docs/decisions/receive-copy-past-cache.md). */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/base/why.h"
#include "common/recv/gro.h"
#include "common/base/log.h"
#include "common/recv/source.h"
#include "common/base/units.h"

#include <errno.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PARTS_MAX 4 /* number of iovecs of a message: three buffers of a slot, and a part for excess bytes */
/* largest number of ready sockets that one epoll_wait() reports; the next epoll_wait() reports further sockets */
#define READY_MAX 64
/* after this number of successive messages of one packet, the source expects no more coalesced messages */
#define SINGLES_MAX 64
#define MESSAGE_MAX PACKET_BYTES_MAX

/* number of messages per recvmmsg(); the number is so small that their buffers stay in the second-level cache */
#define JOINED_MESSAGES 4

struct udp_socket {
    int fd;
    bool joined;       /* the kernel coalesces packets for this socket */
    unsigned n_single; /* number of messages with one packet since the last coalesced message */
};

/* Control message of UDP_GRO: the size of a coalesced message's packets. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

struct udp_source {
    struct recv_source base;
    int epoll_fd;
    size_t n_sockets;
    struct udp_socket *sockets;
    struct epoll_event ready[READY_MAX];
    int n_ready;
    int next_ready;
    int n_turns_left;         /* number of turns before the next query of epoll; each ready socket gets one turn */
    int64_t alone_timeout_ns; /* current SO_RCVTIMEO of the only socket */
    bool alone_dry;           /* true if the only socket was empty after the last recv */
    bool may_coalesce;        /* true if buffers are so large that recv_source_coalesce() may sleep */
    int64_t busy_ns;          /* duration of polling before a wait */
    size_t next_busy;         /* index of the socket to poll next */
    int64_t waiting_since_ns; /* monotonic time when the last wait began */
    struct mmsghdr messages[PACKET_BATCH_MAX];
    struct iovec iovecs[PACKET_BATCH_MAX][PARTS_MAX];
    union control controls[PACKET_BATCH_MAX];
    struct sockaddr_in senders[PACKET_BATCH_MAX];
    uint8_t *buffer;            /* [PACKET_BATCH_MAX][MESSAGE_MAX] room for coalesced messages */
    struct gro_queue coalesced; /* coalesced messages in 'buffer' */
};

/* ---- Messages of one packet each --------------------------------------------------------------------------------- */

/* Estimates, from a received message, whether the socket's next messages will be coalesced. */
static void learn(struct udp_socket *udp_socket, size_t n_bytes, size_t segment_bytes)
{
    bool several = segment_bytes < n_bytes;

    /* The filter has cut this message to 0 bytes, so the message does not show whether the kernel coalesces. */
    if (n_bytes == 0)
        return;
    udp_socket->n_single = several ? 0 : udp_socket->n_single + 1;
    udp_socket->joined = several || (udp_socket->joined && udp_socket->n_single < SINGLES_MAX);
}

static struct msghdr message_of(struct udp_source *source, size_t i, size_t n_parts)
{
    return (struct msghdr){
        .msg_name = &source->senders[i],
        .msg_namelen = sizeof(source->senders[i]),
        .msg_iov = source->iovecs[i],
        .msg_iovlen = n_parts,
        .msg_control = &source->controls[i],
        .msg_controllen = sizeof(source->controls[i]),
    };
}

static size_t slot_room(const struct packet_slot *slot)
{
    return slot->header_bytes + slot->payload_bytes + slot->spill_bytes;
}

/* Points message 'i' to the buffers of a slot.  A coalesced message may be larger than the slot.  Its excess bytes are
 * received into 'buffer', at the same offset as if the whole message were there. */
static void point_at_slot(struct udp_source *source, size_t i, const struct packet_slot *slot)
{
    struct iovec *iovecs = source->iovecs[i];
    size_t room = slot_room(slot);
    iovecs[0] = (struct iovec){slot->header, slot->header_bytes};
    iovecs[1] = (struct iovec){slot->payload, slot->payload_bytes};
    iovecs[2] = (struct iovec){slot->spill, slot->spill_bytes};
    if (room < MESSAGE_MAX)
        iovecs[3] = (struct iovec){source->buffer + i * MESSAGE_MAX + room, MESSAGE_MAX - room};
    source->messages[i].msg_hdr = message_of(source, i, room < MESSAGE_MAX ? 4 : 3);
}

/* Copies the coalesced message 'i' from its slot to 'buffer'. */
static void take_joined(struct udp_source *source, size_t i, const struct packet_slot *slot, size_t segment_bytes)
{
    size_t room = slot_room(slot);
    uint8_t *bytes = source->buffer + i * MESSAGE_MAX;

    recv_packet_copy(slot, 0, slot->packet_bytes < room ? slot->packet_bytes : room, bytes);
    gro_add(&source->coalesced, &(struct gro_message){.bytes = bytes,
                                                      .n_bytes = slot->packet_bytes,
                                                      .segment_bytes = segment_bytes,
                                                      .endpoint = slot->endpoint,
                                                      .sender = slot->sender});
}

/* Receives up to 'n_slots' messages, one per slot.  Moves coalesced messages to 'buffer'.  Returns the number of
 * messages, and stores the number of filled slots in '*n_filled'.  After an error returns negative errno. */
static int recv_single(struct udp_source *source, unsigned endpoint, int flags, struct packet_slot *slots,
                       size_t n_slots, size_t *n_filled)
{
    struct udp_socket *udp_socket = &source->sockets[endpoint];
    for (size_t i = 0; i < n_slots; i++)
        point_at_slot(source, i, &slots[i]);
    int n = recvmmsg(udp_socket->fd, source->messages, (unsigned)n_slots, flags, NULL);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        size_t n_bytes = source->messages[i].msg_len;
        size_t segment_bytes = gro_segment_bytes(&source->messages[i].msg_hdr, n_bytes);
        slots[i].packet_bytes = n_bytes;
        slots[i].truncated = n_bytes > slot_room(&slots[i]);
        slots[i].endpoint = endpoint;
        slots[i].sender = source->senders[i].sin_addr.s_addr;
        learn(udp_socket, n_bytes, segment_bytes);
        /* After a coalesced message, all later messages also move to 'buffer', so that the packets stay in order. */
        if (segment_bytes < n_bytes || !gro_is_empty(&source->coalesced))
            take_joined(source, (size_t)i, &slots[i], segment_bytes);
        else
            (*n_filled)++;
    }
    return n;
}

/* ---- Messages of several packets --------------------------------------------------------------------------------- */

/* Receives up to JOINED_MESSAGES messages into 'buffer'.  Returns the number of messages, or negative errno. */
static int recv_joined(struct udp_source *source, unsigned endpoint, int flags)
{
    struct udp_socket *udp_socket = &source->sockets[endpoint];
    for (size_t i = 0; i < JOINED_MESSAGES; i++) {
        source->iovecs[i][0] = (struct iovec){source->buffer + i * MESSAGE_MAX, MESSAGE_MAX};
        source->messages[i].msg_hdr = message_of(source, i, 1);
    }
    int n = recvmmsg(udp_socket->fd, source->messages, JOINED_MESSAGES, flags, NULL);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        size_t n_bytes = source->messages[i].msg_len;
        size_t segment_bytes = gro_segment_bytes(&source->messages[i].msg_hdr, n_bytes);
        learn(udp_socket, n_bytes, segment_bytes);
        gro_add(&source->coalesced, &(struct gro_message){.bytes = source->iovecs[i][0].iov_base,
                                                          .n_bytes = n_bytes,
                                                          .segment_bytes = segment_bytes,
                                                          .endpoint = endpoint,
                                                          .sender = source->senders[i].sin_addr.s_addr});
    }
    return n;
}

/* ---- Alternation of sockets -------------------------------------------------------------------------------------- */

/* Receives packets from an endpoint's socket.  'flags' are flags of recvmmsg().  Returns 0 if the socket probably has
 * more packets, 1 if the socket is empty, or negative errno if the socket is dead. */
static int recv_from(struct udp_source *source, unsigned endpoint, int flags, struct packet_slot *slots, size_t n_slots,
                     size_t *n_filled)
{
    bool joined = source->sockets[endpoint].joined;
    int n =
        joined ? recv_joined(source, endpoint, flags) : recv_single(source, endpoint, flags, slots, n_slots, n_filled);

    if (n < 0 && n != -EAGAIN && n != -EINTR && n != -ECONNREFUSED)
        return n;
    if (*n_filled == 0)
        *n_filled = gro_next_packets(&source->coalesced, slots, n_slots);
    return n < (joined ? JOINED_MESSAGES : (int)n_slots);
}

/* Polls the sockets in turn for 'busy_ns', and each socket at least once, before the thread waits.  So each socket is
 * served even if the thread is interrupted for longer than 'busy_ns'.  A receive call also polls the NIC's queue for
 * the socket, if SO_BUSY_POLL is set.  Returns the number of filled slots, or negative errno. */
static int recv_busily(struct udp_source *source, struct packet_slot *slots, size_t n_slots, int64_t busy_ns)
{
    int64_t end_ns = clock_monotonic_ns() + busy_ns;
    size_t n_filled = 0;

    for (size_t n = 0; n < source->n_sockets || clock_monotonic_ns() < end_ns; n++) {
        unsigned endpoint = (unsigned)source->next_busy;
        source->next_busy = (source->next_busy + 1) % source->n_sockets;
        int dry = recv_from(source, endpoint, MSG_DONTWAIT, slots, n_slots, &n_filled);
        if (dry < 0 || n_filled > 0)
            return dry < 0 ? dry : (int)n_filled;
    }
    return 0;
}

/* Receives from the only socket.  The receive call also waits, which saves a second system call. */
static int recv_alone(struct udp_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    size_t n_filled = 0;

    if (timeout_ns > 0 && timeout_ns != source->alone_timeout_ns) {
        int64_t timeout_us = (timeout_ns + NS_PER_US - 1) / NS_PER_US; /* rounded up, because 0 means no time-out */
        struct timeval timeout = {.tv_sec = timeout_us / 1000000, .tv_usec = timeout_us % 1000000};
        if (setsockopt(source->sockets[0].fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)))
            return -errno;
        source->alone_timeout_ns = timeout_ns;
    }
    if (source->alone_dry && timeout_ns > 0)
        recv_source_coalesce(source->may_coalesce, &source->waiting_since_ns);
    int dry = recv_from(source, 0, timeout_ns > 0 ? MSG_WAITFORONE : MSG_DONTWAIT, slots, n_slots, &n_filled);
    source->alone_dry = dry;
    return dry < 0 ? dry : (int)n_filled;
}

/* Waits up to 'timeout_ns' for a ready socket, and lists the ready sockets.  Returns 0 or negative errno. */
static int find_ready(struct udp_source *source, int64_t timeout_ns)
{
    if (timeout_ns > 0) {
        /* ppoll() waits, because epoll_wait() has a resolution of a millisecond. */
        struct pollfd readable = {.fd = source->epoll_fd, .events = POLLIN};
        struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};
        if (ppoll(&readable, 1, &timeout, NULL) == 0)
            return 0;
    }
    source->next_ready = 0;
    source->n_ready = epoll_wait(source->epoll_fd, source->ready, READY_MAX, 0);
    source->n_turns_left = source->n_ready;
    if (source->n_ready >= 0)
        return 0;
    source->n_ready = 0;
    return errno == EINTR ? 0 : -errno;
}

/* Returns true if epoll must be asked again for ready sockets.  This is unnecessary while all sockets are in the
 * list. */
static bool turns_are_over(struct udp_source *source)
{
    return (size_t)source->n_ready < source->n_sockets && source->n_turns_left <= 0;
}

/* Receives from the ready socket whose turn it is.  Returns 0, or negative errno if the socket is dead. */
static int serve_next(struct udp_source *source, struct packet_slot *slots, size_t n_slots, size_t *n_filled)
{
    int dry = recv_from(source, source->ready[source->next_ready].data.u32, MSG_DONTWAIT, slots, n_slots, n_filled);

    source->n_turns_left--;
    if (!dry) {
        source->next_ready = (source->next_ready + 1) % source->n_ready;
        return 0;
    }
    /* The last socket of the list replaces the empty socket. */
    source->ready[source->next_ready] = source->ready[--source->n_ready];
    if (source->next_ready == source->n_ready)
        source->next_ready = 0;
    return dry < 0 ? dry : 0;
}

/* Returns true if the kernel coalesces packets for the socket whose turn is next. */
static bool next_is_joined(const struct udp_source *source)
{
    return source->sockets[source->ready[source->next_ready].data.u32].joined;
}

static bool all_are_joined(const struct udp_source *source)
{
    size_t i = 0;

    while (i < source->n_sockets && source->sockets[i].joined)
        i++;
    return i == source->n_sockets;
}

static bool udp_is_zero_copy(const struct recv_source *base)
{
    const struct udp_source *source = CONTAINER_OF(base, const struct udp_source, base);
    if (!gro_is_empty(&source->coalesced))
        return true;
    return source->busy_ns > 0 ? all_are_joined(source) : next_is_joined(source);
}

static int udp_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct udp_source *source = CONTAINER_OF(base, struct udp_source, base);
    bool is_zero_copy = udp_is_zero_copy(base);
    size_t n_filled = gro_next_packets(&source->coalesced, slots, n_slots);
    int err = 0;

    if (n_filled == 0 && source->busy_ns > 0 && timeout_ns > 0) {
        int64_t busy_ns = timeout_ns < source->busy_ns ? timeout_ns : source->busy_ns;
        int n = recv_busily(source, slots, n_slots, busy_ns);
        if (n != 0)
            return n;
        timeout_ns -= busy_ns;
    }
    if (n_filled == 0 && source->n_sockets == 1)
        return recv_alone(source, slots, n_slots, timeout_ns);
    while (n_filled == 0) {
        if (source->n_ready == 0) {
            if (timeout_ns > 0)
                recv_source_coalesce(source->may_coalesce, &source->waiting_since_ns);
            err = find_ready(source, timeout_ns);
            timeout_ns = 0; /* wait only once, because a ready socket may have no packet */
        } else if (turns_are_over(source)) {
            err = find_ready(source, 0);
        }
        if (!err && (source->n_ready == 0 || (is_zero_copy && !next_is_joined(source))))
            return 0; /* no packet, or packets of a kind other than udp_is_zero_copy() has announced */
        if (!err)
            err = serve_next(source, slots, n_slots, &n_filled);
        if (err)
            return err; /* the next call reports the error of a dead socket again */
    }
    return (int)n_filled;
}

/* Reads the number of drops from the kernel only on request.  SO_RXQ_OVFL would cost time for every packet. */
static uint64_t udp_kernel_drops(const struct recv_source *base)
{
    const struct udp_source *source = CONTAINER_OF(base, const struct udp_source, base);
    uint64_t n_dropped = 0;

    for (size_t i = 0; i < source->n_sockets; i++) {
        uint32_t info[SK_MEMINFO_VARS];
        socklen_t length = sizeof(info);
        if (getsockopt(source->sockets[i].fd, SOL_SOCKET, SO_MEMINFO, info, &length) == 0 &&
            length > SK_MEMINFO_DROPS * sizeof(info[0]))
            n_dropped += info[SK_MEMINFO_DROPS];
    }
    return n_dropped;
}

static void udp_close(struct recv_source *base)
{
    struct udp_source *source = CONTAINER_OF(base, struct udp_source, base);
    for (size_t i = 0; i < source->n_sockets; i++)
        close(source->sockets[i].fd);
    if (source->epoll_fd >= 0)
        close(source->epoll_fd);
    memory_unmap(source->buffer, PACKET_SOURCE_BYTES);
    free(source->sockets);
    free(source);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Arguments for opening the sockets, and the buffer for the error message. */
struct opening {
    const struct recv_source_config *config;
    struct interface interface; /* address INADDR_ANY and index 0: the kernel chooses the interface */
    size_t buffer_bytes;        /* size of each socket's buffer */
    /* true if the thread does not poll, and each socket has RECV_SOURCE_COALESCE_BUFFER_MIN bytes */
    bool may_coalesce;
    char *why;
    size_t why_bytes;
};

/* Writes "antennas[0].pol0: 239.1.0.1:7148: cannot ...: reason; cure" to opening->why.  Returns negative errno. */
static int fail(struct opening *opening, const struct endpoint *endpoint, int err, const char *what, const char *cure)
{
    return endpoint_fail(endpoint, err, what, cure, opening->why, opening->why_bytes);
}

static void set_buffer(struct opening *opening, int fd)
{
    if (opening->buffer_bytes == 0) {
        opening->may_coalesce = false;
        return;
    }
    int asked = opening->buffer_bytes > INT_MAX / 2 ? INT_MAX / 2 : (int)opening->buffer_bytes;
    /* SO_RCVBUFFORCE is not limited by rmem_max, but needs CAP_NET_ADMIN. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &asked, sizeof(asked)))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked));
    int granted = 0;
    socklen_t length = sizeof(granted);
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &length))
        return;
    granted /= 2; /* the kernel reports twice the size, for its own bookkeeping */
    if (granted < RECV_SOURCE_COALESCE_BUFFER_MIN)
        opening->may_coalesce = false;
    static bool warned; /* [main] limits the warning to one for all sockets */
    if (granted < asked && !warned) {
        log_warning("recv.buffer: the kernel grants each socket only %d of %d bytes, so larger bursts are lost; "
                    "\"sysctl net.core.rmem_max=%d\" allows more",
                    granted, asked, asked);
        warned = true;
    }
}

/* Lets receive calls poll the NIC's queue that delivered the socket's last packets.  Without permission the socket
 * keeps the sysctl's setting. */
static void set_busy_poll(const struct opening *opening, int fd)
{
    int asked_us = (int)(opening->config->busy_poll_ns / NS_PER_US);
    const int on = 1;

    if (asked_us == 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof(on)); /* reduces interrupts, if permitted */
    if (setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &asked_us, sizeof(asked_us)) == 0)
        return;
    static bool warned; /* [main] limits the warning to one for all sockets */
    if (!warned)
        log_warning("recv.busy_poll: sockets are polled, but the network card is not (%s); \"sysctl "
                    "net.core.busy_read=%d\" allows it",
                    strerror(errno), asked_us);
    warned = true;
}

static int join_group(struct opening *opening, const struct endpoint *endpoint, int fd)
{
    /* Without this option the socket would also receive groups that other sockets of this host have joined. */
    const int off = 0;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off)))
        return fail(opening, endpoint, errno, "exclude other groups", "");
    int err = recv_source_join(fd, endpoint, &opening->interface);
    if (!err)
        return 0;
    /* Without an interface the kernel needs a route to the group.  The route may be added later. */
    if (err == ENODEV && !opening->config->interface)
        return fail(opening, endpoint, ENETUNREACH, "join the multicast group",
                    "name the recv.interface to receive on");
    return fail(opening, endpoint, err, "join the multicast group",
                err == ENOBUFS ? "see \"sysctl net.ipv4.igmp_max_memberships\"" : "");
}

static int bind_endpoint(struct opening *opening, const struct endpoint *endpoint, int fd)
{
    /* Several receivers of a group on one host share the port, and each receives a copy.  (SO_REUSEPORT would
     * distribute the packets among them.)  A unicast packet is delivered to one socket only, so sharing its port would
     * hide a mistake. */
    const int on = 1;
    if (endpoint_is_multicast(endpoint) && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
        return fail(opening, endpoint, errno, "share the port", "");
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(endpoint->port),
        .sin_addr = endpoint->address,
    };
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return 0;
    const char *hint = "";
    if (errno == EADDRINUSE)
        hint = "another program receives there: stop it, or choose another port";
    else if (errno == EADDRNOTAVAIL)
        hint = "it is neither a multicast group nor an address of this host";
    else if (errno == EACCES)
        hint = "ports below 1024 are for root";
    return fail(opening, endpoint, errno, "receive there", hint);
}

/* Opens a socket that receives the packets to 'endpoint'.  Returns the socket, or negative errno. */
static int open_socket(struct opening *opening, const struct endpoint *endpoint)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(opening, endpoint, errno, "open a socket",
                    errno == EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "");
    set_buffer(opening, fd);
    set_busy_poll(opening, fd);
    const int on = 1;
    /* A failure is harmless: without UDP_GRO every packet is a message. */
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
    int err = bind_endpoint(opening, endpoint, fd);
    /* A failure is harmless, because the receiver recognises packets for other threads and from forbidden senders. */
    const struct packet_fanout *share = endpoint_is_multicast(endpoint) ? opening->config->share : NULL;
    if (!err && (share || endpoint->from))
        packet_filter_attach(fd, endpoint->from, share);
    if (!err && endpoint_is_multicast(endpoint))
        err = join_group(opening, endpoint, fd);
    if (!err)
        return fd;
    close(fd);
    return err;
}

static int find_interface(struct opening *opening)
{
    if (!opening->config->interface)
        return 0;
    int err =
        endpoint_find_interface(opening->config->interface, &opening->interface, opening->why, opening->why_bytes);
    return why_about(err, "recv.interface", opening->why, opening->why_bytes);
}

static int open_all(struct udp_source *source, struct opening *opening)
{
    const struct endpoint_list *endpoints = opening->config->endpoints;
    source->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (source->epoll_fd < 0)
        return fail(opening, &endpoints->items[0], errno, "wait for packets", "");
    for (size_t i = 0; i < endpoints->n; i++) {
        int fd = open_socket(opening, &endpoints->items[i]);
        if (fd < 0)
            return fd;
        source->sockets[source->n_sockets++].fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(source->epoll_fd, EPOLL_CTL_ADD, fd, &event))
            return fail(opening, &endpoints->items[i], errno, "wait for packets", "");
    }
    return 0;
}

static const struct recv_source_ops udp_ops = {
    .recv = udp_recv,
    .is_zero_copy = udp_is_zero_copy,
    .kernel_drops = udp_kernel_drops,
    .close = udp_close,
    .can_wait = false,
};

int recv_source_udp_open(const struct recv_source_config *config, struct recv_source **out, char *why, size_t why_bytes)
{
    struct opening opening = {
        .config = config,
        .buffer_bytes = config->buffer_bytes / config->endpoints->n,
        .may_coalesce = config->busy_poll_ns == 0,
        .why = why,
        .why_bytes = why_bytes,
    };
    int err = find_interface(&opening);
    if (err)
        return err;
    files_raise_limit();
    struct udp_source *source = calloc(1, sizeof(*source));
    if (!source)
        return why_out_of_memory(why, why_bytes);
    source->base.ops = &udp_ops;
    source->epoll_fd = -1;
    source->sockets = calloc(config->endpoints->n, sizeof(*source->sockets));
    source->buffer = memory_map(PACKET_SOURCE_BYTES, memory_node_of_interface(config->interface)); /* populated */
    if (source->sockets && source->buffer) {
        err = open_all(source, &opening);
        source->may_coalesce = opening.may_coalesce;
        source->busy_ns = config->busy_poll_ns;
    } else {
        err = why_out_of_memory(why, why_bytes);
    }
    if (err)
        udp_close(&source->base);
    else
        *out = &source->base;
    return err;
}
