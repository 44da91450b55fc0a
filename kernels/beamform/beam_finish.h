/* beam_finish - converts the powers of detected beams to the format in which they are sent.
 *   powers   int64 [window][beam][cell]     a cell is one product of one group of channels (beam_detect.h)
 *   out      float or uint8 [beam][window][cell]
 *   offsets  float [beam][cell]             8 bits only
 *   scales   float [beam][cell]
 *
 * 8 bits: least and most are the minimum and maximum over the windows of a beam and cell.  offset = least; scale =
 * (most - least) / 255; out = (power - least) * 255 / (most - least), rounded half up; out = 0 if most = least.  A
 * power is about offset + scale * out.  If most - least is 2^54 or more, both differences in the formula of 'out' are
 * first shifted right until most - least is below 2^54.
 *
 * Exactness: CUDA and the C version agree in every bit.  Integers are rounded to single precision once.  The division
 *            that gives a scale rounds a second time.  'out' of 8 bits is computed in integers.
 * Requires:  powers from -2^61 to 2^61.
 * Bound by:  memory. */
#ifndef KERNELS_BEAMFORM_BEAM_FINISH_H
#define KERNELS_BEAMFORM_BEAM_FINISH_H

#include "common/device/device.h"

#include <stdint.h>

#define BEAM_FINISH_STEPS 255
#define BEAM_FINISH_BITS  54 /* maximum bits of a shifted difference: 2 * 255 * 2^54 fits 63 bits */

struct beam_finish_args {
    const int64_t *powers; /* shape [window][beam][cell] */
    void *out;             /* shape [beam][window][cell] */
    float *offsets;        /* shape [beam][cell]; NULL: 'out' is float */
    float *scales;         /* shape [beam][cell] */
    uint32_t n_windows;
    uint32_t n_beams;
    uint32_t n_cells;
};

/* Converts all windows of a beam and cell. */
static inline void beam_finish_cell(const struct beam_finish_args *args, uint32_t beam, uint32_t cell)
{
    const uint64_t row = (uint64_t)beam * args->n_cells + cell, step = (uint64_t)args->n_beams * args->n_cells;
    const uint64_t to = (uint64_t)beam * args->n_windows * args->n_cells + cell;
    int64_t least = args->powers[row], most = least;

    for (uint32_t w = 0; w < args->n_windows; w++) {
        const int64_t power = args->powers[row + w * step];
        if (!args->offsets)
            ((float *)args->out)[to + (uint64_t)w * args->n_cells] = (float)power;
        least = power < least ? power : least;
        most = power > most ? power : most;
    }
    if (!args->offsets)
        return;
    const int64_t range = most - least;
    int shift = 0;
    while (range >> shift >> BEAM_FINISH_BITS)
        shift++;
    const int64_t steps = range >> shift;
    for (uint32_t w = 0; w < args->n_windows; w++) {
        const int64_t above = (args->powers[row + w * step] - least) >> shift;
        ((uint8_t *)args->out)[to + (uint64_t)w * args->n_cells] =
            (uint8_t)(steps ? (2 * BEAM_FINISH_STEPS * above + steps) / (2 * steps) : 0);
    }
    args->offsets[row] = (float)least;
    args->scales[row] = (float)range / (float)BEAM_FINISH_STEPS;
}

extern const struct kernel beam_finish_kernel;

struct kernel_grid beam_finish_grid(const struct beam_finish_args *args);

#endif
