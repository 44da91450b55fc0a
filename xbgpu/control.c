/* control.c - handles requests from katcp/server.c, and posts commands to the worker. */
#include "xbgpu/control.h"

#include "common/base/file.h"
#include "common/katcp/sensors.h"
#include "common/katcp/server.h"
#include "common/base/log.h"
#include "common/telemetry/sensor.h"
#include "common/daemon/service.h"
#include "common/daemon/state_file.h"
#include "common/engine/engine.h"
#include "common/base/units.h"
#include "xbgpu/beam_control.h"
#include "xbgpu/config/gate.h"
#include "common/engine/labels.h"
#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/requests.h"
#include "xbgpu/settings.h"
#include "xbgpu/stream_info.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct xbgpu_control {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    const struct labels *labels;
    struct engine *engine;
    struct xbgpu_settings settings;
    struct state_files *files;
    struct state_file *file;
    struct sensor state_status;
    struct stream_info info;
    struct command_channel *channel;
    struct xbgpu_beam_control *beams;
};

static size_t n_inputs(const struct xbgpu_control *control)
{
    return control->layout->n_ants * N_POLS;
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void reply_number(struct katcp_call *call, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    katcp_ok(call, 1, (const char *[]){text});
}

static void show_steady(void *arg)
{
    struct xbgpu_control *c = arg;

    katcp_sensors_steady_state(c->engine->c.katcp_sensors, command_steady_samples(c->engine->channel));
}

/* Answers a request whose command the worker has applied. */
static void on_answer(void *arg, struct command *base)
{
    struct xbgpu_control *c = arg;
    struct xbgpu_command *command = (struct xbgpu_command *)base;

    xbgpu_gate_destroy(command->gate);
    command->gate = NULL;
    show_steady(c);
    if (command->what == XBGPU_COMMAND_BEAM)
        xbgpu_beam_control_show(c->beams, command);
    if (command->call && (command->what == XBGPU_COMMAND_CAPTURE || command->what == XBGPU_COMMAND_BEAM_CAPTURE ||
                          command->what == XBGPU_COMMAND_BEAM || command->what == XBGPU_COMMAND_CALIBRATION))
        katcp_ok(command->call, 0, NULL);
    else if (command->call)
        reply_number(command->call, command->from_samples > command->effective_samples ? command->from_samples
                                                                                       : command->effective_samples);
}

/* ---- Setting: a checked request is posted and saved; there is a free command slot -------------------------------- */

static void set_capture(struct xbgpu_control *c, size_t output, bool on, int64_t from_samples, struct katcp_call *call)
{
    struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_CAPTURE, call);

    command->index = output;
    command->on = on;
    command->from_samples = from_samples;
    c->settings.captures[output] = (struct xbgpu_settings_capture){true, on, from_samples};
    command_post(c->engine->channel, &command->base);
    state_file_changed(c->file);
}

static void set_shifts(struct xbgpu_control *c, const int64_t *shifts, struct katcp_call *call)
{
    struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_SHIFTS, call);

    for (size_t i = 0; i < n_inputs(c); i++)
        command->delays[i] = xbgpu_delay(c->layout, shifts[i]);
    if (shifts != c->settings.shifts)
        memcpy(c->settings.shifts, shifts, n_inputs(c) * sizeof(*shifts));
    c->settings.shifts_set = true;
    command_post(c->engine->channel, &command->base);
    state_file_changed(c->file);
}

/* Posts a command that changes gate 'g'.  'made' is the changed gate, ready for the worker.  The command takes
 * ownership of 'made'. */
static void set_gate(struct xbgpu_control *c, size_t g, struct xbgpu_gate *made, struct katcp_call *call)
{
    struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_GATE, call);

    command->index = g;
    command->gate = made;
    command->from_samples = c->settings.gates[g].from_samples;
    c->settings.gates[g].set = true;
    command_post(c->engine->channel, &command->base);
    state_file_changed(c->file);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Each of these functions reads an argument.  On an error, it fails the call and returns false. */

static bool arg_output(const struct xbgpu_control *c, struct katcp_call *call, size_t *output)
{
    int o = xbgpu_settings_find_output(&c->settings, katcp_arg(call, 0));

    if (o < 0)
        katcp_fail(call, "there is no stream '%s'", katcp_arg(call, 0));
    *output = (size_t)o;
    return o >= 0;
}

static bool arg_timestamp(struct katcp_call *call, int i, int64_t *samples)
{
    int64_t value;

    if (!katcp_arg_integer(call, i, "the timestamp", &value))
        return false;
    if (value < 0) {
        katcp_fail(call, "the timestamp must not be negative, but is %" PRId64, value);
        return false;
    }
    *samples = value;
    return true;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static void capture_start(struct katcp_call *call, void *arg)
{
    struct xbgpu_control *c = arg;
    int64_t from_samples = 0;
    size_t output;

    if (!xbgpu_has_slot(c->engine->channel, call) || (katcp_n_args(call) > 1 && !arg_timestamp(call, 1, &from_samples)))
        return;
    if (!xbgpu_beam_control_capture(c->beams, true, from_samples, call) && arg_output(c, call, &output))
        set_capture(c, output, true, from_samples, call);
}

static void capture_stop(struct katcp_call *call, void *arg)
{
    struct xbgpu_control *c = arg;
    size_t output;

    if (!xbgpu_has_slot(c->engine->channel, call))
        return;
    if (!xbgpu_beam_control_capture(c->beams, false, 0, call) && arg_output(c, call, &output))
        set_capture(c, output, false, 0, call);
}

static void reply_shifts(const struct xbgpu_control *c, struct katcp_call *call, size_t first, size_t n)
{
    char(*texts)[24] = calloc(n, sizeof(*texts));
    const char **args = calloc(n, sizeof(*args));

    for (size_t i = 0; texts && args && i < n; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%" PRId64, c->settings.shifts[first + i]);
        args[i] = texts[i];
    }
    if (texts && args)
        katcp_ok(call, (int)n, args);
    else
        katcp_fail(call, "there is no memory for the reply");
    free(texts);
    free(args);
}

/* The arguments are pairs: an input, then the input's shift.  Stores each shift in shifts[input].  All of 'seen' must
 * be 0 before the call. */
static bool arg_shifts(const struct xbgpu_control *c, struct katcp_call *call, int64_t *shifts, bool *seen)
{
    const struct xbgpu_layout *l = c->layout;

    for (int i = 0; i < katcp_n_args(call); i += 2) {
        size_t input;
        if (!xbgpu_arg_input(c->labels, call, i, &input))
            return false;
        if (i + 1 == katcp_n_args(call)) {
            katcp_fail(call, "there must be a shift after input %s", katcp_arg(call, i));
            return false;
        }
        if (seen[input]) {
            katcp_fail(call, "input %s is given twice", katcp_arg(call, i));
            return false;
        }
        seen[input] = true;
        if (!katcp_arg_integer(call, i + 1, "the shift", &shifts[input]))
            return false;
        if (!xbgpu_settings_shift_fits(&c->settings, shifts[input])) {
            katcp_fail(call,
                       "the shift of input %s must be from %" PRId64 " to %" PRId64
                       " spectra (recv.max_shift), but is %" PRId64,
                       katcp_arg(call, i), l->min_shift, l->max_shift, shifts[input]);
            return false;
        }
    }
    return true;
}

static void input_shift(struct katcp_call *call, void *arg)
{
    struct xbgpu_control *c = arg;
    size_t input;

    if (katcp_n_args(call) == 0) {
        reply_shifts(c, call, 0, n_inputs(c));
        return;
    }
    if (katcp_n_args(call) == 1) {
        if (xbgpu_arg_input(c->labels, call, 0, &input))
            reply_shifts(c, call, input, 1);
        return;
    }
    int64_t *shifts = calloc(n_inputs(c), sizeof(*shifts));
    bool *seen = calloc(n_inputs(c), sizeof(*seen));
    if (!shifts || !seen) {
        katcp_fail(call, "there is no memory for the shifts");
    } else {
        memcpy(shifts, c->settings.shifts, n_inputs(c) * sizeof(*shifts));
        if (xbgpu_has_slot(c->engine->channel, call) && arg_shifts(c, call, shifts, seen))
            set_shifts(c, shifts, call);
    }
    free(shifts);
    free(seen);
}

static void reply_gate_names(const struct xbgpu_control *c, struct katcp_call *call)
{
    const char *names[XBGPU_GATES_MAX];
    size_t n = c->layout->n_gates;

    for (size_t g = 0; g < n; g++)
        names[g] = c->settings.gates[g].gate.name;
    katcp_ok(call, (int)n, names);
}

static void reply_gate(const struct xbgpu_settings_gate *gate, struct katcp_call *call)
{
    const char *args[1 + XBGPU_N_GATE_KEYS];
    char *text = NULL, *rest = NULL, from[24];
    size_t text_bytes = 0;
    int n = 1;
    FILE *out = open_memstream(&text, &text_bytes);

    if (out)
        xbgpu_gate_write(&gate->gate, "", "=", "\n", out);
    if (file_close_text(out, &text)) {
        katcp_fail(call, "there is no memory for the reply");
        return;
    }
    snprintf(from, sizeof(from), "%" PRId64, gate->from_samples);
    args[0] = from;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        args[n++] = line;
    katcp_ok(call, n, args);
    free(text);
}

/* Reads the arguments KEY=VALUE of a request into 'gate'.  On an error, fails the call and returns false. */
static bool arg_gate_keys(const struct xbgpu_control *c, struct katcp_call *call,
                          const struct xbgpu_config_gate *before, struct xbgpu_config_gate *gate)
{
    char key[64], why[1024] = "there is no memory for the change";
    int err = 0;

    for (int i = 2; i < katcp_n_args(call) && !err; i++) {
        const char *arg = katcp_arg(call, i), *equals = strchr(arg, '=');
        if (!equals || equals == arg || (size_t)(equals - arg) >= sizeof(key)) {
            katcp_fail(call, "'%s' is not KEY=VALUE", arg);
            return false;
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - arg), arg);
        /* A gate has either an epoch or an epoch time.  The key that comes last in the request
         * replaces the other key. */
        if (strcmp(key, "epoch_time") == 0)
            gate->epoch_samples = 0;
        else if (strcmp(key, "epoch") == 0)
            gate->epoch_time_s.mantissa = 0;
        err = xbgpu_gate_set(gate, key, equals + 1, why, sizeof(why));
    }
    if (!err)
        err = xbgpu_gate_check(c->config, before, gate, why, sizeof(why));
    if (err)
        katcp_fail(call, "%s", why);
    return !err;
}

static void change_gate(struct xbgpu_control *c, struct katcp_call *call, size_t g)
{
    struct xbgpu_settings_gate *entry = &c->settings.gates[g];
    struct xbgpu_config_gate definition;
    struct xbgpu_gate *made;
    int64_t from_samples;

    if (katcp_n_args(call) == 2) {
        katcp_fail(call, "give the changes of gate %s as KEY=VALUE", entry->gate.name);
        return;
    }
    if (!xbgpu_has_slot(c->engine->channel, call) || !arg_timestamp(call, 1, &from_samples))
        return;
    if (xbgpu_gate_copy(&entry->gate, &definition)) {
        katcp_fail(call, "there is no memory for the gate");
        return;
    }
    if (!arg_gate_keys(c, call, &entry->gate, &definition)) {
        xbgpu_gate_free(&definition);
        return;
    }
    if (xbgpu_gate_create(&definition, c->config, &made)) {
        katcp_fail(call, "there is no memory for the gate");
        xbgpu_gate_free(&definition);
        return;
    }
    xbgpu_gate_free(&entry->gate);
    entry->gate = definition;
    entry->from_samples = from_samples;
    set_gate(c, g, made, call);
}

static void gate(struct katcp_call *call, void *arg)
{
    struct xbgpu_control *c = arg;

    if (katcp_n_args(call) == 0) {
        reply_gate_names(c, call);
        return;
    }
    int g = xbgpu_find_gate(&c->config->gates, katcp_arg(call, 0));
    if (g < 0)
        katcp_fail(call, "there is no gate '%s'", katcp_arg(call, 0));
    else if (katcp_n_args(call) == 1)
        reply_gate(&c->settings.gates[g], call);
    else
        change_gate(c, call, (size_t)g);
}

static void beam_weights(struct katcp_call *call, void *arg)
{
    xbgpu_beam_control_weights(((struct xbgpu_control *)arg)->beams, call);
}

static void beam_delays(struct katcp_call *call, void *arg)
{
    xbgpu_beam_control_delays(((struct xbgpu_control *)arg)->beams, call);
}

static void beam_quant_gains(struct katcp_call *call, void *arg)
{
    xbgpu_beam_control_gain(((struct xbgpu_control *)arg)->beams, call);
}

static void beam_calibration(struct katcp_call *call, void *arg)
{
    xbgpu_beam_control_calibration(((struct xbgpu_control *)arg)->beams, call);
}

static const struct katcp_request requests[] = {
    {.name = "capture-start",
     .help = "Starts sending the heaps of a stream.\n"
             "?capture-start STREAM [TIMESTAMP]\n"
             "STREAM is an output, a beam, or a stream of detected beams. Heaps that begin before TIMESTAMP, in ADC "
             "samples, are not sent. Without TIMESTAMP, all heaps are sent.",
     .min_args = 1,
     .max_args = 2,
     .handle = capture_start},
    {.name = "capture-stop",
     .help = "Stops sending the heaps of a stream.\n"
             "?capture-stop STREAM\n"
             "STREAM is an output, a beam, or a stream of detected beams. Its heaps are still made, and its "
             "descriptors are still sent.",
     .min_args = 1,
     .max_args = 1,
     .handle = capture_stop},
    {.name = "beam-weights",
     .help = "Sets the weights of a beam.\n"
             "?beam-weights BEAM WEIGHT...\n"
             "A WEIGHT is a real number without unit. Give one for each antenna, in the order of their feng_id. A "
             "detected beam, STREAM.NUMBER, takes one for each antenna or one for each input. Weights of an incoherent "
             "beam apply to powers, and must not be negative.",
     .min_args = 2,
     .max_args = 1 + 8192,
     .handle = beam_weights,
     .has_long_lines = true},
    {.name = "beam-delays",
     .help = "Sets the delays of a beam.\n"
             "?beam-delays BEAM [LOAD_TIME] DELAY:PHASE...\n"
             "Give a DELAY in s and a PHASE in rad for each antenna. The phase applies at the centre of the whole "
             "stream. With a LOAD_TIME, in UNIX seconds, the models take effect with the first batch at or after "
             "LOAD_TIME, and may be DELAY,RATE:PHASE,PHASE_RATE, in s, s/s, rad and rad/s. Without LOAD_TIME the "
             "models take effect as soon as possible, and pending models are dropped. A detected beam takes one model "
             "for each antenna or each input. An incoherent beam has no delays.",
     .min_args = 2,
     .max_args = 2 + 8192,
     .handle = beam_delays,
     .has_long_lines = true},
    {.name = "beam-quant-gains",
     .help = "Sets the gain by which a beam is multiplied before rounding.\n?beam-quant-gains BEAM GAIN\n"
             "GAIN is a real number without unit.",
     .min_args = 2,
     .max_args = 2,
     .handle = beam_quant_gains},
    {.name = "beam-calibration",
     .help = "Sets the gains of an input for all beams except incoherent beams.\n?beam-calibration INPUT VALUE...\n"
             "An INPUT is a label, or a number: 2 * antenna + polarisation. A VALUE is a complex number like 1-0.5j: "
             "one for all channels, or one for each channel of the whole stream.",
     .min_args = 2,
     .max_args = 1 + 65536,
     .handle = beam_calibration,
     .has_long_lines = true},
    {.name = "input-shift",
     .help =
         "Returns or sets the delays (shifts) of inputs in spectra.\n"
         "?input-shift [INPUT [SPECTRA INPUT SPECTRA ...]]\n"
         "An INPUT is a label, or a number: 2 * antenna + polarisation. Inputs that are not named do not change. "
         "Without arguments the reply has the shifts of all inputs; with one INPUT alone, the shift of this input. "
         "With SPECTRA the request sets the named shifts together, and the reply has the timestamp at which the shifts "
         "take effect.",
     .max_args = 2 * 2 * 4096,
     .handle = input_shift,
     .changes_from = 2},
    {.name = "gate",
     .help = "Returns or changes the keys of a gate.\n"
             "?gate [NAME [TIMESTAMP KEY=VALUE ...]]\n"
             "The changed gate is in effect from TIMESTAMP, in ADC samples; 0 means as soon as possible. The keys "
             "are the keys of the YAML file. Separate the items of a list by commas. Keys that are not named do not "
             "change. A change replaces a pending change. Without arguments the reply has the names of all gates. With "
             "NAME alone the reply has the timestamp from which the gate is in effect, then its keys. With KEY=VALUE "
             "the request changes the gate, and the reply has the timestamp at which the change takes effect.",
     .max_args = 2 + XBGPU_N_GATE_KEYS,
     .handle = gate,
     .changes_from = 2},
};

void xbgpu_control_serve(struct xbgpu_control *control, struct katcp_device *device)
{
    device->requests = requests;
    device->n_requests = ARRAY_LEN(requests);
    device->arg = control;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static struct xbgpu_command *command_of(const struct xbgpu_control *c, size_t i)
{
    return (struct xbgpu_command *)command_slot(c->engine->channel, i);
}

static int create_commands(struct xbgpu_control *c)
{
    for (size_t i = 0; i < command_n_slots(c->engine->channel); i++) {
        command_of(c, i)->delays = calloc(n_inputs(c), sizeof(*command_of(c, i)->delays));
        command_of(c, i)->steering = calloc(n_inputs(c), sizeof(*command_of(c, i)->steering));
        command_of(c, i)->calibration = calloc(c->layout->n_chan, 2 * sizeof(float));
        if (!command_of(c, i)->delays || !command_of(c, i)->steering || !command_of(c, i)->calibration)
            return -ENOMEM;
    }
    command_start(c->engine->channel, on_answer, show_steady, c);
    return 0;
}

/* Reads the saved settings and posts them, unless the file is unreadable. */
static int restore(struct xbgpu_control *c)
{
    const char *path = state_file_path(c->file);
    char why[512] = "";
    bool whole = true;
    int err = path ? xbgpu_settings_read(&c->settings, path, &whole, why, sizeof(why)) : 0;

    if (!path || err == -ENOMEM)
        return err;
    if (err || !whole)
        state_file_ignored(c->file);
    if (err) {
        log_warning("%s; the file is ignored", why);
        return 0;
    }
    for (size_t o = 0; o < c->layout->n_outputs; o++) {
        const struct xbgpu_settings_capture *capture = &c->settings.captures[o];
        if (capture->set)
            set_capture(c, o, capture->on, capture->from_samples, NULL);
    }
    if (c->settings.shifts_set)
        set_shifts(c, c->settings.shifts, NULL);
    for (size_t g = 0; g < c->layout->n_gates && !err; g++) {
        struct xbgpu_gate *made;
        if (!c->settings.gates[g].set)
            continue;
        err = xbgpu_gate_create(&c->settings.gates[g].gate, c->config, &made);
        if (!err)
            set_gate(c, g, made, NULL);
    }
    size_t n = command_n_slots(c->engine->channel) - command_n_free(c->engine->channel);
    log_info("%zu saved setting%s in effect again: %s", n, n == 1 ? " is" : "s are", path);
    return err;
}

int xbgpu_control_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                         const struct labels *labels, struct engine *engine, struct xbgpu_beams *beams,
                         struct xbgpu_detected *detected, struct xbgpu_control **control, char *why, size_t why_bytes)
{
    struct xbgpu_control *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->config = config;
    c->layout = layout;
    c->labels = labels;
    c->engine = engine;
    int err = xbgpu_settings_init(&c->settings, config, layout);
    if (!err)
        err = create_commands(c);
    if (!err)
        err = xbgpu_beam_control_create(config, layout, labels, engine, beams, detected, &c->beams);
    if (!err)
        err = xbgpu_stream_info_init(&c->info, config, layout, labels, engine->c.sensors);
    if (!err)
        err = state_files_open(&config->daemon.state, service_loop(engine->c.service), engine->c.sensors,
                               &c->state_status, &c->files, why, why_bytes);
    if (!err)
        err = state_files_add(c->files, "control", xbgpu_settings_write, &c->settings, &c->file);
    if (!err)
        err = restore(c);
    if (!err)
        err = xbgpu_beam_control_restore(c->beams, c->files, why, why_bytes);
    if (err) {
        xbgpu_control_destroy(c);
        return err;
    }
    *control = c;
    return 0;
}

void xbgpu_control_destroy(struct xbgpu_control *control)
{
    if (!control)
        return;
    command_stop(control->engine->channel);
    state_files_close(control->files);
    for (size_t i = 0; i < command_n_slots(control->engine->channel); i++) {
        xbgpu_gate_destroy(command_of(control, i)->gate);
        free(command_of(control, i)->delays);
        free(command_of(control, i)->steering);
        free(command_of(control, i)->calibration);
    }
    xbgpu_beam_control_destroy(control->beams);
    stream_info_fini(&control->info);
    xbgpu_settings_fini(&control->settings);
    free(control);
}
