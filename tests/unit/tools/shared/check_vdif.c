/* check_vdif.c - VDIF headers by a table of their fields and boundaries; samples against a model that reads bit by bit;
 * and random bytes, which the parser must never accept as more than they are. */
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tools/shared/vdif.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void store_word(uint8_t *bytes, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
}

/* A header of the five words that are read; the rest is poison. */
static struct vdif_header parse_words(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t w4)
{
    const uint32_t words[8] = {w0, w1, w2, w3, w4, 0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5};
    uint8_t bytes[VDIF_HEADER_BYTES];

    for (size_t i = 0; i < 8; i++)
        store_word(bytes + 4 * i, words[i]);
    return vdif_parse(bytes);
}

/* Real samples of one thread. */
static struct vdif_header make_header(int bits, uint32_t log2_channels, uint32_t frame_bytes, bool is_legacy)
{
    return parse_words(is_legacy ? 1U << 30 : 0, 0, log2_channels << 24 | frame_bytes / 8, (uint32_t)(bits - 1) << 26,
                       0);
}

/* Each field alone at its highest, with all others at their lowest. */
TEST(fields)
{
    struct vdif_header h = parse_words(0, 0, 0, 0, 0);
    ck_assert(!h.is_invalid && !h.is_legacy && !h.is_complex);
    ck_assert(h.seconds == 0 && h.epoch == 0 && h.frame == 0 && h.n_channels == 1 && h.frame_bytes == 0);
    ck_assert(h.header_bytes == 32 && h.bits == 1 && h.thread == 0 && h.station == 0 && h.edv == 0);

    h = parse_words(0x80000000, 0, 0, 0, 0);
    ck_assert(h.is_invalid && !h.is_legacy && h.seconds == 0);
    h = parse_words(0x40000000, 0, 0, 0, 0xFF000000);
    ck_assert(!h.is_invalid && h.is_legacy && h.seconds == 0 && h.header_bytes == 16 && h.edv == 0);
    h = parse_words(0x3FFFFFFF, 0, 0, 0, 0);
    ck_assert(!h.is_invalid && !h.is_legacy && h.seconds == 0x3FFFFFFF);

    h = parse_words(0, 0xC0000000, 0, 0, 0); /* unassigned */
    ck_assert(h.epoch == 0 && h.frame == 0);
    h = parse_words(0, 0x3F000000, 0, 0, 0);
    ck_assert(h.epoch == 63 && h.frame == 0);
    h = parse_words(0, 0x00FFFFFF, 0, 0, 0);
    ck_assert(h.epoch == 0 && h.frame == 0xFFFFFF);

    h = parse_words(0, 0, 0xE0000000, 0, 0); /* version */
    ck_assert(h.n_channels == 1 && h.frame_bytes == 0);
    h = parse_words(0, 0, 0x18000000, 0, 0);
    ck_assert(h.n_channels == 1 << 24 && h.frame_bytes == 0);
    h = parse_words(0, 0, 0x1F000000, 0, 0);
    ck_assert(h.n_channels > 1 << 24);
    h = parse_words(0, 0, 0x00FFFFFF, 0, 0);
    ck_assert(h.n_channels == 1 && h.frame_bytes == 134217720);

    h = parse_words(0, 0, 0, 0x80000000, 0);
    ck_assert(h.is_complex && h.bits == 1 && h.thread == 0 && h.station == 0);
    h = parse_words(0, 0, 0, 0x7C000000, 0);
    ck_assert(!h.is_complex && h.bits == 32 && h.thread == 0);
    h = parse_words(0, 0, 0, 0x03FF0000, 0);
    ck_assert(h.bits == 1 && h.thread == 1023 && h.station == 0);
    h = parse_words(0, 0, 0, 0x0000FFFF, 0);
    ck_assert(h.thread == 0 && h.station == 0xFFFF);
    h = parse_words(0, 0, 0, 0, 0xAB123456);
    ck_assert(h.edv == 0xAB);
}

static const struct {
    uint32_t w0, w2, w3, w4;
    const char *says; /* NULL: playable */
    uint32_t n_samples;
} judged[] = {
    /* Lengths, in units of 8 bytes. */
    {0, 0, 0, 0, "not longer", 0},
    {0, 4, 0, 0, "not longer", 0},
    {0, 5, 0, 0, NULL, 64},
    {1U << 30, 4, 0, 0, "not longer", 0},
    {1U << 30, 5, 0, 0, NULL, 192},
    {0, 0xFFFFFF, 0, 0, NULL, 134217688U * 8},
    /* Bits of one channel: a word holds 32 / bits of them. */
    {0, 5, 1U << 26, 0, NULL, 32},
    {0, 5, 2U << 26, 0, NULL, 20},
    {0, 5, 15U << 26, 0, NULL, 4},
    {0, 5, 16U << 26, 0, NULL, 2},
    {0, 5, 31U << 26, 0, NULL, 2},
    /* Channels. */
    {0, 6U << 24 | 5, 0, 0, NULL, 1},
    {0, 7U << 24 | 5, 0, 0, "more channels", 0},
    {0, 1U << 24 | 5, 31U << 26, 0, NULL, 1},
    {0, 1U << 24 | 5, 2U << 26, 0, "no power of two", 0},
    {0, 2U << 24 | 5, 31U << 26, 0, "more channels", 0},
    {0, 2U << 24 | 7, 31U << 26, 0, "whole number", 0},
    {0, 24U << 24 | 0xFFFFFF, 0, 0, "whole number", 0},
    {0, 25U << 24 | 0xFFFFFF, 0, 0, "more channels", 0},
    {0, 31U << 24 | 0xFFFFFF, 0, 0, "more channels", 0},
    /* What is not for a digitiser. */
    {0, 5, 1U << 31, 0, "real", 0},
    {0, 5, 0, 0xAB000000, "Mark 5B", 0},
    {1U << 30, 5, 0, 0xAB000000, NULL, 192}, /* in legacy frames these are samples */
    {0, 5, 0, 0x03000000, NULL, 64},
};

TEST(judgement, .end = ARRAY_LEN(judged))
{
    struct vdif_header h = parse_words(judged[_i].w0, 0, judged[_i].w2, judged[_i].w3, judged[_i].w4);
    const char *says = vdif_unplayable(&h);

    if (judged[_i].says) {
        ck_assert_ptr_nonnull(says);
        ck_assert_msg(strstr(says, judged[_i].says), "'%s'", says);
    } else {
        ck_assert_msg(!says, "'%s'", says);
        ck_assert_uint_eq(vdif_n_samples(&h), judged[_i].n_samples);
    }
}

/* The levels of the specification's offset binary, from the lowest code to the highest. */
TEST(levels)
{
    struct vdif_header h = make_header(1, 0, 40, false);
    uint8_t payload[8] = {0x02, 0, 0, 0x80, 0, 0, 0, 0};
    double values[64];

    vdif_decode(&h, payload, 0, 0, 32, values);
    for (int i = 0; i < 32; i++)
        ck_assert_double_eq(values[i], i == 1 || i == 31 ? 1 : -1);

    h = make_header(2, 0, 40, false);
    payload[0] = 0xE4; /* 3 2 1 0 from the highest bits down */
    vdif_decode(&h, payload, 0, 0, 4, values);
    ck_assert(values[0] == -VDIF_2BIT_HIGH && values[1] == -1 && values[2] == 1 && values[3] == VDIF_2BIT_HIGH);
    double sigma_ratio = 1 / ((sqrt(exp(1)) - 1) * (1 / erf(sqrt(0.5)) - 1));
    ck_assert_double_eq_tol(VDIF_2BIT_HIGH, sigma_ratio, 5e-7);

    h = make_header(8, 0, 40, false);
    memcpy(payload, "\x00\x7F\x80\xFF", 4);
    vdif_decode(&h, payload, 0, 0, 4, values);
    ck_assert(values[0] == -128 && values[1] == -1 && values[2] == 0 && values[3] == 127);

    h = make_header(32, 0, 40, false);
    memcpy(payload, "\x00\x00\x00\x00\xFF\xFF\xFF\xFF", 8);
    vdif_decode(&h, payload, 0, 0, 2, values);
    ck_assert(values[0] == -2147483648.0 && values[1] == 2147483647.0);
}

/* Bit 'at' of a frame's samples, in the order of the specification. */
static unsigned bit_of(const uint8_t *payload, uint64_t at)
{
    return payload[at / 8] >> (at % 8) & 1;
}

static double model(const uint8_t *payload, int bits, uint64_t n_channels, uint64_t channel, uint64_t sample)
{
    uint64_t place = sample * n_channels + channel, per_word = 32 / (uint64_t)bits;
    uint64_t first_bit = place / per_word * 32 + place % per_word * (uint64_t)bits;
    double code = 0;

    for (int i = 0; i < bits; i++)
        code += ldexp(bit_of(payload, first_bit + (uint64_t)i), i);
    if (bits == 1)
        return 2 * code - 1;
    if (bits == 2)
        return (code < 2 ? -1 : 1) * (code == 0 || code == 3 ? 3.316505 : 1);
    return code - ldexp(1, bits - 1);
}

/* Random samples of all bits, channels and lengths, read in runs that begin anywhere. */
TEST(samples, .first = 1, .end = 33)
{
    int bits = _i;
    bool is_power_of_two = (bits & (bits - 1)) == 0;

    for (int round = 0; round < 20; round++) {
        uint32_t log2_channels = is_power_of_two ? (uint32_t)random_below(7) : 0;
        uint32_t payload_bytes = (1U << log2_channels) * 8 * (1 + (uint32_t)random_below(10));
        struct vdif_header h = make_header(bits, log2_channels, 32 + payload_bytes, false);
        uint8_t *payload = malloc(payload_bytes); /* of its own, so that a sanitizer sees reads beyond it */
        random_bytes(payload, payload_bytes);
        ck_assert_ptr_null(vdif_unplayable(&h));
        uint32_t n = vdif_n_samples(&h), channel = (uint32_t)random_below(h.n_channels);
        ck_assert_uint_eq((uint64_t)n * h.n_channels, (uint64_t)payload_bytes / 4 * (uint64_t)(32 / bits));

        uint32_t first = (uint32_t)random_below(n);
        size_t n_read = 1 + random_below(n - first);
        double *values = malloc(n_read * sizeof(*values));
        memset(values, 0xA5, n_read * sizeof(*values));
        vdif_decode(&h, payload, channel, first, n_read, values);
        for (size_t i = 0; i < n_read; i++)
            ck_assert_double_eq(values[i], model(payload, bits, h.n_channels, channel, first + i));
        free(values);
        free(payload);
    }
}

/* Whatever the bytes, a frame that is called playable can be read from end to end. */
TEST(rubbish)
{
    int n_playable = 0;

    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[VDIF_HEADER_BYTES];
        random_bytes(bytes, sizeof(bytes));
        if (round % 2 == 0) { /* short, real, of few channels */
            bytes[9] = bytes[10] = 0;
            bytes[11] &= 0xE3;
            bytes[15] &= 0x7F;
        }
        struct vdif_header h = vdif_parse(bytes);
        if (vdif_unplayable(&h))
            continue;
        n_playable++;
        uint32_t n = vdif_n_samples(&h);
        ck_assert_uint_ge(n, 1);
        ck_assert(!h.is_complex && h.frame_bytes > h.header_bytes);
        if (h.frame_bytes > 4096)
            continue;
        uint8_t *payload = malloc(h.frame_bytes - h.header_bytes);
        double *values = malloc(n * sizeof(*values));
        random_bytes(payload, h.frame_bytes - h.header_bytes);
        vdif_decode(&h, payload, h.n_channels - 1, 0, n, values);
        ck_assert(isfinite(values[n - 1]));
        free(values);
        free(payload);
    }
    ck_assert_int_gt(n_playable, 1000);
}

#define COMPLEX_4 (1U << 31 | 3U << 26)

static const struct {
    uint32_t w0, w2, w3;
    const char *says; /* NULL: voltages */
    uint32_t n_spectra;
} voltages[] = {
    {0, 4, COMPLEX_4, "not longer", 0},
    {0, 5, COMPLEX_4, NULL, 8},
    {1U << 30, 5, COMPLEX_4, NULL, 24},
    {0, 3U << 24 | 5, COMPLEX_4, NULL, 1},
    {0, 4U << 24 | 5, COMPLEX_4, "whole number", 0},
    {0, 4U << 24 | 7, COMPLEX_4, "whole number", 0},
    {0, 10U << 24 | 132, COMPLEX_4, NULL, 1}, /* CHIME's */
    {0, 31U << 24 | 0xFFFFFF, COMPLEX_4, "whole number", 0},
    {0, 5, 3U << 26, "complex samples of 4 bits", 0},
    {0, 5, 1U << 31 | 7U << 26, "complex samples of 4 bits", 0},
};

TEST(voltage_frames, .end = ARRAY_LEN(voltages))
{
    struct vdif_header h = parse_words(voltages[_i].w0, 0, voltages[_i].w2, voltages[_i].w3, 0);
    const char *says = vdif_no_voltages(&h);

    if (voltages[_i].says) {
        ck_assert_ptr_nonnull(says);
        ck_assert_msg(strstr(says, voltages[_i].says), "'%s'", says);
    } else {
        ck_assert_msg(!says, "'%s'", says);
        ck_assert_uint_eq(vdif_n_spectra(&h), voltages[_i].n_spectra);
    }
}

/* From spectrum to spectrum and, in one, from channel to channel; the real part in the lower bits. */
TEST(voltage_values)
{
    struct vdif_header h = parse_words(0, 0, 2U << 24 | 6, COMPLEX_4, 0);
    const uint8_t payload[16] = {0x80, 0x08, 0x0F, 0xF0, 0x88, 0x21, 0x12, 0xFF,
                                 0x00, 0x76, 0x67, 0x9A, 0xA9, 0xBC, 0xCB, 0xED};
    double value[2];

    ck_assert_uint_eq(vdif_n_spectra(&h), 4);
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t c = 0; c < 4; c++) {
            vdif_voltage(&h, payload, c, s, value);
            ck_assert_double_eq(value[0], payload[4 * s + c] % 16 - 8);
            ck_assert_double_eq(value[1], payload[4 * s + c] / 16 - 8);
        }
}

/* What is judged to be voltages can be read to its end. */
TEST(voltage_rubbish)
{
    int n_voltages = 0;

    for (int i = 0; i < 100000; i++) {
        struct vdif_header h = parse_words((uint32_t)random_below(2) << 30, 0,
                                           (uint32_t)(random_below(12) << 24 | random_below(200)), COMPLEX_4, 0);
        if (vdif_no_voltages(&h))
            continue;
        n_voltages++;
        uint32_t n = vdif_n_spectra(&h);
        ck_assert_uint_ge(n, 1);
        uint8_t *payload = malloc(h.frame_bytes - h.header_bytes);
        double value[2];
        memset(payload, 0xFF, h.frame_bytes - h.header_bytes);
        vdif_voltage(&h, payload, h.n_channels - 1, n - 1, value);
        ck_assert(value[0] == 7 && value[1] == 7);
        free(payload);
    }
    ck_assert_int_gt(n_voltages, 1000);
}

SUITE(.timeout_s = 60, .start = random_start);
