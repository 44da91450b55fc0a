/* check_spead_shape.c - the fast path for equal headers gives the result of spead_parse(), or no result. */
#include "common/net/spead_shape.h"
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON    0xa5
#define WORDS_MAX 40
#define IMMEDIATE 0x8000

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

/* The items of a header: id and immediate flag of each, in order. */
struct items {
    size_t n;
    uint16_t tags[WORDS_MAX];
};

struct header {
    size_t n_bytes;
    size_t packet_bytes;
    uint8_t *bytes; /* no more than n_bytes, so that a sanitizer sees what is read behind */
};

struct wanted {
    size_t n;
    uint16_t ids[SPEAD_MAX_WANTED];
};

static const uint16_t other_ids[] = {SPEAD_NULL,      SPEAD_TIMESTAMP, SPEAD_FENG_ID,
                                     SPEAD_FREQUENCY, SPEAD_FENG_RAW,  SPEAD_DIGITISER_STATUS,
                                     0x7fff,          0x2001,          SPEAD_ADC_SAMPLES};

static uint16_t random_tag(void)
{
    unsigned id = other_ids[random_below(ARRAY_LEN(other_ids))];

    if (random_below(200) == 0)
        id = random_below(2) ? SPEAD_DESCRIPTOR : SPEAD_STREAM_CTRL;
    return (uint16_t)(id | (random_below(2) ? IMMEDIATE : 0));
}

/* The standard items and others in any order; some come twice. */
static struct items random_items(void)
{
    struct items items = {0};
    size_t n_others = random_below(3) ? random_below(6) : random_below(28);

    for (uint16_t id = SPEAD_HEAP_CNT; id <= SPEAD_PAYLOAD_LENGTH; id++)
        for (size_t i = random_below(20) ? 1 : random_below(3); i > 0; i--)
            items.tags[items.n++] = id | (random_below(100) ? IMMEDIATE : 0);
    for (size_t i = 0; i < n_others; i++)
        items.tags[items.n++] = random_tag();
    for (size_t i = items.n; i-- > 1;) {
        size_t k = random_below(i + 1);
        uint16_t tag = items.tags[i];

        items.tags[i] = items.tags[k];
        items.tags[k] = tag;
    }
    return items;
}

static struct wanted random_wanted(void)
{
    struct wanted wanted = {.n = random_below(SPEAD_MAX_WANTED + 1)};

    for (size_t i = 0; i < wanted.n; i++) {
        wanted.ids[i] = other_ids[random_below(ARRAY_LEN(other_ids))];
        if (random_below(20) == 0)
            wanted.ids[i] = (uint16_t)random_below(8); /* a standard one, or one that decides what the packet is */
    }
    return wanted;
}

static void put_word(uint8_t *out, uint64_t word)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = (uint8_t)(word >> (56 - 8 * i));
}

static struct header make_header(const struct items *items, uint64_t heap_length, uint64_t offset, uint64_t length)
{
    struct header header = {.n_bytes = 8 * (1 + items->n)};

    header.packet_bytes = header.n_bytes + (size_t)length;
    header.bytes = malloc(header.n_bytes);
    put_word(header.bytes, UINT64_C(0x5304020600000000) | items->n);
    for (size_t i = 0; i < items->n; i++) {
        uint64_t value = random_below(4) ? random_u64() & SPEAD_VALUE_MASK : random_below(2) ? SPEAD_VALUE_MASK : 0;
        unsigned id = items->tags[i] & ~IMMEDIATE;

        /* Now and then the first of a repeated one says something else, which must not matter. */
        if (id == SPEAD_HEAP_LENGTH)
            value = heap_length;
        else if (id == SPEAD_PAYLOAD_OFFSET)
            value = offset;
        else if (id == SPEAD_PAYLOAD_LENGTH)
            value = length;
        for (size_t k = i + 1; k < items->n; k++)
            if (items->tags[k] == items->tags[i] && random_below(2))
                value = random_u64() & SPEAD_VALUE_MASK;
        put_word(header.bytes + 8 * (1 + i), (uint64_t)items->tags[i] << 48 | value);
    }
    return header;
}

/* Most are right; some have a heap of length 0, a payload beyond the heap, or a packet of another size. */
static struct header random_header(const struct items *items)
{
    uint64_t length = random_below(2) ? random_below(10000) : 8 * random_below(4);
    uint64_t offset = random_below(2) ? random_u64() & (SPEAD_VALUE_MASK >> 1) : random_below(3);
    uint64_t heap_length = offset + length + (random_below(3) ? 0 : random_below(1000));
    struct header header;

    if (random_below(20) == 0)
        heap_length = random_below(2) ? 0 : offset + length - (offset + length > 0);
    header = make_header(items, heap_length, offset, length);
    if (random_below(20) == 0)
        header.packet_bytes = random_below(2) ? header.packet_bytes + 1 : random_below(header.packet_bytes + 1);
    return header;
}

static bool is_learnable(const struct items *items)
{
    for (size_t i = 0; i < items->n; i++) {
        unsigned id = items->tags[i] & ~IMMEDIATE;
        if (id == SPEAD_DESCRIPTOR || id == SPEAD_STREAM_CTRL)
            return false;
    }
    return 1 + items->n <= SPEAD_SHAPE_MAX_WORDS;
}

/* ---- Both ways --------------------------------------------------------------------------------------------------- */

static enum spead_error long_way(const struct header *header, size_t header_bytes, const struct wanted *wanted,
                                 struct spead_packet *packet)
{
    memset(packet, POISON, sizeof(*packet));
    return spead_parse(header->bytes, header_bytes, header->packet_bytes, wanted->ids, wanted->n, packet);
}

static bool short_way(const struct spead_shape *shape, const struct header *header, size_t header_bytes,
                      struct spead_packet *packet)
{
    memset(packet, POISON, sizeof(*packet));
    return spead_shape_parse(shape, header->bytes, header_bytes, header->packet_bytes, packet);
}

static void assert_equal(const struct spead_packet *a, const struct spead_packet *b)
{
    ck_assert_uint_eq(a->heap_cnt, b->heap_cnt);
    ck_assert_uint_eq(a->heap_length, b->heap_length);
    ck_assert_uint_eq(a->payload_offset, b->payload_offset);
    ck_assert_uint_eq(a->payload_length, b->payload_length);
    ck_assert_uint_eq(a->header_bytes, b->header_bytes);
    ck_assert_uint_eq(a->found, b->found);
    ck_assert_uint_eq(a->immediate, b->immediate);
    ck_assert_int_eq(a->is_stop, b->is_stop);
    ck_assert_int_eq(a->is_descriptor, b->is_descriptor);
    ck_assert_mem_eq(a->wanted, b->wanted, sizeof(a->wanted));
}

/* Goes both ways and holds them equal.  Returns whether the short one was open. */
static bool compare(const struct spead_shape *shape, const struct header *header, size_t header_bytes,
                    const struct wanted *wanted)
{
    struct spead_packet by_shape, by_parser;

    if (!short_way(shape, header, header_bytes, &by_shape))
        return false;
    ck_assert_int_eq(long_way(header, header_bytes, wanted, &by_parser), SPEAD_OK);
    assert_equal(&by_shape, &by_parser);
    return true;
}

/* Learns from a header, if it is right. */
static bool learn(struct spead_shape *shape, const struct header *header, const struct wanted *wanted)
{
    struct spead_packet packet;

    if (long_way(header, header->n_bytes, wanted, &packet) != SPEAD_OK)
        return false;
    spead_shape_learn(shape, header->bytes, wanted->ids, wanted->n, &packet);
    return true;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

TEST(the_short_way_says_what_the_long_one_says)
{
    struct spead_shape shape = {0};
    size_t n_alike = 0, n_wrong = 0;

    for (size_t trial = 0; trial < 1000; trial++) {
        struct items items = random_items(), others = random_items();
        struct wanted wanted = random_wanted();
        struct header first = random_header(&items);

        /* What was learnt before stays, if this one is wrong, but then with the items wanted then. */
        if (learn(&shape, &first, &wanted)) {
            ck_assert_int_eq(compare(&shape, &first, first.n_bytes, &wanted), is_learnable(&items));
            for (size_t i = 0; i < 10; i++) {
                struct header alike = random_header(&items), unlike = random_header(&others);
                struct spead_packet packet;
                bool right = long_way(&alike, alike.n_bytes, &wanted, &packet) == SPEAD_OK && is_learnable(&items);

                ck_assert_int_eq(compare(&shape, &alike, alike.n_bytes, &wanted), right);
                n_alike += right;
                n_wrong += !right;
                compare(&shape, &unlike, unlike.n_bytes, &wanted);
                free(alike.bytes);
                free(unlike.bytes);
            }
        }
        free(first.bytes);
    }
    ck_assert_uint_gt(n_alike, 1000); /* or this tests nothing */
    ck_assert_uint_gt(n_wrong, 100);
}

TEST(one_bit_more_or_less)
{
    for (size_t trial = 0; trial < 60; trial++) {
        struct spead_shape shape = {0};
        struct items items = random_items();
        struct wanted wanted = random_wanted();
        struct header header = random_header(&items);

        for (size_t bit = 0; learn(&shape, &header, &wanted) && bit < 8 * header.n_bytes; bit++) {
            bool of_value = bit >= 64 && bit % 64 >= 16;
            bool open;

            header.bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
            open = compare(&shape, &header, header.n_bytes, &wanted);
            ck_assert(of_value || !open);
            header.bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
            ck_assert_int_eq(compare(&shape, &header, header.n_bytes, &wanted), is_learnable(&items));
        }
        free(header.bytes);
    }
}

TEST(headers_cut_short)
{
    for (size_t trial = 0; trial < 60; trial++) {
        struct spead_shape shape = {0};
        struct items items = random_items();
        struct wanted wanted = random_wanted();
        struct header header = random_header(&items);

        if (learn(&shape, &header, &wanted)) {
            for (size_t n_bytes = 0; n_bytes < header.n_bytes; n_bytes++) {
                struct header cut = {.packet_bytes = header.packet_bytes, .bytes = malloc(n_bytes + !n_bytes)};

                memcpy(cut.bytes, header.bytes, n_bytes);
                ck_assert(!compare(&shape, &cut, n_bytes, &wanted)); /* the rest lies elsewhere */
                cut.packet_bytes = n_bytes;
                ck_assert(!compare(&shape, &cut, n_bytes, &wanted)); /* there is no rest */
                free(cut.bytes);
            }
        }
        free(header.bytes);
    }
}

static struct items standard_items(void)
{
    return (struct items){4, {IMMEDIATE | 1, IMMEDIATE | 2, IMMEDIATE | 3, IMMEDIATE | 4}};
}

/* Offset, payload and heap: where the payload just fits, and just does not. */
TEST(lengths_at_their_limits)
{
    static const struct {
        uint64_t heap_length, offset, length;
        bool right;
    } cases[] = {
        {100, 60, 40, true},
        {100, 61, 40, false},
        {99, 60, 40, false},
        {1, 0, 0, true},
        {1, 1, 0, true},
        {0, 0, 0, false},
        {SPEAD_VALUE_MASK, SPEAD_VALUE_MASK - 8, 8, true},
        {SPEAD_VALUE_MASK, SPEAD_VALUE_MASK, 8, false}, /* the sum has a bit more than a value */
        {7, SPEAD_VALUE_MASK, 8, false},
    };
    const struct wanted wanted = {0};
    struct items items = standard_items();
    struct header first = make_header(&items, 10, 0, 10);
    struct spead_shape shape = {0};

    ck_assert(learn(&shape, &first, &wanted));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct header header = make_header(&items, cases[i].heap_length, cases[i].offset, cases[i].length);
        struct spead_packet packet;

        ck_assert_int_eq(long_way(&header, header.n_bytes, &wanted, &packet) == SPEAD_OK, cases[i].right);
        ck_assert_int_eq(compare(&shape, &header, header.n_bytes, &wanted), cases[i].right);
        header.packet_bytes++;
        ck_assert(!compare(&shape, &header, header.n_bytes, &wanted));
        free(header.bytes);
    }
    free(first.bytes);
}

TEST(nothing_is_like_a_zeroed_one)
{
    const struct spead_shape shape = {0};
    const struct wanted wanted = {0};
    struct items items = standard_items();
    struct header header = make_header(&items, 10, 0, 10);

    ck_assert(!compare(&shape, &header, header.n_bytes, &wanted));
    free(header.bytes);
    header = (struct header){.packet_bytes = 0, .bytes = malloc(1)};
    ck_assert(!compare(&shape, &header, 0, &wanted));
    free(header.bytes);
}

/* Stop and descriptor heaps, other stream control, and headers that are too long; what was learnt before is gone. */
TEST(some_are_not_learnt)
{
    const struct wanted wanted = {2, {SPEAD_STREAM_CTRL, SPEAD_DESCRIPTOR}};

    for (size_t trial = 0; trial < 200; trial++) {
        struct spead_shape shape = {0};
        struct items good = standard_items(), items = standard_items();
        struct header header, first = make_header(&good, 10, 0, 10);
        size_t n_words = 0;

        ck_assert(learn(&shape, &first, &wanted));
        ck_assert(compare(&shape, &first, first.n_bytes, &wanted));
        if (trial % 2) {
            items.tags[items.n++] = (uint16_t)((random_below(2) ? SPEAD_DESCRIPTOR : SPEAD_STREAM_CTRL) |
                                               (random_below(2) ? IMMEDIATE : 0));
            ck_assert(!is_learnable(&items));
        } else {
            n_words = SPEAD_SHAPE_MAX_WORDS - 2 + random_below(5);
            while (1 + items.n < n_words)
                items.tags[items.n++] = random_tag();
        }
        header = make_header(&items, 10, 0, 10);
        if (trial % 2 && random_below(2)) /* a stop, if it is stream control */
            memcpy(header.bytes + header.n_bytes - 6, "\0\0\0\0\0\2", 6);
        ck_assert(learn(&shape, &header, &wanted));
        ck_assert_int_eq(compare(&shape, &header, header.n_bytes, &wanted), is_learnable(&items));
        ck_assert(!compare(&shape, &first, first.n_bytes, &wanted));
        free(header.bytes);
        free(first.bytes);
    }
}

SUITE(.timeout_s = 60, .start = random_start);
