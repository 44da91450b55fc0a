/* test_identify.h - tests how a daemon finds the sender of a packet.  The project's own code builds and parses the
 * packets; other tests compare this code with spead2. */
#ifndef TESTS_UNIT_TEST_IDENTIFY_H
#define TESTS_UNIT_TEST_IDENTIFY_H

#include "common/net/spead.h"
#include "common/recv/receiver.h"

#include <check.h>

#define PAYLOAD_BYTES 64
#define N_ITEMS_MAX   6
#define UNTOUCHED     0xA5A5A5A5u

struct expected {
    enum reject reject;
    unsigned member, source;
    uint64_t wire_timestamp;
    uint32_t extra;
};

/* Builds and parses a packet of 'items', and calls 'identify'.  A refused packet must leave the identity unchanged. */
static inline void check_packet(receiver_identify identify, const void *context, const uint16_t *wanted,
                                size_t n_wanted, unsigned endpoint, const struct spead_item *items, size_t n_items,
                                struct expected expected)
{
    uint8_t header[256];
    struct spead_packet packet;
    struct receiver_identity identity = {UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
    size_t header_bytes = spead_build_header(header, 7, PAYLOAD_BYTES, 0, PAYLOAD_BYTES, items, n_items);

    ck_assert_int_eq(spead_parse(header, header_bytes, header_bytes + PAYLOAD_BYTES, wanted, n_wanted, &packet),
                     SPEAD_OK);
    ck_assert_int_eq(identify(context, endpoint, &packet, &identity), expected.reject);
    if (expected.reject) {
        ck_assert_uint_eq(identity.member, UNTOUCHED);
        return;
    }
    ck_assert_uint_eq(identity.member, expected.member);
    ck_assert_uint_eq(identity.source, expected.source);
    ck_assert_uint_eq(identity.wire_timestamp, expected.wire_timestamp);
    ck_assert_uint_eq(identity.extra, expected.extra);
}

/* Makes the timestamp item, with value 't'. */
#define TIME(t)                                                                                                        \
    {                                                                                                                  \
        SPEAD_TIMESTAMP, true, t                                                                                       \
    }

#endif
