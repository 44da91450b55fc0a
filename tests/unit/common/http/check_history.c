/* check_history - the history of counters over minutes and an hour: how much, when, and which flows stopped. */
#include "common/http/history.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <string.h>

#define UNIX_S 1700000000

static struct counter missing, heaps, slow, refused, jumped, other, malformed[3], skipped, refused_heaps, contested[4],
    dropped;
static struct gauge power, ahead, delay_ms, synchronised;
static struct history *history;
static int64_t second;

static void setup(void)
{
    missing.value = 5; /* what was lost before the first look is not its business */
    heaps.value = slow.value = refused.value = jumped.value = other.value = 0;
    malformed[0].value = malformed[1].value = malformed[2].value = skipped.value = refused_heaps.value = 0;
    dropped.value = 0;
    power.value = ahead.value = delay_ms.value = 0;
    synchronised.value = 1;
    second = 0;
    stats_gauge("fgpu_input_power_dbfs", "h", "antenna=\"m001\",pol=\"0\"", &power);
    stats_gauge("fgpu_clock_synchronised", "h", NULL, &synchronised);
    stats_gauge("fgpu_output_ahead_seconds", "h", "antenna=\"m001\",stream=\"wide\"", &ahead);
    stats_gauge_scaled("fgpu_output_delay_seconds", "h", "antenna=\"m001\",stream=\"wide\"", &delay_ms, 1e-3);
    stats_counter("fgpu_input_heaps", "h", "antenna=\"m001\",pol=\"0\"", &heaps);
    stats_counter("fgpu_input_missing_heaps", "h", "antenna=\"m001\",pol=\"0\"", &missing);
    stats_counter("fgpu_output_heaps", "h", "antenna=\"m001\",stream=\"wide\"", &slow);
    stats_counter("fgpu_input_rejected_packets", "h", "antenna=\"m001\",pol=\"1\",reason=\"bad_sender\"", &refused);
    stats_counter("fgpu_input_rejected_packets", "h", "antenna=\"m001\",pol=\"1\",reason=\"jump\"", &jumped);
    stats_counter("fgpu_input_bytes", "h", "antenna=\"m001\",pol=\"1\"", &other);
    stats_counter("fgpu_input_malformed_packets", "h", "thread=\"recv0\",error=\"bad_magic\"", &malformed[0]);
    stats_counter("xbgpu_input_malformed_packets", "h", "thread=\"recv1\",error=\"truncated\"", &malformed[1]);
    stats_counter("visrec_malformed_packets", "h", "thread=\"visrec-recv\",error=\"truncated\"", &malformed[2]);
    stats_counter("xbgpu_output_x_skipped_accs", "h", "stream=\"vis\"", &skipped);
    stats_counter("fgpu_gnss_dropped_heaps", "h", "antenna=\"m001\",stream=\"gnss-l1\"", &dropped);
    stats_counter("xbgpu_feng_refused_heaps", "h", "feng=\"3\",antenna=\"m004\"", &refused_heaps);
    for (int i = 0; i < 6; i++) {
        char labels[64];
        snprintf(labels, sizeof(labels), "feng=\"%d\",antenna=\"m00%d\"", i, i + 1);
        stats_counter("xbgpu_feng_heaps", "h", labels, &other);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const fengs[] = {"fengs=\"0-3\"", "fengs=\"1-3\"", "fengs=\"5-5\"", "fengs=\"5-6\""};
        contested[i].value = 0;
        stats_counter("xbgpu_input_contested_heaps", "h", fengs[i], &contested[i]);
    }
    ck_assert_int_eq(history_create(&history), 0);
    history_sample(history, 77 * NS_PER_S, UNIX_S * NS_PER_S);
}

static void teardown(void)
{
    history_destroy(history);
    stats_reset();
}

/* Looks each second, in which so many heaps come. */
static void pass(int n_seconds, uint64_t n_heaps)
{
    for (int i = 0; i < n_seconds; i++) {
        second++;
        counter_add(&heaps, n_heaps);
        counter_add(&other, 1);
        history_sample(history, (77 + second) * NS_PER_S, (UNIX_S + second) * NS_PER_S);
    }
}

static json_t *find(json_t *all, const char *where, const char *what)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *row = json_array_get(all, i);
        if (!strcmp(json_string_value(json_object_get(row, "where")), where) &&
            !strcmp(json_string_value(json_object_get(row, "what")), what))
            return row;
    }
    return NULL;
}

static void check_row(const char *where, const char *what, int64_t n_minute, int64_t n_hour, int64_t since,
                      int64_t last)
{
    json_t *all = history_describe(history), *row = find(all, where, what);

    ck_assert_msg(row != NULL, "no row %s: %s", where, what);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "n_minute")), n_minute);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "n_hour")), n_hour);
    ck_assert_double_eq(json_real_value(json_object_get(row, "since")), (double)(UNIX_S + since));
    ck_assert_double_eq(json_real_value(json_object_get(row, "last")), (double)(UNIX_S + last));
    ck_assert_int_gt((int)strlen(json_string_value(json_object_get(row, "advice"))), 10);
    json_decref(all);
}

static void check_ongoing(const char *where, const char *what, bool expected)
{
    json_t *all = history_describe(history);

    ck_assert_int_eq(json_is_true(json_object_get(find(all, where, what), "ongoing")), expected);
    json_decref(all);
}

static void check_none(const char *where, const char *what)
{
    json_t *all = history_describe(history);

    ck_assert_ptr_null(find(all, where, what));
    json_decref(all);
}

TEST(moves_are_remembered_for_an_hour)
{
    pass(10, 9);
    check_none("m001 pol 0", "packets missing");
    counter_add(&missing, 23);
    pass(1, 9); /* 11 */
    check_row("m001 pol 0", "packets missing", 23, 23, 11, 11);
    pass(5, 9);
    counter_add(&missing, 2);
    pass(1, 9); /* 17: the same trouble still */
    check_row("m001 pol 0", "packets missing", 25, 25, 11, 17);
    pass(54, 9); /* 71: the first is more than a minute ago */
    check_row("m001 pol 0", "packets missing", 2, 25, 11, 17);
    pass(10, 9); /* 81 */
    check_row("m001 pol 0", "packets missing", 0, 25, 11, 17);
    counter_add(&missing, 1);
    pass(1, 9); /* 82: another trouble */
    check_row("m001 pol 0", "packets missing", 1, 26, 82, 82);
    pass(60 * 60, 9);
    check_row("m001 pol 0", "packets missing", 0, 1, 82, 82);
    pass(60, 9);
    check_none("m001 pol 0", "packets missing");
}

TEST(labels_and_reasons)
{
    pass(2, 9);
    counter_add(&refused, 4);
    pass(1, 9);
    check_row("m001 pol 1", "packets refused (bad_sender)", 4, 4, 3, 3);
    json_t *all = history_describe(history);
    ck_assert_uint_eq(json_array_size(all), 1);
    ck_assert(strstr(json_string_value(json_object_get(json_array_get(all, 0), "advice")), "this program do not agree"));
    json_decref(all);
    counter_add(&jumped, 40);
    pass(1, 9);
    all = history_describe(history);
    ck_assert_uint_eq(json_array_size(all), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 0), "what")), "packets refused (jump)");
    ck_assert(strstr(json_string_value(json_object_get(json_array_get(all, 0), "advice")), "time is wrong"));
    json_decref(all);
}

/* What came and cannot be used is named by its antenna, output or thread. */
TEST(heaps_and_packets_of_no_use)
{
    pass(2, 9);
    counter_add(&malformed[0], 4);
    counter_add(&malformed[1], 5);
    counter_add(&malformed[2], 6);
    counter_add(&skipped, 7);
    counter_add(&refused_heaps, 8);
    counter_add(&dropped, 9);
    pass(1, 9);
    check_row("recv0", "packets malformed (bad_magic)", 4, 4, 3, 3);
    check_row("recv1", "packets malformed (truncated)", 5, 5, 3, 3);
    check_row("visrec-recv", "packets malformed (truncated)", 6, 6, 3, 3);
    check_row("vis", "dumps skipped", 7, 7, 3, 3);
    check_row("m004", "heaps refused", 8, 8, 3, 3);
    check_row("m001 gnss-l1", "heaps dropped", 9, 9, 3, 3);
}

/* Groups of F-engines are called as their antennas: few one by one, many by the first and the last. */
TEST(groups_of_antennas)
{
    pass(2, 9);
    for (unsigned i = 0; i < 4; i++)
        counter_add(&contested[i], i + 1);
    pass(1, 9);
    check_row("m001 to m004", "heaps contested", 1, 1, 3, 3);
    check_row("m002, m003, m004", "heaps contested", 2, 2, 3, 3);
    check_row("m006", "heaps contested", 3, 3, 3, 3);
    check_row("F-engines 5-6", "heaps contested", 4, 4, 3, 3); /* there is no antenna 6 */
}

/* Looks that the main thread could not make in time leave no old seconds behind. */
TEST(looks_that_are_late)
{
    pass(2, 9);
    counter_add(&missing, 7);
    pass(1, 9); /* 3 */
    second += 200;
    pass(1, 9);
    check_row("m001 pol 0", "packets missing", 0, 7, 3, 3);
    second += 4000;
    pass(1, 9);
    check_none("m001 pol 0", "packets missing");
}

TEST(flows_that_stop)
{
    pass(5, 0);
    check_none("m001 pol 0", "no packets"); /* it never came */
    pass(10, 9);                            /* 15 */
    pass(2, 0);
    check_none("m001 pol 0", "no packets");
    pass(1, 0); /* 18: the third second without */
    check_row("m001 pol 0", "no packets", 3, 3, 15, 18);
    pass(100, 0); /* 118 */
    check_row("m001 pol 0", "no packets", 60, 103, 15, 118);
    check_ongoing("m001 pol 0", "no packets", true);
    pass(1, 9);
    check_row("m001 pol 0", "no packets", 59, 103, 15, 118);
    check_ongoing("m001 pol 0", "no packets", false);
    pass(61, 9); /* 180 */
    check_row("m001 pol 0", "no packets", 0, 103, 15, 118);
    pass(3, 0); /* the long silence taught nothing */
    check_row("m001 pol 0", "no packets", 3, 106, 180, 183);
}

/* A silence and the heaps that the silence cost end in the same second: the count precedes the silence. */
TEST(counts_precede_their_silence)
{
    pass(10, 9);
    for (int i = 0; i < 5; i++) {
        counter_add(&missing, 9);
        pass(1, 0);
    }
    pass(1, 9);
    check_row("m001 pol 0", "packets missing", 45, 45, 11, 15);
    check_row("m001 pol 0", "no packets", 5, 5, 10, 15);
    json_t *all = history_describe(history);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 0), "what")), "packets missing");
    json_decref(all);
}

/* A main thread that stood still for long does not make silences of the same length look usual. */
TEST(late_looks_teach_nothing)
{
    pass(10, 9);
    second += 100;
    pass(3, 9); /* 113 */
    pass(3, 0);
    check_ongoing("m001 pol 0", "no packets", true);
}

/* A gauge that nobody has set is no trouble, but a clock is. */
TEST(gauges_out_of_range)
{
    gauge_set(&synchronised, 0);
    pass(5, 9);
    check_none("m001 pol 0", "input power out of range");
    check_row("host clock", "clock not synchronised", 5, 5, 1, 5);
    gauge_set(&power, -34);
    gauge_set(&synchronised, 1);
    pass(3, 9); /* 8 */
    check_row("m001 pol 0", "input power out of range", 3, 3, 6, 8);
    check_ongoing("m001 pol 0", "input power out of range", true);
    check_ongoing("host clock", "clock not synchronised", false);
    gauge_set(&power, -33);
    gauge_set(&delay_ms, 100);
    pass(1, 9);
    check_none("m001 wide", "delay above 0.1 s");
    check_ongoing("m001 pol 0", "input power out of range", false);
    gauge_set(&power, -6);
    gauge_set(&ahead, 1);
    gauge_set(&delay_ms, 101);
    second += 9; /* looks came late */
    pass(1, 9);  /* 19 */
    check_row("m001 pol 0", "input power out of range", 13, 13, 6, 19);
    check_ongoing("m001 wide", "silent after a wrong delay", true);
    check_ongoing("m001 wide", "delay above 0.1 s", true);
}

/* Output that comes every 10 s is no silence in between. */
TEST(flows_that_are_slow)
{
    for (int i = 0; i < 5; i++) {
        counter_add(&slow, 1);
        pass(10, 9);
        check_none("m001 wide", "no output");
    }
    pass(10, 9); /* 60; the last came at 41 */
    check_none("m001 wide", "no output");
    pass(2, 9);
    check_row("m001 wide", "no output", 21, 21, 41, 62);
}

SUITE(.setup = setup, .teardown = teardown);
