/* audit.h - for each dump, the host computes the sums of a few products again, from voltages in pinned memory.
 *
 * The correlator's sums of integers are exact, so the host can check them bit for bit while the correlator runs.  For
 * each accumulation the audit draws random (baseline, channel) pairs.  The host sums the four products of each pair
 * from the chunks as received, and compares the sums with the downloaded dump.  The comparison covers upload, device
 * memory, kernels and download.  An error in a fraction f of the products stays undetected for n dumps with probability
 * (1 - f)^(n * samples).
 *
 * With half floats the products are exact on both sides.  The host's sums have double precision.  The device's sums are
 * float32 over at most CORRELATE_FLOAT_SPECTRA spectra, counted over all launches, and are then added to double sums.
 * Tensor cores process 8 spectra in one step.  A step adds 16 products and the sum so far, and truncates each term
 * at 2^-23 of the largest term, or at a smaller value.  In each step the host's and the device's sums drift apart by
 * at most 17 * 2^-23 of the magnitudes summed so far.  The difference stays below AUDIT_TOLERANCE of the sum of the
 * products' magnitudes.  A launch's sums are rounded to float32 when they are added to memory.  This error is small
 * compared with the tolerance.  The audit does not detect an error below the tolerance.
 * Threads:   the worker only. */
#ifndef XBGPU_AUDIT_AUDIT_H
#define XBGPU_AUDIT_AUDIT_H

#include "common/base/units.h"
#include "kernels/util/voltages.h"
#include "xbgpu/audit/draw.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_TOLERANCE 0x1p-10 /* ~ 17 * 2^-23 * (CORRELATE_FLOAT_SPECTRA / 8) / 2 */

struct xbgpu_audit_sample {
    size_t ant1, ant2; /* ant1 <= ant2 */
    size_t chan;
    union {
        int64_t integer[N_POL_PRODUCTS][2]; /* [p1 + 2 * p2][re, im] for polarisations p1 and p2 */
        double real[N_POL_PRODUCTS][2];     /* sums of products as doubles; used if the voltages are half floats */
    } sums;
    double magnitudes[N_POL_PRODUCTS][2]; /* sums of the terms' magnitudes, if the voltages are half floats */
};

struct xbgpu_audit {
    enum voltage_format format;       /* [const] */
    size_t n_ants, n_chan, n_spectra; /* [const] */
    size_t n_samples;                 /* [const] */
    struct xbgpu_audit_sample *samples;
    struct xbgpu_draw draw; /* counts accumulations */
};

/* Initialises the audit.  Returns 0 or negative errno.  The draw is random and different for every process. */
int xbgpu_audit_init(struct xbgpu_audit *audit, size_t n_samples, enum voltage_format format, size_t n_ants,
                     size_t n_chan, size_t n_spectra);
void xbgpu_audit_fini(struct xbgpu_audit *audit);

/* Begins an accumulation: draws new pairs, and sets their sums to zero. */
void xbgpu_audit_draw(struct xbgpu_audit *audit);

/* Adds a batch: heaps[ant] is the antenna's heap [chan][spectrum][pol] in host memory, or NULL if the heap is
 * absent. */
void xbgpu_audit_add(struct xbgpu_audit *audit, const uint8_t *const *heaps);

/* Adds 'n_spectra' spectra to sample 'i' only.  'x' and 'y' are the voltages [spectrum][pol] of the first and second
 * antenna. */
void xbgpu_audit_add_spectra(struct xbgpu_audit *audit, size_t i, const uint8_t *x, const uint8_t *y, size_t n_spectra);

/* Compares a drawn sample with a dump's visibilities [chan][baseline][product][re, im].  The visibilities are float if
 * the voltages are half floats, else int32.  If 'flagged' is true, the baseline's visibilities must equal the value for
 * missing data.  Returns whether the sample and the dump agree. */
bool xbgpu_audit_agrees(const struct xbgpu_audit_sample *sample, enum voltage_format format, size_t n_baselines,
                        const void *visibilities, bool flagged);

#endif
