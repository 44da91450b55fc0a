/* beam_settings.c - converts the arguments of requests to the steering of a beam. */
#include "xbgpu/beam/beam_settings.h"

#include "common/base/file.h"
#include "common/base/units.h"
#include "common/base/log.h"
#include "common/config/table_file.h"
#include "common/engine/labels.h"
#include "common/katcp/python_number.h"
#include "common/katcp/server.h"
#include "common/telemetry/stats.h"
#include "xbgpu/beam/incoherent.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Checks that a call has one value for each antenna, or one for each input. */
static bool has_n_values(const struct xbgpu_beam_settings *s, struct katcp_call *call, const char *what)
{
    size_t n = (size_t)katcp_n_args(call) - 1;
    bool has = n == s->n_ants || n == s->n;

    if (!has && s->n > s->n_ants)
        katcp_fail(call, "there must be %zu %s (one for each antenna) or %zu (one for each input), not %zu", s->n_ants,
                   what, s->n, n);
    else if (!has)
        katcp_fail(call, "there must be %zu %s, one for each antenna, not %zu", s->n_ants, what, n);
    return has;
}

/* Reads argument 'i', a number whose magnitude is at most 'limit'. */
static bool read_limited(struct katcp_call *call, int i, const char *what, double limit, double *value)
{
    if (!katcp_arg_real(call, i, what, value))
        return false;
    if (!(fabs(*value) <= limit)) {
        katcp_fail(call, "%s must have a magnitude of at most %g: '%.64s'", what, limit, katcp_arg(call, i));
        return false;
    }
    return true;
}

/* Checks whether an incoherent beam may have these weights and this gain. */
static bool has_range(const struct xbgpu_beam_settings *s, struct katcp_call *call, const double *weights, double gain)
{
    for (size_t i = 0; s->is_incoherent && i < s->n; i++) {
        if (weights[i] < 0) {
            katcp_fail(call, "a weight of an incoherent beam must not be negative, but is %g", weights[i]);
            return false;
        }
        if (!(weights[i] * gain * gain <= s->max_amplitude)) {
            katcp_fail(call, "a weight times the square of the gain must be at most %g in beam %s, but is %g",
                       s->max_amplitude, s->name, weights[i] * gain * gain);
            return false;
        }
    }
    return true;
}

bool xbgpu_beam_settings_take_weights(struct xbgpu_beam_settings *settings, struct katcp_call *call)
{
    if (!has_n_values(settings, call, "weights"))
        return false;
    size_t n_given = (size_t)katcp_n_args(call) - 1;
    double *given = calloc(n_given, sizeof(*given)), *weights = calloc(settings->n, sizeof(*weights));
    bool good = given && weights;

    if (!good)
        katcp_fail(call, "out of memory");
    for (size_t a = 0; good && a < n_given; a++)
        good = read_limited(call, 1 + (int)a, "a weight", XBGPU_BEAM_MAX, &given[a]);
    for (size_t i = 0; good && i < settings->n; i++)
        weights[i] = given[i * n_given / settings->n];
    good = good && has_range(settings, call, weights, settings->gain);
    if (good)
        memcpy(settings->weights, weights, settings->n * sizeof(*weights));
    settings->is_set = settings->is_set || good;
    free(given);
    free(weights);
    return good;
}

static double (*numbers_of(const struct xbgpu_beam_settings *s, size_t model))[XBGPU_BEAM_NUMBERS]
{
    return s->models + model * s->n;
}

/* Reads "delay:phase" in seconds and radians. */
static bool read_delay(struct katcp_call *call, int i, double *numbers)
{
    const char *text = katcp_arg(call, i), *colon = strchr(text, ':');
    char delay[PYTHON_FLOAT_BYTES * 2];

    snprintf(delay, sizeof(delay), "%.*s", colon ? (int)(colon - text) : 0, text);
    if (!colon || !python_number_float(delay, &numbers[DELAY_S]) ||
        !python_number_float(colon + 1, &numbers[DELAY_PHASE]) || !isfinite(numbers[DELAY_S]) ||
        !isfinite(numbers[DELAY_PHASE])) {
        katcp_fail(call, "a delay must be DELAY:PHASE in s and rad, not '%.64s'", text);
        return false;
    }
    return true;
}

/* Reads "delay,rate:phase,phase rate", all finite. */
static bool read_rates(struct katcp_call *call, int i, double *numbers)
{
    double all[DELAY_N_NUMBERS];
    const char *wrong = delay_request_parse(katcp_arg(call, i), all);

    for (size_t n = 0; !wrong && n < DELAY_N_NUMBERS; n++)
        wrong = isfinite(all[n]) ? NULL : "delays, phases and their rates must be finite";
    if (!wrong && (all[DELAY_ACCELERATION] != 0 || all[DELAY_PHASE_ACCELERATION] != 0))
        wrong = "a beam's model must not have accelerations";
    if (!wrong && fabs(all[DELAY_RATE]) > DELAY_MAX_REQUEST_RATE)
        wrong = "the magnitude of a delay rate must be at most 0.001 s/s";
    if (wrong)
        katcp_fail(call, "%s: '%.200s'", wrong, katcp_arg(call, i));
    else
        memcpy(numbers, all, XBGPU_BEAM_NUMBERS * sizeof(*numbers));
    return !wrong;
}

/* Reads a model of one antenna.  Rates are allowed only with a load time.  All 'numbers' must be 0 before the
 * call. */
static bool read_model(struct katcp_call *call, int i, bool is_timed, double *numbers)
{
    bool has_rates = strchr(katcp_arg(call, i), ',');

    if (has_rates && !is_timed) {
        katcp_fail(call, "a model with rates needs a load time: '%.64s'", katcp_arg(call, i));
        return false;
    }
    if (!(has_rates ? read_rates : read_delay)(call, i, numbers))
        return false;
    if (fabs(numbers[DELAY_S]) > 1) {
        katcp_fail(call, "the magnitude of a delay must be at most 1 s: '%.64s'", katcp_arg(call, i));
        return false;
    }
    return true;
}

/* Adds a model whose numbers are all zero.  Returns the model's numbers, an array [n]. */
static double (*add_model(struct xbgpu_beam_settings *s, int64_t start_samples))[XBGPU_BEAM_NUMBERS]
{
    size_t bytes = s->n * sizeof(*s->models);
    bool forgets;
    size_t place = xbgpu_beam_starts_add(&s->starts, start_samples, &forgets);

    if (forgets)
        memmove(numbers_of(s, 1), numbers_of(s, 2), (place - 1) * bytes);
    return memset(numbers_of(s, place), 0, bytes);
}

/* Reads the load time of a request, as a timestamp. */
static bool read_load_time(struct xbgpu_beam_settings *s, struct katcp_call *call, int64_t past_samples,
                           int64_t *start_samples)
{
    if (!delay_request_start(call, 1, &s->timebase, start_samples))
        return false;
    if (!xbgpu_beam_starts_has_room(&s->starts, *start_samples, past_samples)) {
        katcp_fail(call, "beam %s already has %d pending delay models, which is the maximum", s->name,
                   XBGPU_BEAM_MODELS - 1);
        return false;
    }
    return true;
}

bool xbgpu_beam_settings_take_delays(struct xbgpu_beam_settings *settings, struct katcp_call *call,
                                     int64_t past_samples)
{
    size_t n_args = (size_t)katcp_n_args(call), n = settings->n;
    bool is_timed = !strchr(katcp_arg(call, 1), ':') && (n_args == 2 + settings->n_ants || n_args == 2 + n);
    size_t n_given = n_args - 1 - is_timed;
    int64_t start_samples = XBGPU_BEAM_ALWAYS;

    if (settings->is_incoherent) {
        katcp_fail(call, "beam %s is incoherent, so it has no delays", settings->name);
        return false;
    }
    if (!is_timed && !has_n_values(settings, call, "delays"))
        return false;
    if (is_timed && !read_load_time(settings, call, past_samples, &start_samples))
        return false;
    double(*read)[XBGPU_BEAM_NUMBERS] = calloc(n, sizeof(*read));
    bool good = read;

    if (!good)
        katcp_fail(call, "out of memory");
    for (size_t a = 0; good && a < n_given; a++)
        good = read_model(call, 1 + is_timed + (int)a, is_timed, read[a]);
    if (good) {
        double(*numbers)[XBGPU_BEAM_NUMBERS] = add_model(settings, start_samples);
        for (size_t i = 0; i < n; i++)
            memcpy(numbers[i], read[i * n_given / n], sizeof(*numbers));
        settings->is_set = true;
    }
    free(read);
    return good;
}

bool xbgpu_beam_settings_take_gain(struct xbgpu_beam_settings *settings, struct katcp_call *call)
{
    double gain;

    if (!read_limited(call, 1, "a gain", XBGPU_BEAM_MAX, &gain) || !has_range(settings, call, settings->weights, gain))
        return false;
    settings->gain = gain;
    settings->is_set = true;
    return true;
}

/* ---- Saved text -------------------------------------------------------------------------------------------------- */

struct xbgpu_beam_settings *xbgpu_beams_settings_find(const struct xbgpu_beams_settings *all, const char *name)
{
    for (size_t b = 0; b < all->n; b++)
        if (strcmp(all->items[b].name, name) == 0)
            return &all->items[b];
    return NULL;
}

struct xbgpu_beam_settings *xbgpu_beams_settings_find_stream(const struct xbgpu_beams_settings *all, const char *name)
{
    for (size_t b = 0; b < all->n; b++)
        if (all->items[b].stream && strcmp(all->items[b].stream, name) == 0)
            return &all->items[b];
    return NULL;
}

/* Returns true if a beam has one value for each input.  Returns false if a beam has one value for each antenna. */
static bool has_inputs(const struct xbgpu_beam_settings *s)
{
    return s->n > s->n_ants;
}

/* Returns the names of the inputs or antennas for which a beam has values. */
static char *const *names_of(const struct xbgpu_beams_settings *all, const struct xbgpu_beam_settings *s)
{
    return has_inputs(s) ? all->labels->labels : all->labels->antennas;
}

static void write_models(FILE *text, const struct xbgpu_beam_settings *s, char *const *names)
{
    for (size_t m = 1; m < s->starts.n; m++) {
        int64_t unix_ns = timebase_unix_ns(&s->timebase, s->starts.samples[m]);
        for (size_t a = 0; a < s->n; a++) {
            fprintf(text, "model %s %s %" PRId64 ".%09" PRId64, s->name, names[a], unix_ns / NS_PER_S,
                    unix_ns % NS_PER_S);
            for (size_t i = 0; i < XBGPU_BEAM_NUMBERS; i++)
                fprintf(text, " %.17g", numbers_of(s, m)[a][i]);
            fputc('\n', text);
        }
    }
}

bool xbgpu_beams_settings_write(FILE *text, void *arg)
{
    const struct xbgpu_beams_settings *all = arg;
    bool any = false;

    fputs("# Settings of beams made over KATCP; xbgpu reads them when it starts, and they override the YAML.\n", text);
    for (size_t b = 0; b < all->n; b++) {
        const struct xbgpu_beam_settings *s = &all->items[b];
        if (s->capture_is_set)
            fprintf(text, "capture %s %s %" PRId64 "\n", s->stream, s->captures ? "on" : "off",
                    s->capture_from_samples);
        if (s->is_set)
            fprintf(text, "gain %s %.17g\n", s->name, s->gain);
        for (size_t a = 0; s->is_set && a < s->n; a++)
            fprintf(text, "%s %s %s %.17g %.17g %.17g\n", has_inputs(s) ? "input" : "antenna", s->name,
                    names_of(all, s)[a], s->weights[a], s->models[a][DELAY_S], s->models[a][DELAY_PHASE]);
        write_models(text, s, names_of(all, s));
        any = any || s->is_set || s->capture_is_set;
    }
    return any;
}

/* Reads numbers of limited magnitudes from field 'first' to the last field. */
static bool read_numbers(const struct table_row *row, size_t first, const double *limits, size_t n, double *numbers)
{
    bool good = row->n == first + n;

    for (size_t i = 0; good && i < n; i++)
        good = table_file_number(row->fields[first + i], &numbers[i]) && fabs(numbers[i]) <= limits[i];
    return good;
}

/* Returns the index of the antenna or input that the row names, or -1. */
static long find_antenna(const struct xbgpu_beams_settings *all, const struct xbgpu_beam_settings *s,
                         const struct table_row *row)
{
    for (size_t a = 0; row->n > 2 && a < s->n; a++)
        if (strcmp(names_of(all, s)[a], row->fields[2]) == 0)
            return (long)a;
    return -1;
}

static bool read_antenna(const struct xbgpu_beams_settings *all, struct xbgpu_beam_settings *s,
                         const struct table_row *row)
{
    static const double limits[] = {XBGPU_BEAM_MAX, 1, HUGE_VAL};
    double numbers[3];
    long a = find_antenna(all, s, row);

    if (a < 0 || has_inputs(s) != (strcmp(row->fields[0], "input") == 0) || !read_numbers(row, 3, limits, 3, numbers))
        return false;
    /* the row was saved for a coherent beam */
    if (s->is_incoherent && (numbers[0] < 0 || numbers[1] != 0 || numbers[2] != 0))
        return false;
    s->weights[a] = numbers[0];
    s->models[a][DELAY_S] = numbers[1];
    s->models[a][DELAY_PHASE] = numbers[2];
    s->is_set = true;
    return true;
}

/* Reads a row of a delay model.  Refuses a model that starts before the newest model read so far. */
static bool read_kept_model(const struct xbgpu_beams_settings *all, struct xbgpu_beam_settings *s,
                            const struct table_row *row)
{
    static const double limits[XBGPU_BEAM_NUMBERS] = {1, DELAY_MAX_REQUEST_RATE, HUGE_VAL, HUGE_VAL};
    double numbers[XBGPU_BEAM_NUMBERS];
    long a = find_antenna(all, s, row);
    int64_t unix_ns;

    if (a < 0 || s->is_incoherent || !read_numbers(row, 4, limits, XBGPU_BEAM_NUMBERS, numbers) ||
        timebase_parse_unix_ns(row->fields[3], &unix_ns))
        return false;
    int64_t samples = timebase_samples_nearest(&s->timebase, unix_ns), newest = s->starts.samples[s->starts.n - 1];
    if (samples < 0 || samples < newest || (samples > newest && s->starts.n == XBGPU_BEAM_MODELS))
        return false;
    if (samples > newest)
        add_model(s, samples);
    memcpy(numbers_of(s, s->starts.n - 1)[a], numbers, sizeof(numbers));
    s->is_set = true;
    return true;
}

static bool read_gain(struct xbgpu_beam_settings *s, const struct table_row *row)
{
    static const double limit = XBGPU_BEAM_MAX;
    double gain;

    if (!read_numbers(row, 2, &limit, 1, &gain))
        return false;
    s->gain = gain;
    s->is_set = true;
    return true;
}

static bool read_capture(struct xbgpu_beam_settings *s, const struct table_row *row)
{
    char *end = NULL;
    bool on = row->n == 4 && strcmp(row->fields[2], "on") == 0;
    int64_t from_samples = row->n == 4 ? strtoll(row->fields[3], &end, 10) : -1;

    if (from_samples < 0 || *end || (!on && strcmp(row->fields[2], "off") != 0))
        return false;
    s->capture_is_set = true;
    s->captures = on;
    s->capture_from_samples = from_samples;
    return true;
}

struct reading {
    struct xbgpu_beams_settings *all;
    bool left_out;
};

static int read_row(const struct table_row *row, void *arg)
{
    struct reading *r = arg;
    const char *what = row->fields[0];
    struct xbgpu_beam_settings *s = row->n < 2 ? NULL
                                    : strcmp(what, "capture") == 0
                                        ? xbgpu_beams_settings_find_stream(r->all, row->fields[1])
                                        : xbgpu_beams_settings_find(r->all, row->fields[1]);
    bool good = s && (strcmp(what, "antenna") == 0   ? read_antenna(r->all, s, row)
                      : strcmp(what, "input") == 0   ? read_antenna(r->all, s, row)
                      : strcmp(what, "model") == 0   ? read_kept_model(r->all, s, row)
                      : strcmp(what, "gain") == 0    ? read_gain(s, row)
                      : strcmp(what, "capture") == 0 ? read_capture(s, row)
                                                     : false);

    if (!good) {
        r->left_out = true;
        log_warning("%s:%u: saved setting ignored: its beam or antenna does not exist, or its value is out of range",
                    row->path, row->line);
    }
    return 0;
}

/* If weights and gain are too large, resets them and returns false.  Such values may have been saved for a stream with
 * the same name and shorter windows. */
static bool limit_amplitudes(struct xbgpu_beam_settings *s)
{
    bool good = true;

    for (size_t i = 0; s->is_incoherent && i < s->n; i++)
        good = good && s->weights[i] * s->gain * s->gain <= s->max_amplitude;
    if (good)
        return true;
    log_warning("beam %s: saved weights and gain ignored: a weight times the square of the gain must be at most %g",
                s->name, s->max_amplitude);
    for (size_t i = 0; i < s->n; i++)
        s->weights[i] = 1;
    s->gain = 1;
    return false;
}

int xbgpu_beams_settings_read(struct xbgpu_beams_settings *all, const char *path, bool *whole, char *why,
                              size_t why_bytes)
{
    struct reading r = {.all = all};
    int err = table_file_read(path, read_row, &r, why, why_bytes);

    for (size_t b = 0; b < all->n; b++)
        r.left_out = !limit_amplitudes(&all->items[b]) || r.left_out;
    *whole = !r.left_out;
    return err;
}

/* ---- Steering ---------------------------------------------------------------------------------------------------- */

static uint64_t phase_of(double turns)
{
    return (uint64_t)llrint(ldexp(turns - rint(turns), 63)) * 2;
}

/* The device multiplies a rate by a time, and adds the product.  The time counts from the start of the half batch that
 * contains the model's start.  So the phase near the model's start is exact, even at a large timestamp. */
void xbgpu_beam_settings_steer(const struct xbgpu_beam_settings *settings, size_t model, struct beam_steering *steering)
{
    const struct xbgpu_config_recv *recv = &settings->config->recv;
    double rate_hz = timebase_decimal_to_double(settings->config->time.adc_sample_rate_hz);
    double chan_hz = rate_hz / (double)recv->samples_between_spectra;
    double from_centre_hz = ((double)recv->chan_offset - (double)recv->n_chan / 2) * chan_hz;
    /* The division is exact, because the number of spectra in a heap is a multiple of 8. */
    int64_t half_samples = recv->spectra_per_heap * recv->samples_between_spectra / 2;
    int64_t start = settings->starts.samples[model] > 0 ? settings->starts.samples[model] : 0;
    int64_t n_halves = floor_div(start, half_samples);
    double half_s = (double)half_samples / rate_hz, since_s = (double)(n_halves * half_samples - start) / rate_hz;

    size_t n_pols = settings->n / settings->n_ants;
    double gain = settings->is_incoherent ? settings->gain * settings->gain : settings->gain;
    for (size_t i = 0; i < settings->n; i++) {
        const double *numbers = numbers_of(settings, model)[i];
        double phase = numbers[DELAY_PHASE] / (2 * M_PI) - numbers[DELAY_S] * from_centre_hz;
        double phase_rate = numbers[DELAY_PHASE_RATE] / (2 * M_PI) - numbers[DELAY_RATE] * from_centre_hz;
        double slope = -numbers[DELAY_S] * chan_hz, slope_rate = -numbers[DELAY_RATE] * chan_hz;
        struct beam_steering *row = &steering[i % n_pols * settings->n_ants + i / n_pols];
        *row = (struct beam_steering){
            .amplitude = (float)(settings->weights[i] * gain),
            .phase_rate = phase_of(phase_rate * half_s),
            .slope_rate = phase_of(slope_rate * half_s),
        };
        row->phase = phase_of(phase + phase_rate * since_s) - (uint64_t)n_halves * row->phase_rate;
        row->slope = phase_of(slope + slope_rate * since_s) - (uint64_t)n_halves * row->slope_rate;
    }
}

/* ---- Sensors ----------------------------------------------------------------------------------------------------- */

/* Sets a sensor to the text of a list: 'first', then the numbers, then 'last'. */
static void set_list(struct xbgpu_beam_settings *s, struct sensor *sensor, int64_t unix_ns, const char *first,
                     const double *numbers, size_t n, const char *last)
{
    char *text = NULL, number[PYTHON_FLOAT_BYTES];
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);

    if (!out)
        return;
    fputs(first, out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%s", i ? ", " : "", python_number_float_text(numbers[i], number));
    fputs(last, out);
    if (!file_close_text(out, &text))
        sensors_set_text(s->sensors, sensor, unix_ns, SENSOR_NOMINAL, text);
    free(text);
}

static void show_zero_weights(struct xbgpu_beam_settings *settings)
{
    int64_t n = 0;

    for (size_t a = 0; a < settings->n; a++)
        n += settings->weights[a] == 0;
    gauge_set(&settings->zero_weights, 1000000 * n / (int64_t)settings->n);
}

/* Sets the sensor to the newest model's delays and phases at timestamp 'samples'.  If the model has a later load
 * time, shows the delays and phases at the load time. */
static void show_delays(struct xbgpu_beam_settings *s, int64_t samples, int64_t unix_ns)
{
    const double(*numbers)[XBGPU_BEAM_NUMBERS] = numbers_of(s, s->starts.n - 1);
    int64_t start = s->starts.samples[s->starts.n - 1];
    int64_t at = samples > start ? samples : start;
    double since_s = (double)(at - start) / timebase_decimal_to_double(s->timebase.adc_sample_rate_hz);
    double *shown = calloc(2 * s->n, sizeof(*shown));
    char first[32];

    if (!shown)
        return;
    for (size_t a = 0; a < s->n; a++) {
        shown[2 * a] = numbers[a][DELAY_S] + numbers[a][DELAY_RATE] * since_s;
        shown[2 * a + 1] = numbers[a][DELAY_PHASE] + numbers[a][DELAY_PHASE_RATE] * since_s;
    }
    snprintf(first, sizeof(first), "(%" PRId64 ", ", at);
    set_list(s, &s->delay, unix_ns, first, shown, 2 * s->n, ")");
    free(shown);
}

void xbgpu_beam_settings_show(struct xbgpu_beam_settings *settings, int64_t samples, int64_t unix_ns)
{
    set_list(settings, &settings->weight, unix_ns, "[", settings->weights, settings->n, "]");
    if (!settings->is_incoherent)
        show_delays(settings, samples, unix_ns);
    sensor_set_real(&settings->quantiser_gain, unix_ns, SENSOR_NOMINAL, settings->gain);
    show_zero_weights(settings);
}

static int add_sensors(struct xbgpu_beam_settings *s)
{
    const struct {
        const char *name, *help;
        enum sensor_type type;
        struct sensor *sensor;
        bool is_absent;
    } rows[] = {
        {"weight", "Weights of the antennas, as a list.", SENSOR_STRING, &s->weight, false},
        {"delay",
         "(timestamp, delay of antenna 0 in s, its phase in rad, delay of antenna 1, ...): the delays are in effect "
         "from the timestamp on. Phases apply at the centre of the whole stream.",
         SENSOR_STRING, &s->delay, s->is_incoherent},
        {"quantiser-gain", "Gain by which the beam is multiplied before it is rounded to 8 bits.", SENSOR_FLOAT,
         &s->quantiser_gain, false},
        {"dither-seed", "Seed of the beam's dither.", SENSOR_STRING, &s->dither_seed, !s->has_seed},
    };
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_LEN(rows); i++) {
        char name[160];
        if (rows[i].is_absent)
            continue;
        snprintf(name, sizeof(name), "%s.%s", s->name, rows[i].name);
        const struct sensor_desc about = {.name = name, .description = rows[i].help, .units = "", .type = rows[i].type};
        err = sensors_add(s->sensors, rows[i].sensor, &about, (struct sensor_reading){0});
    }
    return err;
}

static void register_metric(const struct xbgpu_beam_settings *settings)
{
    char labels[128] = "";

    stats_label(labels, sizeof(labels), "stream", settings->name);
    stats_gauge_scaled("xbgpu_output_b_zero_weights_ratio", "Fraction of the beam's weights that are 0.", labels,
                       &settings->zero_weights, 1e-6);
}

/* Initialises everything except the seed's sensor. */
static int init(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config, const char *stream, size_t n,
                struct sensors *sensors)
{
    settings->config = config;
    settings->timebase = (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz, false};
    settings->stream = stream;
    settings->n_ants = (size_t)config->recv.n_ants;
    settings->n = n;
    settings->sensors = sensors;
    settings->weights = calloc(n, sizeof(double));
    settings->starts = (struct xbgpu_beam_starts){1, {XBGPU_BEAM_ALWAYS}};
    settings->models = calloc(XBGPU_BEAM_MODELS * n, sizeof(*settings->models));
    settings->gain = 1;
    if (!settings->name || !settings->weights || !settings->models)
        return -ENOMEM;
    for (size_t a = 0; a < n; a++)
        settings->weights[a] = 1;
    int err = add_sensors(settings);
    if (err)
        return err;
    register_metric(settings);
    xbgpu_beam_settings_show(settings, 0, 0);
    return 0;
}

int xbgpu_beam_settings_init(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config, size_t beam,
                             uint64_t seed, struct sensors *sensors)
{
    const char *name = xbgpu_config_beam(config, beam)->name;
    char text[24];

    *settings = (struct xbgpu_beam_settings){.name = strdup(name), .has_seed = true};
    int err = init(settings, config, name, (size_t)config->recv.n_ants, sensors);
    if (err)
        return err;
    snprintf(text, sizeof(text), "%" PRIu64, seed);
    return sensors_set_text(sensors, &settings->dither_seed, 0, SENSOR_NOMINAL, text);
}

int xbgpu_beam_settings_init_detected(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config,
                                      const struct xbgpu_config_detected *stream, size_t beam, struct sensors *sensors)
{
    char name[96];

    snprintf(name, sizeof(name), "%s.%zu", stream->name, beam);
    *settings = (struct xbgpu_beam_settings){
        .name = strdup(name),
        .is_incoherent = stream->kind == XBGPU_BEAM_INCOHERENT,
        .max_amplitude = xbgpu_incoherent_max(config, stream),
    };
    return init(settings, config, beam == 0 ? stream->name : NULL, (size_t)config->recv.n_ants * N_POLS, sensors);
}

void xbgpu_beam_settings_fini(struct xbgpu_beam_settings *settings)
{
    free(settings->name);
    free(settings->weights);
    free(settings->models);
}
