/* sampling.c - sends sensor readings to the clients that sample the sensors.
 *
 * Every KATCP_LOOK_S a poll reads each sensor that any client samples.  A sensor that has not been set since the last
 * poll costs only a few loads.  A line is formatted once for all clients that get it.  If a poll exceeds its steps, it
 * continues in the next turn of the event loop.  If a value changes and changes back between two polls, no strategy
 * reports the change. */
#include "common/katcp/internal.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int n_params;
} strategies[] = {
    [KATCP_NONE] = {"none", 0},
    [KATCP_AUTO] = {"auto", 0},
    [KATCP_PERIOD] = {"period", 1},
    [KATCP_EVENT] = {"event", 0},
    [KATCP_DIFFERENTIAL] = {"differential", 1},
    [KATCP_EVENT_RATE] = {"event-rate", 2},
    [KATCP_DIFFERENTIAL_RATE] = {"differential-rate", 3},
};

/* NEVER_S is longer than any process runs, but small enough to be added to a time without overflow. */
#define NEVER_S  1e9
#define NEVER_NS INT64_MAX

static int64_t to_ns(double seconds)
{
    return (int64_t)((seconds < NEVER_S ? seconds : NEVER_S) * 1e9);
}

/* ---- Due readings ------------------------------------------------------------------------------------------------ */

/* A sensor's reading in this poll.  The poll compares this reading with the reading that was last sent to each
 * client. */
struct seen {
    const struct sensor_entry *entry;
    struct sensor_reading reading;
    uint64_t version;
    int64_t now_ns;
};

static bool has_changed(const struct katcp_sampling *sampling, const struct seen *seen)
{
    const union sensor_value *old = &sampling->sent.value, *new = &seen->reading.value;
    const struct sensor_desc *about = &seen->entry->about;

    if (sampling->sent_version == seen->version)
        return false;
    if (sampling->sent.status != seen->reading.status)
        return true;
    if (about->type == SENSOR_STRING && !about->format)
        return sampling->sent_text_version != seen->entry->text_version;
    if (about->type == SENSOR_STRING)
        return memcmp(old->numbers, new->numbers, sizeof(old->numbers)) != 0;
    if (about->type == SENSOR_FLOAT || about->type == SENSOR_TIMESTAMP)
        return memcmp(&old->real, &new->real, sizeof(old->real)) != 0;
    return old->integer != new->integer;
}

static bool has_changed_by(const struct katcp_sampling *sampling, const struct seen *seen)
{
    const union sensor_value *old = &sampling->sent.value, *new = &seen->reading.value;

    if (!has_changed(sampling, seen))
        return false;
    if (sampling->sent.status != seen->reading.status)
        return true;
    if (seen->entry->about.type == SENSOR_INTEGER)
        return fabs((double)new->integer - (double)old->integer) > sampling->difference;
    /* if the difference is NaN, the value counts as changed */
    return !(fabs(new->real - old->real) <= sampling->difference);
}

/* Returns true if at least 'shortest_s' have passed since the last reading was sent.  Otherwise lowers '*due_ns' to the
 * time when 'shortest_s' will have passed. */
static bool after(const struct katcp_sampling *sampling, double shortest_s, int64_t now_ns, int64_t *due_ns)
{
    int64_t from_ns = sampling->sent_ns + to_ns(shortest_s);

    if (now_ns >= from_ns)
        return true;
    *due_ns = from_ns < *due_ns ? from_ns : *due_ns;
    return false;
}

/* Returns true if the reading must be sent to the client now.  If the reading will be due later even without a change,
 * lowers '*due_ns' to that time. */
static bool is_due(const struct katcp_sampling *sampling, const struct seen *seen, int64_t *due_ns)
{
    double auto_shortest_s = seen->entry->about.auto_shortest_s;
    int64_t now_ns = seen->now_ns;

    switch (sampling->strategy) {
    case KATCP_NONE: return false;
    case KATCP_AUTO:
        if (auto_shortest_s <= 0)
            return sampling->sent_version != seen->version;
        return has_changed(sampling, seen) && after(sampling, auto_shortest_s, now_ns, due_ns);
    case KATCP_PERIOD: return after(sampling, sampling->longest_s, now_ns, due_ns);
    case KATCP_EVENT: return has_changed(sampling, seen);
    case KATCP_DIFFERENTIAL: return has_changed_by(sampling, seen);
    case KATCP_EVENT_RATE:
    case KATCP_DIFFERENTIAL_RATE: break;
    }
    bool by = sampling->strategy == KATCP_DIFFERENTIAL_RATE;
    if ((by ? has_changed_by(sampling, seen) : has_changed(sampling, seen)) &&
        after(sampling, sampling->shortest_s, now_ns, due_ns))
        return true;
    return after(sampling, sampling->longest_s, now_ns, due_ns);
}

/* Call this function after a reading has been sent.  Returns the time at which the next reading is due if the value
 * does not change before. */
static int64_t next_due_ns(const struct katcp_sampling *sampling)
{
    switch (sampling->strategy) {
    case KATCP_PERIOD:
    case KATCP_EVENT_RATE:
    case KATCP_DIFFERENTIAL_RATE: return sampling->sent_ns + to_ns(sampling->longest_s);
    default: return NEVER_NS;
    }
}

static void note_sent(struct katcp_sampling *sampling, const struct seen *seen)
{
    int64_t period_ns = to_ns(sampling->longest_s);

    sampling->sent = seen->reading;
    sampling->sent_version = seen->version;
    sampling->sent_text_version = seen->entry->text_version;
    /* Periodic readings keep their regular times, unless a whole period was missed. */
    if (sampling->strategy == KATCP_PERIOD && seen->now_ns - sampling->sent_ns < 2 * period_ns)
        sampling->sent_ns += period_ns;
    else
        sampling->sent_ns = seen->now_ns;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

void katcp_sensor_line(struct katcp_text *line, const char *name, int32_t mid, const struct sensor_entry *entry,
                       const struct sensor_reading *reading)
{
    char text[SENSOR_TEXT_BYTES];

    katcp_text_clear(line);
    katcp_text_begin(line, '#', name, mid);
    katcp_text_add_time(line, reading->unix_ns);
    katcp_text_add_arg(line, "1");
    katcp_text_add_arg(line, entry->about.name);
    katcp_text_add_arg(line, sensor_status_name(reading->status));
    katcp_text_add_arg(line, sensor_entry_text(entry, reading, text));
    katcp_text_end(line);
}

static struct seen see(const struct katcp_server *server, const struct sensor_entry *entry)
{
    struct seen seen = {.entry = entry, .now_ns = clock_monotonic_ns()};

    seen.reading = sensors_read(server->device->sensors, entry, &seen.version);
    return seen;
}

/* Rotates the list of clients so that it begins with 'first'.  The clients thus take turns at being the last
 * client. */
static void rotate(struct katcp_server *server, struct katcp_client *first)
{
    struct katcp_client **end = &server->clients;

    while (*end)
        end = &(*end)->next;
    *end = server->clients;
    while (server->clients != first) {
        end = &server->clients->next;
        server->clients = *end;
    }
    *end = NULL;
}

/* Sends a sensor's reading to the clients for which the reading is due.  If 'steps_left' falls to 'end_steps' before
 * the last of these clients, the function stops and returns false. */
static bool send_inform(struct katcp_server *server, struct sensor_entry *entry, const struct seen *seen,
                        int64_t end_steps)
{
    bool has_line = false;

    entry->due_ns = NEVER_NS;
    for (struct katcp_client *client = server->clients; client; client = client->next) {
        struct katcp_sampling *sampling = client->samplings ? &client->samplings[entry->index] : NULL;
        if (!sampling || client->fd < 0 || !is_due(sampling, seen, &entry->due_ns))
            continue;
        if (has_line && server->steps_left <= end_steps) {
            entry->due_ns = seen->now_ns;
            rotate(server, client);
            return false;
        }
        if (!has_line)
            katcp_sensor_line(&server->line, "sensor-status", 0, entry, &seen->reading);
        has_line = true;
        if (!katcp_client_inform(client, &server->line)) {
            entry->due_ns = seen->now_ns; /* the next poll tries to send this reading again */
            continue;
        }
        note_sent(sampling, seen);
        int64_t due_ns = next_due_ns(sampling);
        entry->due_ns = due_ns < entry->due_ns ? due_ns : entry->due_ns;
    }
    return true;
}

void katcp_sampling_poll(struct katcp_server *server)
{
    const struct sensors *sensors = server->device->sensors;
    int64_t end_steps = katcp_steps_left(server) - KATCP_LOOK_STEPS;

    for (; server->look_next < sensors->n; server->look_next++) {
        struct sensor_entry *entry = sensors->entries[server->look_next];
        if (entry->n_sampled == 0)
            continue;
        if (server->steps_left <= end_steps)
            break;
        katcp_count_steps(server, KATCP_SENSOR_STEPS + 4 * entry->n_sampled);
        struct seen seen = see(server, entry);
        if (seen.version == entry->looked_version && seen.now_ns < entry->due_ns)
            continue;
        entry->looked_version = seen.version;
        if (!send_inform(server, entry, &seen, end_steps))
            break;
    }
    if (server->look_next < sensors->n)
        katcp_server_resume(server);
}

/* ---- ?sensor-sampling -------------------------------------------------------------------------------------------- */

/* Adds 'n' to the numbers of samplings of the sensor, the client and the server.  'n' is 1 if a sampling begins, -1 if
 * a sampling ends. */
static void count(struct katcp_client *client, struct sensor_entry *entry, int n)
{
    struct katcp_server *server = client->server;

    entry->n_sampled += (size_t)n;
    client->n_samplings += (size_t)n;
    server->n_samplings += (size_t)n;
    if (server->n_samplings == 0)
        ev_timer_stop(server->loop, &server->look);
    else if (!ev_is_active(&server->look))
        ev_timer_again(server->loop, &server->look);
}

static void set_sampling(struct katcp_client *client, struct sensor_entry *entry, const struct katcp_sampling *wanted)
{
    struct katcp_sampling *sampling = &client->samplings[entry->index];

    if (client->fd < 0)
        return; /* the client was dropped in the meantime */
    int n = (wanted->strategy != KATCP_NONE) - (sampling->strategy != KATCP_NONE);

    *sampling = *wanted;
    if (n)
        count(client, entry, n);
    if (wanted->strategy == KATCP_NONE)
        return;
    struct seen seen = see(client->server, entry);
    katcp_sensor_line(&client->server->line, "sensor-status", 0, entry, &seen.reading);
    katcp_client_answer(client, &client->server->line);
    sampling->sent_ns = seen.now_ns;
    sampling->sent = seen.reading;
    sampling->sent_version = seen.version;
    sampling->sent_text_version = entry->text_version;
    /* Makes the next poll read the sensor.  That poll computes when the next reading of the sensor is due, and sends
     * changes to other clients. */
    entry->due_ns = seen.now_ns;
}

void katcp_sampling_end(struct katcp_client *client)
{
    struct sensors *sensors = client->server->device->sensors;

    for (size_t i = 0; client->n_samplings > 0 && i < sensors->n; i++) {
        if (client->samplings[i].strategy == KATCP_NONE)
            continue;
        client->samplings[i].strategy = KATCP_NONE;
        count(client, sensors->entries[i], -1);
    }
}

void katcp_sensor_sampling_clear(struct katcp_call *call, void *server)
{
    katcp_sampling_end(katcp_call_client(call));
    katcp_ok(call, 0, NULL);
}

/* Parses a number of seconds.  Accepts "inf" only if 'may_be_endless' is true.  If the argument is invalid, fails the
 * call and returns false. */
static bool parse_seconds(struct katcp_call *call, int i, const char *what, bool may_be_endless, double *seconds)
{
    if (may_be_endless && !strcmp(katcp_arg(call, i), "inf")) {
        *seconds = INFINITY;
        return true;
    }
    if (!katcp_arg_real(call, i, what, seconds))
        return false;
    if (*seconds >= 0)
        return true;
    katcp_fail(call, "%s must not be negative", what);
    return false;
}

static bool parse_params(struct katcp_call *call, struct katcp_sampling *wanted)
{
    bool by = wanted->strategy == KATCP_DIFFERENTIAL || wanted->strategy == KATCP_DIFFERENTIAL_RATE;
    int i = 2;

    if (katcp_n_args(call) != 2 + strategies[wanted->strategy].n_params) {
        katcp_fail(call, "strategy %s takes %d parameters", strategies[wanted->strategy].name,
                   strategies[wanted->strategy].n_params);
        return false;
    }
    if (by && !parse_seconds(call, i++, "the difference", false, &wanted->difference))
        return false;
    if (wanted->strategy == KATCP_PERIOD) {
        if (!parse_seconds(call, i, "the period", false, &wanted->longest_s))
            return false;
        if (wanted->longest_s > 0)
            return true;
        katcp_fail(call, "the period must be more than 0 s");
        return false;
    }
    if (wanted->strategy != KATCP_EVENT_RATE && wanted->strategy != KATCP_DIFFERENTIAL_RATE)
        return true;
    if (!parse_seconds(call, i, "the shortest interval", false, &wanted->shortest_s) ||
        !parse_seconds(call, i + 1, "the longest interval", true, &wanted->longest_s))
        return false;
    if (wanted->longest_s >= wanted->shortest_s && wanted->longest_s > 0)
        return true;
    katcp_fail(call, "the longest interval must be above 0 s and not below the shortest interval");
    return false;
}

static bool parse_strategy(struct katcp_call *call, struct katcp_sampling *wanted)
{
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        if (strcmp(katcp_arg(call, 1), strategies[i].name) != 0)
            continue;
        wanted->strategy = (enum katcp_strategy)i;
        return parse_params(call, wanted);
    }
    katcp_fail(call, "unknown strategy %.64s", katcp_arg(call, 1));
    return false;
}

/* Parses "name,name,..." and sets marks [sensors->n] to true for each named sensor.  If the argument is invalid, fails
 * the call and returns false. */
static bool mark_named(struct katcp_call *call, const struct sensors *sensors, const struct katcp_sampling *wanted,
                       bool *marks)
{
    bool by = wanted->strategy == KATCP_DIFFERENTIAL || wanted->strategy == KATCP_DIFFERENTIAL_RATE;
    char name[256];

    for (const char *at = katcp_arg(call, 0);; at++) {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : sizeof(name) - 1), at);
        const struct sensor_entry *entry = n < sizeof(name) ? sensors_find(sensors, name) : NULL;
        if (!entry)
            katcp_fail(call, "Unknown sensor '%s'", name);
        else if (marks[entry->index])
            katcp_fail(call, "sensor %s is named twice", name);
        else if (by && entry->about.type != SENSOR_INTEGER && entry->about.type != SENSOR_FLOAT)
            katcp_fail(call, "strategy %s is for integers and floats, and sensor %s is neither",
                       strategies[wanted->strategy].name, name);
        else
            marks[entry->index] = true;
        if (!call->active)
            return false;
        at += n;
        if (!*at)
            return true;
    }
}

/* Writes a number in the shortest form that converts back to the same number. */
static const char *write_real(double value, char text[32])
{
    int n_digits = 6;

    do
        snprintf(text, 32, "%.*g", n_digits, value);
    while (strtod(text, NULL) != value && n_digits++ < 17);
    return text;
}

/* Answers "!sensor-sampling ok NAMES STRATEGY PARAMETERS". */
static void answer_sampling(struct katcp_call *call, const struct katcp_sampling *sampling)
{
    const char *args[5] = {katcp_arg(call, 0), strategies[sampling->strategy].name};
    char params[3][32];
    int n = 2;

    if (sampling->strategy == KATCP_DIFFERENTIAL || sampling->strategy == KATCP_DIFFERENTIAL_RATE)
        args[n] = write_real(sampling->difference, params[n - 2]), n++;
    if (sampling->strategy == KATCP_EVENT_RATE || sampling->strategy == KATCP_DIFFERENTIAL_RATE)
        args[n] = write_real(sampling->shortest_s, params[n - 2]), n++;
    if (strategies[sampling->strategy].n_params == n - 1)
        args[n] = write_real(sampling->longest_s, params[n - 2]), n++;
    katcp_ok(call, n, args);
}

static void query(struct katcp_call *call, const struct sensors *sensors)
{
    static const struct katcp_sampling none;
    struct katcp_client *client = katcp_call_client(call);
    const struct sensor_entry *entry = sensors_find(sensors, katcp_arg(call, 0));

    if (!entry)
        katcp_fail(call, "Unknown sensor '%.256s'", katcp_arg(call, 0));
    else
        answer_sampling(call, client->samplings ? &client->samplings[entry->index] : &none);
}

/* Sets the sampling of the marked sensors, until the steps of this turn are used up.  Answers after the last sensor. */
static void resume_setting(struct katcp_call *call)
{
    struct katcp_client *client = katcp_call_client(call);
    struct sensors *sensors = client->server->device->sensors;
    const bool *marks = call->memory;

    do {
        while (call->next < sensors->n && !marks[call->next])
            call->next++;
        if (call->next == sensors->n) {
            answer_sampling(call, &call->wanted);
            return;
        }
        set_sampling(client, sensors->entries[call->next++], &call->wanted);
    } while (katcp_call_may_resume(call));
}

void katcp_sensor_sampling(struct katcp_call *call, void *server)
{
    struct katcp_client *client = katcp_call_client(call);
    struct sensors *sensors = client->server->device->sensors;

    if (katcp_n_args(call) == 1) {
        query(call, sensors);
        return;
    }
    call->wanted = (struct katcp_sampling){0};
    if (!parse_strategy(call, &call->wanted))
        return;
    call->memory = calloc(sensors->n + 1, sizeof(bool));
    if (!client->samplings)
        client->samplings = calloc(sensors->n + 1, sizeof(*client->samplings));
    if (!call->memory || !client->samplings) {
        katcp_fail(call, "there is no memory for this sampling");
    } else if (mark_named(call, sensors, &call->wanted, call->memory)) {
        call->next = 0;
        call->resume = resume_setting;
        resume_setting(call);
    }
}
