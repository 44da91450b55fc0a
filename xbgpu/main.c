/* main.c - xbgpu: what the process is; its life is common/daemon/daemon.c. */
#include "xbgpu/config.h"
#include "xbgpu/pipeline.h"

#include "common/daemon/daemon.h"

static const struct daemon daemon_xbgpu = {
    .name = "xbgpu",
    .table = &xbgpu_config_table,
    .check = xbgpu_config_check,
    .device_offset = offsetof(struct xbgpu_config, device),
    .http_offset = offsetof(struct xbgpu_config, http),
    .katcp_offset = offsetof(struct xbgpu_config, katcp),
    .create = xpipeline_create,
    .control = xpipeline_control,
    .start = xpipeline_start,
    .begin = xpipeline_begin,
    .stop = xpipeline_stop,
    .destroy = xpipeline_destroy,
};

int main(int argc, char **argv)
{
    struct xbgpu_config values = {0};

    return daemon_main(&daemon_xbgpu, argc, argv, &values);
}
