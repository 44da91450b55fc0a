/* check_memory - the size of the host's memory, from file trees like the kernel's; and saturating sums. */
#include "common/base/log.h"
#include "common/base/memory.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

TEST(nothing_to_read)
{
    struct memory memory;

    memory_find(root, &memory);
    ck_assert(memory.total_bytes == UINT64_MAX && memory.available_bytes == UINT64_MAX);
}

TEST(no_group)
{
    put("/proc/meminfo", meminfo);
    check(1000, 700);
    put("/proc/self/cgroup", "0::/\n");
    check(1000, 700);
    put("/sys/fs/cgroup/memory.max", "max\n");
    check(1000, 700);
}

/* 500 kB, of which 200 are taken, 50 of these by pages of files. */
TEST(group_of_version_2)
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

/* In a container, where the path is the host's, and the mount what there is of it. */
TEST(group_of_version_1)
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

TEST(checks)
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

TEST(sums)
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

/* Of this process, in KiB.  Sanitizers let nothing be locked, and say that it was. */
static long locked_kib(void)
{
    FILE *in = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    ck_assert_ptr_nonnull(in);
    while (fgets(line, sizeof(line), in))
        sscanf(line, "VmLck: %ld kB", &kib);
    fclose(in);
    return kib;
}

TEST(locks, .unless = test_in_one_process())
{
    const size_t n_bytes = 3 << 20, page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char present = 1;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    memory[0] = 1;
    ck_assert_int_eq(locked_kib(), 0);
    int err = memory_lock();
    if (err) { /* not root, and a low limit */
        ck_assert(err == -ENOMEM || err == -EPERM);
        return;
    }
    if (locked_kib() == 0)
        return;
    ck_assert_int_ge(locked_kib(), 3 << 10);
    /* What has not been touched has not been taken, either (but for the rest of a huge page). */
    ck_assert_int_eq(mincore(memory + n_bytes - page_bytes, page_bytes, &present), 0);
    ck_assert_uint_eq(present & 1, 0);
}

TEST(locks_only_what_it_may, .unless = test_in_one_process())
{
    const struct rlimit little = {1 << 16, 1 << 16}, none = {0, 0};
    uid_t user = geteuid();

    if (setrlimit(RLIMIT_MEMLOCK, &little) || (user == 0 && seteuid(65534)))
        return;
    int first = memory_lock(), second = setrlimit(RLIMIT_MEMLOCK, &none) ? 0 : memory_lock();
    long kib = locked_kib();
    ck_assert_int_eq(seteuid(user), 0);
    ck_assert_int_eq(kib, 0);
    ck_assert(first == 0 || first == -ENOMEM); /* 0: a sanitizer's */
    ck_assert_int_eq(second, first ? -EPERM : 0);
}

TEST(what_is_used, .end = 3)
{
    struct memory_use use = {(uint64_t)1000 << 20, (uint64_t)700 << 20, ((uint64_t)200 << 20) + 4096,
                             (uint64_t)50 << 20, (uint64_t[]){0, (uint64_t)30 << 20, 4096}[_i]};
    char text[512];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    ck_assert(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    log_init("test", LOG_LEVEL_INFO);
    memory_log(&use);
    dup2(saved, STDERR_FILENO);
    rewind(file);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
    ck_assert_ptr_nonnull(strstr(text, "memory: 700 MiB of chunks, 200 MiB of output buffers, 99 MiB of other data: "));
    ck_assert_ptr_nonnull(strstr(text, _i == 1
                                           ? ": in total 1000 MiB of host memory, 50 MiB on the device, of which 30 "
                                             "MiB are direct chunks\n"
                                           : ": in total 1000 MiB of host memory, 50 MiB on the device\n"));
    fclose(file);
}

TEST(huge_pages)
{
    size_t bytes = 2 * MEMORY_HUGE_PAGE_BYTES + 1, n_zero = 0;
    uint8_t *memory = memory_map(bytes, memory_node_of_interface("lo"));

    ck_assert_uint_eq(memory_mapped_bytes(bytes), 3 * MEMORY_HUGE_PAGE_BYTES);
    ck_assert_uint_eq((uintptr_t)memory % MEMORY_HUGE_PAGE_BYTES, 0);
    while (n_zero < memory_mapped_bytes(bytes) && memory[n_zero] == 0)
        n_zero++;
    ck_assert_uint_eq(n_zero, memory_mapped_bytes(bytes));
    memory_unmap(memory, bytes);
    memory_unmap(NULL, bytes);
    ck_assert_int_eq(memory_node_of_interface("no-such-if"), -1);
}

TEST(touched_pages)
{
    enum { N_PAGES = 8 };
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *memory = mmap(NULL, N_PAGES * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char are_resident[N_PAGES];

    madvise(memory, N_PAGES * page_bytes, MADV_NOHUGEPAGE);
    memory[3 * page_bytes] = 17;
    memory_touch(memory + 2 * page_bytes, 0);
    memory_touch(memory + page_bytes + 100, 4 * page_bytes); /* from page 1 to page 5 */
    ck_assert_int_eq(mincore(memory, N_PAGES * page_bytes, are_resident), 0);
    for (int page = 0; page < N_PAGES; page++)
        ck_assert_int_eq(are_resident[page] & 1, page >= 1 && page <= 5);
    for (size_t i = 0; i < N_PAGES * page_bytes; i++)
        ck_assert_uint_eq(memory[i], i == 3 * page_bytes ? 17 : 0);
    munmap(memory, N_PAGES * page_bytes);
}

SUITE(.setup = make_root, .teardown = remove_root);
