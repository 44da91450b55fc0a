/* chunk.h - what receive threads fill and workers read: the heaps of one member over one stretch of time.
 *
 * A member is what one window assembles: in fgpu an input (antenna x polarisation), in xbgpu the F-engines of one
 * receive thread.  Heaps lie at payload + heap * heap_bytes with heap = time * n_sources + source.
 *
 * Ownership: free inbox -> assembler -> worker -> (upload done, buffer_ref_put) -> free inbox.  The assembler alone writes.
 * Memory:    payload is pinned by the device that will read it, or of a direct pool lies in that device's memory, and is
 *            written by the host past the cache and never read (device.h); everything is allocated with the pool. */
#ifndef COMMON_RECV_CHUNK_H
#define COMMON_RECV_CHUNK_H

#include "common/device/device.h"
#include "common/base/buffer_ref.h"
#include "kernels/util/gather.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_HEAP_MAPPED (UINT32_C(1) << 31) /* heaps are smaller */

/* In 'present' of an open chunk: other bytes came for some of the heap's; 0 once the chunk is closed. */
#define CHUNK_HEAP_CONTESTED 2

struct chunk {
    struct buffer_ref ref;
    unsigned member;             /* [const] which member's window it serves */
    size_t n_heaps;              /* [const] n_heaps_per_source * n_sources */
    size_t heap_bytes;           /* [const] */
    uint8_t *payload;            /* [const] [n_heaps][heap_bytes] for the host to write, and unless direct to read */
    const uint8_t *source;       /* [const] the same for the device to copy from */
    struct device_direct direct; /* [const] zeros unless direct */
    /* Gathered pools only: the NIC's frames that hold the payload, and the pieces of payload in these frames. */
    struct gather_piece *pieces; /* [2 * n_frames_max] pinned */
    uint32_t *frames;            /* [n_frames_max] */
    size_t n_pieces, n_frames;
    size_t n_frames_max;       /* [const] 0: it is no such pool */
    int64_t timestamp_samples; /* of the first sample of heap 0; a multiple of the chunk's length */
    uint8_t *present;          /* [n_heaps] 1 where every byte of the heap arrived exactly once, else 0; assemble.h */
    uint32_t *extra;           /* [n_heaps] what identify() gave with the heap (fgpu: saturated samples); 0 if absent */
    size_t n_present;          /* sum of present */
    uint64_t n_missing;        /* heaps that are not there, in it or between the chunk handed on before it and it */
    bool restarts;             /* a stream begins with it: nothing before it is missing */
    size_t n_times;            /* heaps of each source that there are in time: all, or up to the end of the stream */
    int64_t last_arrival_ns;   /* monotonic time of the last packet placed, for the latency sensor */
    /* The assembler's own bookkeeping while the chunk is open. */
    uint64_t *filled;    /* [n_heaps][filled_words] one bit for each 8 bytes that have arrived, where they count */
    size_t filled_words; /* [const] words of 'filled' per heap */
    /* [n_heaps] bytes that have arrived: the first ones, or with CHUNK_HEAP_MAPPED as 'filled' says */
    uint32_t *filled_bytes;
    uint32_t *senders;  /* [n_heaps] address of who sent a heap's first packet, network order; 0: not known */
    size_t n_contested; /* heaps that are CHUNK_HEAP_CONTESTED in 'present' */
};

struct chunk_pool;

/* The shape of a pool's chunks.  Payloads are pinned by the device; or with 'direct' lie in its direct memory; or with
 * 'n_frames_max' in memory that only it writes to, and each chunk has up to so many packets in the frames of a card,
 * until chunk_gather(). */
struct chunk_shape {
    size_t n_chunks, n_heaps, heap_bytes;
    bool direct;
    size_t n_frames_max; /* 0: not gathered */
};

/* Makes such chunks for 'member' and pushes them all to 'home' (which must have the room) as items {kind, 0, chunk};
 * that is also how each comes back.  Returns 0, or negative errno: with one sentence in 'why' where there is no direct
 * memory, else -ENOMEM with nothing written there. */
int chunk_pool_create(struct device *device, const struct chunk_shape *shape, unsigned member, struct inbox *return_to,
                      int kind, struct chunk_pool **pool, char *why, size_t why_bytes);

/* Notes that the payload at 'place' (in the chunk's) lies in a frame: 'n_first' bytes at 'first' in pinned memory, the
 * others at 'rest' in the device's.  There must be room. */
void chunk_add_frame(struct chunk *chunk, uint32_t frame, uint8_t *place, const uint8_t *first, size_t n_first,
                     const uint8_t *rest, size_t n_rest);
static inline bool chunk_has_room(const struct chunk *chunk)
{
    return chunk->n_frames_max == 0 || chunk->n_frames < chunk->n_frames_max;
}

/* Creates the kernel that gathers payloads. */
int chunk_create_gather(struct device *device, struct device_kernel **gather);
/* Queues what brings such a payload together; of other chunks it is, and 'gather' may be NULL. */
void chunk_gather(const struct chunk *chunk, struct device_stream *stream, struct device_kernel *gather);

/* Frees all chunks; they must all be home or belong to nobody any more.  NULL is accepted. */
void chunk_pool_destroy(struct chunk_pool *pool);

/* Bytes that such a pool takes, for the sums that are checked before start; UINT64_MAX where they go beyond 64 bits. */
uint64_t chunk_pool_host_bytes(const struct chunk_shape *shape, bool on_gpu); /* of pinned and ordinary memory */
uint64_t chunk_pool_device_bytes(const struct chunk_shape *shape);            /* of the device's, direct or not */

/* Starts a chunk afresh at 'timestamp_samples': nothing present, no heap begun.  Payload bytes are left as they are. */
void chunk_reset(struct chunk *chunk, int64_t timestamp_samples);

#endif
