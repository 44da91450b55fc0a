/* held.h - packets of a claim that is not yet believed, kept until it is.
 *
 * Only where packets come from a recording: there no time passes that could vouch for what follows a gap, and nothing
 * that the recording has may be lost by it.
 *
 * Ownership: the caller's struct, one for each source.   Threads: the assembler's.   Blocking: none.
 * Allocation: held_init() alone; pages are touched when packets come. */
#ifndef COMMON_RECV_HELD_H
#define COMMON_RECV_HELD_H

#include "common/recv/assemble.h"

struct held_packet {
    struct assemble_packet packet;
    int64_t arrival_ns;
    uint8_t payload[]; /* [packet.n_bytes] */
};

struct held {
    uint8_t *bytes;
    size_t n_bytes, used_bytes, n_packets;
};

/* Room for 'n_bytes' of packets and what is noted of each.  Returns 0 or -ENOMEM. */
int held_init(struct held *held, size_t n_bytes);
void held_fini(struct held *held);

/* Keeps a packet whose payload the caller puts where this says; NULL where there is no room. */
uint8_t *held_add(struct held *held, const struct assemble_packet *packet, int64_t arrival_ns);

/* The packet behind 'previous' (NULL: the first), in the order in which they came; NULL behind the last. */
const struct held_packet *held_next(const struct held *held, const struct held_packet *previous);

/* Lets all go.  Returns how many there were. */
size_t held_clear(struct held *held);

#endif
