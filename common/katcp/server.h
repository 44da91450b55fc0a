/* server.h - KATCP 5.1 over TCP, on the main thread's loop: standard requests, sensors, and a program's own
 * requests.
 *
 * Source:    "Guidelines for Communication with Devices", NRF-KAT7-6.0-IFCE/002 revision 5.1.
 * Flow:      listener --> client --katcp_message.c--> request --> handler --> reply
 *            sensors --a look at all that clients sample, every 10 ms while any do--> #sensor-status
 *            log.c --a bounded queue--> #log
 * Threads:   all of it is main's; what a handler sets off is posted to the worker, so nothing here delays data.
 * Limits:    a line has at most 64 KiB, or 16 MiB where its request is marked so, and 30 s from its first byte to its
 *            end.  A client that leaves 32 MiB unread, or reads nothing for half a minute, is dropped; if all together
 *            have more than 256 MiB, the one that has most.  Reading stops at a client whose request waits for the
 *            worker, until it is answered, and at one whose answers wait for it.
 * Turns:     in each turn of the loop a bounded number of steps is done for clients (katcp/internal.h), in the order in
 *            which they came; what takes more goes on in the next turn.
 * Access:    katcp.listen and katcp.read_only_listen, where only requests that change nothing are carried out; of both,
 *            only clients of katcp.allow's networks, each with places of its own (katcp.max_clients).
 * Strangers: a connection whose first line is no request of KATCP is closed before anything of it is carried out. */
#ifndef COMMON_KATCP_SERVER_H
#define COMMON_KATCP_SERVER_H

#include "common/telemetry/sensor.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_katcp; /* katcp/keys.h */
struct ev_loop;
struct katcp_call; /* one request, until it is answered */
struct katcp_server;

#define KATCP_CHANGES_NOTHING INT_MAX

struct katcp_request {
    const char *name; /* without '?' */
    const char *help; /* a line with a short sentence; one with "?name ARGUMENTS", if it has any; what they mean */
    int min_args, max_args;
    /* Answers by katcp_ok() or katcp_fail(), at once or, having kept 'call', later from the same thread. */
    void (*handle)(struct katcp_call *call, void *arg);
    /* With this many arguments or more it changes something, and is refused on read-only listeners: 0 where it always
     * does, 2 where two arguments are a query, KATCP_CHANGES_NOTHING. */
    int changes_from;
    double timeout_s;    /* for ?request-timeout-hint; 0: none */
    bool has_long_lines; /* up to 16 MiB, where it may change something; else 64 KiB */
};

/* The device that a server serves: lists and strings are the caller's and outlive it. */
struct katcp_device {
    const char *name;    /* of the device in #version-connect, "katgpucbf-fgpu-1.0" */
    const char *version; /* build state */
    const struct katcp_request *requests;
    size_t n_requests;
    void *arg; /* of the handlers */
    struct sensors *sensors;
    /* ?halt: ends the process as SIGTERM does; ?restart: ends it so that it is started again. */
    void (*halt)(void *arg);
    void (*restart)(void *arg);
    void *life_arg;
};

/* Listens as configured, if at all; 'config' and 'device' outlive the server.  All sensors have been added.  Returns 0
 * or negative errno with one sentence in 'why'. */
int katcp_server_open(const struct config_katcp *config, struct ev_loop *loop, const struct katcp_device *device,
                      struct katcp_server **server, char *why, size_t why_bytes);

/* The port that it listens on (given as 0: any free one), or with 'read_only' that of the other listener; 0: none. */
unsigned katcp_server_port(const struct katcp_server *server, bool read_only);

/* Fails the calls that are still unanswered (they are gone then), says #disconnect to all and closes; NULL is
 * accepted. */
void katcp_server_close(struct katcp_server *server);

/* For handlers: arguments without the name, unescaped, ending in NUL (one with a NUL within was refused before).  They
 * stay until the call is answered. */
int katcp_n_args(const struct katcp_call *call);
const char *katcp_arg(const struct katcp_call *call, int i);

/* An argument as a number, finite.  Returns false having failed the call with a sentence that names 'what'. */
bool katcp_arg_integer(struct katcp_call *call, int i, const char *what, int64_t *value);
bool katcp_arg_real(struct katcp_call *call, int i, const char *what, double *value);

/* #name with further arguments, before the reply. */
void katcp_inform(struct katcp_call *call, int n, const char *const *args);

/* !name ok ARGS..., or fail with one sentence.  The call is gone afterwards. */
void katcp_ok(struct katcp_call *call, int n, const char *const *args);
void katcp_fail(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
