/* check_crc32c.c - the CRC against RFC 3720's examples, its definition bit by bit, and the tables against the instruction. */
#include "common/net/crc32c.h"

#include "common/net/spead.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_BYTES 5000

static uint8_t bytes[N_BYTES];

static void fill(void)
{
    const char *seed = getenv("SEED");

    srand(seed ? (unsigned)atoi(seed) : 1124);
    printf("SEED=%s\n", seed ? seed : "1124");
    for (size_t i = 0; i < N_BYTES; i++)
        bytes[i] = (uint8_t)rand();
}

/* RFC 3720, B.4. */
TEST(examples)
{
    uint8_t text[32];

    memset(text, 0, sizeof(text));
    ck_assert_uint_eq(crc32c(0, text, 32), 0x8a9136aa);
    memset(text, 0xff, sizeof(text));
    ck_assert_uint_eq(crc32c(0, text, 32), 0x62a8ab43);
    for (unsigned i = 0; i < 32; i++)
        text[i] = (uint8_t)i;
    ck_assert_uint_eq(crc32c(0, text, 32), 0x46dd794e);
    for (unsigned i = 0; i < 32; i++)
        text[i] = (uint8_t)(31 - i);
    ck_assert_uint_eq(crc32c(0, text, 32), 0x113fdb5c);
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(crc32c(0, text, 0), 0);
}

static uint32_t by_definition(const uint8_t *at, size_t n)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

/* Every length up to two rounds of the three streams and a rest, from every place in a word. */
TEST(lengths)
{
    fill();
    for (size_t n = 0; n < 3200; n += n < 40 ? 1 : 7)
        for (size_t at = 0; at < 8; at++) {
            uint32_t wanted = by_definition(bytes + at, n);
            ck_assert_msg(crc32c(0, bytes + at, n) == wanted, "%zu bytes at %zu", n, at);
            ck_assert_msg(crc32c_portable(0, bytes + at, n) == wanted, "%zu bytes at %zu by tables", n, at);
        }
}

TEST(parts)
{
    fill();
    for (size_t n = 0; n < N_BYTES; n += 13)
        ck_assert_uint_eq(crc32c(crc32c(0, bytes, n), bytes + n, N_BYTES - n), by_definition(bytes, N_BYTES));
}

/* A packet's item is found, and agrees with the packet in which it is zero. */
TEST(packets)
{
    const struct spead_item items[] = {{.id = SPEAD_TIMESTAMP, .immediate = true, .value = 77},
                                       {.id = SPEAD_FENG_RAW, .value = 0}};
    const uint16_t wanted[] = {SPEAD_TIMESTAMP};
    uint8_t packet[N_BYTES];
    struct spead_packet parsed;

    fill();
    size_t header_bytes = spead_build_header(packet, 5, 1000, 0, 1000, items, ARRAY_LEN(items));
    header_bytes = spead_add_crc(packet, header_bytes, bytes, 1000);
    memcpy(packet + header_bytes, bytes, 1000);
    ck_assert_uint_eq(header_bytes, spead_built_header_bytes(3));
    ck_assert_int_eq(spead_parse(packet, header_bytes, header_bytes + 1000, wanted, 1, &parsed), SPEAD_OK);
    ck_assert_uint_eq(parsed.header_bytes, header_bytes);
    ck_assert_uint_eq(parsed.crc_at, header_bytes - 8);
    ck_assert_uint_eq(parsed.wanted[0], 77);
    uint64_t crc = spead_take_crc(packet, parsed.crc_at);
    ck_assert_uint_eq(crc, by_definition(packet, header_bytes + 1000));
}
