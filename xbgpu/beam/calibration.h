/* calibration.h - the present calibration gains of each input, for all beams, in this engine's slice of the band.
 *
 * Text:      a row for each range of channels of the whole band; the engine uses the channels of its slice:
 *
 *     INPUT CHANNELS REAL IMAGINARY      INPUT is a label or a number; CHANNELS is *, 17 or 300-310
 *
 * Saved:     the gains that requests have set, in one file for each antenna, calibration@ANTENNA.  Saved gains
 *            override the gains in the file that steering.calibration names.  A saved file that does not fit is
 *            ignored with one sentence in the log.
 * Threads:   main.   Blocking: only at the start, while files are read. */
#ifndef XBGPU_BEAM_CALIBRATION_H
#define XBGPU_BEAM_CALIBRATION_H

#include "xbgpu/config/layout.h"

#include <stdbool.h>

struct katcp_call;
struct labels;
struct state_files;
struct xbgpu_calibration_ant;

struct xbgpu_calibration {
    const struct xbgpu_config *config;
    const struct labels *labels;
    size_t n_inputs, n_chan; /* n_chan is the number of channels of the slice */
    float *gains;            /* complex [input][chan] */
    bool is_set;             /* true if a file or a request has set a gain */
    struct xbgpu_calibration_ant *ants;
};

/* Sets all gains to 1, then sets the gains that the files contain.  Returns 0, or negative errno with one sentence in
 * 'why'.  The caller must call fini in either case. */
int xbgpu_calibration_init(struct xbgpu_calibration *calibration, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct state_files *files,
                           char *why, size_t why_bytes);

/* Frees the gains.  A zero-initialised calibration is accepted. */
void xbgpu_calibration_fini(struct xbgpu_calibration *calibration);

/* Returns an input's gains: complex [chan] of the slice. */
static inline const float *xbgpu_calibration_gains(const struct xbgpu_calibration *calibration, size_t input)
{
    return calibration->gains + input * calibration->n_chan * 2;
}

/* Sets the gains of an input from a request's arguments, from argument 1 to the last.  There must be one gain, or one
 * gain for each channel of the band.  On an error, fails the call and returns false. */
bool xbgpu_calibration_take(struct xbgpu_calibration *calibration, size_t input, struct katcp_call *call);

#endif
