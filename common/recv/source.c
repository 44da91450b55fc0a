/* source.c - selects the implementation of a source, and has code that all implementations share. */
#include "common/recv/source.h"

#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/base/memory.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define COALESCE_NS (50 * NS_PER_US)
#define SOON_NS     (100 * NS_PER_US)

int recv_source_open(const struct recv_source_config *config, struct recv_source **source, char *why, size_t why_bytes)
{
    assert(config->endpoints->n > 0);
    if (config->pcap_file)
        return recv_source_pcap_open(config, source, why, why_bytes);
    if (config->transport == TRANSPORT_IBVERBS)
        return recv_source_verbs_open(config, source, why, why_bytes);
    return recv_source_udp_open(config, source, why, why_bytes);
}

#define RING_ALIGN_BYTES 64 /* size of a cache line, so that no two frames share a line */
/* smallest number of posted frames: several batches, because some frames are in use and others are complete */
#define RING_POSTED_MIN (4 * PACKET_BATCH_MAX)

static size_t round_to_lines(size_t bytes)
{
    return (bytes + RING_ALIGN_BYTES - 1) / RING_ALIGN_BYTES * RING_ALIGN_BYTES;
}

void recv_packet_ring_init(struct packet_ring *ring, size_t mtu, size_t buffer_bytes, size_t n_kept)
{
    size_t max = FRAME_ETHERNET_BYTES + FRAME_TAGS_BYTES + (mtu ? mtu : PACKET_MTU_MAX);

    ring->max_frame_bytes = max;
    ring->frame_bytes = round_to_lines(n_kept > 0 ? PACKET_HEAD_BYTES : max);
    ring->rest_bytes = n_kept > 0 ? round_to_lines(max - PACKET_HEAD_BYTES) : 0;
    ring->n_posted = buffer_bytes / round_to_lines(max);
    if (ring->n_posted < RING_POSTED_MIN)
        ring->n_posted = RING_POSTED_MIN;
    ring->n_frames = bytes_plus(ring->n_posted, n_kept);
}

int recv_source_enable(struct recv_source *source, char *why, size_t why_bytes)
{
    return source->ops->enable ? source->ops->enable(source, why, why_bytes) : 0;
}

void recv_source_close(struct recv_source *source)
{
    if (source)
        source->ops->close(source);
}

int recv_source_recv(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    assert(n_slots > 0 && n_slots <= PACKET_BATCH_MAX);
    return source->ops->recv(source, slots, n_slots, timeout_ns);
}

bool recv_source_is_zero_copy(const struct recv_source *source)
{
    return source->ops->is_zero_copy && source->ops->is_zero_copy(source);
}

void recv_source_keep(struct recv_source *source, uint32_t frame)
{
    source->ops->keep(source, frame);
}

int recv_source_release(struct recv_source *source, const uint32_t *frames, size_t n)
{
    return n > 0 ? source->ops->release(source, frames, n) : 0;
}

bool recv_source_can_wait(const struct recv_source *source)
{
    return source->ops->can_wait;
}

uint64_t recv_source_kernel_drops(const struct recv_source *source)
{
    return source->ops->kernel_drops ? source->ops->kernel_drops(source) : 0;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

void recv_source_coalesce(bool may_coalesce, int64_t *waiting_since_ns)
{
    int64_t now_ns = clock_monotonic_ns();

    if (may_coalesce && now_ns - *waiting_since_ns < SOON_NS) {
        clock_sleep_until(now_ns + COALESCE_NS);
        now_ns = clock_monotonic_ns();
    }
    *waiting_since_ns = now_ns;
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

size_t recv_source_n_senders(const struct endpoint *endpoint)
{
    size_t n = endpoint->from ? endpoint->from->n : 0;

    for (size_t i = 0; i < n; i++)
        if (endpoint->from->networks[i].mask != UINT32_MAX)
            return 0;
    return n <= PACKET_SOURCES_MAX ? n : 0;
}

static int join_source(int fd, const struct endpoint *endpoint, int interface_index, uint32_t address)
{
    struct group_source_req request = {.gsr_interface = (uint32_t)interface_index};
    const struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = endpoint->address};
    const struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};

    memcpy(&request.gsr_group, &group, sizeof(group));
    memcpy(&request.gsr_source, &source, sizeof(source));
    return setsockopt(fd, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, &request, sizeof(request)) ? errno : 0;
}

int recv_source_join(int fd, const struct endpoint *endpoint, const struct interface *interface)
{
    const struct ip_mreqn membership = {
        .imr_multiaddr = endpoint->address, .imr_address = interface->address, .imr_ifindex = interface->index};
    size_t n_senders = recv_source_n_senders(endpoint);
    int err = 0;

    for (size_t i = 0; i < n_senders && !err; i++)
        err = join_source(fd, endpoint, interface->index, endpoint->from->networks[i].address);
    if (n_senders > 0 && !err)
        return 0;
    if (err) /* the group may already have been joined for some of the senders */
        setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &membership, sizeof(membership));
    return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)) ? errno : 0;
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static uint64_t make_key(uint32_t address, uint16_t port, size_t index)
{
    return (uint64_t)address << 32 | (uint64_t)port << 16 | index;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int recv_endpoints_init(const struct endpoint_list *list, struct recv_endpoints *endpoints)
{
    assert(list->n > 0 && list->n <= ENDPOINT_LIST_MAX);
    uint64_t *keys = calloc(list->n, sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < list->n; i++)
        keys[i] = make_key(list->items[i].address.s_addr, list->items[i].port, i);
    qsort(keys, list->n, sizeof(*keys), compare_keys);
    *endpoints = (struct recv_endpoints){.n = list->n, .keys = keys, .last = keys[0]};
    return 0;
}

void recv_endpoints_fini(struct recv_endpoints *endpoints)
{
    free(endpoints->keys);
}

int recv_endpoints_find(struct recv_endpoints *endpoints, uint32_t address, uint16_t port)
{
    const uint64_t wanted = make_key(address, port, 0);
    size_t low = 0;
    size_t high = endpoints->n;

    if (endpoints->last >> 16 == wanted >> 16)
        return (int)(endpoints->last & UINT16_MAX);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (endpoints->keys[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == endpoints->n || endpoints->keys[low] >> 16 != wanted >> 16)
        return -1;
    endpoints->last = endpoints->keys[low];
    return (int)(endpoints->last & UINT16_MAX);
}

/* ---- Parts of a slot --------------------------------------------------------------------------------------------- */

size_t recv_packet_fill(struct packet_slot *slot, const uint8_t *bytes, size_t n_bytes)
{
    const struct {
        uint8_t *start;
        size_t n_bytes;
    } parts[] = {
        {slot->header, slot->header_bytes},
        {slot->payload, slot->payload_bytes},
        {slot->spill, slot->spill_bytes},
    };
    size_t n_filled = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && n_filled < n_bytes; i++) {
        size_t here = n_bytes - n_filled;
        if (here > parts[i].n_bytes)
            here = parts[i].n_bytes;
        if (here > 0)
            memcpy(parts[i].start, bytes + n_filled, here);
        n_filled += here;
    }
    return n_filled;
}

size_t recv_packet_piece(const struct packet_slot *slot, size_t offset, size_t n_bytes, const uint8_t **start)
{
    const struct {
        const uint8_t *start;
        size_t n_bytes;
    } parts[] = {
        {slot->header, slot->header_bytes},
        {slot->payload, slot->payload_bytes},
        {slot->spill, slot->spill_bytes},
    };
    size_t i = 0;

    while (offset >= parts[i].n_bytes) {
        offset -= parts[i++].n_bytes;
        assert(i < ARRAY_LEN(parts)); /* fails if the slot does not have all requested bytes */
    }
    *start = parts[i].start + offset;
    return parts[i].n_bytes - offset < n_bytes ? parts[i].n_bytes - offset : n_bytes;
}

void recv_packet_copy(const struct packet_slot *slot, size_t offset, size_t n_bytes, uint8_t *out)
{
    while (n_bytes > 0) {
        const uint8_t *start;
        size_t here = recv_packet_piece(slot, offset, n_bytes, &start);

        memcpy(out, start, here);
        out += here;
        offset += here;
        n_bytes -= here;
    }
}
