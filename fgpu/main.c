/* main.c - fgpu: what the process is; its life is common/daemon/daemon.c. */
#include "fgpu/config.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"

#include "common/daemon/daemon.h"
#include "common/engine/engine.h"

static const struct daemon daemon_fgpu = {
    .name = "fgpu",
    .table = &fgpu_config_table,
    .check = fgpu_config_check,
    .device_offset = offsetof(struct fgpu_config, device),
    .http_offset = offsetof(struct fgpu_config, http),
    .katcp_offset = offsetof(struct fgpu_config, katcp),
    .tune = fgpu_tune,
    .create = fgpu_pipeline_create,
    .control = fgpu_pipeline_control,
    .start = engine_start,
    .enable = engine_enable,
    .stop = fgpu_pipeline_stop,
    .destroy = fgpu_pipeline_destroy,
};

int main(int argc, char **argv)
{
    struct fgpu_config values = {0};

    return daemon_main(&daemon_fgpu, argc, argv, &values);
}
