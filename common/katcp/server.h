/* server.h - KATCP 5.1 over TCP, on the main thread's loop: standard requests, sensors, and a program's own
 * requests.
 *
 * Source:    "Guidelines for Communication with Devices", NRF-KAT7-6.0-IFCE/002 revision 5.1.
 * Flow:      listener --> client --katcp/message.c--> request --> handler --> reply
 *            sensors --a poll of all sampled sensors, every 10 ms while there are any--> #sensor-status
 *            log.c --a bounded queue--> #log
 * Threads:   the main thread only.  Handlers post their effects to the worker, so KATCP never delays data.
 * Limits:    a line has at most 64 KiB, or 16 MiB if its request is marked so (has_long_lines).  A line may take 30 s
 *            from its first byte to its end.  A client that leaves 32 MiB unread, or reads nothing for half a minute,
 *            is dropped.  If all clients together have more than 256 MiB, the client with the most is dropped.  The
 *            server stops reading from a client whose request waits for the worker, and from a client that does not
 *            read its answers.
 * Turns:     each turn of the loop does a bounded number of steps for clients (katcp/internal.h), in order of arrival.
 *            The remaining work continues in the next turn.
 * Access:    katcp.listen and katcp.read_only_listen.  The latter serves only requests that change nothing.  Both
 *            accept only clients of katcp.allow's networks, and each has separate places (katcp.max_clients).
 * Strangers: before a client's first known request, a line that is not a well-formed request closes the connection.
 *            Neither this line nor a later line is executed.  An empty line and an unknown request close nothing. */
#ifndef COMMON_KATCP_SERVER_H
#define COMMON_KATCP_SERVER_H

#include "common/telemetry/sensor.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_katcp; /* katcp/keys.h */
struct ev_loop;
struct katcp_call; /* one request that is not yet answered */
struct katcp_server;

#define KATCP_CHANGES_NOTHING INT_MAX

struct katcp_request {
    const char *name; /* without '?' */
    const char *help; /* a short sentence; a line "?name ARGUMENTS", if there are any; a line about them */
    int min_args, max_args;
    /* Answers by katcp_ok() or katcp_fail(): at once or, if the handler keeps 'call', later on the same thread. */
    void (*handle)(struct katcp_call *call, void *arg);
    /* A request with at least this many arguments changes something, and read-only listeners refuse it.  0: every
     * request changes something; 2: one argument is a query; KATCP_CHANGES_NOTHING: no request does. */
    int changes_from;
    double timeout_s;    /* value of ?request-timeout-hint; 0: none */
    bool has_long_lines; /* lines up to 16 MiB if the request may change something; otherwise 64 KiB */
};

/* The device that a server serves.  Lists and strings belong to the caller and outlive the device. */
struct katcp_device {
    const char *name;    /* name of the device in #version-connect, "katgpucbf-fgpu-1.0" */
    const char *version; /* build state */
    const struct katcp_request *requests;
    size_t n_requests;
    void *arg; /* argument of the handlers */
    struct sensors *sensors;
    /* Called for ?halt: ends the process as SIGTERM does.  Called for ?restart: ends the process so that it is started
     * again. */
    void (*halt)(void *arg);
    void (*restart)(void *arg);
    void *life_arg;
};

/* Opens the listeners of 'config', if there are any.  'config' and 'device' outlive the server.  All sensors must have
 * been added.  Returns 0 or negative errno with one sentence in 'why'. */
int katcp_server_open(const struct config_katcp *config, struct ev_loop *loop, const struct katcp_device *device,
                      struct katcp_server **server, char *why, size_t why_bytes);

/* Returns the port of the listener, or with 'read_only' the other listener's.  Configured port 0 means any free port.
 * Returns 0 without a listener. */
unsigned katcp_server_port(const struct katcp_server *server, bool read_only);

/* Fails the unanswered calls, which are gone afterwards, sends #disconnect to all clients and closes.  NULL is
 * accepted. */
void katcp_server_close(struct katcp_server *server);

/* For handlers: the arguments without the name, unescaped and NUL-terminated.  (An argument with a NUL was refused
 * before.)  The strings stay valid until the call is answered. */
int katcp_n_args(const struct katcp_call *call);
const char *katcp_arg(const struct katcp_call *call, int i);

/* Parses an argument as a finite number.  Returns false after failing the call with a sentence that names 'what'. */
bool katcp_arg_integer(struct katcp_call *call, int i, const char *what, int64_t *value);
bool katcp_arg_real(struct katcp_call *call, int i, const char *what, double *value);

/* Sends the inform #name with further arguments, before the reply. */
void katcp_inform(struct katcp_call *call, int n, const char *const *args);

/* Answers !name ok ARGS..., or fail with one sentence.  The call is gone afterwards. */
void katcp_ok(struct katcp_call *call, int n, const char *const *args);
void katcp_fail(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
