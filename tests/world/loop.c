/* loop.c - the main loop of a daemon in the world: service.h, and the part of libev that the daemons use without
 * sockets.  lines.c carries KATCP.  HTTP is not configured in the world. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "common/daemon/service.h"
#include "common/time/clock_state.h"
#include "tests/world/lines.h"
#include "tests/world/loop.h"
#include "tests/world/sched.h"

#include <errno.h>
#include <ev.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#define MAX_WATCHERS 64

struct ev_loop {
    bool broken;
    unsigned iteration;
    size_t n_timers, n_asyncs, n_ios;
    ev_timer *timers[MAX_WATCHERS];
    int64_t due_ns[MAX_WATCHERS]; /* of each timer */
    ev_async *asyncs[MAX_WATCHERS];
    ev_io *ios[MAX_WATCHERS];
};

static struct ev_loop *io_loop; /* the last loop that watched a file descriptor */

/* ---- libev ----------------------------------------------------------------------------------------------------------- */

static int64_t after_ns(ev_tstamp seconds)
{
    return world_now_ns() + (int64_t)(seconds * 1e9);
}

struct ev_loop *ev_loop_new(unsigned flags) EV_NOEXCEPT
{
    return calloc(1, sizeof(struct ev_loop));
}

void ev_loop_destroy(struct ev_loop *loop) EV_NOEXCEPT
{
    free(loop);
}

void ev_timer_start(struct ev_loop *loop, ev_timer *timer) EV_NOEXCEPT
{
    if (timer->active)
        return;
    if (loop->n_timers == MAX_WATCHERS)
        world_fail("more than %d timers", MAX_WATCHERS);
    timer->active = 1;
    loop->timers[loop->n_timers] = timer;
    loop->due_ns[loop->n_timers++] = after_ns(timer->at);
    world_wake(loop, true);
}

void ev_timer_stop(struct ev_loop *loop, ev_timer *timer) EV_NOEXCEPT
{
    for (size_t i = 0; timer->active && i < loop->n_timers; i++)
        if (loop->timers[i] == timer) {
            loop->timers[i] = loop->timers[--loop->n_timers];
            loop->due_ns[i] = loop->due_ns[loop->n_timers];
            break;
        }
    timer->active = 0;
}

void ev_timer_again(struct ev_loop *loop, ev_timer *timer) EV_NOEXCEPT
{
    ev_timer_stop(loop, timer);
    timer->at = timer->repeat;
    if (timer->repeat > 0)
        ev_timer_start(loop, timer);
}

void ev_async_start(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    if (loop->n_asyncs == MAX_WATCHERS)
        world_fail("more than %d watchers", MAX_WATCHERS);
    async->active = 1;
    async->sent = 0;
    loop->asyncs[loop->n_asyncs++] = async;
}

void ev_async_stop(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    for (size_t i = 0; async->active && i < loop->n_asyncs; i++)
        if (loop->asyncs[i] == async) {
            loop->asyncs[i] = loop->asyncs[--loop->n_asyncs];
            break;
        }
    async->active = 0;
}

void ev_async_send(struct ev_loop *loop, ev_async *async) EV_NOEXCEPT
{
    async->sent = 1;
    world_wake(loop, true);
    world_seam();
}

/* Runs one watcher that is due.  Returns false if there is none. */
static bool run_one(struct ev_loop *loop)
{
    for (size_t i = 0; i < loop->n_asyncs; i++) {
        ev_async *async = loop->asyncs[i];
        if (!async->sent)
            continue;
        async->sent = 0;
        async->cb(loop, async, EV_ASYNC);
        return true;
    }
    for (size_t i = 0, first = world_random(loop->n_ios + 1); i < loop->n_ios; i++) {
        ev_io *io = loop->ios[(first + i) % loop->n_ios];
        if (!lines_is_ready(io->fd, io->events))
            continue;
        io->cb(loop, io, io->events & (EV_READ | EV_WRITE));
        return true;
    }
    for (size_t i = 0; i < loop->n_timers; i++) {
        ev_timer *timer = loop->timers[i];
        if (loop->due_ns[i] > world_now_ns())
            continue;
        if (timer->repeat > 0)
            loop->due_ns[i] = after_ns(timer->repeat);
        else
            ev_timer_stop(loop, timer);
        timer->cb(loop, timer, EV_TIMER);
        return true;
    }
    return false;
}

int ev_run(struct ev_loop *loop, int flags)
{
    loop->broken = false;
    while (!loop->broken) {
        int64_t next_ns = WORLD_NEVER;
        loop->iteration++;
        if (run_one(loop))
            continue;
        for (size_t i = 0; i < loop->n_timers; i++)
            next_ns = loop->due_ns[i] < next_ns ? loop->due_ns[i] : next_ns;
        world_wait(loop, next_ns);
    }
    return 0;
}

void ev_break(struct ev_loop *loop, int how) EV_NOEXCEPT
{
    loop->broken = true;
}

unsigned ev_iteration(struct ev_loop *loop) EV_NOEXCEPT
{
    return loop->iteration;
}

void ev_io_start(struct ev_loop *loop, ev_io *io) EV_NOEXCEPT
{
    if (io->active)
        return;
    if (loop->n_ios == MAX_WATCHERS)
        world_fail("more than %d file descriptors", MAX_WATCHERS);
    io->active = 1;
    loop->ios[loop->n_ios++] = io;
    io_loop = loop;
}

void ev_io_stop(struct ev_loop *loop, ev_io *io) EV_NOEXCEPT
{
    for (size_t i = 0; io->active && i < loop->n_ios; i++)
        if (loop->ios[i] == io) {
            loop->ios[i] = loop->ios[--loop->n_ios];
            break;
        }
    io->active = 0;
}

/* ---- service.h ------------------------------------------------------------------------------------------------------- */

struct service {
    struct ev_loop *loop;
    ev_async stop;
    ev_timer clock;
    int exit_code;
    bool is_ready;
};

static struct service *opened; /* the last opened service */

static void on_stop(struct ev_loop *loop, ev_async *watcher, int events)
{
    ev_break(loop, EVBREAK_ALL);
}

static void on_clock(struct ev_loop *loop, ev_timer *timer, int events)
{
    clock_state_read();
}

void service_catch_signals(void)
{
}

void service_release_signals(void)
{
}

int service_open(struct service **service)
{
    struct service *new = calloc(1, sizeof(*new));

    if (!new)
        return -ENOMEM;
    new->loop = ev_loop_new(0);
    ev_async_init(&new->stop, on_stop);
    ev_async_start(new->loop, &new->stop);
    ev_timer_init(&new->clock, on_clock, 1, 1);
    ev_timer_start(new->loop, &new->clock);
    clock_state_read();
    *service = opened = new;
    return 0;
}

struct ev_loop *service_loop(struct service *service)
{
    return service->loop;
}

int service_run(struct service *service)
{
    service->is_ready = true;
    world_wake(service, true);
    ev_run(service->loop, 0);
    return service->exit_code;
}

void service_stop(struct service *service, int exit_code)
{
    if (service->exit_code == 0)
        service->exit_code = exit_code;
    ev_async_send(service->loop, &service->stop);
}

void service_fail(void *service)
{
    if (service)
        service_stop(service, 1);
}

void service_status(struct service *service, const char *format, ...)
{
}

void service_stopping(struct service *service)
{
}

void service_close(struct service *service)
{
    if (!service)
        return;
    io_loop = io_loop == service->loop ? NULL : io_loop;
    opened = opened == service ? NULL : opened;
    ev_loop_destroy(service->loop);
    free(service);
}

int service_exit_code(int err)
{
    return 1;
}

/* ---- loop.h ---------------------------------------------------------------------------------------------------------- */

static bool has_ended;

void world_program_begins(void)
{
    has_ended = false;
    opened = NULL;
}

void world_program_ends(void)
{
    has_ended = true;
}

struct service *world_await_ready(void)
{
    while (!has_ended && !(opened && opened->is_ready))
        world_wait(NULL, world_now_ns() + NS_PER_MS);
    return has_ended ? NULL : opened;
}

void world_io_changed(void)
{
    if (io_loop)
        world_wake(io_loop, true);
}
