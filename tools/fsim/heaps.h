/* heaps.h - the heaps of a period, computed before the first leaves and sent from where they lie, over and over.
 *
 * Ownership: nobody changes the heaps once they are made.   Threads: main; then read by all send threads. */
#ifndef TOOLS_FSIM_HEAPS_H
#define TOOLS_FSIM_HEAPS_H

#include "tools/fsim/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fsim_heaps {
    size_t n_batches; /* of a period */
    size_t n_ants;
    size_t n_substreams;
    size_t heap_bytes;
    bool from_start;   /* the first sent batch is batch 0; false: the batch of its timestamp, modulo the period */
    uint8_t *payloads; /* [batch][ant][substream][heap_bytes], each [chan][spectrum][pol] of the stream's format */
    bool *is_absent;   /* [batch][ant]; NULL: none is */
};

/* Computes or reads them.  Returns 0 or negative errno with one sentence in 'why'. */
int fsim_heaps_create(const struct fsim_config *config, struct fsim_heaps **heaps, char *why, size_t why_bytes);

/* NULL is accepted. */
void fsim_heaps_destroy(struct fsim_heaps *heaps);

static inline size_t fsim_heaps_bytes(const struct fsim_heaps *heaps)
{
    return heaps->n_batches * heaps->n_ants * heaps->n_substreams * heaps->heap_bytes;
}

static inline const uint8_t *fsim_heaps_payload(const struct fsim_heaps *heaps, size_t batch, size_t ant,
                                                size_t substream)
{
    return heaps->payloads + ((batch * heaps->n_ants + ant) * heaps->n_substreams + substream) * heaps->heap_bytes;
}

#endif
