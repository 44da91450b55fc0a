/* gain_file.h - reads a text file with an antenna's gains, which are known before the start.  Each line names an
 * output, a polarisation and channels.
 *
 *     # output  pol  channels  real  imaginary
 *     wide      0    *         0.5   0
 *     wide      0    300-310   0     0
 *     wide      1    17        0.3   -0.2
 *
 * Later lines override earlier lines.  A channel that is in no line keeps its output's configured gain (key
 * `gain`). */
#ifndef FGPU_CONFIG_GAIN_FILE_H
#define FGPU_CONFIG_GAIN_FILE_H

#include "fgpu/config/config.h"

#include <stddef.h>

/* Reads a file into gains[output], arrays of complex [chan][pol].  The caller has filled the arrays with the defaults.
 * For an output that the file must not name, the caller sets gains[output] to NULL.  Returns 0, or negative errno with
 * one sentence in 'why'.  The sentence begins with "PATH:line: ". */
int fgpu_gain_file_read(const char *path, const struct fgpu_config *config, float *const *gains, char *why,
                        size_t why_bytes);

#endif
