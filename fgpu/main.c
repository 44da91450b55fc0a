/* main.c - fgpu: the process's life is common/daemon/daemon.c. */
#include "fgpu/config.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"

#include "common/engine/engine.h"

ENGINE_MAIN(fgpu)
