/* check_stats.c - the text that Prometheus reads, character by character. */
#include "common/telemetry/stats.h"

#include "common/base/clock.h"
#include "tests/unit/test_main.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The page, to be freed. */
static char *make_page(void)
{
    char *page = NULL;
    size_t page_bytes;
    FILE *out = open_memstream(&page, &page_bytes);

    ck_assert_ptr_nonnull(out);
    stats_write(out);
    ck_assert_int_eq(fclose(out), 0);
    return page;
}

/* Compares what the page has beside the families *_created. */
static void check_page(const char *expected)
{
    char *page = make_page(), *to = page;

    for (char *line = page, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        size_t n = (size_t)(next - line);
        char *created = memmem(line, n, "_created", 8);
        if (!created)
            memmove(to, line, n);
        to += created ? 0 : n;
    }
    *to = '\0';
    ck_assert_str_eq(page, expected);
    free(page);
}

TEST(empty)
{
    check_page("");
    stats_reset();
    check_page("");
}

/* Samples of one name come together, whatever was registered in between. */
TEST(grouping)
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

static int64_t ask(const void *arg)
{
    return ++*(int64_t *)(uintptr_t)arg;
}

/* What has to be asked for is, once for each look. */
TEST(asked_for)
{
    int64_t n = INT64_C(1) << 53;

    stats_gauge_read("cbf_drops", "What was lost.", "thread=\"recv0\"", ask, &n);
    for (int i = 1; i <= 2; i++) {
        char page[200];
        snprintf(page, sizeof(page),
                 "# HELP cbf_drops What was lost.\n"
                 "# TYPE cbf_drops gauge\n"
                 "cbf_drops{thread=\"recv0\"} %" PRId64 "\n",
                 (INT64_C(1) << 53) + i);
        check_page(page);
    }
}

TEST(scaled)
{
    struct gauge latency_ns = {0};

    gauge_set(&latency_ns, 1500);
    stats_gauge_scaled("cbf_latency_seconds", "Back\\slash and\nnewline.", NULL, &latency_ns, 1e-9);
    check_page("# HELP cbf_latency_seconds Back\\\\slash and\\nnewline.\n"
               "# TYPE cbf_latency_seconds gauge\n"
               "cbf_latency_seconds 1.5e-06\n");
}

TEST(factor)
{
    struct counter heaps = {0};

    counter_add(&heaps, 3);
    stats_counter_times("cbf_samples", "Samples.", NULL, &heaps, 4096);
    check_page("# HELP cbf_samples_total Samples.\n"
               "# TYPE cbf_samples_total counter\n"
               "cbf_samples_total 12288\n");
}

TEST(labels)
{
    char text[64] = "";

    ck_assert_ptr_eq(stats_label(text, sizeof(text), "name", "a\"b\\c\nd"), text);
    ck_assert_str_eq(text, "name=\"a\\\"b\\\\c\\nd\"");
    stats_label(text, sizeof(text), "pol", "");
    ck_assert_str_eq(text, "name=\"a\\\"b\\\\c\\nd\",pol=\"\"");
}

/* Behind each family of counters comes since when they count; behind one of gauges does not. */
TEST(created)
{
    int64_t before_ns = clock_unix_ns();
    struct counter heaps[2] = {{0}};
    struct gauge depth = {0};
    double times[2];

    stats_counter("cbf_heaps", "Heaps.", "pol=\"0\"", &heaps[0]);
    stats_counter("cbf_heaps", "Heaps.", "pol=\"1\"", &heaps[1]);
    stats_gauge("cbf_depth", "Depth.", NULL, &depth);
    char *page = make_page(), *found = strstr(page, "# HELP cbf_heaps_created ");
    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(sscanf(found,
                            "# HELP cbf_heaps_created %*[^\n]\n# TYPE cbf_heaps_created gauge\n"
                            "cbf_heaps_created{pol=\"0\"} %lf\ncbf_heaps_created{pol=\"1\"} %lf\n# HELP cbf_depth",
                            &times[0], &times[1]),
                     2);
    ck_assert_double_ge(times[0], (double)before_ns / 1e9 - 0.002);
    ck_assert_double_le(times[0], (double)clock_unix_ns() / 1e9 + 0.002);
    ck_assert_double_eq(times[0], times[1]);
    ck_assert_ptr_null(strstr(page, "cbf_depth_created"));
    free(page);
}

struct seen {
    int n;
    struct stats_value values[8];
};

static void see(void *arg, const struct stats_value *value)
{
    struct seen *seen = arg;

    ck_assert_int_lt(seen->n, 8);
    seen->values[seen->n++] = *value;
}

static struct seen see_all(void)
{
    struct seen seen = {0};

    stats_each(see, &seen);
    return seen;
}

/* Rates belong to the time between calls that are neither too near nor too far from each other. */
TEST(rates)
{
    struct counter heaps = {0};
    struct gauge power = {0};
    const int64_t t_ns = 17 * NS_PER_S;

    gauge_set(&power, -21500000);
    counter_add(&heaps, 1000);
    stats_counter("cbf_heaps", "Heaps.", "pol=\"0\"", &heaps);
    stats_gauge_scaled("cbf_power_dbfs", "Power.", NULL, &power, 1e-6);
    stats_make_rates(t_ns);
    struct seen seen = see_all();
    ck_assert_int_eq(seen.n, 2);
    ck_assert_str_eq(seen.values[0].name, "cbf_heaps_total");
    ck_assert_str_eq(seen.values[0].labels, "pol=\"0\"");
    ck_assert(seen.values[0].is_counter);
    ck_assert_uint_eq(seen.values[0].total, 1000);
    ck_assert_double_nan(seen.values[0].per_s);
    ck_assert_str_eq(seen.values[1].labels, "");
    ck_assert(!seen.values[1].is_counter);
    ck_assert_double_eq_tol(seen.values[1].gauge, -21.5, 1e-12);

    counter_add(&heaps, 500);
    stats_make_rates(t_ns + STATS_RATES_MIN_NS - 1);
    ck_assert_double_nan(see_all().values[0].per_s);
    stats_make_rates(t_ns + 2 * NS_PER_S);
    ck_assert_double_eq_tol(see_all().values[0].per_s, 250, 1e-9);
    counter_add(&heaps, 30);
    stats_make_rates(t_ns + 2 * NS_PER_S + STATS_RATES_MIN_NS - 1); /* too soon: as before */
    ck_assert_double_eq_tol(see_all().values[0].per_s, 250, 1e-9);
    stats_make_rates(t_ns + 5 * NS_PER_S);
    ck_assert_double_eq_tol(see_all().values[0].per_s, 10, 1e-9);
    ck_assert_uint_eq(see_all().values[0].total, 1530);
    stats_make_rates(t_ns + 6 * NS_PER_S + STATS_RATES_MAX_NS); /* nobody looked for too long */
    ck_assert_double_nan(see_all().values[0].per_s);
}

/* The registry copies what it is given. */
TEST(strings_are_copied)
{
    struct counter counter = {0};
    char name[] = "cbf_a", help[] = "Help.", text[] = "x=\"1\"";

    stats_counter(name, help, text, &counter);
    memset(name, '?', strlen(name));
    memset(help, '?', strlen(help));
    memset(text, '?', strlen(text));
    check_page("# HELP cbf_a_total Help.\n# TYPE cbf_a_total counter\ncbf_a_total{x=\"1\"} 0\n");
}

static void *count(void *arg)
{
    for (int i = 0; i < 10000; i++)
        counter_add(arg, 1);
    return NULL;
}

/* Readers may look while the data path counts; TSan watches. */
TEST(threads)
{
    struct counter counter = {0};
    pthread_t writers[2];

    stats_counter("cbf_a", "A.", NULL, &counter);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&writers[i], NULL, count, &counter), 0);
    for (int i = 0; i < 20; i++)
        free(make_page());
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    check_page("# HELP cbf_a_total A.\n# TYPE cbf_a_total counter\ncbf_a_total 20000\n");
}

/* A name that Prometheus would refuse is a bug of the caller. */
TEST(bad_name, .end = 4, .signal = SIGABRT)
{
    static const char *const names[] = {"", "0a", "a-b", "a b"};
    struct gauge gauge = {0};

    stats_gauge(names[_i], "Help.", NULL, &gauge);
}

SUITE(.teardown = stats_reset);
