/* chunk.h - a chunk: memory for consecutive heaps of one member.  Receive threads fill chunks, and the worker reads
 * them.
 *
 * A member is the set of sources that one assembler receives: in fgpu an input (antenna x polarisation), in xbgpu the
 * F-engines of one receive thread.  Heap h is at payload + h * heap_bytes, where h = time * n_sources + source, and
 * 'time' numbers a source's heaps in the chunk from 0.
 *
 * Ownership: free inbox -> assembler -> worker -> (upload done, buffer_ref_put) -> free inbox.  Only the assembler
 * writes.
 * Memory:    chunk_pool_create() allocates all memory.  The payload is in one of three kinds of memory.  Normally it is
 *            in host memory, pinned for the device that reads it.  In a direct pool it is in direct memory of this
 *            device: the host's writes bypass the cache, and the host never reads this memory (device.h).  In a
 *            gathered pool (recv.gpudirect) the payload is in device memory that only the device writes.  Packets stay
 *            in the NIC's frames until chunk_gather() copies them to the payload. */
#ifndef COMMON_RECV_CHUNK_H
#define COMMON_RECV_CHUNK_H

#include "common/device/device.h"
#include "common/base/buffer_ref.h"
#include "kernels/util/gather.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_HEAP_MAPPED (UINT32_C(1) << 31) /* flag bit; heap lengths in bytes are smaller than this value */

/* Value of a heap in the array 'present' of an open chunk.  The value means that different copies of some of the heap's
 * bytes arrived.  When the chunk is closed, the value becomes 0. */
#define CHUNK_HEAP_CONTESTED 2

struct chunk {
    struct buffer_ref ref;
    unsigned member;             /* [const] index of the member */
    size_t n_heaps;              /* [const] number of heaps: n_heaps_per_source * n_sources */
    size_t heap_bytes;           /* [const] */
    uint8_t *payload;            /* [const] [n_heaps][heap_bytes] host address; in a gathered pool: device address */
    const uint8_t *source;       /* [const] address of the payload for copies by the device */
    struct device_direct direct; /* [const] in a direct pool: the payload's memory; in other pools, all members are 0 */
    /* Used in gathered pools only: the NIC's frames with the chunk's packets, and the pieces of payload in these
     * frames. */
    struct gather_piece *pieces; /* [2 * n_frames_max] pinned */
    uint32_t *frames;            /* [n_frames_max] */
    size_t n_pieces, n_frames;
    size_t n_frames_max;       /* [const] largest number of frames; 0: not a gathered pool */
    int64_t timestamp_samples; /* timestamp of the chunk's first sample; a multiple of the chunk's length */
    uint8_t *present;          /* [n_heaps] 1: complete heap, every byte arrived exactly once; else 0 (assemble.h) */
    uint32_t *extra;           /* [n_heaps] value 'extra' from identify() (fgpu: saturated samples); 0: heap absent */
    size_t n_present;          /* number of complete heaps */
    /* number of heaps missing in this chunk, and between the previous chunk and this chunk */
    uint64_t n_missing;
    bool restarts;           /* true if a stream begins with this chunk; earlier heaps then do not count as missing */
    size_t n_times;          /* number of heaps per source; smaller in a stream's last chunk */
    int64_t last_arrival_ns; /* monotonic arrival time of the last packet placed; for the latency sensor */
    /* The assembler uses these members while the chunk is open (chunk_heap.h). */
    uint64_t *filled;    /* [n_heaps][filled_words] one bit for each 8 bytes that have arrived, if CHUNK_HEAP_MAPPED */
    size_t filled_words; /* [const] words of 'filled' per heap */
    /* [n_heaps] number of bytes that have arrived: the heap's first bytes, or with the flag CHUNK_HEAP_MAPPED the bytes
     * marked in 'filled'. */
    uint32_t *filled_bytes;
    uint32_t *senders;  /* [n_heaps] address of the host that sent a heap's first packet, network order; 0: not known */
    size_t n_contested; /* number of heaps with CHUNK_HEAP_CONTESTED in 'present' */
};

struct chunk_pool;

/* The shape of a pool's chunks, and the kind of payload memory (see Memory above). */
struct chunk_shape {
    size_t n_chunks, n_heaps, heap_bytes;
    bool direct;
    size_t n_frames_max; /* gathered pool: largest number of packets in a chunk; else 0 */
};

/* Creates the chunks of 'member' and pushes them to the inbox 'return_to' as items {kind, 0, chunk}.  Used chunks
 * return to this inbox in the same way, so it must have room for all chunks.  Returns 0 or negative errno.  If direct
 * memory cannot be allocated, writes one sentence to 'why'.  After all other failures returns -ENOMEM and leaves 'why'
 * unchanged. */
int chunk_pool_create(struct device *device, const struct chunk_shape *shape, unsigned member, struct inbox *return_to,
                      int kind, struct chunk_pool **pool, char *why, size_t why_bytes);

/* Adds a packet in a NIC's frame to a gathered chunk.  'place' is the destination in the chunk's payload.  The first
 * 'n_first' bytes of the packet's payload are at 'first' in pinned memory.  The other 'n_rest' bytes are at 'rest' in
 * device memory.  The chunk must have room (chunk_has_room). */
void chunk_add_frame(struct chunk *chunk, uint32_t frame, uint8_t *place, const uint8_t *first, size_t n_first,
                     const uint8_t *rest, size_t n_rest);
static inline bool chunk_has_room(const struct chunk *chunk)
{
    return chunk->n_frames_max == 0 || chunk->n_frames < chunk->n_frames_max;
}

/* Creates the kernel for chunk_gather().  Returns 0 or negative errno. */
int chunk_create_gather(struct device *device, struct device_kernel **gather);
/* Queues the kernel 'gather', which copies the packets of a gathered chunk from the frames to the chunk's payload.
 * Does nothing for chunks of other pools; 'gather' may be NULL for these chunks. */
void chunk_gather(const struct chunk *chunk, struct device_stream *stream, struct device_kernel *gather);

/* Frees the pool and its chunks, which no thread may use any more.  NULL is accepted. */
void chunk_pool_destroy(struct chunk_pool *pool);

/* These functions return the number of bytes that a pool needs, for checks before the start.  UINT64_MAX means that
 * the number exceeds 64 bits. */
uint64_t chunk_pool_host_bytes(const struct chunk_shape *shape, bool on_gpu); /* pinned and ordinary memory */
uint64_t chunk_pool_device_bytes(const struct chunk_shape *shape);            /* device memory, direct or not */

/* Empties a chunk, and sets its timestamp.  Leaves the payload's bytes unchanged. */
void chunk_reset(struct chunk *chunk, int64_t timestamp_samples);

#endif
