/* tensor.c - finds functions that the CUDA driver has and the CUDA runtime lacks.  Makes tensor maps with one of
 * these functions. */
#include "common/device/cuda/cuda.h"
#include "common/device/tensor_map.h"

#include <cuda.h>
#include <string.h>

#define DRIVER_VERSION 12000 /* CUDA version whose functions are requested from the driver */

bool cuda_find_in_driver(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &found, DRIVER_VERSION, cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return false;
    }
    memcpy(function, &found, sizeof(found)); /* ISO C cannot cast an object pointer to a function pointer */
    return true;
}

_Static_assert(sizeof(struct device_tensor_map) == sizeof(CUtensorMap), "it is one");

void cuda_map_tensor(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map)
{
    static const cuuint32_t steps[] = {1, 1, 1};
    const struct cuda_device *self = cuda_device_of(stream->device);
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    cuuint64_t extent[3], pitch[2];

    if (!cuda_begin((struct cuda_stream *)stream, "tensor"))
        return;
    for (int i = 0; i < 3; i++)
        extent[i] = tensor->extent[i];
    for (int i = 0; i < 2; i++)
        pitch[i] = tensor->pitch[i];
    if (self->encode_tensor)
        result = self->encode_tensor((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3,
                                     (void *)(uintptr_t)tensor->base, extent, pitch, tensor->box, steps,
                                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        cuda_check((struct cuda_stream *)stream,
                   result == CUDA_ERROR_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorInvalidValue,
                   "cuTensorMapEncodeTiled");
}
