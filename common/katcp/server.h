/* server.h - KATCP 5.1 over TCP, on the main thread's loop: standard requests, sensors, and a program's own
 * requests.
 *
 * Source:    "Guidelines for Communication with Devices", NRF-KAT7-6.0-IFCE/002 revision 5.1.
 * Flow:      listener --> client --katcp/message.c--> request --> handler --> reply
 *            sensors --a poll of all sampled sensors, every 10 ms--> #sensor-status
 *            log.c --a bounded queue--> #log
 * Threads:   only the main thread uses the server.  Handlers send commands to the worker through its inbox, so KATCP
 *            never delays the data.
 * Limits:    a line has at most 64 KiB, or 16 MiB if its request has has_long_lines.  A line must be complete 30 s
 *            after its first byte.  The server drops a client that leaves 32 MiB unread, or reads nothing for 30 s.  If
 *            the buffers of all clients together exceed 256 MiB, the server drops the client with the largest buffers.
 *            The server stops reading from a client while the client's request waits for the worker, or while the
 *            client does not read its answers.
 * Turns:     in each turn of the event loop the server does a limited number of steps for clients (katcp/internal.h),
 *            in the order in which the clients began to wait.  The remaining work continues in the next turn.
 * Access:    katcp.listen and katcp.read_only_listen.  read_only_listen accepts only requests that change nothing.
 *            Both listeners accept only clients in the networks of katcp.allow, and each listener accepts at most
 *            katcp.max_clients clients.
 * Strangers: before a client's first known request, a line that is not a well-formed request closes the connection.
 *            Neither this line nor a later line is executed.  An empty line or an unknown request does not close the
 *            connection. */
#ifndef COMMON_KATCP_SERVER_H
#define COMMON_KATCP_SERVER_H

#include "common/telemetry/sensor.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_katcp; /* katcp/keys.h */
struct ev_loop;
struct katcp_call; /* a request that is not yet answered */
struct katcp_server;

#define KATCP_CHANGES_NOTHING INT_MAX

struct katcp_request {
    const char *name; /* without '?' */
    /* help text of up to three lines: a short sentence; "?name ARGUMENTS" if the request has arguments; a sentence
     * about the arguments */
    const char *help;
    int min_args, max_args;
    /* Handles the request.  Answers with katcp_ok() or katcp_fail(), either before it returns or later on the same
     * thread.  A handler that answers later keeps 'call'. */
    void (*handle)(struct katcp_call *call, void *arg);
    /* Smallest number of arguments with which the request changes something.  Read-only listeners refuse a request
     * with this number of arguments or more.  0: the request always changes something; 2: a request with one argument
     * is a query; KATCP_CHANGES_NOTHING: the request never changes anything. */
    int changes_from;
    double timeout_s; /* answer to ?request-timeout-hint, in seconds; 0: not specified */
    /* true: a line may have up to 16 MiB; with KATCP_CHANGES_NOTHING up to 64 KiB plus the length of all sensors'
     * names */
    bool has_long_lines;
};

/* The device that a server represents: a program with its requests and sensors.  The caller owns the arrays and
 * strings, which must exist as long as the server. */
struct katcp_device {
    const char *name;    /* name of the device in #version-connect, "katgpucbf-fgpu-1.0" */
    const char *version; /* build state */
    const struct katcp_request *requests;
    size_t n_requests;
    void *arg; /* argument of the handlers */
    struct sensors *sensors;
    /* The server calls halt() for ?halt, and restart() for ?restart.  halt() ends the process as SIGTERM does.
     * restart() ends the process in such a way that the service manager starts it again. */
    void (*halt)(void *arg);
    void (*restart)(void *arg);
    void *life_arg;
};

/* Opens the listeners in 'config', if there are any.  'config' and 'device' must exist as long as the server.  All
 * sensors must have been added.  Returns 0 or negative errno with one sentence in 'why'. */
int katcp_server_open(const struct config_katcp *config, struct ev_loop *loop, const struct katcp_device *device,
                      struct katcp_server **server, char *why, size_t why_bytes);

/* Returns the port of katcp.read_only_listen if 'read_only' is true, otherwise the port of katcp.listen.  Returns 0 if
 * there is no such listener.  If the configured port is 0, the kernel has chosen a free port. */
unsigned katcp_server_port(const struct katcp_server *server, bool read_only);

/* Fails the unanswered calls, sends #disconnect to all clients, and closes the server.  The calls must not be used
 * afterwards.  NULL is accepted. */
void katcp_server_close(struct katcp_server *server);

/* Return the number of arguments, and argument 'i', for handlers.  Arguments are unescaped and NUL-terminated.  (The
 * server refuses a request with a NUL in an argument.)  The strings are valid until the call is answered. */
int katcp_n_args(const struct katcp_call *call);
const char *katcp_arg(const struct katcp_call *call, int i);

/* Parse argument 'i' as an integer or as a finite number.  If the argument is invalid, fail the call with a sentence
 * about 'what', and return false. */
bool katcp_arg_integer(struct katcp_call *call, int i, const char *what, int64_t *value);
bool katcp_arg_real(struct katcp_call *call, int i, const char *what, double *value);

/* Sends an inform with the name of the request and 'args' [n], before the reply. */
void katcp_inform(struct katcp_call *call, int n, const char *const *args);

/* Answer "!name ok ARGS...", or "!name fail SENTENCE".  The call must not be used afterwards. */
void katcp_ok(struct katcp_call *call, int n, const char *const *args);
void katcp_fail(struct katcp_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
