/* fuzz_shape.c - the fast path for equal headers.  Every packet that the fast path accepts is accepted by the parser,
 * with the same values.
 *
 * Input: which items to look for, the size of a header to learn from, that header, and the bytes of another packet.
 * The packet is tried as it is, and with its bytes over the bytes of the first header. */
#include "common/net/spead_shape.h"
#include "common/base/units.h"
#include "tests/fuzz/fuzz_input.h"

static const uint16_t all_wanted[] = {
    SPEAD_TIMESTAMP, SPEAD_DIGITISER_ID, SPEAD_DIGITISER_STATUS, SPEAD_FENG_ID, SPEAD_FREQUENCY, SPEAD_STREAM_CTRL,
};

static void learn(struct spead_shape *shape, const uint8_t *header, size_t n_bytes, size_t packet_bytes,
                  size_t n_wanted)
{
    struct spead_packet packet;

    if (spead_parse(header, n_bytes, packet_bytes, all_wanted, n_wanted, &packet) == SPEAD_OK)
        spead_shape_learn(shape, header, all_wanted, n_wanted, &packet);
}

static void compare(const struct spead_shape *shape, const uint8_t *bytes, size_t n_bytes, size_t packet_bytes,
                    size_t n_wanted)
{
    struct spead_packet by_shape, by_parser;
    uint8_t *header = fuzz_exact(n_bytes);

    if (n_bytes > 0)
        memcpy(header, bytes, n_bytes);
    memset(&by_shape, 0xa5, sizeof(by_shape));
    if (spead_shape_parse(shape, header, n_bytes, packet_bytes, &by_shape)) {
        memset(&by_parser, 0x5a, sizeof(by_parser));
        assert(spead_parse(header, n_bytes, packet_bytes, all_wanted, n_wanted, &by_parser) == SPEAD_OK);
        assert(by_shape.heap_cnt == by_parser.heap_cnt && by_shape.heap_length == by_parser.heap_length);
        assert(by_shape.payload_offset == by_parser.payload_offset);
        assert(by_shape.payload_length == by_parser.payload_length);
        assert(by_shape.header_bytes == by_parser.header_bytes);
        assert(by_shape.found == by_parser.found && by_shape.immediate == by_parser.immediate);
        assert(by_shape.is_stop == by_parser.is_stop && by_shape.is_descriptor == by_parser.is_descriptor);
        assert(memcmp(by_shape.wanted, by_parser.wanted, sizeof(by_shape.wanted)) == 0);
    }
    free(header);
}

/* The learnt header with the other's bytes exclusive-or: few of them, and it is alike or nearly so. */
static void compare_mixed(const struct spead_shape *shape, const uint8_t *learnt, size_t n_learnt,
                          const struct fuzz_input *other, size_t packet_bytes, size_t n_wanted)
{
    uint8_t *mixed = fuzz_exact(n_learnt);

    memcpy(mixed, learnt, n_learnt);
    for (size_t i = 0; i < n_learnt && i < other->n_left; i++)
        mixed[i] ^= other->at[i];
    compare(shape, mixed, n_learnt, packet_bytes, n_wanted);
    free(mixed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    size_t n_wanted = fuzz_u8(&input) % (ARRAY_LEN(all_wanted) + 1);
    size_t n_learnt = fuzz_u8(&input);
    size_t n_payload = fuzz_u16(&input);
    struct spead_shape shape = {0};

    if (n_learnt > input.n_left)
        n_learnt = input.n_left;
    if (n_learnt == 0)
        return 0;
    const uint8_t *learnt = input.at;
    learn(&shape, learnt, n_learnt, n_learnt + n_payload, n_wanted);
    input.at += n_learnt;
    input.n_left -= n_learnt;
    compare(&shape, input.at, input.n_left, input.n_left + n_payload, n_wanted);
    compare_mixed(&shape, learnt, n_learnt, &input, n_learnt + n_payload, n_wanted);
    /* What was learnt before is gone. */
    learn(&shape, input.at, input.n_left, input.n_left + n_payload, n_wanted);
    compare(&shape, learnt, n_learnt, n_learnt + n_payload, n_wanted);
    compare(&shape, input.at, input.n_left, input.n_left + n_payload, n_wanted);
    return 0;
}
