/* source_pcap.c - reads packets from a capture file into slots, in the order of the file.  Each frame is parsed down to
 * the datagram: link layer, VLAN tags, IPv4, UDP.  Datagrams for other endpoints are skipped, as the kernel would do.
 * The capture's timestamps are not used: a packet arrives when it is read.
 *
 * The capture may be a FIFO.  Its writer may open the FIFO and write to it at any time.  Only recv() waits for the
 * writer: up to its time-out, or until the current frame is complete.  So recv() also reads the FIFO's capture
 * header, and fails if the header is wrong. */
#include "common/base/file.h"
#include "common/base/why.h"
#include "common/net/frame.h"
#include "common/base/log.h"
#include "common/recv/source.h"
#include "common/base/units.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY_IPV4 2 /* AF_INET in the loopback header; the value is the same on every system */

struct pcap_source {
    struct recv_source base;
    char *path;
    FILE *file; /* open file; NULL once 'capture' owns the file */
    int fd;     /* descriptor of the file */
    /* true for a FIFO.  A FIFO is read without stdio's buffer, because poll() does not see data in this buffer */
    bool is_fifo;
    pcap_t *capture; /* libpcap's capture; NULL for a FIFO that has delivered no data yet */
    int link_type;
    /* result of all later recv calls: -ENODATA after the last packet, -EIO after damage; 0: not at the end */
    int end;
    uint64_t n_cut; /* number of packets that are truncated in the capture */
    struct recv_endpoints endpoints;
};

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static int parse_loopback(struct frame_rest *frame)
{
    uint32_t family;

    if (frame->n_captured < sizeof(family))
        return -EINVAL;
    memcpy(&family, frame->at, sizeof(family));
    *frame = (struct frame_rest){frame->at + 4, frame->n_captured - 4, frame->n_bytes - 4};
    /* The header has the byte order of the host that captured the packets. */
    return family == FAMILY_IPV4 || family == (uint32_t)FAMILY_IPV4 << 24 ? 0 : -EINVAL;
}

/* Removes the link layer, so that the frame begins with an IPv4 header.  Returns 0 or -EINVAL. */
static int parse_link(const struct pcap_source *source, struct frame_rest *frame)
{
    switch (source->link_type) {
    case DLT_EN10MB: return frame_parse_link(frame, FRAME_ETHERNET_BYTES, 12);
    case DLT_LINUX_SLL: return frame_parse_link(frame, 16, 14);
    case DLT_LINUX_SLL2: return frame_parse_link(frame, 20, 0);
    case DLT_NULL:
    case DLT_LOOP: return parse_loopback(frame);
    default: /* raw IP */ return 0;
    }
}

static bool link_type_known(int link_type)
{
    return link_type == DLT_EN10MB || link_type == DLT_LINUX_SLL || link_type == DLT_LINUX_SLL2 ||
           link_type == DLT_NULL || link_type == DLT_LOOP || link_type == DLT_RAW || link_type == DLT_IPV4;
}

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

/* Reads the capture's header from the open file.  Returns 0, or -EINVAL or -ENOMEM with a sentence in 'why'. */
static int begin_capture(struct pcap_source *source, char *why, size_t why_bytes)
{
    char pcap_why[PCAP_ERRBUF_SIZE];
    errno = 0;
    pcap_t *capture = pcap_fopen_offline(source->file, pcap_why);
    if (!capture)
        return why_fail(errno == ENOMEM ? -ENOMEM : -EINVAL, why, why_bytes,
                        "recv.pcap_file: \"%s\" cannot be read as a capture: %s", source->path, pcap_why);
    source->capture = capture;
    source->file = NULL;
    source->link_type = pcap_datalink(capture);
    if (!link_type_known(source->link_type)) {
        const char *name = pcap_datalink_val_to_description(source->link_type);
        return why_fail(-EINVAL, why, why_bytes,
                        "recv.pcap_file: the capture \"%s\" contains %s frames (link type %d); only Ethernet, Linux "
                        "cooked, loopback and raw IP can be read",
                        source->path, name ? name : "unknown", source->link_type);
    }
    return 0;
}

/* Returns true if a read would return at once.  Waits up to 'timeout_ns' for data in a FIFO.  A regular file is always
 * readable. */
static bool is_readable(const struct pcap_source *source, int64_t timeout_ns)
{
    struct pollfd file = {.fd = source->fd, .events = POLLIN};

    return !source->is_fifo || poll(&file, 1, (int)(timeout_ns / NS_PER_MS)) > 0;
}

/* Sets source->end, and logs damage and truncated packets. */
static void end_capture(struct pcap_source *source, int status)
{
    source->end = status == PCAP_ERROR_BREAK ? -ENODATA : -EIO; /* PCAP_ERROR_BREAK is the end of the file */
    if (source->end == -EIO)
        log_error("%s cannot be read beyond this point: %s", source->path, pcap_geterr(source->capture));
    if (source->n_cut > 1)
        log_warning("%s contains %llu truncated packets, which were skipped", source->path,
                    (unsigned long long)source->n_cut);
}

/* Copies the packet in a frame into the slot.  Returns false if the packet is for none of the source's endpoints. */
static bool take_frame(struct pcap_source *source, const struct pcap_pkthdr *header, const uint8_t *bytes,
                       struct packet_slot *slot)
{
    struct frame_rest frame = {bytes, header->caplen, header->len};
    struct frame_datagram datagram;
    if (header->len < header->caplen || parse_link(source, &frame) || frame_parse_ip(&frame, &datagram))
        return false;
    int endpoint = recv_endpoints_find(&source->endpoints, datagram.address, datagram.port);
    if (endpoint < 0)
        return false;
    if (datagram.n_captured < datagram.n_bytes) {
        if (source->n_cut++ == 0)
            log_warning("%s contains truncated packets, which are skipped; capture with \"tcpdump -s 0\"",
                        source->path);
        return false;
    }
    slot->truncated = recv_packet_fill(slot, datagram.bytes, datagram.n_bytes) < datagram.n_bytes;
    slot->packet_bytes = datagram.n_bytes;
    slot->endpoint = (unsigned)endpoint;
    slot->sender = datagram.sender;
    return true;
}

static int pcap_source_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct pcap_source *source = CONTAINER_OF(base, struct pcap_source, base);
    struct pcap_pkthdr *header;
    const uint8_t *bytes;
    size_t n_filled = 0;
    char why[512];
    /* From a FIFO, reads at most 'n_slots' frames, and stops when no data are waiting. */
    for (size_t n_read = 0; n_filled < n_slots && !source->end && (!source->is_fifo || n_read < n_slots); n_read++) {
        if (!is_readable(source, n_read == 0 ? timeout_ns : 0))
            break;
        if (!source->capture && begin_capture(source, why, sizeof(why))) {
            log_error("%s", why);
            source->end = -EIO;
            break;
        }
        int status = pcap_next_ex(source->capture, &header, &bytes);
        if (status == 1)
            n_filled += take_frame(source, header, bytes, &slots[n_filled]);
        else
            end_capture(source, status);
    }
    return n_filled == 0 ? source->end : (int)n_filled;
}

static void pcap_source_close(struct recv_source *base)
{
    struct pcap_source *source = CONTAINER_OF(base, struct pcap_source, base);
    if (source->capture)
        pcap_close(source->capture); /* also closes the file */
    if (source->file)
        fclose(source->file);
    recv_endpoints_fini(&source->endpoints);
    free(source->path);
    free(source);
}

static const struct recv_source_ops pcap_source_ops = {
    .recv = pcap_source_recv,
    .close = pcap_source_close,
    .can_wait = true,
};

static int open_file(struct pcap_source *source, char *why, size_t why_bytes)
{
    int err = file_open_read(source->path, &source->is_fifo, &source->file);
    if (err)
        return why_fail(err, why, why_bytes, "recv.pcap_file: \"%s\" cannot be read: %s", source->path,
                        err == -EINVAL ? "it is neither a file nor a FIFO" : strerror(-err));
    source->fd = fileno(source->file);
    if (source->is_fifo)
        return setvbuf(source->file, NULL, _IONBF, 0) ? -ENOMEM : 0;
    return begin_capture(source, why, why_bytes);
}

int recv_source_pcap_open(const struct recv_source_config *config, struct recv_source **out, char *why,
                          size_t why_bytes)
{
    struct pcap_source *source = calloc(1, sizeof(*source));
    char *path = strdup(config->pcap_file);
    if (!source || !path || recv_endpoints_init(config->endpoints, &source->endpoints)) {
        free(path);
        free(source);
        return why_out_of_memory(why, why_bytes);
    }
    source->base.ops = &pcap_source_ops;
    source->path = path;
    int err = open_file(source, why, why_bytes);
    if (err)
        pcap_source_close(&source->base);
    else
        *out = &source->base;
    return err;
}
