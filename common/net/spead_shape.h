/* spead_shape.h - the short way through a header that has the same items as the one before.
 *
 * All packets of a stream carry the same items in the same order; only the values differ.  So the items of a header
 * that spead_parse() has gone through are remembered, and the next header is compared with them as a whole.
 * Threads: one per shape.   Errors: none; whatever is not alike goes to spead_parse(), which says what is wrong. */
#ifndef COMMON_NET_SPEAD_SHAPE_H
#define COMMON_NET_SPEAD_SHAPE_H

#include "common/net/spead.h"

#define SPEAD_SHAPE_MAX_WORDS 32

/* A zeroed one is like no header. */
struct spead_shape {
    size_t n_words;                        /* of the header, the first included; 0: nothing learnt */
    uint64_t words[SPEAD_SHAPE_MAX_WORDS]; /* as in memory; of items, only id and flag matter */
    unsigned heap_cnt_at, heap_length_at, payload_offset_at, payload_length_at; /* word */
    unsigned wanted_at[SPEAD_MAX_WANTED];                                       /* word; 0, of those not found */
    uint64_t wanted_mask[SPEAD_MAX_WANTED];                                     /* all ones, or 0 of those not found */
    size_t n_wanted;
    size_t crc_at; /* as in struct spead_packet */
    uint32_t found;
    uint32_t immediate;
};

/* Learns from a header that spead_parse() found right with 'wanted_ids', unless it is one of a stop or descriptor heap
 * or has too many items: then nothing is like it. */
void spead_shape_learn(struct spead_shape *shape, const uint8_t *header, const uint16_t *wanted_ids, size_t n_wanted,
                       const struct spead_packet *packet);

/* True if the header, of which 'header_bytes' are at 'header', is like the one learnt and the packet is right; 'packet'
 * is then as spead_parse() would make it.  Else it is unspecified. */
bool spead_shape_parse(const struct spead_shape *shape, const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                       struct spead_packet *packet);

#endif
