/* delay_file.c - read once, before the start; what it gives goes the way of every other command. */
#include "fgpu/delay_file.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DELAY_SAMPLES 0x1p53
#define N_FIELDS          7 /* the last may be left out */

struct reader {
    const char *path;
    unsigned line;
    const struct timebase *timebase;
    double rate_hz;
    char *why;
    size_t why_bytes;
};

static int refuse(const struct reader *r, const char *what, const char *text)
{
    snprintf(r->why, r->why_bytes, "%s:%u: %s%s%s", r->path, r->line, what, *text ? ", not " : "", text);
    return -EINVAL;
}

static bool parse_number(const char *text, double *number)
{
    char *end;

    *number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*number);
}

/* UNIX seconds to the nearest sample, or a refusal. */
static int parse_start(const struct reader *r, const char *text, int64_t *start_samples)
{
    int64_t unix_ns;

    if (timebase_parse_unix_ns(text, &unix_ns))
        return refuse(r, "the start must be a UNIX time in seconds with at most 9 decimals", text);
    *start_samples = timebase_samples_nearest(r->timebase, unix_ns);
    if (*start_samples < 0)
        return refuse(r, "the start must not be before time.sync_time", text);
    return 0;
}

static int parse_model(const struct reader *r, char *const *fields, size_t n, struct delay_model *model, unsigned *pol)
{
    double numbers[N_FIELDS] = {0};

    if (n < N_FIELDS - 1 || n > N_FIELDS)
        return refuse(r,
                      "a line must have start, polarisation, delay, rate, phase and phase rate, and may have an "
                      "acceleration",
                      "");
    int err = parse_start(r, fields[0], &model->start_samples);
    if (err)
        return err;
    if (strcmp(fields[1], "0") != 0 && strcmp(fields[1], "1") != 0)
        return refuse(r, "the polarisation must be 0 or 1", fields[1]);
    *pol = fields[1][0] == '1';
    for (size_t i = 2; i < n; i++)
        if (!parse_number(fields[i], &numbers[i]))
            return refuse(r, "delay, rate, phase, phase rate and acceleration must be numbers", fields[i]);
    model->delay_samples = numbers[2] * r->rate_hz;
    model->rate = numbers[3];
    model->phase_rad = delay_wrap(numbers[4]);
    model->phase_rate_rad = numbers[5] / r->rate_hz;
    model->acceleration = numbers[6] / r->rate_hz;
    if (fabs(model->delay_samples) > MAX_DELAY_SAMPLES)
        return refuse(r, "the delay must be at most 2^53 samples", fields[2]);
    if (!(fabs(model->rate) < 1.0))
        return refuse(r, "the rate must be between -1 and 1", fields[3]);
    return 0;
}

/* Cuts a line into its fields.  Returns how many there are, at most N_FIELDS + 1. */
static size_t split(char *line, char **fields)
{
    static const char blank[] = " \t\r\n";
    char *rest = NULL;
    size_t n = 0;

    line[strcspn(line, "#")] = '\0';
    for (char *field = strtok_r(line, blank, &rest); field && n <= N_FIELDS; field = strtok_r(NULL, blank, &rest))
        fields[n++] = field;
    return n;
}

static int read_line(const struct reader *r, char *line, struct delay_queue pols[N_POLS])
{
    char *fields[N_FIELDS + 1];
    struct delay_model model;
    unsigned pol;

    size_t n = split(line, fields);
    if (n == 0)
        return 0;
    int err = parse_model(r, fields, n, &model, &pol);
    if (err)
        return err;
    struct delay_queue *queue = &pols[pol];
    /* One is kept for what holds until the first begins. */
    if (queue->n == DELAY_MAX_MODELS - 1) {
        snprintf(r->why, r->why_bytes, "%s:%u: a polarisation can have %d models, not more", r->path, r->line,
                 DELAY_MAX_MODELS - 1);
        return -EINVAL;
    }
    if (queue->n && queue->models[queue->n - 1].start_samples >= model.start_samples)
        return refuse(r, "models of a polarisation must be in order of start", "");
    queue->models[queue->n++] = model;
    return 0;
}

int delay_file_read(const char *path, const struct timebase *timebase, struct delay_queue pols[N_POLS], char *why,
                    size_t why_bytes)
{
    struct reader r = {.path = path,
                       .timebase = timebase,
                       .rate_hz = decimal_to_double(timebase->adc_sample_rate_hz),
                       .why = why,
                       .why_bytes = why_bytes};
    char *line = NULL;
    size_t line_bytes = 0;
    FILE *file = fopen(path, "r");
    int err = file ? 0 : -errno;

    for (unsigned pol = 0; pol < N_POLS; pol++)
        pols[pol].n = 0;
    while (!err && getline(&line, &line_bytes, file) >= 0) {
        r.line++;
        err = read_line(&r, line, pols);
    }
    if (!file || (!err && ferror(file))) {
        err = err ? err : -EIO;
        snprintf(why, why_bytes, "%s: %s", path, strerror(-err));
    }
    if (file)
        fclose(file);
    free(line);
    return err;
}
