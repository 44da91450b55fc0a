/* presence.h - number of heaps that arrived in an interval, as differences of prefix sums.
 *
 * sums[i] is the number of present flags before flag i.  So an interval [first, end) is complete if sums[end] -
 * sums[first] == end - first.  This check costs O(1) per spectrum for any length of its window. */
#ifndef COMMON_BASE_PRESENCE_H
#define COMMON_BASE_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the prefix sums sums[0..n_flags] (n_flags + 1 values) of the flags 'present' (0 or 1 each). */
void presence_sums(const uint8_t *present, size_t n_flags, uint32_t *sums);

/* Number of present flags in [first, end). */
static inline uint32_t presence_count(const uint32_t *sums, size_t first, size_t end)
{
    return sums[end] - sums[first];
}

static inline bool presence_all(const uint32_t *sums, size_t first, size_t end)
{
    return presence_count(sums, first, end) == end - first;
}

#endif
