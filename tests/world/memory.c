/* memory.c - keeps a table of the blocks of memory that exist.  See memory.h. */
#include "tests/world/memory.h"

#include "tests/world/sched.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BITS 17
#define N_ROWS     (1u << TABLE_BITS)

/* Addresses that malloc() has returned in this run. */
static struct row {
    const void *memory;
    bool exists;
    size_t n_bytes;
    const char *caller; /* of the allocation */
} rows[N_ROWS];
static size_t n_used; /* rows with an address */
static bool is_on;

extern const char __executable_start[]; /* the linker defines it */

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *memory, size_t n_bytes);
void __real_free(void *memory);
char *__real_strdup(const char *text);
int __real_posix_memalign(void **memory, size_t align_bytes, size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *memory, size_t n_bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);
int __wrap_posix_memalign(void **memory, size_t align_bytes, size_t n_bytes);

void memory_begin(void)
{
    memset(rows, 0, sizeof(rows));
    n_used = 0;
    is_on = true;
}

void memory_check_end(void)
{
    is_on = false;
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].exists)
            world_fail("%zu bytes of memory were not freed, which a call before 0x%zx allocated (addr2line -e)",
                       rows[i].n_bytes, (size_t)(rows[i].caller - __executable_start));
}

/* Returns the row of an address, or the empty row where it belongs. */
static struct row *find(const void *memory)
{
    size_t i = (size_t)((uintptr_t)memory / 16 * 0x9E3779B97F4A7C15 >> (64 - TABLE_BITS));

    while (rows[i].memory && rows[i].memory != memory)
        i = (i + 1) % N_ROWS;
    return &rows[i];
}

static void *add(void *memory, size_t n_bytes, const char *caller)
{
    if (!memory || !is_on)
        return memory;
    struct row *row = find(memory);
    n_used += !row->memory;
    if (n_used == N_ROWS)
        world_fail("the table of memory is full");
    *row = (struct row){memory, true, n_bytes, caller};
    return memory;
}

/* Blocks of libraries, and blocks of the time before memory_begin(), are not in the table. */
static void take_away(const void *memory)
{
    struct row *row = memory && is_on ? find(memory) : NULL;

    if (row)
        row->exists = false;
}

void *__wrap_malloc(size_t n_bytes)
{
    return add(__real_malloc(n_bytes), n_bytes, __builtin_return_address(0));
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    return add(__real_calloc(n, n_bytes), n * n_bytes, __builtin_return_address(0));
}

void *__wrap_realloc(void *memory, size_t n_bytes)
{
    take_away(memory);
    return add(__real_realloc(memory, n_bytes), n_bytes, __builtin_return_address(0));
}

char *__wrap_strdup(const char *text)
{
    return add(__real_strdup(text), strlen(text) + 1, __builtin_return_address(0));
}

int __wrap_posix_memalign(void **memory, size_t align_bytes, size_t n_bytes)
{
    int err = __real_posix_memalign(memory, align_bytes, n_bytes);

    if (!err)
        add(*memory, n_bytes, __builtin_return_address(0));
    return err;
}

void __wrap_free(void *memory)
{
    take_away(memory);
    __real_free(memory);
}
