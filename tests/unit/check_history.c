/* check_history - what is remembered of counters over minutes and an hour: how much, when, and which flows stopped. */
#include "common/history.h"
#include "common/stats.h"
#include "common/units.h"

#include <check.h>
#include <string.h>

#define UNIX_S 1700000000

static struct counter missing, heaps, slow, refused, other;
static struct history *history;
static int64_t second;

static void setup(void)
{
    missing.value = 5; /* what was lost before the first look is not its business */
    heaps.value = slow.value = refused.value = other.value = 0;
    second = 0;
    stats_counter("fgpu_input_heaps", "h", "antenna=\"m001\",pol=\"0\"", &heaps);
    stats_counter("fgpu_input_missing_heaps", "h", "antenna=\"m001\",pol=\"0\"", &missing);
    stats_counter("fgpu_output_heaps", "h", "antenna=\"m001\",stream=\"wide\"", &slow);
    stats_counter("fgpu_input_rejected_packets", "h", "antenna=\"m001\",pol=\"1\",reason=\"bad_sender\"", &refused);
    stats_counter("fgpu_input_bytes", "h", "antenna=\"m001\",pol=\"1\"", &other);
    ck_assert_int_eq(history_create(&history), 0);
    history_look(history, 77 * NS_PER_S, UNIX_S * NS_PER_S);
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
        history_look(history, (77 + second) * NS_PER_S, (UNIX_S + second) * NS_PER_S);
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

static void check_none(const char *where, const char *what)
{
    json_t *all = history_describe(history);

    ck_assert_ptr_null(find(all, where, what));
    json_decref(all);
}

START_TEST(moves_are_remembered_for_an_hour)
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
    pass(59 * 60, 9);
    check_row("m001 pol 0", "packets missing", 0, 1, 82, 82);
    pass(60, 9);
    check_none("m001 pol 0", "packets missing");
}
END_TEST

START_TEST(labels_and_reasons)
{
    pass(2, 9);
    counter_add(&refused, 4);
    pass(1, 9);
    check_row("m001 pol 1", "packets refused (bad_sender)", 4, 4, 3, 3);
    json_t *all = history_describe(history);
    ck_assert_uint_eq(json_array_size(all), 1);
    json_decref(all);
}
END_TEST

/* Looks that the main thread could not make in time leave no old seconds behind. */
START_TEST(looks_that_are_late)
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
END_TEST

START_TEST(flows_that_stop)
{
    pass(5, 0);
    check_none("m001 pol 0", "no packets"); /* it never came */
    pass(10, 9);                            /* 15 */
    pass(2, 0);
    check_none("m001 pol 0", "no packets");
    pass(1, 0); /* 18: the third second without */
    check_row("m001 pol 0", "no packets", 0, 0, 15, 15);
    pass(100, 0);
    check_row("m001 pol 0", "no packets", 0, 0, 15, 15);
    pass(1, 9);
    check_none("m001 pol 0", "no packets");
    pass(3, 0); /* the long silence taught nothing */
    check_row("m001 pol 0", "no packets", 0, 0, 119, 119);
}
END_TEST

/* Output that comes every 10 s is no silence in between. */
START_TEST(flows_that_are_slow)
{
    for (int i = 0; i < 5; i++) {
        counter_add(&slow, 1);
        pass(10, 9);
        check_none("m001 wide", "no output");
    }
    pass(10, 9); /* 60; the last came at 41 */
    check_none("m001 wide", "no output");
    pass(2, 9);
    check_row("m001 wide", "no output", 0, 0, 41, 41);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history");
    TCase *tests = tcase_create("history");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, moves_are_remembered_for_an_hour);
    tcase_add_test(tests, labels_and_reasons);
    tcase_add_test(tests, looks_that_are_late);
    tcase_add_test(tests, flows_that_stop);
    tcase_add_test(tests, flows_that_are_slow);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}
