/* faults.c - makes the cpu device slow or wrong, or makes it fail.  See faults.h. */
#include "tests/world/faults.h"

#include "common/device/device.h"
#include "tests/world/sched.h"

#include <stdlib.h>
#include <string.h>

static struct device_faults faults;
#define MAX_PINNED 1024

static unsigned n_operations, n_allocations, n_flips_planned, n_flips;
static struct {
    const uint8_t *at;
    size_t n_bytes;
} pinned[MAX_PINNED]; /* allocations of pinned memory, if bits flip */
static bool has_failed;
static const struct device_ops *real; /* of the cpu device */
static struct device_ops ops;         /* the same with faults */

void device_faults_set(const struct device_faults *wanted)
{
    faults = *wanted;
    n_operations = n_allocations = n_flips_planned = n_flips = 0;
    memset(pinned, 0, sizeof(pinned));
    has_failed = false;
}

unsigned device_faults_n_flips(void)
{
    return n_flips;
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

static bool is_pinned(const void *at)
{
    for (size_t i = 0; i < MAX_PINNED; i++)
        if ((const uint8_t *)at >= pinned[i].at && (const uint8_t *)at < pinned[i].at + pinned[i].n_bytes)
            return true;
    return false;
}

static void flip_bit(void *at)
{
    size_t bit = world_random(8 * faults.flip_bytes);

    ((uint8_t *)at)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    n_flips++;
    world_note("device: flipped bit");
}

static void copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows)
{
    if (!begin_operation(stream))
        return;
    real->copy_2d(stream, dst, dst_pitch, src, src_pitch, row_bytes, n_rows);
    if (faults.flip_bytes == row_bytes && n_rows == 1 && is_pinned(dst) && !is_pinned(src) &&
        n_flips_planned < faults.max_flips && world_chance(faults.flip)) {
        n_flips_planned++;
        real->then(stream, flip_bit, dst);
    }
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

/* Replaces the record of pinned memory at 'old' with the allocation 'at'. */
static void note_pinned(const void *old, const void *at, size_t n_bytes)
{
    size_t i = 0;

    while (i < MAX_PINNED && pinned[i].at != old)
        i++;
    if (i == MAX_PINNED)
        world_fail("more than %d allocations of pinned memory", MAX_PINNED);
    pinned[i].at = at;
    pinned[i].n_bytes = n_bytes;
}

static void *alloc_pinned(struct device *device, size_t bytes)
{
    void *at = is_memory_left() ? real->alloc_pinned(device, bytes) : NULL;

    if (at && faults.flip_bytes > 0)
        note_pinned(NULL, at, bytes);
    return at;
}

static void free_pinned(struct device *device, void *at)
{
    if (at && faults.flip_bytes > 0)
        note_pinned(at, NULL, 0);
    real->free_pinned(device, at);
}

int __wrap_device_cpu_open(const struct device_config *config, struct device **device);
int __real_device_cpu_open(const struct device_config *config, struct device **device);

int __wrap_device_cpu_open(const struct device_config *config, struct device **device)
{
    static const char *const kinds[] = {"device: slow operation", "device: operation failed",
                                        "device: operation refused", "device: out of memory", "device: flipped bit"};
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
    ops.free_pinned = free_pinned;
    (*device)->ops = &ops;
    return 0;
}
