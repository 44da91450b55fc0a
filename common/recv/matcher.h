/* matcher.h - the worker puts the chunks of several members together by timestamp.
 *
 * Flow:      worker: full chunk --matcher_add--> held per member --> sets [n_members], in order of time
 *            --matcher_next-->
 * Ownership: add gives the chunk to the matcher; next gives the set to the caller.
 * Threads:   the worker only.   Blocking: never.   Allocation: none after create.
 * Sets that are ready wait for matcher_next() as long as need be: a slow worker makes nobody late.
 *
 * A set is ready when every member has its chunk or will not bring it any more: it has brought a later one, it has
 * ended, or another member is 'wait_chunks' chunks ahead.  Absent members are NULL.  A chunk not later than the last
 * set cannot be placed any more: it is given back at once (late).
 *
 * Jumps: a chunk further from the last set than 'wait_chunks' + 'window_chunks' chunks ahead, or twice 'window_chunks'
 * behind, is far, and a claim.  It is believed when more
 * members make the same claim than brought something near since the claimant's chunk before, and they are
 * 'jump_members' (or all that have not ended), or the claimant made it 'window_chunks' times in a row while the others
 * were silent.  Until then chunks far ahead wait, the oldest being given back where there is no room, and chunks far
 * behind are given back.  A jump back, once believed, starts the matcher afresh.  (One mad clock costs only itself.  If
 * two members contradict each other, the one that was there first stays; they match again by themselves when they
 * agree.)
 *
 * Depth: a member that is not far has at most 'wait_chunks' chunks held after an add, because
 * with one more it is that many ahead of its own oldest; one that is far has at most one more.  Sets that are ready
 * come on top.  So where a receiver waits for free chunks, it gets one if each member has 'window_chunks' (open) +
 * matcher_depth() + 1.
 *
 * Which sets come depends on the order of the adds only: a file read by one thread gives the same sets every time. */
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
    unsigned window_chunks; /* of the members' assemblers; >= 1 */
    unsigned wait_chunks;   /* >= window_chunks */
    unsigned jump_members;  /* 2; more than there are means all that there are */
    int64_t chunk_samples;
    size_t max_chunks;           /* that can be in it at once: those of all members' pools */
    struct counter *late_chunks; /* chunks given back unused; may be NULL */
};

int matcher_create(const struct matcher_config *config, struct matcher **matcher);

/* Puts all chunks it holds (buffer_ref_put), then frees.  NULL is accepted. */
void matcher_destroy(struct matcher *matcher);

/* Takes a full chunk of 'member', which has one reader: the matcher.  A member's chunks come in order of time, except
 * after a jump back: then what is held of it belongs to a time that it has left, and is given back. */
void matcher_add(struct matcher *matcher, unsigned member, struct chunk *chunk);

/* No more chunks of 'member' will come (end of its file). */
void matcher_end(struct matcher *matcher, unsigned member);

/* The next set in order of time: fills set[n_members] and returns true, or false if none is ready. */
bool matcher_next(struct matcher *matcher, struct chunk **set, int64_t *timestamp_samples);

/* Puts all chunks that it holds.  Returns how many. */
size_t matcher_drop(struct matcher *matcher);

/* How many chunks it can hold per member, sets that are ready not counted. */
unsigned matcher_depth(const struct matcher_config *config);

#endif
