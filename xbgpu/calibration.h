/* calibration.h - the gains that calibrate inputs for all beams, in this engine's slice of the band, as set last.
 *
 * Text:      a row for each run of channels of the whole band, of which the engine takes its own:
 *
 *     INPUT CHANNELS REAL IMAGINARY      INPUT is a label or a number; CHANNELS is *, 17 or 300-310
 *
 * Kept:      the inputs that were set, in a file for each antenna, calibration@ANTENNA; these go before the file that
 *            steering.calibration names.  A kept file that does not fit is ignored with one sentence.
 * Threads:   main.   Blocking: never, but while files are read, before the start. */
#ifndef XBGPU_CALIBRATION_H
#define XBGPU_CALIBRATION_H

#include "xbgpu/layout.h"

#include <stdbool.h>

struct katcp_call;
struct labels;
struct state_files;
struct xbgpu_calibration_ant;

struct xbgpu_calibration {
    const struct xbgpu_config *config;
    const struct labels *labels;
    size_t n_inputs, n_chan; /* n_chan: of the slice */
    float *gains;            /* complex [input][chan] */
    bool is_set;             /* any gain, by a file or a request */
    struct xbgpu_calibration_ant *ants;
};

/* Gains of 1, and what files say.  Returns 0 or negative errno with one sentence in 'why'; fini follows in either
 * case. */
int xbgpu_calibration_init(struct xbgpu_calibration *calibration, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct state_files *files,
                           char *why, size_t why_bytes);

/* Zeros are accepted. */
void xbgpu_calibration_fini(struct xbgpu_calibration *calibration);

/* Complex [chan] of the slice. */
static inline const float *xbgpu_calibration_gains(const struct xbgpu_calibration *calibration, size_t input)
{
    return calibration->gains + input * calibration->n_chan * 2;
}

/* Takes the gains of an input from argument 1 on: one, or one for each channel of the band.  Returns false having
 * failed the call. */
bool xbgpu_calibration_take(struct xbgpu_calibration *calibration, size_t input, struct katcp_call *call);

#endif
