/* memory.c - reads /proc/meminfo, and the limit of the control group that we are in. */
#include "common/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Finds "name number" in a file of such lines. */
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

/* What systemd's MemoryMax= or a container allows; UINT64_MAX where there is no limit. */
static uint64_t group_limit_bytes(void)
{
    char group[256], path[512];
    unsigned long long max;
    FILE *file = fopen("/proc/self/cgroup", "r");
    bool found = file && fscanf(file, "0::%255s", group) == 1;

    if (file)
        fclose(file);
    if (!found)
        return UINT64_MAX;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
    if (!read_number(path, "%llu", &max))
        return UINT64_MAX;
    return max;
}

uint64_t memory_available_bytes(void)
{
    unsigned long long kib;
    uint64_t group = group_limit_bytes();

    if (!read_number("/proc/meminfo", "MemAvailable: %llu kB", &kib))
        return group == UINT64_MAX ? 0 : group;
    return (uint64_t)kib << 10 < group ? (uint64_t)kib << 10 : group;
}
