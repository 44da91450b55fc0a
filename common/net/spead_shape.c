/* spead_shape.c - parses a header that has the same items as an earlier header.  The receive thread calls these
 * functions. */
#include "common/net/spead_shape.h"

#include <endian.h>
#include <string.h>

#define ID_SHIFT 48
#define ID_MASK  0x7fff

static uint64_t word_in_memory(const uint8_t *header, size_t i)
{
    uint64_t word;

    memcpy(&word, header + i * SPEAD_WORD_BYTES, sizeof(word));
    return word;
}

/* Returns a mask of an item's id and immediate flag, in memory order.  All headers of the same shape have the same bits
 * there. */
static uint64_t tag_mask(void)
{
    return htobe64(~SPEAD_VALUE_MASK);
}

static uint64_t value_at(const uint8_t *header, size_t i)
{
    return be64toh(word_in_memory(header, i)) & SPEAD_VALUE_MASK;
}

/* Stores the position of an item.  If several items have the same id, the last position is stored, as in
 * spead_parse(). */
static void learn_item(struct spead_shape *shape, unsigned at, unsigned id, const uint16_t *wanted_ids)
{
    switch (id) {
    case SPEAD_HEAP_CNT: shape->heap_cnt_at = at; break;
    case SPEAD_HEAP_LENGTH: shape->heap_length_at = at; break;
    case SPEAD_PAYLOAD_OFFSET: shape->payload_offset_at = at; break;
    case SPEAD_PAYLOAD_LENGTH: shape->payload_length_at = at; break;
    default: break;
    }
    for (size_t i = 0; i < shape->n_wanted; i++)
        if (wanted_ids[i] == id)
            shape->wanted_at[i] = at;
}

void spead_shape_learn(struct spead_shape *shape, const uint8_t *header, const uint16_t *wanted_ids, size_t n_wanted,
                       const struct spead_packet *packet)
{
    size_t n_words = packet->header_bytes / SPEAD_WORD_BYTES;

    shape->n_words = 0;
    if (packet->is_stop || packet->is_descriptor || n_words > SPEAD_SHAPE_MAX_WORDS)
        return;
    shape->n_wanted = n_wanted;
    shape->crc_at = packet->crc_at;
    shape->found = packet->found;
    shape->immediate = packet->immediate;
    for (size_t i = 0; i < n_wanted; i++) {
        shape->wanted_at[i] = 0;
        shape->wanted_mask[i] = packet->found & 1u << i ? UINT64_MAX : 0;
    }
    for (size_t i = 0; i < n_words; i++) {
        shape->words[i] = word_in_memory(header, i);
        unsigned id = be64toh(shape->words[i]) >> ID_SHIFT & ID_MASK;
        if (i > 0 && id == SPEAD_STREAM_CTRL)
            return; /* the item's value decides whether the packet is a stop packet */
        if (i > 0)
            learn_item(shape, (unsigned)i, id, wanted_ids);
    }
    shape->n_words = n_words;
}

bool spead_shape_parse(const struct spead_shape *shape, const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                       struct spead_packet *packet)
{
    size_t total_bytes = shape->n_words * SPEAD_WORD_BYTES;
    uint64_t difference = 0;

    if (total_bytes == 0 || header_bytes < total_bytes || packet_bytes < total_bytes ||
        word_in_memory(header, 0) != shape->words[0])
        return false;
    for (size_t i = 1; i < shape->n_words; i++)
        difference |= word_in_memory(header, i) ^ shape->words[i];
    if (difference & tag_mask())
        return false;

    *packet = (struct spead_packet){
        .heap_cnt = value_at(header, shape->heap_cnt_at),
        .heap_length = value_at(header, shape->heap_length_at),
        .payload_offset = value_at(header, shape->payload_offset_at),
        .payload_length = value_at(header, shape->payload_length_at),
        .header_bytes = total_bytes,
        .crc_at = shape->crc_at,
        .found = shape->found,
        .immediate = shape->immediate,
    };
    for (size_t i = 0; i < shape->n_wanted; i++)
        packet->wanted[i] = value_at(header, shape->wanted_at[i]) & shape->wanted_mask[i];
    return packet->heap_length > 0 && packet->payload_length == packet_bytes - total_bytes &&
           packet->payload_offset + packet->payload_length <= packet->heap_length;
}
