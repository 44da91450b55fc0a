/* gain_file.h - an antenna's gains by output, polarisation and channel from a text file, for gains known before the
 * start.
 *
 *     # output  pol  channels  real  imaginary
 *     wide      0    *         0.5   0
 *     wide      0    300-310   0     0
 *     wide      1    17        0.3   -0.2
 *
 * Later lines override earlier lines.  A channel that no line names keeps its output's `gain`. */
#ifndef FGPU_GAIN_FILE_H
#define FGPU_GAIN_FILE_H

#include "fgpu/config.h"

#include <stddef.h>

/* Reads a file into gains[output]: complex [chan][pol], filled with the defaults by the caller.  gains[output] is NULL
 * for an output that the file must not name.  Returns 0, or negative errno with one sentence in 'why' that begins with
 * "PATH:line: ". */
int fgpu_gain_file_read(const char *path, const struct fgpu_config *config, float *const *gains, char *why,
                        size_t why_bytes);

#endif
