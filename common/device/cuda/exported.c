/* exported.c - exported memory: device memory that NICs can access.  cudaMalloc() allocates it, and the driver exports
 * it as a dma-buf. */
#include "common/base/why.h"
#include "common/device/cuda/cuda.h"

#include <cuda.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef CUresult get_handle_fn(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                               unsigned long long flags);
typedef CUresult get_device_fn(CUdevice *device);
typedef CUresult get_attribute_fn(int *value, CUdevice_attribute attribute, CUdevice device);

static bool has_dma_buf(void)
{
    get_device_fn *get_device;
    get_attribute_fn *get_attribute;
    CUdevice current;
    int has = 0;

    return cuda_find_in_driver("cuCtxGetDevice", &get_device) &&
           cuda_find_in_driver("cuDeviceGetAttribute", &get_attribute) && get_device(&current) == CUDA_SUCCESS &&
           get_attribute(&has, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, current) == CUDA_SUCCESS && has;
}

int cuda_check_exported(struct device *device, char *why, size_t why_bytes)
{
    struct cuda_device *self = cuda_device_of(device);

    cuda_enter(self);
    if (!has_dma_buf())
        snprintf(why, why_bytes,
                 "the NVIDIA driver does not share this GPU's memory as a dma-buf, which the network card needs: "
                 "install NVIDIA's open kernel modules and Linux 5.12 or later (cbf-doctor)");
    else if (!self->orders_writes && !self->flushes_writes)
        snprintf(why, why_bytes,
                 "this GPU neither orders a network card's writes before its own reads nor flushes them on request: a "
                 "kernel might read a payload before it arrives");
    else
        return 0;
    return -ENODEV;
}

int cuda_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                        size_t why_bytes)
{
    struct cuda_device *self = cuda_device_of(device);
    size_t whole_bytes =
        bytes > PTRDIFF_MAX - 2 * DEVICE_PAGE_BYTES ? 0 : (bytes / DEVICE_PAGE_BYTES + 1) * DEVICE_PAGE_BYTES;
    void *memory;
    int fd = -1;

    if (!whole_bytes)
        return why_fail(-ENOMEM, why, why_bytes, "%zu bytes of GPU memory cannot be allocated", bytes);
    cuda_enter(self);
    get_handle_fn *get_handle;
    if (!cuda_find_in_driver("cuMemGetHandleForAddressRange", &get_handle))
        return why_fail(-ENODEV, why, why_bytes,
                        "the NVIDIA driver is too old to share the GPU's memory with network cards");
    cudaError_t error = cudaMalloc(&memory, whole_bytes + DEVICE_PAGE_BYTES);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return cuda_explain(error, "cudaMalloc", why, why_bytes);
    }
    uint8_t *aligned = (uint8_t *)memory + -(uintptr_t)memory % DEVICE_PAGE_BYTES;
    CUresult result =
        get_handle(&fd, (CUdeviceptr)(uintptr_t)aligned, whole_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_bytes,
                 "the NVIDIA driver does not share the GPU's memory with network cards (cuMemGetHandleForAddressRange: "
                 "error %d): install NVIDIA's open kernel modules and Linux 5.12 or later",
                 (int)result);
        cudaFree(memory);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENODEV;
    }
    *exported =
        (struct device_exported){.device = aligned, .nic = aligned, .bytes = whole_bytes, .fd = fd, .owned = memory};
    return 0;
}

void cuda_free_exported(struct device *device, const struct device_exported *exported)
{
    cuda_enter(cuda_device_of(device));
    close(exported->fd);
    cudaFree(exported->owned);
}

/* Does nothing on most GPUs.  These GPUs order a NIC's writes before all operations that are enqueued after the
 * writes. */
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
