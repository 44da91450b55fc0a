/* chunk_heap.h - which bytes of an open chunk's heaps have arrived, and which heaps are complete.
 *
 * A heap counts its bytes while they come in order: the bytes that have arrived are then the first ones, and no bit is
 * touched.  The first packet out of order turns the count into bits, one for CHUNK_UNIT_BYTES bytes (CHUNK_HEAP_MAPPED).
 *
 * Offsets are multiples of CHUNK_UNIT_BYTES.  Lengths are such multiples, or end with the heap.
 *
 * Ownership: the assembler's chunk.   Threads: the assembler's.   Blocking and allocation: none. */
#ifndef COMMON_RECV_CHUNK_HEAP_H
#define COMMON_RECV_CHUNK_HEAP_H

#include "common/recv/chunk.h"

#define CHUNK_UNIT_BYTES 8

/* Whether any of these bytes has arrived. */
bool chunk_heap_overlaps(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Whether all of these bytes have arrived. */
bool chunk_heap_covers(const struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Marks these bytes, none of which has arrived.  The last ones make the heap present, unless it is contested. */
void chunk_heap_fill(struct chunk *chunk, size_t heap, uint64_t offset, uint64_t n_bytes);

/* Makes a heap contested.  Returns false if it was so before. */
bool chunk_heap_contest(struct chunk *chunk, size_t heap);

/* When the chunk leaves: contested heaps are absent. */
void chunk_heap_drop_contested(struct chunk *chunk);

/* Heaps that were begun but are not present. */
size_t chunk_heap_count_incomplete(const struct chunk *chunk);

#endif
