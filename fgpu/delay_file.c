/* delay_file.c - read before the start; what it gives goes the way of every other command. */
#include "fgpu/delay_file.h"

#include "common/config/table_file.h"
#include "fgpu/delay_text.h"

#include <math.h>
#include <string.h>

#define N_FIELDS (2 + DELAY_N_NUMBERS) /* the last two may be left out */

struct reader {
    const struct timebase *timebase;
    double rate_hz, max_delay_s;
    struct fgpu_delay_queue *pols;
};

/* UNIX seconds to the nearest sample, or a refusal. */
static int parse_start(const struct table_row *row, const struct reader *r, int64_t *start_samples)
{
    const char *text = row->fields[0];
    int64_t unix_ns;

    if (timebase_parse_unix_ns(text, &unix_ns))
        return table_file_refuse(row, "the start must be a UNIX time in seconds with at most 9 decimals", text);
    *start_samples = timebase_samples_nearest(r->timebase, unix_ns);
    if (*start_samples < 0)
        return table_file_refuse(row, "the start must not be before time.sync_time", text);
    return 0;
}

static int parse_model(const struct table_row *row, const struct reader *r, struct fgpu_delay_model *model)
{
    double numbers[DELAY_N_NUMBERS] = {0};

    if (row->n < N_FIELDS - 2 || row->n > N_FIELDS)
        return table_file_refuse(
            row,
            "a line must have start, polarisation, delay, rate, phase and phase rate, and may have an "
            "acceleration and the phase's acceleration",
            NULL);
    int err = parse_start(row, r, &model->start_samples);
    if (err)
        return err;
    for (size_t i = 2; i < row->n; i++)
        if (!table_file_number(row->fields[i], &numbers[i - 2]))
            return table_file_refuse(row, "delay, rate, phase, phase rate and accelerations must be numbers",
                                     row->fields[i]);
    const char *wrong = fgpu_delay_from_seconds(numbers, r->rate_hz, model);
    if (wrong)
        return table_file_refuse(row, wrong, NULL);
    if (fabs(model->delay_samples) > r->max_delay_s * r->rate_hz) {
        char limit[80];
        snprintf(limit, sizeof(limit), "a delay must be at most %g s either way, as recv.max_delay says",
                 r->max_delay_s);
        return table_file_refuse(row, limit, row->fields[2]);
    }
    return 0;
}

static int read_row(const struct table_row *row, void *context)
{
    const struct reader *r = context;
    struct fgpu_delay_model model;
    struct fgpu_delay_queue *queue;

    int err = parse_model(row, r, &model);
    if (err)
        return err;
    if (strcmp(row->fields[1], "0") != 0 && strcmp(row->fields[1], "1") != 0)
        return table_file_refuse(row, "the polarisation must be 0 or 1", row->fields[1]);
    queue = &r->pols[row->fields[1][0] - '0'];
    if (queue->n == DELAY_MAX_MODELS)
        return table_file_refuse(row, "a polarisation can have 255 models, not more", NULL);
    if (queue->models[queue->n - 1].start_samples >= model.start_samples)
        return table_file_refuse(row, "models of a polarisation must be in order of start", NULL);
    return fgpu_delay_queue_add(queue, &model);
}

int fgpu_delay_file_read(const char *path, const struct timebase *timebase, double max_delay_s,
                         struct fgpu_delay_queue pols[N_POLS], char *why, size_t why_bytes)
{
    struct reader r = {timebase, timebase_decimal_to_double(timebase->adc_sample_rate_hz), max_delay_s, pols};

    _Static_assert(DELAY_MAX_MODELS == 256, "read_row() says 255, and one is what holds until the first begins");
    for (unsigned pol = 0; pol < N_POLS; pol++)
        fgpu_delay_queue_init(&pols[pol]);
    return table_file_read(path, read_row, &r, why, why_bytes);
}

static void write_model(FILE *out, const struct timebase *timebase, unsigned pol, const struct fgpu_delay_model *model)
{
    int64_t unix_ns = timebase_unix_ns(timebase, model->start_samples);
    double numbers[DELAY_N_NUMBERS];

    fgpu_delay_to_seconds(model, timebase_decimal_to_double(timebase->adc_sample_rate_hz), numbers);
    fprintf(out, "%lld.%09lld %u", (long long)(unix_ns / NS_PER_S), (long long)(unix_ns % NS_PER_S), pol);
    for (int i = 0; i < DELAY_N_NUMBERS; i++)
        fprintf(out, " %.17g", numbers[i]);
    fputc('\n', out);
}

void fgpu_delay_file_write(FILE *out, const struct timebase *timebase, const struct fgpu_delay_queue pols[N_POLS])
{
    fputs(
        "# start (UNIX s), polarisation, delay (s), rate (s/s), phase (rad), phase rate (rad/s), acceleration (s/s^2), "
        "phase acceleration (rad/s^2)\n",
        out);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < pols[pol].n; i++)
            if (pols[pol].models[i].start_samples >= 0) /* the first is none that was set */
                write_model(out, timebase, pol, &pols[pol].models[i]);
}
