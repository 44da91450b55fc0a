/* beam_control.c - handles requests for beams, and saves and restores the beams' settings. */
#include "xbgpu/beam_control.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/daemon/state_file.h"
#include "common/engine/engine.h"
#include "common/katcp/server.h"
#include "xbgpu/beam/beam_settings.h"
#include "xbgpu/beam/beams.h"
#include "xbgpu/beam/calibration.h"
#include "xbgpu/beam/detected.h"
#include "xbgpu/requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct xbgpu_beam_control {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    const struct labels *labels;
    struct engine *engine;
    struct xbgpu_beams *formed;      /* NULL if there are no voltage beams */
    struct xbgpu_detected *detected; /* NULL if there are no detected beams */
    struct xbgpu_beams_settings settings;
    struct state_file *file;
    struct xbgpu_calibration calibration;
};

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Posts a steering command with the newest model, the weights and the gain of a beam. */
static void steer_beam(struct xbgpu_beam_control *c, struct xbgpu_beam_settings *beam, struct katcp_call *call)
{
    struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_BEAM, call);
    size_t newest = beam->starts.n - 1;

    command->index = (size_t)(beam - c->settings.items);
    command->from_samples = beam->starts.samples[newest];
    xbgpu_beam_settings_steer(beam, newest, command->steering);
    command_post(c->engine->channel, &command->base);
}

/* Returns the beam that a request names.  If there is no such beam or no free command slot, fails the call and returns
 * NULL. */
static struct xbgpu_beam_settings *arg_beam(struct xbgpu_beam_control *c, struct katcp_call *call)
{
    struct xbgpu_beam_settings *beam = xbgpu_beams_settings_find(&c->settings, katcp_arg(call, 0));

    if (!beam)
        katcp_fail(call, "there is no beam '%s'", katcp_arg(call, 0));
    return beam && xbgpu_has_slot(c->engine->channel, call) ? beam : NULL;
}

/* Steers the beam if the request's arguments were valid and are now in the beam's settings. */
static void set_beam(struct xbgpu_beam_control *c, struct xbgpu_beam_settings *beam, struct katcp_call *call,
                     bool taken)
{
    if (!taken)
        return;
    steer_beam(c, beam, call);
    state_file_changed(c->file);
}

void xbgpu_beam_control_weights(struct xbgpu_beam_control *c, struct katcp_call *call)
{
    struct xbgpu_beam_settings *beam = arg_beam(c, call);

    set_beam(c, beam, call, beam && xbgpu_beam_settings_take_weights(beam, call));
}

void xbgpu_beam_control_delays(struct xbgpu_beam_control *c, struct katcp_call *call)
{
    struct xbgpu_beam_settings *beam = arg_beam(c, call);

    if (!beam)
        return;
    size_t index = (size_t)(beam - c->settings.items), n = c->config->beams.n;
    int64_t past_samples =
        index < n ? xbgpu_beams_next_samples(c->formed, index) : xbgpu_detected_next_samples(c->detected, index - n);
    set_beam(c, beam, call, xbgpu_beam_settings_take_delays(beam, call, past_samples));
}

void xbgpu_beam_control_gain(struct xbgpu_beam_control *c, struct katcp_call *call)
{
    struct xbgpu_beam_settings *beam = arg_beam(c, call);

    set_beam(c, beam, call, beam && xbgpu_beam_settings_take_gain(beam, call));
}

static bool has_coherent_beams(const struct xbgpu_beam_control *c)
{
    for (size_t b = 0; b < c->settings.n; b++)
        if (!c->settings.items[b].is_incoherent)
            return true;
    return false;
}

void xbgpu_beam_control_calibration(struct xbgpu_beam_control *c, struct katcp_call *call)
{
    size_t input;

    if (c->settings.n == 0)
        katcp_fail(call, "this X-engine makes no beams");
    else if (!has_coherent_beams(c))
        katcp_fail(call,
                   "?beam-calibration does not apply to incoherent beams, and this X-engine makes no other beams");
    else if (xbgpu_has_slot(c->engine->channel, call) && xbgpu_arg_input(c->labels, call, 0, &input) &&
             xbgpu_calibration_take(&c->calibration, input, call)) {
        struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_CALIBRATION, call);
        command->index = input;
        memcpy(command->calibration, xbgpu_calibration_gains(&c->calibration, input),
               c->layout->n_chan * 2 * sizeof(float));
        command_post(c->engine->channel, &command->base);
    }
}

static void set_capture(struct xbgpu_beam_control *c, struct xbgpu_beam_settings *beam, bool on, int64_t from_samples,
                        struct katcp_call *call)
{
    struct xbgpu_command *command = xbgpu_take_command(c->engine->channel, XBGPU_COMMAND_BEAM_CAPTURE, call);

    command->index = (size_t)(beam - c->settings.items);
    command->on = on;
    command->from_samples = from_samples;
    beam->capture_is_set = true;
    beam->captures = on;
    beam->capture_from_samples = from_samples;
    command_post(c->engine->channel, &command->base);
    state_file_changed(c->file);
}

bool xbgpu_beam_control_capture(struct xbgpu_beam_control *c, bool on, int64_t from_samples, struct katcp_call *call)
{
    struct xbgpu_beam_settings *beam = xbgpu_beams_settings_find_stream(&c->settings, katcp_arg(call, 0));

    if (beam)
        set_capture(c, beam, on, from_samples, call);
    return beam;
}

void xbgpu_beam_control_show(struct xbgpu_beam_control *c, const struct xbgpu_command *command)
{
    const struct timebase timebase = {c->config->time.sync_time_s, c->config->time.adc_sample_rate_hz, false};
    int64_t samples = command->effective_samples;

    xbgpu_beam_settings_show(&c->settings.items[command->index], samples, timebase_unix_ns(&timebase, samples));
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_settings(struct xbgpu_beam_control *c)
{
    int err = 0;

    c->settings.labels = c->labels;
    c->settings.items = calloc(c->config->beams.n + xbgpu_n_detected_beams(c->config) + 1, sizeof(*c->settings.items));
    if (!c->settings.items)
        return -ENOMEM;
    for (; !err && c->settings.n < c->config->beams.n; c->settings.n++)
        err = xbgpu_beam_settings_init(&c->settings.items[c->settings.n], c->config, c->settings.n,
                                       xbgpu_beams_seed(c->formed, c->settings.n), c->engine->c.sensors);
    for (size_t i = 0; i < c->config->detected.n; i++) {
        const struct xbgpu_config_detected *stream = xbgpu_config_detected(c->config, i);
        for (size_t b = 0; !err && b < (size_t)stream->n_beams; b++)
            err = xbgpu_beam_settings_init_detected(&c->settings.items[c->settings.n++], c->config, stream, b,
                                                    c->engine->c.sensors);
    }
    return err;
}

/* Passes the saved models of a beam to the worker.  The older models are passed directly, before the worker starts.
 * The newest model is passed by a command. */
static int restore_beam(struct xbgpu_beam_control *c, struct xbgpu_beam_settings *beam)
{
    struct beam_steering *steering = calloc(beam->n, sizeof(*steering));
    size_t index = (size_t)(beam - c->settings.items), n = c->config->beams.n;

    if (!steering)
        return -ENOMEM;
    for (size_t m = 0; m + 1 < beam->starts.n; m++) {
        xbgpu_beam_settings_steer(beam, m, steering);
        if (index < n)
            xbgpu_beams_steer(c->formed, index, beam->starts.samples[m], steering);
        else
            xbgpu_detected_steer(c->detected, index - n, beam->starts.samples[m], steering);
    }
    free(steering);
    steer_beam(c, beam, NULL);
    return 0;
}

/* Reads the saved settings of beams and posts them, unless the file is unreadable. */
static int restore_beams(struct xbgpu_beam_control *c)
{
    const char *path = state_file_path(c->file);
    char why[512] = "";
    bool whole = true;
    int err = path ? xbgpu_beams_settings_read(&c->settings, path, &whole, why, sizeof(why)) : 0;

    if (!path || err == -ENOMEM)
        return err;
    if (err || !whole)
        state_file_ignored(c->file);
    if (err)
        log_warning("%s; the file is ignored", why);
    err = 0;
    for (size_t b = 0; !err && b < c->settings.n; b++) {
        struct xbgpu_beam_settings *beam = &c->settings.items[b];
        if (beam->is_set)
            err = restore_beam(c, beam);
        if (beam->capture_is_set)
            set_capture(c, beam, beam->captures, beam->capture_from_samples, NULL);
    }
    return err;
}

/* Applies the calibration gains from the files.  The gains already apply to the first batch. */
static int create_calibration(struct xbgpu_beam_control *c, struct state_files *files, char *why, size_t why_bytes)
{
    int err = xbgpu_calibration_init(&c->calibration, c->config, c->layout, c->labels, files, why, why_bytes);

    for (size_t input = 0; !err && c->calibration.is_set && input < c->labels->n; input++) {
        xbgpu_beams_calibrate(c->formed, input, xbgpu_calibration_gains(&c->calibration, input));
        xbgpu_detected_calibrate(c->detected, input, xbgpu_calibration_gains(&c->calibration, input));
    }
    return err;
}

int xbgpu_beam_control_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                              const struct labels *labels, struct engine *engine, struct xbgpu_beams *formed,
                              struct xbgpu_detected *detected, struct xbgpu_beam_control **control)
{
    struct xbgpu_beam_control *c = calloc(1, sizeof(*c));

    *control = c;
    if (!c)
        return -ENOMEM;
    c->config = config;
    c->layout = layout;
    c->labels = labels;
    c->engine = engine;
    c->formed = formed;
    c->detected = detected;
    return create_settings(c);
}

int xbgpu_beam_control_restore(struct xbgpu_beam_control *c, struct state_files *files, char *why, size_t why_bytes)
{
    if (c->settings.n == 0)
        return 0;
    int err = state_files_add(files, "beams", xbgpu_beams_settings_write, &c->settings, &c->file);
    if (!err)
        err = restore_beams(c);
    return err ? err : create_calibration(c, files, why, why_bytes);
}

void xbgpu_beam_control_destroy(struct xbgpu_beam_control *control)
{
    if (!control)
        return;
    for (size_t b = 0; b < control->settings.n; b++)
        xbgpu_beam_settings_fini(&control->settings.items[b]);
    free(control->settings.items);
    xbgpu_calibration_fini(&control->calibration);
    free(control);
}
