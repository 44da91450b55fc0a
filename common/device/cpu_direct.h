/* cpu_direct.h - direct and exported memory of the cpu device.  Direct memory has two addresses, as on a GPU, so that
 * code that confuses the two addresses fails.  The host's address is mapped for writing only.  The CPU allows reads
 * nevertheless; tests/fakes/direct_guard/ detects these reads. */
#ifndef COMMON_DEVICE_CPU_DIRECT_H
#define COMMON_DEVICE_CPU_DIRECT_H

#include "common/device/device.h"

/* Operations for struct device_ops in device/cpu.c. */
int device_cpu_direct_memory(struct device *device, struct memory *memory, char *why, size_t why_bytes);
int device_cpu_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why,
                            size_t why_bytes);
void device_cpu_free_direct(struct device *device, const struct device_direct *direct);
int device_cpu_check_exported(struct device *device, char *why, size_t why_bytes);
int device_cpu_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                              size_t why_bytes);
void device_cpu_free_exported(struct device *device, const struct device_exported *exported);

#endif
