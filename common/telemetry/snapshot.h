/* snapshot.h - ownership of memory that one thread fills for another on request, without a lock or a wait.
 *
 * Flow:      reader: want --> writer, at its next check: begin, fill, end --> reader: take, read, want again
 * Ownership: the memory is the reader's, except from want to take.  Then it is the writer's, between its begin and end.
 *            So the two never touch the memory at the same time, nothing is copied twice, and nothing is filled without
 *            a request.
 * Threads:   one reader, one writer.   Blocking: never. */
#ifndef COMMON_TELEMETRY_SNAPSHOT_H
#define COMMON_TELEMETRY_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>

enum snapshot_turn { SNAPSHOT_READER, SNAPSHOT_WANTED, SNAPSHOT_WRITER, SNAPSHOT_FULL };

/* Zeroed: the reader owns the memory. */
struct snapshot {
    _Atomic int turn; /* enum snapshot_turn */
};

static inline bool snapshot_change(struct snapshot *snapshot, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&snapshot->turn, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* [reader] Asks the writer to fill the memory, which the reader owns. */
static inline void snapshot_want(struct snapshot *snapshot)
{
    atomic_store_explicit(&snapshot->turn, SNAPSHOT_WANTED, memory_order_release);
}

/* [reader] Returns whether the memory has been filled; the reader then owns it again. */
static inline bool snapshot_take(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_FULL, SNAPSHOT_READER);
}

/* [reader] Withdraws the request if the writer has not begun.  Returns whether the reader owns the memory now. */
static inline bool snapshot_retract(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_WANTED, SNAPSHOT_READER) ||
           atomic_load_explicit(&snapshot->turn, memory_order_acquire) == SNAPSHOT_READER;
}

/* [writer] Returns whether the memory is wanted; the writer then owns it until snapshot_end(). */
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
