/* test_xbgpu.h - the objects that the parts of xbgpu need, on the cpu device.  The test itself acts as the worker. */
#ifndef TESTS_UNIT_TEST_XBGPU_H
#define TESTS_UNIT_TEST_XBGPU_H

#include "common/base/inbox.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/telemetry/sensor.h"
#include "tests/unit/test_config.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/send.h"

struct test_xbgpu {
    struct xbgpu_config config;
    struct config *errors;
    struct xbgpu_layout layout;
    struct device *device; /* the cpu device, so device memory is host memory */
    struct device_stream *compute, *download;
    struct inbox *inbox;
    struct sensors *sensors;
    struct engine engine;
    struct xbgpu_send *send;
};

static inline void test_xbgpu_open(struct test_xbgpu *x, const char *yaml)
{
    const struct device_config device_config = {DEVICE_CPU, 1};
    char why[256] = "";

    load_config(&xbgpu_config_table, yaml, &x->config, &x->errors);
    xbgpu_layout_init(&x->layout, &x->config);
    ck_assert_int_eq(device_open(&device_config, &x->device, why, sizeof(why)), 0);
    ck_assert_int_eq(device_stream_create(x->device, "compute", &x->compute), 0);
    ck_assert_int_eq(device_stream_create(x->device, "download", &x->download), 0);
    ck_assert_int_eq(inbox_create(16, &x->inbox), 0);
    ck_assert_int_eq(sensors_create(&x->sensors), 0);
    x->engine =
        (struct engine){.c = {.device = x->device, .sensors = x->sensors}, .inbox = x->inbox, .download = x->download};
    ck_assert_msg(xbgpu_send_create(&x->config, &x->layout, &x->engine, &x->send, why, sizeof(why)) == 0, "%s", why);
}

/* Ends all work on the device.  Call it before you free objects that use the device. */
static inline void test_xbgpu_stop(struct test_xbgpu *x)
{
    device_stream_destroy(x->compute);
    device_stream_destroy(x->download);
}

static inline void test_xbgpu_close(struct test_xbgpu *x)
{
    xbgpu_send_destroy(x->send);
    inbox_destroy(x->inbox);
    sensors_destroy(x->sensors);
    device_close(x->device);
    config_free(&xbgpu_config_table, &x->config, x->errors);
}

#endif
