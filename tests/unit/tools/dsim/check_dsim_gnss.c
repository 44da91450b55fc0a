/* check_dsim_gnss.c - the same sample from any block, delay or track; data, secondary codes, and arguments that do not
 * fit.  tests/system/test_dsim_gnss.py compares signals with the model. */
#include "common/base/units.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/live.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON_BYTE 0xA5
#define N           20000
#define RATE_HZ     4e6

static struct dsim_program *program;
static struct dsim_live *live;
static const struct dsim_format format = {.axis = {5000, RATE_HZ}, .packet_samples = 5000, .n_inputs = 2};

static void open_live(const char *text, const struct dsim_format *f)
{
    char why[256] = "";

    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "'%s': %s", text, why);
    ck_assert(program->is_live);
    ck_assert_msg(dsim_gnss_compute(program, f->axis.adc_sample_rate_hz, NULL, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(dsim_live_create(program, f, &live, why, sizeof(why)) == 0, "%s", why);
}

static void close_live(void)
{
    dsim_live_destroy(live);
    dsim_program_free(program);
}

/* In blocks of random length, or in the longest. */
static void evaluate(size_t output, int64_t first, size_t n_samples, bool random, double *values)
{
    memset(values, POISON_BYTE, n_samples * sizeof(*values));
    for (size_t done = 0, n; done < n_samples; done += n) {
        n = random ? 1 + random_below(5000) : 5000;
        n = n < n_samples - done ? n : n_samples - done;
        dsim_live_evaluate(live, output, first + (int64_t)done, n, values + done);
    }
}

static const char *const satellites[] = {
    "gnss(L1CA, 7, 60, 0.1, 1e6, 0, 0, 0);",
    "gnss(L1CA, 32, 60, 0.1, 1575.42e6, 123456.75, -4321.5, 0.7, 5);",
    "gnss(L5I, 3, 60, 0.1, -1e6, -1e10, 2e3, -3, 6);",
    "track(gnss(L5Q, 3, 60, 0.1, 1e6, 7.5, 2e3, 1), -3.25, 1e-6);",
    "delay(gnss(L1CA, 1, 60, 0.1, 1e6, 0, -1e6, -1e4, 8) + wgn(0.1, 3), 12345) * cw(0.5, 3000);",
};
static const int64_t places[] = {0, 12345678901, INT64_C(100000000000000)};

TEST(blocks, .end = ARRAY_LEN(satellites) * ARRAY_LEN(places))
{
    int64_t first = places[_i % (int)ARRAY_LEN(places)];
    static double whole[N], cut[N];
    double power = 0;

    open_live(satellites[_i / (int)ARRAY_LEN(places)], &format);
    evaluate(0, first, N, false, whole);
    evaluate(0, first, N, true, cut);
    ck_assert_mem_eq(whole, cut, sizeof(whole));
    for (size_t i = 0; i < N; i++)
        power += whole[i] * whole[i] / N;
    ck_assert_double_gt(power, 1e-3);
    close_live();
}

/* How many samples differ by more than 'tolerance': those at the edges of chips may. */
static size_t count_different(int64_t first, double tolerance)
{
    static double a[N], b[N];
    size_t n = 0;

    evaluate(0, first, N, true, a);
    evaluate(1, first, N, true, b);
    for (size_t i = 0; i < N; i++)
        n += !(fabs(a[i] - b[i]) <= tolerance);
    return n;
}

/* Pairs that are the same signal. */
static const struct {
    const char *text;
    double tolerance;
} pairs[] = {
    {"a = gnss(L1CA, 7, 60, 0.1, 1e6, 0, 999, 1, 4); delay(a, 77777); gnss(L1CA, 7, 60, 0.1, 1e6, 77777, 999, 1, 4);",
     0},
    {"a = gnss(L5I, 7, 60, 0.1, 1e6, 0.5, 999, 1, 4); n = wgn(0.2, 1); delay(delay(a * 2 + n, 40), -7);"
     "2 * delay(a, 33) + delay(n, 33);",
     1e-6},
    {"a = gnss(L1CA, 7, 60, 0.1, 1e6, 0, 999, 1, 4); track(a, 1.75, 0); gnss(L1CA, 7, 60, 0.1, 1e6, 1.75, 999, 1, 4);",
     1e-6},
    {"a = gnss(L1CA, 7, 60, 0.1, 1e6, 3, 999, 1, 4); n = wgn(0.2, 1); track(delay(a - n, 9), 1.75, 1e-7);"
     "track(a, 10.75, 1e-7) - track(n, 10.75, 1e-7);",
     1e-6},
    {"c = 0.5; a = gnss(L5I, 7, 60, 0.1, 1e6, 3, 0, 0); track(c * a - 2 * c, 5.5, 1e-5); 0.5 * track(a, 5.5, 1e-5) - "
     "1;",
     5e-5},
    /* A path that changes by 1 m/s or so: as a delay, and as Doppler, of a digitiser without oscillator. */
    {"track(gnss(L1CA, 9, 60, 0.1, 1575.42e6, 0, 0, 0, 2), 0, 1e-9); gnss(L1CA, 9, 60, 0.1, 1575.42e6, 0, -1.57542, 0, "
     "2);",
     1e-5},
};

TEST(same_signals, .end = ARRAY_LEN(pairs) * 2)
{
    open_live(pairs[_i / 2].text, &format);
    ck_assert_uint_le(count_different(_i % 2 ? 12345678901 : 0, pairs[_i / 2].tolerance),
                      pairs[_i / 2].tolerance > 0 ? 3 : 0);
    close_live();
}

/* A signal inside repeat() is the signal at the timestamp modulo the period, also behind a delay. */
TEST(repeats, .end = ARRAY_LEN(places))
{
    static double repeated[N], period[5000];
    int64_t first = places[_i] + 17;
    size_t n_wrong = 0;

    open_live("x = gnss(L1CA, 7, 60, 0.1, 1e6, 1234.25, 999, 1, 4) + wgn(0.1, 3); delay(repeat(x), 40); x;", &format);
    evaluate(0, first, N, true, repeated);
    evaluate(1, 0, 5000, true, period);
    for (size_t i = 0; i < N; i++)
        n_wrong += !(fabs(repeated[i] - period[(first + (int64_t)i - 40 + 5000) % 5000]) <= 1e-6);
    ck_assert_uint_eq(n_wrong, 0);
    close_live();
}

/* The signs by which 'output' 0 is output 1, one of each code period of 4000 samples; all samples of a period agree. */
static void read_signs(int64_t first, size_t n_periods, int *signs)
{
    static double a[4000], b[4000];
    size_t n_wrong = 0;

    for (size_t k = 0; k < n_periods; k++) {
        evaluate(0, first + (int64_t)k * 4000, 4000, true, a);
        evaluate(1, first + (int64_t)k * 4000, 4000, true, b);
        signs[k] = a[0] == b[0] ? 1 : -1;
        for (size_t i = 0; i < 4000; i++)
            n_wrong += a[i] != signs[k] * b[i];
    }
    ck_assert_uint_eq(n_wrong, 0);
}

/* Symbols of 20 and 10 periods, before the start too; half of them are -1, and another seed has others.  The half sample
 * keeps the edges of periods between samples. */
TEST(data, .end = 2)
{
    const size_t n_symbol = _i ? 10 : 20, n_periods = 200 * n_symbol;
    int *signs = malloc(2 * n_periods * sizeof(*signs)), sum = 0, product = 0;
    char text[300];

    for (int seed = 0; seed < 2; seed++) {
        snprintf(text, sizeof(text), "%s, 2, 60, 0.1, 1e6, 399999.5, 0, 0", _i ? "L5I" : "L1CA");
        snprintf(text + strlen(text), 100, ", %d);", 7 + seed);
        char *both = NULL;
        ck_assert(asprintf(&both, "gnss(%s gnss(%.*s);", text, (int)(strrchr(text, ',') - text), text) > 0);
        open_live(both, &format);
        read_signs(0, n_periods, signs + (size_t)seed * n_periods);
        close_live();
        free(both);
    }
    for (size_t k = 0; k < n_periods; k++) {
        ck_assert_int_eq(signs[k], signs[k - k % n_symbol]);
        sum += signs[k];
        product += signs[k] * signs[n_periods + k];
    }
    ck_assert_int_lt(abs(sum), 60 * (int)n_symbol); /* 4 standard deviations of 200 symbols */
    ck_assert_int_lt(abs(product), 60 * (int)n_symbol);
    free(signs);
}

static void check_refused(const char *text, double rate_hz, const char *code_file, int expected, const char *says)
{
    char why[256] = "";

    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "'%s': %s", text, why);
    ck_assert_int_eq(dsim_gnss_compute(program, rate_hz, code_file, why, sizeof(why)), expected);
    ck_assert_msg(strstr(why, says), "%s", why);
    dsim_program_free(program);
}

TEST(refusals)
{
    check_refused("gnss(L1CA, 1, 45, 0.1, 0, 0, 0, 0);", 340e3, NULL, -EINVAL,
                  "gnss(L1CA, ...) needs an adc_sample_rate of at least 341000 Hz");
    check_refused("1 + gnss(E1B, 1, 45, 0.1, 0, 0, 0, 0);", 4091e3, "x", -EINVAL, "at least 4092000 Hz");
    check_refused("gnss(E1C, 1, 45, 0.1, 0, 0, 0, 0);", 8e6, NULL, -EINVAL, "needs a file of codes, signals.code_file");
    check_refused("gnss(E1C, 1, 45, 0.1, 0, 0, 0, 0);", 8e6, "/nonexistent/codes", -ENOENT, "/nonexistent/codes");
}

/* Nothing is computed where nothing can be, and neither wraps nor traps. */
TEST(far_away)
{
    static double values[5000];
    static const int64_t timestamps[] = {0, 1000000000000000, INT64_C(4000000000000000000)};

    open_live(
        "gnss(L1CA, 1, 60, 0.1, 1e12, -1e17, 1e6, 1e4, 1); a = gnss(L1CA, 1, 60, 0.1, -1e12, 1e17, -1e6, -1e4, 1);"
        "track(delay(a, -100000000000000), -1e9, -1e-3);",
        &format);
    for (size_t i = 0; i < 2 * ARRAY_LEN(timestamps); i++) {
        evaluate(i % 2, timestamps[i / 2], 5000, true, values);
        size_t n_wrong = 0;
        for (size_t k = 0; k < 5000; k++)
            n_wrong += !(fabs(values[k]) < 1);
        ck_assert_uint_eq(n_wrong, 0);
    }
    close_live();
}

SUITE(.timeout_s = 120, .start = random_start);
