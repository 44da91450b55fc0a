/* draw.h - what an audit looks at: random draws, different for every process.
 *
 * Threads:   its owner's.   Blocking: never, but init. */
#ifndef XBGPU_DRAW_H
#define XBGPU_DRAW_H

#include <stddef.h>
#include <stdint.h>

struct xbgpu_draw {
    uint64_t seed;
    uint64_t n; /* draws so far */
};

/* Returns 0 or negative errno. */
int xbgpu_draw_init(struct xbgpu_draw *draw);

/* The random bits of number 'i' of the current draw; 'draw->n' is what the owner counts. */
void xbgpu_draw_bits(const struct xbgpu_draw *draw, uint32_t i, uint32_t bits[4]);

/* Out of [0, n): 32 random bits scaled, even to within n / 2^32. */
static inline size_t xbgpu_draw_below(uint32_t bits, size_t n)
{
    return (size_t)(((uint64_t)bits * n) >> 32);
}

#endif
