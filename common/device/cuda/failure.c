/* failure.c - handles CUDA errors: logs a sentence, and ends the device.
 *
 * The error of a failed kernel is returned by the next CUDA call.  There may be no next call, because all threads may
 * be waiting for callbacks that CUDA will never run.  So the watch thread polls every WATCH_INTERVAL_MS.  The first
 * thread that gets the error logs the sentence, and runs the callbacks that CUDA has not run.  Later operations do
 * nothing (device.h).
 *
 * A hung GPU returns no error, and every call may block.  The watch thread beats (thread.h) as long as every stream
 * with pending callbacks runs callbacks.  Without beats the watchdog ends the process. */
#include "common/device/cuda/cuda.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* If no callback of a stream runs during HANGS_LOOKS checks, the stream counts as hung.  The checks take 3 s.  A
 * real-time chunk takes less time. */
#define WATCH_INTERVAL_MS 100
#define HANGS_LOOKS       30

static int errno_of(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation: return -ENOMEM;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return -ENODEV;
    case cudaErrorDevicesUnavailable: return -EBUSY;
    default: return -EIO;
    }
}

int cuda_explain(cudaError_t error, const char *call, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "%s failed: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
    return errno_of(error);
}

int cuda_create_failed(struct cuda_device *device, cudaError_t error, const char *call)
{
    char why[256], sentence[300];
    int err = cuda_explain(error, call, why, sizeof(why));

    cudaGetLastError(); /* clears the error, so that the next launch does not report it again */
    snprintf(sentence, sizeof(sentence), "cuda: %s", why);
    if (err != -ENOMEM)
        device->host->fail(&device->base, sentence);
    return err;
}

static void describe_streams(struct cuda_device *device, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    lock_take(&device->lock);
    for (struct cuda_stream *s = device->streams; s && n < bytes; s = s->next)
        n += (size_t)snprintf(text + n, bytes - n, "%s%s: %s", n ? ", " : "", s->name, s->newest);
    lock_give(&device->lock);
}

static void fail(struct cuda_device *device, const char *stream, const char *what, cudaError_t error, const char *call)
{
    char sentence[1024], where[128], streams[512], why[256];

    snprintf(where, sizeof(where), "%s on stream %s", call, stream);
    cuda_explain(error, where, why, sizeof(why));
    describe_streams(device, streams, sizeof(streams));
    snprintf(sentence, sizeof(sentence), "cuda: %s: %s; newest operation of each stream: %s", what, why, streams);
    device->host->fail(&device->base, sentence);
    lock_take(&device->lock);
    /* Waits for all streams before the callbacks return buffers.  If CUDA only refused a call, the GPU still works and
     * may use the buffers.  If the GPU has failed, these calls return at once. */
    for (struct cuda_stream *s = device->streams; s; s = s->next)
        cudaStreamSynchronize(s->handle);
    for (struct cuda_stream *s = device->streams; s; s = s->next)
        cuda_stream_run_pending(s);
    lock_give(&device->lock);
}

bool cuda_check(struct cuda_stream *stream, cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return true;
    fail(cuda_device_of(stream->base.device), stream->name, stream->newest, error, call);
    return false;
}

/* Polls for an error.  One stream is enough, because all streams of a context report an error of the GPU. */
static cudaError_t ask(struct cuda_device *device, char *stream, size_t bytes)
{
    cudaError_t error = cudaSuccess;

    lock_take(&device->lock);
    if (device->streams) {
        snprintf(stream, bytes, "%s", device->streams->name);
        error = cudaStreamQuery(device->streams->handle);
    }
    lock_give(&device->lock);
    return error == cudaErrorNotReady ? cudaSuccess : error;
}

/* Returns true if the stream hangs: callbacks are waiting, and none of them has run during HANGS_LOOKS checks.  Logs a
 * hang once. */
static bool stream_hangs(struct cuda_device *device, struct cuda_stream *stream)
{
    lock_take(&stream->lock);
    bool stands = stream->n_run < stream->n_given && stream->n_run == stream->n_run_seen;
    stream->n_run_seen = stream->n_run;
    lock_give(&stream->lock);
    stream->n_looks = stands ? stream->n_looks + 1 : 0;
    if (stream->n_looks == HANGS_LOOKS)
        device->host->log(LOG_LEVEL_ERROR,
                          "cuda: stream %s hangs: no operation has completed for %d s; newest operation: %s",
                          stream->name, HANGS_LOOKS * WATCH_INTERVAL_MS / 1000, stream->newest);
    return stream->n_looks >= HANGS_LOOKS;
}

static bool any_hangs(struct cuda_device *device)
{
    bool any = false;

    lock_take(&device->lock);
    for (struct cuda_stream *s = device->streams; s; s = s->next)
        any = stream_hangs(device, s) || any;
    lock_give(&device->lock);
    return any;
}

static void *watch(void *arg)
{
    struct cuda_device *device = arg;
    struct pollfd stop = {.fd = device->watch_stop, .events = POLLIN};
    cudaError_t error = cudaSuccess;
    char stream[32] = "";

    cuda_enter(device);
    while (error == cudaSuccess && poll(&stop, 1, WATCH_INTERVAL_MS) <= 0) {
        if (!any_hangs(device))
            device->host->thread_beat();
        error = ask(device, stream, sizeof(stream));
    }
    if (error != cudaSuccess)
        fail(device, stream, "the GPU failed", error, "cudaStreamQuery");
    return NULL;
}

int cuda_watch_start(struct cuda_device *device)
{
    device->watch_stop = eventfd(0, EFD_CLOEXEC);
    if (device->watch_stop < 0)
        return -errno;
    int err = device->host->thread_start(&device->watch, "cuda-watch", -1, watch, device);
    if (err)
        close(device->watch_stop);
    return err;
}

void cuda_watch_stop(struct cuda_device *device)
{
    eventfd_write(device->watch_stop, 1);
    thread_join(&device->watch);
    close(device->watch_stop);
}
