/* wire.c - writes and reads SPEAD packets.  See wire.h. */
#include "tests/world/wire.h"

#include <string.h>

enum { HEAP_CNT = 1, HEAP_LENGTH = 2, PAYLOAD_OFFSET = 3, PAYLOAD_LENGTH = 4 };

#define MAGIC     0x5304020600000000
#define IMMEDIATE (1ull << 63)

static uint8_t *put(uint8_t *out, uint64_t word)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        *out++ = (uint8_t)(word >> shift);
    return out;
}

static uint64_t get(const uint8_t *bytes)
{
    uint64_t word = 0;

    for (int i = 0; i < 8; i++)
        word = word << 8 | bytes[i];
    return word;
}

static uint64_t pointer(unsigned id, bool is_address, uint64_t value)
{
    return (is_address ? 0 : IMMEDIATE) | (uint64_t)id << 48 | (value & 0xFFFFFFFFFFFF);
}

size_t wire_write(const struct wire_packet *packet, uint8_t *out)
{
    uint8_t *at = put(out, MAGIC | (packet->n_items + 4));

    at = put(at, pointer(HEAP_CNT, false, packet->heap_cnt));
    at = put(at, pointer(HEAP_LENGTH, false, packet->heap_bytes));
    at = put(at, pointer(PAYLOAD_OFFSET, false, packet->offset));
    at = put(at, pointer(PAYLOAD_LENGTH, false, packet->payload_bytes));
    for (size_t i = 0; i < packet->n_items; i++)
        at = put(at, pointer(packet->items[i].id, packet->items[i].is_address, packet->items[i].value));
    memcpy(at, packet->payload, packet->payload_bytes);
    return (size_t)(at - out) + packet->payload_bytes;
}

/* Computes CRC-32C bit by bit: the reflected Castagnoli polynomial of RFC 3720, appendix B.4. */
static uint32_t crc32c_of(const uint8_t *bytes, size_t n_bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    return ~crc;
}

void wire_add_crc(uint8_t *bytes, size_t n_bytes)
{
    size_t n_items = get(bytes) & 0xFFFF;

    for (size_t i = 1; i <= n_items; i++)
        if ((get(bytes + 8 * i) >> 48 & 0x7FFF) == WIRE_CRC)
            put(bytes + 8 * i, pointer(WIRE_CRC, false, crc32c_of(bytes, n_bytes)));
}

bool wire_read(const uint8_t *bytes, size_t n_bytes, struct wire_packet *packet)
{
    uint64_t standard[5] = {0};

    if (n_bytes < 8 || (get(bytes) & 0xFFFFFFFF00000000) != MAGIC)
        return false;
    size_t n_items = get(bytes) & 0xFFFF;
    if (n_bytes < 8 * (n_items + 1))
        return false;
    packet->n_items = 0;
    for (size_t i = 1; i <= n_items; i++) {
        uint64_t word = get(bytes + 8 * i);
        struct wire_item item = {(unsigned)(word >> 48) & 0x7FFF, !(word & IMMEDIATE), word & 0xFFFFFFFFFFFF};
        if (item.id >= HEAP_CNT && item.id <= PAYLOAD_LENGTH)
            standard[item.id] = item.value;
        else if (packet->n_items < WIRE_MAX_ITEMS)
            packet->items[packet->n_items++] = item;
        else
            return false;
    }
    packet->heap_cnt = standard[HEAP_CNT];
    packet->heap_bytes = standard[HEAP_LENGTH];
    packet->offset = standard[PAYLOAD_OFFSET];
    packet->payload_bytes = standard[PAYLOAD_LENGTH];
    packet->payload = bytes + 8 * (n_items + 1);
    return n_bytes == 8 * (n_items + 1) + packet->payload_bytes;
}

const struct wire_item *wire_find(const struct wire_packet *packet, unsigned id)
{
    for (size_t i = 0; i < packet->n_items; i++)
        if (packet->items[i].id == id)
            return &packet->items[i];
    return NULL;
}
