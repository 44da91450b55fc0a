/* check_stats.c - the text that Prometheus reads, character by character. */
#include "common/stats.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void check_page(const char *expected)
{
    char *page = stats_format();

    ck_assert_ptr_nonnull(page);
    ck_assert_str_eq(page, expected);
    free(page);
}

START_TEST(empty)
{
    check_page("");
    stats_reset();
    check_page("");
}
END_TEST

/* Samples of one name come together, whatever was registered in between. */
START_TEST(grouping)
{
    struct counter packets[2] = {{0}}, heaps = {0};
    struct gauge depth = {0};

    counter_add(&packets[0], 5);
    counter_add(&packets[0], UINT64_MAX - 10);
    gauge_set(&depth, INT64_MIN);
    stats_counter("cbf_packets", "Packets received.", "pol=\"0\"", &packets[0]);
    stats_gauge("cbf_depth", "Depth of the queue.", NULL, &depth);
    stats_counter("cbf_heaps", "Heaps.", "", &heaps);
    stats_counter("cbf_packets", "Another help, which is not shown.", "pol=\"1\"", &packets[1]);
    check_page("# HELP cbf_packets_total Packets received.\n"
               "# TYPE cbf_packets_total counter\n"
               "cbf_packets_total{pol=\"0\"} 18446744073709551610\n"
               "cbf_packets_total{pol=\"1\"} 0\n"
               "# HELP cbf_depth Depth of the queue.\n"
               "# TYPE cbf_depth gauge\n"
               "cbf_depth -9223372036854775808\n"
               "# HELP cbf_heaps_total Heaps.\n"
               "# TYPE cbf_heaps_total counter\n"
               "cbf_heaps_total 0\n");
    counter_add(&packets[1], 7);
    gauge_set(&depth, 3);
    check_page("# HELP cbf_packets_total Packets received.\n"
               "# TYPE cbf_packets_total counter\n"
               "cbf_packets_total{pol=\"0\"} 18446744073709551610\n"
               "cbf_packets_total{pol=\"1\"} 7\n"
               "# HELP cbf_depth Depth of the queue.\n"
               "# TYPE cbf_depth gauge\n"
               "cbf_depth 3\n"
               "# HELP cbf_heaps_total Heaps.\n"
               "# TYPE cbf_heaps_total counter\n"
               "cbf_heaps_total 0\n");
    stats_reset();
    check_page("");
}
END_TEST

START_TEST(scaled)
{
    struct gauge latency_ns = {0};

    gauge_set(&latency_ns, 1500);
    stats_gauge_scaled("cbf_latency_seconds", "Back\\slash and\nnewline.", NULL, &latency_ns, 1e-9);
    check_page("# HELP cbf_latency_seconds Back\\\\slash and\\nnewline.\n"
               "# TYPE cbf_latency_seconds gauge\n"
               "cbf_latency_seconds 1.5e-06\n");
    stats_reset();
}
END_TEST

START_TEST(labels)
{
    char text[64] = "";

    ck_assert_ptr_eq(stats_label(text, sizeof(text), "name", "a\"b\\c\nd"), text);
    ck_assert_str_eq(text, "name=\"a\\\"b\\\\c\\nd\"");
    stats_label(text, sizeof(text), "pol", "");
    ck_assert_str_eq(text, "name=\"a\\\"b\\\\c\\nd\",pol=\"\"");
}
END_TEST

/* The registry copies what it is given. */
START_TEST(strings_are_copied)
{
    struct counter counter = {0};
    char name[] = "cbf_a", help[] = "Help.", text[] = "x=\"1\"";

    stats_counter(name, help, text, &counter);
    memset(name, '?', strlen(name));
    memset(help, '?', strlen(help));
    memset(text, '?', strlen(text));
    check_page("# HELP cbf_a_total Help.\n# TYPE cbf_a_total counter\ncbf_a_total{x=\"1\"} 0\n");
    stats_reset();
}
END_TEST

static void *count(void *arg)
{
    for (int i = 0; i < 10000; i++)
        counter_add(arg, 1);
    return NULL;
}

/* Readers may look while the data path counts; TSan watches. */
START_TEST(threads)
{
    struct counter counter = {0};
    pthread_t writers[2];

    stats_counter("cbf_a", "A.", NULL, &counter);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&writers[i], NULL, count, &counter), 0);
    for (int i = 0; i < 20; i++)
        free(stats_format());
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    check_page("# HELP cbf_a_total A.\n# TYPE cbf_a_total counter\ncbf_a_total 20000\n");
    stats_reset();
}
END_TEST

/* A name that Prometheus would refuse is a bug of the caller. */
START_TEST(bad_name)
{
    static const char *const names[] = {"", "0a", "a-b", "a b"};
    struct gauge gauge = {0};

    stats_gauge(names[_i], "Help.", NULL, &gauge);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stats");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_test(tcase, empty);
    tcase_add_test(tcase, grouping);
    tcase_add_test(tcase, scaled);
    tcase_add_test(tcase, labels);
    tcase_add_test(tcase, strings_are_copied);
    tcase_add_test(tcase, threads);
    tcase_add_loop_test_raise_signal(tcase, bad_name, SIGABRT, 0, 4);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
