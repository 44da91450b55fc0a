/* main.c - xbgpu: the process's life is common/daemon/daemon.c. */
#include "xbgpu/config.h"
#include "xbgpu/pipeline.h"
#include "xbgpu/tune.h"

#include "common/engine/engine.h"

ENGINE_MAIN(xbgpu)
