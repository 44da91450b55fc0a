/* kernel_cache.h - shared objects of emulated kernels, kept in build-emulated/ for all test programs of all builds.
 *
 * The host code chooses a kernel's sizes and passes them as -D constants.  So only the tests know which kernels are
 * needed.  `make unit-tests` runs each program once to compile the kernels that it asks for (EMULATE=compile,
 * device_emulated.h).  A test compiles a kernel that is missing.
 *
 * Key:       the command that compiles the kernel, and the version of g++.  Flags are part of the command, so builds
 *            with equal flags share an entry.  Only builds with SANITIZE=address have other flags.
 * Freshness: depends on file times, as in make.  g++ writes the names of the files that it read.  If an entry is older
 *            than one of these files, the kernel is compiled again.
 * Processes: tests run side by side.  An entry is written under a temporary name and then renamed, so a reader sees
 *            only complete entries.  If two processes write the same entry, each process loads a complete entry. */
#ifndef TESTS_FAKES_EMULATOR_KERNEL_CACHE_H
#define TESTS_FAKES_EMULATOR_KERNEL_CACHE_H

#include <stdbool.h>

/* Asks g++ for its version; returns false if there is no g++.  Call it before the other functions. */
bool kernel_cache_has_compiler(void);

/* Compiles kernel 'name' with 'command', unless the cache already has a fresh entry.  Returns false after an error of
 * g++. */
bool kernel_cache_compile(const char *name, const char *command);

/* Loads the shared object of kernel 'name' that 'command' compiles.  Prints a message and returns NULL on failure. */
void *kernel_cache_load(const char *name, const char *command);

#endif
