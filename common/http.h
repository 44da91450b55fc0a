/* http.h - GET /metrics and /healthz over libmicrohttpd, on a thread of its own. */
#ifndef COMMON_HTTP_H
#define COMMON_HTTP_H

#include "common/endpoint.h"
#include "common/stats.h"

#include <stddef.h>

struct http;

/* Serves on 'listen' (port 0: any free port).  /healthz is 200 while 'healthy' is not 0, else 503; NULL: always 200.
 * Returns 0 or negative errno with one sentence in 'why'. */
int http_open(const struct endpoint *listen, const struct gauge *healthy, struct http **http, char *why,
              size_t why_bytes);

/* The port that it listens on. */
unsigned http_port(const struct http *http);

/* Closes; NULL is accepted. */
void http_close(struct http *http);

#endif
