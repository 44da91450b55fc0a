/* check_memory - what memory there is, from trees like the kernel's; and sums that stay where they would wrap. */
#include "common/memory.h"
#include "common/units.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static void make_root(void)
{
    strcpy(root, "/tmp/check_memory.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_root(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* Writes a file below the root, with its directories. */
static void put(const char *path, const char *text)
{
    char full[256];

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *out = fopen(full, "w");
    ck_assert_msg(out && fputs(text, out) >= 0 && fclose(out) == 0, "%s", full);
}

static void check(uint64_t total_kib, uint64_t available_kib)
{
    struct memory memory;

    memory_find(root, &memory);
    ck_assert_uint_eq(memory.total_bytes, total_kib << 10);
    ck_assert_uint_eq(memory.available_bytes, available_kib << 10);
}

static const char meminfo[] =
    "MemTotal:       1000 kB\nMemFree:         3 kB\nMemAvailable:    700 kB\nBuffers: 1 kB\n";

START_TEST(nothing_to_read)
{
    struct memory memory;

    memory_find(root, &memory);
    ck_assert(memory.total_bytes == UINT64_MAX && memory.available_bytes == UINT64_MAX);
}
END_TEST

START_TEST(no_group)
{
    put("/proc/meminfo", meminfo);
    check(1000, 700);
    put("/proc/self/cgroup", "0::/\n");
    check(1000, 700);
    put("/sys/fs/cgroup/memory.max", "max\n");
    check(1000, 700);
}
END_TEST

/* 500 kB, of which 200 are taken, 50 of these by pages of files. */
START_TEST(group_of_version_2)
{
    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "0::/system.slice/fgpu.service\n");
    put("/sys/fs/cgroup/system.slice/fgpu.service/memory.max", "512000\n");
    put("/sys/fs/cgroup/system.slice/fgpu.service/memory.current", "204800\n");
    check(500, 300);
    put("/sys/fs/cgroup/system.slice/fgpu.service/memory.stat", "anon 9\nfile 7\ninactive_file 51200\nslab 1\n");
    check(500, 350);
    /* Of the slice. */
    put("/sys/fs/cgroup/system.slice/memory.max", "409600\n");
    put("/sys/fs/cgroup/system.slice/memory.current", "358400\n");
    check(400, 50);
    put("/sys/fs/cgroup/system.slice/memory.current", "500000\n");
    check(400, 0);
}
END_TEST

/* In a container, where the path is the host's, and the mount what there is of it. */
START_TEST(group_of_version_1)
{
    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "5:cpu:/a\n4:memory:/docker/0123\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "307200\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "102400\n");
    put("/sys/fs/cgroup/memory/memory.stat", "cache 4\ninactive_file 1\ntotal_inactive_file 10240\n");
    check(300, 210);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    check(1000, 700);
}
END_TEST

START_TEST(checks)
{
    struct memory memory;
    char why[256] = "";

    memory_find("", &memory); /* of this machine */
    ck_assert(memory.available_bytes > 0 && memory.available_bytes <= memory.total_bytes);
    ck_assert_int_eq(memory_check(1000, "recv.chunks", "lower it", why, sizeof(why)), 0);
    ck_assert_str_eq(why, "");
    ck_assert_int_eq(memory_check(memory.total_bytes + 1, "recv.chunks", "lower it", why, sizeof(why)), -E2BIG);
    ck_assert(!strncmp(why, "recv.chunks: ", 13) && strstr(why, "; lower it"));
    ck_assert_int_eq(memory_check(UINT64_MAX, "recv.chunks", "lower it", why, sizeof(why)), -E2BIG);
    ck_assert_ptr_nonnull(strstr(why, "more memory than 64 bits can count"));
}
END_TEST

START_TEST(sums)
{
    const uint64_t max = UINT64_MAX, half = UINT64_C(1) << 32;

    ck_assert_uint_eq(bytes_times(3, 5), 15);
    ck_assert_uint_eq(bytes_times(half, half - 1), half * (half - 1));
    ck_assert_uint_eq(bytes_times(half, half), max);
    ck_assert_uint_eq(bytes_times(max, 0), 0);
    ck_assert_uint_eq(bytes_times(max, 1), max);
    ck_assert_uint_eq(bytes_plus(max - 1, 1), max);
    ck_assert_uint_eq(bytes_plus(max, max), max);
    ck_assert_uint_eq(bytes_plus(2, 3), 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_checked_fixture(tests, make_root, remove_root);
    tcase_add_test(tests, nothing_to_read);
    tcase_add_test(tests, no_group);
    tcase_add_test(tests, group_of_version_2);
    tcase_add_test(tests, group_of_version_1);
    tcase_add_test(tests, checks);
    tcase_add_test(tests, sums);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
