/* memory.c - device memory, and host memory that the GPU copies from and to at full speed. */
#include "common/memory.h"
#include "common/cuda/cuda.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define MAX_NUMA_NODES  1024

struct pinned_memory {
    struct pinned_memory *next;
    void *memory;
    size_t mapped_bytes; /* of our own mapping, which CUDA was told of; 0: CUDA's own memory */
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

    if (bytes > PTRDIFF_MAX) /* an error, not a want of memory, to some drivers */
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

/* A wish: memory on another node works, at the speed of the link between the nodes. */
static void prefer_node(void *memory, size_t bytes, int node)
{
    unsigned long mask[MAX_NUMA_NODES / (8 * sizeof(unsigned long))] = {0};
    size_t bits = 8 * sizeof(unsigned long);

    if (node < 0 || node >= MAX_NUMA_NODES)
        return;
    mask[(size_t)node / bits] = 1UL << ((size_t)node % bits);
    syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, MAX_NUMA_NODES, 0);
}

/* Maps whole huge pages on the GPU's node, and makes them be there, so that no page is first touched by a packet. */
static void *map_huge(size_t bytes, int node)
{
    size_t mapped_bytes = bytes + HUGE_PAGE_BYTES;
    uint8_t *mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mapped == MAP_FAILED)
        return NULL;
    /* What lies outside of whole huge pages goes back. */
    size_t before = (size_t)(-(uintptr_t)mapped % HUGE_PAGE_BYTES);
    uint8_t *memory = mapped + before;
    if (before > 0)
        munmap(mapped, before);
    if (before < HUGE_PAGE_BYTES)
        munmap(memory + bytes, HUGE_PAGE_BYTES - before);
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
    prefer_node(memory, bytes, node);
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return memory;
    if (errno == EINVAL) { /* a kernel before 5.14 */
        memset(memory, 0, bytes);
        return memory;
    }
    munmap(memory, bytes);
    return NULL;
}

/* Returns memory that is pinned, or NULL. */
static void *map_pinned(struct cuda_device *device, size_t bytes)
{
    void *memory = map_huge(bytes, device->numa_node);

    if (!memory)
        return NULL;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess)
        return memory;
    cudaGetLastError();
    munmap(memory, bytes);
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
    if (bytes >= HUGE_PAGE_BYTES) {
        pinned->mapped_bytes = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        pinned->memory = map_pinned(self, pinned->mapped_bytes);
    }
    /* Small, or the kernel or the driver does not like ours. */
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
        munmap(memory, pinned->mapped_bytes);
    } else {
        cudaFreeHost(memory);
    }
    free(pinned);
}
