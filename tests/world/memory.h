/* memory.h - memory and locks of the daemons: all that a run allocates or initialises must be gone at its end.
 *
 * The linker redirects malloc() and free() of the daemons' objects, and of the world's, to memory.c (--wrap).  Libraries
 * call the C library's functions, so memory that only a library allocates does not count.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_MEMORY_H
#define TESTS_WORLD_MEMORY_H

#include <stddef.h>

/* Forgets all blocks that exist.  Called at the beginning of a run. */
void memory_begin(void);

/* Fails the run if a block exists that was allocated since memory_begin(). */
void memory_check_end(void);

/* Fails the run if a mutex or a condition exists that was initialised (seams.c). */
void seams_check_end(void);

#endif
