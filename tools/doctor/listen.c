/* listen.c - opens one socket for each endpoint, and receives from the sockets with epoll. */
#include "tools/doctor/listen.h"

#include "common/base/clock.h"
#include "common/base/units.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH        64
#define BUFFER_BYTES (32 << 20)
#define WAIT_MS_MAX  100
#define TURNS        16 /* greatest number of batches that are read from one socket before the next socket is read */

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(struct timespec))];
};

struct listener {
    struct listen_want *wants;
    size_t n_wants;
    int *fds; /* [n_wants]; -1: failed */
    int epoll_fd;
    struct mmsghdr messages[BATCH];
    struct iovec iovecs[BATCH];
    struct sockaddr_in from[BATCH];
    union control controls[BATCH];
    uint8_t headers[BATCH][LISTEN_HEADER_BYTES];
};

static int join(int fd, const struct listen_want *want)
{
    const int on = 1, off = 0, buffer = BUFFER_BYTES;
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(want->endpoint.port), .sin_addr = want->endpoint.address};
    const struct ip_mreqn group = {.imr_multiaddr = want->endpoint.address,
                                   .imr_address = want->interface.address,
                                   .imr_ifindex = want->interface.index};

    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off)) ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) ||
        setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)))
        return -errno;
    return 0;
}

static int open_want(struct listener *listener, size_t i)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};

    if (fd < 0)
        return -errno;
    int err = join(fd, &listener->wants[i]);
    if (!err && epoll_ctl(listener->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        err = -errno;
    if (err)
        close(fd);
    else
        listener->fds[i] = fd;
    return err;
}

int listener_open(struct listen_want *wants, size_t n_wants, struct listener **out)
{
    struct listener *listener = calloc(1, sizeof(*listener));
    int *fds = calloc(n_wants ? n_wants : 1, sizeof(*fds));
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    if (!listener || !fds || epoll_fd < 0) {
        int err = epoll_fd < 0 ? -errno : -ENOMEM;
        free(listener);
        free(fds);
        if (epoll_fd >= 0)
            close(epoll_fd);
        return err;
    }
    listener->wants = wants;
    listener->n_wants = n_wants;
    listener->fds = fds;
    listener->epoll_fd = epoll_fd;
    for (size_t i = 0; i < n_wants; i++) {
        fds[i] = -1;
        wants[i].err = open_want(listener, i);
    }
    *out = listener;
    return 0;
}

/* Returns the time at which the kernel received the packet.  This time does not depend on the speed of this
 * program. */
static int64_t arrival_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            const struct timespec *t = (const void *)CMSG_DATA(c);
            return t->tv_sec * NS_PER_S + t->tv_nsec;
        }
    return clock_unix_ns();
}

/* Returns the number of packets that were read. */
static int take_batch(struct listener *listener, size_t i, void (*take)(void *arg, const struct listen_packet *packet),
                      void *arg)
{
    for (size_t m = 0; m < BATCH; m++) {
        listener->iovecs[m] = (struct iovec){listener->headers[m], LISTEN_HEADER_BYTES};
        listener->messages[m].msg_hdr = (struct msghdr){
            .msg_name = &listener->from[m],
            .msg_namelen = sizeof(listener->from[m]),
            .msg_iov = &listener->iovecs[m],
            .msg_iovlen = 1,
            .msg_control = &listener->controls[m],
            .msg_controllen = sizeof(listener->controls[m]),
        };
    }
    int n = recvmmsg(listener->fds[i], listener->messages, BATCH, MSG_TRUNC | MSG_DONTWAIT, NULL);
    for (int m = 0; m < n; m++) {
        size_t bytes = listener->messages[m].msg_len;
        struct listen_packet packet = {
            .want = &listener->wants[i],
            .from = listener->from[m],
            .arrival_unix_ns = arrival_of(&listener->messages[m].msg_hdr),
            .packet_bytes = bytes,
            .header = listener->headers[m],
            .header_bytes = bytes < LISTEN_HEADER_BYTES ? bytes : LISTEN_HEADER_BYTES,
        };
        take(arg, &packet);
    }
    return n;
}

void listener_run(struct listener *listener, int64_t duration_ns,
                  void (*take)(void *arg, const struct listen_packet *packet), void *arg)
{
    int64_t end_ns = clock_monotonic_ns() + duration_ns, left_ns;
    struct epoll_event ready[BATCH];

    while ((left_ns = end_ns - clock_monotonic_ns()) > 0) {
        int wait_ms = left_ns > WAIT_MS_MAX * NS_PER_MS ? WAIT_MS_MAX : (int)(left_ns / NS_PER_MS) + 1;
        int n = epoll_wait(listener->epoll_fd, ready, BATCH, wait_ms);
        for (int r = 0; r < n; r++)
            for (int turn = 0; turn < TURNS; turn++)
                if (take_batch(listener, (size_t)ready[r].data.u64, take, arg) < BATCH)
                    break;
    }
}

uint64_t listener_drops(const struct listener *listener)
{
    uint64_t n = 0;

    for (size_t i = 0; i < listener->n_wants; i++) {
        uint32_t info[SK_MEMINFO_VARS];
        socklen_t length = sizeof(info);
        if (listener->fds[i] >= 0 && getsockopt(listener->fds[i], SOL_SOCKET, SO_MEMINFO, info, &length) == 0 &&
            length > SK_MEMINFO_DROPS * sizeof(info[0]))
            n += info[SK_MEMINFO_DROPS];
    }
    return n;
}

void listener_close(struct listener *listener)
{
    if (!listener)
        return;
    for (size_t i = 0; i < listener->n_wants; i++)
        if (listener->fds[i] >= 0)
            close(listener->fds[i]);
    close(listener->epoll_fd);
    free(listener->fds);
    free(listener);
}
