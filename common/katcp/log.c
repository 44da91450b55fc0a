/* log.c - sends the program's log messages to clients, as informs #log.
 *
 * Flow:    any thread --log_listen()--> [QUEUE_MESSAGES] --each 50 ms--> #log to all clients
 * Threads: the thread that logs a message copies it into the queue, under a lock.  The main thread holds this lock only
 *          while it copies a message out of the queue.  If the queue is full, the message is only counted.  There is
 *          one queue, because a process has one log. */
#include "common/katcp/internal.h"

#include "common/base/clock.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

#define QUEUE_MESSAGES 64
#define MESSAGE_BYTES  512
#define PAUSE_S        0.05

struct queued {
    enum log_level level;
    int64_t unix_ns;
    char text[MESSAGE_BYTES];
};

static struct lock lock = {PTHREAD_MUTEX_INITIALIZER};
static struct queued queue[QUEUE_MESSAGES] GUARDED;
static size_t n_pushed GUARDED, n_popped GUARDED;
static uint64_t n_left_out GUARDED;
static struct katcp_server *listener GUARDED; /* server that reads the queue; NULL: no server */

/* The levels of ?log-level.  Each level includes the levels of log.h up to 'max_level'. */
static const struct {
    const char *name;
    int max_level;
} levels[] = {
    {"all", LOG_LEVEL_DEBUG},    {"trace", LOG_LEVEL_DEBUG}, {"debug", LOG_LEVEL_DEBUG}, {"info", LOG_LEVEL_INFO},
    {"warn", LOG_LEVEL_WARNING}, {"error", LOG_LEVEL_ERROR}, {"fatal", LOG_NOTHING},     {"off", LOG_NOTHING},
};
#define DEFAULT_LEVEL 4

/* KATCP's names of the levels in enum log_level. */
static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* [any thread] Appends a message to the queue. */
static void push(enum log_level level, int64_t unix_ns, const char *message)
{
    lock_take(&lock);
    if (listener && n_pushed - n_popped < QUEUE_MESSAGES) {
        struct queued *queued = &queue[n_pushed % QUEUE_MESSAGES];
        queued->level = level;
        queued->unix_ns = unix_ns;
        snprintf(queued->text, sizeof(queued->text), "%s", message);
        n_pushed++;
        ev_async_send(listener->loop, &listener->logged);
    } else if (listener) {
        n_left_out++;
    }
    lock_give(&lock);
}

/* Removes the oldest message from the queue into 'message'.  If the queue is empty and messages were lost, writes a
 * message with the number of lost messages.  Returns false if there is no message. */
static bool pop(struct queued *message)
{
    bool there_is = true;

    lock_take(&lock);
    if (n_popped < n_pushed) {
        *message = queue[n_popped++ % QUEUE_MESSAGES];
    } else if (n_left_out > 0) {
        message->level = LOG_LEVEL_WARNING;
        message->unix_ns = clock_unix_ns();
        snprintf(message->text, sizeof(message->text), "%llu log messages before this message were lost",
                 (unsigned long long)n_left_out);
        n_left_out = 0;
    } else {
        there_is = false;
    }
    lock_give(&lock);
    return there_is;
}

const struct katcp_text *katcp_log_line(struct katcp_server *server, const char *level, int64_t unix_ns,
                                        const char *name, const char *message)
{
    struct katcp_text *line = &server->line;

    katcp_text_clear(line);
    katcp_text_begin(line, '#', "log", 0);
    katcp_text_add_arg(line, level);
    katcp_text_add_time(line, unix_ns);
    katcp_text_add_arg(line, name);
    katcp_text_add_arg(line, message);
    katcp_text_end(line);
    return line;
}

static void inform_all(struct katcp_server *server, const struct queued *message)
{
    const struct katcp_text *line =
        katcp_log_line(server, level_names[message->level], message->unix_ns, "root", message->text);

    for (struct katcp_client *client = server->clients; client; client = client->next)
        katcp_client_inform(client, line);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct katcp_server *server = CONTAINER_OF(timer, struct katcp_server, log_pause);
    struct queued message;

    while (katcp_steps_left(server) > 0) {
        if (!pop(&message))
            return;
        inform_all(server, &message);
    }
    ev_timer_set(timer, PAUSE_S, 0.);
    ev_timer_start(loop, timer);
}

/* Starts a pause, after which the queued messages are sent.  Several messages that are logged at nearly the same time
 * then share one packet. */
static void on_logged(struct ev_loop *loop, ev_async *watcher, int events)
{
    struct katcp_server *server = CONTAINER_OF(watcher, struct katcp_server, logged);

    if (ev_is_active(&server->log_pause))
        return;
    ev_timer_set(&server->log_pause, PAUSE_S, 0.);
    ev_timer_start(loop, &server->log_pause);
}

static void set_level(struct katcp_server *server, size_t level)
{
    int max_level = levels[level].max_level;

    server->log_level = level;
    /* The journal gets all messages up to level info, even if a client has set a less verbose level. */
    log_set_level(max_level > LOG_LEVEL_INFO ? (enum log_level)max_level : LOG_LEVEL_INFO);
    log_listen(push, max_level);
}

void katcp_log_open(struct katcp_server *server)
{
    ev_timer_init(&server->log_pause, on_pause_over, PAUSE_S, 0.);
    ev_async_init(&server->logged, on_logged);
    ev_async_start(server->loop, &server->logged);
    lock_take(&lock);
    n_pushed = n_popped = 0;
    n_left_out = 0;
    listener = server;
    lock_give(&lock);
    set_level(server, DEFAULT_LEVEL);
}

void katcp_log_close(struct katcp_server *server)
{
    log_listen(push, LOG_NOTHING);
    lock_take(&lock);
    listener = NULL;
    lock_give(&lock);
    ev_async_stop(server->loop, &server->logged);
    ev_timer_stop(server->loop, &server->log_pause);
}

void katcp_log_level(struct katcp_call *call, void *arg)
{
    struct katcp_server *server = arg;
    size_t level = server->log_level;

    if (katcp_n_args(call) > 0) {
        for (level = 0; level < ARRAY_LEN(levels); level++)
            if (!strcmp(levels[level].name, katcp_arg(call, 0)))
                break;
        if (level == ARRAY_LEN(levels)) {
            katcp_fail(call, "unknown level %.64s: the levels are all, trace, debug, info, warn, error, fatal and off",
                       katcp_arg(call, 0));
            return;
        }
        set_level(server, level);
    }
    katcp_ok(call, 1, (const char *[]){levels[level].name});
}
