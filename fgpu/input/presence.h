/* presence.h - counts the heaps that arrived in an interval, by the difference of two prefix sums.
 *
 * sums[i] is the number of present flags before flag i.  So an interval [first, end) is complete if sums[end] -
 * sums[first] == end - first.  This check takes constant time per spectrum, however long the spectrum's window is. */
#ifndef FGPU_INPUT_PRESENCE_H
#define FGPU_INPUT_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Computes the prefix sums [n_flags + 1] of the flags 'present' [n_flags], each 0 or 1. */
void fgpu_presence_sums(const uint8_t *present, size_t n_flags, uint32_t *sums);

/* Returns the number of heaps that arrived in [first, end). */
static inline uint32_t fgpu_presence_count(const uint32_t *sums, size_t first, size_t end)
{
    return sums[end] - sums[first];
}

static inline bool fgpu_presence_all(const uint32_t *sums, size_t first, size_t end)
{
    return fgpu_presence_count(sums, first, end) == end - first;
}

#endif
