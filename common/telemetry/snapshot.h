/* snapshot.h - passes a block of memory, without a lock, between a reader, which requests data, and a writer, which
 * fills the memory.
 *
 * Flow:      reader: want --> writer, at its next check: begin, fill, end --> reader: take, read, want again
 * Ownership: the reader owns the memory until it calls want, and again after a successful take or retract.  The writer
 *            owns the memory between begin and end.  So the two threads never access the memory at the same time.  The
 *            data are written once, and only on request.
 * Threads:   one reader, one writer.   Blocking: never. */
#ifndef COMMON_TELEMETRY_SNAPSHOT_H
#define COMMON_TELEMETRY_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>

enum snapshot_turn { SNAPSHOT_READER, SNAPSHOT_WANTED, SNAPSHOT_WRITER, SNAPSHOT_FULL };

/* If a snapshot is all zeros, the reader owns the memory. */
struct snapshot {
    _Atomic int turn; /* enum snapshot_turn */
};

static inline bool snapshot_change(struct snapshot *snapshot, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&snapshot->turn, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* [reader] Requests that the writer fill the memory.  The reader must own the memory before the call. */
static inline void snapshot_want(struct snapshot *snapshot)
{
    atomic_store_explicit(&snapshot->turn, SNAPSHOT_WANTED, memory_order_release);
}

/* [reader] Returns true if the writer has filled the memory.  The reader then owns the memory again. */
static inline bool snapshot_take(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_FULL, SNAPSHOT_READER);
}

/* [reader] Withdraws the request if the writer has not begun.  Returns true if the reader owns the memory now. */
static inline bool snapshot_retract(struct snapshot *snapshot)
{
    return snapshot_change(snapshot, SNAPSHOT_WANTED, SNAPSHOT_READER) ||
           atomic_load_explicit(&snapshot->turn, memory_order_acquire) == SNAPSHOT_READER;
}

/* [writer] Returns true if the reader has requested data.  The writer then owns the memory until snapshot_end(). */
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
