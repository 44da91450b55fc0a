/* source.h - receive packets into landing slots.
 *
 * Flow:      network or file --recv--> slots that the caller offered: {header | payload | spill}
 * The caller tells where it expects the next payloads to belong; the source says where each fell.  A packet's bytes
 * fill the header buffer first, then the payload buffer, then the spill, so a packet as predicted puts its payload
 * exactly where it is wanted and the CPU reads the header only.  recv_packet_copy() gathers whatever fell elsewhere.
 *
 * Sockets give recvmmsg three iovecs a slot; a file source copies.
 * Lending:   where packets come several at a time, or the card writes them where it likes, a source lends them instead,
 *            each in one piece in its own memory, or in two of which the second is a device's.
 * Senders:   where an endpoint has a list of who may send to it, the source keeps others away as early as it can: the
 *            kernel joins the group for these sources only, a socket's filter cuts packets of others to empty messages,
 *            a card has flow rules.  Whatever comes all the same says who sent it; the receiver asks the list.
 * Threads:   one thread per source.   Blocking: recv waits up to its timeout.   Errors: negative errno.
 * Waiting:   a source that can wait (a file) is never obliged to lose a packet: its reader may block on free memory. */
#ifndef COMMON_RECV_SOURCE_H
#define COMMON_RECV_SOURCE_H

#include "common/net/endpoint.h"
#include "common/net/packet_filter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_BATCH_MAX 64
#define PACKET_BYTES_MAX 65536

/* Bytes of each frame in host memory when the rest of the frame goes to a device: 42 of Ethernet, IPv4 and UDP, and
 * 200.  200 is a multiple of 8, as SPEAD headers are.  After a SPEAD header of 72 bytes, the host has 128 bytes of
 * payload, a multiple of 16. */
#define PACKET_HEAD_BYTES 242

/* Buffer that a source may take for packets that it lends. */
#define PACKET_SOURCE_BYTES (PACKET_BATCH_MAX * (size_t)PACKET_BYTES_MAX)

struct packet_slot {
    /* Offered by the caller. */
    uint8_t *header;
    size_t header_bytes;
    uint8_t *payload; /* may be NULL with payload_bytes 0 */
    size_t payload_bytes;
    uint8_t *spill;
    size_t spill_bytes;
    /* Filled in by recv. */
    size_t packet_bytes; /* of the packet as sent; what did not fit into the three is lost and 'truncated' is set */
    bool truncated;
    /* 'header' is the source's memory until the next recv.  'header' has the whole packet or, with a 'rest', the part
     * before the rest; there are no other parts.  The buffers that the caller offered are not used. */
    bool zero_copy;
    const uint8_t *rest; /* of a lent packet: device memory with what lies behind 'header_bytes'; NULL: nothing does */
    uint32_t frame;      /* of a lent packet: what to keep */
    unsigned endpoint;   /* index in the list that the source was opened with */
    uint32_t sender;     /* its address, network order */
};

struct recv_source;

struct recv_source_config {
    const struct endpoint_list *endpoints; /* what to receive; multicast groups are joined */
    const char *interface;                 /* name or address, for multicast; NULL: the kernel's choice */
    size_t buffer_bytes;                   /* socket buffer asked for, over all endpoints; 0: leave */
    int transport;                         /* enum transport */
    int comp_vector;                   /* ibverbs: of the card's interrupts, modulo how many it has; < 0: never sleep */
    int64_t busy_poll_ns;              /* to poll for before the thread may sleep; 0: sleep */
    struct device *device;             /* ibverbs: frames lie in its memory, but for their heads; NULL: in the host's */
    size_t n_kept;                     /* frames that may be kept at once; 0 unless there is a device */
    const char *pcap_file;             /* read packets from this capture instead of the network; else NULL */
    const struct packet_fanout *share; /* of multicast groups; the others' packets may come with 0 bytes; NULL: all */
};

/* Opens sockets or the capture.  Returns 0 or negative errno with one sentence in 'why' (for the operator: names the
 * endpoint or file, and what to do about it).  A buffer that the kernel did not grant is a warning with the sysctl. */
int recv_source_open(const struct recv_source_config *config, struct recv_source **source, char *why, size_t why_bytes);

void recv_source_close(struct recv_source *source);

/* From now on there must be somebody who receives: of ibverbs no packet comes before, since what came while a program
 * is still getting ready would fill its ring.  (Sockets have their buffers; a file waits.)  Once, on the thread that
 * opened it.  Errors as of open. */
int recv_source_enable(struct recv_source *source, char *why, size_t why_bytes);

/* The frames that a queue of a card receives into (ibverbs). */
struct packet_ring {
    size_t max_frame_bytes; /* of what may come */
    size_t frame_bytes;     /* of each in the host's memory: all of it, or its head */
    size_t rest_bytes;      /* of each in a device's memory; 0: it has none of it */
    size_t n_posted;        /* that the card has, unless it takes fewer */
    size_t n_frames;        /* and those that are kept meanwhile */
};

#define PACKET_MTU_MAX 9216 /* of usual networks, where none is known */

/* The ring of a source that is opened with these; with 'n_kept' > 0 there is a device.  'mtu': 0 where it is not known,
 * which gives the largest that may be. */
void recv_packet_ring_init(struct packet_ring *ring, size_t mtu, size_t buffer_bytes, size_t n_kept);

/* Receives up to n_slots (<= PACKET_BATCH_MAX) packets, waiting up to 'timeout_ns' for the first.  A busy network
 * source that does not poll may first sleep a tenth of a millisecond, to take more packets at a time.  Each call offers
 * all slots again.  Slots beyond the received packets may have been written to, too.
 * Returns the number of packets (0: none in time), -ENODATA at the end of a file, or negative errno of a dead source.
 * A damaged or truncated file first gives its readable packets, then -EIO. */
int recv_source_recv(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);

/* True if the next recv will only lend packets, so that the slots need not offer anything.  The packets of a recv are
 * all lent, or none is. */
bool recv_source_is_zero_copy(const struct recv_source *source);

/* Where there is a device: a frame of the last recv, its head and its rest, stays as it is until it is released.  Frames
 * that are kept are not there to receive into. */
void recv_source_keep(struct recv_source *source, uint32_t frame);
/* Returns 0, or negative errno of a source that died. */
int recv_source_release(struct recv_source *source, const uint32_t *frames, size_t n);

/* True where the packets keep: the reader then waits for memory instead of dropping. */
bool recv_source_can_wait(const struct recv_source *source);

/* Any thread.  Messages that the kernel dropped since open because the socket buffer was full, where it says so; else
 * 0.  The kernel counts joined packets once, because it drops them together; and modulo 2^32 for each endpoint.  A
 * system call per endpoint.  With ibverbs, packets that the card's port dropped because no frame was posted, also those
 * of others; the card's firmware is asked, which may take a millisecond. */
uint64_t recv_source_kernel_drops(const struct recv_source *source);

/* Where byte 'offset' of a received packet fell.  Returns how many bytes lie there in one piece, 'n_bytes' at most. */
size_t recv_packet_piece(const struct packet_slot *slot, size_t offset, size_t n_bytes, const uint8_t **start);

/* Copies bytes [offset, offset + n_bytes) of a received packet to 'out', wherever they fell. */
void recv_packet_copy(const struct packet_slot *slot, size_t offset, size_t n_bytes, uint8_t *out);

/* Puts a packet's first 'n_bytes' into the slot's parts.  Returns how many of them fitted.  For implementations. */
size_t recv_packet_fill(struct packet_slot *slot, const uint8_t *bytes, size_t n_bytes);

/* To be woken by a packet costs more than to receive it.  So where the last packets came so soon after the thread had
 * begun to wait, it first sleeps a while and then takes all that has come: at 50 Gb/s some 600 kB by the time that a
 * sleeper is really woken, for which there must be room.  A source that is to poll (busy_poll_ns) does the
 * contrary.  Called before a wait, with when the last one began; for implementations. */
#define RECV_SOURCE_COALESCE_BUFFER_MIN (2 << 20)
void recv_source_coalesce(bool may_coalesce, int64_t *waiting_since_ns);

/* How many single addresses may send to an endpoint for the source to ask for these alone: the kernel bounds their
 * number for a group of a socket (net.ipv4.igmp_max_msf).  Returns 0 where there are more, or networks, or
 * anybody may send. */
#define PACKET_SOURCES_MAX 10
size_t recv_source_n_senders(const struct endpoint *endpoint);

/* Has a socket join the endpoint's multicast group on an interface (0: the kernel's choice): for such senders
 * alone, or else for all.  Returns 0 or a positive errno.  For implementations. */
int recv_source_join(int fd, const struct endpoint *endpoint, const struct interface *interface);

/* Which endpoint a datagram is for, for implementations that see those of others, too. */
struct recv_endpoints {
    size_t n;
    uint64_t *keys; /* in order: address, port, index */
    uint64_t last;  /* found last */
};

/* Returns 0 or -ENOMEM. */
int recv_endpoints_init(const struct endpoint_list *list, struct recv_endpoints *endpoints);
void recv_endpoints_fini(struct recv_endpoints *endpoints);

/* Returns the index of the endpoint with this address (network order) and port, or -1: none of ours. */
int recv_endpoints_find(struct recv_endpoints *endpoints, uint32_t address, uint16_t port);

/* The vtable of an implementation, for packet_source_*.c only. */
struct recv_source_ops {
    int (*enable)(struct recv_source *source, char *why, size_t why_bytes); /* NULL: nothing to do */
    int (*recv)(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);
    bool (*is_zero_copy)(const struct recv_source *source); /* NULL: never */
    uint64_t (*kernel_drops)(const struct recv_source *source);
    void (*keep)(struct recv_source *source, uint32_t frame); /* both NULL: there never is a device */
    int (*release)(struct recv_source *source, const uint32_t *frames, size_t n);
    void (*close)(struct recv_source *source);
    bool can_wait;
};

struct recv_source {
    const struct recv_source_ops *ops;
};

int recv_source_udp_open(const struct recv_source_config *config, struct recv_source **source, char *why,
                         size_t why_bytes);
int recv_source_verbs_open(const struct recv_source_config *config, struct recv_source **source, char *why,
                           size_t why_bytes);
int recv_source_pcap_open(const struct recv_source_config *config, struct recv_source **source, char *why,
                          size_t why_bytes);

#endif
