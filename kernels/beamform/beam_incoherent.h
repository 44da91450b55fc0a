/* beam_incoherent - computes the powers of an incoherent beam from voltages.  The kernel detects and weights each
 * antenna's voltages, and sums the powers over antennas, windows of spectra and groups of channels.
 *   voltages   [batch][ant][chan][spectrum][pol][re, im]   4 or 8 bits (voltages.h); absent heaps are zeros
 *   weights    [ant]                                       integers from 0 to 2^31 - 1
 *   powers     int64 [window][product][group]              the kernel adds to these values
 *
 * beam_detect.h defines windows and groups.  X is the voltage of an antenna in polarisation 0, Y its voltage in
 * polarisation 1.  The antenna's weights are x, y and xy.  A product is the sum over the antennas of
 *     BEAM_POWER_0   x |X|^2
 *     BEAM_POWER_1   y |Y|^2
 *     BEAM_TOTAL     x |X|^2 + y |Y|^2
 *     BEAM_STOKES    I = x |X|^2 + y |Y|^2, Q = x |X|^2 - y |Y|^2, U = 2 xy Re X Y*, V = 2 xy Im X Y*
 *
 * With one antenna and weights of 1 the powers are sums of the antenna's autocorrelations.  One launch with BEAM_STOKES
 * then computes the powers of both polarisations, (I + Q) / 2 and (I - Q) / 2, and X Y* = (U + i V) / 2.
 *
 * Exactness: all sums are exact, so CUDA and the C version agree in every bit.
 * Requires:  n_spectra a multiple of 8; voltages aligned to 16 bytes; 1 to BEAMFORM_MAX_ANTS (4096) antennas;
 *            window_spectra from 1 to BEAM_DETECT_MAX_SPECTRA (4096), the range of xbgpu's key detected.spectra;
 *            group_channels divides n_chan; no power exceeds 2^61 even if all parts of voltages are -128.
 * Bound by:  CUDA: memory; voltages are read once.  The C version: 2 or 4 multiply-adds of 64-bit integers for each
 *            antenna and spectrum. */
#ifndef KERNELS_BEAMFORM_BEAM_INCOHERENT_H
#define KERNELS_BEAMFORM_BEAM_INCOHERENT_H

#include "kernels/beamform/beam_detect.h"

/* The weights of one antenna. */
struct beam_incoherent_weights {
    int32_t x, y, xy;
    int32_t unused; /* padding to 16 bytes, so that one load reads all weights of an antenna */
};

struct beam_incoherent_args {
    const void *voltages;                          /* shape [batch][ant][chan][spectrum][pol][re, im] */
    const struct beam_incoherent_weights *weights; /* shape [ant] */
    int64_t *powers;                               /* shape [window][product][group] */
    /* sequence number of spectrum 0 of batch 0, even if first_batch > 0 */
    uint64_t first_spectrum;
    uint64_t first; /* number of the first spectrum of window 0 */
    enum voltage_format format;
    enum beam_products products;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra; /* spectra of a heap */
    uint32_t first_batch;
    uint32_t n_batches;
    uint32_t n_windows;
    uint32_t window_spectra;
    uint32_t group_channels;
};

#define BEAM_INCOHERENT_NO_WINDOW 0xffffffffu

/* Returns the index of the window that has a spectrum of a batch, or BEAM_INCOHERENT_NO_WINDOW. */
static inline uint32_t beam_incoherent_window(const struct beam_incoherent_args *args, uint32_t batch,
                                              uint32_t spectrum)
{
    const uint64_t number = args->first_spectrum + (uint64_t)batch * args->n_spectra + spectrum;

    if (number < args->first)
        return BEAM_INCOHERENT_NO_WINDOW;
    const uint64_t window = (number - args->first) / args->window_spectra;
    return window < args->n_windows ? (uint32_t)window : BEAM_INCOHERENT_NO_WINDOW;
}

/* Sums over antennas: weighted |X|^2, |Y|^2, Re X Y* and Im X Y*.  Only BEAM_STOKES uses the last two sums. */
struct beam_incoherent_sums {
    int64_t x, y, re, im;
};

/* Computes an output's products (BEAM_POWER_0 ... BEAM_STOKES) from the sums. */
static inline void beam_incoherent_products(enum beam_products products, const struct beam_incoherent_sums *sums,
                                            int64_t *powers)
{
    powers[0] = products == BEAM_POWER_0 ? sums->x : products == BEAM_POWER_1 ? sums->y : sums->x + sums->y;
    if (products != BEAM_STOKES)
        return;
    powers[1] = sums->x - sums->y;
    powers[2] = 2 * sums->re;
    powers[3] = 2 * sums->im;
}

extern const struct kernel beam_incoherent_kernel;

/* beam_incoherent_constants() writes the constants with which the CUDA variant is compiled.  beam_incoherent_grid()
 * returns the grid of a launch. */
#define BEAM_INCOHERENT_N_CONSTANTS 4
void beam_incoherent_constants(const struct beam_incoherent_args *args, struct kernel_constant *constants);
struct kernel_grid beam_incoherent_grid(const struct beam_incoherent_args *args);

#endif
