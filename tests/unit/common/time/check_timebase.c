/* check_timebase.c - exact values, computed with Python's fractions from the decimal texts. */
#include "common/base/clock.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdlib.h>

#define WIRE_PERIOD (INT64_C(1) << 48)

static struct timebase make_timebase(const char *sync_time_s, const char *rate_hz)
{
    struct timebase timebase = {.from_packets = false};

    ck_assert_int_eq(timebase_parse_decimal(sync_time_s, 9, &timebase.sync_time_s), 0);
    ck_assert_int_eq(timebase_parse_decimal(rate_hz, 9, &timebase.adc_sample_rate_hz), 0);
    return timebase;
}

TEST(decimals_are_parsed)
{
    static const struct {
        const char *text;
        int max_decimals;
        int err;
        int64_t mantissa;
        int n_decimals;
    } table[] = {
        {"0", 0, 0, 0, 0},
        {"-0.000", 0, 0, 0, 0},
        {"0e999999999999", 0, 0, 0, 0},
        {"1712e6", 6, 0, 1712000000, 0},
        {"1.712E+9", 0, 0, 1712000000, 0},
        {"1700000000.123456789", 9, 0, 1700000000123456789, 9},
        {"1700000000.25", 9, 0, 170000000025, 2},
        {"1700000000.1234567890000000000000000000", 9, 0, 1700000000123456789, 9},
        {"1700000000.1234567891", 9, -ERANGE, 0, 0},
        {"-0.000000000377535001", 18, 0, -377535001, 18},
        {"-3.77535e-10", 18, 0, -377535, 15},
        {"29.9469230012345678", 18, 0, 299469230012345678, 16},
        {"1e-19", 18, -ERANGE, 0, 0},
        {"000000000000000000000000000000000001", 0, 0, 1, 0},
        {"0.00000000000000000000000000000125e30", 2, 0, 125, 2},
        {"12500e-4", 2, 0, 125, 2},
        {"100000000000000000000e-20", 0, 0, 1, 0},
        {"-12.5", 1, 0, -125, 1},
        {"+.5", 1, 0, 5, 1},
        {"5.", 0, 0, 5, 0},
        {"0.5", 0, -ERANGE, 0, 0},
        {"9223372036854775807", 0, 0, INT64_MAX, 0},
        {"9223372036854775808", 0, -ERANGE, 0, 0},
        {"1e19", 0, -ERANGE, 0, 0},
        {"1e99999999999999999999", 0, -ERANGE, 0, 0},
        {"1e-99999999999999999999", 9, -ERANGE, 0, 0},
        {"", 9, -EINVAL, 0, 0},
        {".", 9, -EINVAL, 0, 0},
        {"-", 9, -EINVAL, 0, 0},
        {"e5", 9, -EINVAL, 0, 0},
        {"1e", 9, -EINVAL, 0, 0},
        {"1e+", 9, -EINVAL, 0, 0},
        {"1 ", 9, -EINVAL, 0, 0},
        {" 1", 9, -EINVAL, 0, 0},
        {"1.2.3", 9, -EINVAL, 0, 0},
        {"0x10", 9, -EINVAL, 0, 0},
        {"nan", 9, -EINVAL, 0, 0},
        {"1_000", 9, -EINVAL, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct decimal decimal = {.mantissa = -77, .n_decimals = -77};

        ck_assert_msg(timebase_parse_decimal(table[i].text, table[i].max_decimals, &decimal) == table[i].err, "\"%s\"",
                      table[i].text);
        ck_assert_msg(decimal.mantissa == (table[i].err ? -77 : table[i].mantissa), "\"%s\"", table[i].text);
        ck_assert_msg(decimal.n_decimals == (table[i].err ? -77 : table[i].n_decimals), "\"%s\"", table[i].text);
    }
}

TEST(decimal_as_double)
{
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){-125, 2}), -1.25);
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){1712000000, 0}), 1712e6);
    /* Rounded once: a mantissa beyond 2^53 that is rounded before it is divided gives the neighbours of these. */
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){100000792023456791, 9}), 0x1.7d7906018050fp+26);
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){102710673823456791, 9}), 0x1.87cf6474b3842p+26);
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){106775496523456791, 9}), 0x1.9750f2218050fp+26);
    ck_assert_double_eq(timebase_decimal_to_double((struct decimal){109485378323456791, 9}), 0x1.a1a75094b3842p+26);
}

TEST(samples_at_unix_time)
{
    static const struct {
        const char *sync_time_s, *rate_hz;
        int64_t unix_ns, samples;
    } table[] = {
        {"1700000000.123456789", "1712e6", 1700000000123456789, 0},
        {"1700000000.123456789", "1712e6", 1700000000123456790, 1},
        {"1700000000.123456789", "1712e6", 1700000000123456788, -2},
        {"1700000000.123456789", "1712e6", 1800000000000000001, 171199999788641978},
        {"1700000000.123456789", "1712e6", 1500000000000000000, -342400000211358023},
        {"-0.5", "1712000000.000001", 1700000000123456789, 2910400001067359722},
        {"-0.5", "1712000000.000001", -500000000, 0},
        {"-0.5", "1712000000.000001", -500000001, -2},
        {"1700000000.5", "1712000000.123456789", 1700000001500000000, 1712000000},
        {"1700000000.5", "1712000000.123456789", 1900000000123456789, 342399999380049380},
        {"1700000000.5", "1712000000.123456789", 1600000000000000001, -171200000868345678},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct timebase timebase = make_timebase(table[i].sync_time_s, table[i].rate_hz);

        ck_assert_int_eq(timebase_samples_at(&timebase, table[i].unix_ns), table[i].samples);
    }
}

TEST(nearest_sample_half_to_even)
{
    static const struct {
        const char *sync_time_s, *rate_hz;
        int64_t unix_ns, samples;
    } table[] = {
        {"1700000000", "1712e6", 1700000000000000001, 2},
        {"0", "1", 500000000, 0},
        {"0", "1", 1500000000, 2},
        {"0", "1", 2500000001, 3},
        {"0", "1", -500000000, 0},
        {"0", "1", -1500000000, -2},
        {"1750000000.25", "1750e6", 1763000000123456789, 22749999778549381},
        {"1", "1088000000.5", 3000000000000000000, 3264000000412000000},
    };
    int64_t unix_ns = 77;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct timebase timebase = make_timebase(table[i].sync_time_s, table[i].rate_hz);

        ck_assert_int_eq(timebase_samples_nearest(&timebase, table[i].unix_ns), table[i].samples);
    }
    ck_assert_int_eq(timebase_parse_unix_ns("9223372036.854775808", &unix_ns), -ERANGE);
    ck_assert_int_eq(timebase_parse_unix_ns("1.0000000001", &unix_ns), -ERANGE);
    ck_assert_int_eq(timebase_parse_unix_ns("now", &unix_ns), -EINVAL);
    ck_assert_int_eq(unix_ns, 77);
    ck_assert_int_eq(timebase_parse_unix_ns("9223372036.854775807", &unix_ns), 0);
    ck_assert_int_eq(unix_ns, INT64_MAX);
    ck_assert_int_eq(timebase_parse_unix_ns("-1.5", &unix_ns), 0);
    ck_assert_int_eq(unix_ns, -1500000000);
}
TEST(unix_time_of_samples)
{
    static const struct {
        const char *sync_time_s, *rate_hz;
        int64_t samples, unix_ns, duration_ns;
    } table[] = {
        {"1700000000.123456789", "1712e6", 0, 1700000000123456789, 0},
        {"1700000000.123456789", "1712e6", 1, 1700000000123456790, 1},
        {"1700000000.123456789", "1712e6", 2, 1700000000123456790, 1},
        {"1700000000.123456789", "1712e6", 3, 1700000000123456791, 2},
        {"1700000000.123456789", "1712e6", 214, 1700000000123456914, 125},
        {"1700000000.123456789", "1712e6", -1, 1700000000123456788, -1},
        {"1700000000.123456789", "1712e6", 1000000000000007, 1700584112272989503, 584112149532714},
        {"1700000000.123456789", "1712e6", (INT64_C(1) << 60) + 1, 2373435458421848715, 673435458298391926},
        {"-0.5", "1712000000.000001", 100000000000000003, 58411214453270996, 58411214953270996},
        {"-0.5", "1712000000.000001", INT64_C(1) << 62, 2693741832693566127, 2693741833193566127},
        /* Ties go up. */
        {"0", "2e9", 1, 1, 1},
        {"0", "2e9", -1, 0, 0},
        {"0", "2e9", 3, 2, 2},
        {"0", "2e9", -3, -1, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct timebase timebase = make_timebase(table[i].sync_time_s, table[i].rate_hz);

        ck_assert_int_eq(timebase_unix_ns(&timebase, table[i].samples), table[i].unix_ns);
        ck_assert_int_eq(timebase_duration_ns(&timebase, table[i].samples), table[i].duration_ns);
    }
}

TEST(duration_in_samples)
{
    static const struct {
        const char *rate_hz;
        int64_t duration_ns, samples;
    } table[] = {
        {"1712e6", 1000000000000000001, 1712000000000000002},
        {"1712000000.000001", 1000000000000000001, 1712000000000001002},
        {"1712e6", 1, 2},
        {"1712e6", -1, -2},
        {"1712e6", 500, 856},
        {"1712e6", -500, -856},
        /* Ties go up. */
        {"500e6", 1, 1},
        {"500e6", -1, 0},
        {"500e6", 3, 2},
        {"500e6", -3, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct timebase timebase = make_timebase("0", table[i].rate_hz);

        ck_assert_int_eq(timebase_duration_samples(&timebase, table[i].duration_ns), table[i].samples);
    }
}

TEST(unwrapping_takes_the_nearest)
{
    static const int64_t half = WIRE_PERIOD / 2;
    static const struct {
        int64_t wire, near_samples, timestamp;
    } table[] = {
        {0, 0, 0},
        {5, 0, 5},
        {WIRE_PERIOD - 1, WIRE_PERIOD, WIRE_PERIOD - 1},
        {0, WIRE_PERIOD - 1, WIRE_PERIOD},
        {3, 7 * WIRE_PERIOD - 4, 7 * WIRE_PERIOD + 3},
        {WIRE_PERIOD - 4, 7 * WIRE_PERIOD + 3, 7 * WIRE_PERIOD - 4},
        /* Half a period away: up; a sample beyond that: down. */
        {half, WIRE_PERIOD, WIRE_PERIOD + half},
        {half + 1, WIRE_PERIOD, half + 1},
        {half - 1, WIRE_PERIOD, WIRE_PERIOD + half - 1},
        {half + 10, 3 * WIRE_PERIOD + 10, 3 * WIRE_PERIOD + 10 + half},
        {half + 11, 3 * WIRE_PERIOD + 10, 2 * WIRE_PERIOD + 11 + half},
        /* Never negative. */
        {WIRE_PERIOD - 1, 0, WIRE_PERIOD - 1},
        {half + 1, 0, half + 1},
        {WIRE_PERIOD - 1, -3 * WIRE_PERIOD, WIRE_PERIOD - 1},
        {7, -3 * WIRE_PERIOD, 7},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        ck_assert_int_eq(timebase_unwrap((uint64_t)table[i].wire, table[i].near_samples), table[i].timestamp);
}

TEST(first_of_a_recording_is_itself)
{
    struct timebase timebase = make_timebase("1700000000", "1712e6");

    timebase.from_packets = true;
    int64_t near_samples = timebase_first_near(&timebase);
    for (int64_t wire = 0; wire < WIRE_PERIOD; wire += wire < 3 || wire > WIRE_PERIOD - 4 ? 1 : WIRE_PERIOD / 4 - 1)
        ck_assert_int_eq(timebase_unwrap((uint64_t)wire, near_samples), wire);
    ck_assert_int_eq(timebase_unwrap(WIRE_PERIOD - 1, near_samples), WIRE_PERIOD - 1);
}

TEST(first_of_a_stream_is_near_now)
{
    struct timebase timebase = make_timebase("1700000000.5", "1712e6");

    int64_t before = timebase_samples_at(&timebase, clock_unix_ns());
    int64_t near_samples = timebase_first_near(&timebase);
    int64_t after = timebase_samples_at(&timebase, clock_unix_ns());
    ck_assert_int_le(before, near_samples);
    ck_assert_int_le(near_samples, after);
}
