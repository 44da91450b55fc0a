/* chunk.c - creates the chunks of a member before the start, and gathers chunks from a NIC's frames. */
#include "common/recv/chunk.h"

#include "common/device/device.h"
#include "common/base/memory.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
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
    free(chunk->senders);
    free(chunk->filled_bytes);
    free(chunk->filled);
    free(chunk->extra);
    free(chunk->present);
    device_free_pinned(device, chunk->pieces);
    free(chunk->frames);
    if (chunk->n_frames_max)
        device_free(device, chunk->payload);
    else if (chunk->direct.host)
        device_free_direct(device, &chunk->direct);
    else
        device_free_pinned(device, chunk->payload);
}

static int alloc_frames(struct chunk *chunk, struct device *device, size_t n_frames_max)
{
    chunk->n_frames_max = n_frames_max;
    chunk->pieces = device_alloc_pinned(device, 2 * n_frames_max * sizeof(*chunk->pieces));
    chunk->frames = calloc(n_frames_max, sizeof(*chunk->frames));
    return chunk->pieces && chunk->frames ? 0 : -ENOMEM;
}

static int alloc_direct(struct chunk *chunk, struct device *device, size_t bytes, char *why, size_t why_bytes)
{
    char reason[400] = "there is no memory";
    int err = device_alloc_direct(device, bytes, &chunk->direct, reason, sizeof(reason));

    if (err)
        snprintf(why, why_bytes, "recv.direct: %s", reason);
    chunk->payload = chunk->direct.host;
    chunk->source = chunk->direct.device;
    return err;
}

static int alloc_payload(struct chunk *chunk, struct device *device, const struct chunk_shape *shape, char *why,
                         size_t why_bytes)
{
    size_t bytes = chunk->n_heaps * chunk->heap_bytes;
    int err = 0;

    if (shape->direct)
        return alloc_direct(chunk, device, bytes, why, why_bytes);
    if (shape->n_frames_max)
        err = alloc_frames(chunk, device, shape->n_frames_max);
    chunk->payload = shape->n_frames_max ? device_alloc(device, bytes) : device_alloc_pinned(device, bytes);
    chunk->source = chunk->payload;
    return chunk->payload ? err : -ENOMEM;
}

/* Allocates the memory of a chunk.  After a failure, the caller frees the memory allocated so far with chunk_fini(). */
static int chunk_init(struct chunk *chunk, struct device *device, const struct chunk_shape *shape, unsigned member,
                      char *why, size_t why_bytes)
{
    size_t n_heaps = shape->n_heaps;

    chunk->member = member;
    chunk->n_heaps = n_heaps;
    chunk->heap_bytes = shape->heap_bytes;
    chunk->filled_words = filled_words(shape->heap_bytes);
    int err = alloc_payload(chunk, device, shape, why, why_bytes);
    if (err)
        return err;
    chunk->present = calloc(n_heaps, sizeof(*chunk->present));
    chunk->extra = calloc(n_heaps, sizeof(*chunk->extra));
    chunk->filled = calloc(n_heaps * chunk->filled_words, sizeof(*chunk->filled));
    chunk->filled_bytes = calloc(n_heaps, sizeof(*chunk->filled_bytes));
    chunk->senders = calloc(n_heaps, sizeof(*chunk->senders));
    if (!chunk->present || !chunk->extra || !chunk->filled || !chunk->filled_bytes || !chunk->senders)
        return -ENOMEM;
    chunk_reset(chunk, 0);
    return 0;
}

int chunk_pool_create(struct device *device, const struct chunk_shape *shape, unsigned member, struct inbox *return_to,
                      int kind, struct chunk_pool **pool, char *why, size_t why_bytes)
{
    struct chunk_pool *p = calloc(1, sizeof(*p) + shape->n_chunks * sizeof(p->chunks[0]));
    int err = 0;

    assert(shape->n_chunks > 0 && shape->n_heaps > 0 && shape->heap_bytes > 0);
    if (!p)
        return -ENOMEM;
    p->device = device;
    p->n_chunks = shape->n_chunks;
    for (size_t i = 0; i < p->n_chunks && !err; i++)
        err = chunk_init(&p->chunks[i], device, shape, member, why, why_bytes);
    if (err) {
        chunk_pool_destroy(p);
        return err;
    }
    for (size_t i = 0; i < p->n_chunks; i++) {
        struct inbox_item item = {.kind = kind, .object = &p->chunks[i]};

        buffer_ref_init(&p->chunks[i].ref, return_to, item);
        inbox_push(return_to, &item);
    }
    *pool = p;
    return 0;
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static void add_piece(struct chunk *chunk, const uint8_t *from, const uint8_t *to, size_t n_bytes)
{
    if (n_bytes > 0)
        chunk->pieces[chunk->n_pieces++] = (struct gather_piece){(uintptr_t)from, (uintptr_t)to, n_bytes};
}

void chunk_add_frame(struct chunk *chunk, uint32_t frame, uint8_t *place, const uint8_t *first, size_t n_first,
                     const uint8_t *rest, size_t n_rest)
{
    assert(chunk->n_frames < chunk->n_frames_max);
    chunk->frames[chunk->n_frames++] = frame;
    add_piece(chunk, first, place, n_first);
    add_piece(chunk, rest, place + n_first, n_rest);
}

int chunk_create_gather(struct device *device, struct device_kernel **gather)
{
    struct kernel_constant constants[GATHER_N_CONSTANTS];

    gather_constants(constants);
    return device_kernel_create(device, &gather_kernel, constants, GATHER_N_CONSTANTS, gather);
}

void chunk_gather(const struct chunk *chunk, struct device_stream *stream, struct device_kernel *gather)
{
    const struct gather_args args = {chunk->pieces, chunk->n_pieces};

    if (chunk->n_pieces == 0)
        return;
    struct kernel_grid grid = gather_grid(&args);
    device_flush_exported(stream->device);
    device_launch(stream, gather, &grid, &args);
}

/* ---- Destruction and sizes --------------------------------------------------------------------------------------- */

void chunk_pool_destroy(struct chunk_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < pool->n_chunks; i++)
        chunk_fini(pool->device, &pool->chunks[i]);
    free(pool);
}

uint64_t chunk_pool_device_bytes(const struct chunk_shape *shape)
{
    uint64_t payload = bytes_times(shape->n_heaps, shape->heap_bytes);

    if (shape->direct)
        return bytes_times(shape->n_chunks, device_direct_bytes(payload));
    return shape->n_frames_max ? bytes_times(shape->n_chunks, payload) : 0;
}

uint64_t chunk_pool_host_bytes(const struct chunk_shape *shape, bool on_gpu)
{
    const struct chunk *chunk = NULL; /* for its sizes */
    size_t per_heap = sizeof(*chunk->present) + sizeof(*chunk->extra) + sizeof(*chunk->filled_bytes) +
                      sizeof(*chunk->senders) + filled_words(shape->heap_bytes) * sizeof(*chunk->filled);
    uint64_t payload = shape->direct || shape->n_frames_max ? 0 : bytes_times(shape->n_heaps, shape->heap_bytes);
    uint64_t pieces = bytes_times(shape->n_frames_max, 2 * sizeof(*chunk->pieces));
    uint64_t frames = bytes_times(shape->n_frames_max, sizeof(*chunk->frames));
    uint64_t pinned = bytes_plus(device_pinned_bytes(payload, on_gpu), device_pinned_bytes(pieces, on_gpu));
    uint64_t others = bytes_plus(bytes_plus(sizeof(*chunk), bytes_times(shape->n_heaps, per_heap)), frames);

    return bytes_plus(sizeof(struct chunk_pool), bytes_times(shape->n_chunks, bytes_plus(pinned, others)));
}

void chunk_reset(struct chunk *chunk, int64_t timestamp_samples)
{
    chunk->timestamp_samples = timestamp_samples;
    chunk->n_present = 0;
    chunk->n_contested = 0;
    chunk->n_frames = 0;
    chunk->n_pieces = 0;
    chunk->last_arrival_ns = 0;
    memset(chunk->present, 0, chunk->n_heaps * sizeof(*chunk->present));
    memset(chunk->extra, 0, chunk->n_heaps * sizeof(*chunk->extra));
    memset(chunk->filled_bytes, 0, chunk->n_heaps * sizeof(*chunk->filled_bytes));
}
