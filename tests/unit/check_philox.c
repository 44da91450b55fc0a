/* check_philox - known answers of the generator, and what the dither made of it promises. */
#include "kernels/philox.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* The three vectors for philox4x32-10 that are published with the Random123 library. */
static const struct {
    uint32_t counter[4], key[2], expected[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(known_answers)
{
    uint32_t out[4];

    philox4x32(known[_i].counter, known[_i].key, out);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(out[i], known[_i].expected[i]);
}
END_TEST

START_TEST(dither_is_uniform_and_symmetric)
{
    double sum = 0, squares = 0;
    unsigned n_bad = 0;

    for (uint32_t i = 0; i < 65536; i++) {
        float dither = philox_dither(i << 16 | 0xabcd);
        n_bad += !(dither > -0.5f && dither < 0.5f) || dither != -philox_dither((65535 - i) << 16);
        sum += dither;
        squares += (double)dither * dither;
    }
    ck_assert_uint_eq(n_bad, 0);
    ck_assert(sum == 0);
    ck_assert_double_eq_tol(squares / 65536, 1.0 / 12, 1e-9);
}
END_TEST

START_TEST(dither_leaves_integers_alone)
{
    unsigned n_moved = 0;

    for (uint32_t i = 0; i < 65536; i++)
        for (int value = -127; value <= 127; value++) {
            float dithered = (float)value + philox_dither(i << 16);
            n_moved += !(fabsf(dithered) < 127.5f) || (int)rintf(dithered) != value;
        }
    ck_assert_uint_eq(n_moved, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("philox");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, known_answers, 0, (int)(sizeof(known) / sizeof(known[0])));
    tcase_add_test(tcase, dither_is_uniform_and_symmetric);
    tcase_add_test(tcase, dither_leaves_integers_alone);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
