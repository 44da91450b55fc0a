/* bench_shapes.h - the streams that the packet benchmarks are about, for those who feed and those who receive. */
#ifndef TESTS_BENCH_BENCH_SHAPES_H
#define TESTS_BENCH_BENCH_SHAPES_H

#include "common/spead.h"

#include <string.h>

struct bench_shape {
    const char *name;
    size_t heap_bytes;
    size_t payload_bytes;   /* of a packet */
    int64_t heap_samples;   /* timestamp step */
    size_t heaps_per_chunk; /* of each source, at one source: chunks have the same size for any number of them */
};

/* A digitiser's at 10 bits, and an F-engine's: 64 channels x 256 spectra of an array with 4096 channels. */
static const struct bench_shape bench_shapes[] = {
    {"dig", 5120, 5120, 4096, 8192},
    {"feng", 65536, 8192, 256 * 8192, 640},
};

static inline const struct bench_shape *bench_shape(const char *name)
{
    for (size_t i = 0; i < sizeof(bench_shapes) / sizeof(bench_shapes[0]); i++)
        if (strcmp(bench_shapes[i].name, name) == 0)
            return &bench_shapes[i];
    return NULL;
}

/* The items of a packet of 'source', in the order of the wire.  Returns how many. */
static inline size_t bench_items(const struct bench_shape *shape, size_t source, int64_t timestamp,
                                 struct spead_item items[4])
{
    bool is_dig = shape == &bench_shapes[0];

    items[0] = (struct spead_item){SPEAD_TIMESTAMP, true, (uint64_t)timestamp & SPEAD_VALUE_MASK};
    items[1] = (struct spead_item){is_dig ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID, true, source};
    items[2] = (struct spead_item){is_dig ? SPEAD_DIGITISER_STATUS : SPEAD_FREQUENCY, true, 0};
    items[3] = (struct spead_item){is_dig ? SPEAD_ADC_SAMPLES : SPEAD_FENG_RAW, false, 0};
    return 4;
}

#endif
