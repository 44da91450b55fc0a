/* standard.c - the requests that every KATCP device answers. */
#include "common/katcp/internal.h"

#include "common/base/log.h"
#include "common/katcp/name_pattern.h"
#include "common/base/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ?help, ?request-timeout-hint: all requests by name ---------------------------------------------------------- */

/* Calls each() for the request 'name' or, if 'name' is NULL, for all requests in order of name.  Returns the number of
 * calls of each(). */
static size_t each_request(const struct katcp_server *server, const char *name, struct katcp_call *call,
                           void (*each)(struct katcp_call *, const struct katcp_request *, bool one))
{
    const char *last = "";
    size_t n = 0;

    for (;;) {
        const struct katcp_request *next = NULL;
        for (size_t i = 0; i < katcp_n_standard_requests + server->device->n_requests; i++) {
            const struct katcp_request *r = i < katcp_n_standard_requests
                                                ? &katcp_standard_requests[i]
                                                : &server->device->requests[i - katcp_n_standard_requests];
            if (strcmp(r->name, last) > 0 && (!next || strcmp(r->name, next->name) < 0))
                next = r;
        }
        if (!next)
            return n;
        if (!name || !strcmp(name, next->name)) {
            each(call, next, name != NULL);
            n++;
        }
        last = next->name;
    }
}

static void answer_each(struct katcp_call *call, const struct katcp_server *server,
                        void (*each)(struct katcp_call *, const struct katcp_request *, bool one))
{
    const char *name = katcp_n_args(call) ? katcp_arg(call, 0) : NULL;

    if (name && !katcp_find_request(server, name))
        katcp_fail(call, "unknown request %.64s", name);
    else
        katcp_ok_count(call, each_request(server, name, call, each));
}

static void inform_help(struct katcp_call *call, const struct katcp_request *request, bool one)
{
    char line[256];

    snprintf(line, sizeof(line), "%.*s", (int)strcspn(request->help, "\n"), request->help);
    katcp_inform(call, 2, (const char *[]){request->name, one ? request->help : line});
}

static void help(struct katcp_call *call, void *server)
{
    answer_each(call, server, inform_help);
}

static void inform_timeout(struct katcp_call *call, const struct katcp_request *request, bool one)
{
    char seconds[32];

    snprintf(seconds, sizeof(seconds), "%g", request->timeout_s);
    katcp_inform(call, 2, (const char *[]){request->name, seconds});
}

static void request_timeout_hint(struct katcp_call *call, void *server)
{
    answer_each(call, server, inform_timeout);
}

/* ---- ?version-list, ?client-list, ?watchdog, ?halt, ?restart ----------------------------------------------------- */

void katcp_version(const struct katcp_server *server, size_t i, const char *version[3])
{
    const char *versions[KATCP_N_VERSIONS][3] = {
        {"katcp-protocol", "5.1-MIBT", NULL},
        {"katcp-library", "cbf-katcp-1.0", cbf_build_id},
        {"katcp-device", server->device->name, server->device->version},
    };

    memcpy(version, versions[i], sizeof(versions[i]));
}

static void version_list(struct katcp_call *call, void *server)
{
    for (size_t i = 0; i < KATCP_N_VERSIONS; i++) {
        const char *version[3];
        katcp_version(server, i, version);
        katcp_inform(call, version[2] ? 3 : 2, version);
    }
    katcp_ok_count(call, KATCP_N_VERSIONS);
}

static void client_list(struct katcp_call *call, void *arg)
{
    const struct katcp_server *server = arg;
    size_t n = 0;

    for (const struct katcp_client *client = server->clients; client; client = client->next) {
        if (client->fd < 0)
            continue;
        katcp_inform(call, 1, (const char *[]){client->address});
        n++;
    }
    katcp_ok_count(call, n);
}

static void watchdog(struct katcp_call *call, void *server)
{
    katcp_ok(call, 0, NULL);
}

/* Ends the program.  A ?halt from another host only restarts the program, unless katcp.halt_stays is set. */
static void halt(struct katcp_call *call, void *arg)
{
    static const char *const sentence[] = {"the program restarts because katcp.halt_stays is not set"};
    const struct katcp_server *server = arg;
    const struct katcp_device *device = server->device;
    const struct katcp_client *client = katcp_call_client(call);
    bool stays = server->halt_stays || access_is_local(client->host);

    if (!stays)
        log_info("KATCP client %s requested ?halt: %s", client->address, sentence[0]);
    katcp_ok(call, !stays, sentence);
    if (stays)
        device->halt(device->life_arg);
    else
        device->restart(device->life_arg);
}

static void restart(struct katcp_call *call, void *server)
{
    const struct katcp_device *device = ((struct katcp_server *)server)->device;

    katcp_ok(call, 0, NULL);
    device->restart(device->life_arg);
}

/* ---- ?sensor-list, ?sensor-value --------------------------------------------------------------------------------- */

static bool is_expression(const char *arg)
{
    size_t n = strlen(arg);

    return n >= 2 && arg[0] == '/' && arg[n - 1] == '/';
}

/* Sends the sensors that match the call's pattern, or all sensors, until the steps of this turn are used up.  Answers
 * after the last sensor. */
static void resume_sensors(struct katcp_call *call)
{
    struct katcp_server *server = katcp_call_client(call)->server;
    const struct sensors *sensors = server->device->sensors;
    size_t n_steps;

    do {
        if (call->next == sensors->n) {
            katcp_ok_count(call, call->n_told);
            return;
        }
        const struct sensor_entry *entry = sensors->entries[call->next++];
        n_steps = 0;
        if (!call->memory || name_pattern_matches(call->memory, entry->about.name, &n_steps)) {
            call->each(call, entry);
            call->n_told++;
        }
        katcp_count_steps(server, KATCP_SENSOR_STEPS + n_steps);
    } while (katcp_call_may_resume(call));
}

/* Compiles "/expression/" into call->memory.  If the expression is refused, fails the call and returns false. */
static bool compile(struct katcp_call *call, const char *arg)
{
    struct name_pattern *pattern = malloc(sizeof(*pattern));
    const char *why =
        pattern ? name_pattern_compile(arg + 1, strlen(arg) - 2, pattern) : "there is no memory for the expression";

    call->memory = pattern;
    if (why)
        katcp_fail(call, "%s", why);
    return !why;
}

/* Calls each() for the sensors that the argument selects, or for all sensors if there is no argument.  Answers with the
 * number of these sensors. */
static void each_sensor(struct katcp_call *call, const struct katcp_server *server,
                        void (*each)(struct katcp_call *, const struct sensor_entry *))
{
    const char *arg = katcp_n_args(call) ? katcp_arg(call, 0) : NULL;
    bool some = arg && is_expression(arg);

    if (arg && !some) {
        const struct sensor_entry *entry = sensors_find(server->device->sensors, arg);
        if (!entry) {
            katcp_fail(call, "Unknown sensor '%.256s'", arg);
            return;
        }
        each(call, entry);
        katcp_ok_count(call, 1);
        return;
    }
    if (some && !compile(call, arg))
        return;
    call->next = call->n_told = 0;
    call->each = each;
    call->resume = resume_sensors;
    resume_sensors(call);
}

static void inform_about(struct katcp_call *call, const struct sensor_entry *entry)
{
    const struct sensor_desc *about = &entry->about;
    const char *args[4 + 64] = {about->name, about->description, about->units, sensor_type_name(about->type)};
    int n = 4;

    for (size_t i = 0; about->type == SENSOR_DISCRETE && about->words[i] && n < (int)ARRAY_LEN(args); i++)
        args[n++] = about->words[i];
    katcp_inform(call, n, args);
}

static void sensor_list(struct katcp_call *call, void *server)
{
    each_sensor(call, server, inform_about);
}

static void inform_value(struct katcp_call *call, const struct sensor_entry *entry)
{
    struct katcp_client *client = katcp_call_client(call);
    struct katcp_text *line = &client->server->line;
    struct sensor_reading reading = sensors_read(client->server->device->sensors, entry, NULL);

    katcp_sensor_line(line, "sensor-value", call->message.mid, entry, &reading);
    katcp_client_answer(client, line);
}

static void sensor_value(struct katcp_call *call, void *server)
{
    each_sensor(call, server, inform_value);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* The standard requests, in order of name.  katcp_find_request() requires this order. */
const struct katcp_request katcp_standard_requests[] = {
    {"client-list", "Lists the connected clients.", .handle = client_list, .changes_from = KATCP_CHANGES_NOTHING},
    {"halt",
     "Ends the program as SIGTERM does: the program sends the results of all received data, then the stop heaps.\n"
     "?halt\n"
     "A ?halt from another host acts as ?restart, unless katcp.halt_stays is set.",
     .handle = halt},
    {"help", "Lists the requests, or describes one.\n?help [REQUEST]", .max_args = 1, .handle = help,
     .changes_from = KATCP_CHANGES_NOTHING},
    {"log-level",
     "Returns or sets the level of the log messages that all clients get.\n"
     "?log-level [all|trace|debug|info|warn|error|fatal|off]",
     .max_args = 1, .handle = katcp_log_level, .changes_from = 1},
    {"request-timeout-hint",
     "Returns the longest duration of requests, in seconds; 0: not specified.\n?request-timeout-hint [REQUEST]",
     .max_args = 1, .handle = request_timeout_hint, .changes_from = KATCP_CHANGES_NOTHING},
    {"restart", "Ends the program as ?halt does, with exit code 75, for the service manager to start it again.",
     .handle = restart},
    {"sensor-list",
     "Describes the sensors: name, description, units, type, and the values of discrete sensors.\n"
     "?sensor-list [NAME|/REGULAR EXPRESSION/]",
     .max_args = 1, .handle = sensor_list, .changes_from = KATCP_CHANGES_NOTHING},
    {"sensor-sampling",
     "Returns or sets this client's sampling strategy for sensors.\n"
     "?sensor-sampling NAME[,NAME...] [none | auto | period SECONDS | event | differential DIFFERENCE | event-rate "
     "SHORTEST LONGEST | differential-rate DIFFERENCE SHORTEST LONGEST]\n"
     "SHORTEST and LONGEST are seconds between two readings.",
     .min_args = 1, .max_args = 5, .handle = katcp_sensor_sampling, .changes_from = KATCP_CHANGES_NOTHING,
     .has_long_lines = true},
    {"sensor-sampling-clear", "Ends all sampling of this client.", .handle = katcp_sensor_sampling_clear,
     .changes_from = KATCP_CHANGES_NOTHING},
    {"sensor-value", "Reads sensors.\n?sensor-value [NAME|/REGULAR EXPRESSION/]", .max_args = 1, .handle = sensor_value,
     .changes_from = KATCP_CHANGES_NOTHING},
    {"version-list", "Lists the versions of protocol, library and device.", .handle = version_list,
     .changes_from = KATCP_CHANGES_NOTHING},
    {"watchdog", "Does nothing, to show that the program answers.", .handle = watchdog,
     .changes_from = KATCP_CHANGES_NOTHING},
};
const size_t katcp_n_standard_requests = ARRAY_LEN(katcp_standard_requests);
