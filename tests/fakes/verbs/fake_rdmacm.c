/* fake_rdmacm.c - the functions of librdmacm that find the device of an address.  See README.md. */
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_DEVICES 64

/* Devices that identifiers are bound to; opened with the first and closed with the last. */
static struct shared {
    struct ibv_device *device;
    struct ibv_context *context;
    struct ibv_pd *pd;
    int n_ids;
} devices[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct rdma_event_channel *channel = malloc(sizeof(*channel));

    if (channel)
        channel->fd = eventfd(0, EFD_CLOEXEC); /* nothing ever comes */
    return channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    close(channel->fd);
    free(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
    *id = calloc(1, sizeof(**id));
    if (!*id) {
        errno = ENOMEM;
        return -1;
    }
    (*id)->channel = channel;
    (*id)->context = context;
    (*id)->ps = ps;
    return 0;
}

/* The name of the interface that has an address, or NULL. */
static char *interface_of(const struct sockaddr_in *address)
{
    struct ifaddrs *all;
    char *name = NULL;

    if (getifaddrs(&all))
        return NULL;
    for (struct ifaddrs *one = all; one && !name; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET &&
            ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr == address->sin_addr.s_addr)
            name = strdup(one->ifa_name);
    freeifaddrs(all);
    return name;
}

/* The device of an interface, by the name that the other library gives it. */
static struct ibv_device *device_of(const char *interface)
{
    char name[IF_NAMESIZE + 8];
    struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;

    snprintf(name, sizeof(name), "fake_%s", interface);
    for (int i = 0; list && list[i] && !found; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            found = list[i];
    if (list)
        ibv_free_device_list(list);
    return found;
}

static void release(struct shared *shared)
{
    if (--shared->n_ids)
        return;
    ibv_dealloc_pd(shared->pd);
    ibv_close_device(shared->context);
    *shared = (struct shared){0};
}

/* With the lock.  Returns NULL with errno. */
static struct shared *acquire(struct ibv_device *device)
{
    struct shared *free_one = NULL;

    for (int i = 0; i < MAX_DEVICES; i++) {
        if (devices[i].device == device) {
            devices[i].n_ids++;
            return &devices[i];
        }
        if (!devices[i].device && !free_one)
            free_one = &devices[i];
    }
    struct ibv_context *context = free_one ? ibv_open_device(device) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd) {
        int error = errno;
        if (context)
            ibv_close_device(context);
        errno = error;
        return NULL;
    }
    *free_one = (struct shared){.device = device, .context = context, .pd = pd, .n_ids = 1};
    return free_one;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    struct shared *shared = NULL;

    if (id->verbs || address->sa_family != AF_INET) {
        errno = id->verbs ? EINVAL : EAFNOSUPPORT;
        return -1;
    }
    memcpy(&id->route.addr.src_sin, v4, sizeof(*v4));
    if (v4->sin_addr.s_addr == htonl(INADDR_ANY) || ntohl(v4->sin_addr.s_addr) >> 24 == 127)
        return 0; /* bound to no device */
    char *interface = interface_of(v4);
    struct ibv_device *device = interface ? device_of(interface) : NULL;
    free(interface);
    if (!device) {
        errno = ENODEV;
        return -1;
    }
    pthread_mutex_lock(&lock);
    shared = acquire(device);
    pthread_mutex_unlock(&lock);
    if (!shared)
        return -1;
    id->verbs = shared->context;
    id->pd = shared->pd;
    id->port_num = 1;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_DEVICES && id->verbs; i++)
        if (devices[i].context == id->verbs) {
            release(&devices[i]);
            break;
        }
    pthread_mutex_unlock(&lock);
    free(id);
    return 0;
}
