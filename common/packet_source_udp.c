/* packet_source_udp.c - packets from the network into landing slots, by recvmmsg.
 *
 * One socket per endpoint, because the kernel grants a socket 20 memberships only, and because a socket that is bound
 * to its group gets nobody else's packets.  epoll tells which sockets are ready; each is then served once before any
 * is served again, so a busy group cannot starve the others.  Nothing is allocated after open. */
#include "common/log.h"
#include "common/packet_source.h"
#include "common/units.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IOVECS_PER_SLOT 3
#define READY_MAX       64 /* sockets asked for at a time; the kernel's list turns, so the others come next */

struct udp_socket {
    int fd;
    uint32_t n_dropped; /* as the kernel last said: a count since the socket was made, modulo 2^32 */
};

/* Where the kernel puts a message's SO_RXQ_OVFL. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(uint32_t))];
};

struct udp_source {
    struct packet_source base;
    int epoll_fd;
    size_t n_sockets;
    struct udp_socket *sockets;
    uint64_t n_dropped;
    struct epoll_event ready[READY_MAX]; /* those from next_ready on are still to be served */
    int n_ready;
    int next_ready;
    struct mmsghdr messages[PACKET_BATCH_MAX];
    struct iovec iovecs[PACKET_BATCH_MAX][IOVECS_PER_SLOT];
    union control controls[PACKET_BATCH_MAX];
};

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

static void note_kernel_drops(struct udp_source *source, struct udp_socket *udp_socket, struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_RXQ_OVFL)
            continue;
        uint32_t n_dropped;
        memcpy(&n_dropped, CMSG_DATA(c), sizeof(n_dropped));
        source->n_dropped += (uint32_t)(n_dropped - udp_socket->n_dropped);
        udp_socket->n_dropped = n_dropped;
    }
}

static void point_at_slot(struct udp_source *source, size_t i, const struct packet_slot *slot)
{
    struct iovec *iovecs = source->iovecs[i];
    iovecs[0] = (struct iovec){slot->header, slot->header_bytes};
    iovecs[1] = (struct iovec){slot->payload, slot->payload_bytes};
    iovecs[2] = (struct iovec){slot->spill, slot->spill_bytes};
    source->messages[i].msg_hdr = (struct msghdr){
        .msg_iov = iovecs,
        .msg_iovlen = IOVECS_PER_SLOT,
        .msg_control = &source->controls[i],
        .msg_controllen = sizeof(source->controls[i]),
    };
}

/* Takes what one socket has.  Returns the number of packets, or negative errno where the socket is dead. */
static int recv_from(struct udp_source *source, unsigned endpoint, struct packet_slot *slots, size_t n_slots)
{
    struct udp_socket *udp_socket = &source->sockets[endpoint];
    for (size_t i = 0; i < n_slots; i++)
        point_at_slot(source, i, &slots[i]);
    /* MSG_TRUNC: msg_len is what was sent, not what fitted. */
    int n = recvmmsg(udp_socket->fd, source->messages, (unsigned)n_slots, MSG_DONTWAIT | MSG_TRUNC, NULL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED ? 0 : -errno;
    for (int i = 0; i < n; i++) {
        slots[i].packet_bytes = source->messages[i].msg_len;
        slots[i].truncated = source->messages[i].msg_hdr.msg_flags & MSG_TRUNC;
        slots[i].endpoint = endpoint;
        note_kernel_drops(source, udp_socket, &source->messages[i].msg_hdr);
    }
    return n;
}

/* Asks which sockets are ready, waiting up to 'timeout_ns'.  Returns how many, or negative errno. */
static int find_ready(struct udp_source *source, int64_t timeout_ns)
{
    source->next_ready = 0;
    source->n_ready = epoll_wait(source->epoll_fd, source->ready, READY_MAX, 0);
    if (source->n_ready == 0 && timeout_ns > 0) {
        /* ppoll, because epoll_wait counts in milliseconds. */
        struct pollfd readable = {.fd = source->epoll_fd, .events = POLLIN};
        struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};
        if (ppoll(&readable, 1, &timeout, NULL) > 0)
            source->n_ready = epoll_wait(source->epoll_fd, source->ready, READY_MAX, 0);
    }
    if (source->n_ready < 0) {
        source->n_ready = 0;
        return errno == EINTR ? 0 : -errno;
    }
    return source->n_ready;
}

static int udp_recv(struct packet_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct udp_source *source = CONTAINER_OF(base, struct udp_source, base);
    if (source->next_ready == source->n_ready) {
        int err = find_ready(source, timeout_ns);
        if (err < 0)
            return err;
    }
    size_t n_filled = 0;
    while (source->next_ready < source->n_ready && n_filled < n_slots) {
        unsigned endpoint = source->ready[source->next_ready++].data.u32;
        int n = recv_from(source, endpoint, slots + n_filled, n_slots - n_filled);
        if (n < 0)
            return n_filled > 0 ? (int)n_filled : n; /* a dead socket says so again */
        n_filled += (size_t)n;
    }
    return (int)n_filled;
}

static uint64_t udp_kernel_drops(const struct packet_source *base)
{
    const struct udp_source *source = CONTAINER_OF(base, const struct udp_source, base);
    return source->n_dropped;
}

static void udp_close(struct packet_source *base)
{
    struct udp_source *source = CONTAINER_OF(base, struct udp_source, base);
    for (size_t i = 0; i < source->n_sockets; i++)
        close(source->sockets[i].fd);
    if (source->epoll_fd >= 0)
        close(source->epoll_fd);
    free(source->sockets);
    free(source);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* What is needed to open the sockets, and to say why one could not be. */
struct opening {
    const struct packet_source_config *config;
    struct interface interface; /* INADDR_ANY and 0: the kernel's choice */
    size_t buffer_bytes;        /* of each socket */
    char *why;
    size_t why_bytes;
};

/* "antennas[0].pol0: 239.1.0.1:7148: cannot ...: reason; cure" */
static int fail(struct opening *opening, const struct endpoint *endpoint, int err, const char *what, const char *cure)
{
    char name[128];
    snprintf(opening->why, opening->why_bytes, "%s: cannot %s: %s%s%s", endpoint_describe(endpoint, name, sizeof(name)),
             what, strerror(err), cure[0] ? "; " : "", cure);
    return -err;
}

static void set_buffer(struct opening *opening, int fd)
{
    if (opening->buffer_bytes == 0)
        return;
    int asked = opening->buffer_bytes > INT_MAX / 2 ? INT_MAX / 2 : (int)opening->buffer_bytes;
    /* The first needs CAP_NET_ADMIN and is not bound by rmem_max. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &asked, sizeof(asked)))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked));
    int granted = 0;
    socklen_t length = sizeof(granted);
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &length))
        return;
    granted /= 2;       /* the kernel doubles it, for its own book-keeping */
    static bool warned; /* once for all sockets; main thread */
    if (granted < asked && !warned) {
        log_warning("recv.buffer: the kernel grants %d of %d bytes to each socket, and bursts beyond that are lost; "
                    "\"sysctl net.core.rmem_max=%d\" allows more",
                    granted, asked, asked);
        warned = true;
    }
}

static int join_group(struct opening *opening, const struct endpoint *endpoint, int fd)
{
    /* Without this a socket also gets groups that other sockets of the host have joined. */
    const int off = 0;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off)))
        return fail(opening, endpoint, errno, "keep other groups away", "");
    struct ip_mreqn membership = {.imr_multiaddr = endpoint->address,
                                  .imr_address = opening->interface.address,
                                  .imr_ifindex = opening->interface.index};
    if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)) == 0)
        return 0;
    /* Without an interface the kernel looks for a route to the group, which may yet come. */
    if (errno == ENODEV && !opening->config->interface)
        return fail(opening, endpoint, ENETUNREACH, "join the multicast group",
                    "name the recv.interface to receive on");
    return fail(opening, endpoint, errno, "join the multicast group",
                errno == ENOBUFS ? "see \"sysctl net.ipv4.igmp_max_memberships\"" : "");
}

static int bind_endpoint(struct opening *opening, const struct endpoint *endpoint, int fd)
{
    /* Several receivers of a group on a host each get a copy, so they share the port.  (SO_REUSEPORT would deal the
     * packets among them.)  A unicast packet goes to one socket only: there, sharing would hide a mistake. */
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

/* Returns a socket that receives what is sent to 'endpoint', or negative errno. */
static int open_socket(struct opening *opening, const struct endpoint *endpoint)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(opening, endpoint, errno, "open a socket",
                    errno == EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "");
    set_buffer(opening, fd);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on)); /* without it, drops are not known: no reason to fail */
    int err = bind_endpoint(opening, endpoint, fd);
    if (!err && endpoint_is_multicast(endpoint))
        err = join_group(opening, endpoint, fd);
    if (!err)
        return fd;
    close(fd);
    return err;
}

/* The system's usual limit of open files is low for select(2)'s sake, which is not used here. */
static void allow_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int find_interface(struct opening *opening)
{
    char reason[400];
    if (!opening->config->interface)
        return 0;
    int err = interface_find(opening->config->interface, &opening->interface, reason, sizeof(reason));
    if (err)
        snprintf(opening->why, opening->why_bytes, "recv.interface: %s", reason);
    return err;
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

static const struct packet_source_ops udp_ops = {
    .recv = udp_recv,
    .kernel_drops = udp_kernel_drops,
    .close = udp_close,
    .can_wait = false,
};

int packet_source_udp_open(const struct packet_source_config *config, struct packet_source **out, char *why,
                           size_t why_bytes)
{
    struct opening opening = {
        .config = config,
        .buffer_bytes = config->buffer_bytes / config->endpoints->n,
        .why = why,
        .why_bytes = why_bytes,
    };
    int err = find_interface(&opening);
    if (err)
        return err;
    allow_files();
    struct udp_source *source = calloc(1, sizeof(*source));
    if (!source) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    source->base.ops = &udp_ops;
    source->epoll_fd = -1;
    source->sockets = calloc(config->endpoints->n, sizeof(*source->sockets));
    if (source->sockets) {
        err = open_all(source, &opening);
    } else {
        snprintf(why, why_bytes, "out of memory");
        err = -ENOMEM;
    }
    if (err) {
        udp_close(&source->base);
        return err;
    }
    *out = &source->base;
    return 0;
}
