/* spead.c - parses and builds SPEAD-64-48 packets in byte buffers.  In the data path, the parser gets packets from
 * recv_source, and the builder passes packets to send_sink. */
#include "common/net/spead.h"

#include "common/net/crc32c.h"
#include "common/base/units.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC          0x53
#define VERSION        4
#define ITEM_ID_BYTES  2 /* size of an item's immediate flag and id together */
#define ADDRESS_BYTES  6
#define IMMEDIATE_FLAG (UINT64_C(1) << 63)
#define ADDRESS_BITS   48
#define ID_MASK        0x7fff

const char *spead_error_name(enum spead_error error)
{
    static const char *const names[SPEAD_N_ERRORS] = {
        [SPEAD_OK] = "ok",
        [SPEAD_TRUNCATED] = "truncated",
        [SPEAD_BAD_MAGIC] = "bad_magic",
        [SPEAD_BAD_FLAVOUR] = "bad_flavour",
        [SPEAD_NO_STANDARD] = "no_standard",
        [SPEAD_BAD_LENGTH] = "bad_length",
        [SPEAD_HEADER_TOO_LONG] = "header_too_long",
    };
    assert((unsigned)error < SPEAD_N_ERRORS);
    return names[error];
}

static uint64_t get_word(const uint8_t *in)
{
    uint64_t word;
    memcpy(&word, in, sizeof(word));
    return be64toh(word);
}

static void put_word(uint8_t *out, uint64_t word)
{
    word = htobe64(word);
    memcpy(out, &word, sizeof(word));
}

static void put_big_endian(uint8_t *out, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(value >> (8 * (n_bytes - 1 - i)));
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static enum spead_error check_first_word(const uint8_t *header)
{
    if (header[0] != MAGIC || header[1] != VERSION)
        return SPEAD_BAD_MAGIC;
    if (header[2] != ITEM_ID_BYTES || header[3] != ADDRESS_BYTES)
        return SPEAD_BAD_FLAVOUR;
    return SPEAD_OK;
}

size_t spead_header_bytes(const uint8_t *header)
{
    if (check_first_word(header) != SPEAD_OK)
        return 0;
    return SPEAD_WORD_BYTES * (1 + (size_t)(header[6] << 8 | header[7]));
}

/* Returns the field of 'packet' that stores the value of the standard item 'id'.  If 'id' is any other item, returns
 * NULL. */
static uint64_t *standard_field(struct spead_packet *packet, unsigned id)
{
    switch (id) {
    case SPEAD_HEAP_CNT: return &packet->heap_cnt;
    case SPEAD_HEAP_LENGTH: return &packet->heap_length;
    case SPEAD_PAYLOAD_OFFSET: return &packet->payload_offset;
    case SPEAD_PAYLOAD_LENGTH: return &packet->payload_length;
    default: return NULL;
    }
}

static void keep_wanted(struct spead_packet *packet, size_t i, uint64_t value, bool immediate)
{
    packet->wanted[i] = value;
    packet->found |= 1u << i;
    packet->immediate = (packet->immediate & ~(1u << i)) | (unsigned)immediate << i;
}

enum spead_error spead_parse(const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                             const uint16_t *wanted_ids, size_t n_wanted, struct spead_packet *packet)
{
    assert(n_wanted <= SPEAD_MAX_WANTED);
    if (packet_bytes < SPEAD_WORD_BYTES)
        return SPEAD_TRUNCATED;
    if (header_bytes < SPEAD_WORD_BYTES)
        return SPEAD_HEADER_TOO_LONG;
    enum spead_error error = check_first_word(header);
    if (error)
        return error;
    size_t total_bytes = spead_header_bytes(header);
    if (total_bytes > packet_bytes)
        return SPEAD_TRUNCATED;
    if (total_bytes > header_bytes)
        return SPEAD_HEADER_TOO_LONG;

    *packet = (struct spead_packet){.header_bytes = total_bytes};
    unsigned standard_found = 0;
    for (const uint8_t *at = header + SPEAD_WORD_BYTES; at < header + total_bytes; at += SPEAD_WORD_BYTES) {
        uint64_t word = get_word(at);
        bool immediate = word & IMMEDIATE_FLAG;
        unsigned id = word >> ADDRESS_BITS & ID_MASK;
        uint64_t value = word & SPEAD_VALUE_MASK;
        if (id == SPEAD_NULL)
            continue; /* padding */
        uint64_t *field = standard_field(packet, id);
        if (field) {
            if (!immediate)
                return SPEAD_NO_STANDARD;
            *field = value;
            standard_found |= 1u << id;
        } else if (id == SPEAD_DESCRIPTOR) {
            packet->is_descriptor = true;
        } else if (id == SPEAD_STREAM_CTRL) {
            packet->is_stop = immediate && value == SPEAD_CTRL_STOP;
        } else if (id == SPEAD_CRC) {
            packet->crc_at = immediate ? (size_t)(at - header) : 0;
        }
        for (size_t i = 0; i < n_wanted; i++)
            if (wanted_ids[i] == id)
                keep_wanted(packet, i, value, immediate);
    }

    const unsigned all_standard =
        1u << SPEAD_HEAP_CNT | 1u << SPEAD_HEAP_LENGTH | 1u << SPEAD_PAYLOAD_OFFSET | 1u << SPEAD_PAYLOAD_LENGTH;
    /* Some senders use a heap length of 0 for an unknown length. */
    if (standard_found != all_standard || packet->heap_length == 0)
        return SPEAD_NO_STANDARD;
    if (packet->payload_length > packet_bytes - total_bytes)
        return SPEAD_TRUNCATED;
    if (packet->payload_length < packet_bytes - total_bytes)
        return SPEAD_BAD_LENGTH;
    /* no overflow, because the values have 48 bits */
    if (packet->payload_offset + packet->payload_length > packet->heap_length)
        return SPEAD_BAD_LENGTH;
    return SPEAD_OK;
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

static uint8_t *put_item(uint8_t *out, bool immediate, unsigned id, uint64_t value)
{
    uint64_t word = (uint64_t)id << ADDRESS_BITS | (value & SPEAD_VALUE_MASK);
    put_word(out, immediate ? word | IMMEDIATE_FLAG : word);
    return out + SPEAD_WORD_BYTES;
}

size_t spead_build_header(uint8_t *out, uint64_t heap_cnt, uint64_t heap_length, uint64_t payload_offset,
                          uint64_t payload_length, const struct spead_item *items, size_t n_items)
{
    assert(n_items + SPEAD_N_STANDARD_ITEMS <= UINT16_MAX);
    put_word(out, (uint64_t)MAGIC << 56 | (uint64_t)VERSION << 48 | (uint64_t)ITEM_ID_BYTES << 40 |
                      (uint64_t)ADDRESS_BYTES << 32 | (SPEAD_N_STANDARD_ITEMS + n_items));
    uint8_t *at = out + SPEAD_WORD_BYTES;
    at = put_item(at, true, SPEAD_HEAP_CNT, heap_cnt);
    at = put_item(at, true, SPEAD_HEAP_LENGTH, heap_length);
    at = put_item(at, true, SPEAD_PAYLOAD_OFFSET, payload_offset);
    at = put_item(at, true, SPEAD_PAYLOAD_LENGTH, payload_length);
    for (size_t i = 0; i < n_items; i++)
        at = put_item(at, items[i].immediate, items[i].id, items[i].value);
    return (size_t)(at - out);
}

size_t spead_add_crc(uint8_t *header, size_t header_bytes, const uint8_t *payload, size_t payload_bytes)
{
    put_word(header, get_word(header) + 1); /* increments the number of items */
    uint8_t *end = put_item(header + header_bytes, true, SPEAD_CRC, 0);
    uint32_t crc = crc32c(crc32c(0, header, (size_t)(end - header)), payload, payload_bytes);

    put_item(header + header_bytes, true, SPEAD_CRC, crc);
    return (size_t)(end - header);
}

uint64_t spead_take_crc(uint8_t *header, size_t crc_at)
{
    uint64_t value = get_word(header + crc_at) & SPEAD_VALUE_MASK;

    put_item(header + crc_at, true, SPEAD_CRC, 0);
    return value;
}

size_t spead_build_stop(uint8_t *out, uint64_t heap_cnt)
{
    /* The heap has one byte and a null item that points to it, because some receivers reject an empty heap. */
    const struct spead_item items[] = {
        {.id = SPEAD_STREAM_CTRL, .immediate = true, .value = SPEAD_CTRL_STOP},
        {.id = SPEAD_NULL, .immediate = false, .value = 0},
    };
    size_t header_bytes = spead_build_header(out, heap_cnt, 1, 0, 1, items, ARRAY_LEN(items));
    out[header_bytes] = 0;
    return header_bytes + 1;
}

/* ---- Descriptors ------------------------------------------------------------------------------------------------- */

#define FORMAT_BYTES    3 /* size of one field: a letter, and the number of bits as a 16-bit integer */
#define DIMENSION_BYTES 7 /* size of one dimension: a flag byte (1: variable) and a 48-bit length */
#define DTYPE_TEXT_MAX  1024

/* Writes the dictionary in the header of a numpy file, in the form of numpy's repr().  Returns the length of the
 * text. */
static size_t format_dtype(const struct spead_descriptor *descriptor, char *text)
{
    const char *quote = descriptor->dtype[0] == '[' ? "" : "'";
    size_t n = (size_t)snprintf(text, DTYPE_TEXT_MAX, "{'descr': %s%s%s, 'fortran_order': False, 'shape': (", quote,
                                descriptor->dtype, quote);
    assert(n < DTYPE_TEXT_MAX);
    for (size_t i = 0; i < descriptor->n_dims; i++) {
        n += (size_t)snprintf(text + n, DTYPE_TEXT_MAX - n, i ? ", %" PRId64 : "%" PRId64, descriptor->shape[i]);
        assert(n < DTYPE_TEXT_MAX);
    }
    n += (size_t)snprintf(text + n, DTYPE_TEXT_MAX - n, descriptor->n_dims == 1 ? ",)}" : ")}");
    assert(n < DTYPE_TEXT_MAX);
    return n;
}

/* Writes one descriptor, which is a whole SPEAD packet.  Returns the size of the packet, or 0 if 'out_bytes' is too
 * small. */
static size_t build_descriptor(const struct spead_descriptor *descriptor, uint8_t *out, size_t out_bytes)
{
    assert(descriptor->n_dims <= ARRAY_LEN(descriptor->shape));
    char dtype[DTYPE_TEXT_MAX];
    size_t name_bytes = strlen(descriptor->name);
    size_t description_bytes = strlen(descriptor->description);
    size_t format_bytes = descriptor->dtype ? 0 : FORMAT_BYTES;
    size_t shape_bytes = DIMENSION_BYTES * descriptor->n_dims;
    size_t dtype_bytes = descriptor->dtype ? format_dtype(descriptor, dtype) : 0;

    /* These offsets are in the order of the fields in the payload.  The items below are in another order. */
    size_t description_at = name_bytes;
    size_t format_at = description_at + description_bytes;
    size_t shape_at = format_at + format_bytes;
    size_t dtype_at = shape_at + shape_bytes;
    size_t payload_bytes = dtype_at + dtype_bytes;
    const struct spead_item items[] = {
        {.id = SPEAD_DESCRIPTOR_ID, .immediate = true, .value = descriptor->id},
        {.id = SPEAD_DESCRIPTOR_NAME, .value = 0},
        {.id = SPEAD_DESCRIPTOR_DESCRIPTION, .value = description_at},
        {.id = SPEAD_DESCRIPTOR_FORMAT, .value = format_at},
        {.id = SPEAD_DESCRIPTOR_SHAPE, .value = shape_at},
        {.id = SPEAD_DESCRIPTOR_DTYPE, .value = dtype_at},
    };
    size_t n_items = descriptor->dtype ? ARRAY_LEN(items) : ARRAY_LEN(items) - 1;
    size_t total_bytes = spead_built_header_bytes(n_items) + payload_bytes;
    if (total_bytes > out_bytes)
        return 0;

    uint8_t *payload = out + spead_build_header(out, 1, payload_bytes, 0, payload_bytes, items, n_items);
    memcpy(payload, descriptor->name, name_bytes);
    memcpy(payload + description_at, descriptor->description, description_bytes);
    if (!descriptor->dtype) {
        payload[format_at] = (uint8_t)descriptor->format_type;
        put_big_endian(payload + format_at + 1, (uint64_t)descriptor->format_bits, 2);
    }
    for (size_t i = 0; i < descriptor->n_dims; i++) {
        payload[shape_at + DIMENSION_BYTES * i] = 0;
        put_big_endian(payload + shape_at + DIMENSION_BYTES * i + 1, (uint64_t)descriptor->shape[i], ADDRESS_BYTES);
    }
    if (descriptor->dtype)
        memcpy(payload + dtype_at, dtype, dtype_bytes);
    return total_bytes;
}

size_t spead_build_descriptors(const struct spead_descriptor *descriptors, size_t n_descriptors, uint8_t *out,
                               size_t out_bytes, struct spead_item *items)
{
    size_t used_bytes = 0;
    for (size_t i = 0; i < n_descriptors; i++) {
        size_t n_bytes = build_descriptor(&descriptors[i], out + used_bytes, out_bytes - used_bytes);
        if (n_bytes == 0)
            return 0;
        items[i] = (struct spead_item){.id = SPEAD_DESCRIPTOR, .immediate = false, .value = used_bytes};
        used_bytes += n_bytes;
    }
    return used_bytes;
}
