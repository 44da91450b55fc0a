/* chunk.h - chunks: the heaps of one member over one stretch of time.  Receive threads fill chunks, and workers read
 * them.
 *
 * A member is the set of sources that one window assembles: in fgpu an input (antenna x polarisation), in xbgpu the
 * F-engines of one receive thread.  Heaps lie at payload + heap * heap_bytes with heap = time * n_sources + source.
 *
 * Ownership: free inbox -> assembler -> worker -> (upload done, buffer_ref_put) -> free inbox.  Only the assembler
 * writes.
 * Memory:    all memory is allocated with the pool.  The payload is pinned by the device that reads it.  In a direct
 *            pool the payload lies in the memory of this device: the host writes it past the cache and never reads it
 *            (device.h). */
#ifndef COMMON_RECV_CHUNK_H
#define COMMON_RECV_CHUNK_H

#include "common/device/device.h"
#include "common/base/buffer_ref.h"
#include "kernels/util/gather.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_HEAP_MAPPED (UINT32_C(1) << 31) /* flag bit above any heap's length in bytes */

/* Value in 'present' of an open chunk: a second, different copy of some of the heap's bytes came.  Becomes 0 when the
 * chunk is closed. */
#define CHUNK_HEAP_CONTESTED 2

struct chunk {
    struct buffer_ref ref;
    unsigned member;             /* [const] index of the member whose window the chunk serves */
    size_t n_heaps;              /* [const] n_heaps_per_source * n_sources */
    size_t heap_bytes;           /* [const] */
    uint8_t *payload;            /* [const] [n_heaps][heap_bytes] written by the host; read by the host unless direct */
    const uint8_t *source;       /* [const] the payload's address for the device's copies */
    struct device_direct direct; /* [const] zeros unless direct */
    /* Gathered pools only: the NIC's frames that hold the payload, and the pieces of payload in these frames. */
    struct gather_piece *pieces; /* [2 * n_frames_max] pinned */
    uint32_t *frames;            /* [n_frames_max] */
    size_t n_pieces, n_frames;
    size_t n_frames_max;       /* [const] 0: not a gathered pool */
    int64_t timestamp_samples; /* timestamp of heap 0's first sample; a multiple of the chunk's length */
    uint8_t *present;          /* [n_heaps] 1 if every byte of the heap arrived exactly once, else 0; assemble.h */
    uint32_t *extra;           /* [n_heaps] identify()'s 'extra' (fgpu: saturated samples); 0 if the heap is absent */
    size_t n_present;          /* sum of present */
    uint64_t n_missing;        /* missing heaps in this chunk, and between the last chunk handed on and this one */
    bool restarts;             /* a stream begins with this chunk: nothing before the chunk is missing */
    size_t n_times;            /* heaps of each source: all, or those up to the end of the stream */
    int64_t last_arrival_ns;   /* monotonic time of the last packet placed, for the latency sensor */
    /* The assembler's own bookkeeping while the chunk is open. */
    uint64_t *filled;    /* [n_heaps][filled_words] one bit for each 8 bytes that have arrived, if CHUNK_HEAP_MAPPED */
    size_t filled_words; /* [const] words of 'filled' per heap */
    /* [n_heaps] number of bytes that have arrived.  These are the first bytes, or with CHUNK_HEAP_MAPPED the bytes of
     * 'filled'. */
    uint32_t *filled_bytes;
    uint32_t *senders;  /* [n_heaps] sender's address of a heap's first packet, network order; 0: not known */
    size_t n_contested; /* number of heaps with CHUNK_HEAP_CONTESTED in 'present' */
};

struct chunk_pool;

/* The shape of a pool's chunks.  Payloads are pinned by the device.  With 'direct' they lie in the device's direct
 * memory.  With 'n_frames_max' they lie in memory that only the device writes to.  Each chunk then has up to
 * n_frames_max packets in the frames of a NIC until chunk_gather(). */
struct chunk_shape {
    size_t n_chunks, n_heaps, heap_bytes;
    bool direct;
    size_t n_frames_max; /* 0: not gathered */
};

/* Creates chunks for 'member' and pushes them to 'return_to', which must have room, as items {kind, 0, chunk}.  Each
 * used chunk returns to this inbox in the same way.  Returns 0 or negative errno.  If direct memory cannot be had,
 * 'why' holds one sentence.  Returns -ENOMEM without writing to 'why' in all other cases. */
int chunk_pool_create(struct device *device, const struct chunk_shape *shape, unsigned member, struct inbox *return_to,
                      int kind, struct chunk_pool **pool, char *why, size_t why_bytes);

/* Notes that the payload with destination 'place' (in the chunk's payload) lies in a frame.  'n_first' bytes are at
 * 'first' in pinned memory, the others at 'rest' in device memory.  The chunk must have room (chunk_has_room). */
void chunk_add_frame(struct chunk *chunk, uint32_t frame, uint8_t *place, const uint8_t *first, size_t n_first,
                     const uint8_t *rest, size_t n_rest);
static inline bool chunk_has_room(const struct chunk *chunk)
{
    return chunk->n_frames_max == 0 || chunk->n_frames < chunk->n_frames_max;
}

/* Creates the kernel that gathers payloads. */
int chunk_create_gather(struct device *device, struct device_kernel **gather);
/* Queues the kernel that gathers the chunk's payload.  Does nothing for chunks of other pools; 'gather' may then be
 * NULL. */
void chunk_gather(const struct chunk *chunk, struct device_stream *stream, struct device_kernel *gather);

/* Frees all chunks.  No thread may use any of them any more.  NULL is accepted. */
void chunk_pool_destroy(struct chunk_pool *pool);

/* Return the bytes that a pool takes, for the checks before the start.  UINT64_MAX stands for sums beyond 64 bits. */
uint64_t chunk_pool_host_bytes(const struct chunk_shape *shape, bool on_gpu); /* pinned and ordinary memory */
uint64_t chunk_pool_device_bytes(const struct chunk_shape *shape);            /* device memory, direct or not */

/* Resets a chunk for 'timestamp_samples': no heap present, no heap begun.  Leaves the payload's bytes as they are. */
void chunk_reset(struct chunk *chunk, int64_t timestamp_samples);

#endif
