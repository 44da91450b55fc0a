/* assemble.h - assembles packets into chunks: placement (a pure function) and a sliding window of open chunks.
 *
 * Flow:      receiver: for each packet  assembler_admit -> copy the payload if it was not received in place -> next
 *            window moves on --full chunk--> worker's inbox;  free chunks come from the member's free inbox
 * Ownership: an open chunk belongs to the assembler; a full one to the worker.
 * Threads:   one thread per assembler; threads share nothing but the inboxes.
 * Blocking:  never, unless 'may_wait' (a recording): then the assembler waits for a free chunk.  If a live member has
 *            no free chunk, the heaps of the chunk are counted (REJECT_NO_CHUNK) and lost.
 *
 * A heap is complete when each of its bytes arrived exactly once.  The chunk keeps one bit per 8 bytes, so a duplicate
 * is refused and cannot complete a heap that has a hole.  Packets of a heap come in any order.  Their sizes are
 * multiples of 8, except the size of a heap's last packet.  A packet is refused whole if any of its bytes has arrived.
 *
 * A refused duplicate that differs from the first copy contests its heap, because either copy may be the true one.  The
 * first copy's bytes stay in the chunk, but the heap counts as missing.  The caller has the payload and compares
 * (assembler_duplicate_of, assembler_contest).  A duplicate that comes after its chunk has left is REJECT_TOO_OLD and
 * contests nothing.
 *
 * The window holds 'window_chunks' consecutive chunks [oldest, oldest + window).  The first packet makes its chunk the
 * oldest.  From then on, with d = chunks from the window:
 *   inside                                   placed
 *   1..window_chunks behind the oldest       late: REJECT_TOO_OLD
 *   ahead of the newest, and due             the window moves up to it; the oldest chunks leave, in order
 *   any other                                a jump: REJECT_JUMP until believed
 *
 * Due: a live timestamp is due if it may have arrived by now (data_time.h).  A source's next heap, or next heap but
 * one, is due, too.  So a real gap costs only the absent data, and no source moves the window ahead of its time.  In
 * recordings, and until the first half of a chunk confirms when data arrive, timestamps up to 'window_chunks' ahead are
 * due.
 *
 * A source claims a jump with 'jump_heaps' consecutive heaps that are not due or far behind.  The other sources and the
 * time that passes decide whether the claim is believed (claims.h).  The host's clock decides last, if
 * 'clock_tolerance_ns' is set and the kernel calls the clock synchronised.  A claim further from the clock than the
 * tolerance is then refused (REJECT_CLOCK) if the window agrees with the clock.  A stream with a wrong epoch does not
 * agree with the clock, so this stream jumps as if there were no clock.
 *
 * After a believed claim all open chunks leave.  The window then starts at the new place, without claims.
 *
 * A source may lead the others because its data take less time on the way.  Such a source is ahead of its time by less
 * than a window, and has not been heard in the window for a window's time.  After 'jump_heaps' of its heaps the window
 * moves up to this source.
 *
 * Recordings: packets come as fast as they are read, so only their order counts.  The packets of a claim are held, and
 * placed once the claim is believed.  So no data behind a gap in a recording are lost.
 *
 * Silence: a live member may hand on its open chunks once all its sources have been silent for a window's time
 * (assembler_pass_time()).  The member does so when another member of its group is so far ahead that the chunks would
 * soon be too late ('patience_chunks').  Otherwise the member does so after a second.  All heaps of these chunks were
 * expected, including heaps after the newest one.
 *
 * Half periods: with 'timebase: clock' the clock places the first timestamp.  If the clock was wrong by more than half
 * a period of 2^48 samples, the stream is corrected.  The correction comes some three seconds after the kernel calls
 * the clock synchronised.
 *
 * Heaps are expected from every source, without a gap, from the first heap on: the earliest in the window's first
 * chunk.  Heaps are expected whether or not a chunk is free for them.  Heaps are expected in a gap, too, and again from
 * the start of the chunk after the gap.  Expected heaps that were never handed on are missing.  So an outage of any
 * length is missing exactly to the heap.
 *
 * A jump or a flush ends one stream and begins another (chunk->restarts).  The old stream's heaps were expected up to
 * the newest heap of any source; the next heap is a first heap.  A clock that is set forward is no outage: the samples
 * that it leaves out are counted as 'gap_samples'.  In a recording no time passes, so every jump forward is a gap.
 *
 * A chunk is taken from the free inbox when its first packet comes.  A chunk without a complete heap returns to the
 * free inbox instead of being handed on.  At most 'window_chunks' chunks are open. */
#ifndef COMMON_RECV_ASSEMBLE_H
#define COMMON_RECV_ASSEMBLE_H

#include "common/recv/chunk.h"
#include "common/base/counter.h"
#include "common/base/inbox.h"
#include "common/recv/reject.h"
#include "common/time/timebase.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The shape of a member's chunks. */
struct assemble_layout {
    int64_t heap_samples;      /* timestamp step between successive heaps of one source */
    size_t heap_bytes;         /* exact heap length */
    size_t n_heaps_per_source; /* of one chunk */
    unsigned n_sources;        /* in this member */
};

/* A packet's items, once the daemon has identified the packet. */
struct assemble_packet {
    unsigned source;   /* < n_sources */
    int64_t timestamp; /* 64-bit */
    uint64_t heap_bytes;
    uint64_t offset;  /* of the payload in the heap, in bytes */
    uint64_t n_bytes; /* of the payload; the parser ensures offset + n_bytes <= heap_bytes */
    uint32_t extra;   /* kept per heap */
    uint32_t sender;  /* the sender's address, network order; 0: not known */
};

struct assemble_place {
    int64_t time;  /* time of the heap on the 64-bit grid: timestamp / heap_samples */
    int64_t chunk; /* index of the chunk on the 64-bit grid: floor(timestamp / chunk length) */
    size_t heap;   /* index of the heap in the chunk */
    size_t offset; /* byte offset of the packet's payload in the chunk's payload */
};

/* Returns the place of a packet, or the reason why the packet has no place.  Pure function. */
enum reject assemble_place(const struct assemble_layout *layout, const struct assemble_packet *packet,
                           struct assemble_place *place);

static inline int64_t assemble_chunk_samples(const struct assemble_layout *layout)
{
    return layout->heap_samples * (int64_t)layout->n_heaps_per_source;
}

/* Counters of an assembler.  The daemon publishes them under its own names and labels. */
struct assembler_stats {
    struct counter heaps;              /* complete heaps handed on */
    struct counter bytes;              /* payload bytes of these heaps */
    struct counter chunks;             /* chunks handed on */
    struct counter missing_heaps;      /* expected but never handed on, counted as chunks leave */
    struct counter incomplete_heaps;   /* heaps with holes when their chunk left */
    struct counter contested_heaps;    /* heaps missing because a second, different copy of some bytes came */
    struct counter copied_packets;     /* payloads that were not received in place */
    struct counter jumps;              /* believed jumps, including gaps beyond the window */
    struct counter gap_samples;        /* samples left out by jumps forward that exceed the time that passed */
    struct counter rejects[N_REJECTS]; /* packets, by reason */
    struct gauge newest_timestamp;     /* first sample of the newest chunk handed on; -1 before */
};

/* Counters of one source. */
struct assembler_source_stats {
    struct counter heaps;          /* complete heaps handed on */
    struct counter missing_heaps;  /* expected but never handed on, counted as chunks leave */
    struct counter late_heaps;     /* heaps that came after their chunk had left, counted by their first packets */
    struct counter refused_heaps;  /* heaps refused for any other reason, counted by their first packets */
    struct gauge newest_timestamp; /* timestamp of the newest heap handed on; -1 before */
};

#define ASSEMBLE_JUMP_HEAPS 8

struct assembler;

struct assembler_config {
    struct assemble_layout layout;
    const char *name;       /* the member's name in messages: "m000 pol 0"; copied */
    unsigned window_chunks; /* >= 1 */
    unsigned jump_heaps;    /* 8 */
    unsigned jump_sources;  /* 2 if several sources can agree; a larger number than n_sources means all sources */
    bool may_wait;          /* the assembler may wait for a free chunk; the receiver sets it, from its source */
    struct timebase timebase;
    int64_t clock_tolerance_ns; /* 0: the clock is not used; also unused with 'may_wait' or timebase.from_packets */
    /* Timestamp of the last chunk handed on by any member that the same worker matches; may be NULL. */
    struct gauge *group_timestamp;
    int64_t patience_chunks;   /* lead of group_timestamp over a silent member's window, after which its chunks leave */
    struct inbox *free_chunks; /* chunk items */
    /* Called for each chunk taken from the free inbox, before its reuse; NULL: no call. */
    void (*recycle)(void *context, const struct chunk *chunk);
    void *recycle_context;
    struct inbox *worker; /* full chunks go here as {full_kind, 0, chunk} */
    int full_kind;
    struct assembler_stats *stats;
    struct assembler_source_stats *source_stats; /* [n_sources], or NULL */
};

int assembler_create(const struct assembler_config *config, struct assembler **assembler);

/* Frees the assembler.  Does not return open chunks: call assembler_flush() first.  NULL is accepted. */
void assembler_destroy(struct assembler *assembler);

/* Returns the 64-bit timestamp of this member's 48-bit timestamp: the candidate nearest to the newest accepted one.
 * The first timestamp is the candidate nearest to now by the host's clock.  A timestamp far from the window is the
 * candidate nearest to the data's time at its arrival.  A silence may outlast half the range of 48 bits (22 hours at
 * 1.7 GHz), and the host's clock may have been stepped.  Before the data's time is known the clock decides.  With
 * 'timebase: packets' the newest accepted timestamp always decides. */
int64_t assembler_unwrap(const struct assembler *assembler, uint64_t wire_timestamp, int64_t arrival_ns);

/* Admits a packet: places the packet, moves the window if necessary and marks the packet's bytes as arrived. '*payload'
 * becomes the address to which the caller must copy the payload before the next call.  'arrival_ns' is monotonic.  If a
 * reason is returned, the reason has been counted, no byte is marked and '*payload' is untouched. */
enum reject assembler_admit(struct assembler *assembler, const struct assemble_packet *packet, int64_t arrival_ns,
                            uint8_t **payload);

/* Called between packets.  A live member hands on the data that arrived before a silence, and compares its timestamps
 * with the clock once a second.  'now_ns' is monotonic.  Places that assembler_expect() returned are invalid after this
 * call. */
void assembler_pass_time(struct assembler *assembler, int64_t now_ns);
/* Counts a packet that the caller refuses, as assembler_admit() does.  A refused heap counts once, by its first
 * packet. */
void assembler_refuse(struct assembler *assembler, const struct assemble_packet *packet, enum reject reject);

/* Returns the first copy of the payload of the packet that was just refused as REJECT_DUPLICATE.  Returns NULL if only
 * some of its bytes had arrived: the packet then differs from the first copy. */
const uint8_t *assembler_duplicate_of(const struct assembler *assembler);

/* Contests the heap of the packet just refused, because the packet differs from the first copy.  The heap then counts
 * as missing. */
void assembler_contest(struct assembler *assembler, const struct assemble_packet *packet);

/* Returns the chunk of the last packet admitted. */
struct chunk *assembler_last_chunk(const struct assembler *assembler);

/* Returns the address to which the payload of a packet would go if the packet came now.  Changes nothing.  Returns NULL
 * if the packet's chunk is not open, or if any of its bytes have arrived.  Used to offer landing slots. */
uint8_t *assembler_expect(const struct assembler *assembler, const struct assemble_packet *packet);

/* Returns the first sample of the window; INT64_MAX if there is no window. */
int64_t assembler_oldest_samples(const struct assembler *assembler);

/* Moves the window past its oldest chunk, as assembler_flush() does for all chunks.  There must be a window. */
void assembler_flush_oldest(struct assembler *assembler);

/* Hands on all open chunks (end of a file, shutdown), oldest first.  The stream ends with its newest heap
 * (chunk->n_times).  The next packet starts a new window. */
void assembler_flush(struct assembler *assembler);

#endif
