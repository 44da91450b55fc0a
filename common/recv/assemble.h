/* assemble.h - packets become chunks: placement (a pure function) and a sliding window of open chunks.
 *
 * Flow:      receiver: for each packet  assembler_admit -> copy the payload if it did not land there -> next
 *            window moves on --full chunk--> worker's inbox;  free chunks come from the member's free inbox
 * Ownership: an open chunk belongs to the assembler; a full one to the worker.
 * Threads:   one thread per assembler; threads share nothing but the inboxes.
 * Blocking:  never, unless 'may_wait' (a recording): then it waits for a free chunk.
 *            Otherwise, where there is no free chunk, the heaps of that chunk are counted (REJECT_NO_CHUNK) and lost.
 *
 * A heap is complete when each of its bytes arrived exactly once.  One bit per 8 bytes is kept, so a duplicate is
 * refused and cannot complete a heap that has a hole.  Packets of a heap may have any sizes that are multiples of 8
 * (the last of a heap: any size) and come in any order.  A packet of which any byte has arrived is refused whole.
 *
 * A refused duplicate that is not the same as the first copy contests its heap: nobody knows which of the two is true.
 * The first copy's bytes stay in the chunk, but the heap counts as missing.  The caller has the payload and compares
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
 * Due, where packets arrive live, is a timestamp that may have arrived by now (data_time.h), or the next heap but one of
 * its source.  So a real gap costs nothing but what was absent, and nobody takes the window ahead of its time.  Before
 * the first half of a chunk has confirmed when data arrive, and in recordings, due is what is at most 'window_chunks'
 * ahead.
 *
 * A source claims a jump with 'jump_heaps' consecutive heaps that are not due or far behind.  The other sources and the
 * time that passes decide whether it is believed (claims.h).  The host's clock has the last word: with
 * 'clock_tolerance_ns', while the kernel calls the clock synchronised, a claim further from the clock than that is
 * refused (REJECT_CLOCK) if the window agrees with the clock.  A stream whose own epoch is off does not agree, and jumps
 * as if there were no clock.
 *
 * Then all open chunks leave and the window starts at the new place, with no claims.
 *
 * A source that is ahead of its time by less than the window can hold, and has not been heard in the window for as long
 * as that lasts, has a shorter way than the others: after 'jump_heaps' heaps the window moves up to it.
 *
 * Recordings: packets come as fast as they are taken, so only their order counts.  The packets of a claim are held
 * and, once it is believed, placed: nothing that a recording has behind a gap is lost.
 *
 * Silence: a live member whose sources have all been silent for the time of a window hands on its open chunks when
 * another member of its group is so far ahead that they would soon be too late for it ('patience_chunks'), or after a
 * second.  assembler_pass_time() does that.  All heaps of such a chunk were expected, also those behind the newest.
 *
 * Half periods: with 'timebase: clock' the first timestamp is placed by the clock.  Where that was wrong by more than
 * half a period of 2^48 samples, the stream is put right some three seconds after the kernel calls the clock synchronised.
 *
 * Heaps are expected from every source, without a gap, from the first heap seen (the earliest in the window's first
 * chunk) on, whether there is a free chunk for them or not.  They are expected in a gap, too, and again from the start
 * of the chunk behind it.  A jump ends one stream and begins another (chunk->restarts), as a flush does: heaps were
 * expected up to the newest of any source, and the next one is a first heap.  Those that were never handed on are
 * missing.  So an outage is missing to the heap, however long it was.  A clock that is set forward is no outage: what it
 * leaves out is counted as 'gap_samples'.  (In a recording no time passes, so there every jump forward is a gap.)
 *
 * Chunks are taken from the free inbox when their first packet comes.  A chunk in which no heap was completed is not
 * handed on but goes home.  At most 'window_chunks' chunks are open. */
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
    int64_t heap_samples;      /* timestamp step from heap to heap of one source */
    size_t heap_bytes;         /* exact heap length */
    size_t n_heaps_per_source; /* of one chunk */
    unsigned n_sources;        /* in this member */
};

/* A packet's items, once the daemon has identified the packet. */
struct assemble_packet {
    unsigned source;   /* < n_sources */
    int64_t timestamp; /* 64-bit */
    uint64_t heap_bytes;
    uint64_t offset;  /* of the payload in the heap */
    uint64_t n_bytes; /* of payload; offset + n_bytes <= heap_bytes is the parser's business */
    uint32_t extra;   /* kept per heap */
    uint32_t sender;  /* its address, network order; 0: not known */
};

struct assemble_place {
    int64_t time;  /* of the heap on the 64-bit grid: timestamp / heap_samples */
    int64_t chunk; /* index of the chunk on the 64-bit grid: floor(timestamp / chunk length) */
    size_t heap;   /* in the chunk */
    size_t offset; /* of the first payload byte in the chunk's payload */
};

/* Placement: packet -> place, or the reason why not.  Pure. */
enum reject assemble_place(const struct assemble_layout *layout, const struct assemble_packet *packet,
                           struct assemble_place *place);

static inline int64_t assemble_chunk_samples(const struct assemble_layout *layout)
{
    return layout->heap_samples * (int64_t)layout->n_heaps_per_source;
}

/* Counters of an assembler.  The daemon publishes them under its own names and labels. */
struct assembler_stats {
    struct counter heaps;              /* complete heaps handed on */
    struct counter bytes;              /* their payload */
    struct counter chunks;             /* handed on */
    struct counter missing_heaps;      /* expected but never handed on, counted as chunks leave */
    struct counter incomplete_heaps;   /* begun but with holes when their chunk left */
    struct counter contested_heaps;    /* missing because a second, different copy of some bytes came */
    struct counter copied_packets;     /* payloads that did not land where they belong */
    struct counter jumps;              /* believed, gaps beyond the window included */
    struct counter gap_samples;        /* left out by jumps forward that no time that passed accounts for */
    struct counter rejects[N_REJECTS]; /* packets, by reason */
    struct gauge newest_timestamp;     /* first sample of the newest chunk handed on; -1 before */
};

/* The same of one source. */
struct assembler_source_stats {
    struct counter heaps;          /* complete heaps handed on */
    struct counter missing_heaps;  /* expected but never handed on, counted as chunks leave */
    struct counter late_heaps;     /* that came after their chunk had left, by their first packets */
    struct counter refused_heaps;  /* for any other reason, by their first packets */
    struct gauge newest_timestamp; /* of the newest heap handed on; -1 before */
};

#define ASSEMBLE_JUMP_HEAPS 8

struct assembler;

struct assembler_config {
    struct assemble_layout layout;
    const char *name;       /* of the member, for messages: "m000 pol 0"; copied */
    unsigned window_chunks; /* >= 1 */
    unsigned jump_heaps;    /* 8 */
    unsigned jump_sources;  /* 2 where several sources can agree; more than there are means all that there are */
    bool may_wait;          /* for a free chunk; a receiver sets it, from its source */
    struct timebase timebase;
    int64_t clock_tolerance_ns; /* 0: the clock has no say; nor has it with 'may_wait' or timebase.from_packets */
    /* Shared by the members that a worker matches: the timestamp of the chunk handed on last; may be NULL. */
    struct gauge *group_timestamp;
    int64_t patience_chunks;   /* by which that may be ahead of a silent member's window before its chunks leave */
    struct inbox *free_chunks; /* chunk items */
    /* Told of a chunk that came from there and will be used again; NULL: nobody. */
    void (*recycle)(void *context, const struct chunk *chunk);
    void *recycle_context;
    struct inbox *worker; /* full chunks go here as {full_kind, 0, chunk} */
    int full_kind;
    struct assembler_stats *stats;
    struct assembler_source_stats *source_stats; /* [n_sources], or NULL */
};

int assembler_create(const struct assembler_config *config, struct assembler **assembler);

/* Gives open chunks back to nobody: call assembler_flush() first.  NULL is accepted. */
void assembler_destroy(struct assembler *assembler);

/* The 64-bit timestamp of a 48-bit one of this member: nearest to the newest accepted.  The first one is nearest to now
 * by the host's clock.  One that is far from the window is nearest to the data's time at its arrival, as a silence may
 * outlast half of what 48 bits hold (22 hours at 1.7 GHz), and the host's clock may have been stepped; before that time
 * is known the clock decides.  With 'timebase: packets' always nearest to the newest. */
int64_t assembler_unwrap(const struct assembler *assembler, uint64_t wire_timestamp, int64_t arrival_ns);

/* Takes a packet in: places it, moves the window if need be, marks its bytes as arrived, and says in '*payload' where
 * the caller must have put them before the next call.  'arrival_ns' is monotonic.  On a reason, which has been counted,
 * no byte is marked and '*payload' is untouched. */
enum reject assembler_admit(struct assembler *assembler, const struct assemble_packet *packet, int64_t arrival_ns,
                            uint8_t **payload);

/* Between packets: a live member hands on what arrived before a silence, and once a second holds its timestamps against
 * the clock.  'now_ns' is monotonic.  No place of assembler_expect() holds beyond this call. */
void assembler_pass_time(struct assembler *assembler, int64_t now_ns);
/* Returns the first copy of the payload of the packet that was just refused as REJECT_DUPLICATE.  Returns NULL if only
 * some of its bytes had arrived: then the packet differs from the first one. */
const uint8_t *assembler_duplicate_of(const struct assembler *assembler);

/* That packet, of this sender, is not the same as the first copy: its heap counts as missing. */
void assembler_contest(struct assembler *assembler, const struct assemble_packet *packet);

/* The chunk of the packet that was let in last. */
struct chunk *assembler_last_chunk(const struct assembler *assembler);

/* Where the payload of a packet would go if it came now, without changing anything: NULL if not into an open chunk, or
 * if any of its bytes have arrived.  For landing slots. */
uint8_t *assembler_expect(const struct assembler *assembler, const struct assemble_packet *packet);

/* First sample of the window; INT64_MAX if there is none. */
int64_t assembler_oldest_samples(const struct assembler *assembler);

/* Moves the window, which there is, past its oldest chunk, as assembler_flush() does it for all. */
void assembler_flush_oldest(struct assembler *assembler);

/* Hands on all open chunks (end of a file, shutdown), oldest first.  The stream ends with its newest heap
 * (chunk->n_times); the next packet would start a new window. */
void assembler_flush(struct assembler *assembler);

#endif
