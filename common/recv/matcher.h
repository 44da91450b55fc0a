/* matcher.h - matches the chunks of several members by timestamp, for the worker.
 *
 * Flow:      worker: full chunk --matcher_add--> held per member --> sets [n_members], in order of time
 *            --matcher_next-->
 * Ownership: add passes the chunk to the matcher; next passes the set to the caller.
 * Threads:   the worker only.   Blocking: never.   Allocation: none after create.  Ready sets wait for matcher_next()
 * as long as necessary, so a slow worker makes no member late.
 *
 * A set is ready when each member either has its chunk or will not bring it any more.  Three events exclude the chunk:
 * the member has brought a later one, the member has ended, or another member is 'wait_chunks' chunks ahead.  Absent
 * members are NULL.  A chunk not later than the last set is late and is given back at once.
 *
 * Jumps: a chunk is far if it lies more than 'wait_chunks' + 'window_chunks' chunks ahead of the last set, or more than
 * twice 'window_chunks' behind.  A far chunk is a claim.  A claim is believed if more members make it than brought a
 * near chunk since the claimant's previous chunk.  In addition, 'jump_members' (or all live members) must make the
 * claim, or the claimant made it 'window_chunks' times in a row while the others were silent.
 *
 * Until then chunks far ahead wait, and the oldest is given back if there is no room.  Chunks far behind are given
 * back.  A believed jump back restarts the matcher.  So one wrong clock costs only its own member's data.  If two
 * members contradict each other, the first one stays.  Both match again when they agree.
 *
 * Depth: a member that is not far holds at most 'wait_chunks' chunks after an add.  With one more chunk the member
 * would be 'wait_chunks' ahead of its own oldest chunk.  A far member holds at most one more.  Ready sets are
 * additional.  So a receiver that waits for a free chunk gets one if each member has 'window_chunks' (open) +
 * matcher_depth() + 1.
 *
 * The sets depend only on the order of the adds: a file read by one thread gives the same sets every time. */
#ifndef COMMON_RECV_MATCHER_H
#define COMMON_RECV_MATCHER_H

#include "common/recv/chunk.h"
#include "common/base/counter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct matcher;

struct matcher_config {
    unsigned n_members;
    unsigned window_chunks; /* window of the members' assemblers; >= 1 */
    unsigned wait_chunks;   /* >= window_chunks */
    unsigned jump_members;  /* usually 2; a number above n_members means all members */
    int64_t chunk_samples;
    size_t max_chunks;           /* chunks of all members' pools: the most that can be inside at once */
    struct counter *late_chunks; /* chunks given back unused; may be NULL */
};

int matcher_create(const struct matcher_config *config, struct matcher **matcher);

/* Puts all held chunks (buffer_ref_put), then frees the matcher.  NULL is accepted. */
void matcher_destroy(struct matcher *matcher);

/* Adds a full chunk of 'member'.  The chunk has one reader, the matcher.  A member's chunks come in order of time,
 * except after a jump back.  The member's held chunks are then given back, because the member has left their time. */
void matcher_add(struct matcher *matcher, unsigned member, struct chunk *chunk);

/* Notes that no more chunks of 'member' will come (end of its file). */
void matcher_end(struct matcher *matcher, unsigned member);

/* Returns the next set in order of time: fills set[n_members] and returns true, or returns false if no set is ready. */
bool matcher_next(struct matcher *matcher, struct chunk **set, int64_t *timestamp_samples);

/* Puts all held chunks (buffer_ref_put).  Returns their number. */
size_t matcher_drop(struct matcher *matcher);

/* Returns the number of chunks that the matcher can hold per member, without ready sets. */
unsigned matcher_depth(const struct matcher_config *config);

#endif
