/* memory.c - reads /proc/meminfo and the limits of this process's control groups before anything is allocated; maps
 * huge pages, and locks mapped memory. */
#include "common/base/memory.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES       1024
#define MAX_NUMA_NODES   1024
#define LEAST_PAGE_BYTES 4096

/* Names of the files that describe the memory of a control group.  Versions 1 and 2 of control groups have different
 * names. */
struct group_files {
    const char *mount, *limit, *used, *cache_format;
};

static const struct group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file %llu"};
static const struct group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file %llu"};

/* Lowers the amounts in 'memory' to the limits of one control group.  Inactive file pages count as available, because
 * the kernel can reclaim them. */
static void limit_by_group(const char *directory, const struct group_files *files, struct memory *memory)
{
    char path[PATH_BYTES + 64];
    unsigned long long limit, used = 0, cache = 0;

    snprintf(path, sizeof(path), "%s/%s", directory, files->limit);
    if (!file_find_number(path, "%llu", &limit))
        return;
    snprintf(path, sizeof(path), "%s/%s", directory, files->used);
    file_find_number(path, "%llu", &used);
    snprintf(path, sizeof(path), "%s/memory.stat", directory);
    file_find_number(path, files->cache_format, &cache);
    used = cache < used ? used - cache : 0;
    memory->total_bytes = least(memory->total_bytes, limit);
    memory->available_bytes = least(memory->available_bytes, used < limit ? limit - used : 0);
}

/* Applies the limits of a control group and of all control groups above it.  If a container hides a group, this
 * function cannot read the group's files, and does not apply the group's limits. */
static void limit_by_groups(const char *root, const char *group, const struct group_files *files, struct memory *memory)
{
    char directory[PATH_BYTES];
    size_t n_root = (size_t)snprintf(directory, sizeof(directory), "%s%s", root, files->mount);

    snprintf(directory + n_root, sizeof(directory) - n_root, "%s", strcmp(group, "/") ? group : "");
    for (;;) {
        limit_by_group(directory, files, memory);
        char *slash = strrchr(directory, '/');
        if (slash < directory + n_root)
            return;
        *slash = '\0';
    }
}

/* Applies the limits of the groups in /proc/self/cgroup.  A line is "0::/path" in version 2 and "4:memory:/path" in
 * version 1. */
static void limit_by_control_groups(const char *root, struct memory *memory)
{
    char path[PATH_BYTES], line[PATH_BYTES / 2], group[PATH_BYTES / 2];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "0::%511[^\n]", group) == 1)
            limit_by_groups(root, group, &version_2, memory);
        else if (sscanf(line, "%*d:memory:%511[^\n]", group) == 1)
            limit_by_groups(root, group, &version_1, memory);
    }
    if (file)
        fclose(file);
}

void memory_find(const char *root, struct memory *memory)
{
    char path[PATH_BYTES];
    unsigned long long kib;

    *memory = (struct memory){UINT64_MAX, UINT64_MAX};
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (file_find_number(path, "MemTotal: %llu kB", &kib))
        memory->total_bytes = (uint64_t)kib << 10;
    if (file_find_number(path, "MemAvailable: %llu kB", &kib))
        memory->available_bytes = (uint64_t)kib << 10;
    limit_by_control_groups(root, memory);
}

int memory_check_in(const struct memory *memory, const char *what, uint64_t needed_bytes, const char *key,
                    const char *advice, char *why, size_t why_bytes)
{
    char needed[64];

    if (needed_bytes <= memory->available_bytes && needed_bytes != UINT64_MAX)
        return 0;
    if (needed_bytes == UINT64_MAX)
        snprintf(needed, sizeof(needed), "more %s than 64 bits can count", what);
    else
        snprintf(needed, sizeof(needed), "%llu MiB of %s", (unsigned long long)(needed_bytes >> 20), what);
    snprintf(why, why_bytes,
             "%s: this configuration needs %s; the total is %llu MiB, of which %llu MiB are available; %s", key, needed,
             (unsigned long long)(memory->total_bytes >> 20), (unsigned long long)(memory->available_bytes >> 20),
             advice);
    return needed_bytes > memory->total_bytes || needed_bytes == UINT64_MAX ? -E2BIG : -ENOMEM;
}

int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes)
{
    struct memory memory;

    memory_find("", &memory);
    return memory_check_in(&memory, "memory", needed_bytes, key, advice, why, why_bytes);
}

void memory_log(const struct memory_use *use)
{
    unsigned long long host = use->host_bytes >> 20, chunks = use->chunks_bytes >> 20,
                       buffers = use->buffers_bytes >> 20;
    unsigned long long others = (use->host_bytes - use->chunks_bytes - use->buffers_bytes) >> 20;

    char direct[64] = "";

    if (use->direct_bytes >> 20)
        snprintf(direct, sizeof(direct), ", of which %llu MiB are direct chunks",
                 (unsigned long long)use->direct_bytes >> 20);
    log_info(
        "memory: %llu MiB of chunks, %llu MiB of output buffers, %llu MiB of other data: in total %llu MiB of host "
        "memory, %llu MiB on the device%s",
        chunks, buffers, others, host, (unsigned long long)(use->device_bytes >> 20), direct);
}

int memory_lock(void)
{
    return mlockall(MCL_CURRENT | MCL_ONFAULT) ? -errno : 0;
}

/* ---- Huge pages -------------------------------------------------------------------------------------------------- */

size_t memory_mapped_bytes(size_t bytes)
{
    return (bytes + MEMORY_HUGE_PAGE_BYTES - 1) / MEMORY_HUGE_PAGE_BYTES * MEMORY_HUGE_PAGE_BYTES;
}

/* Asks the Linux kernel to place the memory on a NUMA node.  Memory on another node also works, but access to it is
 * only as fast as the link between the nodes. */
static void prefer_node(void *memory, size_t bytes, int node)
{
    unsigned long mask[MAX_NUMA_NODES / (8 * sizeof(unsigned long))] = {0};
    size_t bits = 8 * sizeof(unsigned long);

    if (node < 0 || node >= MAX_NUMA_NODES)
        return;
    mask[(size_t)node / bits] = 1UL << ((size_t)node % bits);
    syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, MAX_NUMA_NODES, 0);
}

static void touch(volatile uint8_t *at)
{
    const uint8_t kept = *at;

    *at = kept;
}

void memory_touch(void *memory, size_t bytes)
{
    uint8_t *at = memory, *end = at + bytes;

    for (; at < end; at += LEAST_PAGE_BYTES)
        touch(at);
    if (bytes > 0)
        touch(end - 1); /* perhaps on a further page */
}

void *memory_map(size_t bytes, int node)
{
    bytes = memory_mapped_bytes(bytes);
    uint8_t *mapped =
        mmap(NULL, bytes + MEMORY_HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mapped == MAP_FAILED)
        return NULL;
    /* Unmaps the memory before the first whole huge page and after the last whole huge page. */
    size_t before = (size_t)(-(uintptr_t)mapped % MEMORY_HUGE_PAGE_BYTES);
    uint8_t *memory = mapped + before;
    if (before > 0)
        munmap(mapped, before);
    if (before < MEMORY_HUGE_PAGE_BYTES)
        munmap(memory + bytes, MEMORY_HUGE_PAGE_BYTES - before);
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint */
    prefer_node(memory, bytes, node);
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return memory;
    if (errno == EINVAL) { /* Linux before version 5.14 does not have MADV_POPULATE_WRITE */
        memset(memory, 0, bytes);
        return memory;
    }
    munmap(memory, bytes);
    return NULL;
}

void memory_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, memory_mapped_bytes(bytes));
}

int memory_node_of_interface(const char *interface)
{
    char path[PATH_BYTES];
    int node = -1;

    if (!interface)
        return -1;
    snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", interface);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}
