/* direct_guard.h - finds reads of direct memory from the host's side (device.h).
 *
 * Processors cannot map memory for writing only.  So the guard forbids every access: each access faults, and a system
 * call that touches the memory fails.  The fault says whether the access was a write.  For a write, the guard opens the
 * page for one instruction.  The processor traps after that instruction, and the guard closes the page again.  A read
 * ends the process with a message.  The guard counts an instruction that reads and then writes as a write.  The guard
 * is slow: each store causes two signals, so a program writes about 2 MB/s.
 *
 * If a program preloads direct-guard.so, the guard covers all memory that is mapped for writing only. */
#ifndef TESTS_DIRECT_GUARD_H
#define TESTS_DIRECT_GUARD_H

#include <stddef.h>

#define DIRECT_GUARD_EXIT_CODE 99

/* Guards whole pages until direct_unguard().  Call direct_unguard() before you unmap the pages.  Only one thread at a
 * time may call these functions. */
void direct_guard(void *memory, size_t bytes);
void direct_unguard(void *memory);

/* Returns the number of writes that the guard has permitted. */
unsigned long direct_guard_writes(void);

#endif
