/* settings.c - collects the settings from requests and files, and posts snapshots of them to the worker. */
#include "fgpu/settings.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/telemetry/sensor.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "fgpu/delay_text.h"
#include "fgpu/config/gain_file.h"
#include "fgpu/config/layout.h"
#include "common/daemon/service.h"
#include "common/engine/engine.h"
#include "common/engine/gains.h"
#include "fgpu/antenna.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Buffer size for an error message from the reader of a file. */
#define SENTENCE_BYTES 512

/* Maximum age of data that may still arrive.  Models that ended longer ago may be forgotten to make room. */
#define MAX_AGE_NS (10 * NS_PER_S)

/* The settings of one output of one antenna. */
struct setting {
    const struct fgpu_settings *settings;
    size_t ant, output;
    struct fgpu_delays delays;
    float *gains;                               /* complex [chan][pol] */
    float *config_gains;                        /* gains from the configuration */
    bool begins_with_delays, begins_with_gains; /* true if the settings differ from those of a new output */
    bool keep_delays, keep_gains[N_POLS];       /* true if the settings come from a request or a kept file */
    struct gauge mean_gain[N_POLS];             /* mean magnitude of the gains, in units of 1e-9 */
    struct state_file *delays_file, *gains_file;
};

struct fgpu_settings {
    const struct fgpu_config *config;
    struct timebase timebase;
    const struct engine *engine;
    struct state_files *files;
    struct sensor state_status;
    size_t n; /* antennas x outputs */
    struct setting items[];
};

static struct setting *setting_of(const struct fgpu_settings *s, size_t ant, size_t output)
{
    return (struct setting *)&s->items[ant * s->config->outputs.n + output];
}

static const struct fgpu_config_output *output_of(const struct setting *item)
{
    return fgpu_config_output(item->settings->config, item->output);
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

static struct fgpu_output *output_made(const struct setting *item)
{
    return fgpu_antenna_output(item->settings->engine->lanes[item->ant], item->output);
}

/* Returns a copy of the gains for the output, or NULL if none of the output's gain buffers is free. */
static struct fgpu_gains *copy_gains(const struct setting *item)
{
    struct fgpu_gains *gains = fgpu_output_take_gains(output_made(item));

    if (gains)
        memcpy(gains->values, item->gains, fgpu_gain_bytes(output_of(item)));
    return gains;
}

void fgpu_settings_apply(struct fgpu_settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct setting *item = &s->items[i];
        if (item->begins_with_delays)
            fgpu_output_set_delays(output_made(item), &item->delays);
        if (item->begins_with_gains)
            fgpu_output_set_gains(output_made(item), copy_gains(item));
    }
}

bool fgpu_settings_post_delays(struct fgpu_settings *s, size_t ant, size_t output, struct command_channel *channel,
                               void *request)
{
    struct fgpu_command *command = (struct fgpu_command *)command_take(channel);
    struct setting *item = setting_of(s, ant, output);

    if (!command)
        return false;
    *command = (struct fgpu_command){.ant = ant, .output = output, .delays = item->delays, .request = request};
    item->delays.resumes = false;
    command_post(channel, &command->base);
    return true;
}

bool fgpu_settings_post_gains(struct fgpu_settings *s, size_t ant, size_t output, struct command_channel *channel,
                              void *request)
{
    struct fgpu_gains *gains = command_n_free(channel) ? copy_gains(setting_of(s, ant, output)) : NULL;

    if (!gains)
        return false;
    struct fgpu_command *command = (struct fgpu_command *)command_take(channel);
    command->gnss.action = FGPU_GNSS_NO_ACTION;
    command->ant = ant;
    command->output = output;
    command->gains = gains;
    command->request = request;
    command_post(channel, &command->base);
    return true;
}

/* ---- Gains ------------------------------------------------------------------------------------------------------- */

const float *fgpu_settings_gains(const struct fgpu_settings *s, size_t ant, size_t output)
{
    return setting_of(s, ant, output)->gains;
}

/* Updates the gauges of the mean gains. */
static void publish_gains(struct setting *item)
{
    int64_t n_chan = output_of(item)->n_chan;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        double sum = 0;
        for (size_t chan = 0; chan < (size_t)n_chan; chan++) {
            const float *gain = item->gains + (chan * N_POLS + pol) * 2;
            sum += hypot((double)gain[0], (double)gain[1]);
        }
        gauge_set(&item->mean_gain[pol], llrint(1e9 * sum / (double)n_chan));
    }
}

void fgpu_settings_set_gains(struct fgpu_settings *s, size_t ant, size_t output, unsigned pol, const float *values,
                             size_t n)
{
    struct setting *item = setting_of(s, ant, output);
    size_t n_chan = (size_t)output_of(item)->n_chan;

    assert(n == 1 || n == n_chan);
    for (size_t chan = 0; chan < n_chan; chan++)
        memcpy(item->gains + (chan * N_POLS + pol) * 2, values + (n == 1 ? 0 : chan * 2), 2 * sizeof(float));
    item->keep_gains[pol] = true;
    publish_gains(item);
    state_file_changed(item->gains_file);
}

void fgpu_settings_reset_gains(struct fgpu_settings *s, size_t ant, size_t output)
{
    struct setting *item = setting_of(s, ant, output);

    memcpy(item->gains, item->config_gains, fgpu_gain_bytes(output_of(item)));
    memset(item->keep_gains, 0, sizeof(item->keep_gains));
    publish_gains(item);
    state_file_changed(item->gains_file);
}

static bool write_gains(FILE *text, void *arg)
{
    const struct setting *item = arg;
    const struct fgpu_config_output *output = output_of(item);
    char before[80];

    fputs("# output, polarisation, channels, real and imaginary part of the gain\n", text);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        if (item->keep_gains[pol]) {
            snprintf(before, sizeof(before), "%s %u", output->name, pol);
            gains_write_rows(text, before, item->gains + (size_t)pol * 2, (size_t)N_POLS * 2, 0, output->n_chan);
        }
    return item->keep_gains[0] || item->keep_gains[1];
}

/* ---- Delays ------------------------------------------------------------------------------------------------------ */

/* Returns a time.  No more data with timestamps before this time are expected. */
static int64_t past_samples(const struct setting *item)
{
    const struct fgpu_settings *s = item->settings;
    int64_t confirmed = fgpu_output_confirmed_samples(output_made(item));

    /* The host's time is unrelated to the time of a recording, so only the time that the worker has confirmed
     * is used. */
    if (s->timebase.from_packets || s->config->recv.base.pcap_file)
        return confirmed;
    int64_t past = timebase_samples_at(&s->timebase, clock_unix_ns() - MAX_AGE_NS);
    return confirmed > past ? confirmed : past;
}

static bool has_room(const struct setting *item, unsigned pol, const struct fgpu_delay_model *model)
{
    struct fgpu_delay_queue queue = item->delays.pols[pol];

    return fgpu_delay_queue_add(&queue, model) == 0;
}

bool fgpu_settings_has_room(struct fgpu_settings *s, size_t ant, size_t output, unsigned pol, int64_t start_samples)
{
    const struct fgpu_delay_model model = {.start_samples = start_samples};
    struct setting *item = setting_of(s, ant, output);

    return has_room(item, pol, &model) || fgpu_delay_queue_forget_oldest(&item->delays.pols[pol], past_samples(item));
}

void fgpu_settings_add_delay(struct fgpu_settings *s, size_t ant, size_t output, unsigned pol,
                             const struct fgpu_delay_model *model)
{
    struct setting *item = setting_of(s, ant, output);
    int err = fgpu_delay_queue_add(&item->delays.pols[pol], model);

    assert(!err);
    item->keep_delays = true;
    state_file_changed(item->delays_file);
}

void fgpu_settings_resume(struct fgpu_settings *s, size_t ant, size_t output)
{
    setting_of(s, ant, output)->delays.resumes = true;
}

static bool write_delays(FILE *text, void *arg)
{
    const struct setting *item = arg;

    fgpu_delay_text_write_file(text, &item->settings->timebase, item->delays.pols);
    return item->keep_delays;
}

/* ---- What the configuration says --------------------------------------------------------------------------------- */

/* Sets the models of the antenna's file for each of its outputs. */
static int read_config_delays(struct fgpu_settings *s, size_t ant, char *why, size_t why_bytes)
{
    const char *path = fgpu_config_antenna(s->config, ant)->delays;
    struct setting *items = setting_of(s, ant, 0);
    char sentence[SENTENCE_BYTES];

    if (!path)
        return 0;
    int err = fgpu_delay_text_read_file(path, &s->timebase, s->config->recv.max_delay_s, items[0].delays.pols, sentence,
                                        sizeof(sentence));
    if (err)
        snprintf(why, why_bytes, "antennas[%zu].delays: %s", ant, sentence);
    for (size_t o = 0; !err && o < s->config->outputs.n; o++) {
        items[o].delays = items[0].delays;
        items[o].begins_with_delays = true;
    }
    return err;
}

static int read_config_gains(struct fgpu_settings *s, size_t ant, char *why, size_t why_bytes)
{
    const char *path = fgpu_config_antenna(s->config, ant)->gains;
    struct setting *items = setting_of(s, ant, 0);
    size_t n = s->config->outputs.n;
    float **gains = calloc(n, sizeof(*gains));
    char sentence[SENTENCE_BYTES];
    int err = gains ? 0 : -ENOMEM;

    for (size_t o = 0; !err && o < n; o++) {
        gains[o] = items[o].config_gains;
        fgpu_default_gains(output_of(&items[o]), gains[o]);
    }
    if (!err && path) {
        err = fgpu_gain_file_read(path, s->config, gains, sentence, sizeof(sentence));
        if (err)
            snprintf(why, why_bytes, "antennas[%zu].gains: %s", ant, sentence);
    }
    for (size_t o = 0; !err && o < n; o++) {
        memcpy(items[o].gains, gains[o], fgpu_gain_bytes(output_of(&items[o])));
        items[o].begins_with_gains = path;
    }
    free(gains);
    return err;
}

/* ---- What was kept ----------------------------------------------------------------------------------------------- */

/* Each queue begins with a placeholder.  Returns true if a queue has a model besides the placeholder. */
static bool has_models(const struct fgpu_delays *delays)
{
    return delays->pols[0].n > 1 || delays->pols[1].n > 1;
}

static void restore_delays(struct setting *item, struct fgpu_delays *scratch)
{
    const char *path = state_file_path(item->delays_file);
    char sentence[SENTENCE_BYTES];

    if (!path)
        return;
    int err = fgpu_delay_text_read_file(path, &item->settings->timebase, item->settings->config->recv.max_delay_s,
                                        scratch->pols, sentence, sizeof(sentence));
    if (!err && !has_models(scratch)) {
        snprintf(sentence, sizeof(sentence), "%s: the file has no delay model", path);
        err = -EINVAL;
    }
    if (err) {
        log_warning("%s; the file is ignored", sentence);
        state_file_ignored(item->delays_file);
        return;
    }
    log_info("%s, %s: delays restored from %s", fgpu_config_antenna(item->settings->config, item->ant)->name,
             output_of(item)->name, path);
    item->delays = *scratch;
    item->begins_with_delays = true;
    item->keep_delays = true;
}

/* Returns the number of channels of a polarisation for which the file has a gain. */
static int64_t count_gains(const float *gains, int64_t n_chan, unsigned pol)
{
    int64_t n = 0;

    for (int64_t chan = 0; chan < n_chan; chan++)
        n += !isnan(gains[(chan * N_POLS + pol) * 2]);
    return n;
}

/* Restores kept gains.  'gains' [output] is scratch memory.  All entries of 'gains' are NULL except the entry of this
 * item's output, because the file may name no other output. */
static void restore_gains(struct setting *item, float **gains)
{
    const char *path = state_file_path(item->gains_file);
    int64_t n_chan = output_of(item)->n_chan;
    char sentence[SENTENCE_BYTES];
    float *read = gains[item->output];

    if (!path)
        return;
    for (int64_t i = 0; i < n_chan * N_POLS * 2; i++)
        read[i] = NAN;
    int err = fgpu_gain_file_read(path, item->settings->config, gains, sentence, sizeof(sentence));
    for (unsigned pol = 0; pol < N_POLS && !err; pol++) {
        int64_t n = count_gains(read, n_chan, pol);
        if (n == 0 || n == n_chan)
            continue;
        snprintf(sentence, sizeof(sentence), "%s: only %lld of %lld channels have a gain", path, (long long)n,
                 (long long)n_chan);
        err = -EINVAL;
    }
    if (!err && count_gains(read, n_chan, 0) + count_gains(read, n_chan, 1) == 0) {
        snprintf(sentence, sizeof(sentence), "%s: no channel has a gain", path);
        err = -EINVAL;
    }
    if (err) {
        log_warning("%s; the file is ignored", sentence);
        state_file_ignored(item->gains_file);
        return;
    }
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        item->keep_gains[pol] = count_gains(read, n_chan, pol) > 0;
        for (int64_t chan = 0; chan < n_chan && item->keep_gains[pol]; chan++)
            memcpy(item->gains + (chan * N_POLS + pol) * 2, read + (chan * N_POLS + pol) * 2, 2 * sizeof(float));
    }
    item->begins_with_gains = true;
    log_info("%s, %s: gains restored from %s", fgpu_config_antenna(item->settings->config, item->ant)->name,
             output_of(item)->name, path);
}

static int restore(struct fgpu_settings *s)
{
    struct fgpu_delays *delays = malloc(sizeof(*delays));
    float **gains = calloc(s->config->outputs.n, sizeof(*gains));
    int err = delays && gains ? 0 : -ENOMEM;

    for (size_t i = 0; i < s->n && !err; i++) {
        struct setting *item = &s->items[i];
        restore_delays(item, delays);
        gains[item->output] = malloc(fgpu_gain_bytes(output_of(item)));
        if (gains[item->output])
            restore_gains(item, gains);
        else
            err = -ENOMEM;
        free(gains[item->output]);
        gains[item->output] = NULL;
    }
    free(gains);
    free(delays);
    return err;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static void register_metrics(struct setting *item)
{
    char labels[256];

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        labels[0] = '\0';
        stats_label(labels, sizeof(labels), "antenna", fgpu_config_antenna(item->settings->config, item->ant)->name);
        stats_label(labels, sizeof(labels), "stream", output_of(item)->name);
        stats_label(labels, sizeof(labels), "pol", pol ? "1" : "0");
        stats_gauge_scaled("fgpu_output_gain", "Mean magnitude of the input's latest gains, over all channels.", labels,
                           &item->mean_gain[pol], 1e-9);
    }
}

static int init_setting(struct fgpu_settings *s, size_t i)
{
    struct setting *item = &s->items[i];
    char name[160];

    item->settings = s;
    item->ant = i / s->config->outputs.n;
    item->output = i % s->config->outputs.n;
    const char *antenna = fgpu_config_antenna(s->config, item->ant)->name, *output = output_of(item)->name;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        fgpu_delay_queue_init(&item->delays.pols[pol]);
    item->gains = malloc(fgpu_gain_bytes(output_of(item)));
    item->config_gains = malloc(fgpu_gain_bytes(output_of(item)));
    if (!item->gains || !item->config_gains)
        return -ENOMEM;
    snprintf(name, sizeof(name), "delays.%s@%s", output, antenna);
    int err = state_files_add(s->files, name, write_delays, item, &item->delays_file);
    snprintf(name, sizeof(name), "gains.%s@%s", output, antenna);
    return err ? err : state_files_add(s->files, name, write_gains, item, &item->gains_file);
}

int fgpu_settings_create(const struct fgpu_config *config, const struct engine *engine, struct fgpu_settings **settings,
                         char *why, size_t why_bytes)
{
    size_t n = config->antennas.n * config->outputs.n;
    struct fgpu_settings *s = calloc(1, sizeof(*s) + n * sizeof(s->items[0]));

    if (!s)
        return -ENOMEM;
    s->config = config;
    s->timebase = fgpu_timebase(config);
    s->engine = engine;
    int err = state_files_open(&config->daemon.state, service_loop(engine->c.service), engine->c.sensors,
                               &s->state_status, &s->files, why, why_bytes);
    for (; s->n < n && !err; s->n++)
        err = init_setting(s, s->n);
    for (size_t a = 0; a < config->antennas.n && !err; a++) {
        err = read_config_delays(s, a, why, why_bytes);
        if (!err)
            err = read_config_gains(s, a, why, why_bytes);
    }
    if (!err)
        err = restore(s);
    if (err) {
        fgpu_settings_destroy(s);
        return err;
    }
    for (size_t i = 0; i < n; i++) {
        register_metrics(&s->items[i]);
        publish_gains(&s->items[i]);
    }
    *settings = s;
    return 0;
}

void fgpu_settings_stop(struct fgpu_settings *s)
{
    state_files_close(s->files);
    s->files = NULL;
}

void fgpu_settings_destroy(struct fgpu_settings *s)
{
    if (!s)
        return;
    fgpu_settings_stop(s);
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].gains);
        free(s->items[i].config_gains);
    }
    free(s);
}
