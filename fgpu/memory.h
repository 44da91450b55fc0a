/* memory.h - the memory that fgpu needs for a configuration, and the numbers of buffers of its engine.
 *
 * Pure arithmetic on a checked configuration, except fgpu_memory_check(). */
#ifndef FGPU_MEMORY_H
#define FGPU_MEMORY_H

#include "common/base/memory.h"
#include "common/engine/engine.h"
#include "fgpu/config/layout.h"

/* Returns the memory of all stages.  A size of UINT64_MAX exceeds 64 bits.  The device bytes include exported memory.
 * 'shared_bytes' is the result of device_shared_bytes().  'choices' is [output], or NULL for the defaults.  'mtu' is
 * the MTU of recv's interface, which determines the size of NIC frames; 0 means the largest MTU. */
struct memory_use fgpu_memory(const struct fgpu_layout *layout, const struct fgpu_config *config, size_t shared_bytes,
                              const struct fgpu_choice *choices, size_t mtu);

/* Checks that the device's kernels support the outputs' buffers.  Then checks memory and CPUs as engine_check_memory()
 * does. */
int fgpu_memory_check(const struct memory_use *memory, const struct fgpu_config *config, struct device *device,
                      char *why, size_t why_bytes);

/* Returns the engine's sizes for this configuration. */
struct engine_sizes fgpu_engine_sizes(const struct fgpu_layout *layout, const struct fgpu_config *config);

#endif
