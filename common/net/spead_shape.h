/* spead_shape.h - parses a header fast if it has the same items as an earlier header.
 *
 * All packets of a stream have the same items in the same order, with different values.  spead_shape_learn() stores the
 * items of a header that spead_parse() has parsed.  spead_shape_parse() compares the next header with these items,
 * without a branch for each item.
 * Threads: one thread per shape.   Errors: none.  The caller passes other headers to spead_parse(), which finds
 * errors. */
#ifndef COMMON_NET_SPEAD_SHAPE_H
#define COMMON_NET_SPEAD_SHAPE_H

#include "common/net/spead.h"

#define SPEAD_SHAPE_MAX_WORDS 32

/* The shape of a header.  A zeroed shape matches no header. */
struct spead_shape {
    size_t n_words; /* number of words in the header, word 0 included; 0: no shape */
    /* words of the header in memory order; only the id and flag of items are compared */
    uint64_t words[SPEAD_SHAPE_MAX_WORDS];
    unsigned heap_cnt_at, heap_length_at, payload_offset_at, payload_length_at; /* index of each standard item's word */
    /* [n_wanted] index of each wanted item's word; 0: not found */
    unsigned wanted_at[SPEAD_MAX_WANTED];
    /* [n_wanted] mask of each wanted item's value: all ones, or 0 if the item was not found */
    uint64_t wanted_mask[SPEAD_MAX_WANTED];
    size_t n_wanted;
    size_t crc_at; /* offset of the CRC item; 0: none */
    uint32_t found;
    uint32_t immediate;
};

/* Stores the shape of a header that spead_parse() has parsed without an error, with the same 'wanted_ids'.  If the
 * header has too many items, or belongs to a stop or descriptor heap, the stored shape matches no header. */
void spead_shape_learn(struct spead_shape *shape, const uint8_t *header, const uint16_t *wanted_ids, size_t n_wanted,
                       const struct spead_packet *packet);

/* Parses a header.  'header' points to the header's first 'header_bytes' bytes.  Returns true if the header has the
 * stored shape and the packet has no error; 'packet' is then the same as after spead_parse().  Otherwise 'packet' is
 * unspecified. */
bool spead_shape_parse(const struct spead_shape *shape, const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                       struct spead_packet *packet);

#endif
