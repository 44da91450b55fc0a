/* packet_source_pcap.c - packets from a capture file into landing slots: the network, replayed exactly.
 *
 * Each frame is peeled (link layer, VLAN tags, IPv4, UDP) down to the datagram; what is not for one of our endpoints is
 * skipped, as the kernel would.  The times in the capture do not matter: the packets keep until they are asked for. */
#include "common/log.h"
#include "common/packet_source.h"
#include "common/units.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ETHERTYPE_IPV4           0x0800
#define ETHERTYPE_VLAN           0x8100
#define ETHERTYPE_VLAN_OUTER     0x88a8
#define ETHERTYPE_VLAN_OUTER_OLD 0x9100
#define IP_FRAGMENT_MASK         0x3fff /* more fragments, or an offset */
#define FAMILY_IPV4              2      /* AF_INET in the loopback header, the same on every system */

struct pcap_source {
    struct packet_source base;
    char *path;
    pcap_t *capture;
    int link_type;
    int end;        /* 0, or what recv answers from now on: -ENODATA at the end of the file, -EIO where it is damaged */
    uint64_t n_cut; /* captured shorter than they were */
    size_t n_keys;
    uint64_t keys[]; /* endpoints in order: address, port, index */
};

/* What is left of a frame, layer by layer. */
struct cursor {
    const uint8_t *at;
    size_t n_captured;
    size_t n_bytes; /* as it was on the wire: >= n_captured */
};

static unsigned get_u16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)get_u16(at) << 16 | get_u16(at + 2);
}

static void skip(struct cursor *frame, size_t n_bytes)
{
    assert(n_bytes <= frame->n_captured);
    frame->at += n_bytes;
    frame->n_captured -= n_bytes;
    frame->n_bytes -= n_bytes;
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

/* Returns the index of the endpoint, or -1 if it is none of ours. */
static int find_endpoint(const struct pcap_source *source, uint32_t address, uint16_t port)
{
    const uint64_t wanted = make_key(address, port, 0);
    size_t low = 0;
    size_t high = source->n_keys;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (source->keys[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == source->n_keys || source->keys[low] >> 16 != wanted >> 16)
        return -1;
    return (int)(source->keys[low] & UINT16_MAX);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* Peels a link header of 'n_bytes' with its protocol at 'type_at', and VLAN tags.  Returns true for IPv4. */
static bool peel_ethertype(struct cursor *frame, size_t n_bytes, size_t type_at)
{
    if (frame->n_captured < n_bytes)
        return false;
    unsigned type = get_u16(frame->at + type_at);
    skip(frame, n_bytes);
    while (type == ETHERTYPE_VLAN || type == ETHERTYPE_VLAN_OUTER || type == ETHERTYPE_VLAN_OUTER_OLD) {
        if (frame->n_captured < 4)
            return false;
        type = get_u16(frame->at + 2);
        skip(frame, 4);
    }
    return type == ETHERTYPE_IPV4;
}

static bool peel_loopback(struct cursor *frame)
{
    if (frame->n_captured < 4)
        return false;
    uint32_t family = get_u32(frame->at);
    skip(frame, 4);
    /* In the byte order of whoever captured it. */
    return family == FAMILY_IPV4 || family == (uint32_t)FAMILY_IPV4 << 24;
}

static bool peel_link(const struct pcap_source *source, struct cursor *frame)
{
    switch (source->link_type) {
    case DLT_EN10MB: return peel_ethertype(frame, 14, 12);
    case DLT_LINUX_SLL: return peel_ethertype(frame, 16, 14);
    case DLT_LINUX_SLL2: return peel_ethertype(frame, 20, 0);
    case DLT_NULL:
    case DLT_LOOP: return peel_loopback(frame);
    default: /* raw IP */ return true;
    }
}

static bool link_type_known(int link_type)
{
    return link_type == DLT_EN10MB || link_type == DLT_LINUX_SLL || link_type == DLT_LINUX_SLL2 ||
           link_type == DLT_NULL || link_type == DLT_LOOP || link_type == DLT_RAW || link_type == DLT_IPV4;
}

/* Peels IPv4 and UDP, leaving the datagram's payload.  Returns the endpoint's index, or -1 if it is not for us. */
static int peel_datagram(const struct pcap_source *source, struct cursor *frame)
{
    if (frame->n_captured < 20 || frame->at[0] >> 4 != 4)
        return -1;
    size_t ip_header_bytes = 4 * (size_t)(frame->at[0] & 0xf);
    size_t ip_bytes = get_u16(frame->at + 2);
    bool is_fragment = get_u16(frame->at + 6) & IP_FRAGMENT_MASK;
    bool is_udp = frame->at[9] == IPPROTO_UDP;
    uint32_t address = get_u32(frame->at + 16);
    if (!is_udp || is_fragment || ip_header_bytes < 20 || ip_bytes < ip_header_bytes + 8 || ip_bytes > frame->n_bytes ||
        frame->n_captured < ip_header_bytes + 8)
        return -1;
    skip(frame, ip_header_bytes);
    unsigned port = get_u16(frame->at + 2);
    size_t udp_bytes = get_u16(frame->at + 4);
    if (udp_bytes < 8 || udp_bytes > ip_bytes - ip_header_bytes)
        return -1;
    skip(frame, 8);
    frame->n_bytes = udp_bytes - 8; /* the rest is padding of a short frame, or its checksum */
    if (frame->n_captured > frame->n_bytes)
        frame->n_captured = frame->n_bytes;
    return find_endpoint(source, address, (uint16_t)port);
}

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

/* Takes the next packet for one of our endpoints.  Returns 1, or 0 at the end, of which source->end tells the kind. */
static int next_packet(struct pcap_source *source, struct packet_slot *slot)
{
    struct pcap_pkthdr *header;
    const uint8_t *bytes;
    int status;
    while ((status = pcap_next_ex(source->capture, &header, &bytes)) == 1) {
        if (header->len < header->caplen)
            continue;
        struct cursor frame = {bytes, header->caplen, header->len};
        if (!peel_link(source, &frame))
            continue;
        int endpoint = peel_datagram(source, &frame);
        if (endpoint < 0)
            continue;
        if (frame.n_captured < frame.n_bytes) {
            if (source->n_cut++ == 0)
                log_warning("%s has packets cut short, which are skipped; capture with \"tcpdump -s 0\"", source->path);
            continue;
        }
        slot->truncated = packet_fill(slot, frame.at, frame.n_bytes) < frame.n_bytes;
        slot->packet_bytes = frame.n_bytes;
        slot->endpoint = (unsigned)endpoint;
        return 1;
    }
    source->end = status == PCAP_ERROR_BREAK ? -ENODATA : -EIO; /* BREAK is how it says end of file */
    if (source->end == -EIO)
        log_error("%s cannot be read beyond this point: %s", source->path, pcap_geterr(source->capture));
    if (source->n_cut > 1)
        log_warning("%s had %llu packets cut short", source->path, (unsigned long long)source->n_cut);
    return 0;
}

static int pcap_source_recv(struct packet_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct pcap_source *source = CONTAINER_OF(base, struct pcap_source, base);
    size_t n_filled = 0;
    while (n_filled < n_slots && !source->end)
        n_filled += (size_t)next_packet(source, &slots[n_filled]);
    return n_filled == 0 ? source->end : (int)n_filled;
}

static void pcap_source_close(struct packet_source *base)
{
    struct pcap_source *source = CONTAINER_OF(base, struct pcap_source, base);
    pcap_close(source->capture);
    free(source->path);
    free(source);
}

static const struct packet_source_ops pcap_source_ops = {
    .recv = pcap_source_recv,
    .close = pcap_source_close,
    .can_wait = true,
};

int packet_source_pcap_open(const struct packet_source_config *config, struct packet_source **out, char *why,
                            size_t why_bytes)
{
    const struct endpoint_list *endpoints = config->endpoints;
    assert(endpoints->n <= ENDPOINT_LIST_MAX);
    FILE *file = fopen(config->pcap_file, "rb");
    if (!file) {
        int err = -errno;
        snprintf(why, why_bytes, "recv.pcap_file: \"%s\" cannot be read: %s", config->pcap_file, strerror(-err));
        return err;
    }
    char pcap_why[PCAP_ERRBUF_SIZE];
    errno = 0;
    pcap_t *capture = pcap_fopen_offline(file, pcap_why);
    if (!capture) {
        int err = errno == ENOMEM ? -ENOMEM : -EINVAL;
        snprintf(why, why_bytes, "recv.pcap_file: \"%s\" cannot be read as a capture: %s", config->pcap_file, pcap_why);
        fclose(file);
        return err;
    }
    int link_type = pcap_datalink(capture);
    if (!link_type_known(link_type)) {
        const char *name = pcap_datalink_val_to_description(link_type);
        snprintf(why, why_bytes,
                 "recv.pcap_file: the capture \"%s\" is of %s (link type %d); Ethernet, Linux cooked, loopback and raw "
                 "IP can be read",
                 config->pcap_file, name ? name : "something unknown", link_type);
        pcap_close(capture);
        return -EINVAL;
    }
    struct pcap_source *source = calloc(1, sizeof(*source) + endpoints->n * sizeof(source->keys[0]));
    char *path = strdup(config->pcap_file);
    if (!source || !path) {
        snprintf(why, why_bytes, "out of memory");
        free(path);
        free(source);
        pcap_close(capture);
        return -ENOMEM;
    }
    source->base.ops = &pcap_source_ops;
    source->path = path;
    source->capture = capture;
    source->link_type = link_type;
    source->n_keys = endpoints->n;
    for (size_t i = 0; i < endpoints->n; i++)
        source->keys[i] = make_key(ntohl(endpoints->items[i].address.s_addr), endpoints->items[i].port, i);
    qsort(source->keys, source->n_keys, sizeof(source->keys[0]), compare_keys);
    *out = &source->base;
    return 0;
}
