/* status.c - builds /status.json from the registry, the sensors and the pipeline. */
#include "common/http/status.h"

#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/http/history.h"
#include "common/base/lock.h"
#include "common/telemetry/sensor.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "common/base/version.h"

#include <errno.h>
#include <ev.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LABELS 4
#define LOOK_S     1.0

struct status {
    const char *program;         /* [const] */
    char name[64];               /* [const] name of the configuration file without its ending, "fgpu0" */
    const struct gauge *healthy; /* [const] */
    int64_t start_ns;            /* [const] monotonic */
    int64_t start_unix_ns;       /* [const] */
    _Atomic int state;           /* enum status_state */
    struct history *history;     /* [const] */
    struct ev_loop *loop;        /* [main] loop of the timer 'look'; NULL: counters are not sampled */
    ev_timer look;               /* [main] */
    struct lock lock;
    const struct device *device GUARDED;   /* [lock] the GPU, or NULL if there is none */
    status_describe describe GUARDED;      /* [lock] describes the pipeline; NULL: no pipeline yet */
    void *arg GUARDED;                     /* [lock] */
    const struct sensors *sensors GUARDED; /* [lock] the sensors; NULL until all sensors exist */
};

static void set_name(struct status *s, const char *config_path)
{
    const char *slash = config_path ? strrchr(config_path, '/') : NULL;

    snprintf(s->name, sizeof(s->name), "%s", slash ? slash + 1 : config_path ? config_path : s->program);
    char *dot = strrchr(s->name, '.');
    if (dot && dot != s->name)
        *dot = '\0';
}

int status_create(const char *program, const char *config_path, const struct gauge *healthy, struct status **status)
{
    struct status *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->program = program;
    set_name(s, config_path);
    s->healthy = healthy;
    s->start_ns = clock_monotonic_ns();
    s->start_unix_ns = clock_unix_ns();
    int err = history_create(&s->history);
    if (err) {
        free(s);
        return err;
    }
    lock_init(&s->lock);
    *status = s;
    return 0;
}

void status_destroy(struct status *status)
{
    if (!status)
        return;
    lock_fini(&status->lock);
    history_destroy(status->history);
    free(status);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct status *status = CONTAINER_OF(timer, struct status, look);

    history_sample(status->history, clock_monotonic_ns(), clock_unix_ns());
}

void status_watch(struct status *status, struct ev_loop *loop)
{
    status->loop = loop;
    ev_timer_init(&status->look, on_look, LOOK_S, LOOK_S);
    ev_timer_start(loop, &status->look);
}

void status_unwatch(struct status *status)
{
    if (status->loop)
        ev_timer_stop(status->loop, &status->look);
    status->loop = NULL;
}

void status_set_state(struct status *status, enum status_state state)
{
    atomic_store(&status->state, state);
}

enum status_state status_state(const struct status *status)
{
    return (enum status_state)atomic_load(&status->state);
}

void status_set_device(struct status *status, const struct device *device)
{
    lock_take(&status->lock);
    status->device = device;
    lock_give(&status->lock);
}

void status_set_source(struct status *status, status_describe describe, void *arg)
{
    lock_take(&status->lock);
    status->describe = describe;
    status->arg = arg;
    lock_give(&status->lock);
}

void status_set_sensors(struct status *status, const struct sensors *sensors)
{
    lock_take(&status->lock);
    status->sensors = sensors;
    lock_give(&status->lock);
}

json_t *status_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *status_endpoints(const struct endpoint_list *list)
{
    json_t *json = json_array();
    char text[32];

    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(json, json_string(endpoint_format(&list->items[i], text, sizeof(text))));
    return json;
}

/* ---- The registry as JSON ---------------------------------------------------------------------------------------- */

struct label {
    char name[32];
    char value[256];
};

/* Reads the first label of 'text', a list of labels as stats_label() writes it: a="...",b="...".  Returns the text
 * after the label, or NULL if there is no label. */
static const char *next_label(const char *text, struct label *label)
{
    size_t n_name = strcspn(text, "="), n = 0;

    if (!text[n_name] || n_name >= sizeof(label->name))
        return NULL;
    snprintf(label->name, sizeof(label->name), "%.*s", (int)n_name, text);
    for (text += n_name + 2; *text && *text != '"'; text++) {
        bool escaped = *text == '\\' && text[1];
        text += escaped;
        if (n + 1 < sizeof(label->value))
            label->value[n++] = escaped && *text == 'n' ? '\n' : *text;
    }
    label->value[n] = '\0';
    text += *text == '"';
    return text + (*text == ',');
}

/* The labels of a metric.  The labels 'own' identify the object to which the metric belongs.  'rest' are the other
 * labels. */
struct labels {
    struct label own[MAX_LABELS], rest[MAX_LABELS];
    size_t n_own, n_rest;
    bool stream, antenna, pol, fengs, feng, thread;
};

static void read_labels(const char *text, struct labels *labels)
{
    struct label all[MAX_LABELS];
    size_t n = 0;

    memset(labels, 0, sizeof(*labels));
    while (n < MAX_LABELS && *text && (text = next_label(text, &all[n]))) {
        labels->stream = labels->stream || !strcmp(all[n].name, "stream");
        labels->antenna = labels->antenna || !strcmp(all[n].name, "antenna");
        labels->pol = labels->pol || !strcmp(all[n].name, "pol");
        labels->fengs = labels->fengs || !strcmp(all[n].name, "fengs");
        labels->feng = labels->feng || !strcmp(all[n].name, "feng");
        labels->thread = labels->thread || !strcmp(all[n].name, "thread");
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = all[i].name;
        bool own = !strcmp(name, "stream") || !strcmp(name, "antenna") || !strcmp(name, "fengs") ||
                   !strcmp(name, "feng") || !strcmp(name, "thread") || (!strcmp(name, "pol") && !labels->stream);
        if (own)
            labels->own[labels->n_own++] = all[i];
        else
            labels->rest[labels->n_rest++] = all[i];
    }
}

static const char *section_of(const struct labels *labels)
{
    if (labels->stream)
        return "streams";
    if (labels->thread)
        return "receivers";
    if (labels->feng)
        return "fengs";
    if (labels->fengs || (labels->antenna && labels->pol))
        return "inputs";
    return labels->antenna ? "antennas" : "other";
}

/* Writes a metric's short name: "heaps" for fgpu_input_heaps_total. */
static void short_name(const char *program, const char *name, char *text, size_t text_bytes)
{
    static const char *const prefixes[] = {"input_", "feng_", "output_x_", "output_b_", "output_", "gnss_"};
    size_t n_program = strlen(program);

    if (!strncmp(name, program, n_program) && name[n_program] == '_')
        name += n_program + 1;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) {
            name += strlen(prefixes[i]);
            break;
        }
    }
    snprintf(text, text_bytes, "%s", name);
    size_t n = strlen(text), n_total = strlen("_total");
    if (n > n_total && !strcmp(text + n - n_total, "_total"))
        text[n - n_total] = '\0';
}

struct gathering {
    const char *program;
    json_t *root;
    /* finds the objects in 'root'; the key of an object is one text: the section, then the object's own labels */
    json_t *found;
};

/* Returns the object in 'root' to which a metric with these labels belongs.  Creates the object if necessary.  Returns
 * NULL if memory runs out. */
static json_t *find_object(struct gathering *g, const struct labels *labels)
{
    char key[1024];
    const char *section = section_of(labels);
    int n = snprintf(key, sizeof(key), "%s", section);

    if (!labels->n_own) {
        if (!json_object_get(g->root, section))
            json_object_set_new(g->root, section, json_object());
        return json_object_get(g->root, section);
    }
    for (size_t i = 0; i < labels->n_own && n < (int)sizeof(key); i++)
        n += snprintf(key + n, sizeof(key) - (size_t)n, "\n%s\n%s", labels->own[i].name, labels->own[i].value);
    json_t *object = json_object_get(g->found, key);
    if (object)
        return object;
    if (!json_object_get(g->root, section))
        json_object_set_new(g->root, section, json_array());
    object = json_object();
    json_object_set_new(g->found, key, object);
    for (size_t i = 0; i < labels->n_own; i++)
        json_object_set_new(object, labels->own[i].name, json_string(labels->own[i].value));
    json_array_append(json_object_get(g->root, section), object);
    return object;
}

static void add_metric(void *arg, const struct stats_value *value)
{
    struct gathering *g = arg;
    struct labels labels;
    char name[256];

    read_labels(value->labels, &labels);
    short_name(g->program, value->name, name, sizeof(name));
    json_t *at = find_object(g, &labels);
    const char *key = name;
    for (size_t i = 0; i < labels.n_rest; i++) {
        if (!json_object_get(at, key))
            json_object_set_new(at, key, json_object());
        at = json_object_get(at, key);
        key = labels.rest[i].value;
    }
    if (value->is_counter)
        json_object_set_new(
            at, key, json_pack("{s:I, s:o}", "total", (json_int_t)value->total, "per_s", status_number(value->per_s)));
    else
        json_object_set_new(at, key, status_number(value->gauge));
}

/* ---- Sensors ----------------------------------------------------------------------------------------------------- */

static json_t *sensor_value(const struct sensor_entry *entry, const struct sensor_reading *reading)
{
    char text[SENSOR_TEXT_BYTES];

    switch (entry->about.type) {
    case SENSOR_INTEGER: return json_integer(reading->value.integer);
    case SENSOR_BOOLEAN: return json_boolean(reading->value.integer != 0);
    case SENSOR_FLOAT:
    case SENSOR_TIMESTAMP: return status_number(reading->value.real);
    default: return json_string(sensor_entry_text(entry, reading, text));
    }
}

static json_t *describe_sensors(const struct sensors *sensors)
{
    json_t *all = json_object();

    for (size_t i = 0; i < sensors->n; i++) {
        const struct sensor_entry *entry = sensors->entries[i];
        const struct sensor_desc *about = &entry->about;
        if (about->includes || (about->type == SENSOR_STRING && !about->format))
            continue;
        struct sensor_reading reading = sensors_read(sensors, entry, NULL);
        json_object_set_new(all, about->name,
                            json_pack("{s:o, s:s, s:s, s:o}", "value", sensor_value(entry, &reading), "units",
                                      about->units, "status", sensor_status_name(reading.status), "time",
                                      json_real((double)(reading.unix_ns / NS_PER_US) / 1e6)));
    }
    return all;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void add_process(struct status *status, json_t *root)
{
    static const char *const states[] = {"starting", "running", "draining"};
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    json_object_set_new(root, "program", json_string(status->program));
    json_object_set_new(root, "engine", json_string(status->name));
    json_object_set_new(root, "version", json_string(cbf_build_id));
    json_object_set_new(root, "host", json_string(host));
    json_object_set_new(root, "pid", json_integer(getpid()));
    json_object_set_new(root, "state", json_string(states[status_state(status)]));
    json_object_set_new(root, "healthy", json_boolean(!status->healthy || gauge_get(status->healthy)));
    json_object_set_new(root, "time", json_real((double)(clock_unix_ns() / NS_PER_US) / 1e6));
    json_object_set_new(root, "start_time", json_real((double)(status->start_unix_ns / NS_PER_US) / 1e6));
    json_object_set_new(root, "uptime_s",
                        json_real((double)((clock_monotonic_ns() - status->start_ns) / NS_PER_MS) / 1e3));
}

static json_t *describe(struct status *status, const struct status_query *query)
{
    json_t *root = json_object();
    struct gathering gathering = {status->program, root, json_object()};

    add_process(status, root);
    if (status_state(status) != STATUS_STARTING) {
        stats_make_rates(clock_monotonic_ns());
        stats_each(add_metric, &gathering);
        json_object_set_new(root, "troubles", history_describe(status->history));
    }
    json_decref(gathering.found);
    lock_take(&status->lock);
    if (status->device)
        json_object_set_new(root, "device",
                            json_pack("{s:s, s:s, s:b}", "kind", device_name(status->device), "model",
                                      device_model(status->device), "ok", device_ok(status->device)));
    if (status->sensors && !query->no_sensors)
        json_object_set_new(root, "sensors", describe_sensors(status->sensors));
    if (status->describe)
        status->describe(status->arg, query, root);
    lock_give(&status->lock);
    return root;
}

char *status_format(struct status *status, const struct status_query *query)
{
    json_t *root = describe(status, query);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(root);
    return text;
}
