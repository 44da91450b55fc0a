/* chunk_heap.h - records which bytes of an open chunk's heaps have arrived, and which heaps are complete.
 *
 * While packets come in order, a heap only counts its bytes: the bytes that have arrived are the first ones, and no bit
 * is touched.  The first packet out of order turns the count into bits, one for CHUNK_UNIT_BYTES bytes
 * (CHUNK_HEAP_MAPPED).
 *
 * Offsets are multiples of CHUNK_UNIT_BYTES.  Lengths are multiples too, unless the stretch ends with the heap.
 *
 * Ownership: the assembler's chunk.   Threads: the assembler's.   Blocking and allocation: none. */
#ifndef COMMON_RECV_CHUNK_HEAP_H
#define COMMON_RECV_CHUNK_HEAP_H

#include "common/recv/chunk.h"

#define CHUNK_UNIT_BYTES 8

/* Returns true if any of these bytes has arrived. */
bool chunk_heap_overlaps(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Returns true if all of these bytes have arrived. */
bool chunk_heap_covers(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Marks bytes as arrived; none of them has arrived before.  The heap's last bytes make the heap present, unless the
 * heap is contested. */
void chunk_heap_fill(struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Makes a heap contested.  Returns false if the heap was contested before. */
bool chunk_heap_contest(struct chunk *chunk, size_t heap);

/* Makes contested heaps absent.  Called when the chunk leaves. */
void chunk_heap_drop_contested(struct chunk *chunk);

/* Returns the number of heaps that were begun but are not present. */
size_t chunk_heap_count_incomplete(const struct chunk *chunk);

#endif
