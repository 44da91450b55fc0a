/* http.h - serves GET requests with libmicrohttpd on a separate thread: /metrics, /healthz and, in daemons,
 * /status.json and its page.  Two other headers limit the time of connections (http/clients.h) and check the names in
 * requests (http/names.h). */
#ifndef COMMON_HTTP_HTTP_H
#define COMMON_HTTP_HTTP_H

#include "common/base/counter.h"
#include "common/http/keys.h"

#include <stddef.h>

struct http;
struct status;

/* Serves on config->listen (port 0: any free port) to clients in config->allow's networks.  Other clients are cut off
 * at once.  A request is answered with 421 if its Host: is neither an address, nor a name of this host, nor one of
 * config->names.  /healthz is 200 while 'healthy' is not 0, else 503; NULL: always 200.  'status' NULL: no page.
 * Returns 0 or negative errno with one sentence in 'why'. */
int http_open(const struct config_http *config, const struct gauge *healthy, struct status *status, struct http **http,
              char *why, size_t why_bytes);

/* Returns the port of the listener. */
unsigned http_port(const struct http *http);

/* Closes the server.  NULL is accepted. */
void http_close(struct http *http);

#endif
