/* http.h - what a running daemon says at /metrics and /status.json.
 *
 * Blocking: 2 s at most. */
#ifndef TOOLS_DOCTOR_HTTP_H
#define TOOLS_DOCTOR_HTTP_H

#include "common/net/endpoint.h"

#include <jansson.h>

/* The page as text, to free(); NULL if nobody answers. */
char *doctor_metrics_get(const struct endpoint *listen);

/* /status.json, to json_decref(); NULL if nobody answers, or no JSON. */
json_t *doctor_status_get(const struct endpoint *listen);

/* The sum of a metric over all label sets that contain 'labels' ("reason=\"no_chunk\""; NULL: all); 0 without any. */
double doctor_metrics_sum(const char *page, const char *name, const char *labels);

/* Calls 'each' for every sample of the page, with its labels without braces ("" if none). */
void doctor_metrics_each(const char *page, void (*each)(void *arg, const char *name, const char *labels, double value),
                         void *arg);

#endif
