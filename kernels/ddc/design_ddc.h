/* design_ddc - the low-pass filter of the digital down-converter: optimal in the sense of remez.h.
 *
 * Frequencies are in units of the sample rate after subsampling by A:
 *     'pass_fraction' = 0        the transform keeps the middle half of the channels and discards the rest:
 *                                pass band [0, 1/4]; stop bands [n + 3/4, n + 5/4], n = 0, 1, .. up to A / 2: only
 *                                frequencies that alias into kept channels
 *     'pass_fraction' = p > 0    the transform keeps all channels; the middle fraction p of the band is flat and free
 *                                of aliases:
 *                                pass band [0, p / 2]; stop band [1 - p / 2, A / 2]
 * The error in the pass band counts 'weight_pass' times as much as the error in the stop bands.  All weights are
 * multiplied by sqrt(A), so that white noise keeps about the same spectral density.  The output of an ideal filter
 * has the input's variance, multiplied by the fraction of the band that the filter passes.  The filter is computed in
 * double and stored as float. */
#ifndef KERNELS_DDC_DESIGN_DDC_H
#define KERNELS_DDC_DESIGN_DDC_H

#include <stddef.h>

struct design_ddc {
    /* A, the input's sample rate divided by the output's sample rate; 2..DESIGN_DDC_MAX_SUBSAMPLING */
    unsigned subsampling;
    size_t n_taps;        /* length of the filter; 4..DESIGN_DDC_MAX_TAPS */
    double weight_pass;   /* > 0 */
    double pass_fraction; /* p: 0 <= p < 1 */
};

#define DESIGN_DDC_MAX_SUBSAMPLING 256
#define DESIGN_DDC_MAX_TAPS        8192

/* Writes weights[n_taps], symmetric.  Returns 0, -ENOMEM, or -EDOM if no such filter exists in double precision.
 * Usually the cause is that n_taps is far larger than the bands need.  A smaller n_taps then suffices.  Otherwise the
 * gap between the bands is too narrow. */
int design_ddc(const struct design_ddc *design, float *weights);

/* Writes the same weights without rounding them to float. */
int design_ddc_double(const struct design_ddc *design, double *weights);

#endif
