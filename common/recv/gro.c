/* gro.c - the packets of coalesced messages; recv/source_udp.c receives the messages. */
#include "common/recv/gro.h"

#include <assert.h>
#include <netinet/udp.h>
#include <string.h>

size_t gro_segment_bytes(struct msghdr *message, size_t n_bytes)
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

void gro_add(struct gro_queue *queue, const struct gro_message *message)
{
    assert(queue->n < PACKET_BATCH_MAX);
    queue->messages[queue->n++] = *message;
}

size_t gro_next_packets(struct gro_queue *queue, struct packet_slot *slots, size_t n_slots)
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
