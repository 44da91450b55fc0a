/* internal.h - types and functions shared by the files of the KATCP server.  Only the main thread uses them.
 *
 * A dropped client has no socket, but stays in the list of clients while a callback of the event loop uses it, or while
 * its request is not yet answered. */
#ifndef COMMON_KATCP_INTERNAL_H
#define COMMON_KATCP_INTERNAL_H

#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/katcp/message.h"
#include "common/katcp/server.h"
#include "common/telemetry/sensor.h"

#include "common/base/units.h"

#include <ev.h>

#define KATCP_READ_BYTES       (64u << 10)  /* largest number of bytes that one recv() reads */
#define KATCP_SEND_BYTES       (256u << 10) /* largest number of bytes sent to a client in one slice */
#define KATCP_SHORT_LINE_BYTES (64u << 10)  /* longest line of a request without has_long_lines */
#define KATCP_MAX_UNSENT_BYTES (32u << 20)
#define KATCP_TOTAL_BYTES      (256u << 20) /* limit on the total size of all clients' buffers */
#define KATCP_ENOUGH_BYTES     (256u << 10) /* number of unsent bytes above which no further request is handled */
#define KATCP_STALLED_NS       (30 * NS_PER_S)
#define KATCP_LINE_NS          (30 * NS_PER_S) /* longest time from a line's first byte to its end */
#define KATCP_LOOK_S           0.01
#define KATCP_MAX_OF_HOST      16 /* largest number of connections from one host to a listener; no limit for loopback */
#define KATCP_RESERVE          4  /* a listener keeps up to this number of connections free for hosts that have none */

/* Steps measure the main thread's work for clients.  A step takes at most a few nanoseconds.  An instruction of a
 * regular expression and a received or sent byte cost one step each.  A byte of a request costs four steps.  A turn of
 * the event loop has KATCP_TURN_STEPS for all clients together.  One client may use KATCP_SLICE_STEPS before the next
 * client is served.  The poll of the sensors has a separate limit, KATCP_LOOK_STEPS.  The last operation (a line of a
 * request, or a sensor's reading) may exceed these limits. */
#define KATCP_TURN_STEPS   (1 << 20)
#define KATCP_SLICE_STEPS  (KATCP_TURN_STEPS / 8)
#define KATCP_LOOK_STEPS   (KATCP_TURN_STEPS / 2)
#define KATCP_LINE_STEPS   2000 /* steps that each received line costs, in addition to its bytes */
#define KATCP_INFORM_STEPS 500  /* steps that each sent line costs, in addition to its bytes */
#define KATCP_SENSOR_STEPS 100  /* steps that the poll of one sensor costs */

/* Reasons for which the server refuses or ends a connection (texts: katcp_refusal_sentences[]). */
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

/* A client's sampling of one sensor. */
struct katcp_sampling {
    enum katcp_strategy strategy;
    double difference, shortest_s, longest_s; /* longest_s is the period if the strategy is KATCP_PERIOD */
    struct sensor_reading sent;               /* the last reading sent */
    uint64_t sent_text_version;
    uint64_t sent_version;
    /* monotonic time of the last reading sent; with KATCP_PERIOD: the time when that reading was due */
    int64_t sent_ns;
};

struct katcp_call {
    struct katcp_message message; /* message whose strings are in the client's buffer 'in' */
    bool active;
    /* Continues an answer that takes several turns of the event loop, while katcp_call_may_resume() returns true.
     * NULL: the handler sends the whole answer. */
    void (*resume)(struct katcp_call *call);
    size_t next, n_told; /* next: index of the next sensor; n_told: number of sensors sent */
    void *memory;        /* struct name_pattern, or array of marked sensors; freed with the call */
    void (*each)(struct katcp_call *call, const struct sensor_entry *entry);
    struct katcp_sampling wanted;
};

struct katcp_client {
    struct katcp_server *server; /* [const] */
    struct katcp_client *next;
    int fd; /* the client's socket; -1: the client is dropped */
    bool read_only;
    struct in_addr host;
    char address[32]; /* "a.b.c.d:port" */
    ev_io reads, writes;
    bool waits; /* true while the client is in the server's queue */
    struct katcp_client *next_waiting;

    struct katcp_text in;
    /* in_at: start of the next line; in_searched: end of the bytes already searched for the line's end */
    size_t in_at, in_searched;
    bool has_control;  /* true if the line at in_at has a control character */
    bool speaks_katcp; /* true if the client has sent a known request */
    bool skips;        /* true while the rest of a line that is too long is discarded */
    bool is_readable;  /* true if the event loop has reported that the socket is readable */
    bool ended;        /* true if the client has closed its side of the connection */
    int64_t line_ns;   /* monotonic time when the unfinished line began; 0: no unfinished line */

    struct katcp_text out;
    size_t out_at;      /* number of bytes of 'out' that have been sent */
    size_t answers_end; /* offset in 'out' at which the last answer to a request ends */
    int64_t moved_ns;   /* monotonic time when the client last read bytes, or when 'out' was last empty */
    size_t n_bytes;     /* number of this client's bytes that server->n_bytes includes */

    struct katcp_call call;
    struct katcp_sampling *samplings; /* [sensors->n] a sampling for each sensor; NULL: no sampling yet */
    size_t n_samplings;               /* number of samplings other than KATCP_NONE */
};

struct katcp_listener {
    struct katcp_server *server;
    bool read_only;
    int fd; /* the listening socket; -1: no listener */
    unsigned port;
    ev_io accepts;
};

struct katcp_server {
    const struct katcp_device *device; /* [const] */
    struct ev_loop *loop;              /* [const] */
    struct access access;              /* [const] */
    size_t max_clients;                /* [const] largest number of clients of each listener */
    bool halt_stays;                   /* [const] */
    /* [const] length of all sensors' names with commas, for the longest ?sensor-sampling */
    size_t names_bytes;
    struct katcp_listener listeners[2];
    struct katcp_client *clients;
    struct katcp_client *first_waiting, **end_waiting; /* queue of clients that wait for their turn */
    size_t n_bytes;                                    /* total number of bytes in the buffers of all clients */
    int64_t steps_left;                                /* steps left in this turn; negative after a long operation */
    int64_t slice_end;                                 /* value of 'steps_left' at which the client's slice ends */
    unsigned turn;                                     /* turn of the event loop in which steps_left was set */
    const struct katcp_client *served;                 /* client that is served now; NULL: none */
    /* expires immediately; the program starts this timer if clients have more work, or if a dropped client must be
     * freed */
    ev_timer again;
    /* starts a poll of the sensors; the timer is active while any sensor is sampled */
    ev_timer look;
    ev_timer housekeeping; /* expires each second */
    size_t n_samplings;
    size_t look_next;       /* index of the poll's next sensor; >= number of sensors: the poll is over */
    char *read_buffer;      /* [KATCP_READ_BYTES] */
    struct katcp_text line; /* buffer for a line */
    ev_async logged;        /* katcp/log.c: signals that messages are in the queue */
    ev_timer log_pause;     /* katcp/log.c: pause before queued messages are sent */
    size_t log_level;
};

/* ---- katcp/client.c: bytes in and out ---------------------------------------------------------------------------- */

/* Begins to serve a connection.  Takes over the ownership of 'fd'.  Returns 0 or -ENOMEM. */
int katcp_client_open(struct katcp_server *server, int fd, const struct endpoint *peer, bool read_only);

/* Closes the connection immediately, without a message to the client. */
void katcp_client_drop(struct katcp_client *client);

/* Counts and logs the refusal, tries to send the reason to the client, and drops the client. */
void katcp_client_refuse(struct katcp_client *client, enum katcp_refusal why);

/* Drops each client that has read nothing for too long, and each client that has not finished a line for too long. */
void katcp_clients_check(struct katcp_server *server);

/* Frees dropped clients that nothing uses any more. */
void katcp_clients_tidy(struct katcp_server *server);

/* Appends a client that may have work to the queue of waiting clients. */
void katcp_client_wake(struct katcp_client *client);

/* Serves the waiting clients, each for a slice, while steps are left. */
void katcp_clients_serve(struct katcp_server *server);

/* Returns true if the handler of a call may continue the answer in this turn of the event loop, because steps are
 * left. */
bool katcp_call_may_resume(const struct katcp_call *call);

/* Sends a line of an answer.  The number of unsent bytes is not limited here, because the client requested the
 * answer. */
void katcp_client_answer(struct katcp_client *client, const struct katcp_text *line);

/* Sends an inform that is not part of an answer.  Returns false if the inform is not sent, because the client is
 * dropped or has too many unsent bytes. */
bool katcp_client_inform(struct katcp_client *client, const struct katcp_text *line);

/* Sends as many unsent bytes as the socket accepts without blocking, at most KATCP_SEND_BYTES. */
void katcp_client_flush(struct katcp_client *client);

/* ---- katcp/server.c ---------------------------------------------------------------------------------------------- */

/* Texts of the refusals.  katcp_count_refusal() counts and logs a refusal. */
extern const char *const katcp_refusal_sentences[KATCP_N_REFUSALS];
void katcp_count_refusal(enum katcp_refusal why, const char *address);

/* Makes the event loop serve waiting clients and free dropped clients in its next turn. */
void katcp_server_resume(struct katcp_server *server);

/* Returns the number of steps that are left in this turn of the event loop. */
int64_t katcp_steps_left(struct katcp_server *server);

static inline void katcp_count_steps(struct katcp_server *server, size_t n)
{
    server->steps_left -= (int64_t)n;
}

/* ---- katcp/call.c ------------------------------------------------------------------------------------------------ */

/* Calls the handler of the request in client->call, or answers an invalid request. */
void katcp_call_begin(struct katcp_client *client);

static inline struct katcp_client *katcp_call_client(const struct katcp_call *call)
{
    return CONTAINER_OF(call, struct katcp_client, call);
}

/* Sends "#log error ..." to a client whose line is not a valid request. */
void katcp_log_protocol_error(struct katcp_client *client, const char *what);

/* Answers "!name invalid SENTENCE". */
void katcp_invalid(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Answers "!name ok COUNT".  Before this call, the handler has sent COUNT inform messages. */
void katcp_ok_count(struct katcp_call *call, size_t n);

const struct katcp_request *katcp_find_request(const struct katcp_server *server, const char *name);

/* ---- katcp/standard.c -------------------------------------------------------------------------------------------- */

/* The standard requests, in order of name.  Their handlers get the server as argument. */
extern const struct katcp_request katcp_standard_requests[];
extern const size_t katcp_n_standard_requests;

/* Number of versions in #version-connect and #version-list.  katcp_version() gets version 'i'. */
#define KATCP_N_VERSIONS 3
void katcp_version(const struct katcp_server *server, size_t i, const char *version[3]);

/* ---- katcp/sampling.c -------------------------------------------------------------------------------------------- */

void katcp_sensor_sampling(struct katcp_call *call, void *server);
void katcp_sensor_sampling_clear(struct katcp_call *call, void *server);

/* Ends all samplings of a client. */
void katcp_sampling_end(struct katcp_client *client);

/* Sends due readings to all clients, starting at sensor 'look_next', until the steps of this turn are used up. */
void katcp_sampling_poll(struct katcp_server *server);

/* Writes "#NAME[MID] TIME 1 SENSOR STATUS VALUE".  'name' is sensor-status or sensor-value.  'mid' is the message id,
 * 0: none. */
void katcp_sensor_line(struct katcp_text *line, const char *name, int32_t mid, const struct sensor_entry *entry,
                       const struct sensor_reading *reading);

/* ---- katcp/log.c ------------------------------------------------------------------------------------------------- */

/* Returns the line of an inform #log, in server->line. */
const struct katcp_text *katcp_log_line(struct katcp_server *server, const char *level, int64_t unix_ns,
                                        const char *name, const char *message);

void katcp_log_open(struct katcp_server *server);
void katcp_log_close(struct katcp_server *server);
void katcp_log_level(struct katcp_call *call, void *server);

#endif
