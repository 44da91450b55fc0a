/* drain.h - limits the duration of a drain.  A drain is the time after a stop in which the process handles the data
 * that have already arrived. */
#ifndef COMMON_DAEMON_DRAIN_H
#define COMMON_DAEMON_DRAIN_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stdint.h>

/* Longest duration of a drain.  This limit leaves time to send stop heaps and to free memory before systemd kills the
 * process (TimeoutStopSec=90). */
#define DRAIN_MAX_NS (60 * NS_PER_S)

/* Logs an error if chunks were not processed, or finished heaps were not sent.  Returns true if nothing was lost. */
bool drain_is_complete(uint64_t n_chunks, uint64_t n_heaps);

#endif
