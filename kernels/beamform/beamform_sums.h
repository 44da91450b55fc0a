/* beamform_sums.h - blocks of spectra for the plain C versions: widened voltages, and the exact sums of beams for
 * beamform and beam_detect.  beam_incoherent also uses the widened voltages.
 *
 * For each channel, antenna and polarisation, the voltages are widened to int16 once for all beams.  An int32 sum
 * covers a block of antennas that is small enough that the sum cannot overflow.  The sums of the blocks are added as
 * int64. */
#ifndef KERNELS_BEAMFORM_BEAMFORM_SUMS_H
#define KERNELS_BEAMFORM_BEAMFORM_SUMS_H

#include "common/base/units.h"
#include "kernels/beamform/beamform.h"

#define BEAMFORM_BLOCK_ANTS    128 /* an antenna adds at most 2 * 2^15 * 2^7, so sums stay below 2^31 */
#define BEAMFORM_BLOCK_SPECTRA 64
#define BEAMFORM_BLOCK_BEAMS   16

/* Voltages of a block: [ant][pol][re or im][spectrum]. */
struct beamform_widened {
    int16_t parts[BEAMFORM_BLOCK_ANTS][N_POLS][2][BEAMFORM_BLOCK_SPECTRA];
};

struct beamform_sums {
    int64_t re[BEAMFORM_BLOCK_SPECTRA], im[BEAMFORM_BLOCK_SPECTRA];
};

/* Widens 'n' spectra of an antenna and channel.  'in' points to the first spectrum, [spectrum][pol].  The output is
 * [pol][re or im][spectrum]. */
void beamform_widen(const uint8_t *in, enum voltage_format format, size_t n, int16_t (*out)[2][BEAMFORM_BLOCK_SPECTRA]);

/* Sums 'n_beams' beams (at most BEAMFORM_BLOCK_BEAMS), beginning with 'beam', for a block of spectra of one channel.
 * The block begins with spectrum 'first' of the batch.  Each thread has its own 'block', which is zero before the
 * first call.  The sums of spectra beyond the batch's end are undefined. */
void beamform_sum_block(const struct beamform_args *args, size_t batch, uint32_t chan, size_t first, uint32_t beam,
                        uint32_t n_beams, struct beamform_widened *block, struct beamform_sums *sums);

#endif
