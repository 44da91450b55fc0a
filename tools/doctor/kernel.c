/* kernel.c - checks the kernel's settings for sockets and memory. */
#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"

#include <string.h>
#include <sys/resource.h>

#define RECV_BUFFER_DEFAULT 33554432
#define SEND_BUFFER_DEFAULT 1048576
#define PORTS_MAX           15    /* greatest number of ports in an iptables rule */
#define BACKLOG_MIN         10000 /* number of packets; enough for 30 ms at 25 Gb/s with packets of 9000 bytes */

/* ---- Socket buffers ---------------------------------------------------------------------------------------------- */

static void check_buffer(struct doctor *doctor, const char *id, const char *sysctl, const char *key, int64_t needed,
                         const char *whose)
{
    int64_t granted;

    if (!sys_number(doctor->root, &granted, "/proc/sys/net/core/%s", sysctl)) {
        doctor_note(doctor, FINDING_SKIPPED, id, "", "net.core.%s cannot be read here", sysctl);
        return;
    }
    struct finding *f = doctor_add(doctor, granted < needed ? FINDING_WARN : FINDING_OK, id, "");
    SAY(f->found, "net.core.%s is %lld bytes", sysctl, (long long)granted);
    SAY(f->expected, "at least %lld bytes, which %s in %s requests for each socket", (long long)needed, key, whose);
    SAY(f->why,
        "a burst that does not fit into the socket buffer is lost; only a daemon with CAP_NET_ADMIN can get a larger "
        "buffer");
    SAY(f->fix, "echo 'net.core.%s = %lld' | sudo tee /etc/sysctl.d/80-cbf-%s.conf && sudo sysctl --system", sysctl,
        (long long)needed, sysctl);
}

static void check_buffers(struct doctor *doctor)
{
    int64_t recv = 0, send = 0;
    const char *recv_of = "the default", *send_of = "the default";

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (!file->recv->pcap_file && (int64_t)file->recv_socket_bytes > recv) {
            recv = (int64_t)file->recv_socket_bytes;
            recv_of = file->name;
        }
        if (!file->send->pcap_file && file->send_transport == TRANSPORT_UDP && file->send->buffer_bytes > send) {
            send = file->send->buffer_bytes;
            send_of = file->name;
        }
    }
    if (doctor_recv_bits_per_s(doctor) < 0) {
        recv = RECV_BUFFER_DEFAULT;
        send = SEND_BUFFER_DEFAULT;
    }
    check_buffer(doctor, "host.rmem_max", "rmem_max", "recv.buffer", recv, recv_of);
    check_buffer(doctor, "host.wmem_max", "wmem_max", "send.buffer", send, send_of);
}

/* ---- Other limits of the network --------------------------------------------------------------------------------- */

static void check_backlog(struct doctor *doctor)
{
    int64_t packets;

    if (!sys_number(doctor->root, &packets, "/proc/sys/net/core/netdev_max_backlog")) {
        doctor_note(doctor, FINDING_SKIPPED, "host.netdev_backlog", "",
                    "net.core.netdev_max_backlog cannot be read here");
        return;
    }
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, packets < BACKLOG_MIN), "host.netdev_backlog", "");
    SAY(f->found, "net.core.netdev_max_backlog is %lld packets", (long long)packets);
    SAY(f->expected, "at least %d packets at high rates", BACKLOG_MIN);
    SAY(f->why,
        "this queue holds packets that one CPU hands to another; packets that do not fit are lost (softnet_stat)");
    SAY(f->fix, "sudo sysctl -w net.core.netdev_max_backlog=100000");
}

/* Checks the limits for sockets.  The daemons have one socket for each endpoint.  One multicast membership per socket
 * is therefore enough, but the limit of open files must be high. */
static void check_sockets(struct doctor *doctor)
{
    struct rlimit limit = {0};
    int64_t memberships;
    size_t most = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
        most = file->n_recv_sockets > most ? file->n_recv_sockets : most;
    if (sys_number(doctor->root, &memberships, "/proc/sys/net/ipv4/igmp_max_memberships")) {
        struct finding *f =
            doctor_add(doctor, memberships < 1 ? FINDING_FAIL : FINDING_OK, "host.igmp_memberships", "");
        SAY(f->found, "%lld groups per socket; a daemon has at most %zu sockets, and each socket joins one group",
            (long long)memberships, most);
        SAY(f->expected, "at least 1");
        SAY(f->why, "no multicast group can be joined");
        SAY(f->fix, "sudo sysctl -w net.ipv4.igmp_max_memberships=20");
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && most > 0) {
        struct finding *f =
            doctor_add(doctor, limit.rlim_max < most + 64 ? FINDING_FAIL : FINDING_OK, "host.open_files", "");
        SAY(f->found, "up to %llu open files in this shell", (unsigned long long)limit.rlim_max);
        SAY(f->expected, "at least %zu: a socket for each of %zu endpoints", most + 64, most);
        SAY(f->why, "the daemon raises its limit to this value, and does not start if the value is too low");
        SAY(f->fix, "ulimit -Hn %zu   # or LimitNOFILE=%zu in the unit", most + 64, most + 64);
    }
}

static bool has_port(const uint16_t *ports, size_t n, uint16_t port)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == port)
            return true;
    return false;
}

/* Lists the ports on which the files' engines receive.  Lists each port once.  Returns the number of ports. */
static size_t list_ports(const struct doctor *doctor, uint16_t *ports, size_t n_max)
{
    size_t n = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
        for (size_t e = 0; e < file->recvs.n && n < n_max; e++)
            if (!has_port(ports, n, file->recvs.items[e].port))
                ports[n++] = file->recvs.items[e].port;
    return n;
}

/* Writes iptables rules that switch connection tracking off for the engines' ports only.  A multiport rule has at most
 * 15 ports. */
static void say_rules(const struct doctor *doctor, char *text, size_t text_bytes)
{
    uint16_t ports[PORTS_MAX] = {SPEAD_DEFAULT_PORT};
    size_t n = list_ports(doctor, ports, PORTS_MAX);
    char list[PORTS_MAX * 6 + 1] = "";

    for (size_t i = 0; i < (n ? n : 1); i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%u", i ? "," : "", (unsigned)ports[i]);
    report_say(text, text_bytes,
               "for chain in PREROUTING OUTPUT; do sudo iptables -t raw -I $chain -p udp -m multiport --dports %s "
               "-j CT --notrack; done   # NOTRACK for these ports alone, until the next boot; to keep it: "
               "sudo apt install iptables-persistent && sudo netfilter-persistent save",
               list);
}

static void check_conntrack(struct doctor *doctor)
{
    int64_t n;
    bool on = sys_number(doctor->root, &n, "/proc/sys/net/netfilter/nf_conntrack_count");
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, on), "host.conntrack", "");

    SAY(f->found, on ? "the firewall tracks connections" : "no connections are tracked");
    SAY(f->expected, "no tracking of the packets with data");
    SAY(f->why, "the receiving CPU first searches a table for each packet; at high rates, this takes too much time");
    say_rules(doctor, f->fix, sizeof(f->fix));
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void check_thp(struct doctor *doctor)
{
    char text[128];

    if (!sys_text(doctor->root, text, sizeof(text), "/sys/kernel/mm/transparent_hugepage/enabled")) {
        doctor_note(doctor, FINDING_SKIPPED, "host.thp", "",
                    "this kernel has no transparent huge pages, or hides them");
        return;
    }
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, strstr(text, "[never]")), "host.thp", "");
    SAY(f->found, "transparent huge pages: %s", text);
    SAY(f->expected, "[madvise] or [always]");
    SAY(f->why, "receive buffers occupy gigabytes; with pages of 4 kB, address translation takes much time");
    SAY(f->fix, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
}

static void check_swap(struct doctor *doctor)
{
    char line[256];
    char path[600];
    int n = -1; /* number of swap areas; starts at -1, because the first line of the file is a heading */

    snprintf(path, sizeof(path), "%s/proc/swaps", doctor->root);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        n++;
    if (file)
        fclose(file);
    if (n < 0) {
        doctor_note(doctor, FINDING_SKIPPED, "host.swap", "", "/proc/swaps cannot be read here");
        return;
    }
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n > 0), "host.swap", "");
    SAY(f->found, "%d swap area%s", n, plural((uint64_t)n));
    SAY(f->expected, "none");
    SAY(f->why, "a daemon that waits for the disk loses packets");
    SAY(f->fix, "sudo swapoff -a   # and delete the swap lines in /etc/fstab");
}

static void check_huge_pages(struct doctor *doctor)
{
    int64_t n;

    if (!sys_number(doctor->root, &n, "/proc/sys/vm/nr_hugepages"))
        return;
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n > 0), "host.huge_pages", "");
    SAY(f->found, "%lld huge pages are reserved", (long long)n);
    SAY(f->expected, "none: the daemons use transparent huge pages");
    SAY(f->why, "the daemons cannot use the memory of reserved pages");
    SAY(f->fix, "sudo sysctl -w vm.nr_hugepages=0   # unless another program of this host needs them");
}

static void check_numa_balancing(struct doctor *doctor)
{
    int64_t on;

    if (!sys_number(doctor->root, &on, "/proc/sys/kernel/numa_balancing"))
        return; /* the kernel does not support NUMA */
    bool several = sys_exists(doctor->root, "/sys/devices/system/node/node1");
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, on && several), "host.numa_balancing", "");
    SAY(f->found, "kernel.numa_balancing is %lld, %s", (long long)on, several ? "several nodes" : "one node");
    SAY(f->expected, "0 on hosts with several NUMA nodes");
    SAY(f->why, "to see which CPUs use a page, the kernel unmaps pages of running threads, which then pause for "
                "milliseconds");
    SAY(f->fix, "sudo sysctl -w kernel.numa_balancing=0");
}

void doctor_check_kernel(struct doctor *doctor)
{
    check_buffers(doctor);
    check_backlog(doctor);
    check_sockets(doctor);
    check_conntrack(doctor);
    check_thp(doctor);
    check_swap(doctor);
    check_huge_pages(doctor);
    check_numa_balancing(doctor);
}
