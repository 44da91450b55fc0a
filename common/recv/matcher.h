/* matcher.h - combines chunks of several members with the same timestamp into sets, for the worker.
 *
 * Flow:      full chunk --matcher_add--> queue of each member --> sets [n_members], in order of time --matcher_next-->
 *            worker
 * Ownership: matcher_add() passes the chunk to the matcher; matcher_next() passes the set to the caller.
 * Threads:   the worker only.   Blocking: never.   Allocation: none after create.  Ready sets wait for matcher_next()
 * without a limit, so a slow worker makes no member late.
 *
 * A set is ready when each member has added its chunk or will not add it any more.  Three events end the wait for a
 * member's chunk: the member added a later chunk, the member ended, or another member is 'wait_chunks' chunks ahead.
 * The chunk of an absent member is NULL in the set.  A chunk that is not later than the last set is late, and is given
 * back at once.
 *
 * Jumps: a chunk is far if it is more than 'wait_chunks' + 'window_chunks' chunks ahead of the last set, or more than
 * twice 'window_chunks' behind it.  A far chunk is a claim of its member, the claimant.  A member supports the claim if
 * its newest chunk is near the claimant's chunk.  A member contradicts the claim if, after the claimant's previous
 * chunk, it added a chunk that is not far.  A claim is believed if more members support the claim than contradict it.
 * In addition, 'jump_members' members (or all live members) must support the claim, or the claimant must have made
 * 'window_chunks' successive claims of this kind.
 *
 * Until a claim is believed, chunks far ahead wait, and a member's oldest chunk is given back if its queue is full.
 * Chunks far behind are given back.  When a jump back is believed, the matcher starts again.  So a member with a wrong
 * clock loses only its own data.  If two members contradict each other, the matcher follows the member whose chunks
 * arrived first, until the members agree again.
 *
 * Depth: after matcher_add() the queue of a member has at most 'wait_chunks' chunks if they are not far.  With one more
 * chunk, the newest would be 'wait_chunks' ahead of the oldest, whose set would be ready.  The queue of a far member
 * has at most one more chunk.  Chunks in ready sets are additional.  A receiver that waits for a free chunk always gets
 * one if each member has 'window_chunks' (open) + matcher_depth() + 1 chunks.
 *
 * The sets depend only on the order of the calls of matcher_add().  So a file that one thread reads gives the same sets
 * every time. */
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
    unsigned window_chunks; /* window_chunks of the members' assemblers; >= 1 */
    unsigned wait_chunks;   /* >= window_chunks */
    /* number of members that must support a claim, usually 2; if this number exceeds n_members, all members must
     * support the claim */
    unsigned jump_members;
    int64_t chunk_samples;
    size_t max_chunks;           /* number of chunks in all members' pools, which limits the chunks in the matcher */
    struct counter *late_chunks; /* counter of chunks that are given back unused; may be NULL */
};

int matcher_create(const struct matcher_config *config, struct matcher **matcher);

/* Gives back all chunks (buffer_ref_put), then frees the matcher.  NULL is accepted. */
void matcher_destroy(struct matcher *matcher);

/* Adds a full chunk of 'member'.  The matcher owns the chunk's only reference.  A member adds its chunks in order of
 * time, except after a jump back.  After a jump back, the matcher gives back the chunks in the member's queue, because
 * these chunks will not be matched. */
void matcher_add(struct matcher *matcher, unsigned member, struct chunk *chunk);

/* Records that 'member' has ended (for example at the end of a file) and will add no more chunks. */
void matcher_end(struct matcher *matcher, unsigned member);

/* Fills set[n_members] with the next set in order of time.  Returns false if no set is ready. */
bool matcher_next(struct matcher *matcher, struct chunk **set, int64_t *timestamp_samples);

/* Writes the timestamp of the next set, which stays in the matcher.  Returns false if no set is ready. */
bool matcher_peek(const struct matcher *matcher, int64_t *timestamp_samples);

/* Gives back all chunks (buffer_ref_put), ready sets included.  Returns the number of chunks. */
size_t matcher_drop(struct matcher *matcher);

/* Returns the length of each member's queue, in chunks.  Ready sets are additional. */
unsigned matcher_depth(const struct matcher_config *config);

#endif
