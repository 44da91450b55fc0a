/* recording_raw.c - raw recordings: a header, which is skipped, then rows of integers or floats.  One column is
 * played. */
#include "common/base/units.h"
#include "common/base/why.h"
#include "tools/dsim/recording.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Size of the buffer for one read, in bytes.  A row fits in the buffer, because a row has at most 65536 columns of 4
 * bytes. */
#define BUFFER_BYTES 262144

struct raw {
    struct dsim_recording base;
    enum dsim_recording_kind kind;
    int64_t first_byte; /* offset of the column's first sample in the file */
    size_t sample_bytes;
    size_t row_bytes;
    uint8_t buffer[BUFFER_BYTES];
};

static size_t sample_bytes(enum dsim_recording_kind kind)
{
    return kind == DSIM_RECORDING_INT8 ? 1 : kind == DSIM_RECORDING_FLOAT32 ? 4 : 2;
}

static double load_float32(const uint8_t *bytes)
{
    uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;

    memcpy(&value, &word, sizeof(value));
    return (double)value;
}

/* Converts one sample of each row to a double.  'bytes' begins with the first of these samples. */
static void convert(enum dsim_recording_kind kind, const uint8_t *bytes, size_t row_bytes, size_t n_samples,
                    double *values)
{
    switch (kind) {
    case DSIM_RECORDING_INT8:
        for (size_t i = 0; i < n_samples; i++)
            values[i] = (int8_t)bytes[i * row_bytes];
        break;
    case DSIM_RECORDING_INT16:
        for (size_t i = 0; i < n_samples; i++)
            values[i] = (int16_t)(bytes[i * row_bytes] | bytes[i * row_bytes + 1] << 8);
        break;
    case DSIM_RECORDING_INT16BE:
        for (size_t i = 0; i < n_samples; i++)
            values[i] = (int16_t)(bytes[i * row_bytes + 1] | bytes[i * row_bytes] << 8);
        break;
    case DSIM_RECORDING_FLOAT32:
        for (size_t i = 0; i < n_samples; i++)
            values[i] = load_float32(bytes + i * row_bytes);
        break;
    case DSIM_RECORDING_VDIF:
    case DSIM_RECORDING_CI16: assert(!"not a column of numbers");
    }
}

static void zero_nans(struct raw *raw, size_t n_samples, double *values)
{
    size_t n_nans = 0;

    for (size_t i = 0; i < n_samples; i++) {
        if (!isnan(values[i]))
            continue;
        values[i] = 0.0;
        n_nans++;
    }
    if (n_nans == 0)
        return;
    counter_add(&raw->base.counters->n_invalid_samples, n_nans);
    log_limited(&raw->base.counters->limit, LOG_LEVEL_WARNING,
                "%s: samples that are not numbers (NaN) are played as zeros.", raw->base.path);
}

static int raw_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                    size_t why_bytes)
{
    struct raw *raw = CONTAINER_OF(base, struct raw, base);

    while (n_samples > 0) {
        /* The read ends after the sample of the last row, because the file may end there. */
        size_t n_rows = (BUFFER_BYTES - raw->sample_bytes) / raw->row_bytes + 1;
        size_t n = n_samples < n_rows ? n_samples : n_rows;
        int err = dsim_recording_pread(base, raw->first_byte + first * (int64_t)raw->row_bytes, raw->buffer,
                                       (n - 1) * raw->row_bytes + raw->sample_bytes, why, why_bytes);
        if (err)
            return err;
        convert(raw->kind, raw->buffer, raw->row_bytes, n, values);
        if (raw->kind == DSIM_RECORDING_FLOAT32)
            zero_nans(raw, n, values);
        first += (int64_t)n;
        values += n;
        n_samples -= n;
    }
    return 0;
}

static void raw_close(struct dsim_recording *base)
{
    free(CONTAINER_OF(base, struct raw, base));
}

static const struct dsim_recording_ops raw_ops = {.read = raw_read, .close = raw_close};

int dsim_recording_raw_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                            struct dsim_recording **recording, char *why, size_t why_bytes)
{
    size_t bytes = sample_bytes(config->kind);
    size_t row_bytes = bytes * (size_t)config->n_columns;
    int64_t data_bytes = base->file_bytes - config->header_bytes;
    int64_t n_rows = data_bytes > 0 ? data_bytes / (int64_t)row_bytes : 0;

    assert(config->column >= 0 && config->column < config->n_columns && row_bytes <= BUFFER_BYTES);
    if (n_rows <= config->start_samples)
        return why_fail(
            -EINVAL, why, why_bytes,
            "%s has %lld bytes, which hold %lld samples of each column after the header of %lld bytes; start "
            "must be less than this number of samples, not %lld",
            base->path, (long long)base->file_bytes, (long long)n_rows, (long long)config->header_bytes,
            (long long)config->start_samples);
    struct raw *raw = malloc(sizeof(*raw));
    if (!raw)
        return why_out_of_memory(why, why_bytes);
    raw->base = *base;
    raw->base.ops = &raw_ops;
    raw->base.n_samples = n_rows - config->start_samples;
    raw->base.n_rest_bytes = data_bytes % (int64_t)row_bytes;
    raw->kind = config->kind;
    raw->first_byte =
        config->header_bytes + config->start_samples * (int64_t)row_bytes + config->column * (int64_t)bytes;
    raw->sample_bytes = bytes;
    raw->row_bytes = row_bytes;
    *recording = &raw->base;
    return 0;
}
