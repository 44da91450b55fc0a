/* test_no_memory.h - allocations that fail.  The header replaces glibc's malloc() and its relatives in the whole process,
 * so allocations of libraries fail, too.  Only calls of the test's own thread fail.
 *
 *     NO_MEMORY_SUITE(.timeout_s = 20);
 *
 *     memory_fails(5, 1);          the sixth call from now on fails
 *     ...
 *     memory_suffices();
 *
 * Exactly one file of a program may include the header.  Sanitizers replace malloc() themselves, so their builds skip
 * the cases. */
#ifndef TESTS_UNIT_TEST_NO_MEMORY_H
#define TESTS_UNIT_TEST_NO_MEMORY_H

#include "tests/unit/test_main.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* Calls of this thread. */
static _Thread_local size_t n_allocations;         /* number of calls since memory_fails() */
static _Thread_local size_t first_fail = SIZE_MAX; /* index of the first call that fails */
static _Thread_local size_t n_fails;               /* number of calls that fail, from first_fail on */

static atomic_size_t n_blocks; /* blocks that exist, of all threads */

/* Lets 'n' calls fail, after 'first' calls that succeed. */
static inline void memory_fails(size_t first, size_t n)
{
    n_allocations = 0;
    n_fails = n;
    first_fail = first;
}

static inline void memory_suffices(void)
{
    first_fail = SIZE_MAX;
}

#ifdef CBF_SANITIZE
#define NO_MEMORY_SUITE(...) SUITE(.skip = "sanitizers replace malloc() themselves", __VA_ARGS__)
#else
#define NO_MEMORY_SUITE(...) SUITE(__VA_ARGS__)

void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t n_bytes);
void *__libc_realloc(void *memory, size_t n_bytes);
void *__libc_memalign(size_t align_bytes, size_t n_bytes);
void __libc_free(void *memory);

/* Counts a call.  Returns true if the call must fail. */
static bool fails(void)
{
    size_t i = n_allocations++;

    if (i < first_fail || i - first_fail >= n_fails)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *memory)
{
    n_blocks += memory != NULL;
    return memory;
}

void *malloc(size_t n_bytes)
{
    return fails() ? NULL : counted(__libc_malloc(n_bytes));
}

void *calloc(size_t n, size_t n_bytes)
{
    return fails() ? NULL : counted(__libc_calloc(n, n_bytes));
}

void *realloc(void *memory, size_t n_bytes)
{
    if (fails())
        return NULL;
    return memory ? __libc_realloc(memory, n_bytes) : counted(__libc_malloc(n_bytes));
}

void *memalign(size_t align_bytes, size_t n_bytes)
{
    return fails() ? NULL : counted(__libc_memalign(align_bytes, n_bytes));
}

void *aligned_alloc(size_t align_bytes, size_t n_bytes)
{
    return memalign(align_bytes, n_bytes);
}

int posix_memalign(void **memory, size_t align_bytes, size_t n_bytes)
{
    void *got = memalign(align_bytes, n_bytes);

    if (!got)
        return ENOMEM;
    *memory = got;
    return 0;
}

void free(void *memory)
{
    n_blocks -= memory != NULL;
    __libc_free(memory);
}
#endif

#endif
