/* service.c - runs the main thread's loop, and sends messages to systemd. */
#include "common/daemon/service.h"

#include "common/time/clock_state.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/daemon/notify.h"
#include "common/base/thread.h"

#include <errno.h>
#include <ev.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_BYTES 256
#define CLOCK_LOOK_S 1.0

/* Interval between two attempts to send the same message. */
#define RETELL_S 1.0

/* WATCHDOG_LOOKS: number of times per WatchdogSec that the threads are checked.  STILL_LOOKS: number of successive
 * checks without a beat after which a thread counts as hung. */
#define WATCHDOG_LOOKS 8
#define STILL_LOOKS    (WATCHDOG_LOOKS / 2)

struct service {
    struct ev_loop *loop; /* [const] */
    ev_async stop;        /* ends the loop when any thread or the signal handler requests a stop */
    _Atomic int exit_code;
    ev_timer clock;       /* periodically reads whether Linux's clock is synchronised */
    ev_timer look;        /* checks the threads, if systemd's watchdog is configured */
    ev_timer retell;      /* sends a message again after a failure */
    int64_t still_tid;    /* [main] id of the thread that was reported as hung; 0: none */
    struct notify notify; /* [const] */
    struct lock status_lock;
    char status[STATUS_BYTES] GUARDED; /* [status_lock] last text of service_status() */
    char hang[STATUS_BYTES] GUARDED;   /* [status_lock] report of a hung thread, which replaces 'status'; empty: none */
    bool is_ready GUARDED;             /* [status_lock] true if READY=1 must be sent */
    bool is_stopping GUARDED;          /* [status_lock] true if STOPPING=1 must be sent */
    bool is_untold GUARDED;            /* [status_lock] true if the last message could not be sent */
};

/* The service that the signal handler stops.  The process has its own signal handler, because libev's watchers act only
 * while the loop runs.  A second signal must end the process even during a drain, or while main() waits for a hung
 * thread. */
static struct service *_Atomic signalled; /* the open service; NULL: no service is open */
static volatile sig_atomic_t n_signals;

/* Writes a message to stderr from a signal handler, which may call neither stdio nor the journal.  If stderr is full,
 * the message is dropped. */
static void say_at_once(const char *message)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

    log_flush();
    if (poll(&ready, 1, 0) > 0) {
        ssize_t ignored = write(STDERR_FILENO, message, strlen(message));
        (void)ignored;
    }
}

static void on_signal(int signal_number)
{
    int saved_errno = errno;
    struct service *service = atomic_load(&signalled);

    if (!service)
        _exit(0);
    if (n_signals++) {
        say_at_once("second signal: exiting at once\n");
        _exit(1);
    }
    ev_async_send(service->loop, &service->stop);
    errno = saved_errno;
}

/* Handles SIGABRT, from a failed assertion or systemd's watchdog.  Writes the pending log lines, which show the events
 * before the abort. */
static void on_abort(int signal_number)
{
    log_flush();
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT); /* the signal takes effect when this handler returns */
}

static void on_stop(struct ev_loop *loop, ev_async *watcher, int events)
{
    ev_break(loop, EVBREAK_ALL);
}

/* ---- Messages to systemd ----------------------------------------------------------------------------------------- */

/* Sends the last status, with READY=1 or STOPPING=1 if these have not been sent yet.  Returns 0 or negative errno.
 * After a failure, retell() sends the message again. */
static int notify_status(struct service *service) REQUIRES(service->status_lock)
{
    char text[STATUS_BYTES + 40];

    snprintf(text, sizeof(text), "%s%sSTATUS=%s", service->is_ready ? "READY=1\n" : "",
             service->is_stopping ? "STOPPING=1\n" : "", service->hang[0] ? service->hang : service->status);
    int err = notify_send(&service->notify, text);
    service->is_untold = err != 0;
    if (!err)
        service->is_ready = service->is_stopping = false;
    return err;
}

static void retell(struct service *service)
{
    lock_take(&service->status_lock);
    if (service->is_untold)
        notify_status(service);
    lock_give(&service->status_lock);
}

static void on_retell(struct ev_loop *loop, ev_timer *timer, int events)
{
    retell(timer->data);
}

/* Replaces newlines by blanks, because sd_notify's protocol has one variable per line. */
static void one_line(char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            *text = ' ';
}

/* ---- The watchdog ------------------------------------------------------------------------------------------------ */

/* Reports the hung thread 'still' to systemd.  If 'still' is NULL, reports that no thread hangs any more. */
static void report_hang(struct service *service, const struct thread_stalled *still)
{
    lock_take(&service->status_lock);
    service->hang[0] = '\0';
    if (still)
        snprintf(service->hang, sizeof(service->hang), "FAILED: thread %s (%lld) hangs", still->name,
                 (long long)still->tid);
    notify_status(service);
    lock_give(&service->status_lock);
}

static void note_still(struct service *service, const struct thread_stalled *still, double look_s)
{
    double still_s = still->n_looks * look_s;

    if (service->still_tid == still->tid)
        return;
    service->still_tid = still->tid;
    log_error("thread %s (%lld) hangs: it has made no progress for %.3g s", still->name, (long long)still->tid,
              still_s);
    report_hang(service, still);
}

/* Ends the process, because no init system will kill it.  The hung thread prevents a clean stop. */
static void end_hung(const struct thread_stalled *still)
{
    log_error("thread %s (%lld) still hangs, and no init system watches this process: the process ends", still->name,
              (long long)still->tid);
    log_flush();
    _exit(1);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct service *service = timer->data;
    struct thread_stalled still = threads_find_stalled();

    if (still.n_looks >= STILL_LOOKS) {
        note_still(service, &still, timer->repeat);
        if (still.n_looks >= WATCHDOG_LOOKS && !notify_is_open(&service->notify))
            end_hung(&still);
        return;
    }
    if (service->still_tid) {
        log_warning("all threads make progress again");
        report_hang(service, NULL);
        service->still_tid = 0;
    }
    notify_send(&service->notify, "WATCHDOG=1"); /* a failure is ignored: the next check sends the message again */
}

static void start_looking(struct service *service)
{
    uint64_t watchdog_us;

    if (!notify_watchdog(&watchdog_us))
        return;
    double look_s = (double)watchdog_us / 1e6 / WATCHDOG_LOOKS;
    ev_timer_init(&service->look, on_look, look_s, look_s);
    service->look.data = service;
    ev_timer_start(service->loop, &service->look);
}

static void on_clock(struct ev_loop *loop, ev_timer *timer, int events)
{
    clock_state_read();
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void set_signals(void (*stop_handler)(int), void (*pipe_handler)(int), void (*abort_handler)(int))
{
    struct sigaction action = {.sa_handler = stop_handler, .sa_flags = SA_RESTART};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* A write to a disconnected client of /metrics raises SIGPIPE.  With SIG_IGN, only the write fails.  Otherwise
     * SIGPIPE would end the process. */
    action.sa_handler = pipe_handler;
    sigaction(SIGPIPE, &action, NULL);
    action.sa_handler = abort_handler;
    sigaction(SIGABRT, &action, NULL);
}

/* ev_memory() and ev_failed() replace libev's allocator and error handler, which would abort the process if memory or
 * files are exhausted. */
static void *ev_memory(void *memory, long bytes) EV_NOEXCEPT
{
    if (bytes == 0) {
        free(memory);
        return NULL;
    }
    memory = realloc(memory, (size_t)bytes);
    if (!memory) {
        log_error("the event loop is out of memory");
        log_flush();
        _exit(1);
    }
    return memory;
}

static void ev_failed(const char *what) EV_NOEXCEPT
{
    log_error("the event loop failed: %s: %s", what, strerror(errno));
    log_flush();
    _exit(1);
}

void service_catch_signals(void)
{
    set_signals(on_signal, SIG_DFL, SIG_DFL);
}

void service_release_signals(void)
{
    set_signals(SIG_DFL, SIG_DFL, SIG_DFL);
}

int service_open(struct service **service)
{
    struct service *s = calloc(1, sizeof(*s));
    int err = s ? log_start() : -ENOMEM;

    if (err)
        goto undo_alloc;
    ev_set_allocator(ev_memory);
    ev_set_syserr_cb(ev_failed);
    s->loop = ev_loop_new(EVFLAG_AUTO);
    if (!s->loop) {
        err = -ENOMEM;
        goto undo_log;
    }
    err = notify_open(&s->notify);
    if (err)
        log_warning("the init system is not notified: $NOTIFY_SOCKET: %s", strerror(-err));
    lock_init(&s->status_lock);
    snprintf(s->status, sizeof(s->status), "running");
    ev_async_init(&s->stop, on_stop);
    ev_async_start(s->loop, &s->stop);
    ev_timer_init(&s->clock, on_clock, CLOCK_LOOK_S, CLOCK_LOOK_S);
    clock_state_read();
    n_signals = 0;
    atomic_store(&signalled, s);
    set_signals(on_signal, SIG_IGN, on_abort);
    *service = s;
    return 0;
undo_log:
    log_stop();
undo_alloc:
    free(s);
    return err;
}

struct ev_loop *service_loop(struct service *service)
{
    return service->loop;
}

/* Sends READY=1.  If the init system's queue is full, logs a warning; retell() sends the message later. */
static void notify_ready(struct service *service)
{
    lock_take(&service->status_lock);
    snprintf(service->status, sizeof(service->status), "running");
    service->is_ready = true;
    int err = notify_status(service);
    lock_give(&service->status_lock);
    if (err)
        log_warning("running, but the init system was not notified: %s; the notification is repeated each second",
                    strerror(-err));
}

int service_run(struct service *service)
{
    log_flush(); /* all earlier lines must be in the log when READY arrives */
    notify_ready(service);
    ev_timer_init(&service->retell, on_retell, RETELL_S, RETELL_S);
    service->retell.data = service;
    ev_timer_start(service->loop, &service->retell);
    start_looking(service);
    ev_timer_start(service->loop, &service->clock);
    ev_run(service->loop, 0);
    ev_timer_stop(service->loop, &service->look);
    ev_timer_stop(service->loop, &service->clock);
    ev_timer_stop(service->loop, &service->retell);
    if (n_signals)
        log_info("stopping on a signal");
    return atomic_load(&service->exit_code);
}

void service_stop(struct service *service, int exit_code)
{
    int none = 0;

    atomic_compare_exchange_strong(&service->exit_code, &none, exit_code);
    ev_async_send(service->loop, &service->stop);
}

void service_fail(void *service)
{
    if (service)
        service_stop(service, 1);
}

void service_status(struct service *service, const char *format, ...)
{
    va_list args;

    lock_take(&service->status_lock);
    va_start(args, format);
    vsnprintf(service->status, sizeof(service->status), format, args);
    va_end(args);
    one_line(service->status);
    notify_status(service);
    lock_give(&service->status_lock);
}

void service_stopping(struct service *service)
{
    lock_take(&service->status_lock);
    snprintf(service->status, sizeof(service->status), "draining");
    service->is_stopping = true;
    notify_status(service);
    lock_give(&service->status_lock);
}

void service_close(struct service *service)
{
    if (!service)
        return;
    set_signals(SIG_IGN, SIG_DFL, SIG_DFL);
    atomic_store(&signalled, NULL);
    retell(service);
    notify_close(&service->notify);
    ev_loop_destroy(service->loop);
    lock_fini(&service->status_lock);
    free(service);
    log_stop();
}

int service_exit_code(int err)
{
    switch (-err) {
    case EINVAL:
    case E2BIG:
    case ENODEV:
    case ENOENT:
    case EACCES:
    case EPERM:
    case EADDRNOTAVAIL:
    case EEXIST:
    case EFBIG:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
    case ENOTSUP:
    case EROFS: return EXIT_CONFIG;
    default: return 1;
    }
}
