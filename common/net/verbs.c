/* verbs.c - opens Ethernet ports and registers memory through libibverbs.  See verbs.h. */
#include "common/net/verbs.h"

#include "common/base/file.h"
#include "common/base/why.h"

#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

char verbs_sends[] = "sends";

const bool verbs_built_in = true;

/* Advice for calls that fail because a permission is missing. */
#define NEEDS_CAPABILITY                                                                                               \
    "this process needs CAP_NET_RAW (systemd/ibverbs.conf, or setcap cap_net_raw+ep on the program)"

/* Writes "ibverbs on eth0: what: reason; cure" into 'why'.  Returns -err. */
static int fail(const char *interface, int err, const char *what, const char *cure, char *why, size_t why_bytes)
{
    return why_fail(-err, why, why_bytes, "ibverbs on %s: %s: %s%s%s", interface, what, strerror(err),
                    cure[0] ? "; " : "", cure);
}

/* Returns the memory that this process has pinned for NICs (VmPin).  The kernel counts pinned memory and locked memory
 * (mlock()) separately, but applies the same limit to each of them. */
static unsigned long long pinned_bytes(void)
{
    unsigned long long kib = 0;

    file_find_number("/proc/self/status", "VmPin: %llu", &kib);
    return kib << 10;
}

/* Returns true if pinning 'n_bytes' more would exceed the limit.  Stores the limit in '*limit_bytes'. */
static bool is_over_limit(size_t n_bytes, unsigned long long *limit_bytes)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    struct rlimit limit;

    if (syscall(SYS_capget, &header, data) == 0 && data[0].effective >> CAP_IPC_LOCK & 1)
        return false;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return false;
    *limit_bytes = limit.rlim_cur;
    return pinned_bytes() + n_bytes > limit.rlim_cur;
}

int verbs_fail(const struct verbs_port *port, int err, const char *what, char *why, size_t why_bytes)
{
    if (err <= 0)
        err = EIO; /* some ibverbs drivers do not set errno */
    return fail(port->interface, err, what, err == EPERM || err == EACCES ? NEEDS_CAPABILITY : "", why, why_bytes);
}

int verbs_fail_to_lock(const struct verbs_port *port, int err, size_t n_bytes, const char *what, char *why,
                       size_t why_bytes)
{
    unsigned long long limit_bytes;
    char cure[200];

    if (err != ENOMEM || !is_over_limit(n_bytes, &limit_bytes))
        return verbs_fail(port, err, what, why, why_bytes);
    snprintf(cure, sizeof(cure), "the limit on locked memory is %llu KiB; raise it (LimitMEMLOCK=infinity, ulimit -l)",
             limit_bytes >> 10);
    fail(port->interface, err, what, cure, why, why_bytes);
    return -E2BIG; /* a restart does not cure this error */
}

/* ---- The interface ----------------------------------------------------------------------------------------------- */

/* Reads the port's MAC address and MTU from the kernel.  Returns 0 or a positive errno. */
static int ask_interface(struct verbs_port *port)
{
    struct ifreq request = {.ifr_name = ""};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = 0;

    if (fd < 0)
        return errno;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", port->interface);
    if (ioctl(fd, SIOCGIFHWADDR, &request))
        err = errno;
    else
        memcpy(port->mac, request.ifr_hwaddr.sa_data, sizeof(port->mac));
    if (!err && ioctl(fd, SIOCGIFMTU, &request))
        err = errno;
    else if (!err)
        port->mtu = (size_t)request.ifr_mtu;
    close(fd);
    return err;
}

/* Returns true if the interface is a VLAN.  The kernel adds a tag to frames that it sends through a VLAN, but this
 * program's frames have no tag. */
static bool is_vlan(const char *interface)
{
    struct vlan_ioctl_args request = {.cmd = GET_VLAN_REALDEV_NAME_CMD};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(request.device1, sizeof(request.device1), "%s", interface);
    bool is = fd >= 0 && ioctl(fd, SIOCGIFVLAN, &request) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

static int find_interface(const char *name, struct verbs_port *port, char *why, size_t why_bytes)
{
    struct interface found;
    int err = endpoint_find_interface(name, &found, why, why_bytes);

    if (err)
        return err;
    port->interface_index = found.index;
    port->address = found.address.s_addr;
    static_assert(sizeof(port->interface) >= IF_NAMESIZE, "interface");
    if (!if_indextoname((unsigned)found.index, port->interface))
        return fail(name, errno, "cannot find the name of the interface", "", why, why_bytes);
    if (is_vlan(port->interface))
        return fail(name, ENOTSUP, "the interface is a VLAN, but this program writes no VLAN tags",
                    "name the parent interface of the VLAN", why, why_bytes);
    err = ask_interface(port);
    if (err)
        return fail(port->interface, err, "cannot read the MAC address and the MTU of the interface", "", why,
                    why_bytes);
    return 0;
}

/* ---- The device -------------------------------------------------------------------------------------------------- */

/* Finds the device whose port has the interface's address. */
static int bind_device(struct verbs_port *port, char *why, size_t why_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = port->address};

    port->channel = rdma_create_event_channel();
    if (!port->channel)
        return fail(
            port->interface, errno ?: EIO, "cannot search for the RDMA device of the interface",
            "load the kernel module rdma_ucm (modprobe rdma_ucm), and let this process open /dev/infiniband/rdma_cm",
            why, why_bytes);
    if (rdma_create_id(port->channel, &port->id, NULL, RDMA_PS_UDP)) {
        port->id = NULL;
        return verbs_fail(port, errno, "cannot search for the RDMA device of the interface", why, why_bytes);
    }
    int err = rdma_bind_addr(port->id, (struct sockaddr *)&address) ? (errno ?: EIO) : 0;
    if (err && err != ENODEV && err != EADDRNOTAVAIL)
        return verbs_fail(port, err, "cannot find the RDMA device of the interface", why, why_bytes);
    if (err || !port->id->verbs)
        return why_fail(-ENODEV, why, why_bytes,
                        "ibverbs on %s: this interface belongs to no NIC with ibverbs; name another interface (\"rdma "
                        "link\" lists them), or use transport: udp",
                        port->interface);
    port->context = port->id->verbs;
    port->port_num = port->id->port_num;
    return 0;
}

static int ask_device(struct verbs_port *port, char *why, size_t why_bytes)
{
    struct ibv_device_attr_ex device;
    struct ibv_port_attr attr;

    memset(&device, 0, sizeof(device));
    int err = ibv_query_device_ex(port->context, NULL, &device);
    if (err)
        return verbs_fail(port, err, "cannot read the capabilities of the RDMA device", why, why_bytes);
    err = ibv_query_port(port->context, (uint8_t)port->port_num, &attr);
    if (err)
        return verbs_fail(port, err, "cannot read the attributes of the port", why, why_bytes);
    if (attr.link_layer != IBV_LINK_LAYER_ETHERNET)
        return why_fail(-ENODEV, why, why_bytes,
                        "ibverbs on %s: the port is an InfiniBand port; configure the NIC for Ethernet",
                        port->interface);
    port->max_queue = (uint32_t)device.orig_attr.max_qp_wr;
    port->max_completions = (uint32_t)device.orig_attr.max_cqe;
    port->max_parts = (uint32_t)device.orig_attr.max_sge;
    port->computes_ip = device.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM;
    if (ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_RAW_PACKET))
        port->rate_max_bits_s = 1000 * (uint64_t)device.packet_pacing_caps.qp_rate_limit_max;
    return 0;
}

int verbs_port_open(const char *interface, struct verbs_port *out, char *why, size_t why_bytes)
{
    struct verbs_port port = {.port_num = 0};
    int err = find_interface(interface, &port, why, why_bytes);

    if (!err)
        err = bind_device(&port, why, why_bytes);
    if (!err)
        err = ask_device(&port, why, why_bytes);
    if (!err) {
        port.pd = ibv_alloc_pd(port.context);
        if (!port.pd)
            err = verbs_fail(&port, errno, "cannot allocate a protection domain", why, why_bytes);
    }
    if (err)
        verbs_port_close(&port);
    else
        *out = port;
    return err;
}

void verbs_port_close(struct verbs_port *port)
{
    if (port->pd)
        ibv_dealloc_pd(port->pd);
    if (port->id)
        rdma_destroy_id(port->id);
    if (port->channel)
        rdma_destroy_event_channel(port->channel);
    *port = (struct verbs_port){.port_num = 0};
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

int verbs_memory_register(struct verbs_port *port, void *base, size_t n_bytes, bool writable,
                          struct verbs_memory *memory, char *why, size_t why_bytes)
{
    char what[64];

    /* Relaxed ordering is safe here, because the NIC writes the completion after all bytes of a frame. */
    unsigned access = IBV_ACCESS_RELAXED_ORDERING | (writable ? IBV_ACCESS_LOCAL_WRITE : 0);
    struct ibv_mr *mr = ibv_reg_mr(port->pd, base, n_bytes, access);
    if (!mr) {
        int err = errno;
        snprintf(what, sizeof(what), "cannot register %zu KiB of memory", (n_bytes + 1023) >> 10);
        return verbs_fail_to_lock(port, err, n_bytes, what, why, why_bytes);
    }
    *memory = (struct verbs_memory){mr, base, n_bytes};
    return 0;
}

int verbs_memory_register_exported(struct verbs_port *port, void *base, size_t n_bytes, int fd, bool writable,
                                   struct verbs_memory *memory, char *why, size_t why_bytes)
{
    char what[64];

    /* This access has no IBV_ACCESS_RELAXED_ORDERING.  The NIC writes payloads to the device, but completions to the
     * host.  With relaxed ordering a completion could arrive before its payload. */
    struct ibv_mr *mr =
        ibv_reg_dmabuf_mr(port->pd, 0, n_bytes, (uintptr_t)base, fd, writable ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!mr) {
        snprintf(what, sizeof(what), "cannot register %zu KiB of the device's memory", (n_bytes + 1023) >> 10);
        return verbs_fail(port, errno, what, why, why_bytes);
    }
    *memory = (struct verbs_memory){mr, base, n_bytes};
    return 0;
}

void verbs_memory_unregister(struct verbs_memory *memory)
{
    if (memory->mr)
        ibv_dereg_mr(memory->mr);
    *memory = (struct verbs_memory){NULL, NULL, 0};
}
