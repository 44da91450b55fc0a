/* gro.h - messages that the kernel coalesced from several packets (UDP_GRO), and the packets that are lent from them.
 *
 * Flow:      recvmmsg --message, control messages--> gro_segment_bytes() --> gro_add() ... gro_next_packets() --> slots
 * Order:     packets are lent in the order of the messages, and within a message in that of its bytes.  Every packet has
 *            segment_bytes, except a shorter last one.
 * Ownership: the bytes are the caller's; they stay as they are until all packets of their message have been lent and
 *            used.
 * Threads:   one.   Blocking: never. */
#ifndef COMMON_RECV_GRO_H
#define COMMON_RECV_GRO_H

#include "common/recv/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A message, or the rest of one, whose packets are still to be lent. */
struct gro_message {
    uint8_t *bytes;
    size_t n_bytes;
    size_t segment_bytes;
    unsigned endpoint;
    uint32_t sender;
};

/* All zeros: an empty queue. */
struct gro_queue {
    struct gro_message messages[PACKET_BATCH_MAX];
    size_t n, next;
};

/* Size of the packets that the kernel coalesced to a message of 'n_bytes', as its control messages say; 'n_bytes' if it
 * is one packet. */
size_t gro_segment_bytes(struct msghdr *message, size_t n_bytes);

static inline bool gro_is_empty(const struct gro_queue *queue)
{
    return queue->n == 0;
}

/* At most PACKET_BATCH_MAX messages at a time. */
void gro_add(struct gro_queue *queue, const struct gro_message *message);

/* Fills up to 'n_slots' slots with the next packets.  Returns how many. */
size_t gro_next_packets(struct gro_queue *queue, struct packet_slot *slots, size_t n_slots);

#endif
