/* device.c - the cpu device with faults.  See device.h. */
#include "tests/world/device.h"

#include "common/device/device.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"

struct world_device world_device;

static struct device_ops real, faulty;

int __wrap_device_cpu_open(const struct device_config *config, struct device **device);
int __real_device_cpu_open(const struct device_config *config, struct device **device);

/* Delays the stream.  Runs on the stream's thread. */
static void delay(void *arg)
{
    run_sleep((int64_t)world_random((uint64_t)world_device.slow_ns + 1));
}

/* Returns true if the next operation of the stream is to be enqueued. */
static bool succeeds(struct device_stream *stream)
{
    if (!device_ok(stream->device))
        return false;
    if (world_device.fails_at > 0 && --world_device.fails_at == 0) {
        world_note("device: an operation failed");
        world_device.has_failed = true;
        device_fail(stream->device, "an operation of the device has failed");
        return false;
    }
    if (world_chance(world_device.slow)) {
        world_note("device: slow operation");
        real.then(stream, delay, NULL);
    }
    return true;
}

static void copy_2d(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                    size_t row_bytes, size_t n_rows)
{
    if (succeeds(stream))
        real.copy_2d(stream, dst, dst_pitch, src, src_pitch, row_bytes, n_rows);
}

static void fill(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
    if (succeeds(stream))
        real.fill(stream, dst, value, bytes);
}

static void fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    if (succeeds(stream))
        real.fft_run(stream, fft, in, out);
}

static void launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                   const void *args)
{
    if (succeeds(stream))
        real.launch(stream, kernel, grid, args);
}

int __wrap_device_cpu_open(const struct device_config *config, struct device **device)
{
    int err = __real_device_cpu_open(config, device);

    if (err)
        return err;
    real = faulty = *(*device)->ops;
    faulty.copy_2d = copy_2d;
    faulty.fill = fill;
    faulty.fft_run = fft_run;
    faulty.launch = launch;
    (*device)->ops = &faulty;
    return 0;
}
