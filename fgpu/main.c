/* main.c - fgpu's main().  common/daemon/daemon.c runs the process. */
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"

#include "common/engine/engine.h"

ENGINE_MAIN(fgpu)
