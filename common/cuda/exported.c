/* exported.c - device memory that network cards reach: cudaMalloc()'s, of which the driver makes a dma-buf. */
#include "common/cuda/cuda.h"

#include <cuda.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define ALIGN_BYTES    ((size_t)65536) /* a page of the GPU: what dma-bufs consist of */
#define DRIVER_VERSION 12000           /* whose cuMemGetHandleForAddressRange() is meant */

typedef CUresult get_handle_fn(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                               unsigned long long flags);

/* Only the runtime is linked. */
static get_handle_fn *find_get_handle(void)
{
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    get_handle_fn *function;

    if (cudaGetDriverEntryPointByVersion("cuMemGetHandleForAddressRange", &found, DRIVER_VERSION, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return NULL;
    }
    *(void **)(void *)&function = found; /* ISO C has no cast from an object's address to a function's */
    return function;
}

int cuda_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                        size_t why_bytes)
{
    struct cuda_device *self = cuda_device_of(device);
    size_t whole_bytes = bytes > PTRDIFF_MAX - 2 * ALIGN_BYTES ? 0 : (bytes / ALIGN_BYTES + 1) * ALIGN_BYTES;
    void *memory;
    int fd = -1;

    if (!whole_bytes) {
        snprintf(why, why_bytes, "there is no GPU memory of %zu bytes", bytes);
        return -ENOMEM;
    }
    cuda_enter(self);
    get_handle_fn *get_handle = find_get_handle();
    if (!get_handle) {
        snprintf(why, why_bytes, "the NVIDIA driver is too old to share the GPU's memory with network cards");
        return -ENODEV;
    }
    cudaError_t error = cudaMalloc(&memory, whole_bytes + ALIGN_BYTES);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return cuda_explain(error, "cudaMalloc", why, why_bytes);
    }
    uint8_t *aligned = (uint8_t *)memory + -(uintptr_t)memory % ALIGN_BYTES;
    CUresult result =
        get_handle(&fd, (CUdeviceptr)(uintptr_t)aligned, whole_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_bytes,
                 "the NVIDIA driver does not share the GPU's memory with network cards "
                 "(cuMemGetHandleForAddressRange: error %d): that takes its open kernel modules and Linux 5.12",
                 (int)result);
        cudaFree(memory);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENODEV;
    }
    *exported = (struct device_exported){aligned, aligned, whole_bytes, fd, memory};
    return 0;
}

void cuda_free_exported(struct device *device, const struct device_exported *exported)
{
    cuda_enter(cuda_device_of(device));
    close(exported->fd);
    cudaFree(exported->owned);
}

/* Most GPUs keep the order of what a card writes and the work that they are given afterwards. */
void cuda_flush_exported(struct device *device)
{
    struct cuda_device *self = cuda_device_of(device);

    if (self->orders_writes)
        return;
    cuda_enter(self);
    cudaError_t error = cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                           cudaFlushGPUDirectRDMAWritesToOwner);
    if (error != cudaSuccess)
        cuda_create_failed(self, error, "cudaDeviceFlushGPUDirectRDMAWrites");
}
