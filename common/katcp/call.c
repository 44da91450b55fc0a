/* call.c - checks a request, calls its handler, parses its arguments and sends its reply. */
#include "common/katcp/internal.h"

#include "common/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void katcp_log_protocol_error(struct katcp_client *client, const char *what)
{
    katcp_client_answer(client, katcp_log_line(client->server, "error", clock_unix_ns(), "katcp", what));
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

static int compare_names(const void *name, const void *request)
{
    return strcmp(name, ((const struct katcp_request *)request)->name);
}

const struct katcp_request *katcp_find_request(const struct katcp_server *server, const char *name)
{
    const struct katcp_request *found =
        bsearch(name, katcp_standard_requests, katcp_n_standard_requests, sizeof(*found), compare_names);

    for (size_t i = 0; !found && i < server->device->n_requests; i++)
        if (!strcmp(server->device->requests[i].name, name))
            found = &server->device->requests[i];
    return found;
}

static bool is_standard(const struct katcp_request *request)
{
    return request >= katcp_standard_requests && request < katcp_standard_requests + katcp_n_standard_requests;
}

void katcp_call_begin(struct katcp_client *client)
{
    struct katcp_server *server = client->server;
    struct katcp_call *call = &client->call;
    int n = (int)call->message.n_args;

    if (call->message.type != '?') {
        katcp_log_protocol_error(client, "only requests are accepted, and a request begins with ?");
        return;
    }
    call->active = true;
    const struct katcp_request *request = katcp_find_request(server, call->message.name);
    client->speaks_katcp |= request != NULL;
    if (!request)
        katcp_invalid(call, "unknown request %.64s", call->message.name);
    else if (call->message.has_nul)
        katcp_invalid(call, "an argument contains a NUL");
    else if (n < request->min_args)
        katcp_fail(call, "too few arguments: %d of at least %d", n, request->min_args);
    else if (n > request->max_args)
        katcp_fail(call, "too many arguments: %d of at most %d", n, request->max_args);
    else if (client->read_only && n >= request->changes_from)
        katcp_fail(call, "this server port is read-only");
    else
        request->handle(call, is_standard(request) ? server : server->device->arg);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

int katcp_n_args(const struct katcp_call *call)
{
    return (int)call->message.n_args;
}

const char *katcp_arg(const struct katcp_call *call, int i)
{
    assert(i >= 0 && (size_t)i < call->message.n_args);
    return call->message.args[i];
}

bool katcp_arg_integer(struct katcp_call *call, int i, const char *what, int64_t *value)
{
    const char *arg = katcp_arg(call, i);
    const char *digits = arg + (*arg == '-' || *arg == '+');
    char *end;

    errno = 0;
    long long number = strtoll(arg, &end, 10);
    if (!*digits || digits[strspn(digits, "0123456789")] || errno) {
        katcp_fail(call, "%s must be an integer, not '%.64s'", what, arg);
        return false;
    }
    *value = number;
    return true;
}

bool katcp_arg_real(struct katcp_call *call, int i, const char *what, double *value)
{
    const char *arg = katcp_arg(call, i);
    char *end;

    double number = strtod(arg, &end);
    if (!*arg || arg[strspn(arg, "0123456789+-.eE")] || *end || !isfinite(number)) {
        katcp_fail(call, "%s must be a finite number, not '%.64s'", what, arg);
        return false;
    }
    *value = number;
    return true;
}

/* ---- Answering --------------------------------------------------------------------------------------------------- */

static void answer(struct katcp_call *call, char type, const char *first, int n, const char *const *args)
{
    struct katcp_client *client = katcp_call_client(call);
    struct katcp_text *line = &client->server->line;

    assert(call->active);
    katcp_text_clear(line);
    katcp_text_begin(line, type, call->message.name, call->message.mid);
    if (first)
        katcp_text_add_arg(line, first);
    for (int i = 0; i < n; i++)
        katcp_text_add_arg(line, args[i]);
    katcp_text_end(line);
    katcp_client_answer(client, line);
}

void katcp_inform(struct katcp_call *call, int n, const char *const *args)
{
    answer(call, '#', NULL, n, args);
}

static void reply(struct katcp_call *call, const char *result, int n, const char *const *args)
{
    answer(call, '!', result, n, args);
    call->active = false;
    call->resume = NULL;
    free(call->memory);
    call->memory = NULL;
    katcp_client_wake(katcp_call_client(call));
}

void katcp_ok(struct katcp_call *call, int n, const char *const *args)
{
    reply(call, "ok", n, args);
}

void katcp_ok_count(struct katcp_call *call, size_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%zu", n);
    katcp_ok(call, 1, (const char *[]){text});
}

static void reply_sentence(struct katcp_call *call, const char *result, const char *format, va_list args)
{
    char sentence[1024];

    vsnprintf(sentence, sizeof(sentence), format, args);
    reply(call, result, 1, (const char *[]){sentence});
}

void katcp_fail(struct katcp_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    reply_sentence(call, "fail", format, args);
    va_end(args);
}

void katcp_invalid(struct katcp_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    reply_sentence(call, "invalid", format, args);
    va_end(args);
}
