/* presence.c - computes the prefix sums of a chunk's presence flags.  The worker does this once per chunk, before it
 * plans spectra. */
#include "fgpu/input/presence.h"

void fgpu_presence_sums(const uint8_t *present, size_t n_flags, uint32_t *sums)
{
    sums[0] = 0;
    for (size_t i = 0; i < n_flags; i++)
        sums[i + 1] = sums[i] + present[i];
}
