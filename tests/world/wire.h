/* wire.h - SPEAD-64-48 packets of the scenarios, written and read without the daemons' code.
 *
 * Source: SPEAD protocol, version 4: a header word, item pointers of 64 bits, the payload; all big-endian. */
#ifndef TESTS_WORLD_WIRE_H
#define TESTS_WORLD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_DESCRIPTOR       0x05
#define WIRE_STREAM_CTRL      0x06
#define WIRE_TIMESTAMP        0x1600
#define WIRE_XENG_RAW         0x1800
#define WIRE_XENG_WEIGHTS     0x1801
#define WIRE_XENG_GATE        0x1802
#define WIRE_GATE_SPECTRA     0x1803
#define WIRE_CRC              0x1804
#define WIRE_DIGITISER_ID     0x3101
#define WIRE_DIGITISER_STATUS 0x3102
#define WIRE_ADC_SAMPLES      0x3300
#define WIRE_FENG_ID          0x4101
#define WIRE_FREQUENCY        0x4103
#define WIRE_FENG_RAW         0x4300
#define WIRE_GNSS_SUMS        0x4400

#define WIRE_MAX_ITEMS 16

struct wire_item {
    unsigned id;
    bool is_address; /* true: 'value' is an offset in the heap; false: 'value' is the item's value */
    uint64_t value;
};

struct wire_packet {
    uint64_t heap_cnt, heap_bytes, offset, payload_bytes;
    size_t n_items;
    struct wire_item items[WIRE_MAX_ITEMS]; /* without the four standard items */
    const uint8_t *payload;
};

/* Writes a packet.  Returns its size. */
size_t wire_write(const struct wire_packet *packet, uint8_t *out);

/* Writes the CRC-32C of the packet into its item WIRE_CRC, whose value was 0. */
void wire_add_crc(uint8_t *bytes, size_t n_bytes);

/* Reads a packet.  Returns false if the bytes are no packet. */
bool wire_read(const uint8_t *bytes, size_t n_bytes, struct wire_packet *packet);

/* Returns the item with this id, or NULL. */
const struct wire_item *wire_find(const struct wire_packet *packet, unsigned id);

#endif
