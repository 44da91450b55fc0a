/* device.c - opens and closes the cuda device on one GPU. common/device/device.c in the daemon calls the open
 * function. */
#include "common/base/why.h"
#include "common/device/cuda/cuda.h"

#include "common/device/cuda/image.h"
#include "common/device/cuda/vulkan.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/trust.h"
#include "common/base/version.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 2048 /* size in bytes of the longest message of log.c */

_Thread_local bool cuda_in_callback;

/* This shared object calls these functions of the daemon.  Each call of cbf_device_open() sets the pointer to the same
 * value. */
static const struct device_host *the_host;

/* Files of common/ that are linked into this shared object call this log_message(), which passes messages to the
 * daemon's log. */
void log_message(enum log_level level, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    the_host->log(level, "%s", message);
}

void cuda_enter(struct cuda_device *device)
{
    static _Thread_local int current = -1;

    assert(!cuda_in_callback);
    if (current != device->index && cudaSetDevice(device->index) == cudaSuccess)
        current = device->index;
}

static void cuda_close(struct device *device)
{
    struct cuda_device *self = cuda_device_of(device);

    cuda_watch_stop(self);
    vulkan_close(self->vulkan);
    lock_take(&self->lock);
    assert(!self->streams && !self->pinned); /* the caller has destroyed all streams and freed all memory */
    lock_give(&self->lock);
    lock_fini(&self->lock);
    free(self->kernel_cache);
    free(self);
}

static const struct device_ops cuda_ops = {
    .close = cuda_close,
    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_pinned = cuda_alloc_pinned,
    .free_pinned = cuda_free_pinned,
    .direct_memory = cuda_direct_memory,
    .alloc_direct = cuda_alloc_direct,
    .free_direct = cuda_free_direct,
    .check_exported = cuda_check_exported,
    .alloc_exported = cuda_alloc_exported,
    .free_exported = cuda_free_exported,
    .flush_exported = cuda_flush_exported,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .stream_wait_event = cuda_stream_wait_event,
    .copy_2d = cuda_copy_2d,
    .fill = cuda_fill,
    .fft_create = cuda_fft_create,
    .fft_destroy = cuda_fft_destroy,
    .fft_run = cuda_fft_run,
    .kernel_create = cuda_kernel_create,
    .kernel_destroy = cuda_kernel_destroy,
    .map_tensor = cuda_map_tensor,
    .launch = cuda_launch,
    .then = cuda_then,
};

static int attribute(const struct cuda_device *device, enum cudaDeviceAttr which, int otherwise)
{
    int value;

    return cudaDeviceGetAttribute(&value, which, device->index) == cudaSuccess ? value : otherwise;
}

/* Creates the CUDA context, which takes most of the time of a start.  Threads will sleep while they wait for the
 * GPU. */
static int init_gpu(struct cuda_device *device, char *why, size_t why_bytes)
{
    struct cudaDeviceProp properties;

    device->major = attribute(device, cudaDevAttrComputeCapabilityMajor, 0);
    device->minor = attribute(device, cudaDevAttrComputeCapabilityMinor, 0);
    int err = image_check(device->major, device->minor, why, why_bytes);
    if (err)
        return err;
    cudaError_t error = cudaInitDevice(device->index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);

    if (error != cudaSuccess)
        return cuda_explain(error, "cudaInitDevice", why, why_bytes);
    error = cudaSetDevice(device->index);
    if (error != cudaSuccess)
        return cuda_explain(error, "cudaSetDevice", why, why_bytes);
    error = cudaGetDeviceProperties(&properties, device->index);
    if (error != cudaSuccess)
        return cuda_explain(error, "cudaGetDeviceProperties", why, why_bytes);
    memcpy(device->uuid, properties.uuid.bytes, sizeof(device->uuid));
    snprintf(device->base.model, sizeof(device->base.model), "%.80s, compute capability %d.%d", properties.name,
             device->major, device->minor);
    device->base.shared_bytes = (size_t)attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin, 48 << 10);
    device->base.n_multiprocessors = (unsigned)attribute(device, cudaDevAttrMultiProcessorCount, 0);
    cuda_find_in_driver("cuTensorMapEncodeTiled", &device->encode_tensor);
    device->max_pitch_bytes = (size_t)attribute(device, cudaDevAttrMaxPitch, 0);
    device->orders_writes =
        attribute(device, cudaDevAttrGPUDirectRDMAWritesOrdering, 0) >= cudaGPUDirectRDMAWritesOrderingOwner;
    device->flushes_writes =
        attribute(device, cudaDevAttrGPUDirectRDMAFlushWritesOptions, 0) & cudaFlushGPUDirectRDMAWritesOptionHost;
    device->numa_node = attribute(device, cudaDevAttrHostNumaId, -1);
    return 0;
}

static void log_opened(const struct cuda_device *device, const char *gpu)
{
    int driver = 0, runtime = 0;

    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    log_info("device: cuda, %s; driver for CUDA %d.%d, runtime %d.%d; kernels are kept in %s", gpu, driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10,
             device->kernel_cache ? device->kernel_cache : "no directory");
}

/* Returns the directory of compiled kernels and of tuned shapes.  Returns NULL if there is none, or if users other than
 * root and the process's own user may write there. */
static char *usable_cache(const char *configured)
{
    char *directory = image_cache_directory(configured);

    if (!directory || trust_directory(directory) != -EPERM)
        return directory;
    log_warning("device.kernel_cache: %s is not used, so each start compiles all kernels: " TRUST_CURE, directory);
    free(directory);
    return NULL;
}

device_plugin_open_fn cbf_device_open;

__attribute__((visibility("default"))) int cbf_device_open(const struct device_config *config,
                                                           const struct device_host *host, struct device **device,
                                                           char *why, size_t why_bytes)
{
    char gpu[256];

    if (strcmp(host->build_id, cbf_build_id) != 0)
        return why_fail(-ENODEV, why, why_bytes, "%s is from build %s, but this program is from build %s",
                        DEVICE_PLUGIN_FILE, cbf_build_id, host->build_id);
    the_host = host;
    struct cuda_device *new = calloc(1, sizeof(*new));
    if (!new)
        return why_fail(-ENOMEM, why, why_bytes, "there is no memory for the cuda device");
    new->base = (struct device){.ops = &cuda_ops, .name = "cuda", .compiles = true};
    new->host = host;
    lock_init(&new->lock);
    int err = cuda_choose_gpu(config->gpu, &new->index, gpu, sizeof(gpu), why, why_bytes);
    if (!err)
        err = init_gpu(new, why, why_bytes);
    if (!err) {
        err = cuda_watch_start(new);
        if (err)
            snprintf(why, why_bytes, "the thread that watches the GPU cannot be started: %s", strerror(-err));
    }
    if (err) {
        lock_fini(&new->lock);
        free(new);
        return err;
    }
    new->kernel_cache = usable_cache(config->kernel_cache);
    new->base.cache_directory = new->kernel_cache;
    if (new->kernel_cache)
        file_remove_stale(new->kernel_cache);
    log_opened(new, gpu);
    *device = &new->base;
    return 0;
}
