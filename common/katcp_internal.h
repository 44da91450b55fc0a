/* katcp_internal.h - what the parts of the KATCP server know of each other.  All of it is main's.
 *
 * A client that is dropped stays in the list, without its socket, until nothing is under way for it: the end of the
 * loop's callback, and the answer to its request. */
#ifndef COMMON_KATCP_INTERNAL_H
#define COMMON_KATCP_INTERNAL_H

#include "common/katcp_access.h"
#include "common/katcp_message.h"
#include "common/katcp_server.h"
#include "common/sensor.h"

#include "common/units.h"

#include <ev.h>

#define KATCP_READ_BYTES        (256u << 10)
#define KATCP_MAX_UNSENT_BYTES  (32u << 20)
#define KATCP_ENOUGH_BYTES      (256u << 10) /* with so much unsent, no further request is read */
#define KATCP_LINES_AT_ONCE     64           /* of a client, before it is the others' turn */
#define KATCP_STALLED_NS        (30 * NS_PER_S)
#define KATCP_LOOK_S            0.01
#define KATCP_MAX_PATTERN_BYTES 256

enum katcp_strategy {
    KATCP_NONE,
    KATCP_AUTO,
    KATCP_PERIOD,
    KATCP_EVENT,
    KATCP_DIFFERENTIAL,
    KATCP_EVENT_RATE,
    KATCP_DIFFERENTIAL_RATE
};

/* How a client samples one sensor. */
struct katcp_sampling {
    enum katcp_strategy strategy;
    double difference, shortest_s, longest_s; /* longest: also the period */
    struct sensor_reading sent;               /* the last that went out */
    uint64_t sent_text_version;
    uint64_t sent_version;
    int64_t sent_ns; /* monotonic; of a period: when it was due */
};

struct katcp_call {
    struct katcp_message message; /* its strings lie in the client's 'in' */
    bool active;
};

struct katcp_client {
    struct katcp_server *server; /* [const] */
    struct katcp_client *next;
    int fd; /* -1: dropped */
    bool read_only;
    char address[32]; /* "a.b.c.d:port" */
    ev_io reads, writes;

    struct katcp_text in;
    size_t in_at, in_searched; /* the next line begins at; no end of it before */
    bool skips;                /* what is left of a line that is too long */
    bool ended;                /* it will send no more */

    struct katcp_text out;
    size_t out_at;      /* sent so far */
    size_t answers_end; /* where the last answer to a request ends in 'out' */
    int64_t moved_ns;   /* when it last took something, or had nothing to take */

    struct katcp_call call;
    struct katcp_sampling *samplings; /* [sensors->n]; NULL: none yet */
    size_t n_samplings;               /* that are not KATCP_NONE */
};

struct katcp_listener {
    struct katcp_server *server;
    bool read_only;
    int fd; /* -1: none */
    unsigned port;
    ev_io accepts;
};

struct katcp_server {
    const struct katcp_device *device; /* [const] */
    struct ev_loop *loop;              /* [const] */
    struct katcp_access access;        /* [const] */
    size_t max_clients;                /* [const] */
    struct katcp_listener listeners[2];
    struct katcp_client *clients;
    size_t n_clients;
    ev_timer again;        /* at once: clients have more to do, or are to be forgotten */
    ev_timer look;         /* at the sensors, while any is sampled */
    ev_timer housekeeping; /* each second */
    size_t n_samplings;
    char *read_buffer;      /* [KATCP_READ_BYTES] */
    struct katcp_text line; /* that is being made */
    ev_async logged;        /* katcp_log.c: messages have come */
    ev_timer log_pause;     /* until they are told */
    size_t log_level;
};

/* ---- katcp_client.c: bytes in and out ---------------------------------------------------------------------------- */

/* Begins to serve a connection; takes over 'fd'.  Returns 0 or -ENOMEM. */
int katcp_client_open(struct katcp_server *server, int fd, const char *address, bool read_only);

/* Ends the connection at once; the log says why unless NULL. */
void katcp_client_drop(struct katcp_client *client, const char *why);

/* Drops those that stall, and frees those that are dropped and have no call. */
void katcp_clients_tidy(struct katcp_server *server);

/* Handles lines that have come; asks for another turn if some are left. */
void katcp_client_go_on(struct katcp_client *client);

/* Lets the loop call katcp_client_go_on() for all, and tidy. */
void katcp_server_go_on(struct katcp_server *server);

/* Sends a part of an answer.  It is the client's own fault how much it is. */
void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line);

/* Sends what the client did not ask for just now.  Returns false if it cannot take it: while a long answer is on its
 * way, or it is dropped. */
bool katcp_client_tell(struct katcp_client *client, const struct katcp_text *line);

/* Writes what the socket takes at once. */
void katcp_client_flush(struct katcp_client *client);

/* ---- katcp_call.c ------------------------------------------------------------------------------------------------ */

/* A request or something that should be one, in client->call; returns when its handler does. */
void katcp_call_begin(struct katcp_client *client);

static inline struct katcp_client *katcp_call_client(const struct katcp_call *call)
{
    return CONTAINER_OF(call, struct katcp_client, call);
}

/* "#log error ..." to this client: what it sent is no message. */
void katcp_complain(struct katcp_client *client, const char *what);

/* !name invalid SENTENCE. */
void katcp_invalid(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* !name ok COUNT, after so many informs. */
void katcp_ok_count(struct katcp_call *call, size_t n);

const struct katcp_request *katcp_find_request(const struct katcp_server *server, const char *name);

/* ---- katcp_standard.c -------------------------------------------------------------------------------------------- */

/* In the order of their names; their handlers' argument is the server. */
extern const struct katcp_request katcp_standard_requests[];
extern const size_t katcp_n_standard_requests;

/* The three of #version-connect and #version-list. */
#define KATCP_N_VERSIONS 3
void katcp_version(const struct katcp_server *server, size_t i, const char *version[3]);

/* ---- katcp_sampling.c -------------------------------------------------------------------------------------------- */

void katcp_sensor_sampling(struct katcp_call *call, void *server);
void katcp_sensor_sampling_clear(struct katcp_call *call, void *server);

/* Ends all samplings of a client. */
void katcp_sampling_end(struct katcp_client *client);

/* Sends what is due to all. */
void katcp_sampling_look(struct katcp_server *server);

/* "#sensor-status TIME 1 NAME STATUS VALUE" or, as the answer to ?sensor-value, with another name and a message id. */
void katcp_sensor_line(struct katcp_text *line, const char *name, int32_t mid, const struct sensor_entry *entry,
                       const struct sensor_reading *reading);

/* ---- katcp_log.c ------------------------------------------------------------------------------------------------- */

void katcp_log_open(struct katcp_server *server);
void katcp_log_close(struct katcp_server *server);
void katcp_log_level(struct katcp_call *call, void *server);

#endif
