/* nics.c - checks the network interfaces that the configurations name: presence, link, PCIe width, settings for
 * streams.
 *
 * Reads properties in sysfs below --root.  Properties that only the driver knows (ethtool's ioctls) always come from
 * this host. */
#include "tools/doctor/nic.h"

#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"

#include <dirent.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>

#define NICS_MAX 32
/* largest payload rate as a fraction of the link's speed; the rest is for headers, gaps and bursts */
#define FULL_LINK 0.9

/* An interface, and the requirements of the files that name it. */
struct nic {
    char name[IF_NAMESIZE]; /* name of the interface; "": no interface matches 'asked' */
    const char *asked;      /* name or address of the interface, as in the file */
    const char *key, *file; /* first key that names the interface, and the file with this key */
    double recv_bits_per_s, send_bits_per_s;
    size_t packet_bytes; /* length of the largest packet in bytes, with its IP header */
    const char *packet_file;
    const struct config_int_list *affinity;
};

/* ---- Interfaces -------------------------------------------------------------------------------------------------- */

static struct nic *find_nic(struct nic *nics, size_t *n_nics, const char *asked, const char *key, const char *file)
{
    struct nic nic = {.asked = asked, .key = key, .file = file};

    if (!nic_name(asked, nic.name))
        nic.name[0] = '\0';
    for (size_t i = 0; i < *n_nics; i++)
        if (strcmp(nics[i].name, nic.name) == 0 &&
            (nic.name[0] || strcmp(nics[i].asked ? nics[i].asked : "", asked ? asked : "") == 0))
            return &nics[i];
    if (*n_nics == NICS_MAX)
        return &nics[NICS_MAX - 1];
    nics[*n_nics] = nic;
    return &nics[(*n_nics)++];
}

static void want_packet(struct nic *nic, size_t bytes, const char *file)
{
    if (bytes > nic->packet_bytes) {
        nic->packet_bytes = bytes;
        nic->packet_file = file;
    }
}

static size_t collect(const struct doctor *doctor, struct nic *nics)
{
    size_t n = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (!file->recv->pcap_file) {
            struct nic *nic = find_nic(nics, &n, file->recv->interface, "recv.interface", file->name);
            nic->recv_bits_per_s += file->recv_bits_per_s;
            nic->affinity = file->recv->affinity.n ? &file->recv->affinity : nic->affinity;
            want_packet(nic, file->recv_packet_bytes, file->name);
        }
        if (!file->send->pcap_file) {
            struct nic *nic = find_nic(nics, &n, file->send->interface, "send.interface", file->name);
            nic->send_bits_per_s += file->send_bits_per_s;
            want_packet(nic, file->send_packet_bytes, file->name);
        }
    }
    return n;
}

/* ---- Presence, link and width ------------------------------------------------------------------------------------ */

/* Checks that the interface exists.  Returns false if the other checks of the interface cannot run. */
static bool check_there(struct doctor *doctor, const struct nic *nic)
{
    char there[200];
    int64_t flags = 0;
    bool named = nic->name[0], exists = named && nic_flags(doctor->root, nic->name, &flags);
    struct finding *f = doctor_add(doctor, exists ? FINDING_OK : FINDING_FAIL, "nic.there",
                                   named        ? nic->name
                                   : nic->asked ? nic->asked
                                                : "(route)");

    nic_list(doctor->root, false, there, sizeof(there));
    if (exists) {
        SAY(f->found, "the interface exists");
        return true;
    }
    if (!nic->asked) {
        f->status = FINDING_FAIL;
        SAY(f->found, "%s of %s is empty, and there is no route to multicast groups", nic->key, nic->file);
    } else {
        SAY(f->found, "no interface has this %s, which %s of %s names", strchr(nic->asked, '.') ? "address" : "name",
            nic->key, nic->file);
    }
    SAY(f->expected, "one of these interfaces, or its address: %s", there);
    SAY(f->why, "the daemon does not start");
    SAY(f->fix, "ip -4 -brief address   # and put the name of the right interface into %s of %s", nic->key, nic->file);
    return false;
}

static bool check_up(struct doctor *doctor, const struct nic *nic)
{
    int64_t flags = 0;

    nic_flags(doctor->root, nic->name, &flags);
    bool up = flags & IFF_UP, carrier = flags & IFF_RUNNING, multicast = flags & (IFF_MULTICAST | IFF_LOOPBACK);
    struct finding *f = doctor_add(doctor, up && carrier && multicast ? FINDING_OK : FINDING_FAIL, "nic.up", nic->name);
    SAY(f->found, "%s", !up ? "down" : !carrier ? "up, but without a link" : !multicast ? "no multicast" : "up");
    SAY(f->expected, "up, with a link and multicast");
    SAY(f->why, "nothing is received or sent");
    if (up && !carrier)
        SAY(f->fix, "look at the cable, the transceiver and the switch's port: sudo ethtool %s", nic->name);
    else
        SAY(f->fix, "sudo ip link set %s up multicast on", nic->name);
    return up && carrier;
}

static void check_mtu(struct doctor *doctor, const struct nic *nic)
{
    int64_t mtu;

    if (!nic_mtu(doctor->root, nic->name, &mtu) || nic->packet_bytes == 0)
        return;
    bool fits = (int64_t)nic->packet_bytes <= mtu;
    struct finding *f = doctor_add(doctor, fits ? FINDING_OK : FINDING_FAIL, "nic.mtu", nic->name);
    SAY(f->found, "MTU %lld bytes, packets up to %zu", (long long)mtu, nic->packet_bytes);
    SAY(f->expected, "at least %zu bytes, for the IP packets of %s", nic->packet_bytes, nic->packet_file);
    SAY(f->why, "larger packets are not received, and are sent in fragments; many receivers refuse fragments, and "
                "the loss of one fragment loses the packet");
    SAY(f->fix,
        "sudo ip link set %s mtu %d   # also on the switch and on all senders; or lower the senders' packet_payload",
        nic->name, nic->packet_bytes <= 9000 ? 9000 : (int)nic->packet_bytes);
}

static void check_speed(struct doctor *doctor, const struct nic *nic)
{
    int64_t speed;

    if (strcmp(nic->name, "lo") == 0)
        return;
    if (!sys_number(doctor->root, &speed, "/sys/class/net/%s/speed", nic->name) || speed <= 0) {
        doctor_note(doctor, FINDING_SKIPPED, "nic.speed", nic->name, "the driver does not report the link's speed");
        return;
    }
    double most = nic->recv_bits_per_s > nic->send_bits_per_s ? nic->recv_bits_per_s : nic->send_bits_per_s;
    double share = most / ((double)speed * 1e6);
    enum finding_status status = share > 1 ? FINDING_FAIL : share > FULL_LINK ? FINDING_WARN : FINDING_OK;
    struct finding *f = doctor_add(doctor, status, "nic.speed", nic->name);
    char have[DOCTOR_RATE_BYTES], in[DOCTOR_RATE_BYTES], out[DOCTOR_RATE_BYTES], needed[DOCTOR_RATE_BYTES];
    SAY(f->found, "the link's rate is %s; %s are received, %s are sent", doctor_rate((double)speed * 1e6, have),
        doctor_rate(nic->recv_bits_per_s, in), doctor_rate(nic->send_bits_per_s, out));
    SAY(f->expected, "at least %s", doctor_rate(most / FULL_LINK, needed));
    SAY(f->why, "data above the link's rate are lost in the switch, or their delay on this host grows without limit");
    SAY(f->fix, "sudo ethtool %s   # the negotiated speed; or divide the antennas among more links", nic->name);
}

/* Checks the reverse path filter.  The filter drops multicast packets if the route to their sender uses another
 * interface. */
static void check_rp_filter(struct doctor *doctor, const struct nic *nic)
{
    int64_t all = 0, own = 0;

    if (nic->recv_bits_per_s == 0 || strcmp(nic->name, "lo") == 0 ||
        !sys_number(doctor->root, &all, "/proc/sys/net/ipv4/conf/all/rp_filter") ||
        !sys_number(doctor->root, &own, "/proc/sys/net/ipv4/conf/%s/rp_filter", nic->name))
        return;
    bool strict = (all > own ? all : own) == 1;
    struct finding *f = doctor_add(doctor, strict ? FINDING_WARN : FINDING_OK, "nic.rp_filter", nic->name);
    SAY(f->found, "rp_filter is %lld for all interfaces, %lld for this interface", (long long)all, (long long)own);
    SAY(f->expected, "0 or 2 (loose)");
    SAY(f->why, "the kernel drops packets if no route to their sender uses this interface, and does not count them");
    SAY(f->fix, "sudo sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=0", nic->name);
}

/* ---- Bus and interrupts ------------------------------------------------------------------------------------------ */

static void check_pcie(struct doctor *doctor, const struct nic *nic)
{
    char path[PATH_MAX], now[64], max[64];
    bool slower;

    snprintf(path, sizeof(path), "/sys/class/net/%s/device", nic->name);
    if (!sys_pcie_link(doctor->root, path, now, max, sizeof(now), &slower))
        return;
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, slower), "nic.pcie", nic->name);
    SAY(f->found, "PCIe %s", now);
    SAY(f->expected, "%s, the fastest and widest link that the NIC supports", max);
    SAY(f->why, "a NIC that cannot write to memory fast enough discards packets (rx_discards_phy)");
    SAY(f->fix, "put the NIC into a slot of its full width and speed: sudo lspci -vv | grep -e Ethernet -e LnkSta:");
}

static void check_numa(struct doctor *doctor, const struct nic *nic)
{
    char cpus[256];
    int64_t node;

    if (!nic->affinity || !sys_number(doctor->root, &node, "/sys/class/net/%s/device/numa_node", nic->name) ||
        node < 0 ||
        !sys_text(doctor->root, cpus, sizeof(cpus), "/sys/devices/system/node/node%lld/cpulist", (long long)node))
        return;
    size_t n_far = 0;
    for (size_t i = 0; i < nic->affinity->n; i++)
        n_far += nic->affinity->items[i] >= 0 && !sys_list_has(cpus, nic->affinity->items[i]);
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n_far), "nic.numa", nic->name);
    SAY(f->found, "%zu of %zu CPUs of recv.affinity are not on the NIC's NUMA node %lld", n_far, nic->affinity->n,
        (long long)node);
    SAY(f->expected, "CPUs of %s", cpus);
    SAY(f->why, "each packet crosses the link between the processors twice");
    SAY(f->fix, "set recv.affinity to CPUs of %s", cpus);
}

static void check_irqs(struct doctor *doctor, const struct nic *nic)
{
    char path[PATH_MAX], list[256];
    size_t n_irqs = 0, n_shared = 0;

    if (!nic->affinity)
        return;
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/device/msi_irqs", doctor->root, nic->name);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.' ||
            !sys_text(doctor->root, list, sizeof(list), "/proc/irq/%s/effective_affinity_list", entry->d_name))
            continue;
        n_irqs++;
        bool shared = false;
        for (size_t i = 0; i < nic->affinity->n; i++)
            shared |= sys_list_has(list, nic->affinity->items[i]);
        n_shared += shared;
    }
    if (directory)
        closedir(directory);
    if (n_irqs == 0)
        return;
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n_shared), "nic.irqs", nic->name);
    SAY(f->found, "%zu of %zu interrupts go to CPUs of recv.affinity", n_shared, n_irqs);
    SAY(f->expected, "interrupts on other CPUs of the same node");
    SAY(f->why, "the interrupt takes the CPU from the thread that empties the socket");
    SAY(f->fix,
        "for i in /sys/class/net/%s/device/msi_irqs/*; do echo CPUS | sudo tee "
        "/proc/irq/${i##*/}/smp_affinity_list; done   # CPUS: CPUs that are not in recv.affinity",
        nic->name);
}

/* ---- Settings of the driver -------------------------------------------------------------------------------------- */

static bool ask_driver(const char *name, void *command)
{
    struct ifreq request = {.ifr_data = command};

    return nic_ask(name, SIOCETHTOOL, &request);
}

static void check_driver(struct doctor *doctor, const struct nic *nic)
{
    struct ethtool_ringparam ring = {.cmd = ETHTOOL_GRINGPARAM};
    struct ethtool_pauseparam pause = {.cmd = ETHTOOL_GPAUSEPARAM};
    struct ethtool_coalesce coalesce = {.cmd = ETHTOOL_GCOALESCE};
    struct finding *f;
    int n_told = 0;

    if (doctor->root[0] || strcmp(nic->name, "lo") == 0)
        return;
    if (ask_driver(nic->name, &ring) && ring.rx_max_pending > 0) {
        bool small = ring.rx_pending < ring.rx_max_pending && ring.rx_pending < 4096;
        f = doctor_add(doctor, doctor_tuning(doctor, small), "nic.rings", nic->name);
        SAY(f->found, "%u receive buffers, of at most %u", ring.rx_pending, ring.rx_max_pending);
        SAY(f->expected, "%u", ring.rx_max_pending < 8192 ? ring.rx_max_pending : 8192);
        SAY(f->why, "a burst that finds no free buffer is lost (rx_out_of_buffer)");
        SAY(f->fix, "sudo ethtool -G %s rx %u", nic->name, ring.rx_max_pending < 8192 ? ring.rx_max_pending : 8192);
        n_told++;
    }
    if (ask_driver(nic->name, &pause)) {
        bool on = pause.rx_pause || pause.tx_pause;
        f = doctor_add(doctor, doctor_tuning(doctor, on), "nic.pause", nic->name);
        SAY(f->found, "pause frames: receive %s, send %s", pause.rx_pause ? "on" : "off",
            pause.tx_pause ? "on" : "off");
        SAY(f->expected, "off");
        SAY(f->why, "one slow receiver stops the switch's port, and so the streams to other receivers");
        SAY(f->fix, "sudo ethtool -A %s autoneg off rx off tx off", nic->name);
        n_told++;
    }
    if (ask_driver(nic->name, &coalesce)) {
        bool on = coalesce.use_adaptive_rx_coalesce;
        f = doctor_add(doctor, doctor_tuning(doctor, on), "nic.coalescing", nic->name);
        SAY(f->found, "adaptive coalescing of interrupts is %s", on ? "on" : "off");
        SAY(f->expected, "off, with a fixed time between interrupts");
        SAY(f->why, "adaptive coalescing takes a steady stream for an idle stream, and rings overflow");
        SAY(f->fix, "sudo ethtool -C %s adaptive-rx off rx-usecs 32", nic->name);
        n_told++;
    }
    if (n_told == 0)
        doctor_note(doctor, FINDING_SKIPPED, "nic.driver", nic->name,
                    "the driver reports no rings, pause frames and coalescing (a virtual interface?)");
}

void doctor_check_nics(struct doctor *doctor)
{
    struct nic nics[NICS_MAX];
    size_t n = collect(doctor, nics);

    if (n == 0)
        doctor_note(doctor, FINDING_SKIPPED, "nic.there", "",
                    "no file names an interface: give fgpu.yaml or xbgpu.yaml");
    for (size_t i = 0; i < n; i++) {
        if (!check_there(doctor, &nics[i]) || !check_up(doctor, &nics[i]))
            continue;
        check_mtu(doctor, &nics[i]);
        check_speed(doctor, &nics[i]);
        check_rp_filter(doctor, &nics[i]);
        check_pcie(doctor, &nics[i]);
        check_numa(doctor, &nics[i]);
        check_irqs(doctor, &nics[i]);
        check_driver(doctor, &nics[i]);
    }
}
