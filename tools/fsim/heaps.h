/* heaps.h - makes the heaps of one period.  All heaps are computed before the first heap leaves.  The same heaps are
 * sent in every period.
 *
 * Ownership: the heaps do not change once they are made.
 * Threads:   the main thread makes the heaps; then all send threads read them. */
#ifndef TOOLS_FSIM_HEAPS_H
#define TOOLS_FSIM_HEAPS_H

#include "tools/fsim/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fsim_heaps {
    size_t n_batches; /* batches of a period */
    size_t n_ants;
    size_t n_substreams;
    size_t heap_bytes;
    /* true: sending begins with batch 0. false: sending begins with the batch of the first timestamp, modulo the
     * period. */
    bool from_start;
    uint8_t *payloads; /* [batch][ant][substream][heap_bytes]; a heap is [chan][spectrum][pol] in the stream's format */
    bool *is_absent;   /* [batch][ant]; NULL: no heap is absent */
};

/* Computes the heaps, or reads them from a recording.  Returns 0 or negative errno with one sentence in 'why'. */
int fsim_heaps_create(const struct fsim_config *config, struct fsim_heaps **heaps, char *why, size_t why_bytes);

/* Frees the heaps.  NULL is accepted. */
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
