/* snapshot.h - whose turn it is with memory that one thread fills for another when asked, without a lock or a wait.
 *
 * Flow:      reader: want --> writer, when it comes by: begin, fill, end --> reader: take, read, want again
 * Ownership: the memory is the reader's, but from want until take: then it is the writer's, between its begin and end.
 *            So neither ever touches what the other does, nobody copies twice, and nothing is filled unless asked for.
 * Threads:   one reader, one writer.   Blocking: never. */
#ifndef COMMON_TELEMETRY_SNAPSHOT_H
#define COMMON_TELEMETRY_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>

enum snapshot_turn { SNAPSHOT_READER, SNAPSHOT_WANTED, SNAPSHOT_WRITER, SNAPSHOT_FULL };

/* Zeroed: the reader's. */
struct snapshot {
    _Atomic int turn; /* enum snapshot_turn */
};

static inline bool snapshot_change(struct snapshot *snapshot, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&snapshot->turn, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* [reader] Whose it is: asks for it to be filled. */
static inline void snapshot_want(struct snapshot *snapshot)
{
    atomic_store_explicit(&snapshot->turn, SNAPSHOT_WANTED, memory_order_release);
}

/* [reader] Whether it has been filled; then it is the reader's again. */
static inline bool snapshot_take(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_FULL, SNAPSHOT_READER);
}

/* [reader] Takes back what was wanted, if nobody has begun; returns whether it is the reader's now. */
static inline bool snapshot_retract(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_WANTED, SNAPSHOT_READER) ||
           atomic_load_explicit(&snapshot->turn, memory_order_acquire) == SNAPSHOT_READER;
}

/* [writer] Whether it is wanted: then it is the writer's until snapshot_end(). */
static inline bool snapshot_begin(struct snapshot *snapshot)
{
    return atomic_load_explicit(&snapshot->turn, memory_order_relaxed) == SNAPSHOT_WANTED &&
           snapshot_change(snapshot, SNAPSHOT_WANTED, SNAPSHOT_WRITER);
}

static inline void snapshot_end(struct snapshot *snapshot)
{
    atomic_store_explicit(&snapshot->turn, SNAPSHOT_FULL, memory_order_release);
}

#endif
