/* memory.c - reads /proc/meminfo, and the limits of the control groups that we are in, before anything is allocated. */
#include "common/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024

/* What the two versions of control groups call things. */
struct group_files {
    const char *mount, *limit, *used, *cache_format;
};

static const struct group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file %llu"};
static const struct group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file %llu"};

/* Finds the number of the line that has the 'format'; false where there is none ("max" is none). */
static bool read_number(const char *path, const char *format, unsigned long long *number)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "r");

    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, format, number) == 1;
    if (file)
        fclose(file);
    return found;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Lowers 'memory' to what one group allows.  Its use counts pages of files, too, which give way. */
static void limit_by_group(const char *directory, const struct group_files *files, struct memory *memory)
{
    char path[PATH_BYTES + 64];
    unsigned long long limit, used = 0, cache = 0;

    snprintf(path, sizeof(path), "%s/%s", directory, files->limit);
    if (!read_number(path, "%llu", &limit))
        return;
    snprintf(path, sizeof(path), "%s/%s", directory, files->used);
    read_number(path, "%llu", &used);
    snprintf(path, sizeof(path), "%s/memory.stat", directory);
    read_number(path, files->cache_format, &cache);
    used = cache < used ? used - cache : 0;
    memory->total_bytes = least(memory->total_bytes, limit);
    memory->available_bytes = least(memory->available_bytes, used < limit ? limit - used : 0);
}

/* A group is limited by all that it is in; in a container the first of the path are not to be seen. */
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

/* The lines of /proc/self/cgroup: "0::/path" of version 2, "4:memory:/path" of version 1. */
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
    if (read_number(path, "MemTotal: %llu kB", &kib))
        memory->total_bytes = (uint64_t)kib << 10;
    if (read_number(path, "MemAvailable: %llu kB", &kib))
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
    snprintf(why, why_bytes, "%s: this configuration needs %s, and of %llu MiB here %llu MiB are available; %s", key,
             needed, (unsigned long long)(memory->total_bytes >> 20),
             (unsigned long long)(memory->available_bytes >> 20), advice);
    return needed_bytes > memory->total_bytes || needed_bytes == UINT64_MAX ? -E2BIG : -ENOMEM;
}

int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes)
{
    struct memory memory;

    memory_find("", &memory);
    return memory_check_in(&memory, "memory", needed_bytes, key, advice, why, why_bytes);
}
