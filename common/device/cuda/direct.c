/* direct.c - direct memory, which Vulkan allocates and CUDA imports. */
#include "common/device/cuda/cuda.h"
#include "common/device/cuda/vulkan.h"
#include "common/base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct direct_memory {
    struct vulkan_memory vulkan;
    cudaExternalMemory_t imported;
};

int cuda_direct_memory(struct device *device, struct memory *memory, char *why, size_t why_bytes)
{
    struct cuda_device *self = cuda_device_of(device);
    int err = self->vulkan ? 0 : vulkan_open(self->uuid, &self->vulkan, why, why_bytes);

    if (err)
        return err;
    uint64_t bytes = vulkan_heap_bytes(self->vulkan);
    *memory = (struct memory){.total_bytes = bytes, .available_bytes = bytes};
    return 0;
}

/* Imports the memory into CUDA, which then owns the file descriptor.  After a failure, the caller frees the imported
 * part with direct_free(). */
static int import(struct direct_memory *memory, void **address, char *why, size_t why_bytes)
{
    const struct cudaExternalMemoryHandleDesc handle = {
        .type = cudaExternalMemoryHandleTypeOpaqueFd, .handle.fd = memory->vulkan.fd, .size = memory->vulkan.bytes};
    const struct cudaExternalMemoryBufferDesc buffer = {.size = memory->vulkan.bytes};
    cudaError_t error = cudaImportExternalMemory(&memory->imported, &handle);

    if (error != cudaSuccess) {
        close(memory->vulkan.fd);
        memory->imported = NULL;
        cudaGetLastError();
        return cuda_explain(error, "cudaImportExternalMemory", why, why_bytes);
    }
    error = cudaExternalMemoryGetMappedBuffer(address, memory->imported, &buffer);
    if (error == cudaSuccess)
        return 0;
    cudaGetLastError();
    return cuda_explain(error, "cudaExternalMemoryGetMappedBuffer", why, why_bytes);
}

static void direct_free(struct cuda_device *device, struct direct_memory *memory)
{
    if (memory->imported)
        cudaDestroyExternalMemory(memory->imported);
    vulkan_free(device->vulkan, &memory->vulkan);
    free(memory);
}

int cuda_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes)
{
    struct cuda_device *self = cuda_device_of(device);
    struct direct_memory *new = calloc(1, sizeof(*new));
    struct memory heap;
    void *address;
    int err = new ? cuda_direct_memory(device, &heap, why, why_bytes) : -ENOMEM;

    if (!err)
        err = vulkan_alloc(self->vulkan, bytes, &new->vulkan, why, why_bytes);
    if (err) {
        free(new);
        return err;
    }
    cuda_enter(self);
    err = import(new, &address, why, why_bytes);
    if (err)
        direct_free(self, new);
    else
        *direct = (struct device_direct){new->vulkan.host, address, bytes, new};
    return err;
}

void cuda_free_direct(struct device *device, const struct device_direct *direct)
{
    struct cuda_device *self = cuda_device_of(device);

    cuda_enter(self);
    cudaFree(direct->device);
    direct_free(self, direct->owned);
}
