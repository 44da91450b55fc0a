/* internal.h - what the parts of the KATCP server know of each other.  All of it is main's.
 *
 * A client that is dropped stays in the list, without its socket, until nothing is under way for it: the end of the
 * loop's callback, and the answer to its request. */
#ifndef COMMON_KATCP_INTERNAL_H
#define COMMON_KATCP_INTERNAL_H

#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/katcp/message.h"
#include "common/katcp/server.h"
#include "common/telemetry/sensor.h"

#include "common/base/units.h"

#include <ev.h>

#define KATCP_READ_BYTES       (64u << 10)  /* at once, of a client */
#define KATCP_SEND_BYTES       (256u << 10) /* bytes sent to a client in a turn */
#define KATCP_SHORT_LINE_BYTES (64u << 10)  /* of requests that are not marked as long */
#define KATCP_MAX_UNSENT_BYTES (32u << 20)
#define KATCP_TOTAL_BYTES      (256u << 20) /* of all clients, read and unsent */
#define KATCP_ENOUGH_BYTES     (256u << 10) /* with so much unsent, no further request is read */
#define KATCP_STALLED_NS       (30 * NS_PER_S)
#define KATCP_LINE_NS          (30 * NS_PER_S) /* from a line's first byte to its end */
#define KATCP_LOOK_S           0.01
#define KATCP_MAX_OF_HOST      16 /* connections of a host to a listener; loopback has no such bound */
#define KATCP_RESERVE          4  /* places of each listener, for hosts that have none */

/* Steps are what the main thread does for clients, some nanoseconds each at most: a step of an expression, a byte that
 * comes or goes, a quarter of a request's byte.  A turn of the loop has KATCP_TURN_STEPS for all clients together, and
 * KATCP_SLICE_STEPS for one client before it is another's turn; the look at the sensors has its own.  The last thing
 * that was begun may go beyond: a line of a request, a sensor's reading. */
#define KATCP_TURN_STEPS   (1 << 20)
#define KATCP_SLICE_STEPS  (KATCP_TURN_STEPS / 8)
#define KATCP_LOOK_STEPS   (KATCP_TURN_STEPS / 2)
#define KATCP_LINE_STEPS   2000 /* of a line, whatever is in it */
#define KATCP_INFORM_STEPS 500  /* of a line that is told */
#define KATCP_SENSOR_STEPS 100  /* of a sensor that is looked at */

/* Why connections end that the client has not ended: katcp_refusals[]. */
enum katcp_refusal {
    KATCP_SERVED, /* they need not */
    KATCP_NOT_ALLOWED,
    KATCP_TOO_MANY,
    KATCP_TOO_MANY_OF_HOST,
    KATCP_RESERVED,
    KATCP_NO_KATCP,
    KATCP_UNFINISHED,
    KATCP_UNREAD,
    KATCP_STALLED,
    KATCP_TOO_MUCH,
    KATCP_NO_MEMORY,
    KATCP_N_REFUSALS
};

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
    /* An answer that takes several turns: katcp_call_go_on(); NULL: one turn suffices. */
    void (*resume)(struct katcp_call *call);
    size_t next, n_told; /* the sensor that is next, and how many were told */
    void *memory;        /* a pattern or marks; freed with the call */
    void (*each)(struct katcp_call *call, const struct sensor_entry *entry);
    struct katcp_sampling wanted;
};

struct katcp_client {
    struct katcp_server *server; /* [const] */
    struct katcp_client *next;
    int fd; /* -1: dropped */
    bool read_only;
    struct in_addr host;
    char address[32]; /* "a.b.c.d:port" */
    ev_io reads, writes;
    bool waits; /* for its turn: in the server's queue */
    struct katcp_client *next_waiting;

    struct katcp_text in;
    size_t in_at, in_searched; /* the next line begins at; no end of it before */
    bool has_control;          /* that line has a control character */
    bool speaks_katcp;         /* a request of its was known */
    bool skips;                /* what is left of a line that is too long */
    bool is_readable;          /* as the loop says */
    bool ended;                /* it will send no more */
    int64_t line_ns;           /* when the line began that has no end yet; 0: there is none */

    struct katcp_text out;
    size_t out_at;      /* sent so far */
    size_t answers_end; /* where the last answer to a request ends in 'out' */
    int64_t moved_ns;   /* when it last took something, or had nothing to take */
    size_t n_bytes;     /* that the server counts for it */

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
    struct access access;              /* [const] */
    size_t max_clients;                /* [const] of each listener */
    bool halt_stays;                   /* [const] */
    size_t names_bytes;                /* [const] all sensors' names with commas: a long ?sensor-sampling */
    struct katcp_listener listeners[2];
    struct katcp_client *clients;
    struct katcp_client *first_waiting, **end_waiting; /* for their turn */
    size_t n_bytes;                                    /* of all clients */
    int64_t steps_left;                                /* of this turn; below 0 by what was begun before */
    int64_t slice_end;                                 /* of 'steps_left': here the client whose turn it is stops */
    unsigned turn;                                     /* of the loop, to which these belong */
    const struct katcp_client *served;                 /* just now; NULL: none */
    ev_timer again;                                    /* at once: clients have more to do, or are to be forgotten */
    ev_timer look;                                     /* at the sensors, while any is sampled */
    ev_timer housekeeping;                             /* each second */
    size_t n_samplings;
    size_t look_next;       /* the sensor that the look goes on with; SIZE_MAX: it is over */
    char *read_buffer;      /* [KATCP_READ_BYTES] */
    struct katcp_text line; /* that is being made */
    ev_async logged;        /* katcp/log.c: messages have come */
    ev_timer log_pause;     /* until they are told */
    size_t log_level;
};

/* ---- katcp/client.c: bytes in and out ---------------------------------------------------------------------------- */

/* Begins to serve a connection; takes over 'fd'.  Returns 0 or -ENOMEM. */
int katcp_client_open(struct katcp_server *server, int fd, const struct endpoint *peer, bool read_only);

/* Ends the connection at once, without a word. */
void katcp_client_drop(struct katcp_client *client);

/* Tells the client why, as far as the socket takes it, counts it, logs it, and drops the client. */
void katcp_client_refuse(struct katcp_client *client, enum katcp_refusal why);

/* Drops those that stall or leave a line unfinished. */
void katcp_clients_check(struct katcp_server *server);

/* Frees those that are dropped and have no call. */
void katcp_clients_tidy(struct katcp_server *server);

/* The client may have something to do: it waits for its turn. */
void katcp_client_wake(struct katcp_client *client);

/* Serves those that wait, each for a slice, while there are steps left. */
void katcp_clients_serve(struct katcp_server *server);

/* Whether the answer of a call may go on in this turn. */
bool katcp_call_may_resume(const struct katcp_call *call);

/* Sends a part of an answer.  It is the client's own fault how much it is. */
void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line);

/* Sends what the client did not ask for just now.  Returns false if it cannot take it: while a long answer is on its
 * way, or it is dropped. */
bool katcp_client_inform(struct katcp_client *client, const struct katcp_text *line);

/* Writes what the socket takes at once. */
void katcp_client_flush(struct katcp_client *client);

/* ---- katcp/server.c ---------------------------------------------------------------------------------------------- */

/* Counters, texts and log limits of refusals. */
extern const char *const katcp_refusal_sentences[KATCP_N_REFUSALS];
void katcp_count_refusal(enum katcp_refusal why, const char *address);

/* Lets the loop serve those that wait, and tidy, at once. */
void katcp_server_resume(struct katcp_server *server);

/* How many steps there are left in this turn of the loop. */
int64_t katcp_steps_left(struct katcp_server *server);

static inline void katcp_count_steps(struct katcp_server *server, size_t n)
{
    server->steps_left -= (int64_t)n;
}

/* ---- katcp/call.c ------------------------------------------------------------------------------------------------ */

/* A request or something that should be one, in client->call; returns when its handler does. */
void katcp_call_begin(struct katcp_client *client);

static inline struct katcp_client *katcp_call_client(const struct katcp_call *call)
{
    return CONTAINER_OF(call, struct katcp_client, call);
}

/* "#log error ..." to this client: what it sent is no message. */
void katcp_log_protocol_error(struct katcp_client *client, const char *what);

/* !name invalid SENTENCE. */
void katcp_invalid(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* !name ok COUNT, after COUNT informs. */
void katcp_ok_count(struct katcp_call *call, size_t n);

const struct katcp_request *katcp_find_request(const struct katcp_server *server, const char *name);

/* ---- katcp/standard.c -------------------------------------------------------------------------------------------- */

/* In the order of their names; their handlers' argument is the server. */
extern const struct katcp_request katcp_standard_requests[];
extern const size_t katcp_n_standard_requests;

/* The three of #version-connect and #version-list. */
#define KATCP_N_VERSIONS 3
void katcp_version(const struct katcp_server *server, size_t i, const char *version[3]);

/* ---- katcp/sampling.c -------------------------------------------------------------------------------------------- */

void katcp_sensor_sampling(struct katcp_call *call, void *server);
void katcp_sensor_sampling_clear(struct katcp_call *call, void *server);

/* Ends all samplings of a client. */
void katcp_sampling_end(struct katcp_client *client);

/* Sends what is due to all, from 'look_next' on, as far as it goes in this turn. */
void katcp_sampling_poll(struct katcp_server *server);

/* "#sensor-status TIME 1 NAME STATUS VALUE" or, as the answer to ?sensor-value, with another name and a message id. */
void katcp_sensor_line(struct katcp_text *line, const char *name, int32_t mid, const struct sensor_entry *entry,
                       const struct sensor_reading *reading);

/* ---- katcp/log.c ------------------------------------------------------------------------------------------------- */

/* The line of an inform #log, in the server's own text. */
const struct katcp_text *katcp_log_line(struct katcp_server *server, const char *level, int64_t unix_ns,
                                        const char *name, const char *message);

void katcp_log_open(struct katcp_server *server);
void katcp_log_close(struct katcp_server *server);
void katcp_log_level(struct katcp_call *call, void *server);

#endif
