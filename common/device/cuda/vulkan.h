/* vulkan.h - memory of the GPU that the host can write to.  CUDA has no way to map any, Vulkan has: host-visible memory of
 * the device, mapped through the PCI window (BAR) and exported to CUDA as a file descriptor.
 *
 * libvulkan.so.1 is opened when it is first needed.  Built without Vulkan's headers there is only the sentence that says
 * so.   Threads: one at a time.   Blocking: opening takes as long as a driver's start. */
#ifndef COMMON_DEVICE_CUDA_VULKAN_H
#define COMMON_DEVICE_CUDA_VULKAN_H

#include <stddef.h>
#include <stdint.h>

#define VULKAN_UUID_BYTES 16

/* The GPU as Vulkan has it. */
struct vulkan;

struct vulkan_memory {
    uint8_t *host;  /* for the host to write to; coherent, but not cached */
    size_t bytes;   /* as many as asked for, or more */
    int fd;         /* of all of it, for CUDA (cudaExternalMemoryHandleTypeOpaqueFd); the caller's to close or give */
    uint64_t owned; /* Vulkan's memory */
};

/* Finds the GPU with this UUID.  Returns 0, or negative errno with one sentence in 'why'; -ENODEV where a restart cures
 * nothing. */
int vulkan_open(const uint8_t uuid[VULKAN_UUID_BYTES], struct vulkan **vulkan, char *why, size_t why_bytes);
/* NULL is accepted; all memory must have been freed. */
void vulkan_close(struct vulkan *vulkan);

/* Size of the host-visible memory, memory in use included: that of the PCI window, or of the GPU's memory. */
uint64_t vulkan_heap_bytes(const struct vulkan *vulkan);

/* Errors as above. */
int vulkan_alloc(struct vulkan *vulkan, size_t bytes, struct vulkan_memory *memory, char *why, size_t why_bytes);
void vulkan_free(struct vulkan *vulkan, const struct vulkan_memory *memory);

#endif
