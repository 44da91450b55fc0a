/* http.h - reads /metrics and /status.json of a running daemon.
 *
 * Blocking: 2 s at most. */
#ifndef TOOLS_DOCTOR_HTTP_H
#define TOOLS_DOCTOR_HTTP_H

#include "common/net/endpoint.h"

#include <jansson.h>

/* Returns the page as text; the caller calls free().  NULL: nobody answers. */
char *doctor_metrics_get(const struct endpoint *listen);

/* Returns /status.json; the caller calls json_decref().  NULL: nobody answers, or the answer is no JSON. */
json_t *doctor_status_get(const struct endpoint *listen);

/* Returns the sum of a metric over all label sets that contain 'labels' ("reason=\"no_chunk\""; NULL: all).  Returns 0
 * if there is no sample. */
double doctor_metrics_sum(const char *page, const char *name, const char *labels);

/* Calls 'each' for every sample of the page.  The labels have no braces ("" if there are no labels). */
void doctor_metrics_each(const char *page, void (*each)(void *arg, const char *name, const char *labels, double value),
                         void *arg);

#endif
