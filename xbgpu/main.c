/* main.c - xbgpu's main(); common/daemon/daemon.c runs the process. */
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/pipeline.h"
#include "xbgpu/tune.h"

#include "common/engine/engine.h"

ENGINE_MAIN(xbgpu)
