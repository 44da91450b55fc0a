/* audit.h - a few products of each dump, summed again by the host out of pinned memory.
 *
 * The correlator's sums of integers are exact, so they can be checked bit for bit while it runs.  For each accumulation
 * a number of (baseline, channel) pairs is drawn; their four products are summed here from the chunks as received, and
 * compared with the dump when it has been downloaded.  The comparison covers upload, device memory, kernels and
 * download.  An error that touches a fraction f of the products stays unseen for n dumps with probability
 * (1 - f)^(n * samples).
 *
 * Half floats: products are exact on both sides; sums are double here and on the device float32 over at most
 * CORRELATE_FLOAT_SPECTRA spectra, of all launches together, before they are added to double ones.  Tensor cores take 8
 * spectra at once: 16 products and the sum so far, each truncated at 2^-23 of the largest of them or better.  In each
 * step the two sums come to differ by at most 17 * 2^-23 of the magnitudes summed so far.  The difference stays below
 * AUDIT_TOLERANCE of the sum of the products' magnitudes.  A launch's sums are rounded at 2^-24 when they are added to
 * memory, which is little compared with this tolerance.  An error below the tolerance is not seen.
 * Threads: the worker only. */
#ifndef XBGPU_AUDIT_H
#define XBGPU_AUDIT_H

#include "common/base/units.h"
#include "kernels/util/voltages.h"
#include "xbgpu/draw.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_TOLERANCE 0x1p-10 /* ~ 17 * 2^-23 * (CORRELATE_FLOAT_SPECTRA / 8) / 2 */

struct xbgpu_audit_sample {
    size_t ant1, ant2; /* ant1 <= ant2 */
    size_t chan;
    union {
        int64_t integer[N_POL_PRODUCTS][2]; /* product p1 + 2 p2: re, im */
        double real[N_POL_PRODUCTS][2];     /* of half floats */
    } sums;
    double magnitudes[N_POL_PRODUCTS][2]; /* of half floats: of what is summed */
};

struct xbgpu_audit {
    enum voltage_format format;       /* [const] */
    size_t n_ants, n_chan, n_spectra; /* [const] */
    size_t n_samples;                 /* [const] */
    struct xbgpu_audit_sample *samples;
    struct xbgpu_draw draw; /* of accumulations */
};

/* Returns 0 or negative errno.  The draw is random and different for every process. */
int xbgpu_audit_init(struct xbgpu_audit *audit, size_t n_samples, enum voltage_format format, size_t n_ants,
                     size_t n_chan, size_t n_spectra);
void xbgpu_audit_fini(struct xbgpu_audit *audit);

/* A new accumulation: draws, and starts at zero. */
void xbgpu_audit_draw(struct xbgpu_audit *audit);

/* Adds a batch: heaps[ant] is the antenna's heap [chan][spectrum][pol] in host memory, or NULL where absent. */
void xbgpu_audit_add(struct xbgpu_audit *audit, const uint8_t *const *heaps);

/* Adds to sample 'i' alone 'n_spectra' spectra [spectrum][pol] of its first antenna and of its second. */
void xbgpu_audit_add_spectra(struct xbgpu_audit *audit, size_t i, const uint8_t *x, const uint8_t *y, size_t n_spectra);

/* Compares a drawn sample with a dump's visibilities, int32 or of half floats float [chan][baseline][product][re, im];
 * 'flagged': the baseline must say that it is missing.  Returns whether they agree. */
bool xbgpu_audit_agrees(const struct xbgpu_audit_sample *sample, enum voltage_format format, size_t n_baselines,
                        const void *visibilities, bool flagged);

#endif
