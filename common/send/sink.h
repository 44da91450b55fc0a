/* sink.h - send packets: a header each, and a payload that is gathered from where it lies.
 *
 * Flow:      sender: alloc -> fill headers, point at payloads -> send -> (last packet of a buffer gone) buffer_ref_put
 * Ownership: header memory belongs to the sink (a verbs sink registers it); payload memory to the buffer whose 'loan'
 *            the last packet that refers to it carries.  The sink puts that loan once the packet has left.
 * In flight: packets of a socket or a capture have left when send returns.  The NIC of a verbs sink still reads packets
 *            after send.  They have left when send_sink_reap() finds their completions.  Until then payload memory
 *            without a loan (a descriptor's, a simulator's) must stay unchanged.
 * Threads:   one thread per sink.
 * Blocking:  alloc and send may wait for room in the socket buffer or, unless send_sink_has_room(), in the card's
 *            queue, a second at most without progress; reap never waits.
 * Errors:    a packet that could not be sent is counted in 'n_failed' and treated as gone: nothing else is lost.  A
 *            verbs sink may learn of the failure only after send. */
#ifndef COMMON_SEND_SINK_H
#define COMMON_SEND_SINK_H

#include "common/net/endpoint.h"
#include "common/base/buffer_ref.h"
#include "common/base/units.h"

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
    unsigned destination;   /* index in the list that the sink was opened with */
    struct buffer_ref *ref; /* reference to put when this packet has left; NULL: none */
};

struct device_exported;
struct send_sink;

struct send_sink_config {
    const struct endpoint_list *destinations;
    enum transport transport; /* ibverbs: needs an interface, and destinations that are multicast */
    const char *interface;    /* name or address, for multicast; NULL: the kernel's choice */
    int ttl;                  /* of multicast */
    size_t buffer_bytes;      /* socket buffer asked for; 0: leave.  Not of ibverbs */
    const char *pcap_file;    /* write packets to this capture (Ethernet/IPv4/UDP) instead of the network; else NULL */
    /* ibverbs only. */
    size_t packet_bytes;      /* of the largest packet, header and payload */
    double rate_bytes_per_s;  /* that the caller keeps, headers included, by which the card smooths; 0: unpaced */
    double mean_packet_bytes; /* at that rate, of which what the wire needs besides depends; 0: packet_bytes */
    /* Called once, on the sink's thread, when the card is lost for good; NULL: nobody is told. */
    void (*on_lost)(void *arg);
    void *on_lost_arg;
};

/* Returns 0 or negative errno with one sentence in 'why'. */
int send_sink_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);

/* Waits for what is in flight, a second at most where nothing moves, puts all loans, closes. */
void send_sink_close(struct send_sink *sink);

/* Tells the sink of memory that payloads will come from, so that a card may read them where they lie; others it copies.
 * It must stay allocated until the sink is closed or has forgotten it, with nothing in flight.  Returns 0 or negative
 * errno with one sentence in 'why'. */
int send_sink_add_memory(struct send_sink *sink, const void *base, size_t n_bytes, char *why, size_t why_bytes);
/* The same of a device's memory, which only a verbs sink takes: payloads there have the cards' addresses. */
int send_sink_add_exported(struct send_sink *sink, const struct device_exported *memory, char *why, size_t why_bytes);
void send_sink_remove_memory(struct send_sink *sink); /* all of it */

/* The caller may be faster from now on than the rate that the sink was opened with. */
void send_sink_disable_pacing(struct send_sink *sink);

/* From 'give_up_ns' on (monotonic) packets for which the kernel has no room fail.  Any thread, at any time: who waits for
 * room looks at it. */
void send_sink_set_deadline(struct send_sink *sink, int64_t give_up_ns);
bool send_sink_deadline_passed(const struct send_sink *sink);

/* Gives 'n' (<= PACKET_SINK_BATCH_MAX) packets with header room and no loan, valid until the next call of send. */
struct packet_out *send_sink_alloc(struct send_sink *sink, size_t n);

/* Whether the next alloc and send of any batch find room in the card's queue, so that a thread that has other sinks
 * need not wait for this one.  Puts loans as a reap does. */
bool send_sink_has_room(struct send_sink *sink);

/* The longest that a thread should sleep before it asks again. */
#define PACKET_SINK_ROOM_NS (50 * NS_PER_US)

/* Sends the first 'n' packets of the last alloc, in order.  Returns how many left (the others failed); never gives up
 * on one because the socket buffer is full, but for send_sink_set_deadline(). */
size_t send_sink_send(struct send_sink *sink, struct packet_out *packets, size_t n);

/* Puts the loans of what has left meanwhile.  Returns how many packets are in flight. */
size_t send_sink_reap(struct send_sink *sink);

/* The longest that a thread should sleep without a reap while packets are in flight. */
#define PACKET_SINK_REAP_NS (1 * NS_PER_MS)

/* Reaps until nothing is in flight; a second at most where nothing moves. */
void send_sink_flush(struct send_sink *sink);

/* Packets that the kernel refused, the card did not send or a capture did not take, since open, and the errno of the
 * last.  Any thread. */
uint64_t send_sink_n_failed(const struct send_sink *sink, int *last_errno);

/* The same since the last call of this. */
uint64_t send_sink_take_failed(struct send_sink *sink, int *last_errno);

/* The vtable of an implementation, for packet_sink_*.c only. */
struct send_sink_ops {
    size_t (*send)(struct send_sink *sink, struct packet_out *packets, size_t n);
    void (*close)(struct send_sink *sink); /* with nothing in flight */
    /* NULL: as sockets and captures have it. */
    void (*place_headers)(struct send_sink *sink, size_t n); /* of sink->packets; may wait for room */
    size_t (*reap)(struct send_sink *sink);
    bool (*has_room)(struct send_sink *sink);
    /* 'fd': of a device's memory; else negative. */
    int (*add_memory)(struct send_sink *sink, const void *base, size_t n_bytes, int fd, char *why, size_t why_bytes);
    void (*forget_memory)(struct send_sink *sink);
    void (*disable_pacing)(struct send_sink *sink);
};

struct send_sink {
    const struct send_sink_ops *ops;
    struct packet_out packets[PACKET_SINK_BATCH_MAX];
    uint8_t headers[PACKET_SINK_BATCH_MAX][PACKET_SINK_HEADER_MAX]; /* of sinks without place_headers */
    _Atomic int64_t give_up_ns;                                     /* 0: never */
    uint64_t n_failed_taken;
    _Atomic uint64_t n_failed;
    _Atomic int last_errno;
};

/* Counts a packet that could not be sent, for 'err' (positive). */
void send_sink_note_failed(struct send_sink *sink, int err);

/* Puts the loan that a packet carries, if any: it is gone. */
void send_sink_put_ref(const struct packet_out *packet);

int send_sink_udp_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);
int send_sink_verbs_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);
int send_sink_pcap_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);

#endif
