/* beam_settings.c - from requests to the steering of a beam. */
#include "xbgpu/beam_settings.h"

#include "common/base/units.h"
#include "common/base/log.h"
#include "common/config/table_file.h"
#include "common/engine/labels.h"
#include "common/katcp/python_number.h"
#include "common/katcp/server.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Values that are given: of all antennas, or of all inputs. */
static size_t n_given(struct katcp_call *call)
{
    return (size_t)katcp_n_args(call) - 1;
}

static bool has_n_args(const struct xbgpu_beam_settings *s, struct katcp_call *call, const char *what)
{
    bool has = n_given(call) == s->n_ants || n_given(call) == s->n;

    if (!has && s->n > s->n_ants)
        katcp_fail(call, "there must be %zu %s, one for each antenna, or %zu, one for each input, not %zu", s->n_ants,
                   what, s->n, n_given(call));
    else if (!has)
        katcp_fail(call, "there must be %zu %s, one for each antenna, not %d", s->n_ants, what, katcp_n_args(call) - 1);
    return has;
}

/* A number of a limited magnitude. */
static bool read_limited(struct katcp_call *call, int i, const char *what, double limit, double *value)
{
    if (!katcp_arg_real(call, i, what, value))
        return false;
    if (!(fabs(*value) <= limit)) {
        katcp_fail(call, "%s must be at most %g either way: '%.64s'", what, limit, katcp_arg(call, i));
        return false;
    }
    return true;
}

/* Takes what is given for antennas or inputs. */
static void take_values(const struct xbgpu_beam_settings *s, struct katcp_call *call, const double *given,
                        double *values)
{
    for (size_t i = 0; i < s->n; i++)
        values[i] = given[i * n_given(call) / s->n];
}

bool xbgpu_beam_settings_take_weights(struct xbgpu_beam_settings *settings, struct katcp_call *call)
{
    if (!has_n_args(settings, call, "weights"))
        return false;
    double *weights = calloc(settings->n, sizeof(*weights));
    bool good = weights;

    if (!good)
        katcp_fail(call, "out of memory");
    for (size_t a = 0; good && a < n_given(call); a++)
        good = read_limited(call, 1 + (int)a, "a weight", XBGPU_BEAM_MAX, &weights[a]);
    if (good)
        take_values(settings, call, weights, settings->weights);
    settings->is_set = settings->is_set || good;
    free(weights);
    return good;
}

/* "delay:phase" in seconds and radians. */
static bool read_delay(struct katcp_call *call, int i, double *delay_s, double *phase_rad)
{
    const char *text = katcp_arg(call, i), *colon = strchr(text, ':');
    char delay[PYTHON_FLOAT_BYTES * 2];

    snprintf(delay, sizeof(delay), "%.*s", colon ? (int)(colon - text) : 0, text);
    if (!colon || !python_number_float(delay, delay_s) || !python_number_float(colon + 1, phase_rad) ||
        !isfinite(*delay_s) || !isfinite(*phase_rad)) {
        katcp_fail(call, "a delay must be DELAY:PHASE in s and rad, not '%.64s'", text);
        return false;
    }
    if (fabs(*delay_s) > 1) {
        katcp_fail(call, "a delay must be at most 1 s either way: '%.64s'", text);
        return false;
    }
    return true;
}

bool xbgpu_beam_settings_take_delays(struct xbgpu_beam_settings *settings, struct katcp_call *call)
{
    size_t n = settings->n;

    if (!has_n_args(settings, call, "delays"))
        return false;
    double *read = calloc(2 * n, sizeof(*read));
    bool good = read;

    if (!good)
        katcp_fail(call, "out of memory");
    for (size_t a = 0; good && a < n_given(call); a++)
        good = read_delay(call, 1 + (int)a, &read[a], &read[n + a]);
    if (good) {
        take_values(settings, call, read, settings->delays_s);
        take_values(settings, call, read + n, settings->phases_rad);
        settings->is_set = true;
    }
    free(read);
    return good;
}

bool xbgpu_beam_settings_take_gain(struct xbgpu_beam_settings *settings, struct katcp_call *call)
{
    double gain;

    if (!read_limited(call, 1, "a gain", XBGPU_BEAM_MAX, &gain))
        return false;
    settings->gain = gain;
    settings->is_set = true;
    return true;
}

/* ---- As text ----------------------------------------------------------------------------------------------------- */

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

/* Whether a beam has values for inputs, and the names of what it has values for. */
static bool has_inputs(const struct xbgpu_beam_settings *s)
{
    return s->n > s->n_ants;
}

static char *const *names_of(const struct xbgpu_beams_settings *all, const struct xbgpu_beam_settings *s)
{
    return has_inputs(s) ? all->labels->labels : all->labels->antennas;
}

bool xbgpu_beams_settings_write(FILE *text, void *arg)
{
    const struct xbgpu_beams_settings *all = arg;
    bool any = false;

    fputs("# Settings of beams by KATCP; xbgpu reads them when it starts, and they go before the YAML.\n", text);
    for (size_t b = 0; b < all->n; b++) {
        const struct xbgpu_beam_settings *s = &all->items[b];
        if (s->capture_is_set)
            fprintf(text, "capture %s %s %" PRId64 "\n", s->stream, s->captures ? "on" : "off",
                    s->capture_from_samples);
        if (s->is_set)
            fprintf(text, "gain %s %.17g\n", s->name, s->gain);
        for (size_t a = 0; s->is_set && a < s->n; a++)
            fprintf(text, "%s %s %s %.17g %.17g %.17g\n", has_inputs(s) ? "input" : "antenna", s->name,
                    names_of(all, s)[a], s->weights[a], s->delays_s[a], s->phases_rad[a]);
        any = any || s->is_set || s->capture_is_set;
    }
    return any;
}

/* Reads numbers of limited magnitudes from field 'first' to the last. */
static bool read_numbers(const struct table_row *row, size_t first, const double *limits, size_t n, double *numbers)
{
    bool good = row->n == first + n;

    for (size_t i = 0; good && i < n; i++)
        good = table_file_number(row->fields[first + i], &numbers[i]) && fabs(numbers[i]) <= limits[i];
    return good;
}

static bool read_antenna(const struct xbgpu_beams_settings *all, struct xbgpu_beam_settings *s,
                         const struct table_row *row)
{
    static const double limits[] = {XBGPU_BEAM_MAX, 1, HUGE_VAL};
    double numbers[3];
    size_t a = 0;

    if (!read_numbers(row, 3, limits, 3, numbers))
        return false;
    if (has_inputs(s) != (strcmp(row->fields[0], "input") == 0))
        return false;
    while (a < s->n && strcmp(names_of(all, s)[a], row->fields[2]) != 0)
        a++;
    if (a == s->n)
        return false;
    s->weights[a] = numbers[0];
    s->delays_s[a] = numbers[1];
    s->phases_rad[a] = numbers[2];
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
                      : strcmp(what, "gain") == 0    ? read_gain(s, row)
                      : strcmp(what, "capture") == 0 ? read_capture(s, row)
                                                     : false);

    if (!good) {
        r->left_out = true;
        log_warning("%s:%u: what was kept is left out: it fits no beam or no antenna, or is out of range", row->path,
                    row->line);
    }
    return 0;
}

int xbgpu_beams_settings_read(struct xbgpu_beams_settings *all, const char *path, bool *whole, char *why,
                              size_t why_bytes)
{
    struct reading r = {.all = all};
    int err = table_file_read(path, read_row, &r, why, why_bytes);

    *whole = !r.left_out;
    return err;
}

/* ---- Steering ---------------------------------------------------------------------------------------------------- */

static uint64_t phase_of(double turns)
{
    return (uint64_t)llrint(ldexp(turns - rint(turns), 63)) * 2;
}

void xbgpu_beam_settings_steer(const struct xbgpu_beam_settings *settings, struct beam_steering *steering)
{
    const struct xbgpu_config_recv *recv = &settings->config->recv;
    double rate_hz = timebase_decimal_to_double(settings->config->time.adc_sample_rate_hz);
    double chan_hz = rate_hz / (double)recv->samples_between_spectra;
    double from_centre_hz = ((double)recv->chan_offset - (double)recv->n_chan / 2) * chan_hz;

    size_t n_pols = settings->n / settings->n_ants;
    for (size_t a = 0; a < settings->n; a++)
        steering[a % n_pols * settings->n_ants + a / n_pols] = (struct beam_steering){
            .phase = phase_of(settings->phases_rad[a] / (2 * M_PI) - settings->delays_s[a] * from_centre_hz),
            .slope = phase_of(-settings->delays_s[a] * chan_hz),
            .amplitude = (float)(settings->weights[a] * settings->gain),
        };
}

/* ---- Sensors ----------------------------------------------------------------------------------------------------- */

/* Writes 'first', the numbers, and 'last' into a sensor. */
static void set_list(struct xbgpu_beam_settings *s, struct sensor *sensor, int64_t unix_ns, const char *first,
                     const double *numbers, const double *others, const char *last)
{
    char *text = NULL, number[PYTHON_FLOAT_BYTES];
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);

    if (!out)
        return;
    fputs(first, out);
    for (size_t a = 0; a < s->n; a++) {
        fprintf(out, "%s%s", a || others ? ", " : "", python_number_float_text(numbers[a], number));
        if (others)
            fprintf(out, ", %s", python_number_float_text(others[a], number));
    }
    fputs(last, out);
    if (fclose(out) == 0)
        sensors_set_text(s->sensors, sensor, unix_ns, SENSOR_NOMINAL, text);
    free(text);
}

void xbgpu_beam_settings_show(struct xbgpu_beam_settings *settings, int64_t samples, int64_t unix_ns)
{
    char first[32];

    snprintf(first, sizeof(first), "(%" PRId64, samples);
    set_list(settings, &settings->weight, unix_ns, "[", settings->weights, NULL, "]");
    set_list(settings, &settings->delay, unix_ns, first, settings->delays_s, settings->phases_rad, ")");
    sensor_set_real(&settings->quantiser_gain, unix_ns, SENSOR_NOMINAL, settings->gain);
}

static int add_sensors(struct xbgpu_beam_settings *s)
{
    const struct {
        const char *name, *help;
        enum sensor_type type;
        struct sensor *sensor;
    } rows[] = {
        {"weight", "Weights of the antennas, as a list.", SENSOR_STRING, &s->weight},
        {"delay",
         "(timestamp, delay of antenna 0 in s, its phase in rad, delay of antenna 1, ...): these hold from the "
         "timestamp on; phases are those at the centre of the whole stream.",
         SENSOR_STRING, &s->delay},
        {"quantiser-gain", "Gain before the beam is rounded to 8 bits.", SENSOR_FLOAT, &s->quantiser_gain},
        {"dither-seed", "Seed of the beam's dither.", SENSOR_STRING, &s->dither_seed},
    };
    size_t n = ARRAY_LEN(rows) - !s->has_seed;
    int err = 0;

    for (size_t i = 0; !err && i < n; i++) {
        char name[160];
        snprintf(name, sizeof(name), "%s.%s", s->name, rows[i].name);
        const struct sensor_desc about = {.name = name, .description = rows[i].help, .units = "", .type = rows[i].type};
        err = sensors_add(s->sensors, rows[i].sensor, &about, (struct sensor_reading){0});
    }
    return err;
}

/* All but the seed's sensor. */
static int init(struct xbgpu_beam_settings *settings, const struct xbgpu_config *config, const char *stream, size_t n,
                struct sensors *sensors)
{
    settings->config = config;
    settings->stream = stream;
    settings->n_ants = (size_t)config->recv.n_ants;
    settings->n = n;
    settings->sensors = sensors;
    settings->weights = calloc(n, sizeof(double));
    settings->delays_s = calloc(n, sizeof(double));
    settings->phases_rad = calloc(n, sizeof(double));
    settings->gain = 1;
    if (!settings->name || !settings->weights || !settings->delays_s || !settings->phases_rad)
        return -ENOMEM;
    for (size_t a = 0; a < n; a++)
        settings->weights[a] = 1;
    int err = add_sensors(settings);
    if (!err)
        xbgpu_beam_settings_show(settings, 0, 0);
    return err;
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
    *settings = (struct xbgpu_beam_settings){.name = strdup(name)};
    return init(settings, config, beam == 0 ? stream->name : NULL, (size_t)config->recv.n_ants * N_POLS, sensors);
}

void xbgpu_beam_settings_fini(struct xbgpu_beam_settings *settings)
{
    free(settings->name);
    free(settings->weights);
    free(settings->delays_s);
    free(settings->phases_rad);
}
