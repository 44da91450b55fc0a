/* status.h - /status.json: the identity and state of a process, its metrics and sensors, and the data that its pipeline
 * adds.
 *
 * Flow:      registry of stats.h, with rates ----------------\
 *            pipeline's source: describe(), spectra included --> one JSON object, made anew for each request
 * Threads:   the main thread creates and sets the status; the HTTP thread reads it.  A lock prevents the removal of a
 *            source while describe() runs.  The data path is not involved.
 *
 * Metrics: the object has the members "inputs" (an object for each antenna and polarisation, or each group of
 * F-engines), "antennas", "fengs", "receivers" (threads) and "streams".  These members contain the metrics of the
 * registry.  The labels of a metric determine the object that contains the metric.  Metrics without such labels are in
 * "other".  The metric fgpu_input_heaps_total{antenna, pol} is the member "heaps" of an input.  A counter is
 * {"total": n, "per_s": rate or null}, and a gauge is a number.  Each value of another label, such as "reason", becomes
 * the name of a member. */
#ifndef COMMON_HTTP_STATUS_H
#define COMMON_HTTP_STATUS_H

#include <jansson.h>
#include <stdbool.h>

struct device;
struct endpoint_list;
struct ev_loop;
struct gauge;
struct sensors;
struct status;

enum status_state { STATUS_STARTING, STATUS_RUNNING, STATUS_DRAINING };

/* Parameters in the URL of the request; NULL if absent. */
struct status_query {
    const char *stream;
    const char *antenna;  /* antenna's name */
    const char *baseline; /* "0,1" */
    const char *channels; /* first and last channel to show, "256,511" */
    bool no_spectrum;     /* "spectrum=none": the spectrum is null, and the worker is not asked for data */
    bool no_sensors;      /* "sensors=none": no member "sensors" */
};

/* Adds a pipeline's state to the object 'into'. */
typedef void (*status_describe)(void *arg, const struct status_query *query, json_t *into);

/* Creates a status.  'program' is a static text.  'config_path' is a path like "/etc/cbf/NAME.yaml", and NAME is the
 * name of the engine.  If 'config_path' is NULL, the name is 'program'.  'healthy' is the same pointer as for
 * http_open().  Returns 0 or -ENOMEM. */
int status_create(const char *program, const char *config_path, const struct gauge *healthy, struct status **status);

/* NULL is accepted. */
void status_destroy(struct status *status);

/* Sets the state, which is STATUS_STARTING at first.  While the state is STATUS_STARTING, the HTTP thread does not read
 * the registry, although the HTTP server already runs.  So if the pipeline cannot be created, the main thread can free
 * the pipeline's metrics. */
void status_set_state(struct status *status, enum status_state state);
enum status_state status_state(const struct status *status);

/* Set the device and the source of the pipeline's data.  NULL removes the device or source.  After the call the HTTP
 * thread does not use the previous device or source any more.  The device and 'arg' must exist until they are replaced
 * or removed. */
void status_set_device(struct status *status, const struct device *device);
void status_set_source(struct status *status, status_describe describe, void *arg);
/* [main] Reads the metrics each second until status_unwatch(), for the "troubles" in /status.json (history.h). */
void status_watch(struct status *status, struct ev_loop *loop);
void status_unwatch(struct status *status);
/* Sets the sensors to show.  All sensors must have been added.  The HTTP thread shows only sensors that any thread may
 * read: neither aggregates, nor texts that the main thread sets. */
void status_set_sensors(struct status *status, const struct sensors *sensors);

/* Returns the text of /status.json, which the caller frees, or NULL if memory runs out. */
char *status_format(struct status *status, const struct status_query *query);

/* Returns 'value' as a JSON number, or null if 'value' is not finite.  The caller owns the result. */
json_t *status_number(double value);

/* Returns an array of the endpoints as texts "a.b.c.d:port". */
json_t *status_endpoints(const struct endpoint_list *list);

#endif
