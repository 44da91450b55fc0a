/* incoherent.h - the weights of an incoherent beam: from requests to integers on the device.
 *
 * Flow:      commands --set--> wanted --xbgpu_incoherent_begin, with an input--> staging --xbgpu_incoherent_upload-->
 *            weights
 * Values:    an input's amplitude is its weight times the square of the gain.  The integers of an antenna whose inputs
 *            have the amplitudes x and y are x, y and sqrt(x y), times 2^16 and rounded half to even.  So powers count
 *            (1/256 of a step of a voltage)^2, as those of coherent beams with a weight of 1.
 * Range:     amplitudes are clipped to 0 and xbgpu_incoherent_max().  The powers of a window then fit 2^61.
 * Snapshot:  all of an input has the weights that were wanted when the input began.
 * Staging:   pinned memory, of inputs by turns.  An input that begins is LANE_N_INPUTS after one whose uploads have been
 *            done.
 * Threads:   the worker, except init and fini (main); the functions of configurations: any.
 * Blocking:  never; nothing allocates after init. */
#ifndef XBGPU_INCOHERENT_H
#define XBGPU_INCOHERENT_H

#include "common/engine/lane.h"
#include "kernels/beamform/beam_coefficients.h"
#include "kernels/beamform/beam_incoherent.h"
#include "xbgpu/layout.h"

#include <stdbool.h>

struct xbgpu_incoherent {
    struct device *device;
    size_t n_ants;                                          /* [const] */
    double max;                                             /* [const] amplitude */
    struct beam_incoherent_weights *wanted;                 /* [ant] as set last */
    struct beam_incoherent_weights *staging[LANE_N_INPUTS]; /* [const] pinned: [ant] */
    struct beam_incoherent_weights *weights;                /* [const] device: [ant] */
    size_t turn;                                            /* of the current input, in 'staging' */
    bool is_changed;                                        /* since the current input began */
    bool is_due;                                            /* 'staging' has what the device has not */
};

/* The largest amplitude of an input in a stream.  It is below 1 if a sum has too many antennas, spectra and channels. */
double xbgpu_incoherent_max(const struct xbgpu_config *config, const struct xbgpu_config_detected *stream);

/* Amplitudes of 1, for zeros.  Returns 0 or negative errno; fini follows in either case. */
int xbgpu_incoherent_init(struct xbgpu_incoherent *incoherent, const struct xbgpu_config *config,
                          const struct xbgpu_config_detected *stream, struct device *device);

/* The device must be idle.  Zeros are accepted. */
void xbgpu_incoherent_fini(struct xbgpu_incoherent *incoherent);

/* Adds the memory of one stream's weights. */
void xbgpu_incoherent_add_memory(struct xbgpu_layout *layout, bool on_gpu);

/* Sets the amplitudes, of values [pol][ant]; nothing else of them is used. */
void xbgpu_incoherent_set(struct xbgpu_incoherent *incoherent, const struct beam_steering *values);

/* A new input. */
void xbgpu_incoherent_begin(struct xbgpu_incoherent *incoherent);

/* Queues the upload of the input's weights if it is due, after all that uses the old ones. */
void xbgpu_incoherent_upload(struct xbgpu_incoherent *incoherent, struct device_stream *compute);

#endif
