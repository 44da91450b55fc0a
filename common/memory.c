/* memory.c - reads /proc/meminfo. */
#include "common/memory.h"

#include <stdio.h>

uint64_t memory_available_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return (uint64_t)kib << 10;
}
