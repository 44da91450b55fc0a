/* fake_runtime.c - the functions of the CUDA runtime that the cuda device calls.  See fake_cuda.h. */
#include "fake_cuda.h"

#include "common/base/clock.h"
#include "tests/fakes/emulator/device_emulated.h"

#include <cudaTypedefs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_EXTERNALS 1024

static struct device *cpu;
static _Atomic bool dead;
static _Atomic long n_operations;

long fake_setting(const char *name, long otherwise)
{
    const char *at = getenv("CBF_FAKE_CUDA");
    size_t n = strlen(name);

    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return atol(at + n + 1);
    return otherwise;
}

static cudaError_t state(void)
{
    return atomic_load(&dead) ? cudaErrorIllegalAddress : cudaSuccess;
}

struct device *fake_cuda_device(void)
{
    static const struct device_config config = {.kind = DEVICE_CPU, .n_threads = 1};

    if (!cpu && (fake_setting("emulate", 0) ? device_emulated_open(&cpu) : device_cpu_open(&config, &cpu)))
        abort();
    return cpu;
}

static void die(void *arg)
{
    atomic_store(&dead, true);
}

static void hang(void *arg)
{
    for (;;)
        pause();
}

cudaError_t fake_cuda_operation(struct device_stream *stream)
{
    long n = atomic_fetch_add(&n_operations, 1) + 1;

    if (n == fake_setting("refuse", 0))
        return cudaErrorInvalidValue;
    if (n == fake_setting("die", 0))
        cpu->ops->then(stream, die, NULL);
    if (n == fake_setting("hang", 0))
        cpu->ops->then(stream, hang, NULL);
    return state();
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)fake_setting("driver", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)fake_setting("gpus", 1);
    if (fake_setting("driver", CUDART_VERSION) < CUDART_VERSION)
        return cudaErrorInsufficientDriver;
    return *n ? cudaSuccess : cudaErrorNoDevice;
}

static size_t memory_bytes(void)
{
    return (size_t)fake_setting("memory_mib", 1024) << 20;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "Fake %d", index);
    for (int k = 0; k < 16; k++)
        prop->uuid.bytes[k] = (char)(index * 16 + k);
    prop->pciBusID = 0x3a + index;
    prop->totalGlobalMem = memory_bytes();
    /* The last one is as asked for, those before it are older. */
    prop->major = index == fake_setting("gpus", 1) - 1 ? (int)fake_setting("major", 9) : 7;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int index)
{
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = (int)fake_setting("major", 9); break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 8; break;
    case cudaDevAttrMaxPitch: *value = 100; break; /* so that longer ones are tested */
    case cudaDevAttrHostNumaId: *value = 0; break;
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions: *value = (int)fake_setting("flushes", 1); break;
    case cudaDevAttrGPUDirectRDMAWritesOrdering: *value = (int)fake_setting("ordering", 100); break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int index, unsigned device_flags, unsigned flags)
{
    fake_cuda_device();
    return (cudaError_t)fake_setting("init", cudaSuccess);
}

cudaError_t cudaSetDevice(int index)
{
    return state();
}

const char *cudaGetErrorString(cudaError_t error)
{
    return "the words of CUDA";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorIllegalAddress     ? "cudaErrorIllegalAddress"
           : error == cudaErrorInvalidValue     ? "cudaErrorInvalidValue"
           : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                                : "cudaErrorUnknown";
}

cudaError_t cudaGetLastError(void)
{
    return state();
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = memory_bytes();
    *available = *total / 2;
    return state();
}

/* GPUs align to 256 bytes.  Each allocation by itself is no more than the GPU has. */
static cudaError_t allocate(enum fake_memory kind, void **memory, size_t bytes)
{
    if (state() != cudaSuccess)
        return state();
    if ((kind == FAKE_DEVICE && bytes > memory_bytes()) || bytes >= PTRDIFF_MAX || posix_memalign(memory, 256, bytes))
        return cudaErrorMemoryAllocation;
    fake_taken(kind, *memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(FAKE_DEVICE, memory, bytes);
}

/* Memory of another, by its file descriptor. */
struct external {
    void *address; /* NULL: none */
    size_t bytes;
    bool mapped; /* what cudaFree() must come for, before it goes */
};

static struct external externals[N_EXTERNALS];

cudaError_t cudaImportExternalMemory(cudaExternalMemory_t *memory, const struct cudaExternalMemoryHandleDesc *handle)
{
    struct external *e = externals;
    struct stat file;

    while (e < externals + N_EXTERNALS && e->address)
        e++;
    if (fake_setting("import", 0))
        return (cudaError_t)fake_setting("import", 0);
    if (handle->type != cudaExternalMemoryHandleTypeOpaqueFd || e == externals + N_EXTERNALS ||
        fstat(handle->handle.fd, &file) || (unsigned long long)file.st_size != handle->size)
        return cudaErrorInvalidValue;
    *e = (struct external){.bytes = handle->size};
    e->address = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle->handle.fd, 0);
    if (e->address == MAP_FAILED)
        abort();
    close(handle->handle.fd); /* ours from now on */
    *memory = (cudaExternalMemory_t)(void *)e;
    return state();
}

cudaError_t cudaExternalMemoryGetMappedBuffer(void **address, cudaExternalMemory_t memory,
                                              const struct cudaExternalMemoryBufferDesc *buffer)
{
    struct external *e = (struct external *)(void *)memory;

    if (fake_setting("map", 0))
        return (cudaError_t)fake_setting("map", 0);
    if (e->mapped || buffer->offset || buffer->size != e->bytes)
        return cudaErrorInvalidValue;
    e->mapped = true;
    *address = e->address;
    fake_taken(FAKE_DEVICE, e->address, e->bytes);
    return state();
}

cudaError_t cudaDestroyExternalMemory(cudaExternalMemory_t memory)
{
    struct external *e = (struct external *)(void *)memory;

    if (e->mapped)
        abort();
    munmap(e->address, e->bytes);
    e->address = NULL;
    return state();
}

cudaError_t cudaFree(void *memory)
{
    struct external *e = externals;

    fake_given_back(FAKE_DEVICE, memory);
    while (e < externals + N_EXTERNALS && (!e->mapped || e->address != memory))
        e++;
    if (e < externals + N_EXTERNALS)
        e->mapped = false;
    else
        free(memory);
    return state();
}

/* ---- Memory for network cards ------------------------------------------------------------------------------------ */

static CUresult get_handle(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                           unsigned long long flags)
{
    if (fake_setting("dmabuf", 0))
        return (CUresult)fake_setting("dmabuf", 0);
    if (address % 65536 || bytes % 65536 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* From now on the memory is the file. */
    if (mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        abort();
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    *device = 7;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    if (attribute != CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED || device != 7)
        return CUDA_ERROR_INVALID_VALUE;
    *value = fake_setting("has_dmabuf", 1) != 0;
    return CUDA_SUCCESS;
}

/* The map is the description, which the emulator takes. */
static CUresult encode_tensor(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                              const cuuint64_t *extent, const cuuint64_t *pitch, const cuuint32_t *box,
                              const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    struct device_tensor tensor = {.base = base};

    if (fake_setting("tensor", 0))
        return (CUresult)fake_setting("tensor", 0);
    if (type != CU_TENSOR_MAP_DATA_TYPE_UINT8 || rank != 3 || steps[0] != 1 || steps[1] != 1 || steps[2] != 1 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_NONE ||
        promotion != CU_TENSOR_MAP_L2_PROMOTION_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++) {
        tensor.extent[i] = extent[i];
        tensor.box[i] = box[i];
    }
    for (int i = 0; i < 2; i++)
        tensor.pitch[i] = pitch[i];
    memset(map, 0, sizeof(*map));
    memcpy(map, &tensor, sizeof(tensor));
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*handle)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long) = get_handle;
    CUresult (*current)(CUdevice *) = get_device;
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) = get_attribute;
    PFN_cuTensorMapEncodeTiled_v12000 encode = encode_tensor;

    *result = cudaDriverEntryPointSuccess;
    if (strcmp(symbol, "cuMemGetHandleForAddressRange") == 0 && fake_setting("dmabuf", 0) >= 0)
        memcpy(function, &handle, sizeof(handle));
    else if (strcmp(symbol, "cuCtxGetDevice") == 0)
        memcpy(function, &current, sizeof(current));
    else if (strcmp(symbol, "cuDeviceGetAttribute") == 0)
        memcpy(function, &attribute, sizeof(attribute));
    else if (strcmp(symbol, "cuTensorMapEncodeTiled") == 0 && fake_setting("tensor", 0) >= 0)
        memcpy(function, &encode, sizeof(encode));
    else
        *result = cudaDriverEntryPointSymbolNotFound;
    return state();
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
                                               enum cudaFlushGPUDirectRDMAWritesScope scope)
{
    return fake_setting("flush", 0) ? (cudaError_t)fake_setting("flush", 0) : state();
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    return allocate(FAKE_PINNED, memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    fake_given_back(FAKE_PINNED, memory);
    free(memory);
    return state();
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    if (!fake_setting("register", 1))
        return cudaErrorNotSupported;
    fake_taken(FAKE_PINNED, memory, bytes);
    return state();
}

cudaError_t cudaHostUnregister(void *memory)
{
    fake_given_back(FAKE_PINNED, memory);
    return state();
}

/* ---- Streams and events ------------------------------------------------------------------------------------------ */

static struct device_stream *stream_of(cudaStream_t stream)
{
    return (struct device_stream *)(void *)stream;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct device_stream *made;

    if (state() != cudaSuccess || cpu->ops->stream_create(cpu, "fake-stream", &made))
        return state() ? state() : cudaErrorMemoryAllocation;
    *stream = (cudaStream_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cpu->ops->stream_destroy(stream_of(stream));
    return state();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cpu->ops->stream_wait(stream_of(stream));
    return state();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return state() ? state() : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    struct device_event *made;

    if (cpu->ops->event_create(cpu, &made))
        return cudaErrorMemoryAllocation;
    *event = (cudaEvent_t)(void *)made;
    return state();
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cpu->ops->event_destroy((struct device_event *)(void *)event);
    return state();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cpu->ops->event_record((struct device_event *)(void *)event, stream_of(stream));
    return state();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cpu->ops->stream_wait_event(stream_of(stream), (struct device_event *)(void *)event);
    return state();
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* After the GPU's death operations are not run.  That copies still are is what a test must not see the use of. */
static void flip_bit(void *at)
{
    *(uint8_t *)at ^= 1;
}

/* Behind a copy. */
static void flip_sometimes(struct device_stream *stream, void *dst, const void *src)
{
    static _Atomic long n_downloads;
    long every = fake_setting("flip", 0);

    if (every && fake_has(FAKE_PINNED, dst) && fake_has(FAKE_DEVICE, src) &&
        (atomic_fetch_add(&n_downloads, 1) + 1) % every == 0)
        cpu->ops->then(stream, flip_bit, dst);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes,
                              size_t n_rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = fake_cuda_operation(stream_of(stream));

    if (dst_pitch > 100 && n_rows > 1)
        return cudaErrorInvalidValue;
    if (error == cudaSuccess)
        cpu->ops->copy_2d(stream_of(stream), dst, dst_pitch, src, src_pitch, row_bytes, n_rows);
    flip_sometimes(stream_of(stream), dst, src);
    return error;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t error = fake_cuda_operation(stream_of(stream));

    if (error == cudaSuccess)
        cpu->ops->fill(stream_of(stream), dst, (uint8_t)value, bytes);
    return error;
}

struct host_function {
    cudaHostFn_t fn;
    void *arg;
};

static void call_back(void *arg)
{
    struct host_function call = *(struct host_function *)arg;

    free(arg);
    if (!atomic_load(&dead))
        call.fn(call.arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    cudaError_t error = fake_cuda_operation(stream_of(stream));
    struct host_function *call = malloc(sizeof(*call));

    if (error != cudaSuccess || !call) {
        free(call);
        return error;
    }
    *call = (struct host_function){fn, arg};
    cpu->ops->then(stream_of(stream), call_back, call);
    return error;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* The image is a pointer to a kernel that the cpu device has made ready: fake_image.c. */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit_options,
                                void **jit_values, unsigned n_jit_options, enum cudaLibraryOption *options,
                                void **values, unsigned n_options)
{
    memcpy(library, code, sizeof(*library));
    return state();
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    *kernel = (cudaKernel_t)(void *)library;
    return strcmp(((struct device_kernel *)(void *)library)->kernel->name, name) == 0 ? state()
                                                                                      : cudaErrorSymbolNotFound;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    cpu->ops->kernel_destroy((struct device_kernel *)(void *)library);
    return state();
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *has, const void *function)
{
    memset(has, 0, sizeof(*has));
    return state();
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    return value <= 227 << 10 ? state() : cudaErrorInvalidValue;
}

static void idle(void *arg)
{
    const struct fake_idle_kernel *kernel = arg;
    int64_t end_ns = clock_monotonic_ns() + kernel->ns;

    while (clock_monotonic_ns() < end_ns)
        ;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 blocks, dim3 threads, void **args, size_t shared_bytes,
                             cudaStream_t stream)
{
    struct kernel_grid grid = {{blocks.x, blocks.y, blocks.z}, threads.x, (uint32_t)shared_bytes};
    cudaError_t error = fake_cuda_operation(stream_of(stream));

    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || threads.x == 0 || threads.x > 1024)
        return cudaErrorInvalidConfiguration;
    if (error == cudaSuccess && fake_setting("idle", 0))
        cpu->ops->then(stream_of(stream), idle, (void *)(uintptr_t)function);
    else if (error == cudaSuccess)
        cpu->ops->launch(stream_of(stream), (struct device_kernel *)(uintptr_t)function, &grid, args[0]);
    return error;
}
