/* test_kernel.h - the device on which the unit tests run CUDA variants of kernels: a GPU if CBF_TEST_DEVICE=cuda, else
 * the emulated device.
 *
 *     TEST_ON_DEVICE(cuda)
 *     {
 *         test_kernel(d, &power_kernel, constants, POWER_N_CONSTANTS);
 *         args.power = test_copy_in(d, power, sizeof(power));
 *         test_launch(d, power_grid(&args), &args);
 *         test_download(d, power, args.power, sizeof(power));
 *     }
 *
 * Each test opens the device itself: Check forks for each test, and CUDA does not survive a fork.  When the device is
 * closed, it frees everything that test_kernel(), test_keep() and test_copy_in() returned. */
#ifndef TESTS_UNIT_TEST_KERNEL_H
#define TESTS_UNIT_TEST_KERNEL_H

#include "common/device/device.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_main.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct test_device {
    struct device *device;
    struct device_stream *stream;
    struct device_kernel *kernel; /* kernel that test_kernel() created last; NULL: no kernel yet */
    void **kept;
    size_t n_kept;
};

/* Returns false, after a message, if CUDA variants cannot be tested here.  The test must then end. */
static inline bool test_device_open(struct test_device *d)
{
    *d = (struct test_device){.device = test_open_variant(true, 1)};
    if (d->device)
        ck_assert_int_eq(device_stream_create(d->device, "test", &d->stream), 0);
    return d->device;
}

static inline void test_device_close(struct test_device *d)
{
    device_kernel_destroy(d->kernel);
    for (size_t i = 0; i < d->n_kept; i++)
        device_free(d->device, d->kept[i]);
    free(d->kept);
    device_stream_destroy(d->stream);
    device_close(d->device);
}

/* A TEST() whose body can use the open device 'd'. */
#define TEST_ON_DEVICE(test_name, ...)                                                                                 \
    static void test_name##_on(struct test_device *d, int _i);                                                         \
    TEST(test_name, __VA_ARGS__)                                                                                       \
    {                                                                                                                  \
        struct test_device opened;                                                                                     \
        if (test_device_open(&opened)) {                                                                               \
            test_name##_on(&opened, _i);                                                                               \
            test_device_close(&opened);                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void test_name##_on(struct test_device *d, CK_ATTRIBUTE_UNUSED int _i)

/* Creates a kernel, which replaces the kernel of the previous call. */
static inline void test_kernel(struct test_device *d, const struct kernel *kernel,
                               const struct kernel_constant *constants, size_t n_constants)
{
    device_kernel_destroy(d->kernel);
    ck_assert_int_eq(device_kernel_create(d->device, kernel, constants, n_constants, &d->kernel), 0);
}

static inline void test_launch(const struct test_device *d, struct kernel_grid grid, const void *args)
{
    device_launch(d->stream, d->kernel, &grid, args);
}

/* Allocates 'bytes' of device memory, and copies 'host_bytes' bytes from 'host' to this memory.  The caller frees the
 * memory with device_free(). */
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

/* Passes the ownership of 'memory' from test_upload() to 'd', and returns 'memory'. */
static inline void *test_keep(struct test_device *d, void *memory)
{
    d->kept = realloc(d->kept, (d->n_kept + 1) * sizeof(*d->kept));
    ck_assert_ptr_nonnull(d->kept);
    return d->kept[d->n_kept++] = memory;
}

/* Copies 'bytes' from 'host' to new device memory, which 'd' owns.  Returns NULL if 'host' is NULL. */
static inline void *test_copy_in(struct test_device *d, const void *host, size_t bytes)
{
    return host ? test_keep(d, test_upload(d, host, bytes, bytes)) : NULL;
}

static inline void test_download(const struct test_device *d, void *host, const void *memory, size_t bytes)
{
    test_read(d->stream, host, memory, bytes);
}

#endif
