/* device_emulated.h - the cpu device with the CUDA variants of the kernels.  Tests use this device on hosts without a
 * GPU.
 *
 * device_kernel_create() loads the shared object of kernels/<name>.cu (or tests/fakes/emulator/<name>.cu) with the
 * constants (kernel_cache.h).  A launch runs all blocks and threads of its grid on one CPU thread: the thread of the
 * stream.  emulate.cpp lists the kernels' mistakes that the emulator finds.  Each mistake ends the process with a
 * message.  A kernel without a .cu file runs its C version.
 *
 * Tests run in the root of the source tree.  A compilation takes about a quarter of a second, so a test should use
 * each set of constants for many inputs.  EMULATE_SEED=... repeats the order of blocks and threads of the run that
 * printed this seed.
 *
 * EMULATE=compile: kernels are compiled, and their C versions run instead.  A kernel without a C version does not run.
 * Its outputs are then wrong, so failures of cases mean nothing. */
#ifndef TESTS_FAKES_EMULATOR_DEVICE_EMULATED_H
#define TESTS_FAKES_EMULATOR_DEVICE_EMULATED_H

#include "common/device/device.h"

/* Returns 0, -ENOPKG or -ENOMEM.  If there is no g++, prints a message and returns -ENOPKG.  Close the device with
 * device_close(). */
int device_emulated_open(struct device **device);

/* Returns true if EMULATE=compile is set.  A test that compares the outputs of kernels then skips the comparisons. */
bool device_emulated_only_compiles(void);

#endif
