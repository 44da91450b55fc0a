/* assemble.h - an assembler: finds the place of each packet in a chunk, and keeps a sliding window of open chunks.
 *
 * Flow:      receiver: for each packet assembler_admit -> copy the payload unless it was received in place; when the
 *            window moves on --full chunk--> worker's inbox --used chunk--> member's free inbox
 * Ownership: an open chunk belongs to the assembler, a full chunk to the worker.
 * Threads:   one thread per assembler; threads share only the inboxes.
 * Blocking:  only with 'may_wait' (a recording): the assembler waits for a free chunk.  If a live member has no free
 *            chunk, the assembler refuses the packets of the chunk (REJECT_NO_CHUNK), and their heaps are lost.
 *
 * A heap is complete when each of its bytes has arrived exactly once.  The chunk records arrivals in units of 8 bytes,
 * so a duplicate is refused and cannot complete a heap that has a hole.  Packets of a heap may arrive in any order.
 * Payload sizes are multiples of 8, except in a heap's last packet.  A whole packet is refused if any of its bytes has
 * already arrived.
 *
 * A refused duplicate may differ from the first copy of its bytes.  Either copy may be wrong, so the heap is then
 * contested: it counts as missing, although the first copy's bytes stay in the chunk.  The caller has the payload, so
 * the caller compares the copies (assembler_duplicate_of, assembler_contest).  A duplicate that arrives after its chunk
 * has left is refused as REJECT_TOO_OLD, and does not contest its heap.
 *
 * The window is 'window_chunks' consecutive chunks, starting at index 'oldest'.  The first packet's chunk becomes the
 * oldest.  Later packets are treated by the position of their chunk:
 *   inside the window                        placed
 *   1..window_chunks behind the oldest       late, refused as REJECT_TOO_OLD
 *   ahead of the window, and due             placed; the window moves up, and its oldest chunks leave in order
 *   elsewhere                                a jump, refused as REJECT_JUMP until a claim is believed
 *
 * Due: a timestamp of a live member (a network, not a recording) is due if data of this time may have arrived by now
 * (data_time.h).  A source's next heap and the heap after it are due, too.  So only the data in a real gap are lost,
 * and no source moves the window ahead of time.  In recordings, timestamps up to 'window_chunks' chunks ahead of the
 * window are due.  The same applies to a live member until half of a chunk has arrived, because the arrival times of
 * data are not known earlier.
 *
 * Claims: a source claims a jump by 'jump_heaps' consecutive heaps that are far behind the window, or ahead of it and
 * not due.  The other sources and the elapsed time decide whether the claim is believed (claims.h).  Finally the claim
 * is compared with the host's clock, if 'clock_tolerance_ns' is set and the Linux kernel reports that the clock is
 * synchronised.  If the claim differs from the clock by more than the tolerance, but the window does not, the claim is
 * refused (REJECT_CLOCK).  A stream with a wrong epoch never agrees with the clock, so its jumps are judged without the
 * clock.
 *
 * When a claim is believed, all open chunks leave.  The window then starts at the claimed time, and all claims are
 * forgotten.
 *
 * Leaders: a source's data may arrive earlier than the other sources' data, because of a shorter path.  Such a source
 * is ahead of the window by less than a window, and has not been heard in the window for a window's duration.  After
 * 'jump_heaps' heaps of such a source the window moves up to its heaps.
 *
 * Recordings: packets arrive as fast as they are read, so their arrival times mean nothing.  The packets of a claim are
 * held, and placed once the claim is believed.  So no data after a gap in a recording are lost.
 *
 * Silence: a live member hands on its open chunks after all its sources have been silent (assembler_pass_time()).  The
 * silence must have lasted for a window's duration, less half a chunk, and another member of the group must be 'patience_chunks' ahead,
 * so that the open chunks would soon be too late for the group's sets.  If no member is so far ahead, the silence
 * must have lasted for one second plus the duration of two windows.  Every heap of these chunks is expected, even
 * after the newest heap that arrived.
 *
 * Wrong clock at the start: with 'timebase: clock' the host's clock extends the first timestamp to 64 bits.  If the
 * clock was wrong by more than half a period of 2^48 samples, all timestamps are wrong by whole periods.  They are
 * corrected about three seconds after the Linux kernel reports that the clock is synchronised.
 *
 * Missing heaps: every source is expected to send every heap from the stream's first heap on.  The first heap is the
 * earliest heap in the window's first chunk.  Heaps are expected during a gap, too, and even if no chunk is free for
 * them.  After a gap, heaps are expected from the start of the chunk in which the stream continues.  Expected heaps
 * that are never handed on are missing.  So the number of missing heaps is exact for outages of any length.
 *
 * Restarts: a jump or a flush ends one stream and begins another (chunk->restarts).  In the old stream, heaps are
 * expected up to the newest heap of any source.  If the senders' clock is set forward, the skipped samples are not an
 * outage.  They are counted as 'gap_samples', not as missing heaps.  A recording does not show how much time passed,
 * so every jump forward is a gap there.
 *
 * The assembler takes a chunk from the free inbox when the chunk's first packet arrives.  A chunk without a complete
 * heap returns to the free inbox instead of being handed on.  At most 'window_chunks' chunks are open. */
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
    int64_t heap_samples;      /* timestamp difference of successive heaps of one source, in samples */
    size_t heap_bytes;         /* exact heap length */
    size_t n_heaps_per_source; /* number of heaps of each source in a chunk */
    unsigned n_sources;        /* number of the member's sources */
};

/* A packet's items, after the daemon has identified the packet's source. */
struct assemble_packet {
    unsigned source;   /* < n_sources */
    int64_t timestamp; /* extended to 64 bits */
    uint64_t heap_bytes;
    uint64_t offset;  /* offset of the payload in the heap, in bytes */
    uint64_t n_bytes; /* size of the payload; the parser ensures offset + n_bytes <= heap_bytes */
    uint32_t extra;   /* the daemon's value for chunk->extra */
    uint32_t sender;  /* the sender's address, network order; 0: not known */
};

struct assemble_place {
    int64_t time;  /* heap time: timestamp / heap_samples */
    int64_t chunk; /* chunk index: floor(timestamp / chunk length) */
    size_t heap;   /* index of the heap in the chunk */
    size_t offset; /* byte offset of the packet's payload in the chunk's payload */
};

/* Finds the place of a packet.  Returns REJECT_NONE, or the reason why the packet has no place.  Pure function. */
enum reject assemble_place(const struct assemble_layout *layout, const struct assemble_packet *packet,
                           struct assemble_place *place);

static inline int64_t assemble_chunk_samples(const struct assemble_layout *layout)
{
    return layout->heap_samples * (int64_t)layout->n_heaps_per_source;
}

/* Counters of an assembler.  The daemon publishes the counters under its own names and labels. */
struct assembler_stats {
    struct counter heaps;  /* complete heaps handed on */
    struct counter bytes;  /* payload bytes of complete heaps handed on */
    struct counter chunks; /* chunks handed on */
    /* expected heaps that were never handed on; counted when their chunk leaves the window */
    struct counter missing_heaps;
    struct counter incomplete_heaps;   /* heaps that were still incomplete when their chunk left the window */
    struct counter contested_heaps;    /* missing heaps: two packets had different contents for the same bytes */
    struct counter copied_packets;     /* packets whose payload was not received in place */
    struct counter jumps;              /* jumps of timestamps that were believed; gaps beyond the window are included */
    struct counter gap_samples;        /* samples skipped by forward jumps that exceed the elapsed time */
    struct counter rejects[N_REJECTS]; /* refused packets, by reason */
    struct gauge newest_timestamp;     /* timestamp of the newest chunk handed on; -1: none yet */
};

/* Counters of one source. */
struct assembler_source_stats {
    struct counter heaps; /* complete heaps handed on */
    /* expected heaps that were never handed on; counted when their chunk leaves the window */
    struct counter missing_heaps;
    struct counter late_heaps;     /* heaps whose first packet arrived after their chunk had left the window */
    struct counter refused_heaps;  /* heaps whose first packet was refused for any other reason */
    struct gauge newest_timestamp; /* timestamp of the newest heap handed on; -1: none yet */
};

#define ASSEMBLE_JUMP_HEAPS 8

struct assembler;

struct assembler_config {
    struct assemble_layout layout;
    const char *name;       /* the member's name in messages: "m000 pol 0"; copied */
    unsigned window_chunks; /* >= 1 */
    unsigned jump_heaps;    /* 8 */
    /* number of sources that must support a jump, usually 2; if it exceeds n_sources, all sources must */
    unsigned jump_sources;
    bool may_wait; /* the assembler may wait for a free chunk; set by the receiver */
    struct timebase timebase;
    /* largest permitted difference between a claim and the clock.  0: no comparison.  Ignored with 'may_wait' or
     * timebase.from_packets. */
    int64_t clock_tolerance_ns;
    /* Timestamp of the newest chunk that left the window of any member of the group; may be NULL.  A group consists of the members
     * whose chunks one worker matches. */
    struct gauge *group_timestamp;
    /* a silent member's chunks leave the window if group_timestamp is ahead of them by this number of chunks */
    int64_t patience_chunks;
    struct inbox *free_chunks; /* chunk items */
    /* Called for each chunk from the free inbox before the chunk is used again; NULL: no call. */
    void (*recycle)(void *context, const struct chunk *chunk);
    void *recycle_context;
    struct inbox *worker; /* inbox that gets full chunks as items {full_kind, 0, chunk} */
    int full_kind;
    struct assembler_stats *stats;
    struct assembler_source_stats *source_stats; /* [n_sources], or NULL */
};

int assembler_create(const struct assembler_config *config, struct assembler **assembler);

/* Frees the assembler.  Open chunks would be lost, so call assembler_flush() first.  NULL is accepted. */
void assembler_destroy(struct assembler *assembler);

/* Extends a packet's 48-bit timestamp to 64 bits.  The possible timestamps are 2^48 samples apart.  Returns the
 * possible timestamp that is nearest to a reference timestamp.  The reference is at first the newest chunk's timestamp.
 * If the result is near the window, returns the result.  Otherwise a silence may have been longer than half the range
 * of 48 bits (22 hours at 1.7 GHz), and the host's clock may have been stepped.  The second reference is the timestamp
 * of the data that are due at 'arrival_ns' (data_time.h).  While this timestamp is unknown, and for the first
 * timestamp, the reference is the present time of the host's clock.  With 'timebase: packets' the first timestamp is
 * not extended.  The newest chunk is then always the reference. */
int64_t assembler_unwrap(const struct assembler *assembler, uint64_t wire_timestamp, int64_t arrival_ns);

/* Admits a packet: finds its place, moves the window if necessary and marks the packet's bytes as arrived.  Returns
 * REJECT_NONE.  The caller must then copy the payload to '*payload' before the next call.  If the packet is refused,
 * counts and returns the reason, and leaves '*payload' untouched.  'arrival_ns' is the packet's monotonic arrival
 * time. */
enum reject assembler_admit(struct assembler *assembler, const struct assemble_packet *packet, int64_t arrival_ns,
                            uint8_t **payload);

/* If a live member has been silent, passes the member's open chunks to the worker.  Once a second, compares the
 * member's timestamps with the clock.  Call this function between packets.  'now_ns' is the present monotonic time.
 * After this call, addresses that assembler_expect() returned are invalid. */
void assembler_pass_time(struct assembler *assembler, int64_t now_ns);
/* Counts a packet that the caller refuses.  The counters of the packet's source count heaps.  So only the first packet
 * of each heap increases these counters. */
void assembler_refuse(struct assembler *assembler, const struct assemble_packet *packet, enum reject reject);

/* Call this function after assembler_admit() has refused a packet as REJECT_DUPLICATE.  Returns the first copy of the
 * packet's payload.  Returns NULL if the heap has only a part of the packet's bytes.  The packet then counts as
 * different from the first copy. */
const uint8_t *assembler_duplicate_of(const struct assembler *assembler);

/* Marks the heap of 'packet' as contested.  Call this function if 'packet' was just refused as a duplicate, and its
 * bytes differ from the first copy.  A contested heap counts as missing. */
void assembler_contest(struct assembler *assembler, const struct assemble_packet *packet);

/* Returns the chunk of the last packet admitted. */
struct chunk *assembler_last_chunk(const struct assembler *assembler);

/* Returns the address at which a packet's payload would be stored if the packet arrived now.  Returns NULL if the
 * packet's chunk is not open, or if any of the packet's bytes have arrived.  Changes nothing.  The receiver offers this
 * address to its source (receiver.h). */
uint8_t *assembler_expect(const struct assembler *assembler, const struct assemble_packet *packet);

/* Returns the timestamp of the window's oldest chunk; INT64_MAX if there is no window. */
int64_t assembler_oldest_samples(const struct assembler *assembler);

/* Closes the window's oldest chunk, as assembler_flush() does with all chunks.  There must be a window. */
void assembler_flush_oldest(struct assembler *assembler);

/* Hands on all open chunks, oldest first, at the end of a file or at shutdown.  The stream ends with its newest heap
 * (chunk->n_times).  The next packet starts a new window. */
void assembler_flush(struct assembler *assembler);

#endif
