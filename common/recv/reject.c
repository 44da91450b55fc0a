/* reject.c - the names of the reasons, as metrics and log lines give them. */
#include "common/recv/reject.h"

#include <assert.h>

const char *reject_name(enum reject reject)
{
    static const char *const names[N_REJECTS] = {
        [REJECT_NONE] = "none",
        [REJECT_BAD_SENDER] = "bad_sender",
        [REJECT_MALFORMED] = "malformed",
        [REJECT_DESCRIPTOR] = "descriptor",
        [REJECT_STOP] = "stop",
        [REJECT_OTHER_THREAD] = "other_thread",
        [REJECT_NO_ITEMS] = "no_items",
        [REJECT_HEAP_SIZE] = "heap_size",
        [REJECT_ALIGNMENT] = "alignment",
        [REJECT_BAD_TIMESTAMP] = "bad_timestamp",
        [REJECT_BAD_SOURCE] = "bad_source",
        [REJECT_BAD_FREQUENCY] = "bad_frequency",
        [REJECT_CRC] = "crc",
        [REJECT_TOO_OLD] = "too_old",
        [REJECT_JUMP] = "jump",
        [REJECT_CLOCK] = "clock",
        [REJECT_DUPLICATE] = "duplicate",
        [REJECT_NO_CHUNK] = "no_chunk",
    };

    assert((unsigned)reject < N_REJECTS);
    return names[reject];
}

bool reject_is_harmless(enum reject reject)
{
    return reject == REJECT_DESCRIPTOR || reject == REJECT_STOP || reject == REJECT_OTHER_THREAD;
}
