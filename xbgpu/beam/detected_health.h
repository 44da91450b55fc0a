/* detected_health.h - statistics of a stream of powers: power, zeros and clipped samples of each beam, as metrics.
 *
 * Flow:      worker, before a heap leaves: xbgpu_detected_health_take() --> metrics
 * Measured:  powers in host memory, as sent.  Each beam is measured about once per second of data.  With n heaps in a
 *            second, beam b is measured in each heap whose number has the same remainder modulo n as b.  In such a
 *            heap evenly spaced windows and groups of channels are measured, with at most DETECTED_HEALTH_POWERS
 *            powers.  Windows without any data are not measured.
 * Series:    each beam has a gauge for each product and two more gauges, so a beam has at most 6 gauges.  There are
 *            at most XBGPU_BEAMS_MAX beams.
 * Threads:   take: the worker; the rest: main.   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_BEAM_DETECTED_HEALTH_H
#define XBGPU_BEAM_DETECTED_HEALTH_H

#include "common/base/counter.h"
#include "xbgpu/config/layout.h"

#define DETECTED_HEALTH_POWERS 1024

struct xbgpu_detected_figures;

struct xbgpu_detected_health {
    const struct xbgpu_config_detected *config; /* [const] */
    struct xbgpu_detected_sizes sizes;          /* [const] */
    size_t n_ants;                              /* [const] */
    size_t n_chan;                              /* [const] */
    int64_t n_turns;                            /* [const] number of heaps in a second */
    size_t window_step, group_step;             /* [const] distances between measured windows and groups */
    struct xbgpu_detected_figures *figures;     /* [beam] */
    struct gauge present;                       /* fraction of the stream's data that was present in the last heap */
};

/* Initialises zeroed statistics, and registers the metrics of stream 'i'.  Returns 0 or negative errno; the caller
 * must call fini in either case. */
int xbgpu_detected_health_init(struct xbgpu_detected_health *health, const struct xbgpu_config *config,
                               const struct xbgpu_layout *layout, size_t i);
void xbgpu_detected_health_fini(struct xbgpu_detected_health *health);

/* Measures heap 'number'.  struct xbgpu_detected_sizes describes 'payload'.  'saturated' [beam] is the number of
 * clipped complex samples.  'n_present' [window] is the number of spectra present, summed over all antennas. */
void xbgpu_detected_health_take(struct xbgpu_detected_health *health, int64_t number, const uint8_t *payload,
                                const uint32_t *saturated, const uint64_t *n_present);

#endif
