/* beam_health.h - figures of the beams: power, zeros and antennas of each beam as metrics, and one beam's spectrum for
 * the status page.
 *
 * Flow:      worker, before a batch's heaps leave: xbgpu_beam_health_take() --> metrics, and a spectrum if HTTP has
 *            requested a spectrum
 *            HTTP: xbgpu_beam_health_describe() requests a beam's spectrum and shows the last spectrum
 * Measured:  samples in host memory, as sent.  Each beam is measured about once in a second of data: in batches whose
 *            number equals the beam's number modulo the batches of a second.  Evenly spaced channels of such a batch
 *            are measured, about BEAM_HEALTH_SAMPLES samples in all.  So the beams take turns, and the same data always
 *            give the same figures.
 * Threads:   take: the worker; describe: HTTP; the rest: main.   Blocking: never. */
#ifndef XBGPU_BEAM_HEALTH_H
#define XBGPU_BEAM_HEALTH_H

#include "common/http/status.h"
#include "xbgpu/layout.h"

#define BEAM_HEALTH_SAMPLES 4096

struct xbgpu_beam_health;

/* Creates the figures and registers the metrics.  Without beams '*health' is NULL, which all functions accept.  Returns
 * 0 or negative errno. */
int xbgpu_beam_health_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                             struct xbgpu_beam_health **health);
void xbgpu_beam_health_destroy(struct xbgpu_beam_health *health);

/* Measures a batch of all beams, made of 'n_present' antennas.  'heaps' is [beam], each of 'pitch' bytes, beginning
 * with [chan][spectrum][re, im]. */
void xbgpu_beam_health_take(struct xbgpu_beam_health *health, int64_t batch, const uint8_t *heaps, size_t pitch,
                            size_t n_present);

/* Adds "beams" to the JSON, and "spectrum" if the query's stream is a beam. */
void xbgpu_beam_health_describe(struct xbgpu_beam_health *health, const struct status_query *query, json_t *into);

#endif
