/* device_input.h - a pair of chunks of one antenna on the device.
 *
 * Ownership: common/engine/lane.h.   Threads: the worker. */
#ifndef FGPU_INPUT_DEVICE_INPUT_H
#define FGPU_INPUT_DEVICE_INPUT_H

#include "common/base/units.h"
#include "common/engine/lane.h"

#include <stdbool.h>
#include <stdint.h>

/* A pair of chunks (one chunk per polarisation) on the device, after the last samples of the previous pair
 * (history). */
struct fgpu_device_input {
    struct device_input base;      /* first */
    uint8_t *samples[N_POLS];      /* [const] packed samples on the device: history, then chunk */
    uint8_t *present[N_POLS];      /* [const] a flag for each heap: [history_heaps + heaps_per_chunk] */
    uint32_t *sums[N_POLS];        /* [const] prefix sums of 'present' */
    int64_t timestamp_samples;     /* timestamp of the history's first sample */
    int64_t first_samples[N_POLS]; /* timestamp of the first sample that arrived, if a stream starts in this chunk */
    int64_t end_samples[N_POLS];   /* end timestamp of the chunk, or of a stream that ends in the chunk */
    bool has_history;
    int64_t last_arrival_ns;
};

#endif
