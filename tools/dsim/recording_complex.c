/* recording_complex.c - complex recordings as real samples at twice the rate, with 0 Hz at a quarter of that rate.
 *
 * The recording x is interpolated between its samples and mixed: y[n] = Re(x(n / 2) i^n).  So y[2 m] = (-1)^m Re x[m],
 *     y[2 m + 1] = -(-1)^m Im x(m + 1/2).  The real parts need no interpolation.  The imaginary parts are interpolated
 *     halfway between two samples (dsim/sinc.h).  A tone keeps its amplitude.  Before the start and after the end, x
 *     is 0.  The real and the imaginary parts are columns of a raw file. */
#include "common/base/units.h"
#include "common/base/why.h"
#include "kernels/util/clones.h"
#include "tools/dsim/recording.h"
#include "tools/dsim/sinc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ROWS 4096
/* The filter computes a value halfway between two rows.  N_BEFORE is the number of rows that the filter reads before
 * the two rows. */
#define N_BEFORE (DSIM_SINC_TAPS / 2 - 1)

struct complex_recording {
    struct dsim_recording base;
    struct dsim_recording *real, *imaginary;
    double taps[DSIM_SINC_TAPS];
    double real_values[BLOCK_ROWS];
    double imaginary_values[BLOCK_ROWS + DSIM_SINC_TAPS - 1];
    double middles[BLOCK_ROWS];
};

/* Computes middles[i] = sum over k of taps[k] in[i + k]. */
KERNEL_CLONES
static void interpolate(const double *restrict in, const double *restrict taps, size_t n, double *restrict middles)
{
    memset(middles, 0, n * sizeof(*middles));
    for (size_t k = 0; k < DSIM_SINC_TAPS; k++)
        for (size_t i = 0; i < n; i++)
            middles[i] += taps[k] * in[i + k];
}

/* Reads 'n' rows of the real or the imaginary part, beginning with row 'first', into 'values'.  Rows that do not
 * exist are read as 0. */
static int read_rows(struct dsim_recording *part, int64_t first, size_t n, double *values, char *why, size_t why_bytes)
{
    int64_t begin = first > 0 ? first : 0, end = first + (int64_t)n;

    end = end < part->n_samples ? end : part->n_samples;
    memset(values, 0, n * sizeof(*values));
    return part->ops->read(part, begin, (size_t)(end - begin), values + (begin - first), why, why_bytes);
}

/* Computes n_samples real samples, beginning with sample 'first'.  The samples must come from at most BLOCK_ROWS
 * rows.  Sample 'first' comes from row first / 2. */
static int read_block(struct complex_recording *recording, int64_t first, size_t n_samples, double *values, char *why,
                      size_t why_bytes)
{
    int64_t first_row = first / 2;
    size_t n_rows = (size_t)((first + (int64_t)n_samples + 1) / 2 - first_row);

    assert(n_rows <= BLOCK_ROWS);
    int err = read_rows(recording->real, first_row, n_rows, recording->real_values, why, why_bytes);

    if (!err)
        err = read_rows(recording->imaginary, first_row - N_BEFORE, n_rows + DSIM_SINC_TAPS - 1,
                        recording->imaginary_values, why, why_bytes);
    if (err)
        return err;
    interpolate(recording->imaginary_values, recording->taps, n_rows, recording->middles);
    for (size_t i = 0; i < n_samples; i++) {
        int64_t sample = first + (int64_t)i, row = sample / 2 - first_row;
        double value = sample % 2 ? -recording->middles[row] : recording->real_values[row];
        values[i] = sample / 2 % 2 ? -value : value;
    }
    return 0;
}

static int complex_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                        size_t why_bytes)
{
    struct complex_recording *recording = CONTAINER_OF(base, struct complex_recording, base);
    int err = 0;

    for (size_t done = 0, n; done < n_samples && !err; done += n) {
        size_t room = 2 * BLOCK_ROWS - (size_t)((first + (int64_t)done) % 2);
        n = n_samples - done < room ? n_samples - done : room;
        err = read_block(recording, first + (int64_t)done, n, values + done, why, why_bytes);
    }
    return err;
}

static void complex_close(struct dsim_recording *base)
{
    struct complex_recording *recording = CONTAINER_OF(base, struct complex_recording, base);

    recording->real->ops->close(recording->real);
    recording->imaginary->ops->close(recording->imaginary);
    free(recording);
}

static const struct dsim_recording_ops complex_ops = {.read = complex_read, .close = complex_close};

int dsim_recording_complex_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                                struct dsim_recording **recording, char *why, size_t why_bytes)
{
    struct dsim_recording_config part = *config;
    struct dsim_recording *real, *imaginary;

    part.kind = DSIM_RECORDING_INT16;
    part.n_columns = 2 * config->n_columns;
    part.column = 2 * config->column;
    int err = dsim_recording_raw_open(&part, base, &real, why, why_bytes);
    if (err)
        return err;
    part.column++;
    err = dsim_recording_raw_open(&part, base, &imaginary, why, why_bytes);
    if (err)
        goto undo_real;
    struct complex_recording *made = malloc(sizeof(*made));
    if (!made) {
        err = why_out_of_memory(why, why_bytes);
        goto undo_imaginary;
    }
    made->base = *base;
    made->base.ops = &complex_ops;
    made->base.n_samples = 2 * real->n_samples;
    made->base.n_rest_bytes = real->n_rest_bytes;
    made->real = real;
    made->imaginary = imaginary;
    for (int k = 0; k < DSIM_SINC_TAPS; k++)
        made->taps[k] = dsim_sinc_tap(k - N_BEFORE - 0.5);
    *recording = &made->base;
    return 0;
undo_imaginary:
    imaginary->ops->close(imaginary);
undo_real:
    real->ops->close(real);
    return err;
}
