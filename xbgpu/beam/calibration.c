/* calibration.c - sets the table of gains from requests and files. */
#include "xbgpu/beam/calibration.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/config/table_file.h"
#include "common/daemon/state_file.h"
#include "common/engine/gains.h"
#include "common/engine/labels.h"
#include "common/katcp/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MAGNITUDE 1e6

struct xbgpu_calibration_ant {
    struct xbgpu_calibration *all;
    size_t ant;
    bool keep[N_POLS]; /* [pol] true if a request has set the gains; only these gains are saved */
    struct state_file *file;
};

static struct gains_limits limits_of(const struct xbgpu_calibration *c)
{
    return (struct gains_limits){
        .n_chan = c->config->recv.n_chan,
        .magnitude = MAX_MAGNITUDE,
        .bad_channels = "channels must be *, one channel of the band, or first-last",
        .too_large = "a gain must have a magnitude of at most 1e6",
    };
}

static float *row_of(const struct xbgpu_calibration *c, size_t input)
{
    return c->gains + input * c->n_chan * 2;
}

bool xbgpu_calibration_take(struct xbgpu_calibration *c, size_t input, struct katcp_call *call)
{
    const struct gains_limits limits = limits_of(c);
    size_t n = (size_t)katcp_n_args(call) - 1, n_band = (size_t)limits.n_chan;
    struct xbgpu_calibration_ant *ant = &c->ants[input / N_POLS];

    if (n != 1 && n != n_band) {
        katcp_fail(call, "the request must have one gain or %zu gains (one for each channel of the band), not %zu",
                   n_band, n);
        return false;
    }
    float *gains = gains_of_call(call, 1, n, &limits);
    if (!gains)
        return false;
    const float *from = n == 1 ? gains : gains + (size_t)c->config->recv.chan_offset * 2;
    for (size_t chan = 0; chan < c->n_chan; chan++)
        memcpy(row_of(c, input) + 2 * chan, from + (n == 1 ? 0 : 2 * chan), 2 * sizeof(*gains));
    free(gains);
    c->is_set = true;
    ant->keep[input % N_POLS] = true;
    state_file_changed(ant->file);
    return true;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

struct reader {
    struct xbgpu_calibration *c;
    struct xbgpu_calibration_ant *ant; /* antenna whose saved file is read; NULL: the configured file is read */
};

static int read_row(const struct table_row *row, void *context)
{
    struct reader *r = context;
    struct xbgpu_calibration *c = r->c;
    const struct gains_limits limits = limits_of(c);
    struct gains_row found;

    if (row->n != 4)
        return table_file_refuse(row, "a line must have four fields: input, channels, real part and imaginary part",
                                 NULL);
    long input = labels_find(c->labels, row->fields[0], strlen(row->fields[0]));
    if (input < 0 || (r->ant && (size_t)input / N_POLS != r->ant->ant))
        return table_file_refuse(row, "the first field must be the label or the number of an input", row->fields[0]);
    int err = gains_read_row(row, &limits, &found);
    int64_t offset = c->config->recv.chan_offset, end = offset + (int64_t)c->n_chan;
    for (int64_t chan = found.first > offset ? found.first : offset; !err && chan <= found.last && chan < end; chan++)
        memcpy(row_of(c, (size_t)input) + 2 * (chan - offset), found.gain, sizeof(found.gain));
    if (r->ant)
        r->ant->keep[input % N_POLS] = true;
    return err;
}

static bool write_ant(FILE *text, void *arg)
{
    const struct xbgpu_calibration_ant *ant = arg;
    const struct xbgpu_calibration *c = ant->all;

    fputs("# input, channels of the band, real and imaginary part of the gain\n", text);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        size_t input = ant->ant * N_POLS + pol;
        if (ant->keep[pol])
            gains_write_rows(text, c->labels->labels[input], row_of(c, input), 2, c->config->recv.chan_offset,
                             (int64_t)c->n_chan);
    }
    return ant->keep[0] || ant->keep[1];
}

/* Reads the saved gains of an antenna.  If the file has an error, logs one sentence and uses none of its gains. */
static int restore(struct xbgpu_calibration *c, struct xbgpu_calibration_ant *ant)
{
    const char *path = state_file_path(ant->file);
    size_t bytes = N_POLS * c->n_chan * 2 * sizeof(float);
    float *gains = row_of(c, ant->ant * N_POLS), *before = path ? malloc(bytes) : NULL;
    struct reader reader = {c, ant};
    char why[512] = "";

    if (!path)
        return 0;
    if (!before)
        return -ENOMEM;
    memcpy(before, gains, bytes);
    int err = table_file_read(path, read_row, &reader, why, sizeof(why));
    if (err) {
        log_warning("%s; the file is ignored", why);
        state_file_ignored(ant->file);
        memcpy(gains, before, bytes);
        memset(ant->keep, 0, sizeof(ant->keep));
    }
    c->is_set = c->is_set || !err;
    free(before);
    return err == -ENOMEM ? err : 0;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int read_config(struct xbgpu_calibration *c, char *why, size_t why_bytes)
{
    const char *path = c->config->steering.calibration;
    struct reader reader = {c, NULL};
    char sentence[512] = "";
    int err = path ? table_file_read(path, read_row, &reader, sentence, sizeof(sentence)) : 0;

    c->is_set = path != NULL;
    if (err)
        snprintf(why, why_bytes, "steering.calibration: %s", sentence);
    return err;
}

int xbgpu_calibration_init(struct xbgpu_calibration *c, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct state_files *files,
                           char *why, size_t why_bytes)
{
    size_t n_values = layout->n_ants * N_POLS * layout->n_chan * 2;

    *c = (struct xbgpu_calibration){
        .config = config,
        .labels = labels,
        .n_inputs = layout->n_ants * N_POLS,
        .n_chan = layout->n_chan,
        .gains = calloc(n_values, sizeof(*c->gains)),
        .ants = calloc(layout->n_ants, sizeof(*c->ants)),
    };
    if (!c->gains || !c->ants)
        return -ENOMEM;
    for (size_t i = 0; i < n_values; i += 2)
        c->gains[i] = 1;
    int err = read_config(c, why, why_bytes);
    for (size_t a = 0; !err && a < layout->n_ants; a++) {
        char name[160];
        snprintf(name, sizeof(name), "calibration@%s", labels->antennas[a]);
        c->ants[a] = (struct xbgpu_calibration_ant){.all = c, .ant = a};
        err = state_files_add(files, name, write_ant, &c->ants[a], &c->ants[a].file);
        if (!err)
            err = restore(c, &c->ants[a]);
    }
    return err;
}

void xbgpu_calibration_fini(struct xbgpu_calibration *c)
{
    free(c->gains);
    free(c->ants);
}
