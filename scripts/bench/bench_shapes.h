/* bench_shapes.h - the streams of the packet benchmarks, for senders and receivers.
 *
 * KIND:PAYLOAD, where PAYLOAD is the payload bytes of a packet (a multiple of 64):
 *   dig:   digitiser heaps of one packet; a 10-bit digitiser sends packets of 5120 bytes.
 *   feng:  F-engine heaps of 64 KiB in several packets: 64 channels x 256 spectra of an array with 4096 channels. */
#ifndef SCRIPTS_BENCH_BENCH_SHAPES_H
#define SCRIPTS_BENCH_BENCH_SHAPES_H

#include "common/net/spead.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_SHAPE_USAGE                                                                                              \
    "SHAPE is dig:PAYLOAD or feng:PAYLOAD; PAYLOAD is a multiple of 64, at most 65280, and for feng divides 65536"
#define BENCH_CHUNK_BYTES (40 << 20)

struct bench_shape {
    bool is_dig;
    size_t heap_bytes;
    size_t payload_bytes;   /* of a packet */
    int64_t heap_samples;   /* timestamp step */
    size_t heaps_per_chunk; /* number of heaps in a chunk, of all sources together */
};

/* Parses 'text', a shape KIND:PAYLOAD.  Returns false if 'text' is not a valid shape. */
static inline bool bench_shape(const char *text, struct bench_shape *shape)
{
    const char *colon = strchr(text, ':');
    size_t payload_bytes = colon ? (size_t)atol(colon + 1) : 0;
    bool is_dig = strncmp(text, "dig:", 4) == 0;

    if ((!is_dig && strncmp(text, "feng:", 5) != 0) || payload_bytes == 0 || payload_bytes > 65280 ||
        payload_bytes % 64 != 0 || (!is_dig && 65536 % payload_bytes != 0))
        return false;
    shape->is_dig = is_dig;
    shape->heap_bytes = is_dig ? payload_bytes : 65536;
    shape->payload_bytes = payload_bytes;
    shape->heap_samples = is_dig ? (int64_t)payload_bytes * 8 / 10 : 256 * 8192;
    shape->heaps_per_chunk = BENCH_CHUNK_BYTES / shape->heap_bytes;
    return true;
}

/* Writes the SPEAD items of a packet of 'source', in the order in which they are sent.  Returns their number. */
static inline size_t bench_items(const struct bench_shape *shape, size_t source, int64_t timestamp,
                                 struct spead_item items[4])
{
    items[0] = (struct spead_item){SPEAD_TIMESTAMP, true, (uint64_t)timestamp & SPEAD_VALUE_MASK};
    items[1] = (struct spead_item){shape->is_dig ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID, true, source};
    items[2] = (struct spead_item){shape->is_dig ? SPEAD_DIGITISER_STATUS : SPEAD_FREQUENCY, true, 0};
    items[3] = (struct spead_item){shape->is_dig ? SPEAD_ADC_SAMPLES : SPEAD_FENG_RAW, false, 0};
    return 4;
}

/* A sender uses BENCH_N_BUFFERS buffers in turn.  A buffer has at least BENCH_BUFFER_BYTES bytes, so that the buffers
 * do not stay in the first-level cache. */
#define BENCH_N_BUFFERS    4
#define BENCH_BUFFER_BYTES (1 << 20)

/* Returns the number of timestamps in a buffer.  A timestamp has a heap for each of 'n_destinations'. */
static inline size_t bench_buffer_times(const struct bench_shape *shape, size_t n_destinations, size_t buffer_bytes)
{
    return (buffer_bytes - 1) / (shape->heap_bytes * n_destinations) + 1;
}

#endif
