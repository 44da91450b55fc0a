/* notify.h - what the init system hears (sd_notify(3)), without a wait for it.
 *
 * Threads:  any.
 * Blocking: never.  A message that the init system has no room for fails; the caller sends it again later. */
#ifndef COMMON_DAEMON_NOTIFY_H
#define COMMON_DAEMON_NOTIFY_H

#include "common/base/datagram.h"

#include <stdbool.h>
#include <stdint.h>

struct notify {
    struct datagram datagram;
};

/* Opens the way to $NOTIFY_SOCKET; without one, notify_send() does nothing.  Returns 0 or negative errno; after a
 * failure, notify_send() does nothing either. */
int notify_open(struct notify *notify);

/* Sends 'assignments', such as "READY=1\nSTATUS=running".  Returns 0 or negative errno: -EAGAIN while the init system's
 * queue is full. */
int notify_send(const struct notify *notify, const char *assignments);

/* Whether the init system wants "WATCHDOG=1" of this process; '*period_us': at least once in that time. */
bool notify_watchdog(uint64_t *period_us);

void notify_close(struct notify *notify);

#endif
