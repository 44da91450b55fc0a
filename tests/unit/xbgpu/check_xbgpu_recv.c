/* check_xbgpu_recv.c - F-engines' packets: which F-engine a packet belongs to. */
#include "common/base/units.h"
#include "tests/unit/test_identify.h"
#include "tests/unit/test_main.h"
#include "xbgpu/recv.h"

/* This thread has two members of an array of 10: antennas 3 to 4 and 5 to 7. */
static const size_t first_ant[] = {3, 5, 8};
static const struct xbgpu_recv_context xbgpu_context = {
    .n_ants = 10, .chan_offset = 512, .n_members = 2, .first_ant = first_ant};

#define FENG(id)                                                                                                       \
    {                                                                                                                  \
        SPEAD_FENG_ID, true, id                                                                                        \
    }
#define CHAN(c)                                                                                                        \
    {                                                                                                                  \
        SPEAD_FREQUENCY, true, c                                                                                       \
    }
#define VOLTAGES                                                                                                       \
    {                                                                                                                  \
        SPEAD_FENG_RAW, false, 0                                                                                       \
    }

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
