/* check_fgpu_recv.c - digitisers' packets: which digitiser a packet belongs to. */
#include "common/base/units.h"
#include "fgpu/recv.h"
#include "tests/unit/test_identify.h"
#include "tests/unit/test_main.h"

/* Three endpoints: two of member 0, which is a polarisation 1, and one of member 1, a polarisation 0. */
static const unsigned input_of_endpoint[] = {0, 1, 0}, pol_of_member[] = {1, 0};
static const struct fgpu_recv_context fgpu_context = {input_of_endpoint, pol_of_member};

#define RAW                                                                                                            \
    {                                                                                                                  \
        SPEAD_ADC_SAMPLES, false, 0                                                                                    \
    }

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
    {1,
     4,
     {TIME(0), {SPEAD_DIGITISER_ID, true, 0xfffffffffffe}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW},
     {0, 1, 0, 0, 0}},
    {1, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 1}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_BAD_SOURCE}},
    {0, 4, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_BAD_SOURCE}},
    /* The count of saturated samples is the upper 16 bits of the status; its flag, bit 1, is not part of it. */
    {1,
     4,
     {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, UINT64_C(0xffff00000002)}, RAW},
     {0, 1, 0, 0, 0xffff}},
    {1,
     4,
     {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, UINT64_C(0x0001ffffffff)}, RAW},
     {0, 1, 0, 0, 1}},
    /* Items in any order, with one that nobody knows. */
    {1,
     5,
     {RAW, {SPEAD_DIGITISER_STATUS, true, 0}, {0x2222, true, 5}, {SPEAD_DIGITISER_ID, true, 0}, TIME(12288)},
     {0, 1, 0, 12288, 0}},
    /* An item that is absent, or an address, is not read as some number. */
    {1, 3, {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1, 3, {TIME(0), {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1, 3, {{SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW}, {REJECT_NO_ITEMS}},
    {1,
     4,
     {{SPEAD_TIMESTAMP, false, 8}, {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, RAW},
     {REJECT_NO_ITEMS}},
    {1,
     5,
     {TIME(0), {SPEAD_DIGITISER_ID, true, 0}, {SPEAD_DIGITISER_STATUS, true, 0}, {SPEAD_DESCRIPTOR, false, 0}, RAW},
     {REJECT_NO_ITEMS}},
};

TEST(digitiser_packets, .end = ARRAY_LEN(fgpu_rows))
{
    check_packet(fgpu_recv_identify, &fgpu_context, fgpu_recv_wanted, FGPU_RECV_N_WANTED, fgpu_rows[_i].endpoint,
                 fgpu_rows[_i].items, fgpu_rows[_i].n_items, fgpu_rows[_i].expected);
}
