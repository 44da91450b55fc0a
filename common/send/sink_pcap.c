/* sink_pcap.c - writes packets with their departure times to a capture file, framed as on the wire.  Opening a sink
 * checks that the file can be written, but keeps the old contents until the first packet.  So an old capture is not
 * lost if the program's start fails for another reason.  A new file is removed if no packet is written.  All sinks of
 * a process that name the same file write to one capture, as if they shared a network link. */
#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/send/sink.h"
#include "common/base/units.h"
#include "common/base/why.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_BYTES_MAX (FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX)
#define UNICAST_TTL     64

/* An open capture file, which several sinks may share. */
struct capture {
    struct capture *next;
    size_t n_sinks;
    char *path;
    pcap_t *format;
    int fd;              /* descriptor until the first packet; then 'file' owns the descriptor, and 'fd' is -1 */
    bool created;        /* true if this process created the file */
    pcap_dumper_t *file; /* libpcap's output file; NULL before the first packet */
    int err;             /* positive errno of the first failed write, after which nothing is written; else 0 */
};

/* Guards the list of captures and all files in it. */
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;

struct pcap_sink {
    struct send_sink base;
    struct capture *capture;
    struct in_addr from;
    int multicast_ttl;
    size_t n_destinations;
    struct endpoint *destinations;
    uint8_t frame[FRAME_BYTES_MAX];
};

/* Writes the frame's header.  A locally administered MAC address replaces the unknown address of the receiving host. */
static void put_header(struct pcap_sink *sink, const struct endpoint *to, size_t n_bytes)
{
    static const uint8_t host_mac[6] = {0x02, 0, 0, 0, 0, 2};
    bool is_group = endpoint_is_multicast(to);
    const struct frame_addresses from = {
        .mac = {0x02, 0, 0, 0, 0, 1},
        .address = sink->from.s_addr,
        .port = SPEAD_DEFAULT_PORT,
        .ttl = (uint8_t)(is_group ? sink->multicast_ttl : UNICAST_TTL),
    };

    frame_put(sink->frame, &from, to, is_group ? NULL : host_mac, n_bytes);
}

/* Empties the file and writes the capture's header, before the first packet. */
static void begin_file(struct capture *capture)
{
    if (ftruncate(capture->fd, 0) != 0 && errno != EINVAL) { /* EINVAL: the file is a FIFO, which need not be emptied */
        capture->err = errno;
        return;
    }
    FILE *file = fdopen(capture->fd, "wb");
    capture->err = file ? 0 : errno;
    if (!file)
        return;
    capture->fd = -1;
    errno = 0;
    capture->file = pcap_dump_fopen(capture->format, file); /* after a failure the file is already closed */
    if (!capture->file)
        capture->err = errno ? errno : EIO;
}

/* Writes a packet to the capture.  Returns 0 or a positive errno. */
static int write_packet(struct pcap_sink *sink, const struct packet_out *packet, int64_t now_ns)
{
    struct capture *capture = sink->capture;
    assert(packet->destination < sink->n_destinations);
    if (!capture->file && !capture->err)
        begin_file(capture);
    if (capture->err)
        return capture->err;
    size_t payload_bytes = packet->header_bytes + packet->payload_bytes;
    if (payload_bytes > FRAME_PAYLOAD_MAX)
        return EMSGSIZE;
    put_header(sink, &sink->destinations[packet->destination], payload_bytes);
    uint8_t *at = sink->frame + FRAME_HEADER_BYTES;
    memcpy(at, packet->header, packet->header_bytes);
    if (packet->payload_bytes > 0)
        memcpy(at + packet->header_bytes, packet->payload, packet->payload_bytes);

    const struct pcap_pkthdr header = {
        /* In a capture with nanosecond precision, libpcap expects nanoseconds in tv_usec. */
        .ts = {.tv_sec = now_ns / NS_PER_S, .tv_usec = now_ns % NS_PER_S},
        .caplen = (bpf_u_int32)(FRAME_HEADER_BYTES + payload_bytes),
        .len = (bpf_u_int32)(FRAME_HEADER_BYTES + payload_bytes),
    };
    errno = 0;
    pcap_dump((u_char *)capture->file, &header, sink->frame);
    if (ferror(pcap_dump_file(capture->file)))
        capture->err = errno ? errno : EIO;
    return capture->err;
}

/* Flushes the file, to detect a full disk, and to keep the packets if the program is killed.  Returns 0 or a positive
 * errno. */
static int flush(struct capture *capture)
{
    errno = 0;
    if (capture->file && !capture->err && pcap_dump_flush(capture->file) != 0)
        capture->err = errno ? errno : EIO;
    return capture->err;
}

static size_t pcap_sink_send(struct send_sink *base, struct packet_out *packets, size_t n)
{
    struct pcap_sink *sink = CONTAINER_OF(base, struct pcap_sink, base);
    size_t n_failed = 0;
    pthread_mutex_lock(&captures_lock);
    for (size_t i = 0; i < n; i++) {
        int err = write_packet(sink, &packets[i], clock_unix_ns());
        if (err) {
            send_sink_note_failed(base, err);
            n_failed++;
        }
        send_sink_put_ref(&packets[i]);
    }
    /* After a failed flush all packets of the batch count as failed, because any of them may be missing in the file. */
    int err = flush(sink->capture);
    for (; err && n_failed < n; n_failed++)
        send_sink_note_failed(base, err);
    pthread_mutex_unlock(&captures_lock);
    return n - n_failed;
}

/* Frees a capture.  The caller holds captures_lock.  NULL is accepted. */
static void destroy_capture(struct capture *capture)
{
    if (!capture)
        return;
    if (capture->file)
        pcap_dump_close(capture->file);
    if (capture->fd >= 0) {
        close(capture->fd);
        if (capture->created)
            unlink(capture->path);
    }
    if (capture->format)
        pcap_close(capture->format);
    free(capture->path);
    free(capture);
}

static void put_capture(struct capture *capture)
{
    struct capture **link = &captures;

    pthread_mutex_lock(&captures_lock);
    if (--capture->n_sinks == 0) {
        while (*link != capture)
            link = &(*link)->next;
        *link = capture->next;
        destroy_capture(capture);
    }
    pthread_mutex_unlock(&captures_lock);
}

static void pcap_sink_close(struct send_sink *base)
{
    struct pcap_sink *sink = CONTAINER_OF(base, struct pcap_sink, base);
    if (sink->capture)
        put_capture(sink->capture);
    free(sink->destinations);
    free(sink);
}

static const struct send_sink_ops pcap_sink_ops = {.send = pcap_sink_send, .close = pcap_sink_close};

/* Opens the file for writing without changing its contents, or creates it.  Does not wait for the reader of a FIFO. */
static int open_file(struct capture *capture)
{
    capture->fd = open(capture->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    capture->created = capture->fd >= 0;
    if (capture->fd < 0 && errno == EEXIST)
        capture->fd = open(capture->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                           0666); /* O_CREAT: the path may be a dangling link */
    if (capture->fd < 0 || fcntl(capture->fd, F_SETFL, 0))
        return -errno;
    return 0;
}

/* Opens the capture file 'path'.  The caller holds captures_lock.  Returns 0, or negative errno with a sentence in
 * 'why'. */
static int create_capture(const char *path, struct capture **out, char *why, size_t why_bytes)
{
    struct capture *capture = calloc(1, sizeof(*capture));
    if (capture) {
        capture->fd = -1;
        capture->path = strdup(path);
        capture->format = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, FRAME_BYTES_MAX, PCAP_TSTAMP_PRECISION_NANO);
    }
    if (!capture || !capture->path || !capture->format) {
        destroy_capture(capture);
        return why_out_of_memory(why, why_bytes);
    }
    int err = open_file(capture);
    if (err) {
        destroy_capture(capture);
        return why_fail(err, why, why_bytes, "send.pcap_file: \"%s\" cannot be written: %s", path,
                        err == -ENXIO ? "nobody reads this FIFO" : strerror(-err));
    }
    capture->next = captures;
    captures = capture;
    *out = capture;
    return 0;
}

static int get_capture(const char *path, struct capture **out, char *why, size_t why_bytes)
{
    int err = 0;

    pthread_mutex_lock(&captures_lock);
    struct capture *capture = captures;
    while (capture && strcmp(capture->path, path) != 0)
        capture = capture->next;
    if (!capture)
        err = create_capture(path, &capture, why, why_bytes);
    if (!err) {
        capture->n_sinks++;
        *out = capture;
    }
    pthread_mutex_unlock(&captures_lock);
    return err;
}

int send_sink_pcap_open(const struct send_sink_config *config, struct send_sink **out, char *why, size_t why_bytes)
{
    const struct endpoint_list *endpoints = config->destinations;
    struct pcap_sink *sink = calloc(1, sizeof(*sink));
    struct endpoint *destinations = calloc(endpoints->n, sizeof(*destinations));
    if (!sink || !destinations) {
        free(destinations);
        free(sink);
        return why_out_of_memory(why, why_bytes);
    }
    memcpy(destinations, endpoints->items, endpoints->n * sizeof(*destinations));
    sink->base.ops = &pcap_sink_ops;
    sink->n_destinations = endpoints->n;
    sink->destinations = destinations;
    sink->multicast_ttl = config->ttl;
    /* A capture needs no interface.  If the configured interface exists, its address becomes the packets' source
     * address. */
    sink->from.s_addr = htonl(INADDR_LOOPBACK);
    struct interface interface;
    char ignored[400]; /* no error is reported, because an interface is optional here */
    if (config->interface && endpoint_find_interface(config->interface, &interface, ignored, sizeof(ignored)) == 0)
        sink->from = interface.address;
    int err = get_capture(config->pcap_file, &sink->capture, why, why_bytes);
    if (err)
        pcap_sink_close(&sink->base);
    else
        *out = &sink->base;
    return err;
}
