/* check_service.c - the reasons that end the service loop, and the messages to systemd. */
#include "common/daemon/service.h"

#include "common/daemon/notify.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct service *service;

static void *stop_with_3_then_4(void *arg)
{
    service_stop(service, 0);
    service_stop(service, 3);
    service_stop(service, 4);
    return NULL;
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    pthread_t *thread = timer->data;

    pthread_create(thread, NULL, stop_with_3_then_4, NULL);
    /* Joined here, so that all of its calls precede the end of the loop. */
    pthread_join(*thread, NULL);
}

/* The first exit code that is not 0 counts, from any thread. */
TEST(stopped)
{
    pthread_t thread;
    ev_timer timer;

    ck_assert_int_eq(service_open(&service), 0);
    ev_timer_init(&timer, on_timer, 0, 0);
    timer.data = &thread;
    ev_timer_start(service_loop(service), &timer);
    ck_assert_int_eq(service_run(service), 3);
    service_close(service);
}

TEST(stopped_before_it_ran)
{
    ck_assert_int_eq(service_open(&service), 0);
    service_stop(service, 5);
    ck_assert_int_eq(service_run(service), 5);
    service_close(service);
    service_close(NULL);
}

static void raise_signal(struct ev_loop *loop, ev_timer *timer, int events)
{
    raise(*(int *)timer->data);
}

TEST(one_signal, .end = 2)
{
    int signal_number = _i == 0 ? SIGTERM : SIGINT;
    ev_timer timer;

    ck_assert_int_eq(service_open(&service), 0);
    ev_timer_init(&timer, raise_signal, 0, 0);
    timer.data = &signal_number;
    ev_timer_start(service_loop(service), &timer);
    ck_assert_int_eq(service_run(service), 0);
    service_close(service);
}

/* A second signal must work although the loop has ended: that is when something hangs. */
TEST(two_signals, .exit_status = 1)
{
    ck_assert_int_eq(service_open(&service), 0);
    raise(SIGTERM);
    ck_assert_int_eq(service_run(service), 0);
    raise(SIGINT);
}

/* Before anything has begun a signal is a clean stop. */
TEST(early_signal, .end = 2)
{
    service_catch_signals();
    raise(_i == 0 ? SIGTERM : SIGINT);
    ck_abort_msg("the signal did not end the process");
}

TEST(released_signal, .signal = SIGTERM)
{
    service_catch_signals();
    service_release_signals();
    raise(SIGTERM);
}

TEST(failing_ends_with_1)
{
    service_fail(NULL);
    ck_assert_int_eq(service_open(&service), 0);
    service_fail(service);
    ck_assert_int_eq(service_run(service), 1);
    service_close(service);
}

/* A signal that comes when the exit code is decided does not change it. */
TEST(late_signal)
{
    service_catch_signals();
    ck_assert_int_eq(service_open(&service), 0);
    service_stop(service, 5);
    ck_assert_int_eq(service_run(service), 5);
    service_close(service);
    raise(SIGTERM);
    raise(SIGINT);
}

TEST(broken_pipe)
{
    int fds[2];

    ck_assert_int_eq(service_open(&service), 0);
    ck_assert_int_eq(pipe(fds), 0);
    close(fds[0]);
    ck_assert_int_eq(write(fds[1], "x", 1), -1);
    close(fds[1]);
    service_close(service);
}

/* The next notification; sending is a datagram to ourselves, so it is already there. */
static void check_notified(int fd, const char *expected)
{
    char text[512];
    ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

static int open_notify_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[120];

    /* An abstract address: nothing to clean up. */
    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "check_service.%ld", (long)getpid());
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1))),
                     0);
    snprintf(text, sizeof(text), "@%s", address.sun_path + 1);
    setenv("NOTIFY_SOCKET", text, 1);
    return fd;
}

TEST(notifications)
{
    int fd = open_notify_socket();
    char text[512];

    ck_assert_int_eq(service_open(&service), 0);
    ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
    service_status(service, "opening %d\nREADY=1", 2);
    check_notified(fd, "STATUS=opening 2 READY=1");
    service_stop(service, 0);
    service_run(service);
    check_notified(fd, "READY=1\nSTATUS=running");
    service_stopping(service);
    check_notified(fd, "STOPPING=1\nSTATUS=draining");
    ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
    service_close(service);
    close(fd);
}

/* ---- An init system that does not read --------------------------------------------------------------------------- */

static int unread_fd;
static size_t n_unread;
static char told[512]; /* what came behind the queue */

/* Fills the init system's queue, so that it takes nothing more. */
static void fill_queue(void)
{
    struct notify filler;

    ck_assert_int_eq(notify_open(&filler), 0);
    while (notify_send(&filler, "filler") == 0)
        n_unread++;
    ck_assert_uint_gt(n_unread, 0);
    notify_close(&filler);
}

static void *status_from_thread(void *arg)
{
    for (int i = 0; i < 1000; i++)
        service_status(service, "status %d", i);
    return NULL;
}

/* In the loop, after READY was lost: two threads go on, and then the init system reads its queue. */
static void use_unread(struct ev_loop *loop, ev_timer *timer, int events)
{
    pthread_t thread;
    char text[32];

    pthread_create(&thread, NULL, status_from_thread, NULL);
    pthread_join(thread, NULL);
    service_status(service, "newest");
    for (size_t i = 0; i < n_unread; i++)
        ck_assert_int_eq(recv(unread_fd, text, sizeof(text), MSG_DONTWAIT), (ssize_t)strlen("filler"));
    ck_assert_int_eq(recv(unread_fd, text, sizeof(text), MSG_DONTWAIT), -1);
}

static void on_told(struct ev_loop *loop, ev_io *watcher, int events)
{
    if (told[0])
        return;
    ssize_t n = recv(unread_fd, told, sizeof(told) - 1, MSG_DONTWAIT);
    if (n > 0 && strncmp(told, "filler", 6) != 0)
        service_stop(service, 0);
    else
        told[0] = '\0';
}

/* Nothing waits for it; READY and the newest STATUS, and no other, are told once it reads again. */
TEST(unread_notifications)
{
    ev_timer timer;
    ev_io io;

    unread_fd = open_notify_socket();
    ck_assert_int_eq(service_open(&service), 0);
    fill_queue();
    service_status(service, "opening");
    ev_timer_init(&timer, use_unread, 0, 0);
    ev_timer_start(service_loop(service), &timer);
    ev_io_init(&io, on_told, unread_fd, EV_READ);
    ev_set_priority(&io, EV_MINPRI); /* behind use_unread() */
    ev_io_start(service_loop(service), &io);
    service_run(service);
    ck_assert_str_eq(told, "READY=1\nSTATUS=newest");
    n_unread = 0;
    fill_queue();
    service_stopping(service);
    char text[32];
    for (size_t i = 0; i < n_unread; i++)
        ck_assert_int_eq(recv(unread_fd, text, sizeof(text), MSG_DONTWAIT), (ssize_t)strlen("filler"));
    service_close(service);
    check_notified(unread_fd, "STOPPING=1\nSTATUS=draining");
    close(unread_fd);
}

/* The next notification, waited for. */
static void wait_notified(int fd, const char *expected)
{
    char text[512];
    ssize_t n = recv(fd, text, sizeof(text) - 1, 0);

    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

static void *run_service(void *arg)
{
    service_run(service);
    return NULL;
}

/* Beats until it is told to stand still, and afterwards. */
static _Atomic int stands_still, has_ended;
static _Atomic int64_t last_beat_ns; /* or a little before */

static void *beat(void *arg)
{
    while (!atomic_load(&has_ended)) {
        if (!atomic_load(&stands_still)) {
            atomic_store(&last_beat_ns, clock_monotonic_ns());
            thread_beat();
        }
        usleep(1000);
    }
    return NULL;
}

/* The service is fed every 50 ms, until a thread has not moved between five looks, 50 ms from each other.  On a busy host
 * that takes longer, and the look after a late one comes sooner: a round in which nothing is late is waited for. */
TEST(watchdog)
{
    int fd = open_notify_socket();
    char text[100] = "", expected[100];
    int n_prompt = 0;
    struct thread thread;
    pthread_t runner;

    setenv("WATCHDOG_USEC", "400000", 1);
    snprintf(text, sizeof(text), "%ld", (long)getpid());
    setenv("WATCHDOG_PID", text, 1);
    ck_assert_int_eq(service_open(&service), 0);
    ck_assert_int_eq(thread_start(&thread, "culprit", -1, beat, NULL), 0);
    pthread_create(&runner, NULL, run_service, NULL);
    wait_notified(fd, "READY=1\nSTATUS=running");
    for (int i = 0; i < 10; i++)
        wait_notified(fd, "WATCHDOG=1");
    for (int round = 0; round < 2 || n_prompt == 0; round++) {
        ck_assert_int_lt(round, 20);
        int64_t begin_ns = clock_monotonic_ns();
        service_status(service, "round %d", round);
        snprintf(expected, sizeof(expected), "STATUS=round %d", round);
        do {
            ck_assert_int_gt(recv(fd, text, sizeof(text), 0), 0);
        } while (!strncmp(text, "WATCHDOG=1", 10));
        ck_assert(!strncmp(text, expected, strlen(expected)));
        atomic_store(&stands_still, 1);
        int n_fed = -1;
        memset(text, 0, sizeof(text));
        do {
            n_fed++;
            ck_assert_int_gt(recv(fd, text, sizeof(text) - 1, 0), 0);
        } while (!strncmp(text, "WATCHDOG=1", 10));
        int64_t end_ns = clock_monotonic_ns();
        ck_assert_int_ge(end_ns - last_beat_ns, 100 * NS_PER_MS);
        ck_assert_int_le(n_fed, (end_ns - begin_ns) / (50 * NS_PER_MS) + 3);
        n_prompt += end_ns - last_beat_ns < 300 * NS_PER_MS && n_fed >= 3;
        ck_assert_msg(!strncmp(text, "STATUS=FAILED: thread culprit (", 31), "%s", text);
        /* From now on there is nothing to be heard. */
        usleep(300000);
        ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
        atomic_store(&stands_still, 0);
        wait_notified(fd, expected);
        wait_notified(fd, "WATCHDOG=1");
    }
    service_stop(service, 0);
    pthread_join(runner, NULL);
    atomic_store(&has_ended, 1);
    thread_join(&thread);
    service_close(service);
    close(fd);
}

/* Without an init system, a hung thread ends the process with exit code 1. */
TEST(watchdog_of_a_container, .exit_status = 1)
{
    struct thread thread;

    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_PID");
    setenv("WATCHDOG_USEC", "400000", 1);
    ck_assert_int_eq(service_open(&service), 0);
    ck_assert_int_eq(thread_start(&thread, "culprit", -1, beat, NULL), 0);
    atomic_store(&stands_still, 1);
    alarm(20);
    service_run(service); /* does not return */
    ck_abort_msg("the service runs on");
}

/* What a restart can cure, and what it cannot. */
TEST(exit_codes)
{
    ck_assert_int_eq(service_exit_code(-ENODEV), EXIT_CONFIG);
    ck_assert_int_eq(service_exit_code(-EADDRNOTAVAIL), EXIT_CONFIG);
    ck_assert_int_eq(service_exit_code(-EADDRINUSE), 1);
    ck_assert_int_eq(service_exit_code(-ENOMEM), 1);
}
