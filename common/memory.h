/* memory.h - how much memory this machine still has, for the check before start. */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include <stdint.h>

/* Bytes that can be taken without swapping (MemAvailable of /proc/meminfo) and within the control group's limit; 0 if
 * that cannot be read. */
uint64_t memory_available_bytes(void);

#endif
