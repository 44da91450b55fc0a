/* level.h - how strong an antenna's inputs are, over windows of about a second.
 *
 * Flow:      sums of squares of each output buffer (one output's, in order of time: fgpu_power_output()) --add-->
 *            windows --> dBFS
 * Windows:   a grid of window_samples on the time axis; a buffer belongs wholly to the window in which it begins.  So one
 *            is closed by the first buffer behind it, and has as many samples as its buffers: its mean is exact, its
 *            ends are not.  It is valid if its buffers follow each other, and those before and behind it, without a gap,
 *            and miss no input.
 * Scale:     0 dBFS is the power of a sine that just fills the digitiser's range, (2^(bits - 1) - 1)^2 / 2.
 * Threads:   pure functions on the caller's struct. */
#ifndef FGPU_LEVEL_H
#define FGPU_LEVEL_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stdint.h>

#define LEVEL_SILENCE_DBFS (-1000.0) /* for no power at all, of which there is no logarithm */

struct fgpu_level {
    int64_t window_samples;
    double full_scale;    /* power of 0 dBFS */
    bool started;         /* there was a buffer */
    int64_t window;       /* number of the open window */
    int64_t next_samples; /* end of the last buffer */
    bool whole;           /* nothing is missing in the open window so far */
    uint64_t sums[N_POLS];
    int64_t n_samples; /* of each polarisation */
    /* The last closed window. */
    double dbfs[N_POLS];
    bool valid;
    int64_t end_samples; /* where it ends */
    int64_t n_closed;    /* windows so far */
};

void fgpu_level_init(struct fgpu_level *level, int64_t window_samples, int sample_bits);

/* Takes in a buffer: power[pol] is the sum of the squares of 'n_samples' samples; 'whole' if none was missing.  Returns
 * true if a window was closed. */
bool fgpu_level_add(struct fgpu_level *level, int64_t timestamp_samples, int64_t n_samples,
                    const uint64_t power[N_POLS], bool whole);

#endif
