/* beam_detect - computes the powers of tied-array beams from voltages.  The kernel sums both polarisations of each beam
 * over the antennas, as beamform does.  The kernel detects these sums, and sums the powers over windows of spectra and
 * groups of channels.
 *   form        arguments of beamform.h; 'beams' are polarisations 0 and 1 of beam 0, then of beam 1, and so on.
 *               Dither and 'out' are not used.  'saturated' is uint32 [n_beams / 2]; the kernel adds to it
 *   powers      int64 [window][beam][product][group]   the kernel adds to these values
 *
 * Window w has the spectra [first + w n, first + (w + 1) n), n = window_spectra.  Group g has the channels
 * [g n, (g + 1) n), n = group_channels.  Spectra before the first window or after the last window are not used.
 *
 * Each part is v = (sum over antennas of coefficient * voltage) * 2^-exponent * renormalise * 256, clipped to +-32767
 * and rounded half to even.  A NaN becomes 0.  So the unit of powers is (1/256 of a step of the voltage beam)^2.  A
 * complex sample counts in 'saturated' if any part was clipped.  X is polarisation 0, Y polarisation 1:
 *     BEAM_POWER_0   |X|^2
 *     BEAM_POWER_1   |Y|^2
 *     BEAM_TOTAL     |X|^2 + |Y|^2
 *     BEAM_STOKES    I = |X|^2 + |Y|^2, Q = |X|^2 - |Y|^2, U = 2 Re X Y*, V = 2 Im X Y*
 * V is positive for right-handed circular polarisation (IAU 1974) if X is to the north, Y is to the east and the
 * channels' radio frequency rises.
 *
 * Exactness: CUDA and the C version agree in every bit.  Powers are sums of integers, so their order does not matter.
 * Requires:  as beamform; an even number of beams; 1 to 4096 window_spectra; group_channels divides n_chan.
 * Bound by:  CUDA: as beamform.  With 9 to 63 beams of 80 antennas and without wgmma, a warp executes about 420
 *            instructions for 8 beams and 32 spectra.  Among these instructions are 80 matrix products, 160
 *            instructions to scale, check and round, and 100 instructions to detect.  For each beam, channel and
 *            product, one 64-bit atomic addition adds up to 32 spectra.  The C version: as beamform. */
#ifndef KERNELS_BEAMFORM_BEAM_DETECT_H
#define KERNELS_BEAMFORM_BEAM_DETECT_H

#include "kernels/beamform/beamform.h"

#define BEAM_DETECT_LIMIT 32767.0f
/* ratio of the voltage beam's quantisation step to the quantisation step of the detector's input */
#define BEAM_DETECT_STEPS       256.0f
#define BEAM_DETECT_MAX_SPECTRA 4096
#define BEAM_MAX_PRODUCTS       4

enum beam_products {
    BEAM_POWER_0,
    BEAM_POWER_1,
    BEAM_TOTAL,
    BEAM_STOKES,
};

static inline uint32_t beam_n_products(enum beam_products products)
{
    return products == BEAM_STOKES ? BEAM_MAX_PRODUCTS : 1;
}

struct beam_detect_args {
    struct beamform_args form;
    int64_t *powers; /* shape [window][beam][product][group] */
    uint64_t first;  /* number of the first spectrum of window 0 */
    enum beam_products products;
    uint32_t n_windows;
    uint32_t window_spectra;
    uint32_t group_channels;
};

/* Clips and rounds 'v', a real or imaginary part in quantisation steps of the voltage beam.  Sets 'clipped' if the
 * part was clipped or NaN. */
static inline int32_t beam_detect_round(float v, uint32_t *clipped)
{
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding this number rounds to an integer */

    v = BEAM_TIMES(v, BEAM_DETECT_STEPS);
    *clipped |= !(v >= -BEAM_DETECT_LIMIT && v <= BEAM_DETECT_LIMIT);
    v = v == v ? v : 0.0f;
    v = v < -BEAM_DETECT_LIMIT ? -BEAM_DETECT_LIMIT : v > BEAM_DETECT_LIMIT ? BEAM_DETECT_LIMIT : v;
    return (int32_t)BEAM_PLUS(BEAM_PLUS(v, to_integer), -to_integer);
}

/* Adds the products of samples x (polarisation 0) and y (polarisation 1) to 'powers'.  Both samples are [re, im]. */
static inline void beam_detect_add(enum beam_products products, const int32_t x[2], const int32_t y[2], int64_t *powers)
{
    int64_t xx = x[0] * x[0] + x[1] * x[1], yy = y[0] * y[0] + y[1] * y[1];

    powers[0] += products == BEAM_POWER_0 ? xx : products == BEAM_POWER_1 ? yy : xx + yy;
    if (products != BEAM_STOKES)
        return;
    powers[1] += xx - yy;
    powers[2] += 2 * ((int64_t)x[0] * y[0] + (int64_t)x[1] * y[1]);
    powers[3] += 2 * ((int64_t)x[1] * y[0] - (int64_t)x[0] * y[1]);
}

extern const struct kernel beam_detect_kernel;

/* beam_detect_constants() writes the constants with which the CUDA variant is compiled.  beam_detect_grid() returns
 * the grid of a launch. */
#define BEAM_DETECT_N_CONSTANTS (BEAMFORM_N_CONSTANTS + 1)
void beam_detect_constants(const struct beam_detect_args *args, struct kernel_constant *constants);
struct kernel_grid beam_detect_grid(const struct beam_detect_args *args);

#endif
