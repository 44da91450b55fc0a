/* device.c - which device runs the pipelines, and the way to its operations.  See device.h. */
#include "common/device.h"

#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int device_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes)
{
    int err;

    if (config->kind == DEVICE_CUDA) {
        snprintf(why, why_bytes, "there is no cuda device in this build; use 'auto' or 'cpu'");
        return -ENODEV;
    }
    err = device_cpu_open(config, device);
    if (err) {
        snprintf(why, why_bytes, "the cpu device does not open: %s", strerror(-err));
        return err;
    }
    log_info("device: cpu, %s",
             config->kind == DEVICE_AUTO ? "as there is no cuda device in this build" : "as configured");
    return 0;
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

bool device_compiles(const struct device *device)
{
    return device->compiles;
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

int device_stream_create(struct device *device, const char *name, struct device_stream **stream)
{
    return device->ops->stream_create(device, name, stream);
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
    return device->ops->event_create(device, event);
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
    return device->ops->fft_create(device, n, batch, fft);
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
    return device->ops->kernel_create(device, kernel, constants, n_constants, made);
}

void device_kernel_destroy(struct device_kernel *kernel)
{
    if (kernel)
        kernel->device->ops->kernel_destroy(kernel);
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
