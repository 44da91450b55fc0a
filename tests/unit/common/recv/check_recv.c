/* check_recv - whose packet it is: both daemons' reading of packets, made by our own builder and parsed by our own parser
 * (which have tests of their own against spead2), one table each. */
#include "common/net/spead.h"
#include "common/base/units.h"
#include "fgpu/recv.h"
#include "xbgpu/recv.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

#define PAYLOAD_BYTES 64
#define N_ITEMS_MAX 6
#define UNTOUCHED 0xA5A5A5A5u

struct expected {
    enum reject reject;
    unsigned member, source;
    uint64_t wire_timestamp;
    uint32_t extra;
};

/* Parses a packet of 'items' and asks 'identify'; the identity must be left alone where the packet is refused. */
static void check_packet(receiver_identify identify, const void *context, const uint16_t *wanted, size_t n_wanted,
                         unsigned endpoint, const struct spead_item *items, size_t n_items, struct expected expected)
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

/* Three endpoints: two of member 0, which is a polarisation 1, and one of member 1, a polarisation 0. */
static const unsigned input_of_endpoint[] = {0, 1, 0}, pol_of_member[] = {1, 0};
static const struct fgpu_recv_context fgpu_context = {input_of_endpoint, pol_of_member};

#define RAW {SPEAD_ADC_SAMPLES, false, 0}
#define TIME(t) {SPEAD_TIMESTAMP, true, t}

static const struct {
    unsigned endpoint;
    size_t n_items;
    struct spead_item items[N_ITEMS_MAX];
    struct expected expected;
} fgpu_rows[] = {
    {0, 4, {TIME(4096), {SPEAD_DIGITISER_ID, true, 1}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {0, 0, 0, 4096, 0}},
    {2, 4, {TIME(4096), {SPEAD_DIGITISER_ID, true, 1}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {0, 0, 0, 4096, 0}},
    {1, 4, {TIME(4096), {SPEAD_DIGITISER_ID, true, 2}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {0, 1, 0, 4096, 0}},
    /* Only bit 0 of the id is the polarisation. */
    {1, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 0xfffffffffffe}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {0, 1, 0, 0, 0}},
    {1, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 1}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_BAD_SOURCE}},
    {0, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_BAD_SOURCE}},
    /* The count of saturated samples is the upper 16 bits of the status; its flag, bit 1, is not part of it. */
    {1, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, UINT64_C(0xffff00000002)}, RAW},
     {0, 1, 0, 0, 0xffff}},
    {1, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, UINT64_C(0x0001ffffffff)}, RAW},
     {0, 1, 0, 0, 1}},
    /* Items in any order, with one that nobody knows. */
    {1, 5, {RAW, {SPEAD_DIGITISER_STATUS, true, 0}, {0x2222, true, 5}, {SPEAD_DIGITISER_ID, true, 0}, TIME(12288)},
     {0, 1, 0, 12288, 0}},
    /* An item that is absent, or an address, is not read as some number. */
    {1, 3, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1, 3, {TIME(0), {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1, 3, {{SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1, 4, {{SPEAD_TIMESTAMP, false, 8}, {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW},
     {REJECT_NO_ITEMS}},
    {1, 5, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, {SPEAD_DESCRIPTOR, false, 0}, RAW},
     {REJECT_NO_ITEMS}},
};

TEST(digitiser_packets, .end = ARRAY_LEN(fgpu_rows))
{
    check_packet(fgpu_recv_identify, &fgpu_context, fgpu_recv_wanted, FGPU_RECV_N_WANTED, fgpu_rows[_i].endpoint,
                 fgpu_rows[_i].items, fgpu_rows[_i].n_items, fgpu_rows[_i].expected);
}

/* This thread has two members of an array of 10: antennas 3 to 4 and 5 to 7. */
static const size_t first_ant[] = {3, 5, 8};
static const struct xbgpu_recv_context xbgpu_context = {
    .n_ants = 10, .chan_offset = 512, .n_members = 2, .first_ant = first_ant};

#define FENG(id) {SPEAD_FENG_ID, true, id}
#define CHAN(c) {SPEAD_FREQUENCY, true, c}
#define VOLTAGES {SPEAD_FENG_RAW, false, 0}

static const struct {
    size_t n_items;
    struct spead_item items[N_ITEMS_MAX];
    struct expected expected;
} xbgpu_rows[] = {
    {4, {TIME(77), FENG(3), CHAN(512), VOLTAGES}, {0, 0, 0, 77, 0}},
    {4, {TIME(77), FENG(4), CHAN(512), VOLTAGES}, {0, 0, 1, 77, 0}},
    {4, {TIME(77), FENG(5), CHAN(512), VOLTAGES}, {0, 1, 0, 77, 0}},
    {4, {VOLTAGES, CHAN(512), FENG(7), TIME(78)}, {0, 1, 2, 78, 0}},
    {4, {TIME(77), FENG(2), CHAN(512), VOLTAGES}, {REJECT_OTHER_THREAD}},
    {4, {TIME(77), FENG(8), CHAN(512), VOLTAGES}, {REJECT_OTHER_THREAD}},
    {4, {TIME(77), FENG(9), CHAN(0), VOLTAGES}, {REJECT_OTHER_THREAD}},
    {4, {TIME(77), FENG(10), CHAN(512), VOLTAGES}, {REJECT_BAD_SOURCE}},
    {4, {TIME(77), FENG(0xffffffffffff), CHAN(512), VOLTAGES}, {REJECT_BAD_SOURCE}},
    {4, {TIME(77), FENG(3), CHAN(0), VOLTAGES}, {REJECT_BAD_FREQUENCY}},
    {4, {TIME(77), FENG(3), CHAN(513), VOLTAGES}, {REJECT_BAD_FREQUENCY}},
    {3, {TIME(77), FENG(3), VOLTAGES}, {REJECT_NO_ITEMS}},
    {3, {TIME(77), CHAN(512), VOLTAGES}, {REJECT_NO_ITEMS}},
    {3, {FENG(3), CHAN(512), VOLTAGES}, {REJECT_NO_ITEMS}},
    {4, {TIME(77), {SPEAD_FENG_ID, false, 3}, CHAN(512), VOLTAGES}, {REJECT_NO_ITEMS}},
    {5, {TIME(77), FENG(3), CHAN(512), {SPEAD_DESCRIPTOR, false, 0}, VOLTAGES}, {REJECT_NO_ITEMS}},
};

TEST(voltage_packets, .end = ARRAY_LEN(xbgpu_rows))
{
    check_packet(xbgpu_recv_identify, &xbgpu_context, xbgpu_recv_wanted, XBGPU_RECV_N_WANTED, 0, xbgpu_rows[_i].items,
                 xbgpu_rows[_i].n_items, xbgpu_rows[_i].expected);
}
