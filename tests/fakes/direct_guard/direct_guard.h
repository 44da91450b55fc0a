/* direct_guard.h - notices who reads direct memory from the host's side (device.h).
 *
 * Processors cannot map memory for writing only.  So nothing may be done with it at all: each access faults, the kernel's
 * for a system call fails, and the fault says whether it was a write.  A write is let through by opening its page for one
 * instruction, after which the processor traps and the page is closed again; a read ends the process with a sentence.
 * An instruction that reads and then writes passes as a write.  Slow: two signals a store, 2 MB/s or so.
 *
 * direct-guard.so, preloaded, guards whatever is mapped for writing only. */
#ifndef TESTS_DIRECT_GUARD_H
#define TESTS_DIRECT_GUARD_H

#include <stddef.h>

#define DIRECT_GUARD_EXIT_CODE 99

/* Guards whole pages until direct_unguard(), which must come before they are unmapped; one thread at a time. */
void direct_guard(void *memory, size_t bytes);
void direct_unguard(void *memory);

/* Writes that were let through. */
unsigned long direct_guard_writes(void);

#endif
