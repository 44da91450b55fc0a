/* incoherent.h - the weights of an incoherent beam: converts the weights and gains of requests to integers on the
 * device.
 *
 * Flow:      commands --set--> wanted --xbgpu_incoherent_begin, with an input--> staging --xbgpu_incoherent_upload-->
 *            weights
 * Values:    an input's amplitude is its weight times the square of the gain.  If an antenna's inputs have the
 *            amplitudes x and y, the antenna's integers are x, y and sqrt(x * y), each multiplied by 2^16 and rounded
 *            half to even.  So the unit of powers is the square of 1/256 of a voltage step, as for coherent beams with
 *            a weight of 1.
 * Range:     amplitudes are limited to the range from 0 to xbgpu_incoherent_max().  Then the powers of a window are at
 *            most 2^61.
 * Snapshot:  all batches of a device input use the weights that were in 'wanted' when the device input began.
 * Staging:   pinned memory, one buffer for each of LANE_N_INPUTS inputs in rotation.  When a device input begins, the
 *            upload that last used the same buffer has ended.
 * Threads:   the worker, except init and fini (main); the functions of configurations: any.
 * Blocking:  never; nothing allocates after init. */
#ifndef XBGPU_BEAM_INCOHERENT_H
#define XBGPU_BEAM_INCOHERENT_H

#include "common/engine/lane.h"
#include "kernels/beamform/beam_coefficients.h"
#include "kernels/beamform/beam_incoherent.h"
#include "xbgpu/config/layout.h"

#include <stdbool.h>

struct memory_use;

struct xbgpu_incoherent {
    struct device *device;
    size_t n_ants;                                          /* [const] */
    double max;                                             /* [const] largest amplitude */
    struct beam_incoherent_weights *wanted;                 /* [ant] weights that were set last */
    struct beam_incoherent_weights *staging[LANE_N_INPUTS]; /* [const] pinned: [ant] */
    struct beam_incoherent_weights *weights;                /* [const] device: [ant] */
    size_t turn;                                            /* index of the current device input in 'staging' */
    bool is_changed;                                        /* true if 'wanted' is newer than the current input */
    bool is_due;                                            /* true if 'staging' has newer weights than the device */
};

/* Returns the largest allowed amplitude of an antenna's input.  If a stream's sums have many antennas, spectra and
 * channels, this limit can be below 1. */
double xbgpu_incoherent_max(const struct xbgpu_config *config, const struct xbgpu_config_detected *stream);

/* Initialises a zeroed struct with amplitudes of 1.  Returns 0 or negative errno; the caller must call fini in either
 * case. */
int xbgpu_incoherent_init(struct xbgpu_incoherent *incoherent, const struct xbgpu_config *config,
                          const struct xbgpu_config_detected *stream, struct device *device);

/* Frees the weights.  The device must be idle.  A zero-initialised struct is accepted. */
void xbgpu_incoherent_fini(struct xbgpu_incoherent *incoherent);

/* Adds the memory of one stream's weights to 'memory'. */
void xbgpu_incoherent_add_memory(const struct xbgpu_layout *layout, bool on_gpu, struct memory_use *memory);

/* Sets the amplitudes from 'values' [pol][ant].  Other fields of 'values' are ignored. */
void xbgpu_incoherent_set(struct xbgpu_incoherent *incoherent, const struct beam_steering *values);

/* Begins an input. */
void xbgpu_incoherent_begin(struct xbgpu_incoherent *incoherent);

/* Queues the upload of the device input's weights, if the device has older weights.  The upload runs after all queued
 * work that uses the old weights. */
void xbgpu_incoherent_upload(struct xbgpu_incoherent *incoherent, struct device_stream *compute);

#endif
