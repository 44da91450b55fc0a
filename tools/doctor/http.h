/* http.h - reads /metrics and /status.json of a running daemon.
 *
 * Blocking: 2 s at most.  A host that does not answer a request for a connection is not asked again. */
#ifndef TOOLS_DOCTOR_HTTP_H
#define TOOLS_DOCTOR_HTTP_H

#include "common/net/endpoint.h"

#include <jansson.h>

/* Returns /metrics as text.  The caller calls free().  Returns NULL if no daemon answers. */
char *doctor_metrics_get(const struct endpoint *listen);

/* Returns /status.json.  The caller calls json_decref().  Returns NULL if no daemon answers, or if the answer is not
 * JSON. */
json_t *doctor_status_get(const struct endpoint *listen);

/* Returns the sum of a metric over all label sets that contain 'labels', for example "reason=\"no_chunk\"".  If
 * 'labels' is NULL, sums over all label sets.  Returns 0 if there is no sample. */
double doctor_metrics_sum(const char *page, const char *name, const char *labels);

/* Calls 'each' for every sample in the text of /metrics.  Passes the labels without braces, or "" if the sample has
 * no labels. */
void doctor_metrics_each(const char *page, void (*each)(void *arg, const char *name, const char *labels, double value),
                         void *arg);

#endif
