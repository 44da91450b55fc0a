/* fuzz_spead.c - the parser on any bytes, against the promises of spead.h about each accepted packet.
 *
 * Input: which items to look for, how many bytes of the packet are present, how many are missing, and the packet. */
#include "common/net/spead.h"
#include "common/base/units.h"
#include "tests/fuzz/fuzz_input.h"

static const uint16_t all_wanted[] = {
    SPEAD_TIMESTAMP, SPEAD_DIGITISER_ID, SPEAD_DIGITISER_STATUS, SPEAD_FENG_ID,
    SPEAD_FREQUENCY, SPEAD_XENG_RAW,     SPEAD_XENG_WEIGHTS,     SPEAD_STREAM_CTRL,
};

struct parsed {
    enum spead_error error;
    struct spead_packet packet;
};

/* Parses with only the first 'n_at_hand' bytes there to be read. */
static struct parsed parse(const uint8_t *bytes, size_t n_at_hand, size_t packet_bytes, size_t n_wanted)
{
    struct parsed parsed;
    uint8_t *header = fuzz_exact(n_at_hand);

    if (n_at_hand > 0)
        memcpy(header, bytes, n_at_hand);
    memset(&parsed.packet, 0xa5, sizeof(parsed.packet));
    parsed.error = spead_parse(header, n_at_hand, packet_bytes, all_wanted, n_wanted, &parsed.packet);
    assert(spead_error_name(parsed.error));
    if (n_at_hand >= SPEAD_WORD_BYTES && parsed.error == SPEAD_OK)
        assert(spead_header_bytes(header) == parsed.packet.header_bytes);
    free(header);
    return parsed;
}

static void check_promises(const struct spead_packet *packet, size_t n_at_hand, size_t packet_bytes, size_t n_wanted)
{
    assert(packet->header_bytes >= SPEAD_WORD_BYTES * (1 + SPEAD_N_STANDARD_ITEMS));
    assert(packet->header_bytes % SPEAD_WORD_BYTES == 0 && packet->header_bytes <= n_at_hand);
    assert(packet->header_bytes + packet->payload_length == packet_bytes);
    assert(packet->heap_length > 0 && packet->heap_length <= SPEAD_VALUE_MASK);
    assert(packet->payload_offset <= packet->heap_length);
    assert(packet->payload_length <= packet->heap_length - packet->payload_offset);
    assert(packet->heap_cnt <= SPEAD_VALUE_MASK);
    assert(packet->found >> n_wanted == 0 && (packet->immediate & ~packet->found) == 0);
    for (size_t i = 0; i < n_wanted; i++)
        assert(packet->found >> i & 1 ? packet->wanted[i] <= SPEAD_VALUE_MASK : packet->wanted[i] == 0);
}

static bool is_same(const struct spead_packet *a, const struct spead_packet *b)
{
    return a->heap_cnt == b->heap_cnt && a->heap_length == b->heap_length && a->payload_offset == b->payload_offset &&
           a->payload_length == b->payload_length && a->found == b->found && a->immediate == b->immediate &&
           memcmp(a->wanted, b->wanted, sizeof(a->wanted)) == 0;
}

/* What was read, written again, reads the same. */
static void check_round_trip(const struct spead_packet *packet, size_t n_wanted)
{
    struct spead_item items[SPEAD_MAX_WANTED];
    size_t n_items = 0;

    for (size_t i = 0; i < n_wanted; i++)
        if (packet->found >> i & 1)
            items[n_items++] = (struct spead_item){all_wanted[i], packet->immediate >> i & 1, packet->wanted[i]};
    size_t n_bytes = spead_built_header_bytes(n_items);
    uint8_t *header = fuzz_exact(n_bytes);
    assert(spead_build_header(header, packet->heap_cnt, packet->heap_length, packet->payload_offset,
                              packet->payload_length, items, n_items) == n_bytes);
    struct parsed again = parse(header, n_bytes, n_bytes + packet->payload_length, n_wanted);
    free(header);
    assert(again.error == SPEAD_OK && is_same(&again.packet, packet));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    size_t n_wanted = fuzz_u8(&input) % (ARRAY_LEN(all_wanted) + 1);
    size_t n_at_hand = fuzz_u16(&input);
    size_t n_not_here = fuzz_u16(&input); /* payload that the parser never sees */
    size_t packet_bytes = input.n_left + n_not_here;

    if (n_at_hand > input.n_left)
        n_at_hand = input.n_left;
    struct parsed all = parse(input.at, input.n_left, packet_bytes, n_wanted);
    if (all.error == SPEAD_OK) {
        check_promises(&all.packet, input.n_left, packet_bytes, n_wanted);
        check_round_trip(&all.packet, n_wanted);
    }
    /* With fewer bytes at hand it says the same, or that it has not seen enough. */
    struct parsed some = parse(input.at, n_at_hand, packet_bytes, n_wanted);
    if (some.error == SPEAD_OK) {
        check_promises(&some.packet, n_at_hand, packet_bytes, n_wanted);
        assert(all.error == SPEAD_OK && is_same(&all.packet, &some.packet));
        assert(all.packet.is_stop == some.packet.is_stop && all.packet.is_descriptor == some.packet.is_descriptor);
    } else if (some.error != SPEAD_HEADER_TOO_LONG) {
        assert(all.error == some.error);
    } else {
        assert(n_at_hand < input.n_left || n_not_here > 0);
    }
    return 0;
}
