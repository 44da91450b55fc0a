/* design_ddc - the low-pass filter of the digital down-converter: the best in the sense of remez.h.
 *
 * In units of the rate after subsampling, A:
 *     with 'pass_fraction' = 0   the transform keeps the middle half of the channels and discards the rest:
 *                                pass band [0, 1/4]; stop bands [n + 3/4, n + 5/4], n = 0, 1, .. up to A / 2: only
 *                                frequencies that alias into kept channels
 *     else p, 0 < p < 1          all channels are kept; the part p in the middle is flat and free of aliases:
 *                                pass band [0, p / 2]; stop band [1 - p / 2, A / 2]
 * The error in the pass band counts 'weight_pass' times that in the stop bands.  All times sqrt(A), so that white noise
 * keeps about its density: of an ideal filter the output's variance would be that of the input, times the part passed.
 * Computed in double, stored as float. */
#ifndef KERNELS_DDC_DESIGN_DDC_H
#define KERNELS_DDC_DESIGN_DDC_H

#include <stddef.h>

struct design_ddc {
    unsigned subsampling; /* A; 2..DESIGN_DDC_MAX_SUBSAMPLING */
    size_t n_taps;        /* 4..DESIGN_DDC_MAX_TAPS */
    double weight_pass;   /* > 0 */
    double pass_fraction; /* 0, or 0 < p < 1 */
};

#define DESIGN_DDC_MAX_SUBSAMPLING 256
#define DESIGN_DDC_MAX_TAPS        8192

/* Writes weights[n_taps], symmetric.  Returns 0, -ENOMEM, or -EDOM: there is no such filter in double precision.
 * Usually there are far more taps than the bands need, and fewer will do; else the gap between the bands is too
 * narrow. */
int design_ddc(const struct design_ddc *design, float *weights);

/* The same, before it is rounded to float. */
int design_ddc_double(const struct design_ddc *design, double *weights);

#endif
