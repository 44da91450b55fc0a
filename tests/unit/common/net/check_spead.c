/* check_spead.c - our packets equal spead2's, byte for byte.  The parser misreads no packet. */
#include "common/net/spead.h"
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What spead2 4.5.1 sends ------------------------------------------------------------------------------------- */
/* Taken from a socket, flavour SPEAD-64-48, heap count 0x50000000007.  The data heap has items timestamp
 * 0x123456789abc, feng_id 3, frequency 1024, and feng_raw of the bytes 0 to 39, pointers repeated, 16 bytes a packet.
 * The descriptors are those of antenna-channelised-voltage of shape (128, 256, 2, 2), baseline-correlation-products
 * of shape (128, 40, 2) and the digitiser. */

static const char golden_data_0[] =
    "530402060000000880010500000000078002000000000028800300000000000080040000000000109600123456789abcc101000000000003"
    "c1030000000004004300000000000000000102030405060708090a0b0c0d0e0f";

static const char golden_data_1[] =
    "530402060000000880010500000000078002000000000028800300000000001080040000000000109600123456789abcc101000000000003"
    "c1030000000004004300000000000000101112131415161718191a1b1c1d1e1f";

static const char golden_data_2[] =
    "530402060000000880010500000000078002000000000028800300000000002080040000000000089600123456789abcc101000000000003"
    "c10300000000040043000000000000002021222324252627";

static const char golden_stop[] =
    "5304020600000006800105000000000780020000000000018003000000000000800400000000000180060000000000020000000000000000"
    "00";

static const char golden_feng_8bit[] =
    "5304020600000008800105000000000780020000000002fe800300000000000080040000000002fe000500000000000000050000000000b3"
    "000500000000014200050000000001e853040206000000098001000000000001800200000000006380030000000000008004000000000063"
    "8014000000001600001000000000000000110000000000090013000000000060001200000000006374696d657374616d7054696d65737461"
    "6d702070726f766964656420627920746865204d6565724b4154206469676974697365727320616e64207363616c656420746f2074686520"
    "6469676974697365722073616d706c696e6720726174652e75003053040206000000098001000000000001800200000000003f8003000000"
    "000000800400000000003f801400000000410100100000000000000011000000000007001300000000003c001200000000003f66656e675f"
    "6964556e697175656c79206964656e7469666965732074686520462d456e67696e6520736f7572636520666f722074686520646174612e75"
    "0030530402060000000980010000000000018002000000000056800300000000000080040000000000568014000000004103001000000000"
    "00000011000000000009001300000000005300120000000000566672657175656e63794964656e7469666965732074686520666972737420"
    "6368616e6e656c20696e207468652062616e64206f66206672657175656e6369657320696e2074686520535045414420686561702e750030"
    "530402060000000a800100000000000180020000000000be800300000000000080040000000000be80140000000043000010000000000000"
    "0011000000000008001300000000005f001200000000005f001500000000007b66656e675f7261774368616e6e656c6973656420636f6d70"
    "6c657820646174612066726f6d20626f746820706f6c617269736174696f6e73206f6620646967697469736572206173736f636961746564"
    "207769746820462d456e67696e652e000000000000800000000000010000000000000002000000000000027b276465736372273a20277c69"
    "31272c2027666f727472616e5f6f72646572273a2046616c73652c20277368617065273a20283132382c203235362c20322c2032297d";

static const char golden_feng_4bit[] =
    "5304020600000008800105000000000780020000000002b6800300000000000080040000000002b6000500000000000000050000000000b3"
    "000500000000014200050000000001e853040206000000098001000000000001800200000000006380030000000000008004000000000063"
    "8014000000001600001000000000000000110000000000090013000000000060001200000000006374696d657374616d7054696d65737461"
    "6d702070726f766964656420627920746865204d6565724b4154206469676974697365727320616e64207363616c656420746f2074686520"
    "6469676974697365722073616d706c696e6720726174652e75003053040206000000098001000000000001800200000000003f8003000000"
    "000000800400000000003f801400000000410100100000000000000011000000000007001300000000003c001200000000003f66656e675f"
    "6964556e697175656c79206964656e7469666965732074686520462d456e67696e6520736f7572636520666f722074686520646174612e75"
    "0030530402060000000980010000000000018002000000000056800300000000000080040000000000568014000000004103001000000000"
    "00000011000000000009001300000000005300120000000000566672657175656e63794964656e7469666965732074686520666972737420"
    "6368616e6e656c20696e207468652062616e64206f66206672657175656e6369657320696e2074686520535045414420686561702e750030"
    "53040206000000098001000000000001800200000000007e8003000000000000800400000000007e80140000000043000010000000000000"
    "0011000000000008001300000000005f001200000000006266656e675f7261774368616e6e656c6973656420636f6d706c65782064617461"
    "2066726f6d20626f746820706f6c617269736174696f6e73206f6620646967697469736572206173736f636961746564207769746820462d"
    "456e67696e652e69000400000000000080000000000001000000000000000200000000000002";

static const char golden_xeng[] =
    "53040206000000078001050000000007800200000000021e8003000000000000800400000000021e0005000000000000000500000000008e"
    "000500000000014153040206000000098001000000000001800200000000003e8003000000000000800400000000003e8014000000004103"
    "00100000000000000011000000000009001300000000003b001200000000003e6672657175656e637956616c7565206f6620666972737420"
    "6368616e6e656c20696e20636f6c6c656374696f6e732073746f72656420686572652e750030530402060000000980010000000000018002"
    "0000000000638003000000000000800400000000006380140000000016000010000000000000001100000000000900130000000000600012"
    "00000000006374696d657374616d7054696d657374616d702070726f766964656420627920746865204d6565724b41542064696769746973"
    "65727320616e64207363616c656420746f20746865206469676974697365722073616d706c696e6720726174652e75003053040206000000"
    "0a80010000000000018002000000000085800300000000000080040000000000858014000000001800001000000000000000110000000000"
    "0800130000000000310012000000000031001500000000004678656e675f726177496e746567726174656420626173656c696e6520636f72"
    "72656c6174696f6e2070726f64756374732e0000000000008000000000000028000000000000027b276465736372273a20273c6934272c20"
    "27666f727472616e5f6f72646572273a2046616c73652c20277368617065273a20283132382c2034302c2032297d";

static const char golden_digitiser[] =
    "53040206000000088001050000000007800200000000022580030000000000008004000000000225000500000000000000050000000000b3"
    "000500000000012900050000000001a353040206000000098001000000000001800200000000006380030000000000008004000000000063"
    "8014000000001600001000000000000000110000000000090013000000000060001200000000006374696d657374616d7054696d65737461"
    "6d702070726f766964656420627920746865204d6565724b4154206469676974697365727320616e64207363616c656420746f2074686520"
    "6469676974697365722073616d706c696e6720726174652e7500305304020600000009800100000000000180020000000000268003000000"
    "000000800400000000002680140000000031010010000000000000001100000000000c001300000000002300120000000000266469676974"
    "697365725f69644469676974697365722053657269616c204e756d6265727500305304020600000009800100000000000180020000000000"
    "2a8003000000000000800400000000002a801400000000310200100000000000000011000000000010001300000000002700120000000000"
    "2a6469676974697365725f737461747573446967697469736572205374617475732076616c75657375003053040206000000098001000000"
    "00000180020000000000328003000000000000800400000000003280140000000033000010000000000000001100000000000b0013000000"
    "000028001200000000002b6164635f73616d706c657344696769746973657220526177204144432053616d706c65204461746169000a0000"
    "0000001000";

#define HEAP_CNT          UINT64_C(0x50000000007)
#define PACKET_BYTES_ROOM 2048

/* Decodes a hexadecimal text.  Returns the number of bytes. */
static size_t decode(const char *text, uint8_t *out)
{
    size_t n = strlen(text) / 2;

    ck_assert_uint_le(n, PACKET_BYTES_ROOM);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        ck_assert_int_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void assert_packet(const uint8_t *packet, size_t packet_bytes, const char *golden)
{
    uint8_t expected[PACKET_BYTES_ROOM];

    ck_assert_uint_eq(packet_bytes, decode(golden, expected));
    for (size_t i = 0; i < packet_bytes; i++)
        ck_assert_msg(packet[i] == expected[i], "byte %zu is %02x, not %02x", i, packet[i], expected[i]);
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

static const struct spead_item data_items[] = {
    {SPEAD_TIMESTAMP, true, UINT64_C(0x123456789abc)},
    {SPEAD_FENG_ID, true, 3},
    {SPEAD_FREQUENCY, true, 1024},
    {SPEAD_FENG_RAW, false, 0},
};

TEST(data_packets_are_spead2s)
{
    static const char *const goldens[] = {golden_data_0, golden_data_1, golden_data_2};
    const size_t heap_bytes = 40;

    for (size_t i = 0; i < ARRAY_LEN(goldens); i++) {
        uint8_t packet[PACKET_BYTES_ROOM];
        size_t offset = 16 * i;
        size_t n_bytes = heap_bytes - offset < 16 ? heap_bytes - offset : 16;
        size_t header_bytes;

        memset(packet, 0xa5, sizeof(packet));
        header_bytes =
            spead_build_header(packet, HEAP_CNT, heap_bytes, offset, n_bytes, data_items, ARRAY_LEN(data_items));
        ck_assert_uint_eq(header_bytes, 72);
        ck_assert_uint_eq(header_bytes, spead_built_header_bytes(ARRAY_LEN(data_items)));
        for (size_t j = 0; j < n_bytes; j++)
            packet[header_bytes + j] = (uint8_t)(offset + j);
        assert_packet(packet, header_bytes + n_bytes, goldens[i]);
        ck_assert_uint_eq(packet[header_bytes + n_bytes], 0xa5);
    }
}

TEST(values_are_cut_to_48_bits)
{
    const struct spead_item item = {SPEAD_TIMESTAMP, true, UINT64_C(0xffff000000000001)};
    uint8_t packet[PACKET_BYTES_ROOM];
    size_t n = spead_build_header(packet, UINT64_MAX, 1, 0, 0, &item, 1);
    const uint8_t heap_cnt[8] = {0x80, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const uint8_t timestamp[8] = {0x96, 0, 0, 0, 0, 0, 0, 1};

    ck_assert_mem_eq(packet + 8, heap_cnt, 8);
    ck_assert_mem_eq(packet + n - 8, timestamp, 8);
}

TEST(stop_heap_is_spead2s)
{
    uint8_t packet[PACKET_BYTES_ROOM];
    size_t n = spead_build_stop(packet, HEAP_CNT);

    ck_assert_uint_eq(n, SPEAD_STOP_PACKET_BYTES);
    assert_packet(packet, n, golden_stop);
}

#define TIMESTAMP_DESCRIPTION "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate."
#define IMMEDIATE_FORMAT      .format_type = 'u', .format_bits = 48

static const struct spead_descriptor timestamp = {SPEAD_TIMESTAMP, "timestamp", TIMESTAMP_DESCRIPTION,
                                                  IMMEDIATE_FORMAT};
static const struct spead_descriptor feng_id = {
    SPEAD_FENG_ID, "feng_id", "Uniquely identifies the F-Engine source for the data.", IMMEDIATE_FORMAT};
static const struct spead_descriptor feng_frequency = {
    SPEAD_FREQUENCY, "frequency", "Identifies the first channel in the band of frequencies in the SPEAD heap.",
    IMMEDIATE_FORMAT};
static const struct spead_descriptor xeng_frequency = {
    SPEAD_FREQUENCY, "frequency", "Value of first channel in collections stored here.", IMMEDIATE_FORMAT};
static const struct spead_descriptor digitiser_id = {SPEAD_DIGITISER_ID, "digitiser_id", "Digitiser Serial Number",
                                                     IMMEDIATE_FORMAT};
static const struct spead_descriptor digitiser_status = {SPEAD_DIGITISER_STATUS, "digitiser_status",
                                                         "Digitiser Status values", IMMEDIATE_FORMAT};
#define FENG_RAW_DESCRIPTION "Channelised complex data from both polarisations of digitiser associated with F-Engine."

static void check_descriptors(const struct spead_descriptor *descriptors, size_t n, const char *golden)
{
    uint8_t packet[PACKET_BYTES_ROOM];
    uint8_t payload[PACKET_BYTES_ROOM];
    struct spead_item items[8];
    size_t payload_bytes = spead_build_descriptors(descriptors, n, payload, sizeof(payload), items);
    size_t header_bytes;

    ck_assert_uint_gt(payload_bytes, 0);
    header_bytes = spead_build_header(packet, HEAP_CNT, payload_bytes, 0, payload_bytes, items, n);
    memcpy(packet + header_bytes, payload, payload_bytes);
    assert_packet(packet, header_bytes + payload_bytes, golden);

    /* It fits exactly, and not in a byte less; the end of the buffer is watched by the sanitizer. */
    for (size_t room = 0; room <= payload_bytes; room += room + 64 < payload_bytes ? 61 : 1) {
        uint8_t *tight = malloc(room ? room : 1);

        ck_assert_uint_eq(spead_build_descriptors(descriptors, n, tight, room, items),
                          room < payload_bytes ? 0 : payload_bytes);
        free(tight);
    }
}

TEST(descriptors_are_spead2s)
{
    const struct spead_descriptor feng_8bit[] = {
        timestamp,
        feng_id,
        feng_frequency,
        {SPEAD_FENG_RAW, "feng_raw", FENG_RAW_DESCRIPTION, .dtype = "|i1", .n_dims = 4, .shape = {128, 256, 2, 2}},
    };
    const struct spead_descriptor feng_4bit[] = {
        timestamp,
        feng_id,
        feng_frequency,
        {SPEAD_FENG_RAW, "feng_raw", FENG_RAW_DESCRIPTION, .format_type = 'i', .format_bits = 4, .n_dims = 4,
         .shape = {128, 256, 2, 2}},
    };
    const struct spead_descriptor xeng[] = {
        xeng_frequency,
        timestamp,
        {SPEAD_XENG_RAW, "xeng_raw", "Integrated baseline correlation products.", .dtype = "<i4", .n_dims = 3,
         .shape = {128, 40, 2}},
    };
    const struct spead_descriptor digitiser[] = {
        timestamp,
        digitiser_id,
        digitiser_status,
        {SPEAD_ADC_SAMPLES, "adc_samples", "Digitiser Raw ADC Sample Data", .format_type = 'i', .format_bits = 10,
         .n_dims = 1, .shape = {4096}},
    };

    check_descriptors(feng_8bit, ARRAY_LEN(feng_8bit), golden_feng_8bit);
    check_descriptors(feng_4bit, ARRAY_LEN(feng_4bit), golden_feng_4bit);
    check_descriptors(xeng, ARRAY_LEN(xeng), golden_xeng);
    check_descriptors(digitiser, ARRAY_LEN(digitiser), golden_digitiser);
}

TEST(dtype_text_is_numpys)
{
    /* The comma of a one-element tuple, and the empty tuple. */
    const struct spead_descriptor vector = {0x1801, "w", "d", .dtype = "<u4", .n_dims = 1, .shape = {7}};
    const struct spead_descriptor scalar = {0x1801, "w", "d", .dtype = "<f4"};
    const char *vector_text = "{'descr': '<u4', 'fortran_order': False, 'shape': (7,)}";
    const char *scalar_text = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
    uint8_t out[PACKET_BYTES_ROOM];
    struct spead_item item;
    size_t n = spead_build_descriptors(&vector, 1, out, sizeof(out), &item);

    ck_assert_mem_eq(out + n - strlen(vector_text), vector_text, strlen(vector_text));
    n = spead_build_descriptors(&scalar, 1, out, sizeof(out), &item);
    ck_assert_mem_eq(out + n - strlen(scalar_text), scalar_text, strlen(scalar_text));
}

/* ---- Parsing: the boundary table --------------------------------------------------------------------------------- */

#define IMM(id, value)                    (UINT64_C(1) << 63 | (uint64_t)(id) << 48 | (value))
#define ADDR(id, value)                   ((uint64_t)(id) << 48 | (value))
#define STANDARD(length, offset, n_bytes) IMM(1, 7), IMM(2, length), IMM(3, offset), IMM(4, n_bytes)
#define MAX48                             SPEAD_VALUE_MASK
#define WORD0(n_items)                    (UINT64_C(0x5304020600000000) | (n_items))

/* A packet: words, big-endian, then 'tail_bytes' of payload; 'cut' of them are missing from the header buffer. */
static const struct boundary {
    const char *name;
    uint64_t words[12];
    size_t n_words;
    size_t tail_bytes;
    size_t header_cut_bytes;
    enum spead_error expected;
} boundaries[] = {
#define W(...) {__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8
    {"whole heap", W(WORD0(4), STANDARD(16, 0, 16)), 16, 0, SPEAD_OK},
    {"first half", W(WORD0(4), STANDARD(16, 0, 8)), 8, 0, SPEAD_OK},
    {"last half", W(WORD0(4), STANDARD(16, 8, 8)), 8, 0, SPEAD_OK},
    {"no payload in this packet", W(WORD0(4), STANDARD(16, 16, 0)), 0, 0, SPEAD_OK},
    {"one byte beyond the heap", W(WORD0(4), STANDARD(16, 9, 8)), 8, 0, SPEAD_BAD_LENGTH},
    {"longer than the heap", W(WORD0(4), STANDARD(15, 0, 16)), 16, 0, SPEAD_BAD_LENGTH},
    {"offset at its limit", W(WORD0(4), STANDARD(16, MAX48, 8)), 8, 0, SPEAD_BAD_LENGTH},
    {"heap at its limit", W(WORD0(4), STANDARD(MAX48, MAX48 - 8, 8)), 8, 0, SPEAD_OK},
    {"beyond the largest heap", W(WORD0(4), STANDARD(MAX48, MAX48 - 7, 8)), 8, 0, SPEAD_BAD_LENGTH},
    {"a byte missing", W(WORD0(4), STANDARD(16, 0, 16)), 15, 0, SPEAD_TRUNCATED},
    {"a byte too many", W(WORD0(4), STANDARD(16, 0, 8)), 9, 0, SPEAD_BAD_LENGTH},
    {"payload length at its limit", W(WORD0(4), STANDARD(16, 0, MAX48)), 16, 0, SPEAD_TRUNCATED},
    {"heap length 0", W(WORD0(4), STANDARD(0, 0, 0)), 0, 0, SPEAD_NO_STANDARD},
    {"no items", W(WORD0(0)), 0, 0, SPEAD_NO_STANDARD},
    {"65535 items announced", W(WORD0(65535), STANDARD(16, 0, 16)), 16, 0, SPEAD_TRUNCATED},
    {"one item more than there is", W(WORD0(5), STANDARD(16, 0, 0)), 0, 0, SPEAD_TRUNCATED},
    {"one item more than there is, but payload", W(WORD0(5), STANDARD(16, 0, 0)), 7, 0, SPEAD_TRUNCATED},
    {"header not all in the buffer", W(WORD0(4), STANDARD(16, 0, 16)), 16, 1, SPEAD_HEADER_TOO_LONG},
    {"half a word in the buffer", W(WORD0(4), STANDARD(16, 0, 16)), 16, 36, SPEAD_HEADER_TOO_LONG},
    {"nothing in the buffer", W(WORD0(4), STANDARD(16, 0, 16)), 16, 40, SPEAD_HEADER_TOO_LONG},
    {"magic", W(WORD0(4) ^ UINT64_C(1) << 56, STANDARD(16, 0, 16)), 16, 0, SPEAD_BAD_MAGIC},
    {"version 3", W(WORD0(4) ^ UINT64_C(7) << 48, STANDARD(16, 0, 16)), 16, 0, SPEAD_BAD_MAGIC},
    {"SPEAD-64-40", W(UINT64_C(0x5304030500000004), STANDARD(16, 0, 16)), 16, 0, SPEAD_BAD_FLAVOUR},
    {"widths of 72 bits", W(UINT64_C(0x5304030600000004), STANDARD(16, 0, 16)), 16, 0, SPEAD_BAD_FLAVOUR},
    {"widths of 0", W(UINT64_C(0x5304000000000004), STANDARD(16, 0, 16)), 16, 0, SPEAD_BAD_FLAVOUR},
    {"reserved bits are not looked at", W(WORD0(4) | UINT64_C(0xffff0000), STANDARD(16, 0, 16)), 16, 0, SPEAD_OK},
    {"no heap count", W(WORD0(3), IMM(2, 16), IMM(3, 0), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"no heap length", W(WORD0(3), IMM(1, 7), IMM(3, 0), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"no offset", W(WORD0(3), IMM(1, 7), IMM(2, 16), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"no payload length", W(WORD0(3), IMM(1, 7), IMM(2, 16), IMM(3, 0)), 0, 0, SPEAD_NO_STANDARD},
    {"heap count twice, payload length never", W(WORD0(4), IMM(1, 7), IMM(1, 7), IMM(2, 16), IMM(3, 0)), 0, 0,
     SPEAD_NO_STANDARD},
    {"heap count addressed", W(WORD0(4), ADDR(1, 7), IMM(2, 16), IMM(3, 0), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"heap length addressed", W(WORD0(4), IMM(1, 7), ADDR(2, 16), IMM(3, 0), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"offset addressed", W(WORD0(4), IMM(1, 7), IMM(2, 16), ADDR(3, 0), IMM(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"payload length addressed", W(WORD0(4), IMM(1, 7), IMM(2, 16), IMM(3, 0), ADDR(4, 16)), 16, 0, SPEAD_NO_STANDARD},
    {"the last of repeated ones counts", W(WORD0(5), STANDARD(16, 0, 3), IMM(4, 8)), 8, 0, SPEAD_OK},
    {"any order", W(WORD0(6), IMM(4, 8), IMM(0x1600, 5), IMM(2, 8), IMM(3, 0), ADDR(0x3300, 0), IMM(1, 7)), 8, 0,
     SPEAD_OK},
    {"padding", W(WORD0(6), ADDR(0, 0), STANDARD(8, 0, 8), IMM(0, MAX48)), 8, 0, SPEAD_OK},
#undef W
};

/* A copy in an allocation of exactly its size, so that the sanitizer sees a byte too far. */
static uint8_t *exact_copy(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = calloc(1, n ? n : 1);

    if (n)
        memcpy(copy, bytes, n);
    return n ? copy : copy + 1; /* not one byte may be read */
}

static void free_copy(uint8_t *copy, size_t n)
{
    free(n ? copy : copy - 1);
}

TEST(boundary, .end = ARRAY_LEN(boundaries))
{
    const struct boundary *b = &boundaries[_i];
    uint8_t bytes[sizeof(b->words)];
    size_t n_bytes = 8 * b->n_words;
    size_t header_bytes = n_bytes - b->header_cut_bytes;
    struct spead_packet packet;
    uint8_t *header;
    enum spead_error error;

    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(b->words[i / 8] >> (56 - 8 * (i % 8)));
    header = exact_copy(bytes, header_bytes);
    error = spead_parse(header, header_bytes, n_bytes + b->tail_bytes, NULL, 0, &packet);
    free_copy(header, header_bytes);
    ck_assert_msg(error == b->expected, "%s: %s, not %s", b->name, spead_error_name(error),
                  spead_error_name(b->expected));
}

TEST(every_truncation_is_refused)
{
    uint8_t bytes[PACKET_BYTES_ROOM];
    size_t n = decode(golden_data_0, bytes);

    for (size_t length = 0; length < n; length++) {
        uint8_t *packet = exact_copy(bytes, length);
        struct spead_packet parsed;

        ck_assert_int_eq(spead_parse(packet, length, length, NULL, 0, &parsed), SPEAD_TRUNCATED);
        free_copy(packet, length);
    }
}

TEST(fields_of_a_data_packet)
{
    static const uint16_t wanted[] = {SPEAD_FENG_RAW, SPEAD_DIGITISER_ID, SPEAD_TIMESTAMP, SPEAD_FENG_ID};
    uint8_t bytes[PACKET_BYTES_ROOM];
    size_t n = decode(golden_data_1, bytes);
    struct spead_packet packet;

    ck_assert_uint_eq(spead_header_bytes(bytes), 72);
    ck_assert_int_eq(spead_parse(bytes, 72, n, wanted, ARRAY_LEN(wanted), &packet), SPEAD_OK);
    ck_assert_uint_eq(packet.heap_cnt, HEAP_CNT);
    ck_assert_uint_eq(packet.heap_length, 40);
    ck_assert_uint_eq(packet.payload_offset, 16);
    ck_assert_uint_eq(packet.payload_length, 16);
    ck_assert_uint_eq(packet.header_bytes, 72);
    ck_assert_uint_eq(packet.found, 0xd);
    ck_assert_uint_eq(packet.immediate, 0xc);
    ck_assert_uint_eq(packet.wanted[0], 0);
    ck_assert_uint_eq(packet.wanted[2], UINT64_C(0x123456789abc));
    ck_assert_uint_eq(packet.wanted[3], 3);
    ck_assert(!packet.is_stop && !packet.is_descriptor);
}

TEST(stop_and_descriptor_heaps_are_known)
{
    uint8_t bytes[PACKET_BYTES_ROOM];
    struct spead_packet packet;
    size_t n = decode(golden_stop, bytes);

    ck_assert_int_eq(spead_parse(bytes, n, n, NULL, 0, &packet), SPEAD_OK);
    ck_assert(packet.is_stop && !packet.is_descriptor);
    bytes[8 * 5 + 7] = 0; /* "start" instead */
    ck_assert_int_eq(spead_parse(bytes, n, n, NULL, 0, &packet), SPEAD_OK);
    ck_assert(!packet.is_stop);
    n = decode(golden_xeng, bytes);
    ck_assert_int_eq(spead_parse(bytes, n, n, NULL, 0, &packet), SPEAD_OK);
    ck_assert(packet.is_descriptor && !packet.is_stop);
}

TEST(header_bytes_of_foreign_packets)
{
    uint8_t bytes[8] = {0x53, 4, 2, 6, 0, 0, 0xff, 0xff};

    ck_assert_uint_eq(spead_header_bytes(bytes), 8 + 8 * 65535);
    for (size_t i = 0; i < 4; i++) {
        bytes[i]++;
        ck_assert_uint_eq(spead_header_bytes(bytes), 0);
        bytes[i]--;
    }
}

/* ---- Parsing: anything ------------------------------------------------------------------------------------------- */

static uint64_t word_at(const uint8_t *bytes, size_t i)
{
    uint64_t word = 0;

    for (size_t j = 0; j < 8; j++)
        word |= (uint64_t)bytes[8 * i + j] << (56 - 8 * j);
    return word;
}

/* The last item of that id, as word; 0 if there is none (0 is not the word of any item but null). */
static uint64_t model_find(const uint8_t *bytes, size_t n_items, unsigned id)
{
    for (size_t i = n_items; i > 0; i--) {
        uint64_t word = word_at(bytes, i);

        if ((word >> 48 & 0x7fff) == id)
            return word;
    }
    return 0;
}

static void compare_with_model(const uint8_t *bytes, size_t n_bytes, const uint16_t *wanted,
                               const struct spead_packet *packet)
{
    size_t n_items = (size_t)bytes[6] << 8 | bytes[7];
    const uint64_t standard[4] = {packet->heap_cnt, packet->heap_length, packet->payload_offset,
                                  packet->payload_length};

    ck_assert_uint_eq(packet->header_bytes, 8 * (1 + n_items));
    ck_assert_uint_eq(packet->header_bytes + packet->payload_length, n_bytes);
    ck_assert_uint_le(packet->payload_offset + packet->payload_length, packet->heap_length);
    for (unsigned id = 1; id <= 4; id++)
        ck_assert_uint_eq(model_find(bytes, n_items, id), IMM(id, standard[id - 1]));
    for (size_t i = 0; i < SPEAD_MAX_WANTED; i++) {
        uint64_t word = model_find(bytes, n_items, wanted[i]);

        ck_assert_uint_eq(packet->found >> i & 1, word != 0);
        if (word) {
            ck_assert_uint_eq(packet->immediate >> i & 1, word >> 63);
            ck_assert_uint_eq(packet->wanted[i], word & MAX48);
        }
    }
    ck_assert_uint_eq(packet->is_descriptor, model_find(bytes, n_items, 5) != 0);
    ck_assert_uint_eq(packet->is_stop, model_find(bytes, n_items, 6) == IMM(6, 2));
}

/* A packet that is right but for some blows. */
static size_t make_damaged(uint8_t *bytes)
{
    static const uint16_t ids[] = {0, 1, 2, 3, 4, 5, 6, 0x1600, 0x1600, 0x3101, 0x3300, 0x4101, 0x4103, 0x7fff};
    size_t n_payload = random_below(100);
    size_t n_items = random_below(10);
    struct spead_item items[10];
    size_t n;

    for (size_t i = 0; i < n_items; i++) {
        /* Values likely enough to be right where they repeat a standard item. */
        uint64_t value = random_below(3) ? n_payload : random_below(3) ? random_below(4) : random_u64();

        items[i] = (struct spead_item){ids[random_below(ARRAY_LEN(ids))], random_below(8) > 0, value};
    }
    n = spead_build_header(bytes, random_u64(), n_payload + random_below(3), 0, n_payload, items, n_items);
    memset(bytes + n, 0x5a, n_payload);
    n += n_payload;
    for (size_t n_blows = random_below(3); n_blows > 0; n_blows--)
        bytes[random_below(n)] ^= (uint8_t)(1 << random_below(8));
    if (random_below(8) == 0)
        n = random_below(n + 1);
    return n;
}

TEST(no_packet_is_misread)
{
    static const uint16_t wanted[SPEAD_MAX_WANTED] = {0x1600, 0x3101, 0x3300, 0x4101, 0x4103, 0x7fff, 0x3102, 4};
    size_t n_ok = 0;

    random_start();
    for (size_t trial = 0; trial < 100000; trial++) {
        uint8_t bytes[256];
        size_t n_bytes, header_bytes;
        struct spead_packet packet;
        uint8_t *header;
        enum spead_error error;

        if (random_below(4) == 0) {
            n_bytes = random_below(sizeof(bytes));
            for (size_t i = 0; i < n_bytes; i++)
                bytes[i] = (uint8_t)random_u64();
            memcpy(bytes, "\x53\x04\x02\x06", random_below(5));
        } else {
            n_bytes = make_damaged(bytes);
        }
        header_bytes = random_below(4) ? n_bytes : random_below(n_bytes + 1);
        header = exact_copy(bytes, header_bytes);
        error = spead_parse(header, header_bytes, n_bytes, wanted, SPEAD_MAX_WANTED, &packet);
        free_copy(header, header_bytes);
        ck_assert_str_ne(spead_error_name(error), "");
        if (error == SPEAD_OK) {
            compare_with_model(bytes, n_bytes, wanted, &packet);
            n_ok++;
        }
    }
    ck_assert_uint_gt(n_ok, 1000); /* or it tested nothing */
}

SUITE(.timeout_s = 60);
