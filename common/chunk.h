/* chunk.h - what receive threads fill and workers read: the heaps of one member over one stretch of time.
 *
 * A member is what one window assembles: in fgpu an input (antenna x polarisation), in xbgpu the F-engines of one
 * receive thread.  Heaps lie at payload + heap * heap_bytes with heap = time * n_sources + source.
 *
 * Ownership: free inbox -> assembler -> worker -> (upload done, loan_put) -> free inbox.  The assembler alone writes.
 * Memory:    payload is pinned by the device that will read it; everything is allocated by chunk_pool_create(). */
#ifndef COMMON_CHUNK_H
#define COMMON_CHUNK_H

#include "common/loan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

#define CHUNK_HEAP_MAPPED (UINT32_C(1) << 31) /* heaps are smaller */

struct chunk {
    struct loan loan;
    unsigned member;           /* [const] which member's window it serves */
    size_t n_heaps;            /* [const] n_heaps_per_source * n_sources */
    size_t heap_bytes;         /* [const] */
    uint8_t *payload;          /* [const] [n_heaps][heap_bytes], pinned */
    int64_t timestamp_samples; /* of the first sample of heap 0; a multiple of the chunk's length */
    uint8_t *present;          /* [n_heaps] 1 where every byte of the heap arrived exactly once, else 0 */
    uint32_t *extra;           /* [n_heaps] what identify() gave with the heap (fgpu: saturated samples); 0 if absent */
    size_t n_present;          /* sum of present */
    size_t n_times;            /* heaps of each source that there are in time: all, or up to the end of the stream */
    int64_t last_arrival_ns;   /* monotonic time of the last packet placed, for the latency sensor */
    /* The assembler's own bookkeeping while the chunk is open. */
    uint64_t *filled;    /* [n_heaps][filled_words] one bit for each 8 bytes that have arrived, where they count */
    size_t filled_words; /* [const] words of 'filled' per heap */
    /* [n_heaps] bytes that have arrived: the first ones, or with CHUNK_HEAP_MAPPED as 'filled' says */
    uint32_t *filled_bytes;
};

struct chunk_pool;

/* Makes 'n_chunks' chunks of 'n_heaps' x 'heap_bytes' for 'member' and pushes them all to 'home' (which must have the
 * room) as items {kind, 0, chunk}; that is also how each comes back.  Payloads are pinned by 'device'.
 * Returns 0 or -ENOMEM. */
int chunk_pool_create(struct device *device, size_t n_chunks, size_t n_heaps, size_t heap_bytes, unsigned member,
                      struct inbox *home, int kind, struct chunk_pool **pool);

/* Frees all chunks; they must all be home or belong to nobody any more.  NULL is accepted. */
void chunk_pool_destroy(struct chunk_pool *pool);

/* Bytes of pinned and of ordinary memory that such a pool takes, for the sum that is checked before start; UINT64_MAX
 * where they go beyond 64 bits. */
uint64_t chunk_pool_bytes(size_t n_chunks, size_t n_heaps, size_t heap_bytes);

/* Starts a chunk afresh at 'timestamp_samples': nothing present, no heap begun.  Payload bytes are left as they are. */
void chunk_reset(struct chunk *chunk, int64_t timestamp_samples);

#endif
