/* service.c - the main thread's loop, and what systemd hears of it. */
#include "common/service.h"

#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define STATUS_BYTES 256

/* Looks at the threads in each WatchdogSec, and at how many of them in a row one may have stood still. */
#define WATCHDOG_LOOKS 8
#define STILL_LOOKS    (WATCHDOG_LOOKS / 2)

struct service {
    struct ev_loop *loop; /* [const] */
    ev_async stop;        /* wakes the loop from any thread and from the signal handler */
    _Atomic int exit_code;
    ev_timer look;     /* at the threads, if systemd wants to know */
    int64_t still_tid; /* [main] of the thread that was said to hang; 0: none */
    struct lock status_lock;
    char status[STATUS_BYTES] GUARDED; /* [status_lock] the last */
};

/* What the signal handler knows.  Not libev's own signal watchers: they act only while the loop runs, but a second
 * signal must end the process while main() drains or waits for a thread that hangs. */
static struct service *_Atomic signalled;
static volatile sig_atomic_t n_signals;

static void on_signal(int signal_number)
{
    static const char message[] = "second signal: exiting at once\n";
    int saved_errno = errno;
    struct service *service = atomic_load(&signalled);

    if (n_signals++) {
        /* Neither stdio nor the journal may be called from a signal handler. */
        ssize_t ignored = write(STDERR_FILENO, message, sizeof(message) - 1);

        (void)ignored;
        _exit(1);
    }
    if (service)
        ev_async_send(service->loop, &service->stop);
    errno = saved_errno;
}

static void on_stop(struct ev_loop *loop, ev_async *watcher, int events)
{
    ev_break(loop, EVBREAK_ALL);
}

/* ---- The watchdog ------------------------------------------------------------------------------------------------ */

/* Tells systemd the last status again. */
static void repeat_status(struct service *service)
{
    lock_take(&service->status_lock);
    sd_notifyf(0, "STATUS=%s", service->status);
    lock_give(&service->status_lock);
}

static void note_still(struct service *service, const struct thread_still *still, double look_s)
{
    double still_s = still->n_looks * look_s;

    if (service->still_tid == still->tid)
        return;
    service->still_tid = still->tid;
    log_error("thread %s (%lld) hangs: it has not moved for %.3g s", still->name, (long long)still->tid, still_s);
    sd_notifyf(0, "STATUS=FAILED: thread %s (%lld) hangs", still->name, (long long)still->tid);
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct service *service = timer->data;
    struct thread_still still = threads_look();

    if (still.n_looks >= STILL_LOOKS) {
        note_still(service, &still, timer->repeat);
        return;
    }
    if (service->still_tid) {
        log_warning("all threads move again");
        repeat_status(service);
        service->still_tid = 0;
    }
    sd_notify(0, "WATCHDOG=1");
}

static void start_looking(struct service *service)
{
    uint64_t watchdog_us;

    if (sd_watchdog_enabled(0, &watchdog_us) <= 0)
        return;
    double look_s = (double)watchdog_us / 1e6 / WATCHDOG_LOOKS;
    ev_timer_init(&service->look, on_look, look_s, look_s);
    service->look.data = service;
    ev_timer_start(service->loop, &service->look);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void set_signals(void (*stop_handler)(int), void (*pipe_handler)(int))
{
    struct sigaction action = {.sa_handler = stop_handler, .sa_flags = SA_RESTART};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* A client of /metrics that went away is an error of its write, not the end of the observation. */
    action.sa_handler = pipe_handler;
    sigaction(SIGPIPE, &action, NULL);
}

/* libev would end the process by SIGABRT where it gets no memory or no file. */
static void *ev_memory(void *memory, long bytes) EV_NOEXCEPT
{
    if (bytes == 0) {
        free(memory);
        return NULL;
    }
    memory = realloc(memory, (size_t)bytes);
    if (!memory) {
        log_error("the event loop gets no memory");
        _exit(1);
    }
    return memory;
}

static void ev_failed(const char *what) EV_NOEXCEPT
{
    log_error("the event loop cannot go on: %s: %s", what, strerror(errno));
    _exit(1);
}

int service_open(struct service **service)
{
    struct service *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    ev_set_allocator(ev_memory);
    ev_set_syserr_cb(ev_failed);
    s->loop = ev_loop_new(EVFLAG_AUTO);
    if (!s->loop) {
        free(s);
        return -ENOMEM;
    }
    lock_init(&s->status_lock);
    snprintf(s->status, sizeof(s->status), "running");
    ev_async_init(&s->stop, on_stop);
    ev_async_start(s->loop, &s->stop);
    n_signals = 0;
    atomic_store(&signalled, s);
    set_signals(on_signal, SIG_IGN);
    *service = s;
    return 0;
}

struct ev_loop *service_loop(struct service *service)
{
    return service->loop;
}

int service_run(struct service *service)
{
    int err = sd_notify(0, "READY=1\nSTATUS=running");
    if (err < 0)
        log_warning("running, but the init system cannot be told so: %s", strerror(-err));
    start_looking(service);
    ev_run(service->loop, 0);
    ev_timer_stop(service->loop, &service->look);
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

void service_status(struct service *service, const char *format, ...)
{
    va_list args;

    lock_take(&service->status_lock);
    va_start(args, format);
    vsnprintf(service->status, sizeof(service->status), format, args);
    va_end(args);
    /* A newline would begin the next variable of the protocol. */
    for (char *c = service->status; *c; c++) {
        if (*c == '\n')
            *c = ' ';
    }
    lock_give(&service->status_lock);
    repeat_status(service);
}

void service_stopping(struct service *service)
{
    sd_notify(0, "STOPPING=1\nSTATUS=draining");
}

void service_close(struct service *service)
{
    if (!service)
        return;
    set_signals(SIG_DFL, SIG_DFL);
    atomic_store(&signalled, NULL);
    ev_loop_destroy(service->loop);
    lock_fini(&service->status_lock);
    free(service);
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
