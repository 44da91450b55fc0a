/* settings.h - what can be set while fgpu runs: the gains and the delay models of every antenna and output.
 *
 * Flow:      configuration, its files, and what was kept of the last run --> settings --snapshots--> outputs
 *            requests (control.c) --> settings --> files that are kept (state_file.h)
 * Snapshot:  of an antenna's output, all of its gains or all of its delay models.  Each says all that was set until
 *            then.
 * Kept:      in a file for each antenna and output, gains.OUTPUT@ANTENNA and delays.OUTPUT@ANTENNA, as gain_file.h and
 *            delay_text.h have it; of gains those polarisations that were set.  Kept settings go before those that the
 *            configuration says; a file that does not fit the configuration is ignored with one sentence.
 * Models:    all that were set stay, here and with the worker, since the data's time may jump to any of them and back.
 *            The oldest of an input makes room where there are DELAY_MAX_MODELS - 1, if the one behind it has started
 *            by a time that is sure.  Such is a time that the worker has confirmed (output.h).  For live data with
 *            'timebase: clock' the host's time less MAX_AGE_NS is sure, too: it goes on where data are silent.
 * Threads:   main.   Blocking: none, but while files are read, before the start. */
#ifndef FGPU_SETTINGS_H
#define FGPU_SETTINGS_H

#include "common/daemon/state_file.h"
#include "common/engine/command.h"
#include "fgpu/config.h"
#include "fgpu/delay.h"
#include "fgpu/gnss.h"
#include "fgpu/output.h"

#include <stdbool.h>
#include <stddef.h>

struct engine;
struct fgpu_settings;

/* A snapshot on its way to the worker.  The gains are an output's: fgpu_output_take_gains() gives them to main, and the
 * command takes them back to the output, which says when they are free again (output.h). */
struct fgpu_command {
    struct command base; /* first */
    struct fgpu_gnss_order gnss; /* where it has an action, nothing below is used */
    size_t ant, output;
    struct fgpu_gains *gains;  /* NULL: delays */
    struct fgpu_delays delays; /* with 'gains': not used */
    void *request;             /* [main] what waits for it */
};

/* Reads what there is, for the outputs of the engine's antennas; adds a sensor that lives as long as the settings
 * (state_file.h).  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_settings_create(const struct fgpu_config *config, const struct engine *engine, struct fgpu_settings **settings,
                         char *why, size_t why_bytes);

/* Applies the configuration and the kept files from the first spectrum on.  Called before the worker starts. */
void fgpu_settings_apply(struct fgpu_settings *settings);

/* Posts a snapshot of the delay models, or of the gains.  'request' comes back in the command.  Returns false while no
 * slot is free, or no memory for gains; then 'channel' wakes main when one is. */
bool fgpu_settings_post_delays(struct fgpu_settings *settings, size_t ant, size_t output,
                               struct command_channel *channel, void *request);
bool fgpu_settings_post_gains(struct fgpu_settings *settings, size_t ant, size_t output,
                              struct command_channel *channel, void *request);

/* Complex [chan][pol]. */
const float *fgpu_settings_gains(const struct fgpu_settings *settings, size_t ant, size_t output);

/* Sets the gains of an input: complex [n], n 1 or the number of channels. */
void fgpu_settings_set_gains(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                             const float *values, size_t n);

/* Back to what the configuration says. */
void fgpu_settings_reset_gains(struct fgpu_settings *settings, size_t ant, size_t output);

/* Whether there is room for a model that starts then, or could be made beside those that may be needed. */
bool fgpu_settings_has_room(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                            int64_t start_samples);

/* Adds a model, for which there is room. */
void fgpu_settings_add_delay(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                             const struct fgpu_delay_model *model);

/* Has an output resume that is ahead of its input (output.h); nothing that was set changes. */
void fgpu_settings_resume(struct fgpu_settings *settings, size_t ant, size_t output);

/* Writes what is to be kept and has not been written.  Nothing is set afterwards.  Idempotent. */
void fgpu_settings_stop(struct fgpu_settings *settings);

/* Stops first.  NULL is accepted. */
void fgpu_settings_destroy(struct fgpu_settings *settings);

#endif
