/* delay_file.h - delay models of an antenna in a text file: what is known before the start, and what is kept across
 * restarts.
 *
 *     # start      pol  delay     rate     phase  phase rate  [acceleration [phase acceleration]]
 *     # UNIX s          s         s/s      rad    rad/s        s/s^2         rad/s^2
 *     1760000000   0    1.25e-6   2.1e-9   0      0
 *     1760000060.5 1    1.37e-6   2.1e-9   0.1    -3e-4       4e-14
 *
 * One model a line, those of a polarisation in order of start; what follows a '#' is a comment.  The start has at most
 * nine decimals and is rounded to the nearest sample, half to even; the phase is wrapped. */
#ifndef FGPU_DELAY_FILE_H
#define FGPU_DELAY_FILE_H

#include "common/time/timebase.h"
#include "common/base/units.h"
#include "fgpu/delay.h"

#include <stddef.h>
#include <stdio.h>

/* Gives both polarisations' queues, of which the first model is zero, as in a new queue.  Refuses a delay beyond
 * recv.max_delay, either way.  Returns 0, or negative errno with one sentence in 'why' that begins with "PATH:line: ". */
int fgpu_delay_file_read(const char *path, const struct timebase *timebase, double max_delay_s,
                         struct fgpu_delay_queue pols[N_POLS], char *why, size_t why_bytes);

/* Writes what fgpu_delay_file_read() would read as the same, but for the start, which has whole nanoseconds. */
void fgpu_delay_file_write(FILE *out, const struct timebase *timebase, const struct fgpu_delay_queue pols[N_POLS]);

#endif
