/* vulkan.h - GPU memory that the host can write to.  CUDA cannot map GPU memory for the host, but Vulkan can.  The
 * host-visible memory of the GPU is mapped through the PCI window (BAR), and exported to CUDA as a file descriptor.
 * libvulkan.so.1 is opened when it is first needed.  In a build without Vulkan's headers, vulkan_open() fails with a
 * sentence that gives this reason.
 *
 * Threads: one at a time.   Blocking: vulkan_open() takes as long as the start of a driver. */
#ifndef COMMON_DEVICE_CUDA_VULKAN_H
#define COMMON_DEVICE_CUDA_VULKAN_H

#include <stddef.h>
#include <stdint.h>

#define VULKAN_UUID_BYTES 16

/* A GPU that was opened with Vulkan. */
struct vulkan;

struct vulkan_memory {
    uint8_t *host;  /* address for writes by the host; coherent, but not cached */
    size_t bytes;   /* size in bytes, at least the requested size */
    int fd;         /* descriptor for CUDA (cudaExternalMemoryHandleTypeOpaqueFd), owned by the caller */
    uint64_t owned; /* Vulkan's handle */
};

/* Opens the GPU with this UUID.  Returns 0, or negative errno with one sentence in 'why'.  -ENODEV: a restart would
 * fail again. */
int vulkan_open(const uint8_t uuid[VULKAN_UUID_BYTES], struct vulkan **vulkan, char *why, size_t why_bytes);
/* Closes the GPU.  All memory must have been freed.  NULL is accepted. */
void vulkan_close(struct vulkan *vulkan);

/* Returns the size of the host-visible memory, including memory in use.  The PCI window or the GPU's memory limits this
 * size. */
uint64_t vulkan_heap_bytes(const struct vulkan *vulkan);

/* Allocates memory.  Returns the same errors as vulkan_open(). */
int vulkan_alloc(struct vulkan *vulkan, size_t bytes, struct vulkan_memory *memory, char *why, size_t why_bytes);
void vulkan_free(struct vulkan *vulkan, const struct vulkan_memory *memory);

#endif
