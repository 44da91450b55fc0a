/* status.h - /status.json: what a process is, how it fares, and what its pipeline adds.
 *
 * Flow:      registry of stats.h, with rates ----------------\
 *            pipeline's source: describe(), spectra included --> one JSON object, made anew for each request
 * Threads:   created and set by main; read by HTTP's thread.  A lock keeps a source's answer and its removal apart; the
 *            data path has no part in it.
 *
 * From the registry: "inputs" (an object for each antenna and polarisation, or group of F-engines), "antennas",
 * "receivers" (threads), "streams" and, without labels of that kind, "other".  A metric fgpu_input_heaps_total{antenna,
 * pol} is "heaps" of an input; a counter is {"total": n, "per_s": rate or null}, a gauge a number.  Other labels, such as
 * "reason", become objects by their values. */
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
    const char *antenna;  /* by name */
    const char *baseline; /* "0,1" */
    const char *channels; /* "256,511": the first and the last to show */
};

/* Adds a pipeline's state to the object 'into'. */
typedef void (*status_describe)(void *arg, const struct status_query *query, json_t *into);

/* 'program' is static; the file at 'config_path', "/etc/cbf/NAME.yaml", names the engine, and NULL does not; 'healthy' as
 * of http_open().  Returns 0 or -ENOMEM. */
int status_create(const char *program, const char *config_path, const struct gauge *healthy, struct status **status);

/* NULL is accepted. */
void status_destroy(struct status *status);

/* While it is STATUS_STARTING, as at first, nobody reads the registry: what a pipeline that cannot be made has registered
 * is freed while HTTP serves. */
void status_set_state(struct status *status, enum status_state state);
enum status_state status_state(const struct status *status);

/* Neither is asked any more once the call that sets another, or NULL, has returned.  The source outlives that. */
void status_set_device(struct status *status, const struct device *device);
void status_set_source(struct status *status, status_describe describe, void *arg);
/* [main] Looks at the counters each second from then on, for "troubles" (history.h), until it is unwatched. */
void status_watch(struct status *status, struct ev_loop *loop);
void status_unwatch(struct status *status);
/* All have been added.  Shown are those that may be read from any thread: no texts of main's, no aggregates. */
void status_set_sensors(struct status *status, const struct sensors *sensors);

/* The JSON text, which the caller frees; NULL if out of memory. */
char *status_format(struct status *status, const struct status_query *query);

/* A number, or null where it is none.  To be given away. */
json_t *status_number(double value);

/* The endpoints as texts "a.b.c.d:port". */
json_t *status_endpoints(const struct endpoint_list *list);

#endif
