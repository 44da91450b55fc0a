/* matcher.h - the worker puts the chunks of several members together by timestamp.
 *
 * Flow:      worker: full chunk --matcher_add--> held per member --matcher_next--> sets [n_members], in order of time
 * Ownership: add gives the chunk to the matcher; next gives the set to the caller.
 * Threads:   the worker only.   Blocking: never.   Allocation: none after create.
 *
 * A set is ready when all members have it, or when any member that is absent from it can no longer be waited for: another
 * member is 'window_chunks' chunks ahead of it, or the absent one has ended (matcher_end).  Absent members are NULL.
 * A chunk older than the last set handed out cannot be placed any more: it is given back at once (n_late).
 * One mad clock: a member that runs ahead of the last set by more than 'window_chunks' + 1 chunks advances the others only if
 * 'jump_members' members say so (or all that have not ended); until then its chunks wait, and are given back when its
 * 'depth' is used up. */
#ifndef COMMON_MATCHER_H
#define COMMON_MATCHER_H

#include "common/chunk.h"
#include "common/stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct matcher;

struct matcher_config {
    unsigned n_members;
    unsigned window_chunks; /* >= 1 */
    unsigned jump_members;  /* 1: a member alone is believed; 2: where there are two or more */
    int64_t chunk_samples;
    struct counter *late_chunks; /* chunks given back unused; may be NULL */
};

int matcher_create(const struct matcher_config *config, struct matcher **matcher);

/* Puts all chunks it holds (loan_put), then frees.  NULL is accepted. */
void matcher_destroy(struct matcher *matcher);

/* Takes a full chunk of 'member', which has one reader: the matcher.  A member's chunks come in order of time, except
 * after a jump back, which starts the matcher afresh once 'jump_members' members (or all that there are) made it. */
void matcher_add(struct matcher *matcher, unsigned member, struct chunk *chunk);

/* No more chunks of 'member' will come (end of its file). */
void matcher_end(struct matcher *matcher, unsigned member);

/* The next set in order of time: fills set[n_members] and returns true, or false if none is ready. */
bool matcher_next(struct matcher *matcher, struct chunk **set, int64_t *timestamp_samples);

/* How many chunks it can hold per member: what the pools must have beyond everything else. */
unsigned matcher_depth(const struct matcher_config *config);

#endif
