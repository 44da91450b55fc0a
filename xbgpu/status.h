/* status.h - xbgpu's part of /status.json: its outputs, the level of each antenna, and spectra of chosen baselines.
 *
 * Flow:      HTTP --request for baselines (snapshot.h)--> worker: takes a sample of the output's next downloaded dump
 *            --sample--> HTTP
 * Samples:   an output has at most one sample per second, and no sample without a request.  A sample copies the
 *            autocorrelations and the product of up to XBGPU_N_VIEWS pairs of antennas.  A sample also averages all
 *            antennas' autocorrelations over at most XBGPU_PREVIEW_LEVELS of their channels.  In the largest array a
 *            sample takes some milliseconds of the worker's time (xbgpu_snapshot_seconds).  Sampling occupies no extra
 *            dump buffer, and delays the sampled dump only by this time.
 * Values:    sums are divided by the number of summed spectra.  Flagged values are unknown.
 * Threads:   the worker calls xbgpu_status_sample(), HTTP calls xbgpu_status_describe(). */
#ifndef XBGPU_STATUS_H
#define XBGPU_STATUS_H

#include "common/http/status.h"
#include "xbgpu/send.h"

#define XBGPU_N_VIEWS        4
#define XBGPU_PREVIEW_LEVELS 65536

struct xbgpu_status;

/* Creates the status.  Returns 0 or -ENOMEM. */
int xbgpu_status_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                        struct xbgpu_status **status);

/* Copies values of a downloaded dump for the status page, if HTTP has requested a sample.  Called before the dump is
 * sent. */
void xbgpu_status_sample(struct xbgpu_status *status, const struct xbgpu_dump *dump);

/* Adds xbgpu's part to the JSON, as common/http/status.h requires.  'arg' is the struct xbgpu_status. */
void xbgpu_status_describe(void *arg, const struct status_query *query, json_t *into);

/* Destroys the status.  NULL is accepted. */
void xbgpu_status_destroy(struct xbgpu_status *status);

#endif
