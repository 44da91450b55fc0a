/* clients.h - the connections of HTTP: the time that each may last, and the choice of one that makes room for another.
 *
 * Flow:      accepted -> http_clients_add() -> request complete: http_client_answering() -> http_client_remove().
 *            http_clients_close_late() now and then.
 * Deadlines: the request's header must be complete HTTP_REQUEST_NS after the connection began.  The client must have
 *            read the answer HTTP_ANSWER_NS later.  Single bytes extend neither time.
 * Room:      if HTTP_CLIENTS_MAX are open, a new connection takes the place of another.  The host with the most
 *            connections gives up the one with the next deadline.  So a newcomer is always served, and no number of
 *            connections from few addresses keeps another host out.  127.0.0.0/8 is one host.
 * Closing:   the socket is shut down here.  Its owner then reads the end of the stream, closes the socket, and removes
 *            the connection.
 * Threads:   the HTTP thread.   Blocking and allocation: none. */
#ifndef COMMON_HTTP_CLIENTS_H
#define COMMON_HTTP_CLIENTS_H

#include "common/base/units.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define HTTP_CLIENTS_MAX 64
#define HTTP_REQUEST_NS  (10 * NS_PER_S)
#define HTTP_ANSWER_NS   (60 * NS_PER_S)

/* As many connections again may be shut down but not removed yet. */
#define HTTP_CLIENTS_SLOTS (2 * HTTP_CLIENTS_MAX)

struct http_client {
    bool used, closing; /* closing: shut down; no longer counted */
    struct in_addr host;
    int fd;
    int64_t deadline_ns; /* monotonic */
};

struct http_clients {
    struct http_client slots[HTTP_CLIENTS_SLOTS];
};

/* Adds a connection.  Another connection may be shut down for it.  There must be a free slot. */
struct http_client *http_clients_add(struct http_clients *clients, struct in_addr address, int fd, int64_t now_ns);

void http_client_answering(struct http_client *client, int64_t now_ns);
void http_client_remove(struct http_client *client);

/* Shuts down the connections whose deadline has passed. */
void http_clients_close_late(struct http_clients *clients, int64_t now_ns);

#endif
