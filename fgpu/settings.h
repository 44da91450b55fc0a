/* settings.h - run-time settings of fgpu: the gains and the delay models of every antenna and output.
 *
 * Flow:      configuration, its files, and files kept by the last run --> settings --snapshots--> outputs
 *            requests (control.c) --> settings --> files that are kept (state_file.h)
 * Snapshot:  all gains or all delay models of one output of one antenna, as set so far.
 * Kept:      each antenna and output has the files gains.OUTPUT@ANTENNA and delays.OUTPUT@ANTENNA, in the formats of
 *            gain_file.h and delay_text.h.  The file of gains has only the polarisations that were set.  Kept
 *            settings override the configuration.  A file that does not fit the configuration is ignored, with one
 *            sentence in the log.
 * Models:    all models that were set are retained, here and in the worker, because the data's time may jump to the
 *            time of any model.  When an input has DELAY_MAX_MODELS - 1 models, the oldest model is removed to make
 *            room, but only if no expected data need this model.  Expected data do not need this model if the next
 *            model starts before them.  When the worker has confirmed a time (output.h), earlier data are no longer
 *            expected.  For live data with 'timebase: clock', data that are older than MAX_AGE_NS by the host's clock
 *            are not expected.  The host's clock advances even while no data arrive.
 * Threads:   main.   Blocking: none, except the reading of files before the start. */
#ifndef FGPU_SETTINGS_H
#define FGPU_SETTINGS_H

#include "common/daemon/state_file.h"
#include "common/engine/command.h"
#include "fgpu/config/config.h"
#include "fgpu/delay.h"
#include "fgpu/gnss/gnss.h"
#include "fgpu/output.h"

#include <stdbool.h>
#include <stddef.h>

struct engine;
struct fgpu_settings;

/* A command from main to the worker.  The command carries a snapshot of gains or delay models, or a request about a
 * satellite.  The gains lie in a buffer that belongs to an output (output.h).  Main gets the buffer from
 * fgpu_output_take_gains().  The worker passes the buffer back with fgpu_output_set_gains().  Only the output frees the
 * buffer. */
struct fgpu_command {
    struct command base; /* first */
    /* request about a satellite; if 'gnss.action' is not FGPU_GNSS_NO_ACTION, the members below are not used */
    struct fgpu_gnss_order gnss;
    size_t ant, output;
    struct fgpu_gains *gains;  /* NULL: delays */
    struct fgpu_delays delays; /* not used if 'gains' is not NULL */
    void *request;             /* [main] request that waits for the answer */
};

/* Reads the configured files and the kept files, for the outputs of the engine's antennas.  Adds the sensor of
 * state_file.h, which exists as long as the settings.  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_settings_create(const struct fgpu_config *config, const struct engine *engine, struct fgpu_settings **settings,
                         char *why, size_t why_bytes);

/* Applies the configuration and the kept files, so that they are in effect for the first spectrum.  Called before the
 * worker starts. */
void fgpu_settings_apply(struct fgpu_settings *settings);

/* These functions post a snapshot of the delay models, or of the gains.  The functions store 'request' in the command
 * that carries the snapshot.  If no command or no gain buffer is free, the functions return false.  In this case
 * 'channel' wakes main as soon as a command or buffer is free. */
bool fgpu_settings_post_delays(struct fgpu_settings *settings, size_t ant, size_t output,
                               struct command_channel *channel, void *request);
bool fgpu_settings_post_gains(struct fgpu_settings *settings, size_t ant, size_t output,
                              struct command_channel *channel, void *request);

/* Returns the gains, complex [chan][pol]. */
const float *fgpu_settings_gains(const struct fgpu_settings *settings, size_t ant, size_t output);

/* Sets the gains of an input: complex [n]; n is 1 or the number of channels. */
void fgpu_settings_set_gains(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                             const float *values, size_t n);

/* Restores the gains of the configuration. */
void fgpu_settings_reset_gains(struct fgpu_settings *settings, size_t ant, size_t output);

/* Returns true if there is room for a model that starts at 'start_samples'.  If there is no room, forgets the oldest
 * model, if this model is no longer needed.  Then there is room, and the function also returns true. */
bool fgpu_settings_has_room(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                            int64_t start_samples);

/* Adds a model.  There must be room for the model. */
void fgpu_settings_add_delay(struct fgpu_settings *settings, size_t ant, size_t output, unsigned pol,
                             const struct fgpu_delay_model *model);

/* Resumes an output that is ahead of its input (output.h).  All settings stay unchanged. */
void fgpu_settings_resume(struct fgpu_settings *settings, size_t ant, size_t output);

/* Writes all settings that are kept and have not been written yet.  No setting may change afterwards.  Idempotent. */
void fgpu_settings_stop(struct fgpu_settings *settings);

/* Stops and destroys the settings.  NULL is accepted. */
void fgpu_settings_destroy(struct fgpu_settings *settings);

#endif
