/* drain.c - logs the data that were lost at the end of a drain. */
#include "common/daemon/drain.h"

#include "common/base/log.h"

#include <inttypes.h>

bool drain_is_complete(uint64_t n_chunks, uint64_t n_heaps)
{
    if (n_chunks == 0 && n_heaps == 0)
        return true;
    log_error("the drain took longer than %lld s and was abandoned: %" PRIu64
              " received chunks were not processed, and %" PRIu64 " finished heaps were not sent",
              (long long)(DRAIN_MAX_NS / NS_PER_S), n_chunks, n_heaps);
    return false;
}
