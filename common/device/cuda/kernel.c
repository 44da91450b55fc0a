/* kernel.c - prepares kernels for launches, and launches them. */
#include "common/device/cuda/cuda.h"
#include "common/device/cuda/image.h"
#include "common/base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_kernel {
    struct device_kernel base;
    cudaLibrary_t library; /* [const] */
    cudaKernel_t handle;   /* [const] */
};

static int make_failed(const struct cuda_kernel *kernel, cudaError_t error, const char *call)
{
    char of[128];

    snprintf(of, sizeof(of), "%s of kernel %s", call, kernel->base.kernel->name);
    return cuda_create_failed(cuda_device_of(kernel->base.device), error, of);
}

/* Loads a kernel into the GPU, so that the first launch is not delayed.  Lets launches use all shared memory of a
 * block. */
static int make_ready(const struct cuda_device *device, const struct cuda_kernel *kernel)
{
    struct cudaFuncAttributes has;
    cudaError_t error = cudaFuncGetAttributes(&has, (const void *)kernel->handle);

    if (error != cudaSuccess)
        return make_failed(kernel, error, "cudaFuncGetAttributes");
    log_debug("kernel %s: %d registers, %zu bytes of local memory per thread", kernel->base.kernel->name, has.numRegs,
              has.localSizeBytes);
    error = cudaFuncSetAttribute((const void *)kernel->handle, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)(device->base.shared_bytes - has.sharedSizeBytes));
    return error == cudaSuccess ? 0 : make_failed(kernel, error, "cudaFuncSetAttribute");
}

static int load(const struct cuda_device *device, struct cuda_kernel *kernel, const struct image *image)
{
    cudaError_t error = cudaLibraryLoadData(&kernel->library, image->data, NULL, NULL, 0, NULL, NULL, 0);

    if (error != cudaSuccess)
        return make_failed(kernel, error, "cudaLibraryLoadData");
    error = cudaLibraryGetKernel(&kernel->handle, kernel->library, kernel->base.kernel->name);
    int err = error == cudaSuccess ? make_ready(device, kernel) : make_failed(kernel, error, "cudaLibraryGetKernel");
    if (err)
        cudaLibraryUnload(kernel->library);
    return err;
}

int cuda_kernel_create(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                       size_t n_constants, struct device_kernel **made)
{
    struct cuda_device *self = cuda_device_of(device);
    struct image_request request = {.kernel = kernel,
                                    .constants = constants,
                                    .n_constants = n_constants,
                                    .major = self->major,
                                    .minor = self->minor};
    struct cuda_kernel *new = calloc(1, sizeof(*new));
    struct image image;

    if (!new)
        return -ENOMEM;
    new->base = (struct device_kernel){device, kernel};
    cuda_enter(self);
    int err = image_get(&request, self->kernel_cache, &image);
    if (!err) {
        err = load(self, new, &image);
        image_free(&image);
    }
    if (err)
        free(new);
    else
        *made = &new->base;
    return err;
}

void cuda_kernel_destroy(struct device_kernel *kernel)
{
    struct cuda_kernel *self = (struct cuda_kernel *)kernel;

    cuda_enter(cuda_device_of(kernel->device));
    cudaLibraryUnload(self->library);
    free(self);
}

void cuda_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                 const void *args)
{
    struct cuda_stream *to = (struct cuda_stream *)stream;
    const struct cuda_kernel *self = (const struct cuda_kernel *)kernel;
    void *parameters[] = {(void *)(uintptr_t)args};
    char call[160];

    assert(grid);
    if (!cuda_begin(to, kernel->kernel->name))
        return;
    dim3 blocks = {grid->blocks[0], grid->blocks[1], grid->blocks[2]}, threads = {grid->threads, 1, 1};
    cudaError_t error =
        cudaLaunchKernel((const void *)self->handle, blocks, threads, parameters, grid->shared_bytes, to->handle);
    if (error == cudaSuccess)
        return;
    snprintf(call, sizeof(call), "cudaLaunchKernel of %u x %u x %u blocks of %u threads and %u bytes of shared memory",
             blocks.x, blocks.y, blocks.z, threads.x, grid->shared_bytes);
    cuda_check(to, error, call);
}
