/* record_recv.c - called by the main thread: reports a recorder's refused packets to the operator. */
#include "tools/shared/record_recv.h"

#include "common/base/units.h"

#include <stdio.h>

uint64_t record_recv_count_refused(const struct counter *rejects)
{
    static const enum reject reasons[] = {REJECT_HEAP_SIZE,  REJECT_ALIGNMENT,     REJECT_BAD_TIMESTAMP,
                                          REJECT_BAD_SOURCE, REJECT_BAD_FREQUENCY, REJECT_CRC,
                                          REJECT_JUMP,       REJECT_CLOCK,         REJECT_NO_CHUNK};
    uint64_t n_refused = 0;

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        n_refused += counter_get(&rejects[reasons[i]]);
    return n_refused;
}

char *record_recv_explain(const struct receiver_stats *receiver, const struct assembler_stats *assembler, char *text,
                          size_t text_bytes)
{
    int n = snprintf(text, text_bytes, "%llu packets received", (unsigned long long)counter_get(&receiver->packets));

    for (int i = REJECT_NONE + 1; i < N_REJECTS && n > 0 && (size_t)n < text_bytes; i++) {
        uint64_t n_rejects = counter_get(&receiver->rejects[i]) + counter_get(&assembler->rejects[i]);

        if (n_rejects > 0)
            n += snprintf(text + n, text_bytes - (size_t)n, ", %llu %s as %s", (unsigned long long)n_rejects,
                          reject_is_harmless(i) ? "ignored" : "refused", reject_name(i));
    }
    return text;
}
