/* http.h - GET over libmicrohttpd, on a thread of its own: /metrics, /healthz, and of the daemons /status.json and the
 * page that shows it.  http/clients.h says for how long a connection lasts, http/names.h which names are served. */
#ifndef COMMON_HTTP_HTTP_H
#define COMMON_HTTP_HTTP_H

#include "common/base/counter.h"
#include "common/http/keys.h"

#include <stddef.h>

struct http;
struct status;

/* Serves on config->listen (port 0: any free port), to clients of config->allow's networks; others are cut off at
 * once.  A request whose Host: is neither an address, nor a name of this host, nor one of config->names is answered
 * with 421.  /healthz is 200 while 'healthy' is not 0, else 503; NULL: always 200.  'status' NULL: no page.  Returns 0 or
 * negative errno with one sentence in 'why'. */
int http_open(const struct config_http *config, const struct gauge *healthy, struct status *status, struct http **http,
              char *why, size_t why_bytes);

/* The port that it listens on. */
unsigned http_port(const struct http *http);

/* Closes; NULL is accepted. */
void http_close(struct http *http);

#endif
