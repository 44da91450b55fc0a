/* remez - linear-phase FIR filters with the smallest maximum weighted error (Parks and McClellan).
 *
 * Frequencies are in cycles per sample, 0 to 1/2.  On the grid below, exactly one filter is the best.  So two programs
 * that use the same grid give the same taps except for rounding errors (tests/system/test_design_ddc.py compares with
 * scipy).
 *   grid: in each band the points begin at the lower edge and are 1 / (32 n) apart, with n = ceil(n_taps / 2).  The
 *         band's upper edge replaces the last point.  With an even number of taps the response at 1/2 is always 0.
 *         So the grid has no points closer to 1/2 than 1 / (32 n).
 *
 * Accuracy: double; within bands the response has errors of about 1e-15 of the largest response.
 * Cost:     n^2 * 16 divisions for each of 10 to 20 iterations: below 0.1 s with 1024 taps, seconds with 4096. */
#ifndef KERNELS_DDC_REMEZ_H
#define KERNELS_DDC_REMEZ_H

#include <stddef.h>

#define REMEZ_MAX_BANDS 256

struct remez_band {
    double low, high; /* low < high; bands are in rising order and do not touch */
    double gain;      /* wanted response */
    double weight;    /* weight of the error in the band; > 0 */
};

/* Writes taps[n_taps], exactly symmetric.  n_taps >= 4, 1 <= n_bands <= REMEZ_MAX_BANDS.  Returns 0, -ENOMEM, or
 * -EDOM if double precision does not suffice for this filter.  The usual cause of -EDOM is a filter with far more
 * taps than the bands need. */
int remez(size_t n_taps, const struct remez_band *bands, size_t n_bands, double *taps);

#endif
