/* beam_health.h - statistics of the beams: power, zeros and number of antennas of each beam as metrics, and one beam's
 * spectrum for the status page.
 *
 * Flow:      worker, before a batch's heaps leave: xbgpu_beam_health_take() --> metrics, and a spectrum if HTTP has
 *            requested a spectrum
 *            HTTP: xbgpu_beam_health_describe() requests a beam's spectrum and shows the last spectrum
 * Measured:  samples in host memory, as sent.  Each beam is measured about once per second of data.  With n batches in
 *            a second, beam b is measured in each batch whose number has the same remainder modulo n as b.  In such a
 *            batch evenly spaced channels are measured, about BEAM_HEALTH_SAMPLES samples in all.  So the same data
 *            always give the same statistics.
 * Threads:   take: the worker; describe: HTTP; the rest: main.   Blocking: never. */
#ifndef XBGPU_BEAM_BEAM_HEALTH_H
#define XBGPU_BEAM_BEAM_HEALTH_H

#include "common/http/status.h"
#include "xbgpu/config/layout.h"

#define BEAM_HEALTH_SAMPLES 4096

struct xbgpu_beam_health;

/* Creates the statistics and registers the metrics.  If there are no beams, '*health' is NULL, which all functions
 * accept.  Returns 0 or negative errno. */
int xbgpu_beam_health_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                             struct xbgpu_beam_health **health);
void xbgpu_beam_health_destroy(struct xbgpu_beam_health *health);

/* Measures the beams that are due in a batch.  'n_present' antennas contributed to the batch.  'heaps' is [beam].
 * Each heap has 'pitch' bytes and begins with [chan][spectrum][re, im]. */
void xbgpu_beam_health_take(struct xbgpu_beam_health *health, int64_t batch, const uint8_t *heaps, size_t pitch,
                            size_t n_present);

/* Adds "beams" to the JSON, and "spectrum" if the query's stream is a beam. */
void xbgpu_beam_health_describe(struct xbgpu_beam_health *health, const struct status_query *query, json_t *into);

#endif
