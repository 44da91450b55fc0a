/* held.c - packets one behind the other in one buffer.  See held.h. */
#include "common/recv/held.h"

#include "common/base/units.h"

#include <errno.h>
#include <stdlib.h>

/* Bytes of a packet with its head; heads stay aligned. */
static size_t held_bytes(const struct assemble_packet *packet)
{
    return sizeof(struct held_packet) + (size_t)round_up((int64_t)packet->n_bytes, sizeof(int64_t));
}

int held_init(struct held *held, size_t n_bytes)
{
    *held = (struct held){.bytes = malloc(n_bytes), .n_bytes = n_bytes};
    return held->bytes ? 0 : -ENOMEM;
}

void held_fini(struct held *held)
{
    free(held->bytes);
}

uint8_t *held_add(struct held *held, const struct assemble_packet *packet, int64_t arrival_ns)
{
    size_t n_bytes = held_bytes(packet);

    if (n_bytes > held->n_bytes - held->used_bytes)
        return NULL;
    struct held_packet *kept = (struct held_packet *)(held->bytes + held->used_bytes);
    kept->packet = *packet;
    kept->arrival_ns = arrival_ns;
    held->used_bytes += n_bytes;
    held->n_packets++;
    return kept->payload;
}

const struct held_packet *held_next(const struct held *held, const struct held_packet *previous)
{
    size_t offset =
        previous ? (size_t)((const uint8_t *)previous - held->bytes) + held_bytes(&previous->packet) : 0;

    return offset < held->used_bytes ? (const struct held_packet *)(held->bytes + offset) : NULL;
}

size_t held_clear(struct held *held)
{
    size_t n_packets = held->n_packets;

    held->used_bytes = held->n_packets = 0;
    return n_packets;
}
