/* main.c - xbgpu: what the process is; its life is common/daemon/daemon.c. */
#include "xbgpu/config.h"
#include "xbgpu/tune.h"
#include "xbgpu/pipeline.h"

#include "common/daemon/daemon.h"
#include "common/engine/engine.h"

static const struct daemon daemon_xbgpu = {
    .name = "xbgpu",
    .table = &xbgpu_config_table,
    .check = xbgpu_config_check,
    .device_offset = offsetof(struct xbgpu_config, device),
    .http_offset = offsetof(struct xbgpu_config, http),
    .katcp_offset = offsetof(struct xbgpu_config, katcp),
    .tune = xbgpu_tune,
    .create = xbgpu_pipeline_create,
    .control = xbgpu_pipeline_control,
    .start = engine_start,
    .enable = engine_enable,
    .stop = xbgpu_pipeline_stop,
    .destroy = xbgpu_pipeline_destroy,
};

int main(int argc, char **argv)
{
    struct xbgpu_config values = {0};

    return daemon_main(&daemon_xbgpu, argc, argv, &values);
}
