/* check_spectrum.c - channels reduced to points, and points with unknown values. */
#include "common/http/spectrum.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>

TEST(sizes, .end = 16)
{
    static const struct {
        const char *channels;
        size_t first, n_chan, shown_first, shown, width, n;
    } cases[] = {{NULL, 0, 1, 0, 1, 1, 1},
                 {NULL, 0, 1024, 0, 1024, 1, 1024},
                 {NULL, 7, 1025, 7, 1025, 2, 513},
                 {NULL, 0, 4096, 0, 4096, 4, 1024},
                 {NULL, 0, 5000, 0, 5000, 5, 1000},
                 {NULL, 65536, 65536, 65536, 65536, 64, 1024},
                 {"512,1023", 512, 512, 512, 512, 1, 512},
                 {"600,600", 512, 512, 600, 1, 1, 1},
                 {"511,600", 512, 512, 512, 512, 1, 512},
                 {"600,1024", 512, 512, 512, 512, 1, 512},
                 {"601,600", 512, 512, 512, 512, 1, 512},
                 {"1000,4999", 0, 32768, 1000, 4000, 4, 1000},
                 {"1000", 0, 32768, 0, 32768, 32, 1024},
                 {"-1,5", 0, 10, 0, 10, 1, 10},
                 {"1,5,", 0, 10, 0, 10, 1, 10},
                 {"", 0, 10, 0, 10, 1, 10}};
    struct spectrum_points points = spectrum_points_of(cases[_i].first, cases[_i].n_chan, cases[_i].channels);

    ck_assert_uint_eq(points.first_chan, cases[_i].shown_first);
    ck_assert_uint_eq(points.n_chan, cases[_i].shown);
    ck_assert_uint_eq(points.width, cases[_i].width);
    ck_assert_uint_eq(points.n, cases[_i].n);
    ck_assert_uint_le(points.n, SPECTRUM_MAX_POINTS);
}

/* Runs of two with a stride of three; one in part and one wholly unknown, and the last one short. */
TEST(reduce)
{
    const struct spectrum_points points = {100, 7, 2, 4};
    const float values[] = {1, -9, -9, 4, -9, -9, NAN, -9, -9, 8, -9, -9, NAN, -9, -9, NAN, -9, -9, -5};
    float mean[4] = {77, 77, 77, 77}, most[4] = {77, 77, 77, 77};

    spectrum_reduce(&points, values, 3, mean, most);
    ck_assert_float_eq(mean[0], 2.5f);
    ck_assert_float_eq(most[0], 4);
    ck_assert_float_eq(mean[1], 8);
    ck_assert_float_eq(most[1], 8);
    ck_assert_float_nan(mean[2]);
    ck_assert_float_nan(most[2]);
    ck_assert_float_eq(mean[3], -5);
    ck_assert_float_eq(most[3], -5);
}

static void check_json(json_t *json, const char *expected)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));

    ck_assert_str_eq(text, expected);
    free(text);
    json_decref(json);
}

TEST(json)
{
    const float powers[] = {16129, 1612.9f, 0, NAN, 2 * 16129, -1};
    const float phases[] = {-179.96f, 0.04f, NAN, 90.25f};
    const struct spectrum_points points = {512, 4096, 4, 1024};

    check_json(spectrum_decibels(powers, 6, 127 * 127), "[0.0,-10.0,null,null,3.01,null]");
    check_json(spectrum_numbers(phases, 4, 1), "[-180.0,0.0,null,90.3]");
    check_json(spectrum_axis(&points, 143e6, 208984.375),
               "{\"points\":1024,\"channels\":4096,\"channels_per_point\":4,\"first_channel\":512,"
               "\"first_hz\":250000000.0,\"step_hz\":208984.375}");
}
