/* draw.h - random draws for audits, different for every process.
 *
 * Threads:   the owner's thread.   Blocking: only init. */
#ifndef XBGPU_AUDIT_DRAW_H
#define XBGPU_AUDIT_DRAW_H

#include <stddef.h>
#include <stdint.h>

struct xbgpu_draw {
    uint64_t seed;
    uint64_t n; /* number of draws so far */
};

/* Chooses a random seed for all draws.  Returns 0 or negative errno. */
int xbgpu_draw_init(struct xbgpu_draw *draw);

/* Writes the random bits for item 'i' of the current draw.  The owner increments draw->n before the next draw. */
void xbgpu_draw_bits(const struct xbgpu_draw *draw, uint32_t i, uint32_t bits[4]);

/* Scales 32 random bits to a number in [0, n).  The distribution is uniform to within n / 2^32. */
static inline size_t xbgpu_draw_below(uint32_t bits, size_t n)
{
    return (size_t)(((uint64_t)bits * n) >> 32);
}

#endif
