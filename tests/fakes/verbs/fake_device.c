/* fake_device.c - devices, which are veth interfaces, and contexts.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define VENDOR_ID 0xFA4E

static struct fake_device devices[FAKE_MAX_DEVICES];
static int n_devices;
static struct fake_context *contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Interfaces -------------------------------------------------------------------------------------------------- */

static int ask(unsigned long request, const char *interface, struct ifreq *reply)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result;

    snprintf(reply->ifr_name, IF_NAMESIZE, "%.15s", interface);
    result = fd < 0 ? -1 : ioctl(fd, request, reply);
    if (fd >= 0)
        close(fd);
    return result;
}

static bool is_veth(const char *interface)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq reply = {.ifr_data = (void *)&info};

    return ask(SIOCETHTOOL, interface, &reply) == 0 && strcmp(info.driver, "veth") == 0;
}

static bool is_chosen(const char *interface)
{
    const char *at = getenv("CBF_FAKE_VERBS");
    size_t n = strlen(interface);

    if (!at)
        return is_veth(interface);
    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, interface, n) == 0 && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

/* The directory that stands for the kernel's of this device, with its counters. */
static void make_counters(struct fake_device *device)
{
    static const char *const below[] = {"", "/ports", "/ports/1", "/ports/1/hw_counters"};
    const char *directory = getenv("CBF_FAKE_VERBS_DIR");
    char path[IBV_SYSFS_PATH_MAX];

    snprintf(path, sizeof(path), "%s/fake_%s", directory ? directory : "/sys/class/infiniband", device->interface);
    memcpy(device->device.ibdev_path, path, sizeof(path));
    for (size_t i = 0; directory && i < sizeof(below) / sizeof(below[0]); i++) {
        snprintf(path, sizeof(path), "%s/fake_%s%s", directory, device->interface, below[i]);
        if (mkdir(path, 0755) && errno != EEXIST)
            fake_complain("%s: %s", path, strerror(errno));
    }
    fake_count(device, "out_of_buffer", 0);
}

/* The device of an interface, made if it is new; in another namespace there may be another of its name.  With the
 * lock. */
static struct fake_device *device_of(const char *interface, int index)
{
    struct ifreq reply = {0};

    if (ask(SIOCGIFHWADDR, interface, &reply))
        return NULL;
    for (int i = 0; i < n_devices; i++)
        if (devices[i].index == index && memcmp(devices[i].mac, reply.ifr_hwaddr.sa_data, 6) == 0 &&
            strcmp(devices[i].interface, interface) == 0)
            return &devices[i];
    if (n_devices == FAKE_MAX_DEVICES)
        return NULL;
    struct fake_device *device = &devices[n_devices++];
    device->index = index;
    snprintf(device->interface, sizeof(device->interface), "%s", interface);
    memcpy(device->mac, reply.ifr_hwaddr.sa_data, 6);
    device->device.node_type = IBV_NODE_CA;
    device->device.transport_type = IBV_TRANSPORT_IB;
    snprintf(device->device.name, sizeof(device->device.name), "fake_%s", interface);
    snprintf(device->device.dev_name, sizeof(device->device.dev_name), "uverbs%d", n_devices - 1);
    snprintf(device->device.dev_path, sizeof(device->device.dev_path), "/sys/class/infiniband_verbs/uverbs%d",
             n_devices - 1);
    make_counters(device);
    return device;
}

struct ibv_device **ibv_get_device_list(int *n)
{
    struct if_nameindex *interfaces = NULL;
    struct ibv_device **list = NULL;
    int error = fake_fails("ibv_get_device_list"), n_found = 0;

    if (!error)
        interfaces = if_nameindex();
    if (interfaces)
        list = calloc(FAKE_MAX_DEVICES + 1, sizeof(*list));
    pthread_mutex_lock(&lock);
    for (struct if_nameindex *i = interfaces; list && i->if_index && n_found < FAKE_MAX_DEVICES; i++) {
        struct fake_device *device = is_chosen(i->if_name) ? device_of(i->if_name, (int)i->if_index) : NULL;
        if (device)
            list[n_found++] = &device->device;
    }
    pthread_mutex_unlock(&lock);
    if (interfaces)
        if_freenameindex(interfaces);
    if (n)
        *n = n_found;
    errno = list ? 0 : error ? error : ENOMEM;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
    return (int)((struct fake_device *)device - devices);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    const uint8_t *mac = ((struct fake_device *)device)->mac;
    const uint8_t guid[8] = {mac[0] ^ 2, mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
    __be64 result;

    memcpy(&result, guid, sizeof(result));
    return result;
}

void fake_count(struct fake_device *device, const char *counter, uint64_t n)
{
    char path[512], text[32] = "";
    int fd;

    if (!getenv("CBF_FAKE_VERBS_DIR"))
        return;
    snprintf(path, sizeof(path), "%s/ports/%d/hw_counters/%s", device->device.ibdev_path, FAKE_PORT, counter);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    flock(fd, LOCK_EX);
    if (pread(fd, text, sizeof(text) - 1, 0) >= 0) {
        int length = snprintf(text, sizeof(text), "%llu\n", strtoull(text, NULL, 10) + (unsigned long long)n);
        if (pwrite(fd, text, (size_t)length, 0) != length)
            fake_complain("%s: %s", path, strerror(errno));
    }
    close(fd);
}

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

struct fake_context *fake_context_of(struct ibv_context *context)
{
    return (struct fake_context *)((uint8_t *)context - offsetof(struct fake_context, verbs.context));
}

int fake_enter(struct ibv_context *context, const char *name)
{
    int error = fake_fails(name);

    return error ? error : fake_context_of(context)->removed ? EIO : 0;
}

void fake_context_event(struct fake_context *context, enum ibv_event_type type, void *object)
{
    struct ibv_async_event event = {.event_type = type};

    if (object)
        event.element.qp = object;
    else
        event.element.port_num = FAKE_PORT;
    fake_trace("event %s of %s", ibv_event_type_str(type), context->device->device.name);
    fake_events_put(&context->events, &event);
}

void fake_context_remove(struct fake_context *context)
{
    if (atomic_exchange(&context->removed, true))
        return;
    fake_context_event(context, IBV_EVENT_DEVICE_FATAL, NULL);
    pthread_mutex_lock(&context->lock);
    for (struct fake_qp *qp = context->qps; qp; qp = qp->next)
        fake_qp_fail(qp, true);
    pthread_mutex_unlock(&context->lock);
}

static void set_limits(struct ibv_device_attr_ex *limits)
{
    struct ibv_device_attr *attr = &limits->orig_attr;
    bool ip_csum = fake_limit("ip_csum", 1);
    long max_kbps = fake_limit("max_rate_kbps", 100000000);

    *attr = (struct ibv_device_attr){
        .fw_ver = "0.0.0",
        .max_mr_size = (uint64_t)fake_limit("max_mr_size", INT64_MAX),
        .page_size_cap = 0xFFFFF000,
        .vendor_id = VENDOR_ID,
        .max_qp = 1024,
        .max_qp_wr = (int)fake_limit("max_qp_wr", 32768),
        .device_cap_flags = IBV_DEVICE_RAW_MULTI,
        .max_sge = (int)fake_limit("max_sge", 30),
        .max_cq = 1024,
        .max_cqe = (int)fake_limit("max_cqe", 4194303),
        .max_mr = FAKE_MAX_MRS,
        .max_pd = 1024,
        .atomic_cap = IBV_ATOMIC_NONE,
        .max_raw_ethy_qp = 1024,
        .max_pkeys = 1,
        .phys_port_cnt = 1,
    };
    if (ip_csum)
        attr->device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM;
    if (fake_limit("flow_steering", 1))
        attr->device_cap_flags |= (unsigned)IBV_DEVICE_MANAGED_FLOW_STEERING;
    limits->device_cap_flags_ex = attr->device_cap_flags;
    limits->raw_packet_caps = ip_csum ? IBV_RAW_PACKET_CAP_IP_CSUM : 0;
    if (max_kbps)
        limits->packet_pacing_caps = (struct ibv_packet_pacing_caps){.qp_rate_limit_min = 1,
                                                                     .qp_rate_limit_max = (uint32_t)max_kbps,
                                                                     .supported_qpts = 1U << IBV_QPT_RAW_PACKET};
    limits->phys_port_cnt_ex = 1;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t n_bytes)
{
    struct ibv_device_attr_ex limits = fake_context_of(context)->limits;
    int error = fake_enter(context, "ibv_query_device_ex");

    if (error)
        return error;
    if (n_bytes < sizeof(struct ibv_device_attr) || (input && input->comp_mask))
        return EINVAL;
    limits.orig_attr.node_guid = limits.orig_attr.sys_image_guid = ibv_get_device_guid(context->device);
    memset(attr, 0, n_bytes);
    memcpy(attr, &limits, n_bytes < sizeof(limits) ? n_bytes : sizeof(limits));
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int error = fake_enter(context, "ibv_query_device");

    if (error)
        return error;
    *attr = fake_context_of(context)->limits.orig_attr;
    attr->node_guid = attr->sys_image_guid = ibv_get_device_guid(context->device);
    return 0;
}

enum fake_link fake_device_link(const struct fake_device *device)
{
    struct ifreq flags = {0};
    char name[IF_NAMESIZE];

    if (!if_indextoname((unsigned)device->index, name) || ask(SIOCGIFFLAGS, name, &flags))
        return FAKE_GONE;
    return (flags.ifr_flags & IFF_UP) && (flags.ifr_flags & IFF_RUNNING) ? FAKE_UP : FAKE_DOWN;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t n_bytes)
{
    struct fake_device *device = fake_context_of(context)->device;
    struct ifreq mtu = {0};
    int error = fake_enter(context, "ibv_query_port");

    if (error)
        return error;
    if (port != FAKE_PORT)
        return EINVAL;
    if (ask(SIOCGIFMTU, device->interface, &mtu))
        return EIO;
    bool is_up = fake_device_link(device) == FAKE_UP;
    struct ibv_port_attr said = {
        .state = is_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = mtu.ifr_mtu >= 4096   ? IBV_MTU_4096
                      : mtu.ifr_mtu >= 2048 ? IBV_MTU_2048
                                            : IBV_MTU_1024,
        .gid_tbl_len = 1,
        .max_msg_sz = 1U << 30,
        .pkey_tbl_len = 1,
        .active_width = 2, /* four lanes */
        .active_speed = 32,
        .phys_state = is_up ? 5 : 3, /* link up, disabled */
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };
    memset(attr, 0, n_bytes);
    memcpy(attr, &said, n_bytes < sizeof(said) ? n_bytes : sizeof(said));
    return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    int error = fake_enter(context, "ibv_query_gid");

    if (error || port != FAKE_PORT || index) {
        errno = error ? error : EINVAL;
        return -1;
    }
    gid->global.subnet_prefix = htobe64(0xFE80000000000000);
    gid->global.interface_id = ibv_get_device_guid(context->device);
    return 0;
}

static void set_operations(struct fake_context *context)
{
    context->verbs = (struct verbs_context){
        .query_port = query_port,
        .query_device_ex = query_device_ex,
        .modify_qp_rate_limit = fake_modify_qp_rate_limit,
        .ibv_create_flow = fake_create_flow,
        .ibv_destroy_flow = fake_destroy_flow,
        .sz = sizeof(struct verbs_context),
        .context =
            {
                .device = &context->device->device,
                .ops = {.poll_cq = fake_poll_cq,
                        .req_notify_cq = fake_req_notify_cq,
                        .post_send = fake_post_send,
                        .post_recv = fake_post_recv},
                .cmd_fd = -1,
                .async_fd = context->events.fd,
                .num_comp_vectors = (int)fake_limit("comp_vectors", 4),
                .abi_compat = __VERBS_ABI_IS_EXTENDED,
            },
    };
    pthread_mutex_init(&context->verbs.context.mutex, NULL);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct fake_context *context = calloc(1, sizeof(*context));
    int error = fake_fails("ibv_open_device");

    if (!error)
        error = context ? fake_events_init(&context->events) : ENOMEM;
    if (error) {
        free(context);
        errno = error;
        return NULL;
    }
    context->device = (struct fake_device *)device;
    pthread_mutex_init(&context->lock, NULL);
    set_limits(&context->limits);
    set_operations(context);
    pthread_mutex_lock(&lock);
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&lock);
    fake_trace("ibv_open_device %s", device->name);
    return &context->verbs.context;
}

int ibv_close_device(struct ibv_context *ibv)
{
    struct fake_context *context = fake_context_of(ibv), **at = &contexts;

    fake_trace("ibv_close_device %s", ibv->device->name);
    if (context->n_pds || context->n_cqs || context->n_channels) {
        fake_complain("%s is closed with %d protection domains, %d completion queues and %d channels",
                      ibv->device->name, context->n_pds, context->n_cqs, context->n_channels);
        return EBUSY;
    }
    pthread_mutex_lock(&lock);
    while (*at != context)
        at = &(*at)->next;
    *at = context->next;
    pthread_mutex_unlock(&lock);
    fake_events_fini(&context->events);
    pthread_mutex_destroy(&context->lock);
    free(context);
    return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int error = fake_events_take(&fake_context_of(context)->events, event);

    errno = error;
    return error ? -1 : 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
}

int ibv_fork_init(void)
{
    return 0;
}

/* A program that ends has closed what it opened. */
__attribute__((destructor)) static void end(void)
{
    for (const struct fake_context *context = contexts; context; context = context->next)
        fake_complain("%s was not closed: %d protection domains, %d completion queues, %d channels",
                      context->device->device.name, context->n_pds, context->n_cqs, context->n_channels);
}
