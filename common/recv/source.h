/* source.h - a source of packets: sockets, a NIC or a capture file.  Receives packets into slots, which the caller
 * offers.
 *
 * Flow:      network or file --recv--> slots, each with three buffers: {header | payload | spill}
 *
 * The bytes of a packet fill the header buffer first, then the payload buffer, then the spill buffer.  The caller
 * predicts the next packets, and offers their final places as payload buffers.  If a prediction is right, the payload
 * is received exactly in its place, and the CPU reads only the header.  Otherwise recv_packet_copy() gathers the
 * payload from the buffers.
 *
 * A socket receives into a slot with recvmmsg() and three iovecs.  A file source copies the bytes.
 *
 * Zero-copy: if the Linux kernel coalesces packets, or if the NIC chooses the addresses, a source returns packets in
 *            its own memory instead.  Such a packet is contiguous, or has a second part in device memory.
 * Senders:   an endpoint may have a list of allowed senders.  The source excludes other senders as early as possible.
 *            The kernel joins the group for allowed senders only, a socket filter empties messages of other senders,
 *            and a NIC has flow rules.  Some packets of other senders may pass, so the receiver checks each packet's
 *            sender again.
 * Threads:   one thread per source.   Blocking: recv waits up to its timeout.   Errors: negative errno.
 * Waiting:   a source that can wait (a file) loses no packets, so its reader may wait for free memory. */
#ifndef COMMON_RECV_SOURCE_H
#define COMMON_RECV_SOURCE_H

#include "common/net/endpoint.h"
#include "common/net/packet_filter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_BATCH_MAX 64
#define PACKET_BYTES_MAX 65536

/* Size of a frame's head in host memory, if the rest of the frame is in device memory.  The head has 42 bytes of
 * Ethernet, IPv4 and UDP headers, and the packet's first 200 bytes.  200 is a multiple of 8, as is the size of SPEAD
 * headers.  After a SPEAD header of 72 bytes, the head has room for 128 bytes of payload.  128 is a multiple of 16. */
#define PACKET_HEAD_BYTES 242

/* Size of the buffer that a socket source allocates for zero-copy packets. */
#define PACKET_SOURCE_BYTES (PACKET_BATCH_MAX * (size_t)PACKET_BYTES_MAX)

struct packet_slot {
    /* The caller sets these three buffers. */
    uint8_t *header;
    size_t header_bytes;
    uint8_t *payload; /* may be NULL if payload_bytes is 0 */
    size_t payload_bytes;
    uint8_t *spill;
    size_t spill_bytes;
    /* recv_source_recv() sets the following members. */
    size_t packet_bytes; /* size of the packet as sent; 'truncated' is true if the packet exceeds the buffers */
    bool truncated;
    /* True if 'header' points to the packet in the source's memory.  The packet is valid until the next recv.  If
     * 'rest' is not NULL, only the packet's first 'header_bytes' bytes are at 'header'.  The caller's buffers are not
     * used. */
    bool zero_copy;
    const uint8_t *rest; /* zero-copy: the packet's bytes from 'header_bytes' on, in device memory; NULL: none */
    uint32_t frame;      /* zero-copy: frame number for recv_source_keep() */
    unsigned endpoint;   /* index in recv_source_config.endpoints */
    uint32_t sender;     /* the sender's address, network order */
};

struct recv_source;

struct recv_source_config {
    const struct endpoint_list *endpoints; /* endpoints to receive; multicast groups are joined */
    const char *interface;                 /* interface for multicast, by name or address; NULL: the kernel chooses */
    size_t buffer_bytes;                   /* requested socket buffer, sum of all endpoints; 0: the kernel's default */
    int transport;                         /* enum transport */
    /* ibverbs: number of the NIC's interrupt, modulo the number of interrupts; < 0: the thread never sleeps */
    int comp_vector;
    int64_t busy_poll_ns; /* duration of polling before the thread may sleep; 0: no polling */
    /* ibverbs: device whose memory gets each frame's bytes after the head; NULL: no frame is split */
    struct device *device;
    size_t n_kept;         /* largest number of kept frames (recv_source_keep); 0 without a device */
    const char *pcap_file; /* capture to read instead of the network; NULL: the network */
    /* packets to receive; NULL: all packets.  A packet outside the share may arrive with 0 bytes */
    const struct packet_fanout *share;
};

/* Opens the source.  Returns 0 or negative errno with one sentence in 'why', which names the endpoint or file and a
 * remedy.  If the kernel grants a smaller buffer than requested, logs a warning that names the sysctl. */
int recv_source_open(const struct recv_source_config *config, struct recv_source **source, char *why, size_t why_bytes);

void recv_source_close(struct recv_source *source);

/* Starts the delivery of packets.  After this call a thread must receive packets without long pauses.  With ibverbs no
 * packet arrives before this call, because packets during a program's start would fill the ring.  (Sockets have buffers
 * for such packets, and a file is read only by recv_source_recv().)  Call once, on the thread that opened the source.
 * Errors are reported as by recv_source_open(). */
int recv_source_enable(struct recv_source *source, char *why, size_t why_bytes);

/* Sizes of a NIC's receive queue and its frames (ibverbs). */
struct packet_ring {
    size_t max_frame_bytes; /* longest frame */
    size_t frame_bytes;     /* number of bytes of each frame in host memory: the whole frame, or its head */
    size_t rest_bytes;      /* number of bytes of each frame in device memory; 0: none */
    size_t n_posted;        /* number of frames to post to the NIC; the NIC's queue may have room for fewer frames */
    size_t n_frames;        /* n_posted, plus the number of frames that may be kept */
};

#define PACKET_MTU_MAX 9216 /* MTU assumed if none is known */

/* Computes the sizes for a source that is opened with these arguments.  If 'n_kept' > 0, the head of each frame is in
 * host memory, and the frame's other bytes are in device memory.  If 'mtu' is 0, the MTU is not known, and the function
 * assumes PACKET_MTU_MAX. */
void recv_packet_ring_init(struct packet_ring *ring, size_t mtu, size_t buffer_bytes, size_t n_kept);

/* Receives up to 'n_slots' (<= PACKET_BATCH_MAX) packets, and waits up to 'timeout_ns' for the first packet.  A busy
 * network source that does not poll may first sleep a tenth of a millisecond, to receive more packets at a time.  The
 * slots' buffers must be set before each call.  The buffers of slots that get no packet may also be overwritten.
 * Returns the number of packets (0 after a time-out), -ENODATA at the end of a file, or the negative errno of a dead
 * source.  A damaged or truncated file first returns its readable packets, then -EIO. */
int recv_source_recv(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);

/* Returns true if the next recv will return only zero-copy packets, so that the slots need no buffers.  If the result
 * is false, the packets of the next recv are either all zero-copy or all in the slots. */
bool recv_source_is_zero_copy(const struct recv_source *source);

/* Keeps the head and the rest of a frame of the last recv unchanged until recv_source_release().  Only for a source
 * with a device. */
void recv_source_keep(struct recv_source *source, uint32_t frame);
/* Makes kept frames available for new packets.  Returns 0, or the negative errno of a dead source. */
int recv_source_release(struct recv_source *source, const uint32_t *frames, size_t n);

/* Returns true if unread packets are never lost, as in a file.  The reader may then wait for free memory. */
bool recv_source_can_wait(const struct recv_source *source);

/* Returns the number of messages dropped since the source was opened.  Any thread.  With sockets the kernel drops
 * messages if a socket buffer is full.  The kernel counts coalesced packets as one message, and counts modulo 2^32 for
 * each endpoint.  The result is 0 if the kernel does not report drops.  The call makes one system call per endpoint.
 * With ibverbs the NIC's port drops packets if no frame is posted.  The number then includes packets of other
 * programs.  The call reads the NIC's firmware, which may take a millisecond. */
uint64_t recv_source_kernel_drops(const struct recv_source *source);

/* Sets '*start' to byte 'offset' of a received packet.  Returns the number of contiguous bytes there, at most
 * 'n_bytes'. */
size_t recv_packet_piece(const struct packet_slot *slot, size_t offset, size_t n_bytes, const uint8_t **start);

/* Copies bytes [offset, offset + n_bytes) of a received packet to 'out', from the buffers that have these bytes. */
void recv_packet_copy(const struct packet_slot *slot, size_t offset, size_t n_bytes, uint8_t *out);

/* Copies the first 'n_bytes' bytes of a packet into the slot's buffers.  Returns the number of bytes copied.  For
 * implementations. */
size_t recv_packet_fill(struct packet_slot *slot, const uint8_t *bytes, size_t n_bytes);

/* If the last packets arrived soon after the last wait began, sleeps for a moment before the next wait.  A wake-up
 * costs more than the reception of a packet, so one wake-up for several packets is cheaper.  At 50 Gb/s about 600 kB
 * arrive before the thread is awake.  If the socket buffer or the ring has no room for these bytes, 'may_coalesce' is
 * false, and the function does not sleep.  A source that polls (busy_poll_ns) does not sleep.  '*waiting_since_ns' is
 * the start of the last wait.  Only implementations of a source call this function. */
#define RECV_SOURCE_COALESCE_BUFFER_MIN (2 << 20)
void recv_source_coalesce(bool may_coalesce, int64_t *waiting_since_ns);

/* Returns the number of allowed senders of an endpoint for which a source-specific join is possible.  Returns 0 if
 * there are more than PACKET_SOURCES_MAX senders, if a sender is a network, or if all senders are allowed.  The kernel
 * limits the number of senders for each group of a socket (net.ipv4.igmp_max_msf). */
#define PACKET_SOURCES_MAX 10
size_t recv_source_n_senders(const struct endpoint *endpoint);

/* Joins the endpoint's multicast group with the socket 'fd' on an interface (0: the kernel's choice).  If
 * recv_source_n_senders() is not 0, joins for these senders only.  Returns 0 or a positive errno.  For
 * implementations. */
int recv_source_join(int fd, const struct endpoint *endpoint, const struct interface *interface);

/* Table that finds the endpoint of a datagram, for implementations that also receive datagrams for other endpoints. */
struct recv_endpoints {
    size_t n;
    uint64_t *keys; /* sorted keys: address, port, index */
    uint64_t last;  /* key found last */
};

/* Builds the table.  Returns 0 or -ENOMEM. */
int recv_endpoints_init(const struct endpoint_list *list, struct recv_endpoints *endpoints);
void recv_endpoints_fini(struct recv_endpoints *endpoints);

/* Returns the index of the endpoint with this address (network order) and port, or -1 if there is none. */
int recv_endpoints_find(struct recv_endpoints *endpoints, uint32_t address, uint16_t port);

/* Functions of an implementation, for source_*.c only. */
struct recv_source_ops {
    int (*enable)(struct recv_source *source, char *why, size_t why_bytes); /* NULL if there is nothing to enable */
    int (*recv)(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns);
    bool (*is_zero_copy)(const struct recv_source *source); /* NULL: never */
    uint64_t (*kernel_drops)(const struct recv_source *source);
    /* keep() and release() are NULL if the source does not support a device */
    void (*keep)(struct recv_source *source, uint32_t frame);
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
