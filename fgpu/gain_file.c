/* gain_file.c - read once, before the start; what it gives goes the way of every other command. */
#include "fgpu/gain_file.h"

#include "common/base/units.h"
#include "common/config/table_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define N_FIELDS 5

struct reader {
    const struct fgpu_config *config;
    float *const *gains;
};

/* "*", "17" or "300-310". */
static bool parse_channels(const char *text, int64_t n_chan, int64_t *first, int64_t *last)
{
    int end = 0;

    *first = 0;
    *last = n_chan - 1;
    if (strcmp(text, "*") == 0)
        return true;
    if (strspn(text, "0123456789-") != strlen(text) || strlen(text) > 20)
        return false;
    if (sscanf(text, "%9lld-%9lld%n", (long long *)first, (long long *)last, &end) != 2 || text[end]) {
        if (sscanf(text, "%9lld%n", (long long *)first, &end) != 1 || text[end])
            return false;
        *last = *first;
    }
    return *first >= 0 && *first <= *last && *last < n_chan;
}

static int read_row(const struct table_row *row, void *context)
{
    const struct reader *r = context;
    double real, imaginary;
    int64_t first, last;
    size_t o = 0;

    if (row->n != N_FIELDS)
        return table_file_refuse(row, "a line must have output, polarisation, channels, real and imaginary part", NULL);
    while (o < r->config->outputs.n && strcmp(fgpu_config_output(r->config, o)->name, row->fields[0]) != 0)
        o++;
    if (o == r->config->outputs.n || !r->gains[o])
        return table_file_refuse(row, "the output must be the name of one", row->fields[0]);
    if (strcmp(row->fields[1], "0") != 0 && strcmp(row->fields[1], "1") != 0)
        return table_file_refuse(row, "the polarisation must be 0 or 1", row->fields[1]);
    if (!parse_channels(row->fields[2], fgpu_config_output(r->config, o)->n_chan, &first, &last))
        return table_file_refuse(row, "channels must be *, one channel of the output, or first-last", row->fields[2]);
    if (!table_file_number(row->fields[3], &real))
        return table_file_refuse(row, "the real part must be a number", row->fields[3]);
    if (!table_file_number(row->fields[4], &imaginary))
        return table_file_refuse(row, "the imaginary part must be a number", row->fields[4]);
    if (hypot(real, imaginary) > FGPU_GAIN_MAX)
        return table_file_refuse(
            row, "the gain must have a magnitude of at most " FGPU_GAIN_MAX_TEXT ", from which on all values saturate",
            NULL);
    for (int64_t chan = first; chan <= last; chan++) {
        float *gain = r->gains[o] + (chan * N_POLS + (row->fields[1][0] - '0')) * 2;
        gain[0] = (float)real;
        gain[1] = (float)imaginary;
    }
    return 0;
}

int fgpu_gain_file_read(const char *path, const struct fgpu_config *config, float *const *gains, char *why,
                        size_t why_bytes)
{
    struct reader r = {config, gains};

    return table_file_read(path, read_row, &r, why, why_bytes);
}
