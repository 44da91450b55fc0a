/* delay_file.c - read once, before the start; what it gives goes the way of every other command. */
#include "fgpu/delay_file.h"

#include "fgpu/table_file.h"

#include <math.h>
#include <string.h>

#define MAX_DELAY_SAMPLES 0x1p53
#define N_FIELDS          7 /* the last may be left out */

struct reader {
    const struct timebase *timebase;
    double rate_hz;
    struct delay_queue *pols;
};

/* UNIX seconds to the nearest sample, or a refusal. */
static int parse_start(const struct table_row *row, const struct reader *r, int64_t *start_samples)
{
    const char *text = row->fields[0];
    int64_t unix_ns;

    if (timebase_parse_unix_ns(text, &unix_ns))
        return table_refuse(row, "the start must be a UNIX time in seconds with at most 9 decimals", text);
    *start_samples = timebase_samples_nearest(r->timebase, unix_ns);
    if (*start_samples < 0)
        return table_refuse(row, "the start must not be before time.sync_time", text);
    return 0;
}

static int parse_model(const struct table_row *row, const struct reader *r, struct delay_model *model)
{
    double numbers[N_FIELDS] = {0};

    if (row->n < N_FIELDS - 1 || row->n > N_FIELDS)
        return table_refuse(row,
                            "a line must have start, polarisation, delay, rate, phase and phase rate, and may have an "
                            "acceleration",
                            NULL);
    int err = parse_start(row, r, &model->start_samples);
    if (err)
        return err;
    for (size_t i = 2; i < row->n; i++)
        if (!table_number(row->fields[i], &numbers[i]))
            return table_refuse(row, "delay, rate, phase, phase rate and acceleration must be numbers", row->fields[i]);
    model->delay_samples = numbers[2] * r->rate_hz;
    model->rate = numbers[3];
    model->phase_rad = delay_wrap(numbers[4]);
    model->phase_rate_rad = numbers[5] / r->rate_hz;
    model->acceleration = numbers[6] / r->rate_hz;
    if (fabs(model->delay_samples) > MAX_DELAY_SAMPLES)
        return table_refuse(row, "the delay must be at most 2^53 samples", row->fields[2]);
    if (!(fabs(model->rate) < 1.0))
        return table_refuse(row, "the rate must be between -1 and 1", row->fields[3]);
    return 0;
}

static int read_row(const struct table_row *row, void *context)
{
    const struct reader *r = context;
    struct delay_model model;
    struct delay_queue *queue;

    int err = parse_model(row, r, &model);
    if (err)
        return err;
    if (strcmp(row->fields[1], "0") != 0 && strcmp(row->fields[1], "1") != 0)
        return table_refuse(row, "the polarisation must be 0 or 1", row->fields[1]);
    queue = &r->pols[row->fields[1][0] - '0'];
    /* One is kept for what holds until the first begins. */
    if (queue->n == DELAY_MAX_MODELS - 1)
        return table_refuse(row, "a polarisation can have 255 models, not more", NULL);
    if (queue->n && queue->models[queue->n - 1].start_samples >= model.start_samples)
        return table_refuse(row, "models of a polarisation must be in order of start", NULL);
    queue->models[queue->n++] = model;
    return 0;
}

int delay_file_read(const char *path, const struct timebase *timebase, struct delay_queue pols[N_POLS], char *why,
                    size_t why_bytes)
{
    struct reader r = {timebase, decimal_to_double(timebase->adc_sample_rate_hz), pols};

    _Static_assert(DELAY_MAX_MODELS == 256, "read_row() says 255");
    for (unsigned pol = 0; pol < N_POLS; pol++)
        pols[pol].n = 0;
    return table_file_read(path, read_row, &r, why, why_bytes);
}
