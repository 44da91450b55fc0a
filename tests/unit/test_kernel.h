/* test_kernel.h - the device on which the unit tests run CUDA variants of kernels: with CBF_TEST_DEVICE=cuda a
 * GPU, else the emulated one.
 *
 * A test opens it for itself: Check forks for each, which CUDA does not survive. */
#ifndef TESTS_UNIT_TEST_KERNEL_H
#define TESTS_UNIT_TEST_KERNEL_H

#include "common/device/device.h"
#include "tests/fakes/emulator/device_emulated.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct test_device {
    struct device *device;
    struct device_stream *stream;
};

/* Returns false where CUDA variants cannot be tested, which it says; then the test has nothing more to do. */
static inline bool test_device_open(struct test_device *d)
{
    const char *wanted = getenv("CBF_TEST_DEVICE");
    int err;

    if (wanted && strcmp(wanted, "cuda") == 0) {
        const struct device_config config = {.kind = DEVICE_CUDA};
        char why[500] = "";
        if (device_open(&config, &d->device, why, sizeof(why)))
            ck_abort_msg("%s", why);
    } else {
        err = device_emulated_open(&d->device);
        if (err == -ENOPKG)
            return false;
        ck_assert_int_eq(err, 0);
    }
    ck_assert_int_eq(device_stream_create(d->device, "test", &d->stream), 0);
    return true;
}

static inline void test_device_close(struct test_device *d)
{
    device_stream_destroy(d->stream);
    device_close(d->device);
}

/* Device memory of 'bytes', which begin with 'host_bytes' from 'host'.  To be freed with device_free(). */
static inline void *test_upload(const struct test_device *d, const void *host, size_t host_bytes, size_t bytes)
{
    void *memory = device_alloc(d->device, bytes), *pinned = device_alloc_pinned(d->device, bytes);

    ck_assert(memory && pinned);
    memset(pinned, 0xa5, bytes);
    memcpy(pinned, host, host_bytes);
    device_copy(d->stream, memory, pinned, bytes);
    device_stream_wait(d->stream);
    device_free_pinned(d->device, pinned);
    return memory;
}

static inline void test_download(const struct test_device *d, void *host, const void *memory, size_t bytes)
{
    void *pinned = device_alloc_pinned(d->device, bytes);

    ck_assert_ptr_nonnull(pinned);
    device_copy(d->stream, pinned, memory, bytes);
    device_stream_wait(d->stream);
    memcpy(host, pinned, bytes);
    device_free_pinned(d->device, pinned);
}

#endif
