/* source.h - receives packets into landing slots.
 *
 * Flow:      network or file --recv--> slots that the caller offered: {header | payload | spill}
 *
 * The caller predicts the places of the next payloads.  The source reports where each payload lies.  A packet's bytes
 * fill the header buffer first, then the payload buffer, then the spill.  So the payload of a packet as predicted lies
 * exactly in its place, and the CPU reads the header only.  recv_packet_copy() gathers the bytes that lie elsewhere.
 *
 * Sockets give recvmmsg three iovecs a slot.  A file source copies.
 * Zero-copy: if packets come joined, or the NIC chooses the addresses, a source returns packets in its own memory
 *            instead.  Such a packet has one part, or two parts.  The second part lies in device memory.
 * Senders:   an endpoint may have a list of permitted senders.  The source keeps other senders away as early as
 *            possible.  The kernel joins the group for these sources only.  A socket's filter cuts packets of other
 *            senders to empty messages.  A NIC has flow rules.  Every packet names its sender, and the receiver checks
 *            the list again.
 * Threads:   one thread per source.   Blocking: recv waits up to its timeout.   Errors: negative errno.
 * Waiting:   a source that can wait (a file) never has to lose a packet: its reader may block on free memory. */
#ifndef COMMON_RECV_SOURCE_H
#define COMMON_RECV_SOURCE_H

#include "common/net/endpoint.h"
#include "common/net/packet_filter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_BATCH_MAX 64
#define PACKET_BYTES_MAX 65536

/* Bytes of each frame in host memory, if the rest of the frame goes to a device: 42 for Ethernet, IPv4 and UDP, and
 * 200. 200 is a multiple of 8, as SPEAD headers are.  After a SPEAD header of 72 bytes, the host has 128 bytes of
 * payload, a multiple of 16. */
#define PACKET_HEAD_BYTES 242

/* Size of the buffer that a source may allocate for zero-copy packets. */
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
    size_t packet_bytes; /* size of the packet as sent; 'truncated' is set if it exceeds the three buffers */
    bool truncated;
    /* If true, 'header' points to the source's memory until the next recv.  'header' holds the whole packet or, with a
     * 'rest', the part before the rest.  The packet has no other parts.  The caller's buffers are not used. */
    bool zero_copy;
    const uint8_t *rest; /* zero-copy: device memory with the bytes after 'header_bytes'; NULL: there are none */
    uint32_t frame;      /* zero-copy: frame number for recv_source_keep() */
    unsigned endpoint;   /* index in the list that the source was opened with */
    uint32_t sender;     /* the sender's address, network order */
};

struct recv_source;

struct recv_source_config {
    const struct endpoint_list *endpoints; /* endpoints to receive; multicast groups are joined */
    const char *interface;                 /* name or address, for multicast; NULL: the kernel's choice */
    size_t buffer_bytes;                   /* requested socket buffer, sum of all endpoints; 0: the kernel's default */
    int transport;                         /* enum transport */
    int comp_vector;                       /* ibverbs: the NIC's interrupt, modulo their number; < 0: never sleep */
    int64_t busy_poll_ns;                  /* time of polling before the thread may sleep; 0: no polling */
    struct device *device;                 /* ibverbs: memory for frames without their heads; NULL: host memory */
    size_t n_kept;                         /* frames that may be kept at once; 0 unless there is a device */
    const char *pcap_file;                 /* read packets from this capture instead of the network; else NULL */
    const struct packet_fanout *share; /* share of multicast groups; other packets may come with 0 bytes; NULL: all */
};

/* Opens sockets or the capture.  Returns 0 or negative errno with one sentence in 'why'.  The sentence names the
 * endpoint or file for the operator, with a remedy.  If the kernel grants a smaller buffer, logs a warning with the
 * sysctl. */
int recv_source_open(const struct recv_source_config *config, struct recv_source **source, char *why, size_t why_bytes);

void recv_source_close(struct recv_source *source);

/* Starts the delivery of packets.  From now on a thread must receive.  With ibverbs no packet comes before, because
 * packets during a program's start would fill the ring.  (Sockets have buffers; a file waits.)  Call once, on the
 * thread that opened the source.  Errors as in recv_source_open(). */
int recv_source_enable(struct recv_source *source, char *why, size_t why_bytes);

/* The frames of a NIC's receive queue (ibverbs). */
struct packet_ring {
    size_t max_frame_bytes; /* longest frame */
    size_t frame_bytes;     /* bytes of each frame in host memory: the whole frame, or its head */
    size_t rest_bytes;      /* bytes of each frame in device memory; 0: none */
    size_t n_posted;        /* frames posted to the NIC, unless its queue is smaller */
    size_t n_frames;        /* posted frames, and frames kept meanwhile */
};

#define PACKET_MTU_MAX 9216 /* MTU assumed if none is known */

/* Computes the ring of a source that is opened with these arguments.  'n_kept' > 0 means that there is a device.  'mtu'
 * is 0 if the MTU is not known; the ring is then as large as it can be. */
void recv_packet_ring_init(struct packet_ring *ring, size_t mtu, size_t buffer_bytes, size_t n_kept);

/* Receives up to n_slots (<= PACKET_BATCH_MAX) packets, waiting up to 'timeout_ns' for the first.  A busy network
 * source that does not poll may first sleep a tenth of a millisecond, to take more packets at a time.  Each call offers
 * all slots again.  Slots beyond the received packets may have been written to, too.
 * Returns the number of packets (0: none in time), -ENODATA at the end of a file, or negative errno of a dead source.
 * A damaged or truncated file first gives its readable packets, then -EIO. */
int recv_source_recv(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);

/* Returns true if the next recv returns only zero-copy packets, so that the slots need no buffers.  The packets of one
 * recv are either all zero-copy, or none is. */
bool recv_source_is_zero_copy(const struct recv_source *source);

/* Keeps a frame of the last recv, its head and its rest, unchanged until its release.  Used with a device.  Kept frames
 * receive no packets. */
void recv_source_keep(struct recv_source *source, uint32_t frame);
/* Returns 0, or the negative errno of a dead source. */
int recv_source_release(struct recv_source *source, const uint32_t *frames, size_t n);

/* Returns true if packets wait for their reader.  The reader then waits for memory instead of dropping packets. */
bool recv_source_can_wait(const struct recv_source *source);

/* Returns the number of messages dropped since open.  Any thread.  With sockets the kernel dropped them because the
 * socket buffer was full; 0 if the kernel does not report drops.  The kernel counts joined packets once, because it
 * drops them together, and counts modulo 2^32 for each endpoint.  The call makes a system call per endpoint.  With
 * ibverbs the NIC's port dropped packets because no frame was posted; packets of other programs count, too.  The NIC's
 * firmware answers, which may take a millisecond. */
uint64_t recv_source_kernel_drops(const struct recv_source *source);

/* Finds byte 'offset' of a received packet.  Returns the number of contiguous bytes there, at most 'n_bytes'. */
size_t recv_packet_piece(const struct packet_slot *slot, size_t offset, size_t n_bytes, const uint8_t **start);

/* Copies bytes [offset, offset + n_bytes) of a received packet to 'out' from all parts. */
void recv_packet_copy(const struct packet_slot *slot, size_t offset, size_t n_bytes, uint8_t *out);

/* Copies a packet's first 'n_bytes' into the slot's parts.  Returns the number of bytes that fitted.  For
 * implementations. */
size_t recv_packet_fill(struct packet_slot *slot, const uint8_t *bytes, size_t n_bytes);

/* Sleeps a while before a wait, if the last packets came soon after the last wait began.  A wake-up costs more than the
 * reception of a packet, so the thread then receives all packets that have come.  At 50 Gb/s some 600 kB come before a
 * sleeping thread really wakes, so the buffer must have room.  A source that polls (busy_poll_ns) does not sleep.
 * '*waiting_since_ns' is the start of the last wait.  For implementations. */
#define RECV_SOURCE_COALESCE_BUFFER_MIN (2 << 20)
void recv_source_coalesce(bool may_coalesce, int64_t *waiting_since_ns);

/* Returns the number of single addresses that may send to an endpoint, if the source is to join for these alone.
 * Returns 0 if there are more than PACKET_SOURCES_MAX, if there are networks, or if any sender may send.  The kernel
 * limits the number for a socket's group (net.ipv4.igmp_max_msf). */
#define PACKET_SOURCES_MAX 10
size_t recv_source_n_senders(const struct endpoint *endpoint);

/* Joins the endpoint's multicast group with a socket on an interface (0: the kernel's choice).  The join is limited to
 * the senders of recv_source_n_senders(), if there are any.  Returns 0 or a positive errno.  For implementations. */
int recv_source_join(int fd, const struct endpoint *endpoint, const struct interface *interface);

/* Table that finds a datagram's endpoint, for implementations that see datagrams of others, too. */
struct recv_endpoints {
    size_t n;
    uint64_t *keys; /* sorted keys: address, port, index */
    uint64_t last;  /* key found last */
};

/* Returns 0 or -ENOMEM. */
int recv_endpoints_init(const struct endpoint_list *list, struct recv_endpoints *endpoints);
void recv_endpoints_fini(struct recv_endpoints *endpoints);

/* Returns the index of the endpoint with this address (network order) and port, or -1 if there is none. */
int recv_endpoints_find(struct recv_endpoints *endpoints, uint32_t address, uint16_t port);

/* Functions of an implementation, for source_*.c only. */
struct recv_source_ops {
    int (*enable)(struct recv_source *source, char *why, size_t why_bytes); /* NULL: nothing to do */
    int (*recv)(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);
    bool (*is_zero_copy)(const struct recv_source *source); /* NULL: never */
    uint64_t (*kernel_drops)(const struct recv_source *source);
    void (*keep)(struct recv_source *source, uint32_t frame); /* both NULL if there is never a device */
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
