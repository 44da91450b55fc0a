/* notify.h - messages to the init system (sd_notify(3)), without waiting for it.
 *
 * Threads:  any.
 * Blocking: never.  If the init system has no room, a send fails, and the caller sends the message again later. */
#ifndef COMMON_DAEMON_NOTIFY_H
#define COMMON_DAEMON_NOTIFY_H

#include "common/base/datagram.h"

#include <stdbool.h>
#include <stdint.h>

struct notify {
    struct datagram datagram;
};

/* Opens the socket $NOTIFY_SOCKET.  Returns 0 or negative errno.  Without $NOTIFY_SOCKET, or after a failure,
 * notify_send() does nothing. */
int notify_open(struct notify *notify);

/* Sends 'assignments', such as "READY=1\nSTATUS=running".  Returns 0 or negative errno: -EAGAIN while the init system's
 * queue is full. */
int notify_send(const struct notify *notify, const char *assignments);

/* Returns whether the init system wants "WATCHDOG=1" from this process, at least once in each '*period_us'. */
bool notify_watchdog(uint64_t *period_us);

void notify_close(struct notify *notify);

#endif
