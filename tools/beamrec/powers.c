/* powers.c - reads the powers from received heaps of detected beams. */
#include "tools/beamrec/powers.h"

#include <string.h>

static size_t n_cells(const struct beamrec_powers *powers)
{
    return powers->n_products * powers->n_groups;
}

size_t beamrec_powers_scales_at(const struct beamrec_powers *powers)
{
    return beamrec_powers_offsets_at(powers) +
           (powers->is_uint8 ? powers->n_beams * n_cells(powers) : 0) * sizeof(float);
}

size_t beamrec_powers_at(const struct beamrec_powers *powers)
{
    return 2 * beamrec_powers_scales_at(powers) - beamrec_powers_offsets_at(powers);
}

size_t beamrec_powers_heap_bytes(const struct beamrec_powers *powers)
{
    size_t n = powers->n_beams * powers->n_windows * n_cells(powers);

    return beamrec_powers_at(powers) + n * (powers->is_uint8 ? 1 : sizeof(float));
}

/* Reads a float that need not be aligned. */
static float read_float(const uint8_t *at, size_t index)
{
    float value;

    memcpy(&value, at + index * sizeof(value), sizeof(value));
    return value;
}

float beamrec_powers_fraction(const uint8_t *heap, size_t window)
{
    return read_float(heap, window);
}

void beamrec_powers_read(const struct beamrec_powers *powers, const uint8_t *heap, size_t beam, size_t window,
                         size_t product, double *out)
{
    size_t first = ((beam * powers->n_windows + window) * powers->n_products + product) * powers->n_groups;
    size_t cell = (beam * powers->n_products + product) * powers->n_groups;
    const uint8_t *values = heap + beamrec_powers_at(powers);
    const uint8_t *offsets = heap + beamrec_powers_offsets_at(powers),
                  *scales = heap + beamrec_powers_scales_at(powers);

    for (size_t g = 0; g < powers->n_groups; g++)
        out[g] = powers->is_uint8
                     ? (double)read_float(offsets, cell + g) + (double)read_float(scales, cell + g) * values[first + g]
                     : (double)read_float(values, first + g);
}
