/* device.h - the devices that compute: memory, streams, events, copies, FFT plans, kernel launches.
 *
 * Two devices, 'cpu' and 'cuda', share one vtable, so the pipelines are written once.  A stream runs its operations in
 * order; only events order two streams.  A stream of the cpu device is a thread.  So a missing event is a data race,
 * which a thread sanitizer finds without a GPU.
 *
 * Threads:   create and destroy from one thread; operations on a stream from one thread at a time.
 * Blocking:  nothing waits for the device except device_stream_wait() (shutdown and tests).  A stream holds
 *            DEVICE_STREAM_DEPTH operations; enqueueing more waits for room, as CUDA's own queues do.
 * Allocation: all create and alloc functions before READY; operations allocate nothing.
 * Errors:    creation returns negative errno.  An operation that fails, during or after its enqueueing, ends the
 *            device.  The device logs one sentence, then calls 'on_failure' of the configuration, which begins to stop
 *            the process with an exit code of 1.  From then on device_ok() is false, creation returns -EIO, and
 *            operations do nothing.  Callbacks still run, so that threads waiting for a callback can end.  Host memory
 *            that the device was to copy to has undefined contents, so a consumer calls device_ok() before it uses
 *            them.  (Operations of the cpu device cannot fail.)
 * Callbacks: device_then(stream, fn, arg) runs fn(arg) when all earlier operations of the stream have ended, in any
 *            thread.  After a failure, fn may run even before device_then() returns.  fn may only push onto an inbox
 *            (buffer_ref_put does), and must not call the device. */
#ifndef COMMON_DEVICE_DEVICE_H
#define COMMON_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_STREAM_DEPTH 1024
#define KERNEL_ARGS_MAX     512

struct device;
struct device_stream;
struct device_event;
struct device_fft;
struct device_kernel;
struct device_tensor_map; /* common/device/tensor_map.h */
struct memory;

enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct device_config {
    enum device_kind kind;
    int n_threads;            /* cpu: OpenMP threads per kernel; 0: one per core */
    const char *gpu;          /* cuda: index, UUID or PCI address; NULL or "auto": the first suitable GPU */
    const char *kernel_cache; /* cuda: directory of compiled kernels; NULL or "": the user's or the service's */
    /* Called once, on any thread, when an operation has failed.  Must not call the device.  NULL: _exit(1). */
    void (*on_failure)(void *arg);
    void *failure_arg;
};

/* A kernel for device_launch().  One constant per stem, defined in kernels/<stem>.c. */
struct kernel {
    const char *name;                             /* the stem: kernels/<name>.{h,cu,c} */
    size_t args_bytes;                            /* size of the POD struct of arguments, <= KERNEL_ARGS_MAX */
    void (*cpu)(const void *args, int n_threads); /* the plain C twin; NULL: there is only a CUDA variant */
    const char *cuda_text;                        /* source of the CUDA variant; NULL: the file kernels/<name>.cu */
};

/* A size that the CUDA variant is compiled with: -D<name>=<value>.  The twin takes all sizes from its arguments. */
struct kernel_constant {
    const char *name;
    long value;
};

/* Shape of a launch of the CUDA variant; the twin ignores it. */
struct kernel_grid {
    uint32_t blocks[3];
    uint32_t threads;      /* per block */
    uint32_t shared_bytes; /* dynamic shared memory per block */
};

/* Bytes in device memory along three axes, the innermost first.  A kernel fetches one box at a time into shared memory,
 * to an address that is a multiple of 128 bytes.  A box begins at a multiple of 16 along the innermost axis, and
 * anywhere along the others.  Bytes of a box outside the extent are 0.  Axes may overlap (observed on an H200 with
 * driver 580). */
struct device_tensor {
    const uint8_t *base; /* a multiple of 16 bytes, like the pitches */
    uint64_t extent[3];
    uint64_t pitch[2]; /* bytes between neighbours along the second and the third axis */
    uint32_t box[3];   /* <= 256 each; box[0] a multiple of 16 */
};

/* Opens the device, and logs the choice and its reason.  DEVICE_AUTO takes CUDA if there is a suitable GPU, and must
 * take CUDA if 'gpu' names one.  Returns 0 or negative errno with one sentence in 'why', which begins with a key of the
 * section "device".  -ENODEV: a restart does not help. */
int device_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes);
void device_close(struct device *device);
const char *device_name(const struct device *device);
/* Returns false once an operation has failed.  Any thread. */
static inline bool device_ok(const struct device *device);
/* Checks, before anything is allocated, that this host and its device have so much memory (UINT64_MAX: more than can be
 * counted).  Errors, 'key' and 'advice' are the same as for memory_check() (memory.h). */
int device_check_memory(struct device *device, uint64_t host_bytes, uint64_t device_bytes, const char *key,
                        const char *advice, char *why, size_t why_bytes);
/* Returns whether kernels run as their CUDA variants, which need sizes when made and grids when launched. */
bool device_compiles(const struct device *device);
/* Returns the most shared memory of a kernel's block if kernels run as CUDA variants, else 0. */
size_t device_shared_bytes(const struct device *device);
/* Returns the number of multiprocessors, on which blocks of such kernels run side by side; at least 1. */
unsigned device_multiprocessors(const struct device *device);
/* Returns the directory of files that are kept for this device from start to start, such as compiled kernels.  The
 * directory may not exist yet.  NULL: there is none. */
const char *device_cache_directory(const struct device *device);
/* Returns the properties that decide the speed of kernels: "NVIDIA H200, compute capability 9.0". */
const char *device_model(const struct device *device);

/* Returns whether kernels may use PTX's wgmma: compute capability 9.0. */
bool device_has_wgmma(const struct device *device);
/* Returns the number of host threads that run the kernels of one stream, its own included; 0 for a GPU. */
size_t device_n_threads(const struct device *device);

/* Allocates device memory, 64-byte aligned or better, with undefined contents.  Returns NULL if there is not enough.
 * The free functions of all kinds of memory accept NULL. */
void *device_alloc(struct device *device, size_t bytes);
void device_free(struct device *device, void *memory);

/* Allocates host memory that the device copies to and from at full speed, aligned to a page, with undefined contents.
 * Returns NULL if there is not enough. */
void *device_alloc_pinned(struct device *device, size_t bytes);
void device_free_pinned(struct device *device, void *memory);
/* Returns the host bytes that device_alloc_pinned() takes for 'bytes', for sums before the start.  With 'on_gpu', sizes
 * of 2 MiB and more are rounded up to whole huge pages. */
uint64_t device_pinned_bytes(uint64_t bytes, bool on_gpu);

#define DEVICE_PAGE_BYTES ((size_t)65536) /* a GPU's page: unit of direct and exported memory */

/* Device memory that the host writes to as if it were host memory: two addresses of the same bytes.  The host must not
 * read this memory: a read goes over the bus, uncached, and takes far longer than a write.  Writes past the cache are
 * best.  Once the writer has called copy_finish() (copy.h), operations that any thread enqueues see the written
 * bytes. */
struct device_direct {
    uint8_t *host;
    uint8_t *device;
    size_t bytes;
    void *owned; /* private to the device */
};

/* Checks, before any is allocated, that so much direct memory is available; device_check_memory() counts it as device
 * memory.  Returns 0, or negative errno with one sentence in 'why', like device_check_memory().  -ENODEV: the device
 * has no direct memory. */
int device_check_direct(struct device *device, uint64_t bytes, const char *key, const char *advice, char *why,
                        size_t why_bytes);
/* Allocates direct memory, 4096-byte aligned, with undefined contents.  Returns 0, or negative errno with a sentence in
 * 'why'. */
int device_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes);
/* Returns the bytes of the device's memory that device_alloc_direct() takes for 'bytes'. */
uint64_t device_direct_bytes(uint64_t bytes);
/* Frees direct memory.  A struct of zeros is accepted. */
void device_free_direct(struct device *device, const struct device_direct *direct);

/* Device memory that NICs write to and read from.  A NIC is given a file descriptor (dma-buf) of the 'bytes' of memory.
 * NIC to device: once the NIC has reported a write to the host, and device_flush_exported() has returned, operations
 * that are then enqueued see the written bytes.  Device to NIC: once a callback has begun, a NIC that is then told to
 * read sees all results of operations before the callback, or before an event that the callback's stream waited for. */
struct device_exported {
    uint8_t *device;
    uint8_t *nic; /* the same bytes at addresses for NICs only; on the cpu device a CPU faults there */
    size_t bytes;
    int fd;      /* open until the memory is freed; a NIC holds a reference of its own */
    void *owned; /* private to the device */
};

/* Checks, before anything is made, that NICs can write to the device's memory, and that the device can see their
 * finished writes.  Returns 0, or -ENODEV with one sentence in 'why' that begins with 'key'. */
int device_check_exported(struct device *device, const char *key, char *why, size_t why_bytes);
/* Allocates exported memory, aligned to a page, of at least 'bytes' bytes, with undefined contents.  Returns 0, or
 * negative errno with a sentence in 'why'.  -ENODEV: the device has no exported memory. */
int device_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                          size_t why_bytes);
/* Frees exported memory.  A struct of zeros is accepted. */
void device_free_exported(struct device *device, const struct device_exported *exported);
/* Returns an upper bound of the bytes of device memory that device_alloc_exported() takes for 'bytes'. */
uint64_t device_exported_bytes(uint64_t bytes);
/* Flushes NICs' writes (see struct device_exported).  Any thread.  Costs nothing if the device orders the writes. */
void device_flush_exported(struct device *device);

/* Creates a stream.  'name' appears as the thread's name and in profiles. */
int device_stream_create(struct device *device, const char *name, struct device_stream **stream);
/* Runs all queued operations, then destroys the stream.  NULL is accepted. */
void device_stream_destroy(struct device_stream *stream);
/* Waits until all operations queued so far have run.  Shutdown and tests only. */
void device_stream_wait(struct device_stream *stream);

/* An event marks a point in a stream.  Before its first record it counts as passed. */
int device_event_create(struct device *device, struct device_event **event);
void device_event_destroy(struct device_event *event);
void device_event_record(struct device_event *event, struct device_stream *stream);
/* Makes later operations of 'stream' wait for the last record of 'event' that was enqueued before this call. */
void device_stream_wait_event(struct device_stream *stream, struct device_event *event);

/* Copies in stream order; between pinned host and device memory, or within the device. */
void device_copy(struct device_stream *stream, void *dst, const void *src, size_t bytes);
/* Copies pinned host memory to the device and waits, on a stream of its own.  Returns 0 or negative errno. */
int device_upload(struct device *device, void *dst, const void *src, size_t bytes);
/* Copies 'n_rows' rows of 'row_bytes', with their starts 'dst_pitch' and 'src_pitch' bytes apart. */
void device_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows);
void device_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes);

/* Batched forward complex-to-complex float FFT of 'n' points, unnormalised, e^{-2 pi i jk/n}.  in and out are
 * [batch][n] complex float and do not overlap.  'n' is a power of two >= 1.  A plan has its own scratch memory, so a
 * plan runs on one stream at a time. */
int device_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft);
void device_fft_destroy(struct device_fft *fft);
void device_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out);

/* Makes a kernel ready to launch with these sizes.  On cuda the kernel is compiled, or taken from the cache; on the cpu
 * nothing is done.  'kernel' must live as long as the result; 'constants' only until this function returns. */
int device_kernel_create(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                         size_t n_constants, struct device_kernel **made);
void device_kernel_destroy(struct device_kernel *kernel);

/* Makes a kernel's argument from a tensor, for GPUs from compute capability 9.0 on.  Fails as operations do. */
void device_map_tensor(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map);

/* Runs 'kernel' with a copy of 'args' (args_bytes bytes).  'grid' may be NULL on the cpu device. */
void device_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args);

/* Enqueues a callback; see Callbacks above. */
void device_then(struct device_stream *stream, void (*fn)(void *arg), void *arg);

/* The vtable, for device implementations only. */
struct device_ops {
    void (*close)(struct device *device);
    void (*memory)(struct device *device, struct memory *memory); /* NULL: the host's memory */
    void *(*alloc)(struct device *device, size_t bytes);
    void (*free)(struct device *device, void *memory);
    void *(*alloc_pinned)(struct device *device, size_t bytes);
    void (*free_pinned)(struct device *device, void *memory);
    /* Finds the size of the direct memory; UINT64_MAX: as large as the other memory.  'why' says if there is none. */
    int (*direct_memory)(struct device *device, struct memory *memory, char *why, size_t why_bytes);
    int (*alloc_direct)(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes);
    void (*free_direct)(struct device *device, const struct device_direct *direct);
    int (*check_exported)(struct device *device, char *why, size_t why_bytes);
    int (*alloc_exported)(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                          size_t why_bytes);
    void (*free_exported)(struct device *device, const struct device_exported *exported);
    void (*flush_exported)(struct device *device); /* NULL: no flush is needed */
    int (*stream_create)(struct device *device, const char *name, struct device_stream **stream);
    void (*stream_destroy)(struct device_stream *stream);
    void (*stream_wait)(struct device_stream *stream);
    int (*event_create)(struct device *device, struct device_event **event);
    void (*event_destroy)(struct device_event *event);
    void (*event_record)(struct device_event *event, struct device_stream *stream);
    void (*stream_wait_event)(struct device_stream *stream, struct device_event *event);
    void (*copy_2d)(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows);
    void (*fill)(struct device_stream *stream, void *dst, uint8_t value, size_t bytes);
    int (*fft_create)(struct device *device, size_t n, size_t batch, struct device_fft **fft);
    void (*fft_destroy)(struct device_fft *fft);
    void (*fft_run)(struct device_stream *stream, struct device_fft *fft, const void *in, void *out);
    int (*kernel_create)(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                         size_t n_constants, struct device_kernel **made);
    void (*kernel_destroy)(struct device_kernel *kernel);
    void (*map_tensor)(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map);
    void (*launch)(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args);
    void (*then)(struct device_stream *stream, void (*fn)(void *arg), void *arg);
};

/* The common head of each implementation's objects. */
struct device {
    const struct device_ops *ops;
    const char *name;
    size_t n_threads;
    bool failed;                   /* accessed atomically; not _Atomic, because the emulator reads this as C++ */
    void (*on_failure)(void *arg); /* set by device_open() */
    void *failure_arg;
    bool compiles;               /* runs the CUDA variants of kernels, made with sizes and launched with grids */
    size_t shared_bytes;         /* most shared memory of a block */
    unsigned n_multiprocessors;  /* 0: not known */
    const char *cache_directory; /* NULL: none */
    char model[128];
};
struct device_stream {
    struct device *device;
};
struct device_event {
    struct device *device;
};
struct device_fft {
    struct device *device;
};
struct device_kernel {
    struct device *device;
    const struct kernel *kernel;
};

static inline bool device_ok(const struct device *device)
{
    return !__atomic_load_n(&device->failed, __ATOMIC_ACQUIRE);
}

int device_cpu_open(const struct device_config *config, struct device **device);

/* Reports a failed operation.  An implementation may call this from any thread, any number of times: the first call
 * logs 'sentence' and calls on_failure. */
void device_fail(struct device *device, const char *sentence);

#endif
