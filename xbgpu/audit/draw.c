/* draw.c - random draws for audits. */
#include "xbgpu/audit/draw.h"

#include "kernels/util/philox.h"

#include <errno.h>
#include <sys/random.h>

int xbgpu_draw_init(struct xbgpu_draw *draw)
{
    draw->n = 0;
    return getrandom(&draw->seed, sizeof(draw->seed), 0) == sizeof(draw->seed) ? 0 : -EIO;
}

void xbgpu_draw_bits(const struct xbgpu_draw *draw, uint32_t i, uint32_t bits[4])
{
    const uint32_t key[2] = {(uint32_t)draw->seed, (uint32_t)(draw->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)draw->n, (uint32_t)(draw->n >> 32), i, 0};

    philox4x32(counter, key, bits);
}
