/* settings.c - settings that requests have changed (control.c), and their saved text. */
#include "xbgpu/settings.h"

#include "common/base/log.h"
#include "common/config/table_file.h"
#include "common/config/time_keys.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t n_inputs(const struct xbgpu_settings *settings)
{
    return settings->layout->n_ants * N_POLS;
}

int xbgpu_settings_init(struct xbgpu_settings *settings, const struct xbgpu_config *config,
                        const struct xbgpu_layout *layout)
{
    struct xbgpu_settings s = {.config = config, .layout = layout};

    s.captures = calloc(layout->n_outputs, sizeof(*s.captures));
    s.shifts = calloc(n_inputs(&s), sizeof(*s.shifts));
    s.gates = calloc(layout->n_gates + 1, sizeof(*s.gates));
    int err = s.captures && s.shifts && s.gates
                  ? labels_init(&s.labels, layout->n_ants, config->recv.antenna_names, config->recv.input_labels)
                  : -ENOMEM;
    for (size_t o = 0; !err && o < layout->n_outputs; o++)
        s.captures[o].on = xbgpu_config_output(config, o)->send_enabled;
    for (size_t i = 0; !err && i < n_inputs(&s); i++)
        s.shifts[i] = xbgpu_config_shift(config, i);
    for (size_t g = 0; !err && g < layout->n_gates; g++)
        err = xbgpu_gate_copy(xbgpu_config_gate(&config->gates, g), &s.gates[g].gate);
    *settings = s;
    return err;
}

void xbgpu_settings_fini(struct xbgpu_settings *settings)
{
    for (size_t g = 0; settings->gates && g < settings->layout->n_gates; g++)
        xbgpu_gate_free(&settings->gates[g].gate);
    labels_fini(&settings->labels);
    free(settings->gates);
    free(settings->captures);
    free(settings->shifts);
    *settings = (struct xbgpu_settings){0};
}

int xbgpu_settings_find_output(const struct xbgpu_settings *settings, const char *name)
{
    for (size_t o = 0; o < settings->layout->n_outputs; o++)
        if (strcmp(xbgpu_config_output(settings->config, o)->name, name) == 0)
            return (int)o;
    return -1;
}

bool xbgpu_settings_shift_fits(const struct xbgpu_settings *settings, int64_t shift)
{
    return shift >= settings->layout->min_shift && shift <= settings->layout->max_shift;
}

/* ---- Saved text -------------------------------------------------------------------------------------------------- */

static void write_sync_time(const struct xbgpu_settings *settings, FILE *text)
{
    assert(strcmp(config_time_keys[0].name, "sync_time") == 0);
    config_value_write(&config_time_keys[0], &settings->config->time.sync_time_s, text);
}

bool xbgpu_settings_write(FILE *text, void *arg)
{
    const struct xbgpu_settings *s = arg;
    bool any = s->shifts_set;

    fputs("# Settings made over KATCP; xbgpu reads them when it starts, and they override the YAML.\nsync_time ", text);
    write_sync_time(s, text);
    fputc('\n', text);
    for (size_t o = 0; o < s->layout->n_outputs; o++) {
        const struct xbgpu_settings_capture *capture = &s->captures[o];
        if (!capture->set)
            continue;
        any = true;
        fprintf(text, "capture %s %s %" PRId64 "\n", xbgpu_config_output(s->config, o)->name,
                capture->on ? "on" : "off", capture->from_samples);
    }
    for (size_t i = 0; s->shifts_set && i < n_inputs(s); i++)
        fprintf(text, "shift %s %" PRId64 "\n", s->labels.labels[i], s->shifts[i]);
    for (size_t g = 0; g < s->layout->n_gates; g++) {
        const struct xbgpu_settings_gate *entry = &s->gates[g];
        char before[128];
        if (!entry->set)
            continue;
        any = true;
        snprintf(before, sizeof(before), "gate %s %" PRId64 " ", entry->gate.name, entry->from_samples);
        xbgpu_gate_write(&entry->gate, before, " ", "\n", text);
    }
    return any;
}

/* State while a file is read.  The settings in the file are collected in 'found' before any setting changes.  A gate
 * has several rows.  An error in one row makes the whole gate invalid. */
struct reading {
    struct xbgpu_settings *settings;
    struct xbgpu_settings found;
    bool *gate_spoilt;  /* [n_gates] */
    bool other_time;    /* true if the file was saved with another sync time */
    bool left_out;      /* true if at least one row or gate was ignored */
    char sync_time[32]; /* present sync time */
};

static bool is_integer(const char *field, int64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoll(field, &end, 10);
    return *field && !*end && errno == 0;
}

/* Logs that a row is ignored, and the reason. */
static void leave_out(struct reading *r, const struct table_row *row, const char *reason)
{
    r->left_out = true;
    log_warning("%s:%u: saved setting ignored: %s", row->path, row->line, reason);
}

static void read_capture(struct reading *r, const struct table_row *row)
{
    int64_t from_samples;
    int o = row->n == 4 ? xbgpu_settings_find_output(r->settings, row->fields[1]) : -1;

    if (o < 0)
        leave_out(r, row, "this program has no such stream");
    else if ((strcmp(row->fields[2], "on") != 0 && strcmp(row->fields[2], "off") != 0) ||
             !is_integer(row->fields[3], &from_samples))
        leave_out(r, row, "the capture must be on or off, followed by a timestamp");
    else
        r->found.captures[o] = (struct xbgpu_settings_capture){true, strcmp(row->fields[2], "on") == 0, from_samples};
}

static void read_shift(struct reading *r, const struct table_row *row)
{
    long input = row->n == 3 ? labels_find(&r->settings->labels, row->fields[1], strlen(row->fields[1])) : -1;
    int64_t shift;

    if (input < 0) {
        leave_out(r, row, "this program has no such input");
    } else if (!is_integer(row->fields[2], &shift) || !xbgpu_settings_shift_fits(r->settings, shift)) {
        leave_out(r, row, "the shift is out of range (recv.max_shift)");
    } else {
        r->found.shifts[input] = shift;
        r->found.shifts_set = true;
    }
}

static int read_gate(struct reading *r, const struct table_row *row)
{
    int g = row->n == 5 ? xbgpu_find_gate(&r->settings->config->gates, row->fields[1]) : -1;
    char why[1024] = "the gate has no timestamp";
    int err = -EINVAL;

    if (g < 0) {
        leave_out(r, row, "this program has no such gate");
        return 0;
    }
    struct xbgpu_settings_gate *gate = &r->found.gates[g];
    if (is_integer(row->fields[2], &gate->from_samples))
        err = xbgpu_gate_set(&gate->gate, row->fields[3], row->fields[4], why, sizeof(why));
    gate->set = true;
    if (err == -EINVAL) {
        leave_out(r, row, why);
        r->gate_spoilt[g] = true;
    }
    return err == -ENOMEM ? err : 0;
}

static void read_sync_time(struct reading *r, const struct table_row *row)
{
    r->other_time = row->n != 2 || strcmp(row->fields[1], r->sync_time) != 0;
    if (r->other_time)
        log_warning("%s:%u: sync_time has changed: saved settings take effect at the start, not at their timestamps",
                    row->path, row->line);
}

static int read_row(const struct table_row *row, void *arg)
{
    struct reading *r = arg;

    if (strcmp(row->fields[0], "sync_time") == 0)
        read_sync_time(r, row);
    else if (strcmp(row->fields[0], "capture") == 0)
        read_capture(r, row);
    else if (strcmp(row->fields[0], "shift") == 0)
        read_shift(r, row);
    else if (strcmp(row->fields[0], "gate") == 0)
        return read_gate(r, row);
    else
        leave_out(r, row, "this program has no such setting");
    return 0;
}

/* Moves gates from 'found' to the settings.  Leaves out a gate if one of the gate's rows had an error, or if the gate
 * does not fit the configuration. */
static int take_gates(struct reading *r)
{
    struct xbgpu_settings *s = r->settings;
    char why[1024];
    int err = 0;

    for (size_t g = 0; g < s->layout->n_gates && err != -ENOMEM; g++) {
        struct xbgpu_settings_gate *found = &r->found.gates[g], kept = s->gates[g];
        if (!found->set || r->gate_spoilt[g])
            continue;
        if (r->other_time && found->gate.epoch_time_s.mantissa == 0) {
            log_warning("saved setting of gate %s ignored: its epoch counts from another sync_time", found->gate.name);
            r->left_out = true;
            continue;
        }
        err = xbgpu_gate_check(s->config, &kept.gate, &found->gate, why, sizeof(why));
        if (err == -EINVAL)
            log_warning("saved setting of a gate ignored: %s", why);
        r->left_out = r->left_out || err;
        if (err)
            continue;
        s->gates[g] = *found;
        s->gates[g].from_samples = r->other_time ? 0 : found->from_samples;
        *found = kept; /* the old gate is freed with the rest of 'found' */
    }
    return err == -ENOMEM ? err : 0;
}

int xbgpu_settings_read(struct xbgpu_settings *settings, const char *path, bool *whole, char *why, size_t why_bytes)
{
    struct reading r = {.settings = settings};
    int err = xbgpu_settings_init(&r.found, settings->config, settings->layout);
    FILE *sync_time = fmemopen(r.sync_time, sizeof(r.sync_time), "w");

    if (sync_time) {
        write_sync_time(settings, sync_time);
        fclose(sync_time);
    }
    r.gate_spoilt = calloc(settings->layout->n_gates + 1, sizeof(*r.gate_spoilt));
    if (!err && (!r.gate_spoilt || !sync_time))
        err = -ENOMEM;
    /* The saved settings have either the epoch or the epoch time of a gate.  The YAML may have the other key of the
     * two.  So both keys are cleared first. */
    for (size_t g = 0; !err && g < settings->layout->n_gates; g++) {
        r.found.gates[g].gate.epoch_samples = 0;
        r.found.gates[g].gate.epoch_time_s.mantissa = 0;
    }
    if (!err)
        err = table_file_read(path, read_row, &r, why, why_bytes);
    if (!err)
        err = take_gates(&r);
    for (size_t o = 0; !err && r.other_time && o < settings->layout->n_outputs; o++)
        r.found.captures[o].from_samples = 0;
    if (!err) {
        memcpy(settings->captures, r.found.captures, settings->layout->n_outputs * sizeof(*settings->captures));
        memcpy(settings->shifts, r.found.shifts, n_inputs(settings) * sizeof(*settings->shifts));
        settings->shifts_set = r.found.shifts_set;
        *whole = !r.left_out;
    }
    free(r.gate_spoilt);
    xbgpu_settings_fini(&r.found);
    return err;
}
