/* memory.c - device memory, and pinned host memory. */
#include "common/base/memory.h"
#include "common/device/cuda/cuda.h"

#include <stdlib.h>

struct pinned_memory {
    struct pinned_memory *next;
    void *memory;
    size_t mapped_bytes; /* size of the mapping (memory_map()) registered with CUDA; 0: CUDA allocated the memory */
};

void cuda_memory(struct device *device, struct memory *memory)
{
    size_t available = 0, total = 0;

    cuda_enter(cuda_device_of(device));
    cudaMemGetInfo(&available, &total);
    *memory = (struct memory){.total_bytes = total, .available_bytes = available};
}

void *cuda_alloc(struct device *device, size_t bytes)
{
    void *memory;

    if (bytes > PTRDIFF_MAX) /* some drivers report a lack of memory as another error */
        return NULL;
    cuda_enter(cuda_device_of(device));
    cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 1);
    if (error == cudaSuccess)
        return memory;
    cuda_create_failed(cuda_device_of(device), error, "cudaMalloc");
    return NULL;
}

void cuda_free(struct device *device, void *memory)
{
    cuda_enter(cuda_device_of(device));
    cudaFree(memory);
}

/* Maps memory and registers it with CUDA.  Returns NULL after a failure. */
static void *map_pinned(struct cuda_device *device, size_t bytes)
{
    void *memory = memory_map(bytes, device->numa_node);

    if (!memory)
        return NULL;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess)
        return memory;
    cudaGetLastError();
    memory_unmap(memory, bytes);
    return NULL;
}

void *cuda_alloc_pinned(struct device *device, size_t bytes)
{
    struct cuda_device *self = cuda_device_of(device);
    struct pinned_memory *pinned = calloc(1, sizeof(*pinned));

    if (!pinned || bytes > PTRDIFF_MAX) {
        free(pinned);
        return NULL;
    }
    cuda_enter(self);
    if (bytes >= MEMORY_HUGE_PAGE_BYTES) {
        pinned->mapped_bytes = memory_mapped_bytes(bytes);
        pinned->memory = map_pinned(self, pinned->mapped_bytes);
    }
    /* The memory is too small for a mapping, or Linux or the CUDA driver refused the mapping. */
    if (!pinned->memory) {
        pinned->mapped_bytes = 0;
        cudaError_t error = cudaHostAlloc(&pinned->memory, bytes ? bytes : 1, cudaHostAllocDefault);
        if (error != cudaSuccess) {
            cuda_create_failed(self, error, "cudaHostAlloc");
            free(pinned);
            return NULL;
        }
    }
    lock_take(&self->lock);
    pinned->next = self->pinned;
    self->pinned = pinned;
    lock_give(&self->lock);
    return pinned->memory;
}

void cuda_free_pinned(struct device *device, void *memory)
{
    struct cuda_device *self = cuda_device_of(device);
    struct pinned_memory **place, *pinned;

    cuda_enter(self);
    lock_take(&self->lock);
    for (place = &self->pinned; (*place)->memory != memory; place = &(*place)->next)
        ;
    pinned = *place;
    *place = pinned->next;
    lock_give(&self->lock);
    if (pinned->mapped_bytes > 0) {
        cudaHostUnregister(memory);
        memory_unmap(memory, pinned->mapped_bytes);
    } else {
        cudaFreeHost(memory);
    }
    free(pinned);
}
