/* delay_text.c - converts delay models from seconds (requests, files) to samples (output.c), and back (sensors,
 * files). */
#include "common/config/table_file.h"
#include "fgpu/delay_text.h"

#include "common/katcp/python_number.h"
#include "common/base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_DELAY_SAMPLES 0x1p53

/* ---- Seconds and samples ----------------------------------------------------------------------------------------- */

const char *fgpu_delay_from_seconds(const double numbers[DELAY_N_NUMBERS], double rate_hz,
                                    struct fgpu_delay_model *model)
{
    for (int i = 0; i < DELAY_N_NUMBERS; i++)
        if (!isfinite(numbers[i]))
            return "delays, phases and their rates must be finite";
    if (fabs(numbers[DELAY_S] * rate_hz) > MAX_DELAY_SAMPLES)
        return "the magnitude of a delay must be at most 2^53 samples";
    if (!(fabs(numbers[DELAY_RATE]) < 1.0))
        return "a delay rate must be between -1 and 1 s/s";
    *model = (struct fgpu_delay_model){
        .start_samples = model->start_samples,
        .delay_samples = numbers[DELAY_S] * rate_hz,
        .rate = numbers[DELAY_RATE],
        .acceleration = numbers[DELAY_ACCELERATION] / rate_hz,
        .phase_rad = fgpu_delay_wrap(numbers[DELAY_PHASE]),
        .phase_rate_rad = numbers[DELAY_PHASE_RATE] / rate_hz,
        .phase_acceleration_rad = numbers[DELAY_PHASE_ACCELERATION] / rate_hz / rate_hz,
    };
    return NULL;
}

static double times(double x, double rate_hz)
{
    return x * rate_hz;
}

static double over(double x, double rate_hz)
{
    return x / rate_hz;
}

static double over_twice(double x, double rate_hz)
{
    return x / rate_hz / rate_hz;
}

/* Returns the number near 'guess' for which the function 'to' computes exactly 'value'.  Because of rounding, the
 * guess may be wrong by a few units in the last place. */
static double invert(double (*to)(double x, double rate_hz), double rate_hz, double value, double guess)
{
    double below = guess, above = guess;

    for (int i = 0; i < 8; i++) {
        if (to(below, rate_hz) == value)
            return below;
        if (to(above, rate_hz) == value)
            return above;
        below = nextafter(below, -INFINITY);
        above = nextafter(above, INFINITY);
    }
    return guess;
}

void fgpu_delay_to_seconds(const struct fgpu_delay_model *m, double rate_hz, double numbers[DELAY_N_NUMBERS])
{
    numbers[DELAY_S] = invert(times, rate_hz, m->delay_samples, m->delay_samples / rate_hz);
    numbers[DELAY_RATE] = m->rate;
    numbers[DELAY_PHASE] = m->phase_rad;
    numbers[DELAY_PHASE_RATE] = invert(over, rate_hz, m->phase_rate_rad, m->phase_rate_rad * rate_hz);
    numbers[DELAY_ACCELERATION] = invert(over, rate_hz, m->acceleration, m->acceleration * rate_hz);
    numbers[DELAY_PHASE_ACCELERATION] =
        invert(over_twice, rate_hz, m->phase_acceleration_rad, m->phase_acceleration_rad * rate_hz * rate_hz);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

const char *fgpu_delay_text_parse(const char *text, double adc_sample_rate_hz, struct fgpu_delay_model *model)
{
    double numbers[DELAY_N_NUMBERS];
    const char *wrong = delay_request_parse(text, numbers);

    return wrong ? wrong : fgpu_delay_from_seconds(numbers, adc_sample_rate_hz, model);
}

/* ---- Sensors ----------------------------------------------------------------------------------------------------- */

/* The first number of a reading contains the bits of an int64_t: the start of the model.  The other numbers are in the
 * order of enum delay_number.  These numbers are computed with the same operations as in katgpucbf. */
_Static_assert(1 + DELAY_N_NUMBERS <= SENSOR_N_NUMBERS, "a sensor reading must have room for a model");

struct sensor_reading fgpu_delay_text_reading(const struct fgpu_delay_model *model, const struct timebase *timebase,
                                              int64_t since_samples)
{
    const double rate_hz = timebase_decimal_to_double(timebase->adc_sample_rate_hz);
    struct sensor_reading reading = {timebase_unix_ns(timebase, since_samples), SENSOR_NOMINAL, {0}};
    double *numbers = reading.value.numbers + 1;

    memcpy(reading.value.numbers, &model->start_samples, sizeof(int64_t));
    numbers[DELAY_S] = model->delay_samples / rate_hz;
    numbers[DELAY_RATE] = model->rate;
    numbers[DELAY_PHASE] = model->phase_rad;
    numbers[DELAY_PHASE_RATE] = model->phase_rate_rad * rate_hz;
    numbers[DELAY_ACCELERATION] = model->acceleration * rate_hz;
    numbers[DELAY_PHASE_ACCELERATION] = model->phase_acceleration_rad * rate_hz * rate_hz;
    return reading;
}

void fgpu_delay_text_format(const union sensor_value *value, char *text, size_t text_bytes)
{
    const double *numbers = value->numbers + 1;
    bool linear = numbers[DELAY_ACCELERATION] == 0 && numbers[DELAY_PHASE_ACCELERATION] == 0;
    char number[PYTHON_FLOAT_BYTES];
    int64_t start;

    memcpy(&start, value->numbers, sizeof(start));
    size_t end = (size_t)snprintf(text, text_bytes, "(%lld", (long long)start);
    for (int i = 0; i < (linear ? DELAY_ACCELERATION : DELAY_N_NUMBERS) && end < text_bytes; i++)
        end += (size_t)snprintf(text + end, text_bytes - end, ", %s", python_number_float_text(numbers[i], number));
    if (end < text_bytes)
        snprintf(text + end, text_bytes - end, ")");
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

#define N_FIELDS (2 + DELAY_N_NUMBERS) /* the last two fields are optional */

struct reader {
    const struct timebase *timebase;
    double rate_hz, max_delay_s;
    struct fgpu_delay_queue *pols;
};

/* Reads a start in UNIX seconds, and rounds the start to the nearest sample.  If the start is not valid, refuses the
 * row. */
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
        return table_file_refuse(row,
                                 "a line must have a start time, a polarisation, a delay, a rate, a phase and a phase "
                                 "rate, and may have the accelerations of delay and phase",
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
        snprintf(limit, sizeof(limit), "the magnitude of a delay must be at most %g s (recv.max_delay)",
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
        return table_file_refuse(row, "a polarisation can have at most 255 models", NULL);
    if (queue->models[queue->n - 1].start_samples >= model.start_samples)
        return table_file_refuse(row, "the models of a polarisation must be in the order of their start times", NULL);
    return fgpu_delay_queue_add(queue, &model);
}

int fgpu_delay_text_read_file(const char *path, const struct timebase *timebase, double max_delay_s,
                              struct fgpu_delay_queue pols[N_POLS], char *why, size_t why_bytes)
{
    struct reader r = {timebase, timebase_decimal_to_double(timebase->adc_sample_rate_hz), max_delay_s, pols};

    _Static_assert(DELAY_MAX_MODELS == 256, "read_row() refuses more than 255 models, the placeholder not counted");
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

void fgpu_delay_text_write_file(FILE *out, const struct timebase *timebase, const struct fgpu_delay_queue pols[N_POLS])
{
    fputs(
        "# start (UNIX s), polarisation, delay (s), rate (s/s), phase (rad), phase rate (rad/s), acceleration (s/s^2), "
        "phase acceleration (rad/s^2)\n",
        out);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < pols[pol].n; i++)
            if (pols[pol].models[i].start_samples >= 0) /* the first model is a placeholder */
                write_model(out, timebase, pol, &pols[pol].models[i]);
}
