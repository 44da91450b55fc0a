/* kernel_cache.h - shared objects of emulated kernels, kept in build-emulated/ for all test programs of all builds.
 *
 * The set of kernels is known only when the tests run: sizes are -D constants, which the host code chooses.  So the first
 * test that needs a kernel compiles it, and every later test, program and build variant loads it.
 *
 * Key:       the command that compiles the kernel, and the version of g++.  Flags are part of the command, so variants
 *            with equal flags share an entry: all but SANITIZE=address do.
 * Freshness: as make has it.  g++ writes the names of the files that it read; an entry older than one of them is
 *            compiled anew.
 * Processes: tests run side by side.  An entry is written under a temporary name and renamed, so a reader has all of it;
 *            two writers of one entry each load a whole one. */
#ifndef TESTS_FAKES_EMULATOR_KERNEL_CACHE_H
#define TESTS_FAKES_EMULATOR_KERNEL_CACHE_H

#include <stdbool.h>

/* Asks g++ for its version; returns false where there is no g++.  Comes before the other. */
bool kernel_cache_has_compiler(void);

/* Loads the shared object of kernel 'name' that 'command' compiles.  Returns NULL where that fails, which it says. */
void *kernel_cache_load(const char *name, const char *command);

#endif
