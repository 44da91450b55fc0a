/* gnss_grid - the kernels of gnss_acquire, which compute the powers of a grid of Dopplers and code phases.
 *   gnss_grid_bins      int8 samples [pol][sample][re, im] -> complex float rows [pol][row][bin]
 *   gnss_grid_rotate    rows -> complex float [doppler][pol][bin]                          then a forward FFT
 *   gnss_grid_multiply  complex float [transform][bin] times the conjugate replica [bin]   then a forward FFT
 *   gnss_grid_powers    complex float [doppler][pol][bin] -> adds to float powers [pol][doppler][bin]
 *   gnss_grid_peaks     powers -> the largest cell of each Doppler and its neighbours [doppler]
 *
 * A row is a code period of a block of samples.  A bin is an interval of the code phase without Doppler.  A row has
 * 2^bin_bits bins.  The phase of sample n is period_phase + n period_step, in 2^-64 code periods.  Row 0 has the
 * period of the first sample.
 *
 * bins:       x conj(carrier), summed over all samples of each bin.  The sums are integers, rounded once to float.
 * rotate:     out[d][pol][bin] = e^(-2 pi i t bin / n_bins) sum over row of e^(-2 pi i t row) rows[pol][row][bin].
 *             t = turns + d turns_step is the rotation by Doppler d in a code period.
 * powers:     powers[pol][d][i] += |in[d][pol][i + m]|^2; i + m is taken modulo n_bins.  m is moved + d moved_step,
 *             rounded to an integer.  If 'adds' is false, the kernel sets the powers instead.  'sums' gets the sum of
 *             each slice of GNSS_GRID_SLICE_BINS bins of the new powers.
 * peaks:      the value of a cell is the sum over the polarisations of the power divided by the polarisation's noise.
 *             The noise of one block is the mean of a polarisation's powers over the whole grid, divided by n_blocks.
 *             A polarisation whose powers are all 0 is ignored.  If several cells of a Doppler have the largest value,
 *             the peak is the cell with the lowest bin.
 * Exactness:  bins is exact, so CUDA and the C version agree in every bit.  The other kernels compute in float, with
 *             angles and sums in double precision.  The order of all sums is fixed, so a device always gives the same
 *             bits.
 * Requires:   n_bins >= GNSS_GRID_SLICE_BINS; at most 2^17 samples in a bin; fewer than 1000 rows.
 * Users:      gnss_acquire.c.
 * Bound by:   the CUDA variants: latency of launches and memory.  The FFTs take most of the time of the C version. */
#ifndef KERNELS_GNSS_GNSS_GRID_H
#define KERNELS_GNSS_GNSS_GRID_H

#include "common/device/device.h"

#define GNSS_GRID_SLICE_BINS 256

struct gnss_grid_bins_args {
    const int8_t *samples;                /* [pol][sample][re, im] */
    uint64_t pitch_samples;               /* distance between the rows of the polarisations, in samples */
    const int8_t *carrier;                /* table from gnss_carrier_table() */
    float *rows;                          /* complex [pol][row][bin] */
    uint64_t carrier_phase, carrier_step; /* of the first sample; per sample; 2^-64 turns */
    uint64_t period_phase, period_step;   /* of the first sample; per sample; 2^-64 code periods */
    uint32_t n_samples, n_rows, bin_bits;
};

struct gnss_grid_rotate_args {
    const float *rows; /* complex [pol][row][bin] */
    float *out;        /* complex [doppler][pol][bin] */
    double turns, turns_step;
    uint32_t n_dopplers, n_rows, bin_bits;
};

struct gnss_grid_multiply_args {
    float *data;          /* complex [transform][bin] */
    const float *replica; /* complex [bin] */
    uint32_t n_transforms, bin_bits;
};

struct gnss_grid_powers_args {
    const float *in; /* complex [doppler][pol][bin] */
    float *powers;   /* [doppler][bin] of polarisation 0; polarisation 1 is 'pol_dopplers' Dopplers away */
    double *sums;    /* [doppler][slice] of polarisation 0, in the same way */
    double moved, moved_step;
    uint32_t n_dopplers, pol_dopplers, bin_bits;
    bool adds;
};

/* The largest cell of a Doppler. */
struct gnss_grid_peak {
    double value;
    double before, behind; /* values of the neighbouring bins */
    double slower, faster; /* values of the same bin of the neighbouring Dopplers; 0 beyond the grid's ends */
    uint32_t bin, n_live;  /* n_live: number of polarisations with a power other than 0 */
};

struct gnss_grid_peaks_args {
    const float *powers;          /* [pol][doppler][bin] */
    const double *sums;           /* [pol][doppler][slice] */
    struct gnss_grid_peak *peaks; /* [doppler] */
    uint32_t n_dopplers, bin_bits, n_blocks;
};

extern const struct kernel gnss_grid_bins_kernel, gnss_grid_rotate_kernel, gnss_grid_multiply_kernel,
    gnss_grid_powers_kernel, gnss_grid_peaks_kernel;

/* gnss_grid_constants() writes the constants of the CUDA variants, which all kernels share.  The other functions return
 * the grid of a launch. */
#define GNSS_GRID_N_CONSTANTS 1
void gnss_grid_constants(struct kernel_constant *constants);
struct kernel_grid gnss_grid_bins_grid(const struct gnss_grid_bins_args *args);
struct kernel_grid gnss_grid_rotate_grid(const struct gnss_grid_rotate_args *args);
struct kernel_grid gnss_grid_multiply_grid(const struct gnss_grid_multiply_args *args);
struct kernel_grid gnss_grid_powers_grid(const struct gnss_grid_powers_args *args);
struct kernel_grid gnss_grid_peaks_grid(const struct gnss_grid_peaks_args *args);

/* Returns the index row * n_bins + bin of the bin that contains sample n.  The phase has 96 bits.  The function adds its
 * parts, as no product or sum exceeds 64 bits. */
static inline uint64_t gnss_grid_bin(const struct gnss_grid_bins_args *args, uint32_t n)
{
    const uint64_t low = n * (args->period_step & 0xffffffff) + (args->period_phase & 0xffffffff);
    const uint64_t high = n * (args->period_step >> 32) + (args->period_phase >> 32) + (low >> 32);

    return high >> (32 - args->bin_bits);
}

/* Returns the first sample of bin 'index' and later bins; n_samples if there is none.  The estimate in double precision
 * is rounded down, so it is never too large. */
static inline uint32_t gnss_grid_first_sample(const struct gnss_grid_bins_args *args, uint64_t index)
{
    const double bin = 18446744073709551616.0 / (double)((uint64_t)1 << args->bin_bits); /* 2^64 is a period */
    const double at = ((double)index * bin - (double)args->period_phase) / (double)args->period_step;
    uint32_t n = at <= 0 ? 0 : at >= args->n_samples ? args->n_samples : (uint32_t)at;

    while (n < args->n_samples && gnss_grid_bin(args, n) < index)
        n++;
    return n;
}

#endif
