/* status.h - what xbgpu adds to /status.json: its outputs, the level of each antenna, and spectra of chosen baselines.
 *
 * Flow:      HTTP asks, naming baselines --snapshot.h--> worker, when the next dump of an output has been downloaded:
 *            looks --> HTTP
 * Looks:     at most one a second of each output, and none unless somebody asks.  A look copies the autocorrelations and
 *            the product of up to XBGPU_N_VIEWS pairs of antennas, and averages all antennas' autocorrelations over at
 *            most XBGPU_PREVIEW_LEVELS of their channels: some milliseconds of the worker in the largest array
 *            (xbgpu_look_seconds).  It holds no dump and delays none but by that.
 * Values:    divided by the spectra that went into them.  Flagged values are not known.
 * Threads:   xbgpu_status_sample() is the worker's, xbgpu_status_describe() HTTP's. */
#ifndef XBGPU_STATUS_H
#define XBGPU_STATUS_H

#include "common/http/status.h"
#include "xbgpu/send.h"

#define XBGPU_N_VIEWS        4
#define XBGPU_PREVIEW_LEVELS 65536

struct xbgpu_status;

/* Returns 0 or -ENOMEM. */
int xbgpu_status_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                        struct xbgpu_status **status);

/* A downloaded dump, before it is sent. */
void xbgpu_status_sample(struct xbgpu_status *status, const struct xbgpu_dump *dump);

/* As of status.h; 'arg' is the struct xbgpu_status. */
void xbgpu_status_describe(void *arg, const struct status_query *query, json_t *into);

/* NULL is accepted. */
void xbgpu_status_destroy(struct xbgpu_status *status);

#endif
