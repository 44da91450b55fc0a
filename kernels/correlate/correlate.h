/* correlate - computes sums of products of voltages, for all baselines and a slice of the band.
 *   voltages  [batch][ant][chan][spectrum][pol][re, im]   in one of the formats of voltages.h
 *   sums      int32, for half floats float, [chan][baseline][product][re, im]; the kernel adds to these sums
 *
 * baseline = a2 (a2 + 1) / 2 + a1 for a1 <= a2; product = p1 + 2 p2;
 * sums += sum over spectra of the batches [first_batch, first_batch + n_batches) of e(a1, p1) * conj(e(a2, p2)).
 *
 * Exactness: integers are exact; -128 is a legal value, as is -8 with 4 bits.  A product's part is at most 2 * 128^2 =
 *            2^15, so sums hold CORRELATE_INT_SPECTRA spectra.
 *            Half floats: products are exact.  The C version sums a launch in double, CUDA in float32.
 * Requires: sums start at zero.  All launches together add at most correlate_max_spectra() spectra to the sums.  A
 *            spectrum that is zero in all antennas does not count.  Before the limit is exceeded, the caller moves the
 *            sums to totals (reduce.h).
 *            CUDA: n_spectra a multiple of 16, voltages and sums aligned to 16 bytes.
 * Bound by: integer multiplies; 16 per (baseline, chan, spectrum).  A GPU with up to about 32 antennas: memory.
 *            Voltages are read once; sums are read and written once per launch.
 * CUDA:     sizes and shapes are in correlate_shape.h; sm_80 and later. */
#ifndef KERNELS_CORRELATE_CORRELATE_H
#define KERNELS_CORRELATE_CORRELATE_H

#include "common/device/device.h"
#include "kernels/util/voltages.h"

#define CORRELATE_INT_SPECTRA 65535 /* largest number of full-scale spectra in an int32 sum: 65535 * 2^15 < 2^31 */
/* maximum number of half-float spectra in a float32 sum; xbgpu/audit/audit.h states the loss of precision */
#define CORRELATE_FLOAT_SPECTRA 8192

/* Address of sums; each part has 4 bytes.  The format of the voltages decides the type: int32 or float. */
union correlate_sums {
    int32_t *integer;
    float *real; /* VOLTAGES_16_BITS */
};

static inline bool correlate_sums_real(enum voltage_format format)
{
    return format == VOLTAGES_16_BITS;
}

/* Returns the maximum number of spectra that the sums can hold. */
static inline uint32_t correlate_max_spectra(enum voltage_format format)
{
    return correlate_sums_real(format) ? CORRELATE_FLOAT_SPECTRA : CORRELATE_INT_SPECTRA;
}

struct correlate_args {
    const void *voltages;      /* shape [batch][ant][chan][spectrum][pol][re, im] */
    union correlate_sums sums; /* shape [chan][baseline][product][re, im] */
    enum voltage_format format;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra; /* spectra of a heap */
    uint32_t first_batch;
    uint32_t n_batches;
};

extern const struct kernel correlate_kernel;
/* Kernels for compute capability 9.0.  Each of these kernels computes some of the baselines (correlate_shape.h). */
extern const struct kernel correlate_wgmma_kernel;
extern const struct kernel correlate_whole_kernel;

static inline size_t correlate_n_baselines(size_t n_ants)
{
    return n_ants * (n_ants + 1) / 2;
}

/* Returns the index of baseline (a1, a2), a1 <= a2. */
static inline size_t correlate_baseline(size_t a1, size_t a2)
{
    return a2 * (a2 + 1) / 2 + a1;
}

#endif
