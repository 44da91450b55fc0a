/* internal.h - types and functions shared by the files of the KATCP server.  Only the main thread uses them.
 *
 * A dropped client stays in the list, without its socket, until nothing uses the client any more.  By then the loop's
 * callback has ended, and the client's request is answered. */
#ifndef COMMON_KATCP_INTERNAL_H
#define COMMON_KATCP_INTERNAL_H

#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/katcp/message.h"
#include "common/katcp/server.h"
#include "common/telemetry/sensor.h"

#include "common/base/units.h"

#include <ev.h>

#define KATCP_READ_BYTES       (64u << 10)  /* bytes read from a client at a time */
#define KATCP_SEND_BYTES       (256u << 10) /* bytes sent to a client in one turn of the loop */
#define KATCP_SHORT_LINE_BYTES (64u << 10)  /* longest line of requests without has_long_lines */
#define KATCP_MAX_UNSENT_BYTES (32u << 20)
#define KATCP_TOTAL_BYTES      (256u << 20) /* read and unsent bytes of all clients */
#define KATCP_ENOUGH_BYTES     (256u << 10) /* with more unsent bytes, no further request is read */
#define KATCP_STALLED_NS       (30 * NS_PER_S)
#define KATCP_LINE_NS          (30 * NS_PER_S) /* longest time from a line's first byte to its end */
#define KATCP_LOOK_S           0.01
#define KATCP_MAX_OF_HOST      16 /* connections of a host to a listener; loopback has no such limit */
#define KATCP_RESERVE          4  /* places of each listener for hosts without a connection */

/* Steps measure the main thread's work for clients, at most some nanoseconds each.  A step is a step of an expression,
 * a byte that is received or sent, or a quarter of a request's byte.  A turn of the loop has KATCP_TURN_STEPS for all
 * clients together, and KATCP_SLICE_STEPS for one client before the next client's turn.  The poll of the sensors has a
 * separate number.  The last operation may exceed these numbers: a line of a request, or a sensor's reading. */
#define KATCP_TURN_STEPS   (1 << 20)
#define KATCP_SLICE_STEPS  (KATCP_TURN_STEPS / 8)
#define KATCP_LOOK_STEPS   (KATCP_TURN_STEPS / 2)
#define KATCP_LINE_STEPS   2000 /* steps of any line */
#define KATCP_INFORM_STEPS 500  /* steps of a sent inform line */
#define KATCP_SENSOR_STEPS 100  /* steps of a polled sensor */

/* Reasons of the server to end a connection: katcp_refusals[]. */
enum katcp_refusal {
    KATCP_SERVED, /* no refusal */
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
    double difference, shortest_s, longest_s; /* longest_s is also the period */
    struct sensor_reading sent;               /* the last reading sent */
    uint64_t sent_text_version;
    uint64_t sent_version;
    int64_t sent_ns; /* monotonic; with a period: the time when it was due */
};

struct katcp_call {
    struct katcp_message message; /* its strings lie in the client's buffer 'in' */
    bool active;
    /* Continues an answer that takes several turns: katcp_call_may_resume().  NULL: one turn suffices. */
    void (*resume)(struct katcp_call *call);
    size_t next, n_told; /* next sensor, and number of sensors sent */
    void *memory;        /* pattern or marks; freed with the call */
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
    bool waits; /* true while the client is in the server's queue */
    struct katcp_client *next_waiting;

    struct katcp_text in;
    size_t in_at, in_searched; /* start of the next line; its end is not before in_searched */
    bool has_control;          /* true if this line has a control character */
    bool speaks_katcp;         /* true after a known request */
    bool skips;                /* true while the rest of a too long line is skipped */
    bool is_readable;          /* true if the loop reported the socket as readable */
    bool ended;                /* true if the client sends no more */
    int64_t line_ns;           /* start of the unfinished line, monotonic; 0: none */

    struct katcp_text out;
    size_t out_at;      /* bytes sent so far */
    size_t answers_end; /* end of the last answer to a request */
    int64_t moved_ns;   /* last time that the client read, or had nothing to read */
    size_t n_bytes;     /* bytes that the server counts for this client */

    struct katcp_call call;
    struct katcp_sampling *samplings; /* [sensors->n]; NULL: no sampling yet */
    size_t n_samplings;               /* samplings other than KATCP_NONE */
};

struct katcp_listener {
    struct katcp_server *server;
    bool read_only;
    int fd; /* -1: no listener */
    unsigned port;
    ev_io accepts;
};

struct katcp_server {
    const struct katcp_device *device; /* [const] */
    struct ev_loop *loop;              /* [const] */
    struct access access;              /* [const] */
    size_t max_clients;                /* [const] limit of each listener */
    bool halt_stays;                   /* [const] */
    size_t names_bytes;                /* [const] all sensors' names with commas: the longest ?sensor-sampling */
    struct katcp_listener listeners[2];
    struct katcp_client *clients;
    struct katcp_client *first_waiting, **end_waiting; /* queue of clients that wait for their turn */
    size_t n_bytes;                                    /* bytes of all clients */
    int64_t steps_left;                                /* steps left in this turn; negative after a long operation */
    int64_t slice_end;                                 /* value of 'steps_left' that ends the client's slice */
    unsigned turn;                                     /* the loop's turn to which the steps belong */
    const struct katcp_client *served;                 /* client that is served now; NULL: none */
    ev_timer again;                                    /* expires at once: there is work, or clients to forget */
    ev_timer look;                                     /* polls the sensors while any is sampled */
    ev_timer housekeeping;                             /* expires each second */
    size_t n_samplings;
    size_t look_next;       /* next sensor of the poll; SIZE_MAX: the poll is over */
    char *read_buffer;      /* [KATCP_READ_BYTES] */
    struct katcp_text line; /* buffer for a line */
    ev_async logged;        /* katcp/log.c: sent when messages have come */
    ev_timer log_pause;     /* pause before messages are sent */
    size_t log_level;
};

/* ---- katcp/client.c: bytes in and out ---------------------------------------------------------------------------- */

/* Begins to serve a connection and takes over 'fd'.  Returns 0 or -ENOMEM. */
int katcp_client_open(struct katcp_server *server, int fd, const struct endpoint *peer, bool read_only);

/* Ends the connection at once, without a message. */
void katcp_client_drop(struct katcp_client *client);

/* Sends the client the reason, as far as the socket accepts it, counts and logs the refusal, and drops the client. */
void katcp_client_refuse(struct katcp_client *client, enum katcp_refusal why);

/* Drops clients that stall or leave a line unfinished. */
void katcp_clients_check(struct katcp_server *server);

/* Frees clients that are dropped and have no call. */
void katcp_clients_tidy(struct katcp_server *server);

/* Puts a client that may have something to do into the queue of waiting clients. */
void katcp_client_wake(struct katcp_client *client);

/* Serves the waiting clients, each for a slice, while steps are left. */
void katcp_clients_serve(struct katcp_server *server);

/* Returns true if the answer of a call may continue in this turn. */
bool katcp_call_may_resume(const struct katcp_call *call);

/* Sends a part of an answer.  The amount is not limited, because the client asked for it. */
void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line);

/* Sends an inform that the client did not just ask for.  Returns false if the client cannot take it: a long answer is
 * being sent, or the client is dropped. */
bool katcp_client_inform(struct katcp_client *client, const struct katcp_text *line);

/* Writes as much as the socket accepts at once. */
void katcp_client_flush(struct katcp_client *client);

/* ---- katcp/server.c ---------------------------------------------------------------------------------------------- */

/* Counters, texts and log limits of refusals. */
extern const char *const katcp_refusal_sentences[KATCP_N_REFUSALS];
void katcp_count_refusal(enum katcp_refusal why, const char *address);

/* Lets the loop serve waiting clients, and tidy up, at once. */
void katcp_server_resume(struct katcp_server *server);

/* Returns the steps that are left in this turn of the loop. */
int64_t katcp_steps_left(struct katcp_server *server);

static inline void katcp_count_steps(struct katcp_server *server, size_t n)
{
    server->steps_left -= (int64_t)n;
}

/* ---- katcp/call.c ------------------------------------------------------------------------------------------------ */

/* Begins the call in client->call, which may be an invalid request.  Returns when its handler returns. */
void katcp_call_begin(struct katcp_client *client);

static inline struct katcp_client *katcp_call_client(const struct katcp_call *call)
{
    return CONTAINER_OF(call, struct katcp_client, call);
}

/* Sends "#log error ..." to this client, because its line is not a message. */
void katcp_log_protocol_error(struct katcp_client *client, const char *what);

/* Answers !name invalid SENTENCE. */
void katcp_invalid(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Answers !name ok COUNT, after COUNT informs. */
void katcp_ok_count(struct katcp_call *call, size_t n);

const struct katcp_request *katcp_find_request(const struct katcp_server *server, const char *name);

/* ---- katcp/standard.c -------------------------------------------------------------------------------------------- */

/* The standard requests, in order of name.  The argument of their handlers is the server. */
extern const struct katcp_request katcp_standard_requests[];
extern const size_t katcp_n_standard_requests;

/* The three versions of #version-connect and #version-list. */
#define KATCP_N_VERSIONS 3
void katcp_version(const struct katcp_server *server, size_t i, const char *version[3]);

/* ---- katcp/sampling.c -------------------------------------------------------------------------------------------- */

void katcp_sensor_sampling(struct katcp_call *call, void *server);
void katcp_sensor_sampling_clear(struct katcp_call *call, void *server);

/* Ends all samplings of a client. */
void katcp_sampling_end(struct katcp_client *client);

/* Sends due readings to all clients, from sensor 'look_next' on, as far as this turn allows. */
void katcp_sampling_poll(struct katcp_server *server);

/* Writes "#sensor-status TIME 1 NAME STATUS VALUE" or, as the answer to ?sensor-value, a line with another name and a
 * message id. */
void katcp_sensor_line(struct katcp_text *line, const char *name, int32_t mid, const struct sensor_entry *entry,
                       const struct sensor_reading *reading);

/* ---- katcp/log.c ------------------------------------------------------------------------------------------------- */

/* Returns the line of an inform #log, in the server's own text. */
const struct katcp_text *katcp_log_line(struct katcp_server *server, const char *level, int64_t unix_ns,
                                        const char *name, const char *message);

void katcp_log_open(struct katcp_server *server);
void katcp_log_close(struct katcp_server *server);
void katcp_log_level(struct katcp_call *call, void *server);

#endif
