/* spead_shape.h - parses a header quickly if it has the same items as the previous header.
 *
 * All packets of a stream carry the same items in the same order; only the values differ.  So the items of a header
 * that spead_parse() has parsed are remembered, and the next header is compared with them as a whole.
 * Threads: one per shape.   Errors: none.  Headers that differ go to spead_parse(), which finds the errors. */
#ifndef COMMON_NET_SPEAD_SHAPE_H
#define COMMON_NET_SPEAD_SHAPE_H

#include "common/net/spead.h"

#define SPEAD_SHAPE_MAX_WORDS 32

/* The shape of a header.  A zeroed shape matches no header. */
struct spead_shape {
    size_t n_words;                        /* words of the header, with word 0; 0: nothing learnt */
    uint64_t words[SPEAD_SHAPE_MAX_WORDS]; /* words as in memory; only id and flag of items */
    unsigned heap_cnt_at, heap_length_at, payload_offset_at, payload_length_at; /* word of each item */
    unsigned wanted_at[SPEAD_MAX_WANTED];                                       /* word of each item; 0: not found */
    uint64_t wanted_mask[SPEAD_MAX_WANTED];                                     /* all ones; 0: not found */
    size_t n_wanted;
    size_t crc_at; /* as in struct spead_packet */
    uint32_t found;
    uint32_t immediate;
};

/* Learns the shape of a header that spead_parse() parsed with 'wanted_ids' without an error.  If the header has too
 * many items, or belongs to a stop or descriptor heap, no later header matches. */
void spead_shape_learn(struct spead_shape *shape, const uint8_t *header, const uint16_t *wanted_ids, size_t n_wanted,
                       const struct spead_packet *packet);

/* Returns true if the header has the learnt shape and the packet has no error.  'header_bytes' of the header are at
 * 'header'.  'packet' is then the same as after spead_parse().  Otherwise it is unspecified. */
bool spead_shape_parse(const struct spead_shape *shape, const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                       struct spead_packet *packet);

#endif
