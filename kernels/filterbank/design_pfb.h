/* design_pfb - the prototype filter of the polyphase filter bank.
 *
 * For i = 0 .. W-1 with W = step * n_taps:
 *     w_i = K * win_i * sinc(w_cutoff * ((i + 1/2) / step - n_taps / 2)),   sinc(x) = sin(pi x) / (pi x)
 *     win_i = sin^2(pi i / (W - 1)) (Hann, symmetric) or 1 (rect)
 * K makes the sum of squares 1: white noise of variance s^2 then gives E|X|^2 = s^2.  The weights are computed in
 * double and stored as float. */
#ifndef KERNELS_FILTERBANK_DESIGN_PFB_H
#define KERNELS_FILTERBANK_DESIGN_PFB_H

#include <stddef.h>

enum pfb_window { PFB_HANN, PFB_RECT };

/* Writes weights[step * n_taps].  step >= 2, n_taps >= 1, w_cutoff >= 0. */
void design_pfb(size_t step, size_t n_taps, double w_cutoff, enum pfb_window window, float *weights);

#endif
