/* faults.c - makes the cpu device slow, or makes it fail.  See faults.h. */
#include "tests/world/faults.h"

#include "common/device/device.h"
#include "tests/world/sched.h"

#include <stdlib.h>

static struct device_faults faults;
static unsigned n_operations, n_allocations;
static bool has_failed;
static const struct device_ops *real; /* of the cpu device */
static struct device_ops ops;         /* the same with faults */

void device_faults_set(const struct device_faults *wanted)
{
    faults = *wanted;
    n_operations = n_allocations = 0;
    has_failed = false;
}

void device_faults_slow(int64_t slow_ns)
{
    faults.slow_ns = slow_ns;
}

bool device_faults_failed(void)
{
    return has_failed;
}

/* ---- Operations ------------------------------------------------------------------------------------------------------ */

static void sleep_a_while(void *arg)
{
    int64_t end_ns = world_now_ns() + (int64_t)world_random((uint64_t)faults.slow_ns);

    world_note("device: slow operation");
    while (world_now_ns() < end_ns)
        world_wait(NULL, end_ns);
}

static void fail(void *device)
{
    has_failed = true;
    device_fail(device, "the device of the world failed");
}

/* Called before each operation is enqueued.  Returns false if the operation must not be enqueued. */
static bool begin_operation(struct device_stream *stream)
{
    if (!device_ok(stream->device))
        return false;
    if (faults.slow_ns > 0)
        real->then(stream, sleep_a_while, NULL);
    if (++n_operations != faults.fail_operation)
        return true;
    world_note(faults.fails_when_run ? "device: operation failed" : "device: operation refused");
    if (faults.fails_when_run)
        real->then(stream, fail, stream->device); /* kernels that are queued need the data of queued copies */
    else
        fail(stream->device);
    return faults.fails_when_run;
}

static void copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows)
{
    if (begin_operation(stream))
        real->copy_2d(stream, dst, dst_pitch, src, src_pitch, row_bytes, n_rows);
}

static void fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    if (begin_operation(stream))
        real->fill(stream, dst, value, bytes);
}

static void fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    if (begin_operation(stream))
        real->fft_run(stream, fft, in, out);
}

static void launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args)
{
    if (begin_operation(stream))
        real->launch(stream, kernel, grid, args);
}

/* A callback runs in any case.  After a failure it may run at once, if the stream has no earlier callbacks. */
static void then(struct device_stream *stream, void (*fn)(void *arg), void *arg)
{
    begin_operation(stream);
    real->then(stream, fn, arg);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------------- */

static bool is_memory_left(void)
{
    if (++n_allocations != faults.fail_memory)
        return true;
    world_note("device: out of memory");
    has_failed = true;
    return false;
}

static void *alloc(struct device *device, size_t bytes)
{
    return is_memory_left() ? real->alloc(device, bytes) : NULL;
}

static void *alloc_pinned(struct device *device, size_t bytes)
{
    return is_memory_left() ? real->alloc_pinned(device, bytes) : NULL;
}

int __wrap_device_cpu_open(const struct device_config *config, struct device **device);
int __real_device_cpu_open(const struct device_config *config, struct device **device);

int __wrap_device_cpu_open(const struct device_config *config, struct device **device)
{
    static const char *const kinds[] = {"device: slow operation", "device: operation failed",
                                        "device: operation refused", "device: out of memory"};
    int err = __real_device_cpu_open(config, device);

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        world_note_times(kinds[i], 0);
    if (err)
        return err;
    real = (*device)->ops;
    ops = *real;
    ops.copy_2d = copy_2d;
    ops.fill = fill;
    ops.fft_run = fft_run;
    ops.launch = launch;
    ops.then = then;
    ops.alloc = alloc;
    ops.alloc_pinned = alloc_pinned;
    (*device)->ops = &ops;
    return 0;
}
