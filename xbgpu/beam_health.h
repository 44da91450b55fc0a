/* beam_health.h - how the beams do: power, zeros and antennas of each as metrics, and the spectrum of one for the status page.
 *
 * Flow:      worker, before a batch's heaps leave: xbgpu_beam_health_take() --> metrics; spectrum, if somebody asked for it
 *            HTTP: xbgpu_beam_health_describe() asks for a beam's spectrum and shows the last one
 * Measured:  in host memory, as sent.  Each beam about once in a second of data: batches whose number is that of the beam
 *            modulo the batches of a second; of these evenly spaced channels, about BEAM_HEALTH_SAMPLES samples in all.
 *            So the beams take turns, and the same data always give the same figures.
 * Threads:   take: the worker; describe: HTTP; the rest: main.   Blocking: never. */
#ifndef XBGPU_BEAM_HEALTH_H
#define XBGPU_BEAM_HEALTH_H

#include "common/http/status.h"
#include "xbgpu/layout.h"

#define BEAM_HEALTH_SAMPLES 4096

struct xbgpu_beam_health;

/* Registers the metrics.  With no beam configured '*health' is NULL, which all functions accept.  Returns 0 or negative errno. */
int xbgpu_beam_health_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                             struct xbgpu_beam_health **health);
void xbgpu_beam_health_destroy(struct xbgpu_beam_health *health);

/* A batch of all beams: heaps [beam] of 'pitch' bytes each that begin with [chan][spectrum][re, im], made of 'n_present'
 * antennas. */
void xbgpu_beam_health_take(struct xbgpu_beam_health *health, int64_t batch, const uint8_t *heaps, size_t pitch,
                            size_t n_present);

/* Adds "beams"; and "spectrum", where the query's stream is a beam. */
void xbgpu_beam_health_describe(struct xbgpu_beam_health *health, const struct status_query *query, json_t *into);

#endif
