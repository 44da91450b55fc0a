/* check_receiver_metrics - the names of the metrics that count refused packets. */
#include "common/recv/receiver_metrics.h"
#include "common/telemetry/stats.h"

#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct assembler_stats stats;

/* The page, to be freed. */
static char *make_page(void)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *out = open_memstream(&text, &text_bytes);

    ck_assert_ptr_nonnull(out);
    stats_write(out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void check_published(const char *prefix, const char *line, bool expected)
{
    char whole[160], *text;

    stats_reset();
    receiver_metrics_add_assembler(prefix, "pol=\"0\"", &stats);
    text = make_page();
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    ck_assert_msg((strstr(text, whole) != NULL) == expected, "%s: %s in\n%s", prefix, line, text);
    free(text);
    stats_reset();
}

/* Where a heap is one packet, packets refused are heaps refused, and the reference's names are true. */
TEST(heaps_of_one_packet)
{
    check_published("fgpu_input", "fgpu_input_too_old_heaps_total{pol=\"0\"} 5", true);
    check_published("fgpu_input", "fgpu_input_bad_timestamp_heaps_total{pol=\"0\"} 6", true);
    check_published("fgpu_input", "fgpu_input_rejected_packets_total{pol=\"0\",reason=\"no_items\"} 7", true);
    check_published("fgpu_input", "fgpu_input_rejected_packets_total{pol=\"0\",reason=\"too_old\"} 5", false);
    check_published("fgpu_input", "fgpu_input_rejected_packets_total{pol=\"0\",reason=\"duplicate\"} 8", true);
}

/* Packets that belong to any stream are not refused. */
TEST(ignored_packets)
{
    static const struct {
        const char *reason;
        int n;
    } harmless[] = {{"descriptor", 9}, {"stop", 10}, {"other_thread", 11}};
    static const char *const prefixes[] = {"fgpu_input", "xbgpu_input", "visrec"};
    char line[120];

    for (size_t p = 0; p < ARRAY_LEN(prefixes); p++)
        for (size_t i = 0; i < ARRAY_LEN(harmless); i++) {
            snprintf(line, sizeof(line), "%s_ignored_packets_total{pol=\"0\",reason=\"%s\"} %d", prefixes[p],
                     harmless[i].reason, harmless[i].n);
            check_published(prefixes[p], line, true);
            snprintf(line, sizeof(line), "%s_rejected_packets_total{pol=\"0\",reason=\"%s\"} %d", prefixes[p],
                     harmless[i].reason, harmless[i].n);
            check_published(prefixes[p], line, false);
        }
}

TEST(heaps_of_several_packets)
{
    check_published("xbgpu_input", "xbgpu_input_too_old_heaps_total{pol=\"0\"} 5", false);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"too_old\"} 5", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"bad_timestamp\"} 6", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"no_items\"} 7", true);
    check_published("xbgpu_input", "xbgpu_input_rejected_packets_total{pol=\"0\",reason=\"duplicate\"} 8", true);
}

/* A receive thread counts heaps by their first packets, for xbgpu only, but metadata for both. */
TEST(refused_heaps)
{
    static const struct {
        const char *prefix, *line;
        bool expected;
    } cases[] = {
        {"xbgpu_input", "xbgpu_input_too_old_heaps_total{thread=\"recv0\"} 1", true},
        {"xbgpu_input", "xbgpu_input_metadata_heaps_total{thread=\"recv0\"} 2", true},
        {"xbgpu_input", "xbgpu_input_bad_timestamp_heaps_total{thread=\"recv0\"} 3", true},
        {"xbgpu_input", "xbgpu_input_bad_feng_id_heaps_total{thread=\"recv0\"} 4", true},
        {"fgpu_input", "fgpu_input_too_old_heaps_total{thread=\"recv0\"} 1", false},
        {"fgpu_input", "fgpu_input_metadata_heaps_total{thread=\"recv0\"} 2", true},
    };
    static struct receiver_stats receiver;

    counter_add(&receiver.refused_heaps[REJECT_TOO_OLD], 1);
    counter_add(&receiver.metadata_heaps, 2);
    counter_add(&receiver.refused_heaps[REJECT_BAD_TIMESTAMP], 3);
    counter_add(&receiver.refused_heaps[REJECT_BAD_SOURCE], 4);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stats_reset();
        receiver_metrics_add(cases[i].prefix, "recv0", &receiver);
        char whole[160], *text = make_page();
        snprintf(whole, sizeof(whole), "\n%s\n", cases[i].line);
        ck_assert_int_eq(strstr(text, whole) != NULL, cases[i].expected);
        free(text);
    }
    stats_reset();
}

static void start(void)
{
    counter_add(&stats.rejects[REJECT_TOO_OLD], 5);
    counter_add(&stats.rejects[REJECT_BAD_TIMESTAMP], 6);
    counter_add(&stats.rejects[REJECT_NO_ITEMS], 7);
    counter_add(&stats.rejects[REJECT_DUPLICATE], 8);
    counter_add(&stats.rejects[REJECT_DESCRIPTOR], 9);
    counter_add(&stats.rejects[REJECT_STOP], 10);
    counter_add(&stats.rejects[REJECT_OTHER_THREAD], 11);
}

SUITE(.start = start);
