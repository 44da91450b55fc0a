/* packet_source_pcap.c - packets from a capture file into landing slots: the network, replayed exactly.
 *
 * Each frame is peeled (link layer, VLAN tags, IPv4, UDP) down to the datagram; what is not for one of our endpoints is
 * skipped, as the kernel would.  The times in the capture do not matter: the packets keep until they are asked for. */
#include "common/frame.h"
#include "common/log.h"
#include "common/packet_source.h"
#include "common/units.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY_IPV4 2 /* AF_INET in the loopback header, the same on every system */

struct pcap_source {
    struct packet_source base;
    char *path;
    pcap_t *capture;
    int link_type;
    int end;        /* 0, or what recv answers from now on: -ENODATA at the end of the file, -EIO where it is damaged */
    uint64_t n_cut; /* captured shorter than they were */
    struct packet_endpoints endpoints;
};

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static int peel_loopback(struct frame_rest *frame)
{
    uint32_t family;

    if (frame->n_captured < sizeof(family))
        return -EINVAL;
    memcpy(&family, frame->at, sizeof(family));
    *frame = (struct frame_rest){frame->at + 4, frame->n_captured - 4, frame->n_bytes - 4};
    /* In the byte order of whoever captured it. */
    return family == FAMILY_IPV4 || family == (uint32_t)FAMILY_IPV4 << 24 ? 0 : -EINVAL;
}

/* Leaves what begins with an IPv4 header.  Returns 0 or -EINVAL. */
static int peel_link(const struct pcap_source *source, struct frame_rest *frame)
{
    switch (source->link_type) {
    case DLT_EN10MB: return frame_peel_link(frame, FRAME_ETHERNET_BYTES, 12);
    case DLT_LINUX_SLL: return frame_peel_link(frame, 16, 14);
    case DLT_LINUX_SLL2: return frame_peel_link(frame, 20, 0);
    case DLT_NULL:
    case DLT_LOOP: return peel_loopback(frame);
    default: /* raw IP */ return 0;
    }
}

static bool link_type_known(int link_type)
{
    return link_type == DLT_EN10MB || link_type == DLT_LINUX_SLL || link_type == DLT_LINUX_SLL2 ||
           link_type == DLT_NULL || link_type == DLT_LOOP || link_type == DLT_RAW || link_type == DLT_IPV4;
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
        struct frame_rest frame = {bytes, header->caplen, header->len};
        struct frame_datagram datagram;
        if (peel_link(source, &frame) || frame_peel_ip(&frame, &datagram))
            continue;
        int endpoint = packet_endpoints_find(&source->endpoints, datagram.address, datagram.port);
        if (endpoint < 0)
            continue;
        if (datagram.n_captured < datagram.n_bytes) {
            if (source->n_cut++ == 0)
                log_warning("%s has packets cut short, which are skipped; capture with \"tcpdump -s 0\"", source->path);
            continue;
        }
        slot->truncated = packet_fill(slot, datagram.bytes, datagram.n_bytes) < datagram.n_bytes;
        slot->packet_bytes = datagram.n_bytes;
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
    packet_endpoints_fini(&source->endpoints);
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
    struct pcap_source *source = calloc(1, sizeof(*source));
    char *path = strdup(config->pcap_file);
    if (!source || !path || packet_endpoints_init(config->endpoints, &source->endpoints)) {
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
    *out = &source->base;
    return 0;
}
