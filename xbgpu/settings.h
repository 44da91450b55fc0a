/* settings.h - what of xbgpu can be set while it runs, as it has been set last; and as text that is kept.
 *
 * The text has a row for each thing that was set, and nothing of the rest:
 *
 *     sync_time SECONDS                (what timestamps count from; with another one now, FROM is 0, and a gate with an
 *                                      epoch in samples is left out)
 *     capture STREAM on|off FROM
 *     shift   LABEL SPECTRA            (of the input with this label, wherever it is now)
 *     gate    NAME FROM KEY VALUE      (a row for each key)
 *
 * Threads: main. */
#ifndef XBGPU_SETTINGS_H
#define XBGPU_SETTINGS_H

#include "common/engine/command.h"
#include "common/engine/labels.h"
#include "xbgpu/layout.h"

#include <stdbool.h>
#include <stdio.h>

struct beam_steering;
struct katcp_call;
struct xbgpu_gate;

/* A setting on its way to the worker, and from when on it holds (common/engine/command.h).  A gate is exchanged for one
 * that the worker does not need any more. */
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
    size_t index;                   /* of the output, the gate, the beam or the input */
    bool on;                        /* capture */
    int64_t from_samples;           /* capture, gate; beam: the model's start */
    uint32_t *delays;               /* shifts: [ant][pol], of the slot */
    struct beam_steering *steering; /* beam: [ant], of the slot */
    float *calibration;             /* complex [chan], of the slot */
    struct xbgpu_gate *gate;        /* gate: the new one; back: one to be destroyed, or NULL */
    int64_t effective_samples;      /* back: data with this timestamp or a later one reflect it */
    struct katcp_call *call;        /* [main] the request that waits for it, or NULL */
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
    int64_t *shifts; /* [2 * ant + pol] */
    struct xbgpu_settings_gate {
        bool set;
        int64_t from_samples;
        struct xbgpu_config_gate gate;
    } * gates; /* [n_gates] */
};

/* As configured, nothing set.  Returns 0 or -ENOMEM. */
int xbgpu_settings_init(struct xbgpu_settings *settings, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout);
void xbgpu_settings_fini(struct xbgpu_settings *settings);

/* Takes in what was kept.  Settings that no longer fit the configuration are left out, with a line in the log, and
 * then 'whole' becomes false.  Returns 0, or negative errno with one sentence in 'why' where the file cannot be read. */
int xbgpu_settings_read(struct xbgpu_settings *settings, const char *path, bool *whole, char *why, size_t why_bytes);

/* Writes what is set; returns false where nothing is.  'settings' is a struct xbgpu_settings (state_file.h). */
bool xbgpu_settings_write(FILE *text, void *settings);

/* The output, or the gate, of this name; or -1. */
int xbgpu_settings_find_output(const struct xbgpu_settings *settings, const char *name);

/* Whether there is room for a shift. */
bool xbgpu_settings_shift_fits(const struct xbgpu_settings *settings, int64_t shift);

#endif
