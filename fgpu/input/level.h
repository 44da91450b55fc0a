/* level.h - the power of an antenna's inputs, over windows of about a second.
 *
 * Flow:      sums of squares of each output buffer --add--> windows --> dBFS
 * Buffers:   the buffers of one output (fgpu_power_output()), in order of time.
 * Windows:   the time axis is divided into windows of window_samples.  A buffer belongs to the window in which the
 *            buffer begins.  The first buffer of the next window closes a window.  A window consists of whole buffers,
 *            so the mean is exact but the ends are not on the grid.  A window is valid if its buffers lack no input,
 *            and if there is no gap before, between or after these buffers.
 * Scale:     0 dBFS is the power of a sine that just fills the digitiser's range.  This power is
 *            (2^(bits - 1) - 1)^2 / 2.
 * Threads:   pure functions on the caller's struct. */
#ifndef FGPU_INPUT_LEVEL_H
#define FGPU_INPUT_LEVEL_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stdint.h>

#define LEVEL_SILENCE_DBFS (-1000.0) /* level reported for power 0, whose logarithm does not exist */

struct fgpu_level {
    int64_t window_samples;
    double full_scale;    /* mean square of a sample at 0 dBFS */
    bool started;         /* true if a buffer has been added */
    int64_t window;       /* number of the open window */
    int64_t next_samples; /* timestamp of the last buffer's end */
    bool whole;           /* true if no sample of the open window has been missing so far */
    uint64_t sums[N_POLS];
    int64_t n_samples; /* number of samples of each polarisation in the open window */
    /* Results of the last closed window. */
    double dbfs[N_POLS];
    bool valid;
    int64_t end_samples; /* end of the window */
    int64_t n_closed;    /* number of windows closed so far */
};

void fgpu_level_init(struct fgpu_level *level, int64_t window_samples, int sample_bits);

/* Adds a buffer.  power[pol] is the sum of the squares of 'n_samples' samples; 'whole' is true if no sample of the
 * buffer was missing.  Returns true if a window was closed. */
bool fgpu_level_add(struct fgpu_level *level, int64_t timestamp_samples, int64_t n_samples,
                    const uint64_t power[N_POLS], bool whole);

#endif
