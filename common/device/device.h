/* device.h - the interface of the devices that compute: memory, streams, events, copies, FFT plans and kernel launches.
 *
 * Two devices, 'cpu' and 'cuda', implement the same interface, so each pipeline is written only once.  A stream runs
 * its operations in order.  Operations on two streams are ordered only by events.  A stream of the cpu device is a
 * thread.  If an event is missing, this device has a data race, which a thread sanitizer finds without a GPU.
 *
 * Threads:   one thread creates and destroys objects.  Only one thread at a time may call operations on a stream.
 * Blocking:  only device_stream_wait() waits for the device (shutdown and tests).  A stream has room for
 *            DEVICE_STREAM_DEPTH operations.  Enqueueing another operation waits for room, as in CUDA.
 * Allocation: create and alloc functions are called before READY.  Operations allocate no memory.
 * Errors:    create functions return negative errno.  An operation that fails, when it is enqueued or when it runs,
 *            ends the device.  The device logs one sentence, then calls 'on_failure' of the configuration, which stops
 *            the process with exit code 1.  Afterwards device_ok() is false, create functions return -EIO, and
 *            operations do nothing.  Callbacks still run, so that threads that wait for a callback can end.  Host
 *            memory to which the device should have copied then has undefined contents, so its readers must call
 *            device_ok() first.  (Operations of the cpu device cannot fail.)
 * Callbacks: device_then(stream, fn, arg) runs fn(arg) on any thread when all earlier operations of the stream have
 *            ended.  After a failure, fn may run before device_then() returns.  fn must do no more than push an item to
 *            an inbox, as buffer_ref_put() does, and must not call the device. */
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
struct device_tensor_map; /* see common/device/tensor_map.h */
struct memory;

enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct device_config {
    enum device_kind kind;
    int n_threads;            /* cpu: number of OpenMP threads per kernel; 0: one per core */
    const char *gpu;          /* cuda: index, UUID or PCI address; NULL or "auto": the first suitable GPU */
    const char *kernel_cache; /* cuda: directory of compiled kernels; NULL or "": the service's or user's directory */
    /* Called once, on any thread, when an operation has failed.  Must not call the device.  NULL: _exit(1). */
    void (*on_failure)(void *arg);
    void *failure_arg;
};

/* A kernel for device_launch().  Each kernel is a constant in kernels/.../<name>.c.  It has a CUDA variant, and usually
 * a variant in plain C. */
struct kernel {
    const char *name;                             /* the kernel's files are kernels/<name>.{h,cu,c} */
    size_t args_bytes;                            /* size of the POD struct of arguments, <= KERNEL_ARGS_MAX */
    void (*cpu)(const void *args, int n_threads); /* the variant in plain C; NULL: there is only a CUDA variant */
    const char *cuda_text;                        /* source of the CUDA variant; NULL: the file kernels/<name>.cu */
};

/* A size that is a constant of the compiled CUDA variant: -D<name>=<value>.  The plain C variant gets all sizes as
 * arguments. */
struct kernel_constant {
    const char *name;
    long value;
};

/* Grid for a launch of the CUDA variant.  The plain C variant ignores the grid. */
struct kernel_grid {
    uint32_t blocks[3];
    uint32_t threads;      /* per block */
    uint32_t shared_bytes; /* dynamic shared memory per block */
};

/* A three-dimensional array of bytes in device memory, with the innermost axis first.  A kernel copies one box at a
 * time into shared memory, to an address that is a multiple of 128 bytes.  A box begins at a multiple of 16 along the
 * innermost axis, and anywhere along the other axes.  Bytes of a box outside the extent are 0.  If a pitch is small,
 * rows or planes overlap in memory.  Overlapping rows worked on an H200 with driver 580. */
struct device_tensor {
    const uint8_t *base; /* address of the first byte; a multiple of 16, like the pitches */
    uint64_t extent[3];
    uint64_t pitch[2]; /* distance in bytes between neighbours along the second and the third axis */
    uint32_t box[3];   /* size of a box along each axis; <= 256; box[0] is a multiple of 16 */
};

/* Opens a device, and logs the choice and its reason.  If 'gpu' names a GPU, DEVICE_AUTO always selects cuda.
 * Otherwise DEVICE_AUTO selects cuda if there is a suitable GPU.  Returns 0 or negative errno with one sentence in
 * 'why', which begins with a key of the section "device". -ENODEV: a restart cannot help. */
int device_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes);
void device_close(struct device *device);
const char *device_name(const struct device *device);
/* Returns false once an operation has failed.  Any thread may call this function. */
static inline bool device_ok(const struct device *device);
/* Checks that the host and the device have 'host_bytes' and 'device_bytes' of memory (UINT64_MAX: the size exceeds 64
 * bits).  Called before anything is allocated.  Errors, 'key' and 'advice' are the same as for memory_check()
 * (memory.h). */
int device_check_memory(struct device *device, uint64_t host_bytes, uint64_t device_bytes, const char *key,
                        const char *advice, char *why, size_t why_bytes);
/* Returns true if the device runs the CUDA variants of kernels, which need constants when created and grids when
 * launched. */
bool device_compiles(const struct device *device);
/* Returns the largest shared memory of a block, in bytes, if the device runs CUDA variants; else 0. */
size_t device_shared_bytes(const struct device *device);
/* Returns the number of multiprocessors, on which blocks of CUDA variants run in parallel; at least 1. */
unsigned device_multiprocessors(const struct device *device);
/* Returns the directory for files that later starts on this device reuse, such as compiled kernels.  The directory may
 * not exist yet.  Returns NULL if no directory is configured or usable. */
const char *device_cache_directory(const struct device *device);
/* Returns a text with the properties that determine the speed of kernels: "NVIDIA H200, compute capability 9.0". */
const char *device_model(const struct device *device);

/* Returns true if kernels may use the PTX instruction wgmma, which only compute capability 9.0 has. */
bool device_has_wgmma(const struct device *device);
/* Returns the number of host threads that run the kernels of one stream, including the stream's thread; 0 for a GPU. */
size_t device_n_threads(const struct device *device);

/* Allocates device memory, 64-byte aligned or better, with undefined contents.  Returns NULL if there is not enough
 * memory.  The free functions of all kinds of memory accept NULL. */
void *device_alloc(struct device *device, size_t bytes);
void device_free(struct device *device, void *memory);

/* Allocates pinned host memory, aligned to a page, with undefined contents.  The device copies pinned memory at full
 * speed.  Returns NULL if there is not enough memory. */
void *device_alloc_pinned(struct device *device, size_t bytes);
void device_free_pinned(struct device *device, void *memory);
/* Returns the size that device_alloc_pinned() allocates for 'bytes', for checks of memory before the start.  If
 * 'on_gpu' is true, sizes of 2 MiB and more are rounded up to whole huge pages. */
uint64_t device_pinned_bytes(uint64_t bytes, bool on_gpu);

#define DEVICE_PAGE_BYTES ((size_t)65536) /* size of a GPU's page, the unit of direct and exported memory */

/* Direct memory: device memory to which the host writes as to host memory.  Host and device have different addresses
 * for the same bytes.  The host must not read this memory, because an uncached read over the bus takes far longer than
 * a write.  Stores that bypass the cache are fastest.  After the writer has called copy_finish() (copy.h), operations
 * that any thread enqueues read the written bytes. */
struct device_direct {
    uint8_t *host;
    uint8_t *device;
    size_t bytes;
    void *owned; /* only the device implementation uses this member */
};

/* Checks that 'bytes' of direct memory are available, before any is allocated.  device_check_memory() counts direct
 * memory as device memory, too.  Errors are the same as for device_check_memory(); -ENODEV: the device has no direct
 * memory. */
int device_check_direct(struct device *device, uint64_t bytes, const char *key, const char *advice, char *why,
                        size_t why_bytes);
/* Allocates direct memory, aligned to 4096 bytes, with undefined contents.  Returns 0, or negative errno with a
 * sentence in 'why'. */
int device_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes);
/* Returns the size of device memory that device_alloc_direct() allocates for 'bytes'. */
uint64_t device_direct_bytes(uint64_t bytes);
/* Frees direct memory.  A zero-initialised struct is accepted. */
void device_free_direct(struct device *device, const struct device_direct *direct);

/* Exported memory: device memory that NICs write and read.  A NIC's driver gets the memory as a file descriptor
 * (dma-buf).  NIC to device: when the NIC has reported to the host that a write is complete, the host calls
 * device_flush_exported().  Operations that are enqueued after this call read the written bytes.  Device to NIC: a
 * callback may start a NIC's read.  The NIC then reads the results of all operations that were enqueued before the
 * callback on the same stream.  If this stream has waited for an event, the NIC also reads the results of the
 * operations before the event. */
struct device_exported {
    uint8_t *device;
    uint8_t *nic; /* address at which NICs access the same bytes; on the cpu device, a CPU access here causes a fault */
    size_t bytes;
    int fd;      /* dma-buf, open until the memory is freed; a NIC has its own reference */
    void *owned; /* only the device implementation uses this member */
};

/* Checks that NICs can write to the device's memory, and that operations can be ordered after the writes.  Called
 * before anything is created.  Returns 0, or -ENODEV with one sentence in 'why' that begins with 'key'. */
int device_check_exported(struct device *device, const char *key, char *why, size_t why_bytes);
/* Allocates exported memory, aligned to a page, of at least 'bytes' bytes, with undefined contents.  Returns 0, or
 * negative errno with a sentence in 'why'.  -ENODEV: the device has no exported memory. */
int device_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                          size_t why_bytes);
/* Frees exported memory.  A zero-initialised struct is accepted. */
void device_free_exported(struct device *device, const struct device_exported *exported);
/* Returns an upper bound of the size of device memory that device_alloc_exported() allocates for 'bytes'. */
uint64_t device_exported_bytes(uint64_t bytes);
/* Flushes writes of NICs (see struct device_exported).  Does nothing if the device orders the writes itself.  Any
 * thread may call this function. */
void device_flush_exported(struct device *device);

/* Creates a stream.  'name' appears as the thread's name and in profiles. */
int device_stream_create(struct device *device, const char *name, struct device_stream **stream);
/* Runs all queued operations, then destroys the stream.  NULL is accepted. */
void device_stream_destroy(struct device_stream *stream);
/* Waits until all operations enqueued so far have run.  Only for shutdown and tests. */
void device_stream_wait(struct device_stream *stream);

/* Creates an event, which marks a point in a stream.  Before its first record an event counts as passed. */
int device_event_create(struct device *device, struct device_event **event);
void device_event_destroy(struct device_event *event);
void device_event_record(struct device_event *event, struct device_stream *stream);
/* Makes later operations of 'stream' wait for the point that the last device_event_record() of 'event' has marked.  A
 * device_event_record() after this call does not change this wait. */
void device_stream_wait_event(struct device_stream *stream, struct device_event *event);

/* Copies bytes between pinned host memory and device memory, or within device memory. */
void device_copy(struct device_stream *stream, void *dst, const void *src, size_t bytes);
/* Copies pinned host memory to the device, on a temporary stream, and waits for the copy.  Returns 0 or negative
 * errno. */
int device_upload(struct device *device, void *dst, const void *src, size_t bytes);
/* Copies 'n_rows' rows of 'row_bytes' bytes.  Successive rows are 'dst_pitch' bytes apart in 'dst' and 'src_pitch'
 * bytes apart in 'src'. */
void device_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows);
void device_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes);

/* Creates a plan for 'batch' forward complex-to-complex FFTs of 'n' points: float, unnormalised, e^{-2 pi i jk/n}.  'n'
 * is a power of two >= 1.  'in' and 'out' of device_fft_run() are [batch][n] complex float, and must not overlap.  A
 * plan has its own scratch memory, so it must run on one stream at a time. */
int device_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft);
void device_fft_destroy(struct device_fft *fft);
void device_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out);

/* Prepares a kernel for launches with these constants.  The cuda device compiles the kernel, or reads it from the
 * cache.  The cpu device does nothing.  'kernel' must live as long as the result, and 'constants' until this function
 * returns. */
int device_kernel_create(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                         size_t n_constants, struct device_kernel **made);
void device_kernel_destroy(struct device_kernel *kernel);

/* Makes the tensor map of a tensor, for the arguments of a kernel.  Needs compute capability 9.0 or more.  If the
 * function fails, the device counts as failed, as after a failed operation. */
void device_map_tensor(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map);

/* Runs 'kernel' with a copy of 'args' (args_bytes bytes).  'grid' may be NULL on the cpu device. */
void device_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args);

/* Enqueues the callback fn(arg); see "Callbacks" at the top of this file. */
void device_then(struct device_stream *stream, void (*fn)(void *arg), void *arg);

/* Functions that each implementation of a device provides.  Only device.c calls these functions. */
struct device_ops {
    void (*close)(struct device *device);
    /* Finds the size of the device memory.  This function pointer is NULL if device memory is host memory. */
    void (*memory)(struct device *device, struct memory *memory);
    void *(*alloc)(struct device *device, size_t bytes);
    void (*free)(struct device *device, void *memory);
    void *(*alloc_pinned)(struct device *device, size_t bytes);
    void (*free_pinned)(struct device *device, void *memory);
    /* Finds the size of the direct memory.  The size UINT64_MAX means that direct memory has no separate limit.  If
     * the device has no direct memory, returns an error with a sentence in 'why'. */
    int (*direct_memory)(struct device *device, struct memory *memory, char *why, size_t why_bytes);
    int (*alloc_direct)(struct device *device, size_t bytes, struct device_direct *direct, char *why, size_t why_bytes);
    void (*free_direct)(struct device *device, const struct device_direct *direct);
    int (*check_exported)(struct device *device, char *why, size_t why_bytes);
    int (*alloc_exported)(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                          size_t why_bytes);
    void (*free_exported)(struct device *device, const struct device_exported *exported);
    void (*flush_exported)(struct device *device); /* flushes writes of NICs; NULL: no flush is needed */
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

/* The objects of each implementation begin with these structs. */
struct device {
    const struct device_ops *ops;
    const char *name;
    size_t n_threads;
    bool failed;                   /* accessed atomically; not _Atomic, because the emulator compiles it as C++ */
    void (*on_failure)(void *arg); /* callback after a failure; set by device_open() */
    void *failure_arg;
    bool compiles;               /* result of device_compiles() */
    size_t shared_bytes;         /* largest shared memory of a block */
    unsigned n_multiprocessors;  /* 0: not known */
    const char *cache_directory; /* directory for device_cache_directory(); NULL: none */
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

/* Ends the device after a failed operation; called by implementations.  The first call logs 'sentence' and calls
 * on_failure.  Later calls do nothing.  Any thread may call this function. */
void device_fail(struct device *device, const char *sentence);

#endif
