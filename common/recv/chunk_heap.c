/* chunk_heap.c - counts or bitmaps of the bytes that have arrived in an open chunk.  See chunk_heap.h. */
#include "common/recv/chunk_heap.h"

#include <string.h>

#define UNITS_PER_WORD 64

/* The bits for a range of bytes: 'first_mask' in word 'first', 'last_mask' in word 'last', and all bits of the words in
 * between.  If 'first' and 'last' are the same word, the masks are the same, too. */
struct bit_range {
    size_t first, last;
    uint64_t first_mask, last_mask;
};

static struct bit_range bits_of(uint64_t offset, uint64_t n_bytes)
{
    size_t first = offset / CHUNK_UNIT_BYTES;
    size_t last = (offset + n_bytes - 1) / CHUNK_UNIT_BYTES;
    struct bit_range bits = {
        .first = first / UNITS_PER_WORD,
        .last = last / UNITS_PER_WORD,
        .first_mask = UINT64_MAX << first % UNITS_PER_WORD,
        .last_mask = UINT64_MAX >> (UNITS_PER_WORD - 1 - last % UNITS_PER_WORD),
    };

    if (bits.first == bits.last)
        bits.first_mask = bits.last_mask = bits.first_mask & bits.last_mask;
    return bits;
}

static bool any_filled(const uint64_t *filled, const struct bit_range *bits)
{
    uint64_t found = (filled[bits->first] & bits->first_mask) | (filled[bits->last] & bits->last_mask);

    for (size_t word = bits->first + 1; word < bits->last; word++)
        found |= filled[word];
    return found != 0;
}

static bool all_filled(const uint64_t *filled, const struct bit_range *bits)
{
    uint64_t found = (filled[bits->first] | ~bits->first_mask) & (filled[bits->last] | ~bits->last_mask);

    for (size_t word = bits->first + 1; word < bits->last; word++)
        found &= filled[word];
    return found == UINT64_MAX;
}

static void mark_filled(uint64_t *filled, const struct bit_range *bits)
{
    filled[bits->first] |= bits->first_mask;
    filled[bits->last] |= bits->last_mask;
    for (size_t word = bits->first + 1; word < bits->last; word++)
        filled[word] = UINT64_MAX;
}

bool chunk_heap_overlaps(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes)
{
    if (!(chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED))
        return offset < chunk->filled_bytes[heap];
    struct bit_range bits = bits_of(offset, n_bytes);
    return any_filled(chunk->filled + heap * chunk->filled_words, &bits);
}

bool chunk_heap_covers(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes)
{
    if (!(chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED))
        return offset + n_bytes <= chunk->filled_bytes[heap];
    struct bit_range bits = bits_of(offset, n_bytes);
    return all_filled(chunk->filled + heap * chunk->filled_words, &bits);
}

/* Converts 'filled_bytes' of a heap to a bitmap.  Before this call, 'filled_bytes' is the number of bytes at the heap's
 * start that have arrived. */
static void heap_map(struct chunk *chunk, size_t heap)
{
    uint64_t *filled = chunk->filled + heap * chunk->filled_words;

    memset(filled, 0, chunk->filled_words * sizeof(*filled));
    if (chunk->filled_bytes[heap] > 0) {
        struct bit_range bits = bits_of(0, chunk->filled_bytes[heap]);
        mark_filled(filled, &bits);
    }
    chunk->filled_bytes[heap] |= CHUNK_HEAP_MAPPED;
}

void chunk_heap_fill(struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes)
{
    if (!(chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED) && offset > chunk->filled_bytes[heap])
        heap_map(chunk, heap);
    chunk->filled_bytes[heap] += (uint32_t)n_bytes;
    if ((chunk->filled_bytes[heap] & ~CHUNK_HEAP_MAPPED) == chunk->heap_bytes) {
        chunk->filled_bytes[heap] = (uint32_t)chunk->heap_bytes;
        if (chunk->present[heap] == CHUNK_HEAP_CONTESTED)
            return;
        chunk->present[heap] = 1;
        chunk->n_present++;
    } else if (chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED) {
        struct bit_range bits = bits_of(offset, n_bytes);
        mark_filled(chunk->filled + heap * chunk->filled_words, &bits);
    }
}

size_t chunk_heap_count_incomplete(const struct chunk *chunk)
{
    size_t n = 0;

    for (size_t heap = 0; heap < chunk->n_heaps; heap++)
        n += chunk->filled_bytes[heap] != 0 && !chunk->present[heap];
    return n;
}

void chunk_heap_drop_contested(struct chunk *chunk)
{
    for (size_t heap = 0; heap < chunk->n_heaps; heap++)
        if (chunk->present[heap] == CHUNK_HEAP_CONTESTED) {
            chunk->present[heap] = 0;
            chunk->extra[heap] = 0;
        }
}

bool chunk_heap_contest(struct chunk *chunk, size_t heap)
{
    if (chunk->present[heap] == CHUNK_HEAP_CONTESTED)
        return false;
    chunk->n_present -= chunk->present[heap];
    chunk->present[heap] = CHUNK_HEAP_CONTESTED;
    chunk->n_contested++;
    return true;
}
