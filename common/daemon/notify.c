/* notify.c - reads the environment variables of sd_notify(3) and sd_watchdog_enabled(3), and sends messages with
 * datagram.c. */
#include "common/daemon/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int notify_open(struct notify *notify)
{
    const char *address = getenv("NOTIFY_SOCKET");

    notify->datagram.fd = -1;
    return address ? datagram_open(&notify->datagram, address) : 0;
}

int notify_send(const struct notify *notify, const char *assignments)
{
    if (notify->datagram.fd < 0)
        return 0;
    return datagram_send(&notify->datagram, assignments, strlen(assignments));
}

bool notify_is_open(const struct notify *notify)
{
    return notify->datagram.fd >= 0;
}

/* Parses a decimal integer above 0.  Returns false for any other text. */
static bool parse_number(const char *text, uint64_t *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return !errno && !*end && *number > 0;
}

bool notify_watchdog(uint64_t *period_us)
{
    const char *period = getenv("WATCHDOG_USEC");
    const char *of_process = getenv("WATCHDOG_PID"); /* id of the watched process; NULL: any process */
    uint64_t period_found, process;

    if (!period || !parse_number(period, &period_found))
        return false;
    if (of_process && (!parse_number(of_process, &process) || process != (uint64_t)getpid()))
        return false;
    *period_us = period_found;
    return true;
}

void notify_close(struct notify *notify)
{
    datagram_close(&notify->datagram);
}
