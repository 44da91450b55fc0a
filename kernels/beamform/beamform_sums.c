/* beamform_sums.c - see beamform_sums.h. */
#include "kernels/beamform/beamform_sums.h"

#include "kernels/util/clones.h"

#include <string.h>

KERNEL_CLONES void beamform_widen(const uint8_t *in, enum voltage_format format, size_t n,
                                  int16_t (*out)[2][BEAMFORM_BLOCK_SPECTRA])
{
    uint8_t flip = voltage_zero(format);

    for (size_t s = 0; s < n; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            size_t i = s * N_POLS + pol;
            if (format == VOLTAGES_8_BITS) {
                out[pol][0][s] = (int8_t)in[2 * i];
                out[pol][1][s] = (int8_t)in[2 * i + 1];
            } else {
                uint8_t byte = in[i] ^ flip;
                out[pol][0][s] = (int16_t)((int8_t)byte >> 4);
                out[pol][1][s] = (int16_t)((int8_t)(uint8_t)(byte << 4) >> 4);
            }
        }
}

/* Adds polarisation 'pol' of a block's antennas to the sums of a beam. */
KERNEL_CLONES static void add_block(const struct beamform_widened *block, size_t n_ants, size_t pol,
                                    const int16_t *coefficients, struct beamform_sums *sums)
{
    int32_t re[BEAMFORM_BLOCK_SPECTRA] = {0}, im[BEAMFORM_BLOCK_SPECTRA] = {0};

    for (size_t ant = 0; ant < n_ants; ant++) {
        int32_t a = coefficients[2 * ant], b = coefficients[2 * ant + 1];
        const int16_t *x = block->parts[ant][pol][0], *y = block->parts[ant][pol][1];
        for (size_t s = 0; s < BEAMFORM_BLOCK_SPECTRA; s++) {
            re[s] += a * x[s] - b * y[s];
            im[s] += a * y[s] + b * x[s];
        }
    }
    for (size_t s = 0; s < BEAMFORM_BLOCK_SPECTRA; s++) {
        sums->re[s] += re[s];
        sums->im[s] += im[s];
    }
}

void beamform_sum_block(const struct beamform_args *a, size_t batch, uint32_t chan, size_t first, uint32_t beam,
                        uint32_t n_beams, struct beamform_widened *block, struct beamform_sums *sums)
{
    size_t n = a->n_spectra - first < BEAMFORM_BLOCK_SPECTRA ? a->n_spectra - first : BEAMFORM_BLOCK_SPECTRA;

    memset(sums, 0, n_beams * sizeof(*sums));
    for (size_t ant = 0; ant < a->n_ants; ant += BEAMFORM_BLOCK_ANTS) {
        size_t n_ants = a->n_ants - ant < BEAMFORM_BLOCK_ANTS ? a->n_ants - ant : BEAMFORM_BLOCK_ANTS;
        for (size_t i = 0; i < n_ants; i++) {
            size_t at = ((batch * a->n_ants + ant + i) * a->n_chan + chan) * a->n_spectra + first;
            beamform_widen((const uint8_t *)a->voltages + at * N_POLS * voltage_bytes(a->format), a->format, n,
                           block->parts[i]);
        }
        for (uint32_t b = 0; b < n_beams; b++) {
            size_t row = (size_t)chan * a->n_beams + beam + b;
            add_block(block, n_ants, a->beams[beam + b].pol, a->coefficients + (row * a->n_ants + ant) * 2, &sums[b]);
        }
    }
}
