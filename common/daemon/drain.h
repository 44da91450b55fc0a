/* drain.h - longest time for which a stopped process handles data that have already arrived. */
#ifndef COMMON_DAEMON_DRAIN_H
#define COMMON_DAEMON_DRAIN_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stdint.h>

/* Ends well before systemd kills the process (TimeoutStopSec=90), with time for stop heaps and to free all memory. */
#define DRAIN_MAX_NS (60 * NS_PER_S)

/* Logs the losses of a drain, if any: chunks of input, and heaps that had been computed.  Returns true if there are
 * none. */
bool drain_is_complete(uint64_t n_chunks, uint64_t n_heaps);

#endif
