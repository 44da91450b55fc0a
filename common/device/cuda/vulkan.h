/* vulkan.h - GPU memory that the host can write to.  CUDA cannot map such memory, but Vulkan can: host-visible memory
 * of the device, mapped through the PCI window (BAR) and exported to CUDA as a file descriptor.
 *
 * libvulkan.so.1 is opened when it is first needed.  A build without Vulkan's headers only has a sentence that says so.
 *
 * Threads: one at a time.   Blocking: opening takes as long as a driver's start. */
#ifndef COMMON_DEVICE_CUDA_VULKAN_H
#define COMMON_DEVICE_CUDA_VULKAN_H

#include <stddef.h>
#include <stdint.h>

#define VULKAN_UUID_BYTES 16

/* A GPU, opened with Vulkan. */
struct vulkan;

struct vulkan_memory {
    uint8_t *host;  /* address for the host's writes; coherent, but not cached */
    size_t bytes;   /* at least the requested bytes */
    int fd;         /* of all bytes, for CUDA (cudaExternalMemoryHandleTypeOpaqueFd); the caller closes or gives it */
    uint64_t owned; /* Vulkan's handle */
};

/* Finds the GPU with this UUID.  Returns 0, or negative errno with one sentence in 'why'; -ENODEV if a restart does not
 * help. */
int vulkan_open(const uint8_t uuid[VULKAN_UUID_BYTES], struct vulkan **vulkan, char *why, size_t why_bytes);
/* Closes Vulkan after all memory has been freed.  NULL is accepted. */
void vulkan_close(struct vulkan *vulkan);

/* Returns the size of the host-visible memory, memory in use included: the PCI window's size, or the GPU memory's. */
uint64_t vulkan_heap_bytes(const struct vulkan *vulkan);

/* Allocates memory.  Errors as for vulkan_open(). */
int vulkan_alloc(struct vulkan *vulkan, size_t bytes, struct vulkan_memory *memory, char *why, size_t why_bytes);
void vulkan_free(struct vulkan *vulkan, const struct vulkan_memory *memory);

#endif
