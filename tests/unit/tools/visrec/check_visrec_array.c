/* check_visrec_array.c - geometry and time of the recorder, against values from other sources (astropy 8, by hand). */
#include "tools/visrec/array.h"

#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>

#define RAD(deg) ((deg)*M_PI / 180)

static struct visrec_config_antenna antennas[] = {
    {"m000", {0, 0, 0}},         {"m001", {30, 0, 0}}, {"m002", {-7.5, 1000.25, 3}},
    {"m003", {100, -250, -0.5}}, {"m004", {1, 2, 3}},
};

static struct visrec_config example(void)
{
    return (struct visrec_config){
        .time = {.adc_sample_rate_hz = {1712000000, 0}},
        .stream = {.n_chan = 4096,
                   .n_chan_substream = 1024,
                   .spectra_per_heap = 256,
                   .samples_between_spectra = 8192,
                   .integration_batches = 408},
        .telescope = {"test", -30.7128, 21.4439, 1038},
        .antennas = {ARRAY_LEN(antennas), antennas},
    };
}

TEST(frequencies_of_the_first_nyquist_zone)
{
    struct visrec_config config = example();
    struct visrec_array array;

    ck_assert_int_eq(visrec_array_init(&array, &config), 0);
    ck_assert_double_eq_tol(array.chan_width_hz, 1712e6 / 8192, 1e-9);
    ck_assert_double_eq_tol(array.first_freq_hz, 0, 1e-6);
    ck_assert_double_eq_tol(array.integration_s, 408 * 256 * 8192 / 1712e6, 1e-12);
    visrec_array_fini(&array);
}

TEST(frequencies_around_a_given_centre)
{
    struct visrec_config config = example();
    struct visrec_array array;

    config.stream.centre_frequency_hz = 1284e6;
    config.stream.n_chan = 5; /* the centre is channel 2's */
    ck_assert_int_eq(visrec_array_init(&array, &config), 0);
    ck_assert_double_eq_tol(array.first_freq_hz + 2 * array.chan_width_hz, 1284e6, 1e-6);
    visrec_array_fini(&array);
}

TEST(integration_time_is_rounded_to_batches)
{
    struct visrec_config config = example();

    config.stream.integration_batches = 0;
    config.stream.integration_time_s = 0.5;
    /* 0.5 s * 1712 MHz / (256 * 8192) = 408.17 */
    ck_assert_int_eq(visrec_config_integration_batches(&config), 408);
    ck_assert_int_eq(visrec_config_integration_samples(&config), 408 * 256 * 8192);
    config.stream.integration_time_s = 1e-6;
    ck_assert_int_eq(visrec_config_integration_batches(&config), 1);
}

TEST(each_baseline_once_in_order)
{
    struct visrec_config config = example();
    struct visrec_array array;
    unsigned seen[ARRAY_LEN(antennas) * (ARRAY_LEN(antennas) + 1) / 2] = {0};

    ck_assert_int_eq(visrec_array_init(&array, &config), 0);
    ck_assert_uint_eq(array.n_baselines, ARRAY_LEN(seen));
    for (size_t b = 0; b < array.n_baselines; b++) {
        struct visrec_baseline baseline = array.baselines[b];
        size_t in_heap = visrec_array_heap_baseline(baseline);

        ck_assert_uint_le(baseline.ant_1, baseline.ant_2);
        ck_assert_uint_lt(in_heap, ARRAY_LEN(seen));
        seen[in_heap]++;
        if (b > 0) {
            struct visrec_baseline before = array.baselines[b - 1];

            ck_assert(baseline.ant_1 > before.ant_1 ||
                      (baseline.ant_1 == before.ant_1 && baseline.ant_2 == before.ant_2 + 1));
        }
    }
    for (size_t b = 0; b < ARRAY_LEN(seen); b++)
        ck_assert_uint_eq(seen[b], 1);
    /* spead.md: a2 (a2 + 1) / 2 + a1 */
    ck_assert_uint_eq(visrec_array_heap_baseline((struct visrec_baseline){1, 3}), 7);
    visrec_array_fini(&array);
}

TEST(uvw_points_from_the_first_antenna_to_the_second)
{
    struct visrec_config config = example();
    struct visrec_array array;
    double uvw_m[3];

    ck_assert_int_eq(visrec_array_init(&array, &config), 0);
    visrec_array_uvw(&array, (struct visrec_baseline){1, 2}, uvw_m);
    ck_assert_double_eq_tol(uvw_m[0], -37.5, 1e-9);
    ck_assert_double_eq_tol(uvw_m[1], 1000.25, 1e-9);
    ck_assert_double_eq_tol(uvw_m[2], 3, 1e-9);
    visrec_array_fini(&array);
}

/* On the equator at 0 and 90 degrees east, and at the pole, the axes can be named by hand. */
TEST(axes_of_ecef)
{
    static const struct {
        double latitude_deg, longitude_deg;
        double enu[3], ecef[3];
    } cases[] = {
        {0, 0, {1, 2, 3}, {3, 1, 2}},    {0, 90, {1, 2, 3}, {-1, 3, 2}},   {90, 0, {1, 2, 3}, {-2, 1, 3}},
        {-90, 0, {1, 2, 3}, {2, 1, -3}}, {0, 180, {1, 2, 3}, {-3, -1, 2}},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double ecef[3];

        visrec_enu_to_ecef(RAD(cases[i].latitude_deg), RAD(cases[i].longitude_deg), cases[i].enu, ecef);
        for (int axis = 0; axis < 3; axis++)
            ck_assert_double_eq_tol(ecef[axis], cases[i].ecef[axis], 1e-12);
    }
}

TEST(julian_dates)
{
    /* Meeus, "Astronomical Algorithms", chapter 7: 2000 January 1.5 is 2451545.0, 1987 June 19.5 is 2446966.0. */
    ck_assert_double_eq(visrec_julian_date(INT64_C(946728000) * NS_PER_S), 2451545.0);
    ck_assert_double_eq(visrec_julian_date(INT64_C(551102400) * NS_PER_S), 2446966.0);
    ck_assert_double_eq(visrec_julian_date(0), 2440587.5);
    ck_assert_double_eq(visrec_julian_date(-6 * 3600 * NS_PER_S), 2440587.25);
    /* As good as a double can be. */
    ck_assert_double_eq_tol(visrec_julian_date(INT64_C(1700000000123456789)), 2460263.425927354823947, 5e-10);
}

/* Apparent sidereal times of ERFA (gst06a, sp00) with that UT1; here within 2 ms of time. */
TEST(sidereal_times)
{
    static const struct {
        int64_t unix_s;
        double longitude_deg, ut1_utc_s, expected_rad;
    } cases[] = {
        {1700000000, 21.4439, 0.0127, 0.8469969291}, {946728000, 0.0, 0.3554, 4.8949252394},
        {1263254400, -118.28, 0.113, 6.1628362155},  {1735689599, 179.9, 0.0463, 4.9008080663},
        {1480000000, 302.5, -0.3557, 4.0695344250},  {2000000000, 21.4439, -0.9, 5.4265006447},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double rad =
            visrec_sidereal_time_rad(cases[i].unix_s * NS_PER_S, RAD(cases[i].longitude_deg), cases[i].ut1_utc_s);

        ck_assert(rad >= 0 && rad < 2 * M_PI);
        ck_assert_double_eq_tol(remainder(rad - cases[i].expected_rad, 2 * M_PI), 0, 1.5e-7);
    }
}
