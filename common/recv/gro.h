/* gro.h - splits messages into zero-copy packets.  A message consists of packets that the Linux kernel has joined
 * (UDP_GRO).
 *
 * Flow:      source_udp.c --message, control messages--> gro_segment_bytes() --> gro_add()
 *            ... gro_next_packets() --> slots
 * Order:     packets are returned in order of arrival.  Every packet of a message has 'segment_bytes' bytes, except
 *            that the last packet may be shorter.
 * Ownership: the bytes of a message belong to the caller, who must not change them until all its packets have been
 *            used.
 * Threads:   one.   Blocking: never. */
#ifndef COMMON_RECV_GRO_H
#define COMMON_RECV_GRO_H

#include "common/recv/source.h"

#include <assert.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* A message, or the part of a message whose packets have not been returned yet. */
struct gro_message {
    uint8_t *bytes;
    size_t n_bytes;
    size_t segment_bytes;
    unsigned endpoint;
    uint32_t sender;
};

/* Queue of messages.  A zero-initialised queue is empty. */
struct gro_queue {
    struct gro_message messages[PACKET_BATCH_MAX];
    size_t n, next;
};

/* Reads the size of a message's packets from its control messages.  If the message is a single packet, returns
 * 'n_bytes', the size of the message. */
static inline size_t gro_segment_bytes(struct msghdr *message, size_t n_bytes)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        int segment_bytes;
        if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO || c->cmsg_len < CMSG_LEN(sizeof(segment_bytes)))
            continue;
        memcpy(&segment_bytes, CMSG_DATA(c), sizeof(segment_bytes));
        if (segment_bytes > 0 && (size_t)segment_bytes < n_bytes)
            return (size_t)segment_bytes;
    }
    return n_bytes;
}

static inline bool gro_is_empty(const struct gro_queue *queue)
{
    return queue->n == 0;
}

/* Adds a message.  The queue holds at most PACKET_BATCH_MAX messages. */
static inline void gro_add(struct gro_queue *queue, const struct gro_message *message)
{
    assert(queue->n < PACKET_BATCH_MAX);
    queue->messages[queue->n++] = *message;
}

/* Fills up to 'n_slots' slots with the next packets.  Returns the number of filled slots. */
static inline size_t gro_next_packets(struct gro_queue *queue, struct packet_slot *slots, size_t n_slots)
{
    size_t n_filled = 0;

    while (n_filled < n_slots && queue->next < queue->n) {
        struct gro_message *message = &queue->messages[queue->next];
        size_t n_bytes = message->n_bytes < message->segment_bytes ? message->n_bytes : message->segment_bytes;

        slots[n_filled++] = (struct packet_slot){
            .header = message->bytes,
            .header_bytes = n_bytes,
            .packet_bytes = n_bytes,
            .zero_copy = true,
            .endpoint = message->endpoint,
            .sender = message->sender,
        };
        message->bytes += n_bytes;
        message->n_bytes -= n_bytes;
        if (message->n_bytes == 0)
            queue->next++;
    }
    if (queue->next == queue->n) {
        queue->next = 0;
        queue->n = 0;
    }
    return n_filled;
}

#endif
