/* device.c - chooses the device, and passes calls to its implementation.  See device.h. */
#include "common/device/device.h"

#include "common/base/why.h"
#include "common/device/plugin.h"
#include "common/base/log.h"
#include "common/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Sets the members that all implementations share, after the device has been opened.  No operation can have failed yet,
 * because there are no streams. */
static int device_opened(const struct device_config *config, int err, struct device **device)
{
    if (!err) {
        (*device)->on_failure = config->on_failure;
        (*device)->failure_arg = config->failure_arg;
    }
    return err;
}

static bool names_gpu(const struct device_config *config)
{
    return config->gpu && config->gpu[0] && strcmp(config->gpu, "auto") != 0;
}

/* Opens the cuda device.  After a failure, 'why' begins with the configuration key that requires CUDA. */
static int open_cuda(const struct device_config *config, struct device **device, char *why, size_t why_bytes)
{
    char reason[512] = "";
    int err = device_plugin_open(config, device, reason, sizeof(reason));

    if (!err || strncmp(reason, "device.", 7) == 0)
        snprintf(why, why_bytes, "%s", reason);
    else
        snprintf(why, why_bytes, "device.%s: %s", names_gpu(config) ? "gpu" : "kind", reason);
    return err;
}

static int open_cpu(const struct device_config *config, struct device **device, const char *reason, char *why,
                    size_t why_bytes)
{
    int err = device_cpu_open(config, device);

    if (err)
        snprintf(why, why_bytes, "device.kind: the cpu device cannot be opened: %s", strerror(-err));
    else
        log_info("device: cpu, %s", reason);
    return err;
}

int device_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes)
{
    char reason[600];

    if (config->kind == DEVICE_CPU)
        return device_opened(config, open_cpu(config, device, "as configured", why, why_bytes), device);
    int err = open_cuda(config, device, why, why_bytes);
    /* If there is no suitable GPU, 'auto' selects the cpu device.  If a suitable GPU exists but cannot be used now, the
     * start fails.  A restart is then better than a daemon that is too slow for its data. */
    if (err == -ENODEV && config->kind == DEVICE_AUTO && !names_gpu(config)) {
        const char *cause = strchr(why, ' ') + 1;
        snprintf(reason, sizeof(reason), "as %.*s", (int)strcspn(cause, ";"), cause); /* without advice */
        why[0] = '\0';
        err = open_cpu(config, device, reason, why, why_bytes);
    }
    return device_opened(config, err, device);
}

void device_close(struct device *device)
{
    if (device)
        device->ops->close(device);
}

const char *device_name(const struct device *device)
{
    return device->name;
}

void device_fail(struct device *device, const char *sentence)
{
    if (__atomic_exchange_n(&device->failed, true, __ATOMIC_ACQ_REL))
        return;
    log_error("%s", sentence);
    if (!device->on_failure)
        _exit(1);
    device->on_failure(device->failure_arg);
}

int device_check_memory(struct device *device, uint64_t host_bytes, uint64_t device_bytes, const char *key,
                        const char *advice, char *why, size_t why_bytes)
{
    struct memory memory;

    if (!device->ops->memory)
        return memory_check(bytes_plus(host_bytes, device_bytes), key, advice, why, why_bytes);
    int err = memory_check(host_bytes, key, advice, why, why_bytes);
    if (err)
        return err;
    device->ops->memory(device, &memory);
    return memory_check_in(&memory, "GPU memory", device_bytes, key, advice, why, why_bytes);
}

size_t device_shared_bytes(const struct device *device)
{
    return device->shared_bytes;
}

unsigned device_multiprocessors(const struct device *device)
{
    return device->n_multiprocessors ? device->n_multiprocessors : 1;
}

bool device_compiles(const struct device *device)
{
    return device->compiles;
}

const char *device_cache_directory(const struct device *device)
{
    return device->cache_directory;
}

const char *device_model(const struct device *device)
{
    return device->model;
}

bool device_has_wgmma(const struct device *device)
{
    const char *model = device_model(device);

    return strstr(model, "compute capability 9.0") != NULL || strcmp(model, "emulated") == 0;
}

size_t device_n_threads(const struct device *device)
{
    return device->n_threads;
}

void *device_alloc(struct device *device, size_t bytes)
{
    return device->ops->alloc(device, bytes);
}

void device_free(struct device *device, void *memory)
{
    if (memory)
        device->ops->free(device, memory);
}

void *device_alloc_pinned(struct device *device, size_t bytes)
{
    return device->ops->alloc_pinned(device, bytes);
}

void device_free_pinned(struct device *device, void *memory)
{
    if (memory)
        device->ops->free_pinned(device, memory);
}

uint64_t device_pinned_bytes(uint64_t bytes, bool on_gpu)
{
    return !on_gpu || bytes < MEMORY_HUGE_PAGE_BYTES || bytes > PTRDIFF_MAX ? bytes : memory_mapped_bytes(bytes);
}

int device_check_direct(struct device *device, uint64_t bytes, const char *key, const char *advice, char *why,
                        size_t why_bytes)
{
    struct memory memory = {UINT64_MAX, UINT64_MAX};
    char reason[400] = "";
    int err = device->ops->direct_memory(device, &memory, reason, sizeof(reason));

    if (err)
        snprintf(why, why_bytes, "%s: %s", key, reason);
    else
        err = memory_check_in(&memory, "GPU memory that the host can write to", bytes, key, advice, why, why_bytes);
    return err;
}

uint64_t device_direct_bytes(uint64_t bytes)
{
    return bytes > PTRDIFF_MAX ? UINT64_MAX : (bytes + DEVICE_PAGE_BYTES - 1) / DEVICE_PAGE_BYTES * DEVICE_PAGE_BYTES;
}

int device_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes)
{
    if (!device_ok(device))
        return why_fail(-EIO, why, why_bytes, "the device has failed");
    return device->ops->alloc_direct(device, bytes, direct, why, why_bytes);
}

void device_free_direct(struct device *device, const struct device_direct *direct)
{
    if (direct->host)
        device->ops->free_direct(device, direct);
}

int device_check_exported(struct device *device, const char *key, char *why, size_t why_bytes)
{
    return why_about(device->ops->check_exported(device, why, why_bytes), key, why, why_bytes);
}

int device_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                          size_t why_bytes)
{
    if (!device_ok(device))
        return why_fail(-EIO, why, why_bytes, "the device has failed");
    return device->ops->alloc_exported(device, bytes, exported, why, why_bytes);
}

void device_free_exported(struct device *device, const struct device_exported *exported)
{
    if (exported->device)
        device->ops->free_exported(device, exported);
}

uint64_t device_exported_bytes(uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX)
        return UINT64_MAX;
    return (bytes / DEVICE_PAGE_BYTES + 2) * DEVICE_PAGE_BYTES;
}

void device_flush_exported(struct device *device)
{
    if (device->ops->flush_exported)
        device->ops->flush_exported(device);
}

int device_stream_create(struct device *device, const char *name, struct device_stream **stream)
{
    return device_ok(device) ? device->ops->stream_create(device, name, stream) : -EIO;
}

void device_stream_destroy(struct device_stream *stream)
{
    if (stream)
        stream->device->ops->stream_destroy(stream);
}

void device_stream_wait(struct device_stream *stream)
{
    stream->device->ops->stream_wait(stream);
}

int device_event_create(struct device *device, struct device_event **event)
{
    return device_ok(device) ? device->ops->event_create(device, event) : -EIO;
}

void device_event_destroy(struct device_event *event)
{
    if (event)
        event->device->ops->event_destroy(event);
}

void device_event_record(struct device_event *event, struct device_stream *stream)
{
    assert(event->device == stream->device);
    stream->device->ops->event_record(event, stream);
}

void device_stream_wait_event(struct device_stream *stream, struct device_event *event)
{
    assert(event->device == stream->device);
    stream->device->ops->stream_wait_event(stream, event);
}

void device_copy(struct device_stream *stream, void *dst, const void *src, size_t bytes)
{
    device_copy_2d(stream, dst, bytes, src, bytes, bytes, 1);
}

int device_upload(struct device *device, void *dst, const void *src, size_t bytes)
{
    struct device_stream *stream;
    int err = device_stream_create(device, "upload", &stream);

    if (err)
        return err;
    device_copy(stream, dst, src, bytes);
    device_stream_wait(stream);
    device_stream_destroy(stream);
    return 0;
}

void device_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows)
{
    assert(n_rows <= 1 || (dst_pitch >= row_bytes && src_pitch >= row_bytes));
    if (row_bytes > 0 && n_rows > 0)
        stream->device->ops->copy_2d(stream, dst, dst_pitch, src, src_pitch, row_bytes, n_rows);
}

void device_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    if (bytes > 0)
        stream->device->ops->fill(stream, dst, value, bytes);
}

int device_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft)
{
    assert(n > 0 && (n & (n - 1)) == 0);
    assert(batch > 0);
    return device_ok(device) ? device->ops->fft_create(device, n, batch, fft) : -EIO;
}

void device_fft_destroy(struct device_fft *fft)
{
    if (fft)
        fft->device->ops->fft_destroy(fft);
}

void device_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    assert(fft->device == stream->device);
    assert(in != out);
    stream->device->ops->fft_run(stream, fft, in, out);
}

int device_kernel_create(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                         size_t n_constants, struct device_kernel **made)
{
    assert(kernel->args_bytes <= KERNEL_ARGS_MAX);
    return device_ok(device) ? device->ops->kernel_create(device, kernel, constants, n_constants, made) : -EIO;
}

void device_kernel_destroy(struct device_kernel *kernel)
{
    if (kernel)
        kernel->device->ops->kernel_destroy(kernel);
}

void device_map_tensor(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map)
{
    assert(stream->device->ops->map_tensor); /* the cpu device has no tensor maps */
    stream->device->ops->map_tensor(stream, tensor, map);
}

void device_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args)
{
    assert(kernel->device == stream->device);
    stream->device->ops->launch(stream, kernel, grid, args);
}

void device_then(struct device_stream *stream, void (*fn)(void *arg), void *arg)
{
    stream->device->ops->then(stream, fn, arg);
}
