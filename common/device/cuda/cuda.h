/* cuda.h - declarations that the files of the cuda device share.  Only files of the shared object cbf-cuda.so include
 * this file.
 *
 * Files:     device.c opens and closes the device, and gpu.c chooses the GPU.  memory.c, direct.c (with vulkan.h) and
 *            exported.c allocate memory.  stream.c implements streams, events, copies and callbacks.  fft.c implements
 *            FFT plans.  kernel.c gets code from image.h (cache or NVRTC), and launches kernels.  tensor.c makes tensor
 *            maps.  failure.c handles failed calls.
 * Threads:   every entry point makes the GPU current on its thread (cuda_enter), so any thread may call the device.
 *            The device has one thread of its own, "cuda-watch", which detects errors that no call reports (failure.c).
 * Linking:   the CUDA runtime is linked statically.  The runtime is small, depends only on libc, and finds the driver
 *            at its first call.  So the shared object needs no files of the CUDA toolkit when it is loaded.  NVRTC is
 *            loaded when the device opens, and cuFFT when it is first needed (library.h). */
#ifndef COMMON_DEVICE_CUDA_CUDA_H
#define COMMON_DEVICE_CUDA_CUDA_H

#include "common/device/device.h"
#include "common/device/plugin.h"
#include "common/base/lock.h"
#include "common/base/thread.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#if CUDART_VERSION < 12080
#error "the cuda device needs the CUDA toolkit 12.8 or later"
#endif

struct vulkan;

struct cuda_device {
    struct device base;
    const struct device_host *host;                  /* [const] */
    int index;                                       /* [const] index of the GPU in the CUDA runtime */
    int major, minor;                                /* [const] compute capability */
    size_t max_pitch_bytes;                          /* [const] largest pitch of a 2D copy */
    int numa_node;                                   /* [const] NUMA node nearest to the GPU; < 0: not known */
    char *kernel_cache;                              /* [const] directory of compiled kernels; NULL: none */
    uint8_t uuid[16];                                /* [const] */
    bool orders_writes;                              /* [const] true: orders NICs' writes before later operations */
    bool flushes_writes;                             /* [const] true: can flush NICs' writes on request */
    PFN_cuTensorMapEncodeTiled_v12000 encode_tensor; /* [const] makes tensor maps; NULL: not available */
    struct vulkan *vulkan;                           /* [creating thread] the GPU in Vulkan; NULL: not opened yet */
    struct lock lock;
    struct cuda_stream *streams GUARDED;  /* [lock] all streams, linked by 'next' */
    struct pinned_memory *pinned GUARDED; /* [lock] */
    struct thread watch;
    int watch_stop; /* [const] eventfd that ends the thread 'watch' */
};

struct pending_then {
    void (*fn)(void *arg);
    void *arg;
};

struct cuda_stream {
    struct device_stream base;
    struct cuda_stream *next;   /* [device lock] */
    cudaStream_t handle;        /* [const] */
    char name[32];              /* [const] */
    const char *_Atomic newest; /* name of the last operation enqueued, for messages about failures */
    struct lock lock;
    pthread_cond_t room;                            /* signalled when 'n_run' changes */
    struct pending_then thens[DEVICE_STREAM_DEPTH]; /* [lock] callback k is thens[k % DEVICE_STREAM_DEPTH] */
    uint64_t n_given GUARDED;                       /* [lock] number of callbacks enqueued since creation */
    uint64_t n_run GUARDED;                         /* [lock] number of callbacks that have run or are running */
    uint64_t n_run_seen;                            /* [watch] value of n_run at the last check */
    unsigned n_looks;                               /* [watch] number of successive checks with the same n_run */
};

struct cuda_event {
    struct device_event base;
    cudaEvent_t handle; /* [const] */
};

static inline struct cuda_device *cuda_device_of(struct device *device)
{
    return (struct cuda_device *)device;
}

/* ---- tensor.c ---- */

/* Finds a function of the CUDA driver, because the program is not linked with the driver.  'function' points to the
 * function pointer to set.  If the driver has no such function, returns false and leaves the function pointer
 * unchanged. */
bool cuda_find_in_driver(const char *name, void *function);
void cuda_map_tensor(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map);

/* ---- device.c ---- */

/* Makes the device's GPU current on this thread.  Every entry point begins with this call.  A callback must not call
 * it. */
void cuda_enter(struct cuda_device *device);
/* True while this thread runs a callback. */
extern _Thread_local bool cuda_in_callback;

/* ---- gpu.c ---- */

/* Chooses the GPU with the name 'wanted' (index, UUID or PCI address).  If 'wanted' is NULL or "auto", chooses a
 * suitable GPU.  Sets '*index', and describes the GPU in 'text'.  Returns 0, or negative errno with a sentence in
 * 'why'. */
int cuda_choose_gpu(const char *wanted, int *index, char *text, size_t text_bytes, char *why, size_t why_bytes);

/* ---- failure.c ---- */

/* Describes an error in 'why': "call failed: text (NAME)".  Returns the corresponding negative errno. */
int cuda_explain(cudaError_t error, const char *call, char *why, size_t why_bytes);
/* Handles a failed creation of an object.  Marks the device as failed, unless the error is a lack of memory.  The
 * caller must report a lack of memory, because the caller knows the sizes.  Returns negative errno. */
int cuda_create_failed(struct cuda_device *device, cudaError_t error, const char *call);
/* Checks the result of a call that enqueues an operation.  Returns true if 'error' is cudaSuccess.  Otherwise marks the
 * device as failed. */
bool cuda_check(struct cuda_stream *stream, cudaError_t error, const char *call);
int cuda_watch_start(struct cuda_device *device);
void cuda_watch_stop(struct cuda_device *device);

/* ---- memory.c ---- */

void cuda_memory(struct device *device, struct memory *memory);
void *cuda_alloc(struct device *device, size_t bytes);
void cuda_free(struct device *device, void *memory);
void *cuda_alloc_pinned(struct device *device, size_t bytes);
void cuda_free_pinned(struct device *device, void *memory);

/* ---- direct.c ---- */

int cuda_direct_memory(struct device *device, struct memory *memory, char *why, size_t why_bytes);
int cuda_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes);
void cuda_free_direct(struct device *device, const struct device_direct *direct);

/* ---- exported.c ---- */

int cuda_check_exported(struct device *device, char *why, size_t why_bytes);
int cuda_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                        size_t why_bytes);
void cuda_free_exported(struct device *device, const struct device_exported *exported);
void cuda_flush_exported(struct device *device);

/* ---- stream.c ---- */

int cuda_stream_create(struct device *device, const char *name, struct device_stream **stream);
void cuda_stream_destroy(struct device_stream *stream);
void cuda_stream_wait(struct device_stream *stream);
int cuda_event_create(struct device *device, struct device_event **event);
void cuda_event_destroy(struct device_event *event);
void cuda_event_record(struct device_event *event, struct device_stream *stream);
void cuda_stream_wait_event(struct device_stream *stream, struct device_event *event);
void cuda_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                  size_t row_bytes, size_t n_rows);
void cuda_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes);
void cuda_then(struct device_stream *stream, void (*fn)(void *arg), void *arg);
/* Begins an operation, whose name 'what' must outlive the stream.  Returns false if the device has failed; the
 * operation must then do nothing. */
bool cuda_begin(struct cuda_stream *stream, const char *what);
/* Runs all pending callbacks of the stream, after a failure of the device. */
void cuda_stream_run_pending(struct cuda_stream *stream);

/* ---- fft.c, kernel.c ---- */

int cuda_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft);
void cuda_fft_destroy(struct device_fft *fft);
void cuda_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out);
int cuda_kernel_create(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                       size_t n_constants, struct device_kernel **made);
void cuda_kernel_destroy(struct device_kernel *kernel);
void cuda_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                 const void *args);

#endif
