/* gain_file.c - reads a file of gains once, before the engine starts.  The gains reach the worker as commands, like
 * all other gains. */
#include "fgpu/config/gain_file.h"

#include "common/base/units.h"
#include "common/config/table_file.h"
#include "common/engine/gains.h"

#include <string.h>

#define N_FIELDS 5

struct reader {
    const struct fgpu_config *config;
    float *const *gains;
};

static int read_row(const struct table_row *row, void *context)
{
    const struct reader *r = context;
    struct gains_limits limits = {
        .magnitude = FGPU_GAIN_MAX,
        .bad_channels = "channels must be *, one channel of the output, or first-last",
        .too_large =
            "the gain must have a magnitude of at most " FGPU_GAIN_MAX_TEXT "; larger gains saturate all values",
    };
    struct gains_row found;
    size_t o = 0;

    if (row->n != N_FIELDS)
        return table_file_refuse(
            row, "a line must have five fields: output, polarisation, channels, real part and imaginary part", NULL);
    while (o < r->config->outputs.n && strcmp(fgpu_config_output(r->config, o)->name, row->fields[0]) != 0)
        o++;
    if (o == r->config->outputs.n || !r->gains[o])
        return table_file_refuse(row, "the first field must be the name of an output", row->fields[0]);
    if (strcmp(row->fields[1], "0") != 0 && strcmp(row->fields[1], "1") != 0)
        return table_file_refuse(row, "the polarisation must be 0 or 1", row->fields[1]);
    limits.n_chan = fgpu_config_output(r->config, o)->n_chan;
    int err = gains_read_row(row, &limits, &found);
    for (int64_t chan = found.first; !err && chan <= found.last; chan++)
        memcpy(r->gains[o] + (chan * N_POLS + (row->fields[1][0] - '0')) * 2, found.gain, sizeof(found.gain));
    return err;
}

int fgpu_gain_file_read(const char *path, const struct fgpu_config *config, float *const *gains, char *why,
                        size_t why_bytes)
{
    struct reader r = {config, gains};

    return table_file_read(path, read_row, &r, why, why_bytes);
}
