/* settings.h - the settings that requests can change while xbgpu runs, and their saved text.
 *
 * The text has rows only for settings that were set:
 *
 *     sync_time SECONDS                (the origin of timestamps)
 *     capture STREAM on|off FROM
 *     shift   LABEL SPECTRA            (for the input that has this label at the next start)
 *     gate    NAME FROM KEY VALUE      (a row for each key)
 *
 * FROM is the timestamp from which the setting is in effect.  If the sync time differs at the next start, FROM counts
 * as 0, and a gate with an epoch in samples is ignored.
 *
 * Threads:   main. */
#ifndef XBGPU_SETTINGS_H
#define XBGPU_SETTINGS_H

#include "common/engine/command.h"
#include "common/engine/labels.h"
#include "xbgpu/config/layout.h"

#include <stdbool.h>
#include <stdio.h>

struct beam_steering;
struct katcp_call;
struct xbgpu_gate;

/* A command passes a setting to the worker (common/engine/command.h).  The worker's answer has the time from which the
 * setting is in effect.  The answer to a gate's command also returns a gate that the worker no longer uses, so that
 * the main thread can free this gate. */
enum xbgpu_command_what {
    XBGPU_COMMAND_CAPTURE,
    XBGPU_COMMAND_SHIFTS,
    XBGPU_COMMAND_GATE,
    XBGPU_COMMAND_BEAM_CAPTURE,
    XBGPU_COMMAND_BEAM,
    XBGPU_COMMAND_CALIBRATION
};

struct xbgpu_command {
    struct command base; /* first */
    enum xbgpu_command_what what;
    size_t index;                   /* index of the output, gate, beam or input */
    bool on;                        /* capture */
    int64_t from_samples;           /* for capture and gate: first timestamp; for beam: start of the model */
    uint32_t *delays;               /* for shifts: delays [ant][pol] in spectra; the slot owns the memory */
    struct beam_steering *steering; /* for beam: [ant]; the slot owns the memory */
    float *calibration;             /* for calibration: complex [chan]; the slot owns the memory */
    struct xbgpu_gate *gate;        /* for gate: the new gate; the answer contains a gate that must be destroyed, or
                                     * NULL */
    int64_t effective_samples;      /* in the answer: timestamp from which the setting is in effect */
    struct katcp_call *call;        /* [main] request that waits for the command, or NULL */
};

struct xbgpu_settings {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct labels labels;
    struct xbgpu_settings_capture {
        bool set, on;
        int64_t from_samples;
    } * captures; /* [n_outputs] */
    bool shifts_set;
    int64_t *shifts; /* [2 * ant + pol] shifts in spectra */
    struct xbgpu_settings_gate {
        bool set;
        int64_t from_samples;
        struct xbgpu_config_gate gate;
    } * gates; /* [n_gates] */
};

/* Initialises the settings as configured.  No setting is marked as set by a request.  Returns 0 or -ENOMEM. */
int xbgpu_settings_init(struct xbgpu_settings *settings, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout);
void xbgpu_settings_fini(struct xbgpu_settings *settings);

/* Reads the saved settings.  Settings that no longer fit the configuration are ignored with a line in the log, and
 * '*whole' becomes false.  Returns 0, or negative errno with one sentence in 'why' if the file cannot be read. */
int xbgpu_settings_read(struct xbgpu_settings *settings, const char *path, bool *whole, char *why, size_t why_bytes);

/* Writes the settings that requests have set.  Returns false if no request has set any.  'settings' is a struct
 * xbgpu_settings (state_file.h). */
bool xbgpu_settings_write(FILE *text, void *settings);

/* Returns the index of the output with this name, or -1. */
int xbgpu_settings_find_output(const struct xbgpu_settings *settings, const char *name);

/* Returns whether a shift is within the allocated range. */
bool xbgpu_settings_shift_fits(const struct xbgpu_settings *settings, int64_t shift);

#endif
