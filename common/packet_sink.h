/* packet_sink.h - send packets: a header each, and a payload that is gathered from where it lies.
 *
 * Flow:      sender: alloc -> fill headers, point at payloads -> send -> (last packet of a buffer gone) loan_put
 * Ownership: header memory belongs to the sink (a verbs sink registers it); payload memory to the buffer whose 'loan'
 *            the last packet that refers to it carries.  The sink puts that loan once the packet has left.
 * Threads:   one thread per sink.   Blocking: send may wait for socket buffer, like any paced sender.
 * Errors:    a packet that could not be sent is counted in 'n_failed' and treated as gone: nothing else is lost. */
#ifndef COMMON_PACKET_SINK_H
#define COMMON_PACKET_SINK_H

#include "common/endpoint.h"
#include "common/loan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_SINK_BATCH_MAX  64
#define PACKET_SINK_HEADER_MAX 256

struct packet_out {
    uint8_t *header; /* set by alloc: room for PACKET_SINK_HEADER_MAX bytes */
    size_t header_bytes;
    const uint8_t *payload;
    size_t payload_bytes;
    unsigned destination; /* index in the list that the sink was opened with */
    struct loan *loan;    /* put when this packet is gone; NULL: nothing to put */
};

struct packet_sink;

struct packet_sink_config {
    const struct endpoint_list *destinations;
    const char *interface; /* name or address, for multicast; NULL: the kernel's choice */
    int ttl;               /* of multicast */
    size_t buffer_bytes;   /* socket buffer asked for; 0: leave */
    const char *pcap_file; /* write packets to this capture (Ethernet/IPv4/UDP) instead of the network; else NULL */
};

/* Returns 0 or negative errno with one sentence in 'why'. */
int packet_sink_open(const struct packet_sink_config *config, struct packet_sink **sink, char *why, size_t why_bytes);

/* Waits for what is being sent, puts all loans, closes. */
void packet_sink_close(struct packet_sink *sink);

/* Gives 'n' (<= PACKET_SINK_BATCH_MAX) packets with header room and no loan, valid until the next call of send. */
struct packet_out *packet_sink_alloc(struct packet_sink *sink, size_t n);

/* Sends the first 'n' packets of the last alloc, in order.  Returns how many left (the others failed); never gives up
 * on one because the socket buffer is full. */
size_t packet_sink_send(struct packet_sink *sink, struct packet_out *packets, size_t n);

/* Packets that the kernel refused, or a capture did not take, since open, and the errno of the last. */
uint64_t packet_sink_n_failed(const struct packet_sink *sink, int *last_errno);

/* The vtable of an implementation, for packet_sink_*.c only. */
struct packet_sink_ops {
    size_t (*send)(struct packet_sink *sink, struct packet_out *packets, size_t n);
    void (*close)(struct packet_sink *sink);
};

struct packet_sink {
    const struct packet_sink_ops *ops;
    struct packet_out packets[PACKET_SINK_BATCH_MAX];
    uint8_t headers[PACKET_SINK_BATCH_MAX][PACKET_SINK_HEADER_MAX];
    _Atomic uint64_t n_failed;
    _Atomic int last_errno;
};

/* Counts a packet that could not be sent, for 'err' (positive). */
void packet_sink_note_failed(struct packet_sink *sink, int err);

/* Puts the loan that a packet carries, if any: it is gone. */
void packet_sink_put_loan(const struct packet_out *packet);

int packet_sink_udp_open(const struct packet_sink_config *config, struct packet_sink **sink, char *why,
                         size_t why_bytes);
int packet_sink_pcap_open(const struct packet_sink_config *config, struct packet_sink **sink, char *why,
                          size_t why_bytes);

#endif
