/* notify.h - sends messages to the init system in the same way as sd_notify(3), but without waiting.
 *
 * Threads:  any.
 * Blocking: never.  If the init system's queue is full, notify_send() fails, and the caller must send the message again
 *           later. */
#ifndef COMMON_DAEMON_NOTIFY_H
#define COMMON_DAEMON_NOTIFY_H

#include "common/base/datagram.h"

#include <stdbool.h>
#include <stdint.h>

struct notify {
    struct datagram datagram;
};

/* Opens a socket for messages to $NOTIFY_SOCKET.  Returns 0 or negative errno.  If $NOTIFY_SOCKET is not set, or after
 * a failure, notify_send() does nothing. */
int notify_open(struct notify *notify);

/* Sends 'assignments', such as "READY=1\nSTATUS=running".  Returns 0 or negative errno; -EAGAIN if the init system's
 * queue is full. */
int notify_send(const struct notify *notify, const char *assignments);

/* Returns true if messages are sent to an init system. */
bool notify_is_open(const struct notify *notify);

/* Returns true if this process must send "WATCHDOG=1" at least once in each '*period_us'.  In a container no init
 * system reads these messages.  In a container, service_run() itself ends the process when a thread hangs
 * (service.h). */
bool notify_watchdog(uint64_t *period_us);

void notify_close(struct notify *notify);

#endif
