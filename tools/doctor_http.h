/* doctor_http.h - what a running daemon says at /metrics.
 *
 * Blocking: 2 s at most. */
#ifndef TOOLS_DOCTOR_HTTP_H
#define TOOLS_DOCTOR_HTTP_H

#include "common/endpoint.h"

#include <stdbool.h>
#include <stddef.h>

/* The page as text, to free(); NULL if nobody answers (*taken: but somebody listens there; may be NULL). */
char *metrics_get(const struct endpoint *listen, bool *taken);

/* The sum of a metric over all label sets that contain 'labels' ("reason=\"no_chunk\""; NULL: all); 0 without any. */
double metrics_sum(const char *page, const char *name, const char *labels);

/* Calls 'each' for every sample of the page, with its labels without braces ("" if none). */
void metrics_each(const char *page, void (*each)(void *arg, const char *name, const char *labels, double value),
                  void *arg);

#endif
