/* stream.c - streams, events, copies and callbacks of the cuda device.  Callbacks: CUDA runs no callbacks after a
 * failure of the GPU, so each stream keeps a ring of its pending callbacks.  Each call from CUDA runs the oldest
 * callback.  After a failure, the thread that detected the failure runs the remaining callbacks.  Each callback runs
 * exactly once. */
#include "common/device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct cuda_stream *cuda_stream_of(struct device_stream *stream)
{
    return (struct cuda_stream *)stream;
}

bool cuda_begin(struct cuda_stream *stream, const char *what)
{
    cuda_enter(cuda_device_of(stream->base.device));
    if (!device_ok(stream->base.device))
        return false;
    stream->newest = what;
    return true;
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

int cuda_stream_create(struct device *device, const char *name, struct device_stream **stream)
{
    struct cuda_device *self = cuda_device_of(device);
    struct cuda_stream *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    cuda_enter(self);
    cudaError_t error = cudaStreamCreateWithFlags(&new->handle, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        free(new);
        return cuda_create_failed(self, error, "cudaStreamCreateWithFlags");
    }
    new->base.device = device;
    new->newest = "nothing";
    snprintf(new->name, sizeof(new->name), "%s", name);
    lock_init(&new->lock);
    lock_init_condition(&new->room);
    lock_take(&self->lock);
    new->next = self->streams;
    self->streams = new;
    lock_give(&self->lock);
    *stream = &new->base;
    return 0;
}

void cuda_stream_wait(struct device_stream *stream)
{
    struct cuda_stream *self = cuda_stream_of(stream);

    cuda_enter(cuda_device_of(stream->device));
    if (device_ok(stream->device))
        cuda_check(self, cudaStreamSynchronize(self->handle), "cudaStreamSynchronize");
}

void cuda_stream_destroy(struct device_stream *stream)
{
    struct cuda_stream *self = cuda_stream_of(stream);
    struct cuda_device *device = cuda_device_of(stream->device);
    struct cuda_stream **place;

    cuda_stream_wait(stream);
    lock_take(&device->lock);
    for (place = &device->streams; *place != self; place = &(*place)->next)
        ;
    *place = self->next;
    lock_give(&device->lock);
    /* After a failure CUDA may still call called_back(), which takes the lock.  This thread therefore takes the lock
     * once, and so waits until such a call has released the lock. */
    cudaStreamSynchronize(self->handle);
    cudaStreamDestroy(self->handle);
    lock_take(&self->lock);
    lock_give(&self->lock);
    pthread_cond_destroy(&self->room);
    lock_fini(&self->lock);
    free(self);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

int cuda_event_create(struct device *device, struct device_event **event)
{
    struct cuda_event *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    cuda_enter(cuda_device_of(device));
    cudaError_t error = cudaEventCreateWithFlags(&new->handle, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(new);
        return cuda_create_failed(cuda_device_of(device), error, "cudaEventCreateWithFlags");
    }
    new->base.device = device;
    *event = &new->base;
    return 0;
}

void cuda_event_destroy(struct device_event *event)
{
    cuda_enter(cuda_device_of(event->device));
    cudaEventDestroy(((struct cuda_event *)event)->handle);
    free(event);
}

void cuda_event_record(struct device_event *event, struct device_stream *stream)
{
    struct cuda_stream *self = cuda_stream_of(stream);

    if (cuda_begin(self, self->newest))
        cuda_check(self, cudaEventRecord(((struct cuda_event *)event)->handle, self->handle), "cudaEventRecord");
}

void cuda_stream_wait_event(struct device_stream *stream, struct device_event *event)
{
    struct cuda_stream *self = cuda_stream_of(stream);

    if (cuda_begin(self, self->newest))
        cuda_check(self, cudaStreamWaitEvent(self->handle, ((struct cuda_event *)event)->handle, 0),
                   "cudaStreamWaitEvent");
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

static bool copy(struct cuda_stream *stream, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    return cuda_check(stream, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream->handle), "cudaMemcpyAsync");
}

void cuda_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                  size_t row_bytes, size_t n_rows)
{
    struct cuda_stream *self = cuda_stream_of(stream);
    size_t max_pitch = cuda_device_of(stream->device)->max_pitch_bytes;

    if (!cuda_begin(self, "copy"))
        return;
    if (n_rows == 1 || (dst_pitch == row_bytes && src_pitch == row_bytes)) {
        copy(self, dst, src, row_bytes * n_rows);
    } else if (dst_pitch <= max_pitch && src_pitch <= max_pitch) {
        cuda_check(
            self, cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, row_bytes, n_rows, cudaMemcpyDefault, self->handle),
            "cudaMemcpy2DAsync");
    } else {
        bool ok = true;
        for (size_t row = 0; ok && row < n_rows; row++)
            ok = copy(self, (uint8_t *)dst + row * dst_pitch, (const uint8_t *)src + row * src_pitch, row_bytes);
    }
}

void cuda_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    struct cuda_stream *self = cuda_stream_of(stream);

    if (cuda_begin(self, "fill"))
        cuda_check(self, cudaMemsetAsync(dst, value, bytes, self->handle), "cudaMemsetAsync");
}

/* ---- Callbacks --------------------------------------------------------------------------------------------------- */

static void run(const struct pending_then *then)
{
    bool before = cuda_in_callback;

    cuda_in_callback = true;
    then->fn(then->arg);
    cuda_in_callback = before;
}

/* Runs the oldest pending callback.  Returns false if there is none. */
static bool run_oldest(struct cuda_stream *stream)
{
    struct pending_then then;

    lock_take(&stream->lock);
    bool any = stream->n_run < stream->n_given;
    if (any) {
        then = stream->thens[stream->n_run++ % DEVICE_STREAM_DEPTH];
        pthread_cond_signal(&stream->room);
    }
    lock_give(&stream->lock);
    if (any)
        run(&then);
    return any;
}

void cuda_stream_run_pending(struct cuda_stream *stream)
{
    while (run_oldest(stream))
        ;
    lock_take(&stream->lock);
    pthread_cond_broadcast(&stream->room);
    lock_give(&stream->lock);
}

static void CUDART_CB called_back(void *stream)
{
    run_oldest(stream);
}

/* Adds a callback to the ring.  Returns false if the device has failed; the caller must then run the callback. */
static bool push_then(struct cuda_stream *stream, const struct pending_then *then)
{
    lock_take(&stream->lock);
    while (stream->n_given - stream->n_run == DEVICE_STREAM_DEPTH && device_ok(stream->base.device))
        pthread_cond_wait(&stream->room, &stream->lock.mutex);
    /* The check holds the lock.  So either cuda_stream_run_pending() finds the callback, or this check detects the
     * failure. */
    bool ok = device_ok(stream->base.device);
    if (ok)
        stream->thens[stream->n_given++ % DEVICE_STREAM_DEPTH] = *then;
    lock_give(&stream->lock);
    return ok;
}

void cuda_then(struct device_stream *stream, void (*fn)(void *arg), void *arg)
{
    struct cuda_stream *self = cuda_stream_of(stream);
    struct pending_then then = {fn, arg};

    cuda_enter(cuda_device_of(stream->device));
    if (push_then(self, &then)) {
        cuda_check(self, cudaLaunchHostFunc(self->handle, called_back, self), "cudaLaunchHostFunc");
    } else {
        cudaStreamSynchronize(self->handle); /* waits for earlier operations, which may still be running */
        run(&then);
    }
}
