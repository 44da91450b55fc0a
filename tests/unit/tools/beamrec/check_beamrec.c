/* check_beamrec - heaps into rows of files, with their gaps, against a direct reading of the definitions; and which
 * packets belong to the recorder. */
#include "common/base/units.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tools/beamrec/powers.h"
#include "tools/beamrec/product.h"
#include "tools/beamrec/recv.h"

#include <math.h>
#include <string.h>

#define MAX_CHAN    12
#define MAX_SPECTRA 32
#define N_BATCHES   100 /* more than a running mean has */
#define MEAN        64

static const struct beamrec_product_shape shapes[] = {
    {.bits = 32,
     .n_chan = 12,
     .n_chan_substream = 4,
     .n_spectra = 16,
     .sum_spectra = 1,
     .sum_channels = 1,
     .n_products = 1},
    {.bits = 32,
     .n_chan = 8,
     .n_chan_substream = 8,
     .n_spectra = 32,
     .sum_spectra = 8,
     .sum_channels = 2,
     .n_products = 1},
    {.bits = 8,
     .n_chan = 12,
     .n_chan_substream = 4,
     .n_spectra = 16,
     .sum_spectra = 4,
     .sum_channels = 4,
     .n_products = 1},
    {.bits = 8,
     .n_chan = 6,
     .n_chan_substream = 3,
     .n_spectra = 16,
     .sum_spectra = 16,
     .sum_channels = 1,
     .n_products = 1},
};

struct batch {
    uint8_t present[MAX_CHAN];
    int8_t heaps[MAX_CHAN * MAX_SPECTRA * 2]; /* [substream][chan][spectrum][re, im] */
};

static struct batch draw(const struct beamrec_product_shape *shape, unsigned one_in)
{
    struct batch batch;

    random_bytes(batch.heaps, sizeof(batch.heaps));
    for (size_t i = 0; i < shape->n_chan / shape->n_chan_substream; i++)
        batch.present[i] = random_below(one_in) > 0;
    return batch;
}

static const int8_t *sample(const struct beamrec_product_shape *shape, const struct batch *batch, size_t chan,
                            size_t spectrum)
{
    return batch->heaps + (chan * shape->n_spectra + spectrum) * 2; /* heaps follow each other by channel */
}

static bool is_here(const struct beamrec_product_shape *shape, const struct batch *batch, size_t chan)
{
    return batch->present[chan / shape->n_chan_substream];
}

/* The power of a row's column, which counts from the lowest frequency. */
static double power_of(const struct beamrec_product_shape *shape, const struct batch *batch, size_t row, size_t column)
{
    double sum = 0;

    for (size_t c = 0; c < shape->sum_channels; c++)
        for (size_t s = 0; s < shape->sum_spectra; s++) {
            const int8_t *v = sample(shape, batch, column * shape->sum_channels + c, row * shape->sum_spectra + s);
            sum += pow(v[0], 2) + pow(v[1], 2);
        }
    return sum;
}

/* A column's running mean: that of all batches that had it at first, then one that forgets a 64th. */
struct mean {
    double value;
    unsigned n;
};

static void add_mean(const struct beamrec_product_shape *shape, const struct batch *batch, size_t column,
                     struct mean *mean)
{
    size_t n_rows = shape->n_spectra / shape->sum_spectra;
    double sum = 0;

    for (size_t row = 0; row < n_rows; row++)
        sum += power_of(shape, batch, row, column);
    mean->n += mean->n < MEAN;
    mean->value = mean->value * (1 - 1.0 / mean->n) + sum / (double)n_rows / mean->n;
}

/* Offset and scale that make the mean of what came 96 and its standard deviation 24. */
static void find_scale(const struct beamrec_product_shape *shape, const struct batch *batch, double *offset,
                       double *scale)
{
    size_t n_rows = shape->n_spectra / shape->sum_spectra, n_columns = shape->n_chan / shape->sum_channels;
    double n = 0, sum = 0, squares = 0;

    for (size_t i = 0; i < n_rows * n_columns; i++)
        if (is_here(shape, batch, i % n_columns * shape->sum_channels)) {
            double power = power_of(shape, batch, i / n_columns, i % n_columns);
            n++;
            sum += power;
            squares += power * power;
        }
    *scale = 24 / sqrt(squares / n - sum / n * (sum / n));
    *offset = sum / n - 96 / *scale;
}

static double value_at(const struct beamrec_product *product, size_t row, size_t column)
{
    size_t at = row * product->n_columns + product->n_columns - 1 - column; /* falling in frequency */
    float value;

    if (product->shape.bits == 8)
        return product->rows[at];
    memcpy(&value, product->rows + 4 * at, sizeof(value));
    return (double)value;
}

/* 8 bits may be off by one where scales differ in their last bit. */
static void check_value(const struct beamrec_product *product, size_t row, size_t column, double power, double offset,
                        double scale)
{
    double found = value_at(product, row, column), level = (power - offset) * scale;

    if (product->shape.bits == 32)
        ck_assert_double_le(fabs(found - power), 1e-6 * power);
    else
        ck_assert_double_le(fabs(found - fmin(fmax(level, 0), 255)), 0.5 + 1e-6);
}

TEST(powers_and_gaps, .end = ARRAY_LEN(shapes))
{
    const struct beamrec_product_shape *shape = &shapes[_i];
    struct mean means[MAX_CHAN] = {0};
    struct beamrec_product product;
    double offset = 0, scale = 0;

    ck_assert_int_eq(beamrec_product_init(&product, shape), 0);
    ck_assert_uint_eq(product.n_rows, shape->n_spectra / shape->sum_spectra);
    for (size_t n = 0; n < N_BATCHES; n++) {
        struct batch batch = draw(shape, n == 0 ? 1000000 : 3);
        bool is_gap = n % 7 == 5; /* of all heaps */
        if (is_gap)
            memset(batch.present, 0, sizeof(batch.present));
        if (n == 0)
            find_scale(shape, &batch, &offset, &scale);
        beamrec_product_fill(&product, is_gap ? NULL : batch.present, (const uint8_t *)batch.heaps);
        for (size_t column = 0; column < product.n_columns; column++) {
            bool here = is_here(shape, &batch, column * shape->sum_channels);
            if (here)
                add_mean(shape, &batch, column, &means[column]);
            for (size_t row = 0; row < product.n_rows; row++)
                check_value(&product, row, column, here ? power_of(shape, &batch, row, column) : means[column].value,
                            offset, scale);
        }
    }
    beamrec_product_fini(&product);
}

TEST(voltages_and_gaps)
{
    const struct beamrec_product_shape shape = {.is_dada = true,
                                                .bits = 8,
                                                .n_chan = 12,
                                                .n_chan_substream = 4,
                                                .n_spectra = 16,
                                                .sum_spectra = 1,
                                                .sum_channels = 1,
                                                .n_products = 1};
    struct beamrec_product product;

    ck_assert_int_eq(beamrec_product_init(&product, &shape), 0);
    for (size_t n = 0; n < 20; n++) {
        struct batch batch = draw(&shape, 2);
        beamrec_product_fill(&product, batch.present, (const uint8_t *)batch.heaps);
        for (size_t i = 0; i < shape.n_spectra * shape.n_chan * 2; i++) {
            size_t chan = i / 2 % shape.n_chan;
            int8_t sent = sample(&shape, &batch, chan, i / 2 / shape.n_chan)[i % 2];
            ck_assert_int_eq((int8_t)product.rows[i], is_here(&shape, &batch, chan) ? sent : 0);
        }
    }
    beamrec_product_fini(&product);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    struct spead_packet packet;
    enum reject reject;
} packets[] = {
    {"good", {.heap_length = 512, .found = 7, .immediate = 3, .wanted = {123456789, 8, 0}}, REJECT_NONE},
    {"the last substream", {.heap_length = 512, .found = 7, .immediate = 3, .wanted = {1, 12, 0}}, REJECT_NONE},
    {"stop", {.is_stop = true}, REJECT_STOP},
    {"no timestamp", {.heap_length = 512, .found = 6, .immediate = 2, .wanted = {0, 8, 0}}, REJECT_NO_ITEMS},
    {"no data", {.heap_length = 512, .found = 3, .immediate = 3, .wanted = {1, 8, 0}}, REJECT_NO_ITEMS},
    {"data in an item", {.heap_length = 512, .found = 7, .immediate = 7, .wanted = {1, 8, 0}}, REJECT_NO_ITEMS},
    {"data elsewhere", {.heap_length = 512, .found = 7, .immediate = 3, .wanted = {1, 8, 8}}, REJECT_NO_ITEMS},
    {"another size", {.heap_length = 511, .found = 7, .immediate = 3, .wanted = {1, 8, 0}}, REJECT_HEAP_SIZE},
    {"between substreams", {.heap_length = 512, .found = 7, .immediate = 3, .wanted = {1, 9, 0}}, REJECT_BAD_FREQUENCY},
    {"beyond the band", {.heap_length = 512, .found = 7, .immediate = 3, .wanted = {1, 16, 0}}, REJECT_BAD_FREQUENCY},
};

TEST(packets_are_known, .end = ARRAY_LEN(packets))
{
    static const unsigned streams[] = {3, 5};
    const struct beamrec_heap heaps[] = {[5] = beamrec_heap_of_voltages(512)};
    const struct beamrec_recv_context context = {
        .n_chan = 16, .n_chan_substream = 4, .heaps = heaps, .member_of_endpoint = streams};
    struct receiver_identity identity = {.source = UINT32_MAX};

    ck_assert_msg(beamrec_recv_identify(&context, 1, &packets[_i].packet, &identity) == packets[_i].reject, "%s",
                  packets[_i].what);
    if (packets[_i].reject != REJECT_NONE)
        return;
    ck_assert_uint_eq(identity.member, 5);
    ck_assert_uint_eq(identity.source, packets[_i].packet.wanted[1] / 4);
    ck_assert_uint_eq(identity.wire_timestamp, packets[_i].packet.wanted[0]);
}

/* 2 beams of 4 products, 3 windows and 5 groups: floats of 3 fractions, 40 offsets and scales, and 120 powers. */
static const struct {
    const char *what;
    bool is_uint8;
    struct spead_packet packet; /* wanted: timestamp, frequency, bf_raw, powers, fractions, offsets, scales */
    enum reject reject;
} powers_packets[] = {
    {"floats", false, {.heap_length = 492, .found = 0x1b, .immediate = 3, .wanted = {1, 8, 0, 12}}, REJECT_NONE},
    {"8 bits",
     true,
     {.heap_length = 452, .found = 0x7b, .immediate = 3, .wanted = {1, 8, 0, 332, 0, 12, 172}},
     REJECT_NONE},
    {"voltages", false, {.heap_length = 492, .found = 7, .immediate = 3, .wanted = {1, 8, 0}}, REJECT_NO_ITEMS},
    {"no fractions",
     false,
     {.heap_length = 492, .found = 0x0b, .immediate = 3, .wanted = {1, 8, 0, 12}},
     REJECT_NO_ITEMS},
    {"no scales",
     true,
     {.heap_length = 452, .found = 0x3b, .immediate = 3, .wanted = {1, 8, 0, 332, 0, 12}},
     REJECT_NO_ITEMS},
    {"other windows",
     false,
     {.heap_length = 492, .found = 0x1b, .immediate = 3, .wanted = {1, 8, 0, 8}},
     REJECT_NO_ITEMS},
    {"another size",
     false,
     {.heap_length = 496, .found = 0x1b, .immediate = 3, .wanted = {1, 8, 0, 12}},
     REJECT_HEAP_SIZE},
    {"between substreams",
     false,
     {.heap_length = 492, .found = 0x1b, .immediate = 3, .wanted = {1, 7, 0, 12}},
     REJECT_BAD_FREQUENCY},
};

TEST(packets_of_powers_are_known, .end = ARRAY_LEN(powers_packets))
{
    static const unsigned streams[] = {0};
    const struct beamrec_powers powers = {
        .n_beams = 2, .n_windows = 3, .n_products = 4, .n_groups = 5, .is_uint8 = powers_packets[_i].is_uint8};
    const struct beamrec_heap heap = beamrec_heap_of_powers(&powers);
    const struct beamrec_recv_context context = {
        .n_chan = 16, .n_chan_substream = 4, .heaps = &heap, .member_of_endpoint = streams};
    struct receiver_identity identity;

    ck_assert_msg(beamrec_recv_identify(&context, 0, &powers_packets[_i].packet, &identity) ==
                      powers_packets[_i].reject,
                  "%s", powers_packets[_i].what);
}

SUITE(.timeout_s = 60, .start = random_start);
