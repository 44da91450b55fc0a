/* memory.h - the memory that xbgpu needs for a configuration, and the numbers of buffers of its engine.
 *
 * Pure arithmetic on a checked configuration, except xbgpu_memory_check(). */
#ifndef XBGPU_MEMORY_H
#define XBGPU_MEMORY_H

#include "common/base/memory.h"
#include "common/engine/engine.h"
#include "xbgpu/config/layout.h"

/* Returns the memory of all stages.  A size of UINT64_MAX exceeds 64 bits.  'mtu' is the MTU of recv's interface, which
 * determines the size of NIC frames; 0 means the largest MTU. */
struct memory_use xbgpu_memory(const struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu,
                               size_t mtu);

/* Checks memory and CPUs as engine_check_memory() does. */
int xbgpu_memory_check(const struct memory_use *memory, const struct xbgpu_config *config, struct device *device,
                       char *why, size_t why_bytes);

/* Returns the engine's sizes for this configuration. */
struct engine_sizes xbgpu_engine_sizes(const struct xbgpu_layout *layout, const struct xbgpu_config *config);

#endif
