/* chunk_heap.h - records which bytes of each heap in an open chunk have arrived, and which heaps are complete.
 *
 * As long as a heap's packets arrive in order, only a count is stored: the number of bytes at the heap's beginning that
 * have arrived.  The first packet out of order converts the count to a bitmap, with one bit for each CHUNK_UNIT_BYTES
 * bytes (CHUNK_HEAP_MAPPED).
 *
 * In all functions, 'offset' is a multiple of CHUNK_UNIT_BYTES.  'n_bytes' is a multiple of CHUNK_UNIT_BYTES, too,
 * unless the bytes are the heap's last bytes.
 *
 * Ownership: the chunk belongs to the assembler.   Threads: the assembler's thread.   Blocking and allocation: none. */
#ifndef COMMON_RECV_CHUNK_HEAP_H
#define COMMON_RECV_CHUNK_HEAP_H

#include "common/recv/chunk.h"

#define CHUNK_UNIT_BYTES 8

/* Returns true if any of the 'n_bytes' bytes at 'offset' has arrived. */
bool chunk_heap_overlaps(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Returns true if all of the 'n_bytes' bytes at 'offset' have arrived. */
bool chunk_heap_covers(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Marks bytes as arrived.  None of these bytes may have arrived before.  When all bytes have arrived, marks the heap
 * as present, unless the heap is contested. */
void chunk_heap_fill(struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Marks a heap as contested.  Returns false if the heap was already contested. */
bool chunk_heap_contest(struct chunk *chunk, size_t heap);

/* Marks contested heaps as absent.  Called when the chunk leaves the window. */
void chunk_heap_drop_contested(struct chunk *chunk);

/* Returns the number of heaps that are only partly present. */
size_t chunk_heap_count_incomplete(const struct chunk *chunk);

#endif
