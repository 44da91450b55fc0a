/* main.c - fgpu.  common/daemon/daemon.c runs the process from start to end. */
#include "fgpu/config.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"

#include "common/engine/engine.h"

ENGINE_MAIN(fgpu)
