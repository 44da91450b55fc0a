/* check_philox - known answers of the generator, and the promises of the dither made from it. */
#include "kernels/util/philox.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>

/* The three vectors for philox4x32-7 that are published with the Random123 library. */
static const struct {
    uint32_t counter[4], key[2], expected[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
};

TEST(known_answers, .end = (sizeof(known) / sizeof(known[0])))
{
    uint32_t out[4];

    philox4x32(known[_i].counter, known[_i].key, out);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(out[i], known[_i].expected[i]);
}

/* The half that counts is i, the other one something else. */
static float dither_of(uint32_t i, int upper)
{
    return philox_dither(upper ? i << 16 | 0xabcd : 0xabcd0000 | i, upper);
}

TEST(dither_is_uniform_and_symmetric, .end = 2)
{
    unsigned n_bad = 0, count[65536] = {0};

    for (uint32_t i = 0; i < 65536; i++) {
        float dither = dither_of(i, _i), step = dither * 32768 + 16383.5f; /* of 2^15 between -1/2 and 1/2 */
        if (!(step >= 0 && step <= 32767 && step == floorf(step)))
            n_bad++;
        else
            count[(size_t)step]++;
        n_bad += dither != -dither_of(65535 - i, _i);
    }
    for (size_t step = 0; step < 32768; step++)
        n_bad += count[step] != 2;
    ck_assert_uint_eq(n_bad, 0);
    ck_assert(dither_of(0, _i) == 1.0f / 65536 && dither_of(0x7fff, _i) == 32767.0f / 65536);
    ck_assert(dither_of(0x8000, _i) == -32767.0f / 65536 && dither_of(0xfffe, _i) == -1.0f / 65536);
}

TEST(dither_leaves_integers_alone, .end = 2)
{
    unsigned n_moved = 0;

    for (uint32_t i = 0; i < 65536; i++)
        for (int value = -127; value <= 127; value++) {
            float dithered = (float)value + dither_of(i, _i);
            n_moved += !(fabsf(dithered) < 127.5f) || (int)rintf(dithered) != value;
        }
    ck_assert_uint_eq(n_moved, 0);
}

SUITE(.timeout_s = 60);
