/* cpu.c - the cpu device, which computes on the host: each stream is a thread that runs the operations of a ring in
 * order.
 *
 * Events:   a stream counts the operations enqueued and the operations done.  A record of an event stores two values
 *           in the event: the stream, and the number of operations that the stream has enqueued.  The event has passed
 *           when the stream has done this number of operations.  So recording enqueues nothing, and does not affect
 *           waits for an earlier record of the event.
 * Progress: an operation waits only for operations that were enqueued earlier.  So the earliest of all unfinished
 *           operations never waits, and at least one stream can always continue.  So each full ring has room again
 *           after some time.
 * Lifetime: the point that an event stores (struct mark) may outlive its stream.  So a destroyed stream frees only
 *           its thread and its ring, and keeps its counts until the device is closed. */
#include "common/device/device.h"

#include "common/device/cpu_direct.h"
#include "common/base/lock.h"
#include "common/base/memory.h"
#include "common/base/thread.h"

#include <assert.h>
#include <errno.h>
#include <kiss_fft.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_ALIGN_BYTES 64   /* size of a cache line and of the widest vector register */
#define PINNED_ALIGN_BYTES 4096 /* a page */

/* A point in a stream.  The point has passed when the stream has done 'n_operations' operations.  A mark without a
 * stream counts as passed. */
struct mark {
    struct cpu_stream *stream;
    uint64_t n_operations;
};

enum operation_kind { OP_COPY_2D, OP_FILL, OP_FFT, OP_LAUNCH, OP_THEN, OP_WAIT };

struct operation {
    enum operation_kind kind;
    union {
        struct {
            uint8_t *dst;
            const uint8_t *src;
            size_t dst_pitch, src_pitch, row_bytes, n_rows;
        } copy;
        struct {
            void *dst;
            size_t bytes;
            uint8_t value;
        } fill;
        struct {
            const struct cpu_fft *fft;
            const kiss_fft_cpx *in;
            kiss_fft_cpx *out;
        } fft;
        struct {
            const struct kernel *kernel;
            _Alignas(max_align_t) uint8_t args[KERNEL_ARGS_MAX];
        } launch;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } then;
        struct mark wait;
    };
};

struct cpu_device {
    struct device base;
    int n_threads;              /* [const] number of threads that run a kernel or an FFT */
    struct cpu_stream *streams; /* [creating thread] all streams ever created, linked by 'next' */
};

struct cpu_stream {
    struct device_stream base;
    struct cpu_stream *next; /* [const] */
    struct thread thread;
    struct lock lock;
    pthread_cond_t work;      /* signalled when 'n_given' or 'stopping' changes */
    pthread_cond_t progress;  /* signalled when 'n_done' changes */
    struct operation *ring;   /* [const] operation k is ring[k % DEVICE_STREAM_DEPTH]; NULL after the stream's end */
    uint64_t n_given GUARDED; /* [lock] number of operations enqueued since creation */
    uint64_t n_done GUARDED;  /* [lock] number of operations done; n_given - n_done <= DEVICE_STREAM_DEPTH */
    bool stopping GUARDED;    /* [lock] true if the thread must end after all operations */
};

struct cpu_event {
    struct device_event base;
    struct lock lock;         /* one thread may record the event while another thread waits for the event */
    struct mark mark GUARDED; /* [lock] point at which the event was last recorded */
};

struct cpu_fft {
    struct device_fft base;
    size_t n, batch;   /* [const] */
    kiss_fft_cfg kiss; /* [const] plan; all threads share the plan, which kiss_fft() only reads; NULL for n == 1 */
};

/* True in the threads of streams, and false in all other threads.  Kernels and callbacks run in the threads of streams,
 * and must not call the device. */
static _Thread_local bool on_stream_thread;

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void *alloc_aligned(size_t align_bytes, size_t bytes)
{
    void *memory;

    /* Allocations above PTRDIFF_MAX always fail, but a sanitizer would end the process instead of returning an
     * error. */
    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, align_bytes, bytes ? bytes : align_bytes))
        return NULL;
#ifdef CBF_SANITIZE
    /* Fills the memory, so that code that reads it before writing finds neither zeros nor results of an earlier run. */
    memset(memory, 0xA5, bytes);
#endif
    return memory;
}

/* Touches the memory.  Otherwise a buffer that is used for the first time hours after the start would cause page faults
 * in the data path, and the process would seem to leak memory. */
static void *cpu_alloc(struct device *device, size_t bytes)
{
    void *memory = alloc_aligned(DEVICE_ALIGN_BYTES, bytes);

    if (memory)
        memory_touch(memory, bytes);
    return memory;
}

/* Allocates memory for packets.  Populates all pages immediately (by memset() before Linux 5.14), so that packets cause
 * no page faults.  If Linux grants huge pages, they reduce the number of address translations by a factor of 512. */
static void *cpu_alloc_pinned(struct device *device, size_t bytes)
{
    bool is_small = bytes < MEMORY_HUGE_PAGE_BYTES;
    void *memory = alloc_aligned(is_small ? PINNED_ALIGN_BYTES : MEMORY_HUGE_PAGE_BYTES, bytes);

    if (!memory)
        return NULL;
    if (is_small) {
        memory_touch(memory, bytes);
        return memory;
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint */
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return memory;
    if (errno != EINVAL) { /* EINVAL: Linux before 5.14 */
        free(memory);
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

static void cpu_free(struct device *device, void *memory)
{
    free(memory);
}

/* ---- Operations, in the stream's thread -------------------------------------------------------------------------- */

static void wait_until_done(struct cpu_stream *stream, uint64_t n_operations)
{
    lock_take(&stream->lock);
    while (stream->n_done < n_operations)
        lock_wait_beat(&stream->lock, &stream->progress, INT64_MAX);
    lock_give(&stream->lock);
}

static void copy_rows(const struct operation *op)
{
    for (size_t row = 0; row < op->copy.n_rows; row++)
        memcpy(op->copy.dst + row * op->copy.dst_pitch, op->copy.src + row * op->copy.src_pitch, op->copy.row_bytes);
}

static void run_fft(const struct cpu_fft *fft, const kiss_fft_cpx *in, kiss_fft_cpx *out, int n_threads)
{
    ptrdiff_t n_batches = (ptrdiff_t)fft->batch;

    if (!fft->kiss) {
        memcpy(out, in, fft->batch * sizeof(*out));
        return;
    }
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (ptrdiff_t k = 0; k < n_batches; k++)
        kiss_fft(fft->kiss, in + (size_t)k * fft->n, out + (size_t)k * fft->n);
}

static void run_operation(const struct operation *op, int n_threads)
{
    switch (op->kind) {
    case OP_COPY_2D: copy_rows(op); break;
    case OP_FILL: memset(op->fill.dst, op->fill.value, op->fill.bytes); break;
    case OP_FFT: run_fft(op->fft.fft, op->fft.in, op->fft.out, n_threads); break;
    case OP_LAUNCH: op->launch.kernel->cpu(op->launch.args, n_threads); break;
    case OP_THEN: op->then.fn(op->then.arg); break;
    case OP_WAIT: wait_until_done(op->wait.stream, op->wait.n_operations); break;
    }
}

/* Returns true if an operation is a computation.  Such an operation may take a long time on a slow computer, so the
 * watchdog must ignore the thread. */
static bool computes(const struct operation *op)
{
    return op->kind == OP_FFT || op->kind == OP_LAUNCH;
}

/* Waits for the next operation and returns it.  Returns NULL when the thread must end.  The operation stays in the ring
 * until finish_operation(). */
static const struct operation *next_operation(struct cpu_stream *stream)
{
    const struct operation *op = NULL;

    lock_take(&stream->lock);
    while (stream->n_done == stream->n_given && !stream->stopping)
        lock_wait_beat(&stream->lock, &stream->work, INT64_MAX);
    if (stream->n_done < stream->n_given)
        op = &stream->ring[stream->n_done % DEVICE_STREAM_DEPTH];
    lock_give(&stream->lock);
    return op;
}

static void finish_operation(struct cpu_stream *stream)
{
    lock_take(&stream->lock);
    stream->n_done++;
    pthread_cond_broadcast(&stream->progress);
    lock_give(&stream->lock);
}

static void *run_stream(void *arg)
{
    struct cpu_stream *stream = arg;
    const struct cpu_device *device = (const struct cpu_device *)stream->base.device;
    const struct operation *op;

    on_stream_thread = true;
    while ((op = next_operation(stream))) {
        thread_watched(!computes(op));
        run_operation(op, device->n_threads);
        thread_watched(true);
        finish_operation(stream);
    }
    return NULL;
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

static int cpu_stream_create(struct device *device, const char *name, struct device_stream **stream)
{
    struct cpu_device *self = (struct cpu_device *)device;
    struct cpu_stream *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    new->base.device = device;
    new->ring = calloc(DEVICE_STREAM_DEPTH, sizeof(*new->ring));
    lock_init(&new->lock);
    lock_init_condition(&new->work);
    lock_init_condition(&new->progress);
    int err = new->ring ? thread_start(&new->thread, name, -1, run_stream, new) : -ENOMEM;
    if (err) {
        free(new->ring);
        free(new);
        return err;
    }
    new->next = self->streams;
    self->streams = new;
    *stream = &new->base;
    return 0;
}

static void cpu_stream_destroy(struct device_stream *stream)
{
    struct cpu_stream *self = (struct cpu_stream *)stream;

    lock_take(&self->lock);
    self->stopping = true;
    pthread_cond_signal(&self->work);
    lock_give(&self->lock);
    thread_join(&self->thread);
    free(self->ring);
    self->ring = NULL;
}

static uint64_t count_given(struct cpu_stream *stream)
{
    lock_take(&stream->lock);
    uint64_t n = stream->n_given;
    lock_give(&stream->lock);
    return n;
}

static void cpu_stream_wait(struct device_stream *stream)
{
    struct cpu_stream *self = (struct cpu_stream *)stream;

    assert(!on_stream_thread);
    wait_until_done(self, count_given(self));
}

static void enqueue(struct device_stream *stream, const struct operation *op)
{
    struct cpu_stream *self = (struct cpu_stream *)stream;

    assert(!on_stream_thread);
    lock_take(&self->lock);
    while (self->n_given - self->n_done == DEVICE_STREAM_DEPTH)
        lock_wait_beat(&self->lock, &self->progress, INT64_MAX);
    self->ring[self->n_given++ % DEVICE_STREAM_DEPTH] = *op;
    pthread_cond_signal(&self->work);
    lock_give(&self->lock);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static int cpu_event_create(struct device *device, struct device_event **event)
{
    struct cpu_event *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    new->base.device = device;
    lock_init(&new->lock);
    *event = &new->base;
    return 0;
}

static void cpu_event_destroy(struct device_event *event)
{
    struct cpu_event *self = (struct cpu_event *)event;

    lock_fini(&self->lock);
    free(self);
}

static void cpu_event_record(struct device_event *event, struct device_stream *stream)
{
    struct cpu_event *self = (struct cpu_event *)event;
    struct cpu_stream *recorded = (struct cpu_stream *)stream;
    struct mark mark = {.stream = recorded, .n_operations = count_given(recorded)};

    lock_take(&self->lock);
    self->mark = mark;
    lock_give(&self->lock);
}

static void cpu_stream_wait_event(struct device_stream *stream, struct device_event *event)
{
    struct cpu_event *self = (struct cpu_event *)event;
    struct operation op = {.kind = OP_WAIT};

    lock_take(&self->lock);
    op.wait = self->mark;
    lock_give(&self->lock);
    /* A stream need not wait for its own earlier operations, because it runs its operations in order. */
    if (op.wait.stream && &op.wait.stream->base != stream)
        enqueue(stream, &op);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void cpu_copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                        size_t row_bytes, size_t n_rows)
{
    struct operation op = {.kind = OP_COPY_2D,
                           .copy = {.dst = dst,
                                    .src = src,
                                    .dst_pitch = dst_pitch,
                                    .src_pitch = src_pitch,
                                    .row_bytes = row_bytes,
                                    .n_rows = n_rows}};

    enqueue(stream, &op);
}

static void cpu_fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    struct operation op = {.kind = OP_FILL, .fill = {dst, bytes, value}};

    enqueue(stream, &op);
}

static int cpu_kernel_create(struct device *device, const struct kernel *kernel,
                             const struct kernel_constant *constants, size_t n_constants, struct device_kernel **made)
{
    struct device_kernel *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    assert(kernel->cpu);
    *new = (struct device_kernel){device, kernel};
    *made = new;
    return 0;
}

static void cpu_kernel_destroy(struct device_kernel *kernel)
{
    free(kernel);
}

static void cpu_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                       const void *args)
{
    struct operation op = {.kind = OP_LAUNCH, .launch = {.kernel = kernel->kernel}};

    memcpy(op.launch.args, args, kernel->kernel->args_bytes);
    enqueue(stream, &op);
}

static void cpu_then(struct device_stream *stream, void (*fn)(void *arg), void *arg)
{
    struct operation op = {.kind = OP_THEN, .then = {fn, arg}};

    enqueue(stream, &op);
}

static int cpu_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft)
{
    if (n > INT_MAX)
        return -EINVAL;
    struct cpu_fft *new = calloc(1, sizeof(*new));
    if (!new)
        return -ENOMEM;
    *new = (struct cpu_fft){.base.device = device, .n = n, .batch = batch};
    if (n > 1 && !(new->kiss = kiss_fft_alloc((int)n, 0, NULL, NULL))) {
        free(new);
        return -ENOMEM;
    }
    *fft = &new->base;
    return 0;
}

static void cpu_fft_destroy(struct device_fft *fft)
{
    struct cpu_fft *self = (struct cpu_fft *)fft;

    kiss_fft_free(self->kiss);
    free(self);
}

static void cpu_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    const struct cpu_fft *self = (const struct cpu_fft *)fft;
    struct operation op = {.kind = OP_FFT, .fft = {self, in, out}};
    size_t bytes = self->n * self->batch * sizeof(kiss_fft_cpx);

    /* The FFT must not be in place, because KissFFT would then allocate a buffer for each transform. */
    assert((uintptr_t)in + bytes <= (uintptr_t)out || (uintptr_t)out + bytes <= (uintptr_t)in);
    enqueue(stream, &op);
}

/* ---- The device -------------------------------------------------------------------------------------------------- */

static void cpu_close(struct device *device)
{
    struct cpu_device *self = (struct cpu_device *)device;
    struct cpu_stream *next;

    for (struct cpu_stream *stream = self->streams; stream; stream = next) {
        assert(!stream->ring); /* destroyed */
        next = stream->next;
        pthread_cond_destroy(&stream->progress);
        pthread_cond_destroy(&stream->work);
        lock_fini(&stream->lock);
        free(stream);
    }
    free(self);
}

static const struct device_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_pinned = cpu_alloc_pinned,
    .free_pinned = cpu_free,
    .direct_memory = device_cpu_direct_memory,
    .alloc_direct = device_cpu_alloc_direct,
    .free_direct = device_cpu_free_direct,
    .check_exported = device_cpu_check_exported,
    .alloc_exported = device_cpu_alloc_exported,
    .free_exported = device_cpu_free_exported,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_wait = cpu_stream_wait,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .stream_wait_event = cpu_stream_wait_event,
    .copy_2d = cpu_copy_2d,
    .fill = cpu_fill,
    .fft_create = cpu_fft_create,
    .fft_destroy = cpu_fft_destroy,
    .fft_run = cpu_fft_run,
    .kernel_create = cpu_kernel_create,
    .kernel_destroy = cpu_kernel_destroy,
    .launch = cpu_launch,
    .then = cpu_then,
};

int device_cpu_open(const struct device_config *config, struct device **device)
{
    struct cpu_device *new = calloc(1, sizeof(*new));
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);

    if (!new)
        return -ENOMEM;
    assert(config->n_threads >= 0);
    new->base = (struct device){.ops = &cpu_ops, .name = "cpu", .model = "cpu"};
    new->n_threads = config->n_threads > 0 ? config->n_threads : n_cpus > 0 ? (int)n_cpus : 1;
    new->base.n_threads = (size_t) new->n_threads;
    *device = &new->base;
    return 0;
}
