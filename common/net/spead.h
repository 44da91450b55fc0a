/* spead.h - SPEAD-64-48 packets in byte buffers: parser, builder, descriptors, stop heaps.  No I/O, no allocation.
 *
 * Flavour: version 4, 16-bit item ids with the immediate flag, 48-bit addresses, all big-endian.  spead2 writes the
 * same bytes.  A packet begins with the four standard items as immediates (heap count, heap length, payload offset,
 * payload length).  The application's items follow in the given order, and then the payload.  The parser accepts items
 * in any order.
 * Source: the SPEAD protocol description ("SPEAD: Streaming Protocol for Exchanging Astronomical Data", 2010). */
#ifndef COMMON_NET_SPEAD_H
#define COMMON_NET_SPEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum spead_item_id {
    SPEAD_NULL = 0x00,
    SPEAD_HEAP_CNT = 0x01,
    SPEAD_HEAP_LENGTH = 0x02,
    SPEAD_PAYLOAD_OFFSET = 0x03,
    SPEAD_PAYLOAD_LENGTH = 0x04,
    SPEAD_DESCRIPTOR = 0x05,
    SPEAD_STREAM_CTRL = 0x06,
    SPEAD_DESCRIPTOR_NAME = 0x10,
    SPEAD_DESCRIPTOR_DESCRIPTION = 0x11,
    SPEAD_DESCRIPTOR_SHAPE = 0x12,
    SPEAD_DESCRIPTOR_FORMAT = 0x13,
    SPEAD_DESCRIPTOR_ID = 0x14,
    SPEAD_DESCRIPTOR_DTYPE = 0x15,
    /* The application's items.  The items marked 'extension' do not exist in the reference, katgpucbf. */
    SPEAD_TIMESTAMP = 0x1600,
    SPEAD_XENG_RAW = 0x1800,
    SPEAD_XENG_WEIGHTS = 0x1801,      /* extension: number of spectra per baseline, with `missing: weights` */
    SPEAD_XENG_GATE = 0x1802,         /* extension: number of the gate that selected the dump's spectra */
    SPEAD_XENG_GATE_SPECTRA = 0x1803, /* extension: number of spectra that the gate selected, for each channel */
    SPEAD_CRC = 0x1804,               /* extension: CRC-32C of the packet, computed with zeros in these 48 bits */
    SPEAD_DIGITISER_ID = 0x3101,
    SPEAD_DIGITISER_STATUS = 0x3102,
    SPEAD_ADC_SAMPLES = 0x3300,
    SPEAD_FENG_ID = 0x4101,
    SPEAD_FREQUENCY = 0x4103,
    SPEAD_FENG_RAW = 0x4300,
    SPEAD_GNSS_SUMS = 0x4400, /* extension: integrated correlations with satellites' signals */
    SPEAD_BF_RAW = 0x5000,
    SPEAD_BEAM_ANTS = 0x5004,
    SPEAD_BEAM_POWERS = 0x5010,    /* extension: detected beams */
    SPEAD_BEAM_CENTRE = 0x5011,    /* extension: centre of the first window, in samples after the timestamp */
    SPEAD_BEAM_FRACTIONS = 0x5012, /* extension: fraction of each window's data that arrived */
    SPEAD_BEAM_OFFSETS = 0x5013,   /* extension: offset, if values have 8 bits: power = offset + scale * value */
    SPEAD_BEAM_SCALES = 0x5014,    /* extension: scale of 8-bit values: power = offset + scale * value */
    SPEAD_BEAM_MASK = 0x5080,      /* extension: bitmap of the antennas, with `steering.antenna_mask` */
};

#define SPEAD_CTRL_STOP        2
#define SPEAD_VALUE_MASK       ((UINT64_C(1) << 48) - 1)
#define SPEAD_WORD_BYTES       8
#define SPEAD_MAX_WANTED       8
#define SPEAD_N_STANDARD_ITEMS 4

/* Reasons for which spead_parse() rejects a packet.  The receiver has a counter for each reason, with the name
 * spead_error_name(). */
enum spead_error {
    SPEAD_OK = 0,
    SPEAD_TRUNCATED,       /* packet shorter than its header, or than its header and payload length together */
    SPEAD_BAD_MAGIC,       /* first byte not 0x53, or version other than 4 */
    SPEAD_BAD_FLAVOUR,     /* widths other than 64-48 */
    SPEAD_NO_STANDARD,     /* a standard item is missing or not immediate, or the heap length is 0 */
    SPEAD_BAD_LENGTH,      /* payload beyond the heap's length, or bytes after the payload */
    SPEAD_HEADER_TOO_LONG, /* header longer than 'header_bytes' */
    SPEAD_N_ERRORS
};

const char *spead_error_name(enum spead_error error);

struct spead_packet {
    uint64_t heap_cnt;
    uint64_t heap_length;
    uint64_t payload_offset;
    uint64_t payload_length;
    size_t header_bytes;               /* size of word 0 and the items; this is the offset of the payload */
    uint64_t wanted[SPEAD_MAX_WANTED]; /* value (immediate) or heap address of each wanted item that was found */
    uint32_t found;                    /* bit i is 1 if wanted[i] was in the packet */
    uint32_t immediate;                /* bit i is 1 if wanted[i] was immediate */
    size_t crc_at;                     /* offset of the CRC item in the header; 0: none */
    bool is_stop;                      /* true if the packet has a stream control item with the value stop */
    bool is_descriptor;                /* true if the packet has a descriptor item */
};

/* Returns true if the packet is not a descriptor and has the first 'n_wanted' wanted items as immediate values. */
static inline bool spead_has_values(const struct spead_packet *packet, size_t n_wanted)
{
    uint32_t all = (UINT32_C(1) << n_wanted) - 1;

    return !packet->is_descriptor && (packet->immediate & all) == all;
}

/* Parses the header of a packet of 'packet_bytes'.  Reads only 'header_bytes' bytes at 'header'.  Stores the value of
 * each item of 'wanted_ids' [n_wanted].  'n_wanted' is at most SPEAD_MAX_WANTED.  If several items have the same id,
 * stores the last item's value.  Returns SPEAD_OK, or the first error.  After an error 'packet' is unspecified. */
enum spead_error spead_parse(const uint8_t *header, size_t header_bytes, size_t packet_bytes,
                             const uint16_t *wanted_ids, size_t n_wanted, struct spead_packet *packet);

/* Computes the size of the header from the header's first word.  A header has 8 bytes, and 8 more bytes per item.  If
 * the first word is not the first word of a SPEAD-64-48 header, returns 0. */
size_t spead_header_bytes(const uint8_t *header);

/* An application item of an outgoing heap. */
struct spead_item {
    uint16_t id;
    bool immediate;
    uint64_t value; /* immediate: 48-bit value; otherwise: byte offset in the heap */
};

static inline size_t spead_built_header_bytes(size_t n_items)
{
    return SPEAD_WORD_BYTES * (1 + SPEAD_N_STANDARD_ITEMS + n_items);
}

/* Writes a packet's header.  Returns the size of the header, spead_built_header_bytes(n_items). */
size_t spead_build_header(uint8_t *out, uint64_t heap_cnt, uint64_t heap_length, uint64_t payload_offset,
                          uint64_t payload_length, const struct spead_item *items, size_t n_items);

/* Appends a CRC item to the header of a packet with the payload 'payload'.  Returns the header's new size. */
size_t spead_add_crc(uint8_t *header, size_t header_bytes, const uint8_t *payload, size_t payload_bytes);

/* Returns the value of the CRC item at offset 'crc_at' of a header, and sets the item's value to 0.  The CRC-32C of the
 * resulting packet must equal the returned value. */
uint64_t spead_take_crc(uint8_t *header, size_t crc_at);

/* The description of an item, from which any SPEAD receiver can decode the item. */
struct spead_descriptor {
    uint16_t id;
    const char *name;
    const char *description;
    const char *dtype; /* numpy type of an array item ("<i4"); NULL: use format_type and format_bits */
    char format_type;  /* 'u' (unsigned) or 'i' (signed), if dtype is NULL */
    int format_bits;
    size_t n_dims; /* number of dimensions, <= 8; 0: a scalar */
    int64_t shape[8];
};

/* The descriptor of an item with an immediate value of 48 bits. */
#define SPEAD_VALUE_DESCRIPTOR(id_, name_, description_)                                                               \
    {                                                                                                                  \
        .id = id_, .name = name_, .description = description_, .format_type = 'u', .format_bits = 48                   \
    }

/* Writes the payload of a descriptor heap: the encoded descriptors one after the other.  Also writes into 'items'
 * [n_descriptors] the SPEAD items that point to the descriptors.  Returns the number of payload bytes, or 0 if
 * 'out_bytes' is too small. */
size_t spead_build_descriptors(const struct spead_descriptor *descriptors, size_t n_descriptors, uint8_t *out,
                               size_t out_bytes, struct spead_item *items);

#define SPEAD_STOP_PACKET_BYTES 57

/* Writes a stop heap, which is one packet of SPEAD_STOP_PACKET_BYTES.  Returns the size of the packet. */
size_t spead_build_stop(uint8_t *out, uint64_t heap_cnt);

#endif
