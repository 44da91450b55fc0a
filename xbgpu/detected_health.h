/* detected_health.h - how the beams of a stream of powers do: power, zeros and clipped samples of each, as metrics.
 *
 * Flow:      worker, before a heap leaves: xbgpu_detected_health_take() --> metrics
 * Measured:  in host memory, as sent.  Each beam about once in a second of data: heaps whose number is that of the beam
 *            modulo the heaps of a second; of these evenly spaced windows and groups of channels, at most
 *            DETECTED_HEALTH_POWERS powers.  Windows of which nothing came are left out.
 * Series:    a gauge for each product of a beam, and two for each beam: at most 6 of each of XBGPU_BEAMS_MAX beams.
 * Threads:   take: the worker; the rest: main.   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_DETECTED_HEALTH_H
#define XBGPU_DETECTED_HEALTH_H

#include "common/base/counter.h"
#include "xbgpu/layout.h"

#define DETECTED_HEALTH_POWERS 1024

struct xbgpu_detected_figures;

struct xbgpu_detected_health {
    const struct xbgpu_config_detected *config; /* [const] */
    struct xbgpu_detected_sizes sizes;          /* [const] */
    size_t n_ants;                              /* [const] */
    size_t n_chan;                              /* [const] */
    int64_t n_turns;                            /* [const] heaps of a second */
    size_t window_step, group_step;             /* [const] of the measured powers */
    struct xbgpu_detected_figures *figures;     /* [beam] */
    struct gauge present;                       /* of the stream */
};

/* Registers the metrics of stream 'i', for zeros.  Returns 0 or negative errno; fini follows in either case. */
int xbgpu_detected_health_init(struct xbgpu_detected_health *health, const struct xbgpu_config *config,
                               const struct xbgpu_layout *layout, size_t i);
void xbgpu_detected_health_fini(struct xbgpu_detected_health *health);

/* Heap 'number': 'payload' as struct xbgpu_detected_sizes says; clipped complex samples of each beam, saturated [beam];
 * spectra of all antennas that came, n_present [window]. */
void xbgpu_detected_health_take(struct xbgpu_detected_health *health, int64_t number, const uint8_t *payload,
                                const uint32_t *saturated, const uint64_t *n_present);

#endif
