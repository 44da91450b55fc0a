/* check_doctor.c - cbf-doctor's judgement of packets, of /metrics and of the kernel's files. */
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/drops.h"
#include "tools/doctor/http.h"
#include "tools/doctor/report.h"
#include "tools/doctor/source.h"
#include "tools/doctor/sys.h"
#include "tests/unit/test_main.h"

#include <sys/stat.h>

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

#define RATE_HZ    1000000
#define HEAP       4096
#define HEAP_BYTES 5120
#define SYNC_S     INT64_C(1700000000)

static const struct source_shape shape = {HEAP, HEAP_BYTES, {{SYNC_S, 0}, {RATE_HZ, 0}, false}, NS_PER_S};

/* A part of heap 'heap' that arrives 'late_ns' after its last sample. */
static void take_part(struct source *source, int64_t heap, uint64_t bytes, int64_t late_ns)
{
    int64_t end_ns = SYNC_S * NS_PER_S + (heap + 1) * HEAP * (NS_PER_S / RATE_HZ);
    const struct source_packet packet = {
        .timestamp = (uint64_t)(heap * HEAP) & ((UINT64_C(1) << 48) - 1),
        .heap_length = HEAP_BYTES,
        .payload_length = bytes,
        .id = 6,
        .from = {.sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(5000)},
        .arrival_unix_ns = end_ns + late_ns,
    };
    source_take(source, &shape, &packet);
}

/* Random losses, duplicates and parts, on both sides of a wrap of the 48 bits, against a count kept beside it. */
TEST(heaps_are_counted, .end = 20)
{
    random_state += (uint64_t)_i; /* each is forked with the same state */
    int64_t n = 200 + (int64_t)random_below(3000);
    int64_t first = (INT64_C(1) << 48) / HEAP - (int64_t)random_below((size_t)n);
    struct source *source = calloc(1, sizeof(*source));
    uint64_t n_missing = 0, n_duplicate_bytes = 0;

    take_part(source, first, HEAP_BYTES, 0);
    for (int64_t i = 1; i < n; i++) {
        switch (random_below(8)) {
        case 0: n_missing++; break;
        case 1:
            n_missing++;
            take_part(source, first + i, 1024, 0);
            break;
        case 2:
            take_part(source, first + i, HEAP_BYTES, 0);
            take_part(source, first + i, HEAP_BYTES, 0);
            n_duplicate_bytes += HEAP_BYTES;
            break;
        case 3:
            take_part(source, first + i, 1024, 0);
            take_part(source, first + i, HEAP_BYTES - 1024, 0);
            break;
        default: take_part(source, first + i, HEAP_BYTES, 0);
        }
    }
    take_part(source, first + n, HEAP_BYTES, 0);
    source_finish(source, &shape);
    ck_assert_uint_eq(source_expected(source), n - 1);
    ck_assert_uint_eq(source_missing(source), n_missing);
    ck_assert_uint_eq(source->n_duplicate_bytes, n_duplicate_bytes);
    ck_assert_uint_eq(source->n_jumps + source->n_bad_timestamps + source->n_wrong_length + source->n_reordered, 0);
    ck_assert_uint_eq(source->ids.n, 1);
    ck_assert_uint_eq(source->ids.values[0], 6);
    ck_assert_uint_eq(source->senders.values[0], UINT64_C(0x7f000001) << 16 | 5000);
    free(source);
}

TEST(order_does_not_matter)
{
    struct source *source = calloc(1, sizeof(*source));

    for (int64_t i = 0; i < 100; i++)
        take_part(source, 1000 + (i ^ 3), HEAP_BYTES, 0);
    source_finish(source, &shape);
    ck_assert_uint_eq(source_expected(source), 98);
    ck_assert_uint_eq(source_missing(source), 0);
    ck_assert_uint_eq(source->n_reordered, 75); /* 3, 2, 1, 0, 7, 6, ... */
    free(source);
}

TEST(lateness_is_the_least)
{
    struct source *source = calloc(1, sizeof(*source));

    for (int64_t i = 0; i < 300; i++)
        take_part(source, 1000 + i, HEAP_BYTES, 3 * NS_PER_S + (i == 150 ? 0 : 40 * NS_PER_MS));
    source_finish(source, &shape);
    ck_assert_double_eq_tol(source->least_late_s, 3.0, 1e-6);
    ck_assert_double_eq_tol(source_rate_hz(source, &shape), RATE_HZ, 1);
    free(source);
}

/* Packets of the first 0.3 of 2 s arrive together.  The rate of all is off, and the rate of the second half is right. */
TEST(a_stall_is_in_one_half)
{
    struct source *source = calloc(1, sizeof(*source));
    int64_t begin = 1000, stall_ns = 300 * NS_PER_MS, heap_ns = HEAP * (NS_PER_S / RATE_HZ);
    double rates_hz[2];

    for (int64_t i = 0; i < 2 * NS_PER_S / heap_ns; i++)
        take_part(source, begin + i, HEAP_BYTES, i * heap_ns < stall_ns ? stall_ns - i * heap_ns : 0);
    source_finish(source, &shape);
    ck_assert_double_gt(source_rate_hz(source, &shape), 1.15 * RATE_HZ);
    ck_assert(source_half_rates_hz(source, &shape, rates_hz));
    ck_assert_double_gt(rates_hz[0], 1.25 * RATE_HZ);
    ck_assert_double_eq_tol(rates_hz[1], RATE_HZ, 1);
    ck_assert(!source_rate_is_wrong(source, &shape, RATE_HZ));
    ck_assert(source_rate_is_wrong(source, &shape, 2 * RATE_HZ));
    free(source);
}

/* Packets of a wrong rate: both halves have it.  A second half that is too short tells nothing. */
TEST(a_wrong_rate_is_in_both_halves)
{
    for (int64_t n = 0; n < 2; n++) {
        struct source *source = calloc(1, sizeof(*source));
        int64_t heap_ns = HEAP * (NS_PER_S / RATE_HZ), n_heaps = (n ? 2 * NS_PER_S : 5 * NS_PER_S / 4) / heap_ns;
        double rates_hz[2];
        for (int64_t i = 0; i < n_heaps; i++)
            take_part(source, 1000 + i, HEAP_BYTES, -i * heap_ns / 5);
        source_finish(source, &shape);
        ck_assert_int_eq(source_half_rates_hz(source, &shape, rates_hz), n);
        for (int half = 0; n && half < 2; half++)
            ck_assert_double_eq_tol(rates_hz[half], 1.25 * RATE_HZ, 1);
        ck_assert_int_eq(source_rate_is_wrong(source, &shape, RATE_HZ), n);
        ck_assert(!source_rate_is_wrong(source, &shape, 1.25 * RATE_HZ));
        free(source);
    }
}

TEST(what_does_not_fit_is_told)
{
    struct source *source = calloc(1, sizeof(*source));
    struct source_packet packet = {
        .timestamp = HEAP, .heap_length = 77, .payload_length = 77, .arrival_unix_ns = SYNC_S * NS_PER_S};

    source_take(source, &shape, &packet);
    packet.heap_length = HEAP_BYTES;
    packet.timestamp = HEAP + 1;
    source_take(source, &shape, &packet);
    for (packet.id = 1; packet.id < 9; packet.id++) {
        packet.timestamp = HEAP * (UINT64_C(1) << (packet.id == 8 ? 30 : 0));
        source_take(source, &shape, &packet);
    }
    source_finish(source, &shape);
    ck_assert_uint_eq(source->n_wrong_length, 1);
    ck_assert_uint_eq(source->wrong_length, 77);
    ck_assert_uint_eq(source->n_bad_timestamps, 1);
    ck_assert_uint_eq(source->n_jumps, 1); /* 51 days ahead */
    ck_assert_uint_eq(source->ids.n, SOURCE_N_VALUES);
    ck_assert_uint_eq(source_expected(source), 0);
    ck_assert_uint_eq(source_missing(source), 0);
    free(source);
}

/* ---- Pages of metrics -------------------------------------------------------------------------------------------- */

static void count_sample(void *arg, const char *name, const char *labels, double value)
{
    *(double *)arg += value;
}

TEST(metrics_are_summed)
{
    static const char page[] = "# HELP a_total Help { with } braces 5\n"
                               "# TYPE a_total counter\n"
                               "a_total{pol=\"0\",antenna=\"m}0\"} 3\n"
                               "a_total{pol=\"1\",antenna=\"m0\"} 4\n"
                               "a_total_more 1000\n"
                               "\n"
                               "b 2.5e3\n"
                               "c{x=\"1\"";
    double all = 0;

    ck_assert_double_eq(doctor_metrics_sum(page, "a_total", NULL), 7);
    ck_assert_double_eq(doctor_metrics_sum(page, "a_total", "pol=\"1\""), 4);
    ck_assert_double_eq(doctor_metrics_sum(page, "a_total", "pol=\"2\""), 0);
    ck_assert_double_eq(doctor_metrics_sum(page, "b", NULL), 2500);
    ck_assert_double_eq(doctor_metrics_sum("", "b", NULL), 0);
    doctor_metrics_each(page, count_sample, &all);
    ck_assert_double_eq(all, 3507);
}

/* ---- The kernel's files ------------------------------------------------------------------------------------------ */

TEST(cpu_lists)
{
    ck_assert(sys_list_has("0-3,8", 0));
    ck_assert(sys_list_has("0-3,8", 3));
    ck_assert(!sys_list_has("0-3,8", 4));
    ck_assert(sys_list_has("0-3,8", 8));
    ck_assert(!sys_list_has("10,12-13", 1));
    ck_assert(sys_list_has("10,12-13", 13));
    ck_assert(!sys_list_has("", 0));
    ck_assert(!sys_list_has("(null)", 0));
}

TEST(pci_addresses)
{
    static const char *const same[] = {"0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0", "3b:00.0", "3b:0", "0:3b:0"};
    static const char *const none[] = {"auto", "", "0", "12", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"};
    char address[SYS_PCI_BYTES];

    for (size_t k = 0; k < ARRAY_LEN(same); k++) {
        ck_assert(sys_pci_address(same[k], address));
        ck_assert_str_eq(address, "0000:3b:00.0");
    }
    ck_assert(sys_pci_address("10000:01:1f.0", address)); /* as of virtual machines */
    ck_assert_str_eq(address, "10000:01:1f.0");
    for (size_t k = 0; k < ARRAY_LEN(none); k++)
        ck_assert(!sys_pci_address(none[k], address));
}

static void write_file(const char *root, const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

TEST(drops_of_a_planted_host)
{
    char root[] = "/tmp/check-doctor-XXXXXX", command[64];
    struct drops before, after;
    uint64_t softnet = 0, rcvbuf = 0, missed = 0;

    ck_assert_ptr_nonnull(mkdtemp(root));
    write_file(root, "proc/net/softnet_stat", "000000ff 00000002 00000001 0\n000000ff 0000000a 00000000 0\n");
    write_file(root, "proc/net/snmp", "Ip: InDiscards ReasmFails\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 9 30\n");
    write_file(root, "sys/class/net/eth9/statistics/rx_missed_errors", "5\n");
    drops_read(root, "eth9", &before);
    write_file(root, "proc/net/softnet_stat", "000000ff 00000003 00000001 0\n000000ff 0000001a 00000000 0\n");
    write_file(root, "proc/net/snmp", "Ip: InDiscards ReasmFails\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 9 37\n");
    write_file(root, "sys/class/net/eth9/statistics/rx_missed_errors", "3\n"); /* begun again */
    drops_read(root, "eth9", &after);
    for (size_t i = 0; i < after.n; i++) {
        uint64_t grew = drops_grew(&before, &after.items[i]);
        softnet += after.items[i].stage == STAGE_SOFTNET ? grew : 0;
        rcvbuf += after.items[i].stage == STAGE_SOCKET ? grew : 0;
        missed += after.items[i].stage == STAGE_NIC ? grew : 0;
    }
    ck_assert_uint_eq(after.n, 6);
    ck_assert_uint_eq(softnet, 17);
    ck_assert_uint_eq(rcvbuf, 7);
    ck_assert_uint_eq(missed, 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

TEST(reports)
{
    struct report report = {0};
    char *text = NULL;
    size_t bytes;

    ck_assert_int_eq(report_exit_code(&report), 0);
    SAY(report_add(&report, FINDING_SKIPPED, "a.b", "")->found, "nothing");
    ck_assert_int_eq(report_exit_code(&report), 0);
    SAY(report_add(&report, FINDING_WARN, "a.c", "x")->found, "two\nlines \x1b[31m\"quoted\"");
    ck_assert_int_eq(report_exit_code(&report), 1);
    SAY(report_add(&report, FINDING_FAIL, "a.d", "y")->found, "%s", "\xff\xfe");
    ck_assert_int_eq(report_exit_code(&report), 2);
    FILE *out = open_memstream(&text, &bytes);
    report_print(&report, false, false, out);
    report_print_json(&report, NULL, 0, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "two lines  [31m\"quoted\"\n"));
    ck_assert_ptr_nonnull(strstr(text, "two lines  [31m\\\"quoted\\\""));
    ck_assert_ptr_nonnull(strstr(text, "(not UTF-8)"));
    ck_assert_ptr_nonnull(strstr(text, "\n1 failed, 1 warning, 0 ok, 1 skipped\n"));
    free(text);
    report_fini(&report);
}

TEST(quiet_reports)
{
    struct report report = {0};
    char *text = NULL;
    size_t bytes;
    const struct loss_row row = {.file = "x.yaml", .stage = "NIC", .counter = "c", .grew = 5, .loss = true};

    SAY(report_add(&report, FINDING_OK, "a.ok", "")->found, "fine");
    SAY(report_add(&report, FINDING_SKIPPED, "a.skipped", "")->found, "unseen");
    report_add_row(&report, &row);
    FILE *out = open_memstream(&text, &bytes);
    report_print(&report, true, false, out);
    fclose(out);
    ck_assert_str_eq(text, "0 failed, 0 warnings, 1 ok, 1 skipped\n");
    free(text);
    SAY(report_add(&report, FINDING_WARN, "a.warn", "")->found, "odd");
    out = open_memstream(&text, &bytes);
    report_print(&report, true, false, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "a.warn"));
    ck_assert(!strstr(text, "a.ok") && !strstr(text, "a.skipped") && !strstr(text, "x.yaml"));
    ck_assert_ptr_nonnull(strstr(text, "\n\n0 failed, 1 warning, 1 ok, 1 skipped\n"));
    free(text);
    report_fini(&report);
}

TEST(times_ago)
{
    static const struct {
        double s;
        const char *text;
    } cases[] = {{-0.2, "0 s ago"}, {12.4, "12 s ago"}, {119, "119 s ago"}, {180, "3 min ago"}, {10800, "3 h ago"}};
    char text[DOCTOR_AGO_BYTES];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        ck_assert_str_eq(doctor_ago(cases[i].s, text), cases[i].text);
}

SUITE(.start = random_start);
