/* clients.h - limits HTTP connections: the duration of each connection, and the number of connections.
 *
 * Flow:      accepted -> http_clients_add() -> request complete: http_client_answering() -> http_client_remove().
 *            The HTTP thread calls http_clients_close_late() periodically.
 * Deadlines: the request's header must be complete HTTP_REQUEST_NS after the connection began.  The client must have
 *            read the answer HTTP_ANSWER_NS after the header was complete.  The arrival of single bytes does not extend
 *            these times.
 * Room:      if HTTP_CLIENTS_MAX connections are open, a new connection replaces an old one.  The replaced connection
 *            belongs to the host with the most connections, and has the earliest deadline of that host's connections.
 *            So every new connection is served, and connections from a few hosts cannot exclude other hosts.
 *            127.0.0.0/8 counts as one host.
 * Closing:   these functions only shut down the socket.  libmicrohttpd then reads the end of the stream and closes the
 *            socket, and the HTTP thread removes the connection.
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

/* Half of the slots are for connections that are shut down but not yet removed. */
#define HTTP_CLIENTS_SLOTS (2 * HTTP_CLIENTS_MAX)

struct http_client {
    bool used, closing; /* closing: the connection is shut down and no longer counted */
    struct in_addr host;
    int fd;
    int64_t deadline_ns; /* monotonic */
};

struct http_clients {
    struct http_client slots[HTTP_CLIENTS_SLOTS];
};

/* Adds a connection.  Shuts down another connection if too many are open.  There must be a free slot. */
struct http_client *http_clients_add(struct http_clients *clients, struct in_addr address, int fd, int64_t now_ns);

void http_client_answering(struct http_client *client, int64_t now_ns);
void http_client_remove(struct http_client *client);

/* Shuts down the connections whose deadline has passed. */
void http_clients_close_late(struct http_clients *clients, int64_t now_ns);

#endif
