/* main.c - xbgpu: boot order, and shutdown as its mirror. */
#include "common/device.h"
#include "common/http.h"
#include "common/log.h"
#include "common/service.h"
#include "common/version.h"
#include "xbgpu/config.h"
#include "xbgpu/layout.h"
#include "xbgpu/xpipeline.h"

#include <stdbool.h>
#include <stdio.h>

static void sources_ended(void *service, int exit_code)
{
    service_stop(service, exit_code);
}

static int run(const struct xbgpu_config *config, struct service *service)
{
    char why[512] = "";
    struct xbgpu_layout layout;
    struct device *device = NULL;
    struct http *http = NULL;
    struct xpipeline *pipeline = NULL;

    xbgpu_layout_init(&layout, config);
    struct device_config device_config = {(enum device_kind)config->device.kind, (int)config->device.n_threads};
    int err = device_open(&device_config, &device, why, sizeof(why));
    if (!err) {
        struct xpipeline_config c = {config, &layout, device, sources_ended, service};
        err = xpipeline_create(&c, &pipeline, why, sizeof(why));
    }
    /* After the pipeline, and closed before it: what /metrics shows lies in the pipeline's memory. */
    if (!err && config->http.listen.n)
        err = http_open(&config->http.listen.items[0], &http, why, sizeof(why));
    if (!err)
        err = xpipeline_start(pipeline);

    int exit_code;
    if (err) {
        log_error("%s", why[0] ? why : "start failed");
        exit_code = service_exit_code(err);
    } else {
        log_info("xbgpu %s: %zu antennas, %zu channels, %zu outputs on %s; %llu MiB of host memory, %llu MiB on the device",
                 cbf_build_id, layout.n_ants, layout.n_chan, layout.n_outputs, device_name(device),
                 (unsigned long long)(layout.host_bytes >> 20), (unsigned long long)(layout.device_bytes >> 20));
        exit_code = service_run(service);
        service_stopping(service);
        xpipeline_stop(pipeline);
    }
    http_close(http);
    xpipeline_destroy(pipeline);
    device_close(device);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct xbgpu_config values = {0};
    struct config *config = NULL;
    struct service *service = NULL;

    log_init("xbgpu", LOG_LEVEL_INFO);
    int exit_code = config_main(&xbgpu_config_table, argc, argv, xbgpu_config_check, &values, &config);
    if (exit_code < 0)
        exit_code = service_open(&service) == 0 ? run(&values, service) : 1;
    service_close(service);
    config_free(&xbgpu_config_table, &values, config);
    return exit_code;
}
