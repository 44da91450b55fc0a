/* fengs.c - derives the state of each F-engine from its counters in the assemblers. */
#include "xbgpu/fengs.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "common/engine/labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_S    1.0
#define LOSING_NS (5 * NS_PER_S) /* minimum time for which an F-engine stays "losing" after a lost heap */
#define NAMES_MAX 4              /* maximum number of antennas named in one line of the log */

static const char *const state_names[XBGPU_FENG_N_STATES + 1] = {"dead", "silent", "losing", "receiving", NULL};

/* A row for each counter of an F-engine, with the names of the counter's metric and sensor. */
static const struct {
    const char *metric, *sensor, *help;
} counts[XBGPU_FENG_N_COUNTS] = {
    [XBGPU_FENG_HEAPS] = {"xbgpu_feng_heaps", "rx.heaps", "Complete heaps received from this F-engine."},
    [XBGPU_FENG_MISSING] = {"xbgpu_feng_missing_heaps", "rx.missing-heaps",
                            "Heaps of this F-engine that were expected after its first heap, but did not arrive."},
    [XBGPU_FENG_LATE] = {"xbgpu_feng_late_heaps", "rx.late-heaps",
                         "Heaps of this F-engine that arrived after their chunk had been closed."},
    [XBGPU_FENG_REFUSED] = {"xbgpu_feng_refused_heaps", "rx.refused-heaps",
                            "Heaps of this F-engine whose first packet was refused for a reason other than lateness."},
};

static const struct counter *counter_of(const struct xbgpu_fengs *fengs, size_t feng, int count)
{
    const struct assembler_source_stats *stats = &fengs->stats[feng];
    const struct counter *counters[] = {&stats->heaps, &stats->missing_heaps, &stats->late_heaps,
                                        &stats->refused_heaps};

    return counters[count];
}

/* ---- Looking ----------------------------------------------------------------------------------------------------- */

/* Copies the counters of one F-engine.  Returns a bit for each counter that has changed. */
static unsigned take_counts(struct xbgpu_fengs *fengs, size_t feng)
{
    struct xbgpu_feng *f = &fengs->items[feng];
    unsigned moved = 0;

    for (int i = 0; i < XBGPU_FENG_N_COUNTS; i++) {
        uint64_t value = counter_get(counter_of(fengs, feng, i));
        moved |= (unsigned)(value != f->counts[i]) << i;
        f->counts[i] = value;
    }
    return moved;
}

/* Records the times of heaps and losses.  Late and refused heaps also show that the F-engine sends.  If no complete
 * heaps arrive, late and refused heaps count as losses.  If complete heaps arrive, late and refused heaps do not count
 * as losses.  Such heaps are duplicates, or the assembler counts these heaps as missing. */
static void note_moves(const struct xbgpu_fengs *fengs, struct xbgpu_feng *f, unsigned moved, int64_t now_ns)
{
    bool useless = moved & (1u << XBGPU_FENG_LATE | 1u << XBGPU_FENG_REFUSED);

    if (moved >> XBGPU_FENG_HEAPS & 1)
        f->complete_ns = now_ns;
    if (useless || f->complete_ns == now_ns)
        f->heard_ns = now_ns;
    bool complete = f->complete_ns > 0 && now_ns - f->complete_ns < fengs->silent_ns;
    if (moved >> XBGPU_FENG_MISSING & 1 || (useless && !complete))
        f->lost_ns = now_ns;
}

static enum xbgpu_feng_state judge(const struct xbgpu_fengs *fengs, const struct xbgpu_feng *f, int64_t now_ns)
{
    int64_t losing_ns = LOSING_NS > 2 * fengs->silent_ns ? LOSING_NS : 2 * fengs->silent_ns;

    if (f->heard_ns == 0)
        return XBGPU_FENG_DEAD;
    if (now_ns - f->heard_ns >= fengs->silent_ns)
        return XBGPU_FENG_SILENT;
    return f->lost_ns > 0 && now_ns - f->lost_ns < losing_ns ? XBGPU_FENG_LOSING : XBGPU_FENG_RECEIVING;
}

static enum sensor_status status_of(enum xbgpu_feng_state state, bool any_heard)
{
    switch (state) {
    case XBGPU_FENG_DEAD: return any_heard ? SENSOR_ERROR : SENSOR_UNKNOWN;
    case XBGPU_FENG_SILENT: return SENSOR_ERROR;
    case XBGPU_FENG_LOSING: return SENSOR_WARN;
    default: return SENSOR_NOMINAL;
    }
}

static void set_sensors(struct xbgpu_fengs *fengs, size_t feng, unsigned moved, enum sensor_status status,
                        int64_t unix_ns)
{
    struct xbgpu_feng *f = &fengs->items[feng];
    struct sensor_reading before = sensor_read(&f->state_sensor);
    int64_t state = gauge_get(&f->state);

    if (before.status != status || before.value.integer != state)
        sensor_set_integer(&f->state_sensor, unix_ns, status, state);
    for (int i = 0; i < XBGPU_FENG_N_COUNTS; i++)
        if (moved >> i & 1)
            sensor_set_integer(&f->count_sensors[i], unix_ns, SENSOR_NOMINAL, (int64_t)f->counts[i]);
}

/* Lists the antennas that have changed to 'state' since the previous poll: "m000, m003 and 5 more".  Returns the number
 * of these antennas. */
static size_t list_changed(const struct xbgpu_fengs *fengs, const uint8_t *changed, enum xbgpu_feng_state state,
                           char *text, size_t text_bytes)
{
    size_t n = 0, used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < fengs->n; i++) {
        if (!changed[i] || gauge_get(&fengs->items[i].state) != (int64_t)state)
            continue;
        if (n++ < NAMES_MAX && used < text_bytes)
            used +=
                (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", fengs->labels->antennas[i]);
    }
    if (n > NAMES_MAX && used < text_bytes)
        snprintf(text + used, text_bytes - used, " and %zu more", n - NAMES_MAX);
    return n;
}

static void log_changes(struct xbgpu_fengs *fengs, const uint8_t *changed)
{
    char text[600];

    if (list_changed(fengs, changed, XBGPU_FENG_SILENT, text, sizeof(text)))
        log_limited(&fengs->silent_limit, LOG_LEVEL_WARNING, "no heaps arrive from the F-engines of %s", text);
    if (list_changed(fengs, changed, XBGPU_FENG_LOSING, text, sizeof(text)))
        log_limited(&fengs->losing_limit, LOG_LEVEL_WARNING, "heaps are missing from the F-engines of %s", text);
    if (list_changed(fengs, changed, XBGPU_FENG_RECEIVING, text, sizeof(text)))
        log_limited(&fengs->receiving_limit, LOG_LEVEL_INFO, "all heaps arrive from the F-engines of %s", text);
}

void xbgpu_fengs_poll(struct xbgpu_fengs *fengs, int64_t now_ns, int64_t unix_ns)
{
    uint8_t *changed = fengs->changed;
    bool any_heard = false;

    for (size_t i = 0; i < fengs->n; i++) {
        struct xbgpu_feng *f = &fengs->items[i];
        unsigned moved = fengs->moved[i] = take_counts(fengs, i);
        note_moves(fengs, f, moved, now_ns);
        enum xbgpu_feng_state state = judge(fengs, f, now_ns);
        changed[i] = gauge_get(&f->state) != (int64_t)state;
        if (changed[i])
            gauge_set(&f->since_unix_ns, state == XBGPU_FENG_SILENT ? unix_ns - (now_ns - f->heard_ns) : unix_ns);
        gauge_set(&f->state, (int64_t)state);
        any_heard = any_heard || f->heard_ns > 0;
    }
    for (size_t i = 0; i < fengs->n; i++)
        set_sensors(fengs, i, fengs->moved[i],
                    status_of((enum xbgpu_feng_state)gauge_get(&fengs->items[i].state), any_heard), unix_ns);
    log_changes(fengs, changed);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct xbgpu_fengs *fengs = CONTAINER_OF(timer, struct xbgpu_fengs, look);

    xbgpu_fengs_poll(fengs, clock_monotonic_ns(), clock_unix_ns());
}

/* ---- /status.json ------------------------------------------------------------------------------------------------ */

static json_t *describe_labels(const struct labels *labels, size_t feng)
{
    json_t *pair = json_array();

    for (size_t pol = 0; pol < N_POLS; pol++)
        json_array_append_new(pair, json_string(labels->labels[feng * N_POLS + pol]));
    return pair;
}

void xbgpu_fengs_describe(const struct xbgpu_fengs *fengs, json_t *into)
{
    json_t *all = json_object_get(into, "fengs");

    for (size_t i = 0; i < fengs->n && i < json_array_size(all); i++) {
        const struct xbgpu_feng *f = &fengs->items[i];
        int64_t since_unix_ns = gauge_get(&f->since_unix_ns);
        json_t *feng = json_array_get(all, i);
        json_object_set_new(feng, "labels", describe_labels(fengs->labels, i));
        json_object_set_new(feng, "state", json_string(state_names[gauge_get(&f->state)]));
        json_object_set_new(feng, "since",
                            since_unix_ns ? json_real((double)(since_unix_ns / NS_PER_US) / 1e6) : json_null());
    }
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static void register_metrics(struct xbgpu_fengs *fengs, size_t feng)
{
    char labels[400] = "", number[24];

    snprintf(number, sizeof(number), "%zu", feng);
    stats_label(labels, sizeof(labels), "feng", number);
    stats_label(labels, sizeof(labels), "antenna", fengs->labels->antennas[feng]);
    for (int i = 0; i < XBGPU_FENG_N_COUNTS; i++)
        stats_counter(counts[i].metric, counts[i].help, labels, counter_of(fengs, feng, i));
    stats_gauge("xbgpu_feng_newest_timestamp", "Timestamp of the newest heap of this F-engine, in ADC samples.", labels,
                &fengs->stats[feng].newest_timestamp);
    stats_gauge("xbgpu_feng_state",
                "State of this F-engine's stream: 0 dead (no heap since the start), 1 silent (no heaps now), 2 losing "
                "(heaps are missing), 3 receiving.",
                labels, &fengs->items[feng].state);
}

static int add_sensors(struct xbgpu_fengs *fengs, size_t feng, struct sensors *sensors)
{
    struct xbgpu_feng *f = &fengs->items[feng];
    char name[600];
    struct sensor_desc about = {
        .name = name,
        .description = "State of the stream of this antenna's F-engine; dead: nothing received since the start.",
        .units = "",
        .type = SENSOR_DISCRETE,
        .words = state_names};

    snprintf(name, sizeof(name), "%s.rx.state", fengs->labels->antennas[feng]);
    int err = sensors_add(sensors, &f->state_sensor, &about, (struct sensor_reading){0});
    for (int i = 0; !err && i < XBGPU_FENG_N_COUNTS; i++) {
        about = (struct sensor_desc){
            .name = name, .description = counts[i].help, .units = "", .type = SENSOR_INTEGER, .auto_shortest_s = 1};
        snprintf(name, sizeof(name), "%s.%s", fengs->labels->antennas[feng], counts[i].sensor);
        err = sensors_add(sensors, &f->count_sensors[i], &about,
                          (struct sensor_reading){clock_unix_ns(), SENSOR_NOMINAL, {0}});
    }
    return err;
}

int xbgpu_fengs_init(struct xbgpu_fengs *fengs, const struct labels *labels, struct sensors *sensors,
                     struct ev_loop *loop, int64_t silent_ns)
{
    *fengs = (struct xbgpu_fengs){.n = labels->n / N_POLS, .labels = labels, .silent_ns = silent_ns};
    fengs->stats = calloc(fengs->n, sizeof(*fengs->stats));
    fengs->items = calloc(fengs->n, sizeof(*fengs->items));
    fengs->changed = calloc(fengs->n, sizeof(*fengs->changed));
    fengs->moved = calloc(fengs->n, sizeof(*fengs->moved));
    int err = fengs->stats && fengs->items && fengs->changed && fengs->moved ? 0 : -ENOMEM;
    for (size_t i = 0; !err && i < fengs->n; i++) {
        register_metrics(fengs, i);
        err = add_sensors(fengs, i, sensors);
    }
    if (err)
        return err;
    fengs->loop = loop;
    ev_timer_init(&fengs->look, on_look, LOOK_S, LOOK_S);
    ev_timer_start(loop, &fengs->look);
    return 0;
}

void xbgpu_fengs_fini(struct xbgpu_fengs *fengs)
{
    if (fengs->loop)
        ev_timer_stop(fengs->loop, &fengs->look);
    free(fengs->stats);
    free(fengs->items);
    free(fengs->changed);
    free(fengs->moved);
    *fengs = (struct xbgpu_fengs){0};
}
