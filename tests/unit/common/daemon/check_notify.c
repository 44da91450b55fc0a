/* check_notify.c - the messages that reach the init system's socket.  No thread waits for that socket. */
#include "common/daemon/notify.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

/* The init system's end; sets $NOTIFY_SOCKET.  'abstract': of the abstract namespace, else a path. */
static int open_receiver(bool abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(path, sizeof(path), "/tmp/check_notify.%ld", (long)getpid());
    unlink(path);
    strcpy(address.sun_path + abstract, path);
    socklen_t bytes = abstract ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path))
                               : (socklen_t)sizeof(address);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, bytes), 0);
    char text[80];
    snprintf(text, sizeof(text), "%s%s", abstract ? "@" : "", path);
    setenv("NOTIFY_SOCKET", text, 1);
    return fd;
}

static void check_received(int fd, const char *expected)
{
    char text[512];
    ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

TEST(addresses, .end = 2)
{
    int fd = open_receiver(_i == 1);
    struct notify notify;

    ck_assert_int_eq(notify_open(&notify), 0);
    ck_assert_int_eq(notify_send(&notify, "READY=1\nSTATUS=running"), 0);
    check_received(fd, "READY=1\nSTATUS=running");
    notify_close(&notify);
    close(fd);
    unlink(path);
}

/* A full queue fails at once, and what is sent once there is room arrives behind what was queued. */
TEST(full_queue)
{
    int fd = open_receiver(true);
    int n_queued = 0, err;
    struct notify notify;

    ck_assert_int_eq(notify_open(&notify), 0);
    while ((err = notify_send(&notify, "WATCHDOG=1")) == 0 && n_queued < 100000)
        n_queued++;
    ck_assert_int_eq(err, -EAGAIN);
    ck_assert_int_eq(notify_send(&notify, "STATUS=lost"), -EAGAIN);
    check_received(fd, "WATCHDOG=1");
    ck_assert_int_eq(notify_send(&notify, "STATUS=kept"), 0);
    for (int i = 1; i < n_queued; i++)
        check_received(fd, "WATCHDOG=1");
    check_received(fd, "STATUS=kept");
    notify_close(&notify);
    close(fd);
}

/* An init system that starts again is heard of again. */
TEST(receiver_replaced)
{
    int fd = open_receiver(false);
    struct notify notify;

    ck_assert_int_eq(notify_open(&notify), 0);
    close(fd);
    ck_assert_int_eq(notify_send(&notify, "WATCHDOG=1"), -ECONNREFUSED);
    unlink(path);
    ck_assert_int_eq(notify_send(&notify, "WATCHDOG=1"), -ENOENT);
    fd = open_receiver(false);
    ck_assert_int_eq(notify_send(&notify, "WATCHDOG=1"), 0);
    check_received(fd, "WATCHDOG=1");
    notify_close(&notify);
    close(fd);
    unlink(path);
}

/* Nobody to tell, or an address that is none. */
TEST(nobody)
{
    static const char *const wrong[] = {"", "@", "/", "relative", "vsock:2:1"};
    char too_long[200] = "/";
    struct notify notify;

    unsetenv("NOTIFY_SOCKET");
    ck_assert_int_eq(notify_open(&notify), 0);
    ck_assert_int_eq(notify_send(&notify, "READY=1"), 0);
    notify_close(&notify);
    memset(too_long + 1, 'x', sizeof(too_long) - 2);
    for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("NOTIFY_SOCKET", i < sizeof(wrong) / sizeof(wrong[0]) ? wrong[i] : too_long, 1);
        ck_assert_int_eq(notify_open(&notify), -EINVAL);
        ck_assert_int_eq(notify_send(&notify, "READY=1"), 0);
        notify_close(&notify);
    }
}

TEST(watchdog)
{
    static const char *const wrong[] = {"", "0", "-1", " 1", "1s", "99999999999999999999"};
    uint64_t period_us = 7;
    char process[32];

    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    ck_assert(!notify_watchdog(&period_us));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("WATCHDOG_USEC", wrong[i], 1);
        ck_assert(!notify_watchdog(&period_us));
    }
    setenv("WATCHDOG_USEC", "10000000", 1);
    setenv("WATCHDOG_PID", "1", 1); /* of another process */
    ck_assert(!notify_watchdog(&period_us));
    ck_assert_uint_eq(period_us, 7);
    snprintf(process, sizeof(process), "%ld", (long)getpid());
    setenv("WATCHDOG_PID", process, 1);
    ck_assert(notify_watchdog(&period_us));
    ck_assert_uint_eq(period_us, 10000000);
}
