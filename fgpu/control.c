/* control.c - passes requests from the KATCP server to the settings. */
#include "fgpu/control.h"

#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/engine/gains.h"
#include "common/engine/labels.h"
#include "common/katcp/sensors.h"
#include "common/katcp/server.h"
#include "common/katcp/python_number.h"
#include "common/base/units.h"
#include "fgpu/delay_text.h"
#include "fgpu/gnss/gnss_control.h"
#include "fgpu/stream_info.h"
#include "fgpu/config/layout.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S 10.0 /* reported by ?request-timeout-hint; the worker normally answers within milliseconds */

/* A request whose reply waits for the worker. */
struct waiting {
    struct waiting *next;
    struct katcp_call *call;
    size_t output;
    size_t first, end; /* range [first, end) of the inputs whose gains the request sets */
    size_t eq;         /* first input whose eq sensor has not been set; 'end' if all eq sensors are set */
    /* complex [n_gains], the same gains for each input of the range; NULL: gains of the configuration */
    float *gains;
    size_t n_gains;
    size_t n_out;     /* number of posted commands that the worker has not answered */
    size_t ant;       /* first antenna whose change has not been posted */
    bool is_set;      /* true if the new gains of antenna 'ant' are already in the settings */
    bool concerned[]; /* [n_ants] antennas whose settings the request changes */
};

static void free_waiting(struct waiting *w)
{
    if (w)
        free(w->gains);
    free(w);
}

struct fgpu_control {
    const struct fgpu_config *config;
    struct timebase timebase;
    double rate_hz;
    struct labels labels;
    size_t n_inputs;
    struct command_channel *channel;
    struct fgpu_settings *settings;
    struct sensors *sensors;
    struct katcp_sensors *katcp_sensors;
    struct sensor *eq; /* [output][input] */
    struct sensor rx_status;
    struct stream_info info;
    struct waiting *first, **end;
};

/* ---- The eq sensors ---------------------------------------------------------------------------------------------- */

/* Returns the number of gains that an input's sensor shows: 1 if all channels have the same gain, else n_chan. */
static size_t n_distinct(const struct fgpu_control *c, size_t output, size_t input)
{
    const float *gains = fgpu_settings_gains(c->settings, input / N_POLS, output) + input % N_POLS * 2;
    size_t n_chan = (size_t)fgpu_config_output(c->config, output)->n_chan;

    for (size_t chan = 1; chan < n_chan; chan++)
        if (gains[0] != gains[chan * N_POLS * 2] || gains[1] != gains[chan * N_POLS * 2 + 1])
            return n_chan;
    return 1;
}

static const char *gain_text(const struct fgpu_control *c, size_t output, size_t input, size_t chan,
                             char text[PYTHON_COMPLEX_BYTES])
{
    const float *gain = fgpu_settings_gains(c->settings, input / N_POLS, output) + (chan * N_POLS + input % N_POLS) * 2;

    return python_number_complex_text((double)gain[0], (double)gain[1], text);
}

/* Sets the eq sensor of an input.  Returns the number of gains written. */
static size_t set_eq(struct fgpu_control *c, size_t output, size_t input, int64_t unix_ns)
{
    size_t n = n_distinct(c, output, input), at = 0;
    char *text = malloc(n * (PYTHON_COMPLEX_BYTES + 2) + 3), number[PYTHON_COMPLEX_BYTES];

    if (!text)
        return 0;
    text[at++] = '[';
    for (size_t chan = 0; chan < n; chan++)
        at += (size_t)sprintf(text + at, "%s%s", chan ? ", " : "", gain_text(c, output, input, chan, number));
    strcpy(text + at, "]");
    sensors_set_text(c->sensors, &c->eq[output * c->n_inputs + input], unix_ns, SENSOR_NOMINAL, text);
    free(text);
    return n;
}

/* ---- Replies that wait ------------------------------------------------------------------------------------------- */

/* Returns the UNIX time in ns of 'steady_samples'; the current time if there are no data yet. */
static int64_t time_of(const struct fgpu_control *c, int64_t steady_samples)
{
    return steady_samples > 0 ? timebase_unix_ns(&c->timebase, steady_samples) : clock_unix_ns();
}

/* Publishes the steady timestamp.  If the timestamp goes back, each eq sensor with a later time is set again, with the
 * time of the new timestamp. */
static void show_steady(struct fgpu_control *c, int64_t steady_samples)
{
    bool goes_back = steady_samples < c->katcp_sensors->steady_state;
    int64_t unix_ns = time_of(c, steady_samples);

    katcp_sensors_steady_state(c->katcp_sensors, steady_samples);
    for (size_t i = 0; goes_back && i < c->config->outputs.n * c->n_inputs; i++)
        if (sensor_read(&c->eq[i]).unix_ns > unix_ns)
            set_eq(c, i / c->n_inputs, i % c->n_inputs, unix_ns);
}

/* Sets eq sensors of a request until EQ_GAINS_AT_ONCE gains have been written.  The next iteration of the main loop
 * sets the remaining sensors.  Returns true if all sensors are set. */
#define EQ_GAINS_AT_ONCE 8192
static bool set_eqs(struct fgpu_control *c, struct waiting *w, int64_t unix_ns)
{
    size_t n_compared = (size_t)fgpu_config_output(c->config, w->output)->n_chan / 64, n = 0;

    while (w->eq < w->end && n < EQ_GAINS_AT_ONCE)
        n += n_compared + set_eq(c, w->output, w->eq++, unix_ns);
    return w->eq == w->end;
}

/* Sets gains of antenna 'ant' from a request.  The gains of inputs that the request does not name stay unchanged.  If
 * the request restores the configured gains, sets the gains of both inputs of the antenna. */
static void set_gains(struct fgpu_control *c, const struct waiting *w, size_t ant)
{
    if (!w->gains) {
        fgpu_settings_reset_gains(c->settings, ant, w->output);
        return;
    }
    for (unsigned pol = 0; pol < N_POLS; pol++)
        if (ant * N_POLS + pol >= w->first && ant * N_POLS + pol < w->end)
            fgpu_settings_set_gains(c->settings, ant, w->output, pol, w->gains, w->n_gains);
}

/* Posts a request's changes, antenna by antenna.  Returns false if the remaining antennas must wait until the worker
 * has returned a command or a gain buffer; the worker then wakes this thread.  Also returns false after
 * SET_GAINS_AT_ONCE gains.  The next iteration of the main loop then posts the remaining changes. */
#define SET_GAINS_AT_ONCE (1 << 18)
static bool post(struct fgpu_control *c, struct waiting *w, size_t *n_set)
{
    bool sets_gains = w->end > w->first;

    for (; w->ant < c->config->antennas.n; w->ant++) {
        if (!w->concerned[w->ant])
            continue;
        if (*n_set >= SET_GAINS_AT_ONCE) {
            command_wake(c->channel);
            return false;
        }
        if (sets_gains && !w->is_set) {
            set_gains(c, w, w->ant);
            *n_set += N_POLS * (size_t)fgpu_config_output(c->config, w->output)->n_chan;
        }
        w->is_set = true;
        if (!(sets_gains ? fgpu_settings_post_gains : fgpu_settings_post_delays)(c->settings, w->ant, w->output,
                                                                                 c->channel, w))
            return false;
        w->is_set = false;
        w->n_out++;
    }
    return true;
}

/* Posts the commands that can be posted, and answers the requests that are complete, in order. */
static void advance(struct fgpu_control *c)
{
    size_t n_set = 0;

    for (struct waiting *w = c->first; w && post(c, w, &n_set);)
        w = w->next;
    while (c->first && c->first->ant == c->config->antennas.n && c->first->n_out == 0) {
        struct waiting *done = c->first;
        int64_t steady_samples = command_steady_samples(c->channel);
        show_steady(c, steady_samples);
        if (!set_eqs(c, done, time_of(c, steady_samples))) {
            command_wake(c->channel);
            return;
        }
        c->first = done->next;
        katcp_ok(done->call, 0, NULL);
        free_waiting(done);
    }
    if (!c->first)
        c->end = &c->first;
}

static void on_answer(void *arg, struct command *base)
{
    struct waiting *w = ((struct fgpu_command *)base)->request;

    if (w)
        w->n_out--;
}

/* Called when the worker has answered, when a gain buffer is free again, or when the timestamps of the data have gone
 * back. */
static void on_wake(void *arg)
{
    struct fgpu_control *c = arg;
    int64_t steady_samples = command_steady_samples(c->channel);

    if (steady_samples < c->katcp_sensors->steady_state)
        show_steady(c, steady_samples);
    advance(c);
}

/* Queues a request.  The reply follows when the worker has applied the request's settings. */
static void reply_when_applied(struct fgpu_control *c, struct waiting *w)
{
    *c->end = w;
    c->end = &w->next;
    advance(c);
}

/* Returns a new waiting request.  If there is no memory, fails the call and returns NULL, before any setting has
 * changed. */
static struct waiting *prepare(struct fgpu_control *c, struct katcp_call *call, size_t output)
{
    struct waiting *w = calloc(1, sizeof(*w) + c->config->antennas.n * sizeof(w->concerned[0]));

    if (!w) {
        katcp_fail(call, "out of memory");
        return NULL;
    }
    w->call = call;
    w->output = output;
    return w;
}

/* Sets 'n' gains of inputs [first, end), and replies when the worker has applied the gains.  If 'gains' is NULL, sets
 * the gains of the configuration.  Takes ownership of 'gains'. */
static void set_and_reply(struct fgpu_control *c, struct katcp_call *call, size_t output, size_t first, size_t end,
                          float *gains, size_t n)
{
    struct waiting *waiting = prepare(c, call, output);

    if (!waiting) {
        free(gains);
        return;
    }
    waiting->first = waiting->eq = first;
    waiting->end = end;
    waiting->gains = gains;
    waiting->n_gains = n;
    for (size_t input = first; input < end; input++)
        waiting->concerned[input / N_POLS] = true;
    reply_when_applied(c, waiting);
}

/* ---- Streams and inputs ------------------------------------------------------------------------------------------ */

static bool find_output(struct fgpu_control *c, struct katcp_call *call, size_t *output)
{
    const char *name = katcp_arg(call, 0);

    for (size_t o = 0; o < c->config->outputs.n; o++)
        if (strcmp(fgpu_config_output(c->config, o)->name, name) == 0) {
            *output = o;
            return true;
        }
    katcp_fail(call, "there is no stream '%.64s'", name);
    return false;
}

static bool find_input(struct fgpu_control *c, struct katcp_call *call, const char *text, size_t n, size_t *input)
{
    long found = labels_find(&c->labels, text, n);

    *input = (size_t)found;
    if (found < 0)
        katcp_fail(call, "there is no input '%.*s': inputs are 0 to %zu, or an antenna's name with v or h",
                   (int)(n < 64 ? n : 64), text, c->n_inputs - 1);
    return found >= 0;
}

/* ---- Gains ------------------------------------------------------------------------------------------------------- */

/* Reads gains; the first gain is argument 'first'.  On an error, fails the call and returns NULL. */
static float *parse_gains(struct katcp_call *call, int first, size_t n)
{
    const struct gains_limits limits = {
        .magnitude = FGPU_GAIN_MAX,
        .too_large = "a gain must have a magnitude of at most " FGPU_GAIN_MAX_TEXT "; larger gains saturate all values",
    };

    return gains_of_call(call, first, n, &limits);
}

static void answer_gains(struct fgpu_control *c, struct katcp_call *call, size_t output, size_t input)
{
    size_t n = n_distinct(c, output, input);
    char(*texts)[PYTHON_COMPLEX_BYTES] = malloc(n * sizeof(*texts));
    const char **args = malloc(n * sizeof(*args));

    if (texts && args) {
        for (size_t chan = 0; chan < n; chan++)
            args[chan] = gain_text(c, output, input, chan, texts[chan]);
        katcp_ok(call, (int)n, args);
    } else {
        katcp_fail(call, "out of memory");
    }
    free(args);
    free(texts);
}

static void request_gain(struct katcp_call *call, void *arg)
{
    struct fgpu_control *c = arg;
    size_t output, input, n = (size_t)katcp_n_args(call) - 2;

    if (!find_output(c, call, &output) || !find_input(c, call, katcp_arg(call, 1), strlen(katcp_arg(call, 1)), &input))
        return;
    size_t n_chan = (size_t)fgpu_config_output(c->config, output)->n_chan;
    if (n > 1 && n != n_chan) {
        katcp_fail(call, "the request must have one gain or %zu gains to set gains, or none to read gains", n_chan);
        return;
    }
    if (n == 0) {
        answer_gains(c, call, output, input);
        return;
    }
    float *gains = parse_gains(call, 2, n);
    if (gains)
        set_and_reply(c, call, output, input, input + 1, gains, n);
}

static void request_gain_all(struct katcp_call *call, void *arg)
{
    struct fgpu_control *c = arg;
    size_t output, n = (size_t)katcp_n_args(call) - 1;
    float *gains = NULL;

    if (!find_output(c, call, &output))
        return;
    size_t n_chan = (size_t)fgpu_config_output(c->config, output)->n_chan;
    if (n > 1 && n != n_chan) {
        katcp_fail(call, "the request must have one gain or %zu gains", n_chan);
        return;
    }
    bool is_default = n == 1 && strcmp(katcp_arg(call, 1), "default") == 0;
    if (!is_default && !(gains = parse_gains(call, 1, n)))
        return;
    set_and_reply(c, call, output, 0, c->n_inputs, gains, n);
}

/* ---- Delays ------------------------------------------------------------------------------------------------------ */

/* Checks that delay and rate are within limits.  Otherwise a typing error could move the output far ahead. */
static bool is_within_limits(struct fgpu_control *c, struct katcp_call *call, const char *text,
                             const struct fgpu_delay_model *model)
{
    if (fabs(model->delay_samples) > c->config->recv.max_delay_s * c->rate_hz) {
        katcp_fail(call, "the magnitude of a delay must be at most %g s (recv.max_delay): '%.200s'",
                   c->config->recv.max_delay_s, text);
        return false;
    }
    if (fabs(model->rate) > DELAY_MAX_REQUEST_RATE) {
        katcp_fail(call, "the magnitude of a delay rate must be at most %g s/s: '%.200s'", DELAY_MAX_REQUEST_RATE,
                   text);
        return false;
    }
    return true;
}

/* Reads the models of a request into models[input].  If the request does not name an input, the model of this input
 * keeps the start -1. */
static bool parse_models(struct fgpu_control *c, struct katcp_call *call, int64_t start_samples,
                         struct fgpu_delay_model *models)
{
    size_t n = (size_t)katcp_n_args(call) - 2;
    bool addressed = n > 0 && strchr(katcp_arg(call, 2), '=');

    if (!addressed && n != c->n_inputs) {
        katcp_fail(call, "the request must have %zu models, one for each input", c->n_inputs);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *text = katcp_arg(call, 2 + (int)i), *equals = strchr(text, '=');
        size_t input = i;
        if (addressed != (equals != NULL)) {
            katcp_fail(call, "INPUT= must stand before all models or before none: '%.64s'", text);
            return false;
        }
        if (addressed && !find_input(c, call, text, (size_t)(equals - text), &input))
            return false;
        if (models[input].start_samples >= 0) {
            katcp_fail(call, "there are two models for input %zu", input);
            return false;
        }
        models[input].start_samples = start_samples;
        const char *wrong = fgpu_delay_text_parse(addressed ? equals + 1 : text, c->rate_hz, &models[input]);
        if (wrong) {
            katcp_fail(call, "%s: '%.200s'", wrong, text);
            return false;
        }
        if (!is_within_limits(c, call, text, &models[input]))
            return false;
    }
    return true;
}

static bool have_room(struct fgpu_control *c, struct katcp_call *call, size_t output,
                      const struct fgpu_delay_model *models)
{
    for (size_t i = 0; i < c->n_inputs; i++)
        if (models[i].start_samples >= 0 &&
            !fgpu_settings_has_room(c->settings, i / N_POLS, output, i % N_POLS, models[i].start_samples)) {
            katcp_fail(call, "input %zu already has %d pending delay models, which is the maximum", i,
                       DELAY_MAX_MODELS - 1);
            return false;
        }
    return true;
}

static void request_delays(struct katcp_call *call, void *arg)
{
    struct fgpu_control *c = arg;
    struct waiting *waiting;
    int64_t start_samples;
    size_t output;

    if (!find_output(c, call, &output) || !delay_request_start(call, 1, &c->timebase, &start_samples))
        return;
    struct fgpu_delay_model *models = calloc(c->n_inputs, sizeof(*models));
    if (!models) {
        katcp_fail(call, "out of memory");
        return;
    }
    for (size_t i = 0; i < c->n_inputs; i++)
        models[i].start_samples = -1;
    if (parse_models(c, call, start_samples, models) && have_room(c, call, output, models) &&
        (waiting = prepare(c, call, output))) {
        for (size_t i = 0; i < c->n_inputs; i++) {
            if (models[i].start_samples < 0)
                continue;
            fgpu_settings_add_delay(c->settings, i / N_POLS, output, i % N_POLS, &models[i]);
            waiting->concerned[i / N_POLS] = true;
        }
        reply_when_applied(c, waiting);
    }
    free(models);
}

/* Finds the antenna with this name. */
static bool find_antenna(struct fgpu_control *c, struct katcp_call *call, const char *name, size_t *ant)
{
    for (*ant = 0; *ant < c->config->antennas.n; (*ant)++)
        if (strcmp(fgpu_config_antenna(c->config, *ant)->name, name) == 0)
            return true;
    katcp_fail(call, "there is no antenna '%.64s'", name);
    return false;
}

static void request_resume(struct katcp_call *call, void *arg)
{
    struct fgpu_control *c = arg;
    struct waiting *waiting;
    size_t output, ant;
    int n = katcp_n_args(call);

    if (!find_output(c, call, &output))
        return;
    for (int i = 1; i < n; i++)
        if (!find_antenna(c, call, katcp_arg(call, i), &ant))
            return;
    if (!(waiting = prepare(c, call, output)))
        return;
    for (int i = 1; i < n; i++) {
        find_antenna(c, call, katcp_arg(call, i), &ant);
        waiting->concerned[ant] = true;
    }
    for (ant = 0; ant < c->config->antennas.n; ant++) {
        waiting->concerned[ant] = waiting->concerned[ant] || n == 1;
        if (waiting->concerned[ant])
            fgpu_settings_resume(c->settings, ant, output);
    }
    reply_when_applied(c, waiting);
}

/* Sends the worker an order to add, drop or steer a satellite.  The order takes effect with the next chunk, and the
 * reply to the request does not wait for that chunk. */
static void request_gnss(struct katcp_call *call, struct fgpu_control *c, enum fgpu_gnss_action action)
{
    struct fgpu_gnss_order order;

    if (!fgpu_gnss_order_of_call(c->config, call, action, &order))
        return;
    struct fgpu_command *command = (struct fgpu_command *)command_take(c->channel);
    if (!command) {
        katcp_fail(call, "too many requests are pending; try again");
        return;
    }
    command->gnss = order;
    command->request = NULL;
    command_post(c->channel, &command->base);
    katcp_ok(call, 0, NULL);
}

static void request_gnss_add(struct katcp_call *call, void *arg)
{
    request_gnss(call, arg, FGPU_GNSS_ADD);
}

static void request_gnss_drop(struct katcp_call *call, void *arg)
{
    request_gnss(call, arg, FGPU_GNSS_DROP);
}

static void request_gnss_steer(struct katcp_call *call, void *arg)
{
    request_gnss(call, arg, FGPU_GNSS_STEER);
}

static const struct katcp_request requests[] = {
    {"gain",
     "Sets or returns the gains of an input.\n"
     "?gain STREAM INPUT [VALUE...]\n"
     "STREAM is an output's name. INPUT is a number or a label (m000v). A VALUE is a complex number without unit. Give "
     "one VALUE for all channels, or one VALUE for each channel. Without a VALUE the reply has the gains.",
     2, INT_MAX, request_gain, 3, TIMEOUT_S, .has_long_lines = true},
    {"gain-all",
     "Sets the gains of all inputs.\n"
     "?gain-all STREAM VALUE...|default\n"
     "STREAM and VALUE are as for ?gain. 'default' restores the gains of the configuration.",
     2, INT_MAX, request_gain_all, 0, TIMEOUT_S, .has_long_lines = true},
    {"delays",
     "Adds delay models that take effect at a start time.\n"
     "?delays STREAM START [INPUT=]MODEL...\n"
     "STREAM is an output's name. START is in UNIX seconds. Give a MODEL for each input, or INPUT=MODEL for some "
     "inputs. A MODEL is delay,rate:phase,phase_rate or delay,rate,acceleration:phase,phase_rate,phase_acceleration in "
     "s, s/s, s/s^2, rad, rad/s and rad/s^2. The phase applies at the centre of the output's band.",
     3, INT_MAX, request_delays, 0, TIMEOUT_S},
    {"resume",
     "Resumes a stream that is silent after a delay that was too large.\n"
     "?resume STREAM [ANTENNA...]\n"
     "STREAM is an output's name. ANTENNA is an antenna's name; without one, all antennas resume. The timestamps of the resumed stream continue at an earlier time. A stream that is not silent does not change.",
     1, INT_MAX, request_resume, 0, TIMEOUT_S},
    {"gnss-add",
     "Searches for a dropped satellite, and follows the satellite again.\n"
     "?gnss-add STREAM SATELLITE [ANTENNA]\n"
     "STREAM is the name of a stream of 'gnss'. SATELLITE is a satellite of the configuration, such as L1CA-7. Without "
     "ANTENNA all antennas search.",
     2, 3, request_gnss_add, 0, TIMEOUT_S},
    {"gnss-drop",
     "Ends the search for a satellite and its tracking.\n"
     "?gnss-drop STREAM SATELLITE [ANTENNA]\n"
     "The arguments are those of ?gnss-add.",
     2, 3, request_gnss_drop, 0, TIMEOUT_S},
    {"gnss-steer",
     "Follows a satellite from a known code phase and Doppler, without a search.\n"
     "?gnss-steer STREAM SATELLITE ANTENNA TIMESTAMP CODE DOPPLER\n"
     "CODE is the code's phase in chips at the ADC sample TIMESTAMP, to a quarter of a chip. DOPPLER is in Hz.",
     6, 6, request_gnss_steer, 0, TIMEOUT_S},
};

void fgpu_control_requests(struct fgpu_control *control, struct katcp_device *device)
{
    device->requests = requests;
    device->n_requests = ARRAY_LEN(requests);
    device->arg = control;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int add_eq(struct fgpu_control *c, size_t output, size_t input)
{
    char name[128];
    const struct sensor_desc about = {
        .name = name,
        .description = "Complex gains of this input, without unit: one gain if all channels have the same gain, else "
                       "one gain for each channel, in order",
        .units = "",
        .type = SENSOR_STRING,
    };

    snprintf(name, sizeof(name), "%s.input%zu.eq", fgpu_config_output(c->config, output)->name, input);
    int err = sensors_add(c->sensors, &c->eq[output * c->n_inputs + input], &about, (struct sensor_reading){0});
    if (!err)
        set_eq(c, output, input, clock_unix_ns());
    return err;
}

static bool is_rx(const char *name)
{
    return strstr(name, ".rx.") || strncmp(name, "rx.", 3) == 0;
}

static int add_sensors(struct fgpu_control *c, const struct fgpu_choice *choices)
{
    const struct sensor_desc rx = {.name = "rx.device-status",
                                   .description = "Degraded while any receive sensor (rx) is worse than nominal",
                                   .units = "",
                                   .type = SENSOR_DISCRETE,
                                   .words = sensor_aggregate_words,
                                   .includes = is_rx};
    size_t n = c->config->outputs.n * c->n_inputs;

    c->eq = calloc(n, sizeof(*c->eq));
    int err = c->eq ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && !err; i++)
        err = add_eq(c, i / c->n_inputs, i % c->n_inputs);
    if (!err)
        err = sensors_add(c->sensors, &c->rx_status, &rx, (struct sensor_reading){0});
    return err ? err : fgpu_stream_info_init(&c->info, c->config, choices, &c->labels, c->sensors);
}

static const char *antenna_name(const void *config, size_t ant)
{
    return fgpu_config_antenna(config, ant)->name;
}

int fgpu_control_create(const struct fgpu_config *config, struct engine *engine, struct fgpu_settings *settings,
                        const struct fgpu_choice *choices, struct fgpu_control **control)
{
    struct fgpu_control *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->config = config;
    c->timebase = fgpu_timebase(config);
    c->rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    c->n_inputs = config->antennas.n * N_POLS;
    c->channel = engine->channel;
    c->settings = settings;
    c->sensors = engine->c.sensors;
    c->katcp_sensors = engine->c.katcp_sensors;
    c->end = &c->first;
    int err = labels_init_named(&c->labels, c->config->antennas.n, antenna_name, c->config);
    if (!err)
        err = add_sensors(c, choices);
    if (err) {
        fgpu_control_destroy(c);
        return err;
    }
    command_start(c->channel, on_answer, on_wake, c);
    *control = c;
    return 0;
}

void fgpu_control_stop(struct fgpu_control *c)
{
    command_stop(c->channel);
    while (c->first) {
        struct waiting *next = c->first->next;
        free_waiting(c->first);
        c->first = next;
    }
    c->end = &c->first;
}

void fgpu_control_destroy(struct fgpu_control *c)
{
    if (!c)
        return;
    fgpu_control_stop(c);
    stream_info_fini(&c->info);
    labels_fini(&c->labels);
    free(c->eq);
    free(c);
}
