/* status.h - /status.json: a process's identity and state, and the data that its pipeline adds.
 *
 * Flow:      registry of stats.h, with rates ----------------\
 *            pipeline's source: describe(), spectra included --> one JSON object, made anew for each request
 * Threads:   the main thread creates and sets the status; the HTTP thread reads it.  A lock prevents the removal of a
 *            source while the source answers.  The data path takes no part.
 *
 * From the registry: "inputs" (an object for each antenna and polarisation, or group of F-engines), "antennas",
 * "receivers" (threads), "streams" and, without such labels, "other".  A metric fgpu_input_heaps_total{antenna, pol} is
 * "heaps" of an input.  A counter is {"total": n, "per_s": rate or null}, a gauge is a number.  Other labels, such as
 * "reason", become objects named by their values. */
#ifndef COMMON_HTTP_STATUS_H
#define COMMON_HTTP_STATUS_H

#include <jansson.h>

struct device;
struct endpoint_list;
struct ev_loop;
struct gauge;
struct sensors;
struct status;

enum status_state { STATUS_STARTING, STATUS_RUNNING, STATUS_DRAINING };

/* Parameters of the request's URL; NULL if absent. */
struct status_query {
    const char *stream;
    const char *antenna;  /* antenna's name */
    const char *baseline; /* "0,1" */
    const char *channels; /* "256,511": first and last channel */
};

/* Adds a pipeline's state to the object 'into'. */
typedef void (*status_describe)(void *arg, const struct status_query *query, json_t *into);

/* Creates a status.  'program' is static.  The file at 'config_path', "/etc/cbf/NAME.yaml", names the engine; NULL: no
 * name.  'healthy' as in http_open().  Returns 0 or -ENOMEM. */
int status_create(const char *program, const char *config_path, const struct gauge *healthy, struct status **status);

/* NULL is accepted. */
void status_destroy(struct status *status);

/* Sets the state, at first STATUS_STARTING.  In this state the HTTP thread does not read the registry: metrics of a
 * pipeline that could not be created are freed while HTTP serves. */
void status_set_state(struct status *status, enum status_state state);
enum status_state status_state(const struct status *status);

/* Set the device and the source.  Once the call has returned, the previous one is not used any more.  NULL removes it.
 * The source must outlive its use. */
void status_set_device(struct status *status, const struct device *device);
void status_set_source(struct status *status, status_describe describe, void *arg);
/* [main] Samples the counters each second, for "troubles" (history.h), until status_unwatch(). */
void status_watch(struct status *status, struct ev_loop *loop);
void status_unwatch(struct status *status);
/* Sets the sensors, once all have been added.  Only sensors that any thread may read are shown: no texts of the main
 * thread, no aggregates. */
void status_set_sensors(struct status *status, const struct sensors *sensors);

/* Returns the JSON text, which the caller frees; NULL if out of memory. */
char *status_format(struct status *status, const struct status_query *query);

/* Returns a number, or null if 'value' is no number.  The caller owns the result. */
json_t *status_number(double value);

/* Returns the endpoints as texts "a.b.c.d:port". */
json_t *status_endpoints(const struct endpoint_list *list);

#endif
