/* device_under_test.h - the device under test: CBF_TEST_DEVICE=cpu or cuda.  Without CBF_TEST_DEVICE, tests run on the
 * cpu device.  They then run again on the cuda device with a CUDA runtime that needs no GPU (fake_cuda.h), if this
 * runtime was built.
 *
 * CUDA does not survive a fork, and Check forks each test.  So a device is opened inside a test.  A device copies only
 * from and to its own memory or pinned memory; these helpers copy data there and back. */
#ifndef TESTS_UNIT_DEVICE_UNDER_TEST_H
#define TESTS_UNIT_DEVICE_UNDER_TEST_H

#include "common/device/device.h"
#include "tests/fakes/emulator/device_emulated.h"
#include "fakes.h"
#include "test_device.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the path of the plugin that runs the cuda device without a GPU.  Returns NULL if there is no such plugin. */
static inline const char *test_fake_cuda(void)
{
    static char path[4096];

    return test_beside("cbf-cuda-fake.so", path, sizeof(path));
}

/* Selects the device under test: the cuda device's plugin that needs no GPU.  Call in the test itself. */
static inline void test_use_fake_cuda(void)
{
    setenv("CBF_TEST_DEVICE", "cuda", 1);
    setenv("CBF_CUDA_DEVICE", test_fake_cuda(), 1);
}

static inline bool test_on_cuda(void)
{
    const char *given = getenv("CBF_TEST_DEVICE");

    return given && strcmp(given, "cuda") == 0;
}

static inline struct device *test_open_device(int n_threads)
{
    return test_open_kind(test_on_cuda() ? DEVICE_CUDA : DEVICE_CPU, n_threads);
}

/* Opens the device under test.  Without a GPU, CUDA variants of kernels run on the emulated device, which needs g++.
 * Without g++, prints that the test is skipped, and returns NULL. */
static inline struct device *test_open_variant(bool cuda, int n_threads)
{
    struct device *opened = NULL;

    if (!cuda || test_on_cuda())
        return test_open_device(n_threads);
    int err = device_emulated_open(&opened);
    ck_assert(err == 0 || err == -ENOPKG);
    return opened;
}

/* Copies to device memory, and waits until the copy is complete. */
static inline void test_write(struct device_stream *stream, void *dst, const void *src, size_t bytes)
{
    void *pinned = device_alloc_pinned(stream->device, bytes);

    ck_assert_ptr_nonnull(pinned);
    memcpy(pinned, src, bytes);
    device_copy(stream, dst, pinned, bytes);
    device_stream_wait(stream);
    device_free_pinned(stream->device, pinned);
}

/* Copies from device memory after all operations in 'stream', and waits until the copy is complete. */
static inline void test_read(struct device_stream *stream, void *dst, const void *src, size_t bytes)
{
    void *pinned = device_alloc_pinned(stream->device, bytes);

    ck_assert_ptr_nonnull(pinned);
    device_copy(stream, pinned, src, bytes);
    device_stream_wait(stream);
    memcpy(dst, pinned, bytes);
    device_free_pinned(stream->device, pinned);
}

#endif
