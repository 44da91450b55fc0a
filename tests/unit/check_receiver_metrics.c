/* check_receiver_metrics - under which names refused packets are published. */
#include "common/receiver_metrics.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct assembler_stats stats;

static void check_published(const char *prefix, const char *line, bool expected)
{
    char whole[160], *text;

    stats_reset();
    assembler_stats_register(prefix, "pol=\"0\"", &stats);
    text = stats_format();
    ck_assert_ptr_nonnull(text);
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    ck_assert_msg((strstr(text, whole) != NULL) == expected, "%s: %s in\n%s", prefix, line, text);
    free(text);
    stats_reset();
}

/* Where a heap is one packet, packets refused are heaps refused, and the reference's names are true. */
START_TEST(heaps_of_one_packet)
{
    check_published("fgpu_input", "fgpu_input_too_old_heaps_total{pol=\"0\"} 5", true);
    check_published("fgpu_input", "fgpu_input_bad_timestamp_heaps_total{pol=\"0\"} 6", true);
    check_published("fgpu_input", "fgpu_input_metadata_heaps_total{pol=\"0\"} 7", true);
    check_published("fgpu_input", "fgpu_input_rejected_packets_total{pol=\"0\",reason=\"too_old\"} 5", false);
    check_published("fgpu_input", "fgpu_input_rejected_packets_total{pol=\"0\",reason=\"duplicate\"} 8", true);
}
END_TEST

START_TEST(heaps_of_several_packets)
{
    check_published("xbgpu_input", "xbgpu_input_too_old_heaps_total{pol=\"0\"} 5", false);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"too_old\"} 5", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"bad_timestamp\"} 6", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"no_items\"} 7", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"duplicate\"} 8", true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("receiver_metrics");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    counter_add(&stats.rejects[REJECT_TOO_OLD], 5);
    counter_add(&stats.rejects[REJECT_BAD_TIMESTAMP], 6);
    counter_add(&stats.rejects[REJECT_NO_ITEMS], 7);
    counter_add(&stats.rejects[REJECT_DUPLICATE], 8);
    tcase_add_test(tcase, heaps_of_one_packet);
    tcase_add_test(tcase, heaps_of_several_packets);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
