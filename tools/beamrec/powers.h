/* powers.h - layout of a heap of detected beams from an X-engine (docs/beams.md).
 *
 *   beam_fractions:  float [window].
 *   beam_offsets:    float [beam][product][group], with uint8 only.
 *   beam_scales:     float [beam][product][group], with uint8 only.
 *   beam_powers:     float or uint8 [beam][window][product][group].
 * A group is a set of channels whose powers are summed into one power.  The frequency of the groups rises with their
 * index.  With uint8, a power is offset + scale * value.  Numbers are little-endian, as on this host.  These functions
 * are pure. */
#ifndef TOOLS_BEAMREC_POWERS_H
#define TOOLS_BEAMREC_POWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct beamrec_powers {
    size_t n_beams, n_windows, n_products, n_groups; /* n_groups: number of groups of one substream */
    bool is_uint8;
};

/* Return the offset of an item from the beginning of the heap, in bytes. */
static inline size_t beamrec_powers_offsets_at(const struct beamrec_powers *powers)
{
    return powers->n_windows * sizeof(float);
}

size_t beamrec_powers_scales_at(const struct beamrec_powers *powers);
size_t beamrec_powers_at(const struct beamrec_powers *powers);

size_t beamrec_powers_heap_bytes(const struct beamrec_powers *powers);

/* Returns the fraction of the antennas' spectra that the X-engine summed in a window.  The fraction 0 means that the
 * window has no data. */
float beamrec_powers_fraction(const uint8_t *heap, size_t window);

/* Reads the powers of one beam, window and product to 'out' [group]. */
void beamrec_powers_read(const struct beamrec_powers *powers, const uint8_t *heap, size_t beam, size_t window,
                         size_t product, double *out);

#endif
