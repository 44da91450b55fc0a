/* http.h - serves GET requests on a separate thread with libmicrohttpd: /metrics, /healthz and, in daemons,
 * /status.json and the status page.  http/clients.h limits the connections, and http/names.h checks the names in
 * requests. */
#ifndef COMMON_HTTP_HTTP_H
#define COMMON_HTTP_HTTP_H

#include "common/base/counter.h"
#include "common/http/keys.h"

#include <stddef.h>

struct http;
struct status;

/* Starts a server at config->listen (port 0: any free port) for clients in the networks of config->allow.  The server
 * closes connections from other clients immediately.  It answers a request with 421 if the name in Host: is neither an
 * address, nor a name of this host, nor one of config->names.  /healthz returns 200 while 'healthy' is not 0,
 * otherwise 503.  If 'healthy' is NULL, /healthz always returns 200.  If 'status' is NULL, there is no status page.
 * Returns 0 or negative errno with one sentence in 'why'. */
int http_open(const struct config_http *config, const struct gauge *healthy, struct status *status, struct http **http,
              char *why, size_t why_bytes);

/* Returns the port at which the server listens. */
unsigned http_port(const struct http *http);

/* Closes the server.  NULL is accepted. */
void http_close(struct http *http);

#endif
