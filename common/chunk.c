/* chunk.c - the chunks of one member: made before start, pushed to their home inbox, filled by the assembler. */
#include "common/chunk.h"

#include "common/device.h"
#include "common/memory.h"
#include "common/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct chunk_pool {
    struct device *device;
    size_t n_chunks;
    struct chunk chunks[]; /* [n_chunks] */
};

static size_t filled_words(size_t heap_bytes)
{
    const size_t bytes_per_word = 64 * 8;

    return (heap_bytes + bytes_per_word - 1) / bytes_per_word;
}

static void chunk_fini(struct device *device, struct chunk *chunk)
{
    free(chunk->filled_bytes);
    free(chunk->filled);
    free(chunk->extra);
    free(chunk->present);
    device_free_pinned(device, chunk->payload);
}

/* Leaves what it got for chunk_fini() where it fails. */
static int chunk_init(struct chunk *chunk, struct device *device, size_t n_heaps, size_t heap_bytes, unsigned member)
{
    chunk->member = member;
    chunk->n_heaps = n_heaps;
    chunk->heap_bytes = heap_bytes;
    chunk->filled_words = filled_words(heap_bytes);
    chunk->payload = device_alloc_pinned(device, n_heaps * heap_bytes);
    chunk->present = calloc(n_heaps, sizeof(*chunk->present));
    chunk->extra = calloc(n_heaps, sizeof(*chunk->extra));
    chunk->filled = calloc(n_heaps * chunk->filled_words, sizeof(*chunk->filled));
    chunk->filled_bytes = calloc(n_heaps, sizeof(*chunk->filled_bytes));
    if (!chunk->payload || !chunk->present || !chunk->extra || !chunk->filled || !chunk->filled_bytes)
        return -ENOMEM;
    chunk_reset(chunk, 0);
    return 0;
}

int chunk_pool_create(struct device *device, size_t n_chunks, size_t n_heaps, size_t heap_bytes, unsigned member,
                      struct inbox *home, int kind, struct chunk_pool **pool)
{
    struct chunk_pool *p;
    int err;

    assert(n_chunks > 0 && n_heaps > 0 && heap_bytes > 0);
    p = calloc(1, sizeof(*p) + n_chunks * sizeof(p->chunks[0]));
    if (!p)
        return -ENOMEM;
    p->device = device;
    p->n_chunks = n_chunks;
    for (size_t i = 0; i < n_chunks; i++) {
        err = chunk_init(&p->chunks[i], device, n_heaps, heap_bytes, member);
        if (err)
            goto undo_pool;
    }
    for (size_t i = 0; i < n_chunks; i++) {
        struct inbox_item item = {.kind = kind, .object = &p->chunks[i]};

        loan_init(&p->chunks[i].loan, home, item);
        inbox_push(home, &item);
    }
    *pool = p;
    return 0;
undo_pool:
    chunk_pool_destroy(p);
    return err;
}

void chunk_pool_destroy(struct chunk_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < pool->n_chunks; i++)
        chunk_fini(pool->device, &pool->chunks[i]);
    free(pool);
}

uint64_t chunk_pool_bytes(size_t n_chunks, size_t n_heaps, size_t heap_bytes)
{
    const struct chunk *chunk = NULL; /* for its sizes */
    size_t per_heap = heap_bytes + sizeof(*chunk->present) + sizeof(*chunk->extra) + sizeof(*chunk->filled_bytes) +
                      filled_words(heap_bytes) * sizeof(*chunk->filled);

    uint64_t chunk_bytes = bytes_plus(sizeof(*chunk), bytes_times(n_heaps, per_heap));

    return bytes_plus(sizeof(struct chunk_pool), bytes_times(n_chunks, chunk_bytes));
}

void chunk_reset(struct chunk *chunk, int64_t timestamp_samples)
{
    chunk->timestamp_samples = timestamp_samples;
    chunk->n_present = 0;
    chunk->last_arrival_ns = 0;
    memset(chunk->present, 0, chunk->n_heaps * sizeof(*chunk->present));
    memset(chunk->extra, 0, chunk->n_heaps * sizeof(*chunk->extra));
    memset(chunk->filled_bytes, 0, chunk->n_heaps * sizeof(*chunk->filled_bytes));
}
