/* device_emulated.h - the cpu device with the CUDA variants of the kernels, so that they are tested where there is no
 * GPU.
 *
 * device_kernel_create() loads the shared object of kernels/<name>.cu (or tests/fakes/emulator/<name>.cu) with the constants,
 * which g++ compiles where no test has needed it before (kernel_cache.h); a launch runs all blocks and threads of its grid on one CPU thread, the stream's.  emulate.cpp says
 * which mistakes that finds; each ends the process with a sentence.  A kernel without a .cu file runs its C twin.
 *
 * Tests run in the root of the source tree.  A compilation takes about half a second, so try many inputs per set of
 * constants.  EMULATE_SEED=... repeats the order of blocks and threads of the run
 * that printed it. */
#ifndef TESTS_FAKES_EMULATOR_DEVICE_EMULATED_H
#define TESTS_FAKES_EMULATOR_DEVICE_EMULATED_H

#include "common/device/device.h"

/* Returns 0, -ENOPKG where there is no g++ (and says so), or -ENOMEM.  Close it with device_close(). */
int device_emulated_open(struct device **device);

#endif
