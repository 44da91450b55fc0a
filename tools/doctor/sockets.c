/* sockets.c - reads the buffer sizes that the kernel really gave to the sockets of running daemons.
 *
 * Source: sock_diag(7), which any user may query. */
#include "tools/doctor/doctor.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 65536

struct udp_socket {
    struct endpoint at;
    uint32_t buffer_bytes;
};

struct udp_sockets {
    size_t n;
    struct udp_socket *items;
};

static bool ask(int fd)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 request;
    } message = {
        .header = {.nlmsg_len = sizeof(message),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = AF_INET,
                    .sdiag_protocol = IPPROTO_UDP,
                    .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                    .idiag_states = UINT32_MAX},
    };

    return send(fd, &message, sizeof(message), 0) == (ssize_t)sizeof(message);
}

static void add_socket(struct udp_sockets *sockets, struct nlmsghdr *header)
{
    struct inet_diag_msg *diag = NLMSG_DATA(header);
    int left = (int)(header->nlmsg_len - NLMSG_LENGTH(sizeof(*diag)));

    for (struct rtattr *a = (struct rtattr *)(diag + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        uint32_t info[SK_MEMINFO_VARS] = {0};
        if (a->rta_type != INET_DIAG_SKMEMINFO)
            continue;
        memcpy(info, RTA_DATA(a), RTA_PAYLOAD(a) < sizeof(info) ? RTA_PAYLOAD(a) : sizeof(info));
        struct udp_socket *items = realloc(sockets->items, (sockets->n + 1) * sizeof(*items));
        if (!items)
            abort();
        sockets->items = items;
        items[sockets->n] = (struct udp_socket){.buffer_bytes = info[SK_MEMINFO_RCVBUF] / 2}; /* half is bookkeeping */
        items[sockets->n].at.address.s_addr = diag->id.idiag_src[0];
        items[sockets->n++].at.port = ntohs(diag->id.idiag_sport);
    }
}

/* Lists the UDP sockets of this host.  Returns false if the kernel does not answer. */
static bool list_sockets(struct udp_sockets *sockets)
{
    static _Alignas(struct nlmsghdr) char reply[REPLY_BYTES];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool done = false, ok = fd >= 0 && ask(fd);

    while (ok && !done) {
        ssize_t n = recv(fd, reply, sizeof(reply), 0);
        int left = (int)n;
        ok = n > 0;
        for (struct nlmsghdr *h = (struct nlmsghdr *)(void *)reply;
             ok && !done && left > 0 && NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
            done = h->nlmsg_type == NLMSG_DONE;
            ok = h->nlmsg_type != NLMSG_ERROR;
            if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY)
                add_socket(sockets, h);
        }
    }
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Returns the largest buffer size of all sockets at an endpoint.  Other programs may also receive at the endpoint,
 * with smaller buffers.  Returns 0 if there is no socket. */
static uint32_t buffer_at(const struct udp_sockets *sockets, const struct endpoint *endpoint)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < sockets->n; i++)
        if (endpoint_equal(&sockets->items[i].at, endpoint) && sockets->items[i].buffer_bytes > largest)
            largest = sockets->items[i].buffer_bytes;
    return largest;
}

static void check_file(struct doctor *doctor, const struct doctor_file *file, const struct udp_sockets *sockets)
{
    uint32_t smallest = UINT32_MAX;
    size_t n = 0;

    for (size_t e = 0; e < file->recvs.n; e++) {
        uint32_t bytes = buffer_at(sockets, &file->recvs.items[e]);
        n += bytes > 0;
        smallest = bytes > 0 && bytes < smallest ? bytes : smallest;
    }
    if (n == 0)
        return;
    bool small = smallest < file->recv_socket_min_bytes;
    struct finding *f = doctor_add(doctor, small ? FINDING_FAIL : FINDING_OK, "host.socket_buffers", file->name);
    SAY(f->found, "%zu sockets of the running daemon, the smallest buffer is %u bytes", n, smallest);
    SAY(f->expected, "%zu bytes each, as recv.buffer requests", file->recv_socket_min_bytes);
    SAY(f->why, "the kernel granted less than requested: bursts are lost in the socket");
    SAY(f->fix, "sudo sysctl -w net.core.rmem_max=%zu   # then restart the daemon", file->recv_socket_bytes);
}

void doctor_check_sockets(struct doctor *doctor)
{
    struct udp_sockets sockets = {0};

    if (!doctor->root[0] && list_sockets(&sockets))
        for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
            if (!file->recv->pcap_file && doctor_file_runs(file))
                check_file(doctor, file, &sockets);
    free(sockets.items);
}
