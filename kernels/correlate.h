/* correlate - voltages to sums of products, all baselines of a slice of the band.
 *   voltages  int8  [batch][ant][chan][spectrum][pol][re, im]
 *   sums      int64 [chan][baseline][product][re, im]      added to
 *
 * baseline = a2 (a2 + 1) / 2 + a1 for a1 <= a2; product = p1 + 2 p2;
 * sums += sum over spectra of the batches [first_batch, first_batch + n_batches) of e(a1, p1) * conj(e(a2, p2)).
 *
 * Exactness: all integer; -128 is a legal value.  A product's part is at most 2 * 128^2 = 2^15, so int32 partial sums
 *            hold 65 535 spectra; 64-bit beyond.
 * Requires: n_spectra <= 65535 per batch.
 * Bound by: integer multiplies; 16 per (baseline, chan, spectrum). */
#ifndef KERNELS_CORRELATE_H
#define KERNELS_CORRELATE_H

#include "common/device.h"

struct correlate_args {
    const int8_t *voltages;
    int64_t *sums;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra; /* of a heap */
    uint32_t first_batch;
    uint32_t n_batches;
};

extern const struct kernel correlate_kernel;

static inline size_t correlate_n_baselines(size_t n_ants)
{
    return n_ants * (n_ants + 1) / 2;
}

/* a1 <= a2 */
static inline size_t correlate_baseline(size_t a1, size_t a2)
{
    return a2 * (a2 + 1) / 2 + a1;
}

#endif
