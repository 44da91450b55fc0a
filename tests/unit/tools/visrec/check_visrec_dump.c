/* check_visrec_dump.c - heaps into dumps, against a direct reading of the definition; and which packets belong to the
 * recorder. */
#include "tools/visrec/dump.h"
#include "tools/visrec/recv.h"

#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ANTS 7

struct setup {
    struct visrec_dump_shape shape;
    struct visrec_array array;
    struct visrec_dump dump;
    size_t n_substreams;
    uint8_t *present;
    uint8_t *heaps; /* not aligned to anything but bytes, on purpose */
    uint8_t *memory;
};

static unsigned seed;

static uint32_t random_word(void)
{
    return (uint32_t)rand() << 16 ^ (uint32_t)rand();
}

static struct visrec_config config_of(size_t n_ants, size_t n_chan, size_t n_chan_substream)
{
    static struct visrec_config_antenna antennas[MAX_ANTS];

    for (size_t i = 0; i < n_ants; i++)
        antennas[i] = (struct visrec_config_antenna){"a", {0, 0, 0}};
    return (struct visrec_config){
        .time = {.adc_sample_rate_hz = {1000000, 0}},
        .stream = {.n_chan = (int64_t)n_chan,
                   .n_chan_substream = (int64_t)n_chan_substream,
                   .spectra_per_heap = 16,
                   .samples_between_spectra = 16,
                   .integration_batches = 10},
        .telescope = {"test", 0, 0, 0},
        .antennas = {n_ants, antennas},
    };
}

static void setup_init(struct setup *s, size_t n_ants, size_t n_chan, size_t n_chan_substream, bool weights)
{
    struct visrec_config config = config_of(n_ants, n_chan, n_chan_substream);
    size_t bytes;

    memset(s, 0, sizeof(*s));
    s->shape = (struct visrec_dump_shape){n_chan, n_chan_substream, n_ants * (n_ants + 1) / 2, weights, 160};
    s->n_substreams = visrec_dump_n_substreams(&s->shape);
    ck_assert_int_eq(visrec_array_init(&s->array, &config), 0);
    ck_assert_int_eq(visrec_dump_init(&s->dump, &s->shape), 0);
    bytes = s->n_substreams * visrec_dump_heap_bytes(&s->shape);
    s->memory = malloc(bytes + 1);
    s->heaps = s->memory + 1;
    s->present = malloc(s->n_substreams);
    for (size_t i = 0; i < bytes; i++)
        s->heaps[i] = (uint8_t)rand();
    memset(s->present, 1, s->n_substreams);
    /* What is not written must show. */
    memset(s->dump.vis, 0xa5, visrec_dump_n_values(&s->shape) * sizeof(*s->dump.vis));
    memset(s->dump.flags, 0xa5, visrec_dump_n_values(&s->shape));
    memset(s->dump.nsamples, 0xa5, visrec_dump_n_values(&s->shape) * sizeof(*s->dump.nsamples));
}

static void setup_fini(struct setup *s)
{
    visrec_dump_fini(&s->dump);
    visrec_array_fini(&s->array);
    free(s->memory);
    free(s->present);
}

/* The definition, spead.md: [chan][4 (a2 (a2 + 1) / 2 + a1) + p1 + 2 p2][re, im]. */
static uint8_t *heap_value(struct setup *s, size_t chan, unsigned a1, unsigned a2, unsigned p1, unsigned p2)
{
    size_t product = 4 * (a2 * (a2 + 1) / 2 + a1) + p1 + 2 * p2;
    uint8_t *heap = s->heaps + chan / s->shape.n_chan_substream * visrec_dump_heap_bytes(&s->shape);

    return heap + ((chan % s->shape.n_chan_substream) * 4 * s->shape.n_baselines + product) * 8;
}

static void put_value(struct setup *s, size_t chan, unsigned a1, unsigned a2, unsigned p1, unsigned p2, int32_t re,
                      int32_t im)
{
    uint32_t words[2] = {htole32((uint32_t)re), htole32((uint32_t)im)};

    memcpy(heap_value(s, chan, a1, a2, p1, p2), words, sizeof(words));
}

static void put_weight(struct setup *s, size_t substream, unsigned a1, unsigned a2, uint32_t weight)
{
    uint8_t *heap = s->heaps + substream * visrec_dump_heap_bytes(&s->shape);
    uint32_t word = htole32(weight);

    memcpy(heap + s->shape.n_chan_substream * 4 * s->shape.n_baselines * 8 + 4 * (a2 * (a2 + 1) / 2 + a1), &word, 4);
}

static uint32_t get_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Index in the dump; pols xx, yy, xy, yx with the first letter ant_1's. */
static size_t dump_index(const struct setup *s, size_t chan, unsigned a1, unsigned a2, unsigned p1, unsigned p2)
{
    static const size_t pol_index[2][2] = {{0, 2}, {3, 1}};
    size_t n_ants = s->array.n_ants, b = 0;

    for (unsigned a = 0; a < a1; a++)
        b += n_ants - a;
    return ((b + a2 - a1) * s->shape.n_chan + chan) * 4 + pol_index[p1][p2];
}

/* Checks every value; where 'weights' [substream][baseline of the heap] is given, against that, else all spectra. */
static void check_all(struct setup *s, const uint32_t *weights)
{
    size_t n_flagged = 0;

    for (size_t chan = 0; chan < s->shape.n_chan; chan++) {
        size_t substream = chan / s->shape.n_chan_substream;

        for (unsigned a2 = 0; a2 < s->array.n_ants; a2++)
            for (unsigned a1 = 0; a1 <= a2; a1++)
                for (unsigned p = 0; p < 4; p++) {
                    const uint8_t *in = heap_value(s, chan, a1, a2, p & 1, p >> 1);
                    size_t at = dump_index(s, chan, a1, a2, p & 1, p >> 1);
                    int32_t re = (int32_t)get_word(in), im = (int32_t)get_word(in + 4);
                    size_t hb = a2 * (a2 + 1) / 2 + a1;
                    uint32_t weight = weights ? weights[substream * s->shape.n_baselines + hb] : s->shape.full_weight;
                    bool absent = !s->present[substream] || (re == INT32_MIN && im == 1) || weight == 0;

                    ck_assert_msg(s->dump.flags[at] == absent, "seed %u: flag", seed);
                    ck_assert_msg(s->dump.vis[at].r == (absent ? 0 : re), "seed %u: real", seed);
                    ck_assert_msg(s->dump.vis[at].i == (absent            ? 0
                                                        : im == INT32_MIN ? INT32_MAX
                                                                          : -im),
                                  "seed %u: imaginary", seed);
                    ck_assert_msg(s->dump.nsamples[at] == (absent ? 0 : (float)(weight / 160.0)), "seed %u: n", seed);
                    n_flagged += absent;
                }
    }
    ck_assert_uint_eq(s->dump.n_flagged, n_flagged);
}

/* Antennas, channels, channels per substream: among them what a tile of channels does not divide. */
static const size_t sizes[][3] = {
    {1, 1, 1}, {2, 8, 8}, {3, 12, 4}, {4, 66, 33}, {7, 128, 32}, {5, 97, 97}, {2, 70, 10},
};

TEST(everything_is_in_its_place, .end = ARRAY_LEN(sizes))
{
    struct setup s;

    setup_init(&s, sizes[_i][0], sizes[_i][1], sizes[_i][2], false);
    visrec_dump_fill(&s.dump, &s.array, 12345, s.present, s.heaps);
    ck_assert_int_eq(s.dump.timestamp_samples, 12345);
    ck_assert_uint_eq(s.dump.n_missing_heaps, 0);
    check_all(&s, NULL);
    setup_fini(&s);
}

TEST(absent_heaps_and_marked_values_are_flagged, .end = ARRAY_LEN(sizes))
{
    struct setup s;
    size_t n_missing = 0;

    setup_init(&s, sizes[_i][0], sizes[_i][1], sizes[_i][2], false);
    for (size_t i = 0; i < s.n_substreams; i++) {
        s.present[i] = rand() & 1;
        n_missing += !s.present[i];
    }
    for (size_t chan = 0; chan < s.shape.n_chan; chan++)
        for (unsigned a2 = 0; a2 < s.array.n_ants; a2++)
            for (unsigned a1 = 0; a1 <= a2; a1++)
                if (rand() % 3 == 0)
                    put_value(&s, chan, a1, a2, rand() & 1, rand() & 1, INT32_MIN, 1);
    visrec_dump_fill(&s.dump, &s.array, 0, s.present, s.heaps);
    ck_assert_uint_eq(s.dump.n_missing_heaps, n_missing);
    check_all(&s, NULL);
    /* The next dump starts afresh. */
    memset(s.present, 1, s.n_substreams);
    visrec_dump_fill(&s.dump, &s.array, 1, s.present, s.heaps);
    ck_assert_uint_eq(s.dump.n_missing_heaps, 0);
    check_all(&s, NULL);
    setup_fini(&s);
}

TEST(near_the_mark_is_data)
{
    static const int32_t near[][2] = {{INT32_MIN, 0},  {INT32_MIN, 2}, {-INT32_MAX, 1}, {INT32_MAX, 1}, {0, 1},
                                      {INT32_MIN, -1}, {7, INT32_MIN}, {7, -INT32_MAX}, {7, INT32_MAX}};
    struct setup s;

    for (size_t i = 0; i < ARRAY_LEN(near); i++) {
        setup_init(&s, 1, 1, 1, false);
        put_value(&s, 0, 0, 0, 1, 0, near[i][0], near[i][1]);
        visrec_dump_fill(&s.dump, &s.array, 0, s.present, s.heaps);
        check_all(&s, NULL);
        ck_assert_uint_eq(s.dump.flags[dump_index(&s, 0, 0, 0, 1, 0)], 0);
        setup_fini(&s);
    }
}

TEST(weights_become_fractions, .end = ARRAY_LEN(sizes))
{
    struct setup s;
    uint32_t *weights;

    setup_init(&s, sizes[_i][0], sizes[_i][1], sizes[_i][2], true);
    weights = calloc(s.n_substreams * s.shape.n_baselines, sizeof(*weights));
    for (size_t i = 0; i < s.n_substreams; i++) {
        s.present[i] = rand() % 4 != 0;
        for (unsigned a2 = 0; a2 < s.array.n_ants; a2++)
            for (unsigned a1 = 0; a1 <= a2; a1++) {
                uint32_t weight = rand() % 3 == 0 ? 0 : random_word() % 161;

                weights[i * s.shape.n_baselines + a2 * (a2 + 1) / 2 + a1] = weight;
                put_weight(&s, i, a1, a2, weight);
            }
    }
    visrec_dump_fill(&s.dump, &s.array, 0, s.present, s.heaps);
    check_all(&s, weights);
    free(weights);
    setup_fini(&s);
}

/* A packet as the X-engine of channels 32..47 of 128 sends it. */
static struct spead_packet example_packet(const struct visrec_dump_shape *shape)
{
    return (struct spead_packet){
        .heap_length = visrec_dump_heap_bytes(shape),
        .wanted = {4096, 32, 0, visrec_dump_weights_offset(shape)},
        .found = shape->weights ? 0xf : 0x7,
        .immediate = 0x3,
    };
}

TEST(our_packets_are_identified, .end = 2)
{
    struct visrec_dump_shape shape = {128, 16, 6, _i != 0, 160};
    struct spead_packet packet = example_packet(&shape);
    struct receiver_identity identity = {0};

    ck_assert_int_eq(visrec_recv_identify(&shape, 0, &packet, &identity), REJECT_NONE);
    ck_assert_uint_eq(identity.member, 0);
    ck_assert_uint_eq(identity.source, 2);
    ck_assert_uint_eq(identity.wire_timestamp, 4096);
    packet.wanted[1] = 112;
    ck_assert_int_eq(visrec_recv_identify(&shape, 0, &packet, &identity), REJECT_NONE);
    ck_assert_uint_eq(identity.source, 7);
}

TEST(other_packets_are_refused)
{
    struct visrec_dump_shape shape = {128, 16, 6, true, 160};
    struct receiver_identity identity;
    struct spead_packet packet;

#define REFUSES(reason, change)                                                                                        \
    do {                                                                                                               \
        packet = example_packet(&shape);                                                                               \
        change;                                                                                                        \
        ck_assert_int_eq(visrec_recv_identify(&shape, 0, &packet, &identity), reason);                                 \
    } while (0)
    REFUSES(REJECT_STOP, packet.is_stop = true);
    REFUSES(REJECT_NO_ITEMS, packet.found = 0xe);
    REFUSES(REJECT_NO_ITEMS, packet.found = 0xd);
    REFUSES(REJECT_NO_ITEMS, packet.found = 0xb);
    REFUSES(REJECT_NO_ITEMS, packet.found = 0x7);
    REFUSES(REJECT_NO_ITEMS, packet.immediate = 0x1);
    REFUSES(REJECT_NO_ITEMS, packet.immediate = 0x7);
    REFUSES(REJECT_NO_ITEMS, packet.wanted[2] = 8);
    REFUSES(REJECT_NO_ITEMS, packet.wanted[3] -= 4);
    REFUSES(REJECT_HEAP_SIZE, packet.heap_length -= 4 * shape.n_baselines);
    REFUSES(REJECT_HEAP_SIZE, packet.heap_length++);
    REFUSES(REJECT_BAD_FREQUENCY, packet.wanted[1] = 33);
    REFUSES(REJECT_BAD_FREQUENCY, packet.wanted[1] = 128);
    REFUSES(REJECT_BAD_FREQUENCY, packet.wanted[1] = SPEAD_VALUE_MASK & ~UINT64_C(15));
#undef REFUSES
}

static void start(void)
{
    seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
}

SUITE(.start = start);
