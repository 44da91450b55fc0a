/* audit.h - a few products of each dump, summed again by the host out of pinned memory.
 *
 * The correlator's sums are exact integers, so they can be checked bit for bit while it runs.  For each accumulation a
 * number of (baseline, channel) pairs is drawn; their four products are summed here from the chunks as received, and
 * compared with the dump when it has been downloaded.  What lies between (upload, device memory, kernels, download)
 * thus has nowhere to corrupt data silently: an error that touches a fraction f of the products stays unseen for n
 * dumps with probability (1 - f)^(n * samples).
 * Threads: the worker only. */
#ifndef XBGPU_AUDIT_H
#define XBGPU_AUDIT_H

#include "common/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct audit_sample {
    size_t ant1, ant2; /* ant1 <= ant2 */
    size_t chan;
    int64_t sums[N_POL_PRODUCTS][2]; /* product p1 + 2 p2: re, im */
};

struct audit {
    size_t n_ants, n_chan, n_spectra; /* [const] */
    size_t n_samples;                 /* [const] */
    struct audit_sample *samples;
    uint64_t seed;
    uint64_t n_drawn; /* accumulations drawn so far */
};

/* Returns 0 or negative errno.  The draw is random and different for every process. */
int audit_init(struct audit *audit, size_t n_samples, size_t n_ants, size_t n_chan, size_t n_spectra);
void audit_fini(struct audit *audit);

/* A new accumulation: draws, and starts at zero. */
void audit_draw(struct audit *audit);

/* Adds a batch: heaps[ant] is the antenna's heap [chan][spectrum][pol][re, im] in host memory, or NULL where absent. */
void audit_add(struct audit *audit, const uint8_t *const *heaps);

/* Adds to sample 'i' alone 'n_spectra' spectra [spectrum][pol][re, im] of its first antenna and of its second. */
void audit_add_spectra(struct audit *audit, size_t i, const uint8_t *x, const uint8_t *y, size_t n_spectra);

/* Compares a drawn sample with a dump's visibilities int32 [chan][baseline][product][re, im]; 'flagged': the baseline
 * must say that it is missing.  Returns whether they agree. */
bool audit_agrees(const struct audit_sample *sample, size_t n_baselines, const int32_t *visibilities, bool flagged);

#endif
