/* sink.h - a sink: sends packets to sockets, a NIC or a capture.  Each packet has a header, and a payload elsewhere in
 * memory.
 *
 * Flow:      sender: alloc -> fill headers, point to payloads -> send -> (last packet of a buffer has left)
 *            buffer_ref_put
 * Ownership: header memory belongs to the sink (a verbs sink registers it).  Payload memory belongs to an output
 *            buffer.  The last packet that refers to a buffer carries the buffer's reference.  The sink releases the
 *            reference once the packet has left.
 * In flight: packets of a socket or a capture have left when send returns.  The NIC of a verbs sink still reads packets
 *            after send; they have left when send_sink_reap() finds their completions.  Until then the caller must not
 *            change payloads without a reference, such as descriptors.
 * Threads:   one thread per sink.
 * Blocking:  alloc and send may wait for room in the socket buffer.  If send_sink_has_room() is false, alloc and send
 *            may also wait for room in the NIC's queue.  They give up after a second without progress.  reap never
 *            waits.
 * Errors:    a packet that could not be sent is counted in 'n_failed', and its reference is released.  Other packets
 *            are not affected.  A verbs sink may detect the failure only after send. */
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
    uint8_t *header; /* header buffer that alloc provides, with room for PACKET_SINK_HEADER_MAX bytes */
    size_t header_bytes;
    const uint8_t *payload;
    size_t payload_bytes;
    unsigned destination;   /* index of the destination in send_sink_config.destinations */
    struct buffer_ref *ref; /* reference to release when this packet has left; NULL: none */
};

struct device_exported;
struct send_sink;

struct send_sink_config {
    const struct endpoint_list *destinations;
    enum transport transport; /* udp or ibverbs; ibverbs requires an interface and multicast destinations */
    const char *interface;    /* interface for multicast, by name or address; NULL: the kernel chooses */
    int ttl;                  /* time to live of multicast packets */
    size_t buffer_bytes;      /* requested size of the socket buffer; 0: the kernel's default; unused with ibverbs */
    const char *pcap_file;    /* capture to write (Ethernet/IPv4/UDP) instead of the network; NULL: the network */
    /* ibverbs only. */
    size_t packet_bytes; /* size of the largest packet, with header */
    /* rate of the caller's packets, headers included, from which the NIC's rate limit is computed; 0: no limit */
    double rate_bytes_per_s;
    double mean_packet_bytes; /* mean packet size, used to compute the overhead on the wire; 0: packet_bytes */
    /* Called once, on the sink's thread, when the NIC's queue cannot be restarted; NULL: no call. */
    void (*on_lost)(void *arg);
    void *on_lost_arg;
};

/* Opens a sink.  Returns 0 or negative errno with one sentence in 'why'. */
int send_sink_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);

/* Waits until no packet is in flight, but gives up after a second without progress.  Then releases all references and
 * closes the sink. */
void send_sink_close(struct send_sink *sink);

/* Adds memory from which a NIC may read payloads directly.  Payloads elsewhere are copied.  The memory must stay
 * allocated until the sink is closed, or until the memory is removed while nothing is in flight.  Returns 0 or negative
 * errno with one sentence in 'why'. */
int send_sink_add_memory(struct send_sink *sink, const void *base, size_t n_bytes, char *why, size_t why_bytes);
/* Adds device memory, which only a verbs sink accepts.  The address of a payload in this memory is a 'nic' address
 * (struct device_exported). */
int send_sink_add_exported(struct send_sink *sink, const struct device_exported *memory, char *why, size_t why_bytes);
void send_sink_remove_memory(struct send_sink *sink); /* removes all memory that was added */

/* Removes the NIC's rate limit, so that the caller may send faster than 'rate_bytes_per_s'. */
void send_sink_disable_pacing(struct send_sink *sink);

/* Sets a deadline (monotonic), after which packets fail if the kernel has no room for them.  Any thread, at any time.
 * The deadline also applies to a wait in progress. */
void send_sink_set_deadline(struct send_sink *sink, int64_t give_up_ns);
bool send_sink_deadline_passed(const struct send_sink *sink);

/* Returns 'n' (<= PACKET_SINK_BATCH_MAX) packets for the caller to fill in.  Each packet has a header buffer, and its
 * 'ref' is NULL.  The packets are valid until the next call of send_sink_send(). */
struct packet_out *send_sink_alloc(struct send_sink *sink, size_t n);

/* Returns true if the NIC's queue has room for a batch of any size.  The next send_sink_alloc() and send_sink_send()
 * then do not wait for room.  If the result is false, the thread can serve other sinks first.  Releases references in
 * the same way as send_sink_reap(). */
bool send_sink_has_room(struct send_sink *sink);

/* Interval at which a thread calls send_sink_has_room() again for a sink without room. */
#define PACKET_SINK_ROOM_NS (50 * NS_PER_US)

/* Sends the first 'n' packets of the last alloc, in order.  Returns the number of packets sent; the others failed.  A
 * full socket buffer makes packets fail only after the deadline of send_sink_set_deadline(). */
size_t send_sink_send(struct send_sink *sink, struct packet_out *packets, size_t n);

/* Releases the references of packets that have left.  Returns the number of packets in flight. */
size_t send_sink_reap(struct send_sink *sink);

/* Longest interval between two reaps while packets are in flight. */
#define PACKET_SINK_REAP_NS (1 * NS_PER_MS)

/* Reaps until nothing is in flight, but gives up after a second without progress. */
void send_sink_flush(struct send_sink *sink);

/* Returns the number of packets that the kernel, the NIC or the capture file did not accept since the sink was
 * opened.  '*last_errno' becomes the errno of the last failure.  Any thread. */
uint64_t send_sink_n_failed(const struct send_sink *sink, int *last_errno);

/* Returns the number of packets that failed since the last call of this function. */
uint64_t send_sink_take_failed(struct send_sink *sink, int *last_errno);

/* Functions of an implementation, for sink_*.c only. */
struct send_sink_ops {
    size_t (*send)(struct send_sink *sink, struct packet_out *packets, size_t n);
    void (*close)(struct send_sink *sink); /* called when no packet is in flight */
    /* The following functions are NULL for sockets and captures. */
    void (*place_headers)(struct send_sink *sink, size_t n); /* sets the headers of sink->packets; may wait for room */
    size_t (*reap)(struct send_sink *sink);
    bool (*has_room)(struct send_sink *sink);
    /* 'fd' is a dma-buf for device memory, and negative for host memory. */
    int (*add_memory)(struct send_sink *sink, const void *base, size_t n_bytes, int fd, char *why, size_t why_bytes);
    void (*forget_memory)(struct send_sink *sink);
    void (*disable_pacing)(struct send_sink *sink);
};

struct send_sink {
    const struct send_sink_ops *ops;
    struct packet_out packets[PACKET_SINK_BATCH_MAX];
    uint8_t headers[PACKET_SINK_BATCH_MAX][PACKET_SINK_HEADER_MAX]; /* used by sinks without place_headers() */
    _Atomic int64_t give_up_ns;                                     /* 0: no deadline */
    uint64_t n_failed_taken;
    _Atomic uint64_t n_failed;
    _Atomic int last_errno;
};

/* Counts a packet that could not be sent because of 'err' (positive). */
void send_sink_note_failed(struct send_sink *sink, int err);

/* Releases the reference of a packet that has left or failed, if the packet has a reference. */
void send_sink_put_ref(const struct packet_out *packet);

int send_sink_udp_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);
int send_sink_verbs_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);
int send_sink_pcap_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes);

#endif
