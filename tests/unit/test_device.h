/* test_device.h - opens a device of a given kind, for tests that use a device but do not test it. */
#ifndef TESTS_UNIT_TEST_DEVICE_H
#define TESTS_UNIT_TEST_DEVICE_H

#include "common/device/device.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

/* Opens a device with the kernel cache that all tests share. */
static inline struct device *test_open_kind(enum device_kind kind, int n_threads)
{
    char why[600] = "", cache[64];
    struct device *opened;

    snprintf(cache, sizeof(cache), "/tmp/cbf-test-kernels-%ld", (long)geteuid());
    struct device_config config = {.kind = kind, .n_threads = n_threads, .kernel_cache = cache};
    ck_assert_msg(device_open(&config, &opened, why, sizeof(why)) == 0, "%s", why);
    return opened;
}

#endif
